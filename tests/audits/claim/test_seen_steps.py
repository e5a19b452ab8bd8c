"""DP-SGD whose every step is seen: broken steps are refuted, whole ones are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedassay.audits.claim.audit import DpClaimAudit
from fedassay.audits.claim.canary_scores import SHARES, CanaryScores
from fedassay.audits.claim.guesses import one_run_of_all, pairs_of_guesses
from fedassay.audits.claim.seen_steps import (
    Steps,
    bounds_of_seen,
    simulated,
    steps_of_rounds,
    trained_on,
)
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import MethodInput
from fedassay.nets.dp_sgd import loop
from fedassay.nets.dp_sgd.canaries import train_on_canaries
from fedassay.nets.dp_sgd.clipped_sums import ClippedSums
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.privacy.gaussian import mu_of
from fedassay.privacy.tape import Key
from fedassay.support.errors import NotRunError
from fedassay.support.registry import lookup
from fedassay.support.seeds import Seeds

DELTA, CANARIES = 1e-5, 2000
PRIVATE = PrivateSteps(noise_multiplier=4.0, sampling_rate=0.2, steps=40, norm=0.5, batch=20.0)
MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]
Patch = pytest.MonkeyPatch


def _steps(adjacency: Any = "add_remove", *rounds: PrivateSteps) -> Steps:
    return steps_of_rounds(rounds or (PRIVATE,), Updates(1e-2), adjacency, DELTA, "client/0")


def _bounds(steps: Steps, count: int = CANARIES) -> tuple[float, float]:
    conditional, free = bounds_of_seen(trained_on(steps.rounds, steps, count, Seeds(0)), steps, DELTA, 0.95)
    assert conditional.epsilon is not None
    assert free.epsilon is not None
    return conditional.epsilon, free.epsilon


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one_same_label"])
def test_whole_steps_show_most_of_what_is_accounted_and_no_more(adjacency: str) -> None:
    steps = _steps(adjacency)
    conditional, free = _bounds(steps)
    assert 0.5 * steps.epsilon < conditional <= steps.epsilon
    assert 0 < free <= steps.epsilon


def test_canaries_of_the_shipped_loop_are_those_of_the_declared_law() -> None:
    """Scores of canaries that went through the code, and of sums drawn from the law, have the same moments."""
    steps = _steps("add_remove", PRIVATE, PRIVATE)
    shipped = trained_on(steps.rounds, steps, CANARIES, Seeds(0))
    law = simulated(steps.rounds, steps.adjacency, CANARIES, Seeds(1))
    for name, values in law.scores.named().items():
        own = shipped.scores.named()[name]
        for side in (True, False):
            a, b = own[shipped.included == side], values[law.included == side]
            error = np.sqrt(a.var() / len(a) + b.var() / len(b))
            assert abs(a.mean() - b.mean()) < 4 * error, name
            assert abs(np.log(a.std() / b.std())) < 0.15, name


def test_a_canary_moves_its_own_entry_by_the_norm_and_no_other() -> None:
    seen: list[np.ndarray] = []
    private = replace(PRIVATE, noise_multiplier=0.0, sampling_rate=1.0, steps=3)
    mechanism = TrainingMechanism(Seeds(0), Seeds(1), Key("canaries", 0, "head"))
    signs = np.array([1, 0, -1] * 8, dtype=np.int64)
    train_on_canaries(signs, private, Updates(1e-2), mechanism, lambda sums: seen.append(np.array(sums)))
    assert len(seen) == 3
    for sums in seen:
        np.testing.assert_allclose(sums, signs, atol=1e-5)


def _half_of_the_noise(patch: Patch) -> None:
    real = TrainingMechanism.noised
    patch.setattr(TrainingMechanism, "noised", lambda self, step, sums, size: real(self, step, sums, size / 2))


def _no_noise(patch: Patch) -> None:
    patch.setattr(
        TrainingMechanism, "noised", lambda self, step, sums, size: {n: s.double() for n, s in sums.items()}
    )


def _not_clipped(patch: Patch) -> None:
    real = ClippedSums.__init__

    def begin(self: ClippedSums, network: nn.Module, objective: Any, norm: float, **named: Any) -> None:
        real(self, network, objective, 1e9, **named)

    patch.setattr(ClippedSums, "__init__", begin)


def _clipped_as_a_batch(patch: Patch) -> None:
    """The batch's sum is scaled to as many norms as it has records: one record may take all of them."""

    def sums(self: ClippedSums, inputs: Tensor, labels: Tensor, streams: Any, **named: Any) -> dict[str, Tensor]:
        found: dict[str, Tensor] = real(self, inputs, labels, streams, **named)
        return {name: each * len(labels) for name, each in found.items()}

    real = ClippedSums.__call__
    patch.setattr(ClippedSums, "__call__", sums)


