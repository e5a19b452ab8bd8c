"""Private trainings on the tape of a run: the declarations, the results, and the facts about the steps.

In a replay a training is not run again: it returns the weights of the first run. The sums of its records before
the noise can be computed at tested steps, for the sensitivity of the sums to neighbouring records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedassay.nets.dp_sgd.clipped_sums import ClippedSums, Objective, trained
from fedassay.nets.dp_sgd.facts import TrainingFacts
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.nets.dp_sgd.watch import TrainingWatch
from fedassay.privacy.tape import Key, Tape
from fedassay.support.seeds import Seeds

_ROOM, _ROOM_OF_TAPE = 4_000_000, 50_000_000
"""Numbers kept for weights at tested steps: of one training, and of all on a tape."""


@dataclass(frozen=True, eq=False)
class Training:
    """The inputs of a private training.

    Attributes:
        network: The network, changed in place.
        inputs: Inputs of the records, (n, ...).
        labels: Shape (n,).
        objective: The loss.
        private: The declared steps.
        updates: The declared optimiser.
        mechanism: Its random streams and its key.
    """

    network: nn.Module
    inputs: Tensor
    labels: Tensor
    objective: Objective
    private: PrivateSteps
    updates: Updates
    mechanism: TrainingMechanism


@dataclass(frozen=True, eq=False)
class Replay:
    """A training requested in a replay, and the kept weights of the first run's training."""

    training: Training
    kept: Mapping[int, Mapping[str, Tensor]]

    def sums_at(
        self, step: int, *, forced: Sequence[int] = (), identities: NDArray[np.int64] | None = None
    ) -> dict[str, Tensor]:
        """Return the sums of these records before the noise of a step of the first run.

        Args:
            step: A step with kept weights.
            forced: Places of records that are put into the batch regardless of their coins.
            identities: Names of the records' coins, (n,), which neighbours keep; None: their places.

        Returns:
            Sums of clipped gradients by parameter name, float64, at the first run's weights of that step.
        """
        own, mechanism = self.training, self.training.mechanism
        names = np.arange(len(own.labels)) if identities is None else np.asarray(identities)
        asked = int(names.max(initial=-1)) + 1
        drawn = np.isin(names, mechanism.sampled(step, asked, own.private.sampling_rate))
        drawn[list(forced)] = True
        chosen = np.flatnonzero(drawn)
        rows = torch.from_numpy(chosen).to(own.labels.device)
        mode = own.network.training
        before = {name: parameter.detach().clone() for name, parameter in trained(own.network).items()}
        own.network.train()
        put_weights(own.network, self.kept[step])
        try:
            clip = ClippedSums(own.network, own.objective, own.private.norm, engine=own.private.engine)
            found = clip(own.inputs[rows], own.labels[rows], mechanism.streams(step, names[chosen]))
        finally:
            put_weights(own.network, before)
            own.network.train(mode)
        return {name: each.double().cpu() for name, each in found.items()}


@dataclass(frozen=True, eq=False)
class TrainingEntry:
    """One private training on the tape.

    Attributes:
        key: Name of the training.
        declared: Its declared steps.
        updates: Its declared optimiser.
        start: Digest of the network before the first step.
        weights: The released weights, as they follow from the noised sums alone, by parameter name.
        facts: Findings about its steps.
        noise: Root of its noise streams.
        coins: Root of its hidden coins; None where an interrupted run did not keep it.
        replay: In a replay: the requested training; None in a first run.
    """

    key: Key
    declared: PrivateSteps
    updates: Updates
    start: str
    weights: Mapping[str, NDArray[np.float32]]
    facts: TrainingFacts
    noise: Seeds
    coins: Seeds | None
    replay: Replay | None = field(default=None)

    def sums_at(
        self, step: int, *, forced: Sequence[int] = (), identities: NDArray[np.int64] | None = None
    ) -> dict[str, Tensor]:
        """See `Replay.sums_at`.

        Raises:
            ValueError: Not in a replay, or no weights were kept of this step.
        """
        if self.replay is None or step not in self.facts.kept:
            raise ValueError(
                f"{self.key}: sums at step {step} asked for; allowed: in a replay, steps {sorted(self.facts.kept)}"
            )
        return self.replay.sums_at(step, forced=forced, identities=identities)


def trainings(tape: Tape) -> dict[Key, TrainingEntry]:
    """The private trainings of a run."""
    return {key: entry for key, entry in tape.trainings.items() if isinstance(entry, TrainingEntry)}


def watch(training: Training, tape: Tape) -> TrainingWatch:
    """Watch a training that begins."""
    taken = sum(
        sum(each.numel() for each in weights.values())
        for entry in trainings(tape).values()
        for weights in entry.facts.kept.values()
    )
    return TrainingWatch(
        training.network,
        len(training.labels),
        training.objective,
        training.private,
        training.updates,
        training.mechanism,
        room=min(_ROOM, max(0, _ROOM_OF_TAPE - taken)),
    )


def write(
    training: Training, start: str, watching: TrainingWatch, released: Mapping[str, Tensor], tape: Tape
) -> None:
    """Put a training that has ended on the tape."""
    key = training.mechanism.key
    if key in tape.trainings:
        tape.fault(key, "two networks were trained privately under one key")
    if tape.root is not None and tape.root != training.mechanism.noise:
        tape.fault(key, "noised from another root than the draws before it")
    tape.root = training.mechanism.noise
    facts, weights = watching.end(released)
    if facts.partial:
        tape.lacks.append(f"{key}: {facts.partial}")
    roots = training.mechanism.noise, training.mechanism.hidden_randomness
    tape.trainings[key] = TrainingEntry(key, training.private, training.updates, start, weights, facts, *roots)


def replayed(training: Training, tape: Tape) -> dict[str, Tensor] | None:
    """The weights of the first run, in place of a training; None where there was no such training."""
    assert tape.answers is not None
    key = training.mechanism.key
    first = trainings(tape.answers).get(key)
    shapes = {name: tuple(parameter.shape) for name, parameter in trained(training.network).items()}
    if first is None or {name: each.shape for name, each in first.weights.items()} != shapes:
        tape.fault(key, "the first run trained no such network under this key")
        return None
    if key in tape.trainings:
        tape.fault(key, "two networks were trained privately under one key")
    asked, declared = (training.private, training.updates), (first.declared, first.updates)
    if asked != declared:
        tape.fault(key, f"on other records it declares {asked}, where it declared {declared}")
    start = digest(training.network)
    if start != first.start:
        tape.fault(key, "the network starts from other weights on other records")
    tape.trainings[key] = TrainingEntry(
        key,
        *asked,
        start,
        first.weights,
        first.facts,
        training.mechanism.noise,
        training.mechanism.hidden_randomness,
        Replay(training, first.facts.kept),
    )
    tape.stop_after_last()
    device = training.labels.device
    return {name: torch.tensor(each).to(device) for name, each in first.weights.items()}


def digest(network: nn.Module) -> str:
    """Digest of all parameters and buffers of a network."""
    found = hashlib.sha256()
    for name, each in network.state_dict().items():
        found.update(f"{name}:{each.dtype}:{tuple(each.shape)}:".encode())
        found.update(each.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


@torch.no_grad()
def put_weights(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Overwrite the weights that are trained."""
    for name, parameter in trained(network).items():
        parameter.copy_(weights[name])
