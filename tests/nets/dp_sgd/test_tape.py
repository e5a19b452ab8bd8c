"""Private trainings on the tape: an honest one has no failures, one with a fault has the one that it made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedassay.nets.bodies import BodySpec, build_body
from fedassay.nets.dp_sgd import loop as private_training
from fedassay.nets.dp_sgd import tape as training_tape
from fedassay.nets.dp_sgd.checkpoint import keep_trainings, restore_trainings
from fedassay.nets.dp_sgd.clipped_sums import ClippedSums, RecordStreams, record_gradients
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.record_gradients import RecordGradients
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.dp_sgd.tape import Training, TrainingEntry, trainings
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.nets.dp_sgd.watch import TESTED, chosen_steps
from fedassay.nets.local_training import record_objective, train_privately
from fedassay.privacy.tape import Key, Tape, taped
from fedassay.support.seeds import Seeds

STEPS = PrivateSteps(noise_multiplier=1.0, sampling_rate=0.3, steps=30, norm=0.5, batch=15.0)
MECHANISM = TrainingMechanism(Seeds(0).child("noise"), Seeds(0).child("coins"), Key("client/0", 0, "parameters"))

Patch = pytest.MonkeyPatch


def _loss(outputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, labels, reduction="none")


def _records(n: int = 50, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    images = torch.tensor(rng.integers(0, 256, (n, 1, 6, 6), dtype=np.uint8))
    return images, torch.tensor(rng.integers(0, 5, n))


def _network(seed: int = 0) -> nn.Module:
    return build_body(BodySpec(name="mlp", hidden=8), (6, 6, 1), 5, seed)


def _train(
    given: tuple[Tensor, Tensor] | None = None,
    *,
    network: nn.Module | None = None,
    answers: Tape | None = None,
    private: PrivateSteps = STEPS,
    mechanism: TrainingMechanism = MECHANISM,
    loss: Callable[[Tensor, Tensor], Tensor] = _loss,
) -> tuple[TrainingEntry, Tape, nn.Module]:
    images, labels = given or _records()
    module = network or _network()
    with taped(answers) as tape:
        train_privately(
            Training(module, images, labels, record_objective(loss), private, Updates(1e-2), mechanism)
        )
    (entry,) = trainings(tape).values()
    return entry, tape, module


def test_an_honest_training_has_no_failures() -> None:
    entry, tape, module = _train()
    assert entry.facts.failures == ()
    assert (tape.faults, tape.lacks, entry.facts.partial) == ([], [], "")
    assert "30 steps" in entry.facts.shown
    assert f"every record alone and all noise in {TESTED}" in entry.facts.shown
    for name, parameter in module.named_parameters():
        np.testing.assert_array_equal(entry.weights[name], parameter.detach().numpy())
    assert min(entry.facts.p_values.values()) > 1e-4
    assert len(entry.facts.p_values) == 7


def test_the_root_of_the_hidden_coins_is_known_unless_the_training_was_interrupted(tmp_path: Path) -> None:
    entry, tape, _ = _train()
    again, _, _ = _train(_records(seed=1), answers=tape)
    assert entry.coins == again.coins == MECHANISM.hidden_randomness
    with taped() as first:
        first.trainings[entry.key] = entry
        keep_trainings(tmp_path / "kept", "run", lambda _key: True)
    with taped() as resumed:
        restore_trainings(tmp_path / "kept", "run", MECHANISM.noise)
    (restored,) = trainings(resumed).values()
    assert (restored.coins, restored.noise) == (None, MECHANISM.noise)


def test_nobody_watching_changes_no_bit() -> None:
    _, _, watched = _train()
    alone = _network()
    train_privately(Training(alone, *_records(), record_objective(_loss), STEPS, Updates(1e-2), MECHANISM))
    for one, other in zip(watched.parameters(), alone.parameters(), strict=True):
        assert torch.equal(one, other)


def test_layers_that_are_computed_by_vmap_are_watched_as_well() -> None:
    module = nn.Sequential(_network(), nn.BatchNorm1d(5).eval(), nn.Linear(5, 5))
    module.train = lambda mode=True: module  # type: ignore[method-assign]
    entry, _, _ = _train(network=module)
    assert entry.facts.failures == ()


@pytest.mark.parametrize("steps", [1, 2, 8, 9, 15, 400])
def test_tested_steps_are_spread_and_fixed(steps: int) -> None:
    chosen = chosen_steps(steps)
    assert chosen == chosen_steps(steps)
    assert list(chosen) == sorted(set(chosen))
    assert len(chosen) == min(steps, TESTED)
    assert (chosen[0], chosen[-1]) == (0, steps - 1)


def _scaled_noise(share: float, only: Callable[[int, str], bool] = lambda *_: True) -> Callable[[Patch], None]:
    def fault(patch: Patch) -> None:
        real = TrainingMechanism._noised

        def noised(self: TrainingMechanism, name: str, step: int, exact: Tensor, deviation: float) -> Tensor:
            return real(self, name, step, exact, deviation * (share if only(step, name) else 1.0))

        patch.setattr(TrainingMechanism, "_noised", noised)

    return fault


def _noise_of_step(which: Callable[[int], int]) -> Callable[[Patch], None]:
    def fault(patch: Patch) -> None:
        real = TrainingMechanism.noised
        patch.setattr(TrainingMechanism, "noised", lambda self, step, *rest: real(self, which(step), *rest))

    return fault


def _noise_of_a_public_seed(patch: Patch) -> None:
    real = TrainingMechanism.noised
    public = replace(MECHANISM, noise=Seeds(7))
    patch.setattr(TrainingMechanism, "noised", lambda self, *rest: real(public, *rest))


def _sums(
    make: Callable[[ClippedSums, Tensor, Tensor, RecordStreams], dict[str, Tensor]],
) -> Callable[[Patch], None]:
    def fault(patch: Patch) -> None:
        patch.setattr(ClippedSums, "__call__", lambda self, i, labels, s, *, check=False: make(self, i, labels, s))

    return fault


def _gradients(clip: ClippedSums, inputs: Tensor, labels: Tensor, streams: RecordStreams) -> dict[str, Tensor]:
    return record_gradients(clip._network, clip._objective, clip._objective.rows(inputs, labels, streams))


def _lengths(gradients: dict[str, Tensor]) -> Tensor:
    return torch.cat([each.flatten(1) for each in gradients.values()], dim=1).norm(dim=1)


def _unclipped(clip: ClippedSums, *given: Any) -> dict[str, Tensor]:
    return {name: each.sum(dim=0) for name, each in _gradients(clip, *given).items()}


def _batch_clipped(clip: ClippedSums, *given: Any) -> dict[str, Tensor]:
    sums = _unclipped(clip, *given)
    length = torch.cat([each.flatten() for each in sums.values()]).norm()
    return {name: each * min(1.0, float(clip._norm / length)) for name, each in sums.items()}


def _coordinates_clipped(clip: ClippedSums, *given: Any) -> dict[str, Tensor]:
    return {n: each.clamp(-clip._norm, clip._norm).sum(dim=0) for n, each in _gradients(clip, *given).items()}


def _layers_clipped(clip: ClippedSums, *given: Any) -> dict[str, Tensor]:
    found = _gradients(clip, *given)
    scales = {n: (clip._norm / each.flatten(1).norm(dim=1)).clamp(max=1) for n, each in found.items()}
    return {name: torch.einsum("n,n...->...", scales[name], each) for name, each in found.items()}


def _one_record_spared(
    clip: ClippedSums, inputs: Tensor, labels: Tensor, streams: RecordStreams
) -> dict[str, Tensor]:
    found = _gradients(clip, inputs, labels, streams)
    scales = (clip._norm / _lengths(found)).clamp(max=1)
    scales[torch.from_numpy(streams.positions == 3)] = 1
    return {name: torch.einsum("n,n...->...", scales, each) for name, each in found.items()}


def _sampled(choose: Callable[[TrainingMechanism, int, int, float], np.ndarray]) -> Callable[[Patch], None]:
    def fault(patch: Patch) -> None:
        patch.setattr(TrainingMechanism, "sampled", choose)

    return fault


_SAMPLED = TrainingMechanism.sampled


def _steps(change: Callable[[PrivateSteps], PrivateSteps]) -> Callable[[Patch], None]:
    def fault(patch: Patch) -> None:
        real = private_training._take_steps

        def taken(training: Any, *rest: Any) -> None:
            real(replace(training, private=change(training.private)), *rest)

        patch.setattr(private_training, "_take_steps", taken)

    return fault


def _realised_divisor(patch: Patch) -> None:
    real = private_training._take_step

    def step(number: int, training: Any, *rest: Any, **named: Any) -> bool:
        size = len(training.mechanism.sampled(number, len(training.labels), training.private.sampling_rate))
        private = replace(training.private, batch=float(max(1, size)))
        return real(number, replace(training, private=private), *rest, **named)

    patch.setattr(private_training, "_take_step", step)


def _fine_tuned(patch: Patch) -> None:
    real = private_training._take_steps

    def taken(training: Any, *rest: Any) -> None:
        real(training, *rest)
        _one_plain_step(training)

    patch.setattr(private_training, "_take_steps", taken)


def _tuned_between(patch: Patch) -> None:
    real = private_training._take_step

    def step(number: int, training: Any, *rest: Any, **named: Any) -> bool:
        if number == 11:
            _one_plain_step(training)
        return real(number, training, *rest, **named)

    patch.setattr(private_training, "_take_step", step)


def _one_plain_step(training: Any) -> None:
    _loss(training.network(training.inputs), training.labels).mean().backward()
    with torch.no_grad():
        for parameter in training.network.parameters():
            parameter.sub_(1e-3 * parameter.grad)


FAULTS: dict[str, tuple[Callable[[Patch], None], str]] = {
    "no noise": (_scaled_noise(0.0), "is not the noise of its stream: 0 of the declared"),
    "nine tenths of it": (_scaled_noise(0.9), "is not the noise of its stream: 0."),
    "none in one step": (_scaled_noise(0.0, lambda step, _: step == 5), "step 6: what was added to"),
    "none on one bias": (_scaled_noise(0.0, lambda _, name: name.endswith("bias")), "bias is not the noise"),
    "the same noise in every step": (_noise_of_step(lambda _: 0), "step 2: what was added to"),
    "every noise twice": (_noise_of_step(lambda step: step // 2 * 2), "step 2: what was added to"),
    "noise of a public seed": (_noise_of_a_public_seed, "is not the noise of its stream"),
    "no clipping": (_sums(_unclipped), "is that of gradients that were not clipped"),
    "clipping of the batch": (_sums(_batch_clipped), "clipped as a whole and not record by record"),
    "clipping by coordinate": (_sums(_coordinates_clipped), "what went into the noise"),
    "clipping by layer": (_sums(_layers_clipped), "is not that of the records of the batch"),
    "one record is not clipped": (_sums(_one_record_spared), "is not that of the records of the batch"),
    "the same subset in every step": (
        _sampled(lambda mechanism, _, n, rate: _SAMPLED(mechanism, 0, n, rate)),
        "step 2: 11 records were taken where the coins",
    ),
    "every record in every step": (_sampled(lambda mechanism, _, n, rate: np.arange(n)), "50 records were taken"),
    "a record in every step": (
        _sampled(lambda mechanism, step, n, rate: np.union1d(_SAMPLED(mechanism, step, n, rate), [4])),
        "records were taken where the coins",
    ),
    "twice the rate": (
        _sampled(lambda mechanism, step, n, rate: _SAMPLED(mechanism, step, n, 2 * rate)),
        "where the coins at the declared sampling rate 0.3 choose",
    ),
    "more steps": (_steps(lambda own: replace(own, steps=31)), "step 31 was taken where 30 were declared"),
    "fewer steps": (_steps(lambda own: replace(own, steps=29)), "29 steps were taken where 30 were declared"),
    "another norm": (
        _steps(lambda own: replace(own, norm=1.0, noise_multiplier=0.4)),
        "is not the noise of its stream: 0.8",
    ),
    "the realised batch size": (
        _realised_divisor,
        "times the noised sum over 15, the declared expected batch size",
    ),
    "fine-tuning after": (_fine_tuned, "do not follow from the noised sums alone"),
    "a plain step between": (_tuned_between, "step 12: the weights"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_for_its_own_reason(name: str, monkeypatch: Patch) -> None:
    fault, says = FAULTS[name]
    fault(monkeypatch)
    entry, _, _ = _train()
    assert any(says in words for words in entry.facts.failures), entry.facts.failures
    unrelated = 1 if "clip" in name else 0
    assert len(entry.facts.failures) <= 2 + unrelated, entry.facts.failures


class _Mixing(nn.Module):
    """Batch normalisation as a function: known layers, and a sum over records that tells nothing."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share, self.first, self.last = share, nn.Linear(36, 8), nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.first(images.float().flatten(1) / 255)
        if self.share:
            hidden = hidden + self.share * hidden.roll(1, dims=0)
        else:
            hidden = functional.batch_norm(hidden, None, None, training=True)
        found: Tensor = self.last(hidden.tanh())
        return found


