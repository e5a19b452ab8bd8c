"""DP-SGD that is not what it declares is found by measuring its steps; what is, passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedassay.audits.claim.audit import DpClaimAudit
from fedassay.audits.claim.training import training_facts
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import MethodInput
from fedassay.exchange.release import NoClaim
from fedassay.exchange.transcript import Transcript
from fedassay.nets import local_training, private_generators
from fedassay.nets.private_steps import PrivateSteps
from fedassay.nets.step_log import Measured, note_step, note_training, steps_measured
from fedassay.records.record import Finding
from fedassay.support.registry import lookup

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"local_epochs": 2},
    "ensemble": {},
    "feddiff": {"epochs": 2, "steps": 4, "dp_sgd": {"epochs": 2}},
}


def assess(name: str, make_task: MakeTask, make_context: MakeContext) -> Finding:
    task = make_task(epsilon=4.0, clients=2, records=80)
    (finding,) = DpClaimAudit().assess(None, make_context(task, lookup("method", name)(**METHODS[name])))
    return finding


@pytest.mark.parametrize("name", METHODS)
def test_a_training_that_does_what_it_declares_is_sound(
    name: str, make_task: MakeTask, make_context: MakeContext
) -> None:
    finding = assess(name, make_task, make_context)
    assert finding.verdict == "sound", finding.reason
    assert "measured as they were taken" in finding.reason
    share = finding.metrics["noise_share"]
    assert share.value is not None
    assert share.low is not None
    assert share.high is not None
    assert share.low < 1 < share.high
    assert 0.95 < share.value < 1.05
    assert share.n is not None
    assert share.n > 1000


def _without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.randn
    monkeypatch.setattr(local_training.torch, "randn", lambda *a, **k: 0 * real(*a, **k))
    normal = torch.Tensor.normal_
    monkeypatch.setattr(torch.Tensor, "normal_", lambda self, *a, **k: normal(self, *a, **k).zero_())


def _with_nine_tenths(monkeypatch: pytest.MonkeyPatch) -> None:
    real, normal = torch.randn, torch.Tensor.normal_
    monkeypatch.setattr(local_training.torch, "randn", lambda *a, **k: 0.9 * real(*a, **k))
    monkeypatch.setattr(torch.Tensor, "normal_", lambda self, *a, **k: normal(self, *a, **k).mul_(0.9))


def _without_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.rand
    monkeypatch.setattr(torch, "rand", lambda *a, **k: 0 * real(*a, **k))


def _without_clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    real = local_training.clipped_sums
    monkeypatch.setattr(
        local_training, "clipped_sums", lambda *a, **k: {n: 50 * s for n, s in real(*a, **k).items()}
    )
    added = private_generators._add_clipped
    monkeypatch.setattr(private_generators, "_add_clipped", lambda s, g, norm: added(s, g, 50 * norm))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (_without_noise, "the noise of its DP-SGD steps is 0 of the declared"),
        (_with_nine_tenths, "the noise of its DP-SGD steps is 0."),
        (_without_sampling, "more than the declared sampling rate"),
    ],
)
def test_a_training_that_does_less_is_unsound(
    name: str,
    fault: Callable[[pytest.MonkeyPatch], None],
    says: str,
    make_task: MakeTask,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault(monkeypatch)
    finding = assess(name, make_task, make_context)
    assert finding.verdict == "unsound"
    assert says in finding.reason


@pytest.mark.parametrize("name", ["fedavg", "ensemble"])
def test_missing_clipping_is_unsound(
    name: str, make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_clipping(monkeypatch)
    finding = assess(name, make_task, make_context)
    assert finding.verdict == "unsound"
    assert "times as long as gradients that are clipped" in finding.reason


def _log(
    *, sigma: float = 1.0, steps: int = 10, share: float = 1.0, extra: int = 0, seed: int = 0
) -> dict[PrivateSteps, Measured]:
    """`steps` honest steps on 100 records and 500 numbers, the noise scaled by `share`."""
    private = PrivateSteps(sigma, 0.2, steps, 2.0, 20.0)
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    with steps_measured() as log:
        note_training(private)
        for _ in range(steps + extra):
            clipped = [torch.zeros(20, 20), torch.zeros(100)]
            noised = [share * sigma * 2.0 * torch.randn(c.shape, generator=generator) for c in clipped]
            given = [each / private.batch for each in noised]
            note_step(private, 100, int(rng.binomial(100, 0.2)), clipped, given)
    return log


def test_honest_noise_is_never_called_less_than_it_is() -> None:
    empty = Transcript("x", 2, (), NoClaim())
    shares = []
    for seed in range(300):
        facts = training_facts(_log(seed=seed), empty)
        assert facts is not None
        assert not facts.broken
        assert facts.low < 1 < facts.high
        shares.append(facts.noise)
    # 5,000 numbers each: the deviation of their root mean square is 1 in 100.
    assert abs(np.mean(shares) - 1) < 0.003
    assert 0.008 < np.std(shares) < 0.012


def test_more_steps_than_declared_and_undeclared_noise_are_named() -> None:
    empty = Transcript("x", 2, (), NoClaim())
    facts = training_facts(_log(extra=1), empty)
    assert facts is not None
    assert "11 steps were taken where 10 were declared" in facts.broken
    facts = training_facts(_log(share=0.85), empty)
    assert facts is not None
    assert "the noise of its DP-SGD steps is 0.8" in facts.broken


def test_a_release_that_declares_other_noise_than_the_training_is_unsound(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    task = make_task(epsilon=4.0, clients=2, records=80)
    context = make_context(task, lookup("method", "fedavg")(local_epochs=2))
    (private,) = context.steps
    other = {replace(private, noise_multiplier=2 * private.noise_multiplier): context.steps[private]}
    (finding,) = DpClaimAudit().assess(None, replace(context, steps=other))
    assert finding.verdict == "unsound"
    assert "and no such step was taken" in finding.reason


def test_nothing_is_measured_outside_or_said_of_nothing() -> None:
    note_training(PrivateSteps(1.0, 0.1, 1, 1.0, 1.0))
    note_step(PrivateSteps(1.0, 0.1, 1, 1.0, 1.0), 1, 1, [torch.zeros(2)], [torch.ones(2)])
    with steps_measured() as log:
        pass
    assert log == {}
    assert training_facts(log, Transcript("x", 2, (), NoClaim())) is None