def _everybody_in_every_step(patch: Patch) -> None:
    patch.setattr(TrainingMechanism, "sampled", lambda self, step, records, rate: np.arange(records))


def _the_same_sample_in_every_step(patch: Patch) -> None:
    real = TrainingMechanism.sampled
    patch.setattr(TrainingMechanism, "sampled", lambda self, step, records, rate: real(self, 0, records, rate))


def _the_same_noise_in_every_step(patch: Patch) -> None:
    real = TrainingMechanism.noised
    patch.setattr(TrainingMechanism, "noised", lambda self, step, sums, size: real(self, 0, sums, size))


def _one_noise_for_all_entries(patch: Patch) -> None:
    real = TrainingMechanism.noised

    def noised(self: TrainingMechanism, step: int, sums: dict[str, Tensor], size: float) -> dict[str, Tensor]:
        noise = real(self, step, {name: torch.zeros(()) for name in sums}, size)
        return {name: each + noise[name] for name, each in sums.items()}

    patch.setattr(TrainingMechanism, "noised", noised)


def _steps_tripled(patch: Patch) -> None:
    real = loop._take_steps

    def three(training: Any, *rest: Any) -> None:
        real(replace(training, private=replace(training.private, steps=3 * training.private.steps)), *rest)

    patch.setattr(loop, "_take_steps", three)


FAULTS = (
    _half_of_the_noise,
    _no_noise,
    _not_clipped,
    _clipped_as_a_batch,
    _everybody_in_every_step,
    _the_same_noise_in_every_step,
    _one_noise_for_all_entries,
    _steps_tripled,
)


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one_same_label"])
def test_broken_steps_are_refuted_beyond_what_is_accounted(
    fault: Callable[[Patch], None], adjacency: str, monkeypatch: Patch
) -> None:
    steps = _steps(adjacency)
    fault(monkeypatch)
    assert max(_bounds(steps)) > steps.epsilon


@pytest.mark.long
def test_records_that_come_into_every_step_are_told(monkeypatch: Patch) -> None:
    """One in five gives itself away, and the rest nothing: the few largest scores say so."""
    steps = _steps()
    _the_same_sample_in_every_step(monkeypatch)
    assert max(_bounds(steps, 8000)) > steps.epsilon


def test_rounds_of_unlike_noise_are_not_scored() -> None:
    with pytest.raises(NotRunError, match="noised or sampled differently"):
        _steps("add_remove", PRIVATE, replace(PRIVATE, noise_multiplier=5.0))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one_same_label"])
def test_scores_of_full_batches_are_the_gaussian_likelihood_ratio(adjacency: Any) -> None:
    rng, scores = np.random.default_rng(0), CanaryScores(5, 2.0, 1.0, adjacency)
    sums = rng.standard_normal((3, 5))
    for each in sums:
        scores.see(each)
    expected = (sums - 0.5).sum(axis=0) / 4 if adjacency == "add_remove" else 2 * sums.sum(axis=0) / 4
    np.testing.assert_allclose(scores.named()["likelihood"], expected)


@pytest.mark.long
def test_more_canaries_and_larger_claims_are_guessed_on_differently() -> None:
    """The number of guesses is fixed by what is declared alone."""
    many, few = (pairs_of_guesses(count, 1.0, DELTA, 0.05) for count in (20_000, 1000))
    assert sum(many) > sum(few)
    for level in (0.05, 1e-5):
        assert 1 <= sum(pairs_of_guesses(100, 8.0, DELTA, level)) <= 50