@pytest.mark.parametrize(
    ("share", "says"),
    [(0.0, "a record cannot be computed alone"), (0.5, "is not that of the records of the batch, each computed")],
)
def test_layers_that_mix_records_are_refused_and_found(share: float, says: str, monkeypatch: Patch) -> None:
    torch.manual_seed(0)
    with pytest.raises(RuntimeError, match="mix records"):
        train_privately(
            Training(_Mixing(share), *_records(), record_objective(_loss), STEPS, Updates(1e-2), MECHANISM)
        )
    monkeypatch.setattr(RecordGradients, "check", lambda *_: None)
    entry, _, _ = _train(network=_Mixing(share))
    assert any(says in words for words in entry.facts.failures), entry.facts.failures


def test_a_replay_on_other_records_gives_the_same_weights_without_a_step(monkeypatch: Patch) -> None:
    first, tape, module = _train()
    monkeypatch.setattr(private_training, "_take_steps", _forbidden)
    other = replace(MECHANISM, noise=Seeds(5), hidden_randomness=Seeds(6))
    second, again, same = _train(_records(20, seed=3), answers=tape, mechanism=other)
    assert (again.faults, tape.faults) == ([], [])
    assert not same.training
    for one, two in zip(module.parameters(), same.parameters(), strict=True):
        assert torch.equal(one, two)
    assert second.weights is first.weights


