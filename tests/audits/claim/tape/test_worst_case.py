"""Sensitivities of this run's data are no worst cases: a claim that rests on one is refuted, or not refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from contexts import with_runs
from numpy.typing import NDArray

from fedassay.audits.claim.audit import DpClaimAudit
from fedassay.audits.claim.ledger_claim import accounted_for
from fedassay.audits.claim.tape.farthest import farthest
from fedassay.audits.claim.tape.questions import TapeAnswers, ask
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.exchange.release import PrivacyClaim, Release
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.privacy.gaussian import calibrate_sigma, epsilon_of
from fedassay.privacy.mechanisms import clip_features
from fedassay.privacy.reruns import Experiment, flat_rows
from fedassay.privacy.sensitivities import Neighbours
from fedassay.support.adjacency import Adjacency

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]


@dataclass(frozen=True)
class ByClass:
    """Sends a statistic of the clipped features of every class, under noise for a sensitivity as it is stated."""

    statistic: Statistic
    sensitivity: float
    worst: tuple[Floats, Floats] | None = None

    def run(self, task: MethodInput) -> Outcome:
        """One message a client."""
        privacy, messages = task.privacy, []
        sigma = calibrate_sigma(privacy.epsilon, privacy.delta, self.sensitivity)
        release = Release(
            mechanism="gaussian",
            adjacency=privacy.adjacency,
            group="statistic",
            noise_scale=(sigma,),
            sensitivity=(self.sensitivity,),
        )
        for client in task.clients:
            features = clip_features(client.features)
            rows = [features[client.labels == number] for number in range(task.classes)]
            exact = np.stack([self.statistic(own) if len(own) else np.zeros(features.shape[1]) for own in rows])
            sent = task.mechanism(client.name, 0, "statistic").add("statistic", exact, sigma)
            # A label of a sum, which proves nothing.
            item = MessageField(sent, "class_sums", release, additive=True)
            messages.append(Message(0, client.name, SERVER, {"statistic": item}))
        transcript = Transcript("by_class", task.classes, tuple(messages), privacy.claim("a test"))
        return Outcome(transcript, None, mechanisms={} if self.worst is None else {"own": self._own(sigma)})

    def _own(self, sigma: float) -> Experiment:
        assert self.worst is not None
        none = np.zeros(1, dtype=np.int64)
        sides = Neighbours(self.worst[0][None], none, self.worst[1][None], none)

        def release(x: Floats, _y: Any, scales: Any, rng: np.random.Generator, reruns: int) -> tuple[Floats]:
            return (self.statistic(x) + scales[0] * rng.standard_normal((reruns, x.shape[1])),)

        mu = float(np.linalg.norm(self.statistic(sides.features1) - self.statistic(sides.features0))) / sigma
        return Experiment(sides, mu, (sigma,), release, (flat_rows,))


def _sum(rows: Floats) -> Floats:
    return np.asarray(rows.sum(axis=0))


def _mean(rows: Floats) -> Floats:
    return np.asarray(rows.mean(axis=0))


def _largest(rows: Floats) -> Floats:
    return np.asarray(rows.max(axis=0))


def _trimmed(rows: Floats) -> Floats:
    cut = len(rows) // 4
    return np.asarray(np.sort(rows, axis=0)[cut : len(rows) - cut].mean(axis=0))


def _direction(rows: Floats) -> Floats:
    """The first principal direction, its sign fixed."""
    first = np.linalg.svd(rows, full_matrices=False)[2][0]
    return np.asarray(first * np.sign(first[np.argmax(np.abs(first))]))


def _context(
    method: ByClass, adjacency: Adjacency, make_task: MakeTask, make_context: MakeContext, **more: Any
) -> AuditContext:
    task = make_task(clients=2, records=160, epsilon=4.0, adjacency=adjacency)
    return make_context(task, method, **more)


def _asked(context: AuditContext, pairs: int = 12) -> TapeAnswers:
    claim = context.outcome.transcript.claim
    assert isinstance(claim, PrivacyClaim)
    return ask(claim, accounted_for(claim, context), context, 8, pairs=pairs)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one", "replace_one_same_label"])
def test_a_sum_is_known_without_a_word_of_the_method(
    adjacency: Adjacency, make_task: MakeTask, make_context: MakeContext
) -> None:
    sensitivity = 1.0 if adjacency == "add_remove" else 2.0
    asked = _asked(_context(ByClass(_sum, sensitivity), adjacency, make_task, make_context))
    assert asked.open is None, asked.answers
    assert "is a sum over records" in asked.passed


@pytest.mark.parametrize(
    ("statistic", "sensitivity", "adjacency"),
    [
        # The neighbours of this run's classes of some eight records stay within all of these.
        (_trimmed, 1.5, "replace_one_same_label"),
        (_direction, 0.9, "replace_one_same_label"),
        (_mean, 0.9, "replace_one"),
    ],
)
def test_a_local_sensitivity_is_refuted_by_the_search(
    statistic: Statistic, sensitivity: float, adjacency: Adjacency, make_task: MakeTask, make_context: MakeContext
) -> None:
    context = _context(ByClass(statistic, sensitivity), adjacency, make_task, make_context)
    # The lone record of a class, which no neighbour of this run's data is, refutes a mean by itself.
    assert ("the only record of class" in _asked(context, pairs=0).failed) == (statistic is _mean)
    asked = _asked(context)
    assert [answer.question for answer in asked.of("failed")] == ["sensitivity"], asked.answers


def test_a_statistic_of_unknown_worst_case_is_not_refuted_and_no_more(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    """A coordinate-wise maximum of vectors of norm 1 moves by 2 at most, which no record shows by itself."""
    context = _context(ByClass(_largest, 2.0), "replace_one_same_label", make_task, make_context)
    asked = _asked(context)
    assert not asked.failed
    assert asked.open is not None
    assert asked.open.verdict == "not_refuted"
    assert "no sum over its records" in asked.open.reason
    audit = DpClaimAudit(mechanism_trials=2000, replays=8, neighbours=12)
    (finding,) = audit.assess(None, context)
    assert finding.verdict == "not_refuted", finding.reason
    observed = finding.metrics["observed"].value
    assert observed is not None
    assert 0.5 < observed <= 4


def test_worst_neighbours_of_the_methods_own_must_attain_what_is_declared(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    axis = np.zeros(4)
    axis[0] = 1.0
    for worst, passes in (((-axis, axis), True), ((0 * axis, axis), False)):
        context = _context(ByClass(_largest, 2.0, worst), "replace_one_same_label", make_task, make_context)
        assert (_asked(context, pairs=4).open is None) is passes


def test_the_search_is_counted_and_seeded(make_task: MakeTask, make_context: MakeContext) -> None:
    context = _context(ByClass(_trimmed, 1.5), "replace_one_same_label", make_task, make_context)
    claim = context.outcome.transcript.claim
    assert isinstance(claim, PrivacyClaim)
    first, again = (farthest(context, claim, 6) for _ in range(2))
    assert (first.mu, first.words, first.tried) == (again.mu, again.words, again.tried)
    assert 0 < first.tried <= 6 * 2
    assert first.experiment is not None
    assert first.experiment.mu == pytest.approx(first.mu)


def test_what_the_search_finds_is_observed(make_task: MakeTask, make_context: MakeContext) -> None:
    context = _context(ByClass(_trimmed, 1.5), "replace_one_same_label", make_task, make_context)
    (finding,) = DpClaimAudit(mechanism_trials=5000, replays=8, neighbours=12).assess(None, context)
    assert finding.verdict == "unsound", finding.reason
    sigma = calibrate_sigma(4.0, 1e-5, 1.5)
    observed = finding.metrics["observed"].value
    assert observed is not None
    # One record alone in its class is the statistic: it moves by 2.
    assert 4 < observed < epsilon_of(2.02 / sigma, 1e-5)


def test_a_second_look_shares_the_search(make_task: MakeTask, make_context: MakeContext) -> None:
    context = _context(ByClass(_trimmed, 1.5), "replace_one_same_label", make_task, make_context)

    def never(*_given: object, **_named: object) -> Any:
        raise AssertionError

    first = _asked(context)
    assert _asked(with_runs(context, rerun=never)).answers == first.answers
