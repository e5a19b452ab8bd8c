"""Declared noise, measured by runs of the method with other seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedassay.audits.claim.ledger_claim import accounted_for
from fedassay.audits.claim.tape.measured import as_believed, unbelieved
from fedassay.audits.claim.tape.questions import TapeAnswers, ask
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.exchange.release import PrivacyClaim, Release, exact
from fedassay.exchange.transcript import Message, MessageField, Transcript
from fedassay.support.types import Floats

CLASSES, WIDTH, SCALE = 10, 16, 40.0
MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]
Source = Callable[[MethodInput, tuple[int, ...]], Floats]


def _by_seed(task: MethodInput, shape: tuple[int, ...]) -> Floats:
    return task.seeds.numpy("own", shape[-1]).standard_normal(shape)


def _by_system(_task: MethodInput, shape: tuple[int, ...]) -> Floats:
    return np.random.default_rng().standard_normal(shape)


def _by_global(_task: MethodInput, shape: tuple[int, ...]) -> Floats:
    return np.asarray(np.random.standard_normal(shape))  # noqa: NPY002


def _one_for_all_rows(task: MethodInput, shape: tuple[int, ...]) -> Floats:
    """Of the declared size in every number, and gone from the difference of two rows."""
    return np.broadcast_to(_by_seed(task, shape[-1:]), shape).copy() if len(shape) > 1 else _by_seed(task, shape)


def _opposite_halves(task: MethodInput, shape: tuple[int, ...]) -> Floats:
    """The noise of the first rows is taken off the last ones: it is gone from their sum."""
    half = _by_seed(task, (shape[0] // 2, *shape[1:]))
    return np.concatenate([half, -half])


def _fixed(_task: MethodInput, shape: tuple[int, ...]) -> Floats:
    return np.random.default_rng(0).standard_normal(shape)


@dataclass(frozen=True)
class Stranger:
    """Class sums and counts under noise of somebody's own making.

    Attributes:
        share: Of the declared noise, what is added.
        source: Where it comes from.
        whose: The sender whose noise is `share`; the others' is whole. None: everybody's.
        left_out: Numbers of every array that get none.
        beneath: Deviation of what varies with the seeds beneath the noise of sums.
    """

    share: float = 1.0
    source: Source = _by_seed
    whose: str | None = None
    left_out: int = 0
    beneath: float = 0.0

    def run(self, task: MethodInput) -> Outcome:
        """One message a client."""
        messages = tuple(self._message(number, task) for number in range(len(task.clients)))
        claim = PrivacyClaim(epsilon=1.0, delta=1e-5, adjacency="replace_one", source="a test")
        return Outcome(Transcript("stranger", CLASSES, messages, claim), None)

    def _message(self, number: int, task: MethodInput) -> Message:
        client = task.clients[number]
        share = self.share if self.whose in (None, client.name) else 1.0
        # No two rows are alike, also of classes without records.
        sums = np.tile(np.pi * np.arange(CLASSES)[:, None], (1, WIDTH))
        np.add.at(sums, client.labels, client.features[:, :WIDTH] + 0.5)
        counts = np.bincount(client.labels, minlength=CLASSES).astype(np.float64)
        task = replace(task, seeds=task.seeds.child(client.name))
        sums = sums + self.beneath * task.seeds.numpy("coins").standard_normal(sums.shape)
        fields = {}
        for name, kind, values in (("sums", "class_sums", sums), ("counts", "class_counts", counts)):
            noise = share * SCALE * self.source(task, values.shape)
            noise.reshape(-1)[: self.left_out] = 0.0
            release = Release(
                mechanism="gaussian", adjacency="replace_one", noise_scale=(SCALE,), sensitivity=(1.0,)
            )
            fields[name] = MessageField(values + noise, kind, release)
        return Message(0, client.name, "server", fields)


def _context(stranger: Stranger, make_task: MakeTask, make_context: MakeContext) -> AuditContext:
    return make_context(make_task(clients=3, records=60, epsilon=1.0, adjacency="replace_one"), stranger)


def _asked(context: AuditContext) -> TapeAnswers:
    claim = context.outcome.transcript.claim
    assert isinstance(claim, PrivacyClaim)
    return ask(claim, accounted_for(claim, context), context)


@pytest.mark.parametrize("source", [_by_seed, _by_system, _by_global])
def test_honest_strangers_are_measured(source: Source, make_task: MakeTask, make_context: MakeContext) -> None:
    asked = _asked(_context(Stranger(source=source), make_task, make_context))
    assert not asked.failed, asked.failed
    assert asked.open is not None
    assert asked.open.verdict == "unsupported"
    assert "its noise was measured, not computed again" in asked.open.reason


@pytest.mark.parametrize(
    "stranger",
    [
        Stranger(1 / 50),
        Stranger(0.7),
        Stranger(0.7, _by_system),
        Stranger(0.0),
        Stranger(0.5, whose="client/1"),
        Stranger(1.0, _fixed),
        Stranger(left_out=1),
        Stranger(1.0, _one_for_all_rows),
        Stranger(1.0, _opposite_halves),
    ],
    ids=lambda each: f"{each.share}-{each.source.__name__}-{each.whose}-{each.left_out}",
)
def test_too_little_noise_of_strangers_disproves(
    stranger: Stranger, make_task: MakeTask, make_context: MakeContext
) -> None:
    asked = _asked(_context(stranger, make_task, make_context))
    assert asked.failed
    assert {answer.question for answer in asked.of("failed")} == {"noise"}


def test_coins_beneath_the_noise_are_no_noise(make_task: MakeTask, make_context: MakeContext) -> None:
    """Values that vary by themselves refute nothing, and their noise is not taken for measured."""
    asked = _asked(_context(Stranger(beneath=100.0), make_task, make_context))
    assert not asked.failed, asked.failed
    assert asked.open is not None
    assert "varies more than its noise" in asked.open.reason


@pytest.mark.parametrize(("share", "believed"), [(1.0, 1.0), (0.5, 0.5), (0.0, 0.0)])
def test_no_attack_believes_more_noise_than_there_is(
    share: float, believed: float, make_task: MakeTask, make_context: MakeContext
) -> None:
    context = _context(Stranger(share), make_task, make_context)
    transcript = as_believed(context.outcome.transcript, unbelieved(context))
    release = transcript.messages[0].fields["sums"].release
    if not believed:
        assert release.mechanism == exact().mechanism
        return
    assert release.noise_scale is not None
    assert release.noise_scale[0] == pytest.approx(believed * SCALE, rel=0.1)