def _forbidden(*_: object) -> None:
    raise AssertionError("a replay takes no steps")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"private": replace(STEPS, steps=31)}, "on other records it declares"),
        ({"private": replace(STEPS, batch=14.0)}, "on other records it declares"),
        ({"network": _network(seed=1)}, "starts from other weights"),
        (
            {"mechanism": replace(MECHANISM, key=Key("client/1", 0, "parameters"))},
            "trained no such network under this key",
        ),
        ({"network": build_body(BodySpec(name="linear"), (6, 6, 1), 5, 0)}, "trained no such network"),
    ],
)
def test_what_a_replay_does_otherwise_is_a_fault(change: dict[str, Any], says: str) -> None:
    _, tape, _ = _train()
    _, again, _ = _train(answers=tape, **change)
    assert any(says in fault.words for fault in again.faults), again.faults


def test_a_training_that_a_replay_leaves_out_is_a_fault() -> None:
    _, tape, _ = _train()
    with taped(tape) as again:
        pass
    assert any("trained by the first run alone" in fault.words for fault in again.faults)


def test_one_key_for_two_trainings_is_a_fault() -> None:
    with taped() as tape:
        for _ in range(2):
            train_privately(
                Training(_network(), *_records(), record_objective(_loss), STEPS, Updates(1e-2), MECHANISM)
            )
    assert any("two networks were trained privately under one key" in fault.words for fault in tape.faults)