def _of_law(count: int, declared: float, seed: int, *, noise: float | None = None) -> tuple[CanaryScores, Any]:
    """Forty sampled steps of a law that declares an epsilon, with its noise or another."""
    rng, multiplier = np.random.default_rng(seed), 1 / mu_of(declared, DELTA)
    included, scores = rng.random(count) < 0.5, CanaryScores(count, multiplier, 1.0, "add_remove")
    scores.see(included + (multiplier if noise is None else noise) * rng.standard_normal(count))
    return scores, included


def _free(scores: CanaryScores, included: Any, epsilon: float, bounds: int = 1) -> float:
    return one_run_of_all(scores, included, removed=True, epsilon=epsilon, delta=DELTA, error=0.05 / bounds)


@pytest.mark.long
@pytest.mark.parametrize(("count", "claimed"), [(20_000, 8.0), (1000, 4.0)])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_what_has_no_noise_is_refuted_in_a_run_of_five_bounds(count: int, claimed: float, noise: float) -> None:
    """Guesses that are designed for an honest mechanism show 5.6 of 8 and 3.98 of 4 there."""
    assert _free(*_of_law(count, claimed, seed=0, noise=noise), claimed, bounds=5) > claimed


def test_the_shares_of_the_error_add_up_and_guesses_on_all_cost_little() -> None:
    assert math.isclose(sum(SHARES.values()), 1)
    found = np.array([_free(*_of_law(1000, 4.0, seed), 4.0) for seed in range(12)])
    # 1.49 in the median of 40 runs where the likelihood ratio had 85 % of the error.
    assert np.median(found) > 1.49 - 0.03 * 4
    assert (found <= 4.0).all()


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_guesses_on_all_canaries_say_nothing_of_coins_drawn_anew(shift: float) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        scores, _ = _of_law(400, 4.0, int(rng.integers(1000)), noise=0.0 if shift else None)
        included = rng.random(400) < 0.5
        assert abs(float((scores.parted() == included).mean()) - 0.5) < 4 * 0.5 / 20


@pytest.mark.slow
def test_false_claims_on_null_runs_are_no_more_than_nominal() -> None:
    """200 trainings that leave exactly what they declare: bounds above that are at most as many as 5 % allow."""
    steps, above = _steps(), np.zeros(2)
    for seed in range(200):
        seen = simulated(steps.rounds, steps.adjacency, CANARIES, Seeds(seed))
        above += [(bound.epsilon or 0.0) > steps.epsilon for bound in bounds_of_seen(seen, steps, DELTA, 0.95)]
    assert (above <= 18).all(), above


@pytest.mark.long
def test_dp_claim_observes_a_private_training(make_task: MakeTask, make_context: MakeContext) -> None:
    task = make_task(epsilon=4.0, clients=2, records=80)
    method = lookup("method", "ensemble")(dp_sgd={"epochs": 5})
    (finding,) = DpClaimAudit(canaries=1000).assess(None, make_context(task, method))
    observed = finding.metrics["observed"].value
    assert finding.verdict == "sound", finding.reason
    assert observed is not None
    assert 1 < observed < 4
    assert "gradient canaries" in (finding.source or "")
    assert finding.controls.positive is not None
    assert finding.controls.positive.caught


@pytest.mark.long
def test_dp_claim_refutes_a_training_with_half_of_the_noise(
    make_task: MakeTask, make_context: MakeContext, monkeypatch: Patch
) -> None:
    _half_of_the_noise(monkeypatch)
    task = make_task(epsilon=4.0, clients=2, records=80)
    method = lookup("method", "ensemble")(dp_sgd={"epochs": 5})
    (finding,) = DpClaimAudit(canaries=4000).assess(None, make_context(task, method))
    observed = finding.metrics["observed"].value
    assert finding.verdict == "unsound", finding.reason
    assert observed is not None
    assert observed > 4
