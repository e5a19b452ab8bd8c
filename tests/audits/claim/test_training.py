"""DP-SGD that is not what it declares is found while its steps are taken; what is, passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedassay.audits.claim.audit import DpClaimAudit
from fedassay.audits.claim.tape.added import noise_answer
from fedassay.audits.claim.tape.coverage import coverage
from fedassay.audits.claim.training import training_facts
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import MethodInput
from fedassay.exchange.release import NoClaim
from fedassay.exchange.transcript import Transcript
from fedassay.methods.shared import local_heads, local_networks
from fedassay.nets.dp_sgd import loop as private_training
from fedassay.nets.dp_sgd.clipped_sums import ClippedSums
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.dp_sgd.tape import Training, trainings
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.nets.local_training import record_objective, train_privately
from fedassay.privacy.tape import Key, taped
from fedassay.records.record import Finding
from fedassay.support.registry import lookup
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]

FEW_STEPS = {"sampling_rate": 0.25}
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"local_epochs": 2, "dp_sgd": FEW_STEPS},
    "ensemble": {"dp_sgd": {"epochs": 2, **FEW_STEPS}},
    "feddiff": {
        "epochs": 1,
        "steps": 2,
        "classifier": {"epochs": 1},
        "dp_sgd": {"epochs": 1, "draws": 1, **FEW_STEPS},
    },
    "fedcvae": {
        "local_epochs": 1,
        "hidden": 8,
        "dp_sgd": FEW_STEPS,
        "classifier": {"local_epochs": 1, "dp_sgd": FEW_STEPS},
    },
}


def assess(name: str, make_task: MakeTask, make_context: MakeContext) -> Finding:
    task = make_task(epsilon=4.0, clients=2, records=80)
    (finding,) = DpClaimAudit().assess(None, make_context(task, lookup("method", name)(**METHODS[name])))
    return finding


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_a_training_that_does_what_it_declares_is_sound(
    name: str, make_task: MakeTask, make_context: MakeContext
) -> None:
    finding = assess(name, make_task, make_context)
    assert finding.verdict == "sound", finding.reason
    assert "2 private training(s) seen as their steps were taken" in finding.reason
    share = finding.metrics["noise_share"]
    assert share.value is not None
    assert share.low is not None
    assert share.high is not None
    assert share.low < 1 < share.high
    assert 0.95 < share.value < 1.05
    assert share.n is not None
    assert share.n > 1000


def _noise(share: float) -> Callable[[pytest.MonkeyPatch], None]:
    def fault(monkeypatch: pytest.MonkeyPatch) -> None:
        real = TrainingMechanism.noised
        monkeypatch.setattr(
            TrainingMechanism, "noised", lambda self, step, sums, size: real(self, step, sums, share * size)
        )

    return fault


def _without_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingMechanism, "sampled", lambda self, step, records, rate: np.arange(records))


def _without_clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ClippedSums.__init__

    def begin(self: ClippedSums, network: nn.Module, objective: Any, norm: float, **named: Any) -> None:
        real(self, network, objective, 50 * norm, **named)

    monkeypatch.setattr(ClippedSums, "__init__", begin)


def _tuned_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step on the records themselves, after the private training has ended."""

    def tuned(training: Training, persons: Any = None) -> None:
        train_privately(training, persons)
        module = training.network
        functional.cross_entropy(module(training.inputs), training.labels).backward()
        with torch.no_grad():
            for parameter in module.parameters():
                assert parameter.grad is not None
                parameter.sub_(1e-4 * parameter.grad)

    monkeypatch.setattr(local_networks, "train_privately", tuned)
    monkeypatch.setattr(local_heads, "train_privately", tuned)


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "no noise": (_noise(0.0), "is not the noise of its stream: 0 of the declared"),
    "nine tenths of it": (_noise(0.9), "is not the noise of its stream: 0."),
    "everybody": (_without_sampling, "records were taken where the coins at the declared sampling rate"),
    "no clipping": (_without_clipping, "what went into the noise is that of gradients that were not clipped"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_training_that_does_less_is_unsound(
    name: str, fault: str, make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, says = FAULTS[fault]
    make(monkeypatch)
    finding = assess(name, make_task, make_context)
    assert finding.verdict == "unsound"
    assert says in finding.reason


@pytest.mark.long
@pytest.mark.parametrize("name", ["fedavg", "ensemble"])
def test_what_is_sent_must_be_what_was_trained(
    name: str, make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    _tuned_afterwards(monkeypatch)
    finding = assess(name, make_task, make_context)
    assert finding.verdict == "unsound"
    assert "does not follow from what its private training gave out" in finding.reason


def test_a_release_that_declares_other_noise_than_the_training_is_unsound(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    task = make_task(epsilon=4.0, clients=2, records=80)
    context = make_context(task, lookup("method", "fedavg")(local_epochs=2))
    assert context.tape is not None
    for key, entry in trainings(context.tape).items():
        other = replace(entry.declared, noise_multiplier=2 * entry.declared.noise_multiplier)
        context.tape.trainings[key] = replace(entry, declared=other)
    (finding,) = DpClaimAudit().assess(None, context)
    assert finding.verdict == "unsound"
    assert "and no such step was taken" in finding.reason


@pytest.mark.long
@pytest.mark.parametrize(
    ("coins", "found"),
    [
        (lambda cell: cell, True),
        (lambda cell: Seeds(cell.seed), True),
        (lambda cell: cell.child("coins"), False),
        (lambda _cell: None, False),
    ],
    ids=["of the cell", "of the plan", "hidden", "not kept"],
)
def test_sampling_by_public_coins_is_found(
    coins: Callable[[Seeds], Seeds | None], found: bool, make_task: MakeTask, make_context: MakeContext
) -> None:
    context = make_context(make_task(epsilon=4.0, clients=2, records=80), lookup("method", "average")())
    for key, entry in trainings(context.tape).items():
        context.tape.trainings[key] = replace(entry, coins=coins(context.seeds))
    cells = coverage(context.outcome.transcript, context.tape)
    answer = noise_answer(context, cells)
    assert (answer.status == "failed") == found, answer.words
    assert ("its sampling is drawn from the root of the cell's public streams" in answer.words) == found


@pytest.mark.long
def test_noise_of_another_generator_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be computed again, the noise over its declared deviation is left."""
    private = PrivateSteps(1.0, 0.2, 10, 2.0, 20.0)
    mechanism = TrainingMechanism(Seeds(0), Seeds(1), Key("client/0", 0, "parameters"))
    empty = Transcript("x", 2, (), NoClaim())
    given = (torch.zeros(100, 50), torch.zeros(100, dtype=torch.int64))
    shares = []
    for seed in range(40):
        with taped() as tape:
            own = replace(mechanism, noise=Seeds(seed))
            objective = record_objective(_loss)
            train_privately(Training(nn.Linear(50, 10), *given, objective, private, Updates(1e-3), own))
        facts = training_facts(tape, empty)
        assert facts is not None
        assert not facts.broken
        assert facts.low < 1 < facts.high
        shares.append(facts.noise)
    # 5,100 numbers each: the deviation of their root mean square is 1 in 100.
    assert abs(np.mean(shares) - 1) < 0.008
    assert 0.006 < np.std(shares) < 0.015


def _loss(outputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, labels, reduction="none")


def test_steps_that_nobody_saw_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = TrainingMechanism(Seeds(0), Seeds(1), Key("client/0", 0, "parameters"))
    with taped() as tape:
        private = PrivateSteps(1.0, 0.2, 10, 2.0, 20.0)
        records = (torch.zeros(10, 50), torch.zeros(10, dtype=torch.int64))
        objective = record_objective(_loss)
        train_privately(Training(nn.Linear(50, 10), *records, objective, private, Updates(1e-3), mechanism))
    (entry,) = trainings(tape).values()
    facts = replace(entry.facts, partial="its first steps were not seen")
    tape.trainings[entry.key] = replace(entry, facts=facts)
    found = training_facts(tape, Transcript("x", 2, (), NoClaim()))
    assert found is not None
    assert (found.broken, found.lacks) == ("", "its first steps were not seen")


def test_nothing_is_said_of_nothing() -> None:
    empty = Transcript("x", 2, (), NoClaim())
    with taped() as tape:
        pass
    assert training_facts(tape, empty) is None
    assert training_facts(None, empty) is None
    assert private_training.running_tape() is None