def _moved(entry: TrainingEntry, other: TrainingEntry, step: int, **named: Any) -> float:
    one, two = entry.sums_at(step, **named.pop("one", {})), other.sums_at(step, **named.pop("two", {}))
    return float(torch.cat([(one[name] - two[name]).flatten() for name in one]).norm())


def test_sums_of_neighbours_differ_by_no_more_than_the_norm() -> None:
    first, tape, _ = _train()
    images, labels = _records()
    more = torch.cat([images, 255 - images[:1]]), torch.cat([labels, labels[:1]])
    names = np.delete(np.arange(50), 7)
    other = images.clone()
    other[7] = 255 - other[7]
    same, added, removed, replaced = (
        _train(given, answers=tape)[0]
        for given in ((images, labels), more, (images[names], labels[names]), (other, labels))
    )
    assert sorted(first.facts.kept) == list(chosen_steps(30))
    for step in first.facts.kept:
        moved = _moved(same, added, step, two={"forced": [50]})
        assert 0.02 < moved <= STEPS.norm * (1 + 1e-4)
        moved = _moved(same, removed, step, one={"forced": [7]}, two={"identities": names})
        assert 0.02 < moved <= STEPS.norm * (1 + 1e-4)
        forced = {"forced": [7]}
        assert 0.02 < _moved(same, replaced, step, one=forced, two=forced) <= 2 * STEPS.norm * (1 + 1e-4)
    with pytest.raises(ValueError, match="allowed: in a replay, steps"):
        same.sums_at(30)
    with pytest.raises(ValueError, match="allowed: in a replay"):
        first.sums_at(0)


def test_a_loss_that_knows_the_other_records_moves_the_sums_by_more() -> None:
    """Class weights from the client's own labels: every clipped gradient changes with one record."""

    def train(given: tuple[Tensor, Tensor], answers: Tape | None = None) -> tuple[TrainingEntry, Tape]:
        counts = torch.bincount(given[1], minlength=5).float()

        def weighted(outputs: Tensor, labels: Tensor) -> Tensor:
            return functional.cross_entropy(outputs, labels, weight=0.05 * counts, reduction="none")

        entry, tape, _ = _train(given, answers=answers, loss=weighted, private=replace(STEPS, sampling_rate=1.0))
        return entry, tape

    images, labels = _records(200)
    labels = torch.zeros_like(labels)
    first, tape = train((images, labels))
    assert first.facts.failures == ()
    same, _ = train((images, labels), tape)
    fewer, _ = train((images[:-1], labels[:-1]), tape)
    assert max(_moved(same, fewer, step) for step in first.facts.kept) < 1.01 * STEPS.norm
    half = labels.clone()
    half[:100] = 1
    assert max(_moved(same, train((images, half), tape)[0], step) for step in first.facts.kept) > 2 * STEPS.norm


def test_weights_of_chosen_steps_are_kept_where_there_is_room(monkeypatch: Patch) -> None:
    size = sum(parameter.numel() for parameter in _network().parameters())
    steps = chosen_steps(30)
    for room, kept in ((0, []), (size, [steps[-1]]), (2 * size, [steps[0], steps[-1]])):
        monkeypatch.setattr(training_tape, "_ROOM", room)
        entry, _, _ = _train()
        assert sorted(entry.facts.kept) == kept


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_a_client_without_records_is_a_training_like_any_other(rate: float) -> None:
    entry, _, _ = _train(_records(0), private=replace(STEPS, sampling_rate=rate))
    assert entry.facts.failures == ()
