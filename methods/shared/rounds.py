"""Common parts of methods with several rounds: rounds that outlive an interruption, and their cost to a target.

A finished round is kept as one file with the arrays that were sent in it; the clients' networks are kept once, as
they are after the last finished round. All other parts of a round (noise included) are functions of these and of
seeds that belong to the round; its lines on the tape are kept beside it (`fedassay.privacy.tape_checkpoint`). A
resumed run therefore ends bit for bit like an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import nn

from fedassay.contracts.method import MethodInput
from fedassay.exchange.transcript import Message
from fedassay.nets.dp_sgd.checkpoint import keep_trainings, restore_trainings
from fedassay.privacy.tape_checkpoint import keep_draws, restore_draws
from fedassay.support.atomic import write_bytes
from fedassay.support.hashing import digest_arrays
from fedassay.support.types import Parameters

_NETWORKS = "networks.safetensors"
_log = logging.getLogger(__name__)

Arrays = dict[str, NDArray[Any]]


def fingerprint(parameters: Parameters, task: MethodInput) -> str:
    """Return a digest of a round's inputs, which must not change on resumption: keys, data, seed, privacy."""
    digest = hashlib.sha256(parameters.model_dump_json().encode())
    digest.update(task.privacy.model_dump_json().encode())
    # A run without a seed continues with fresh randomness.
    digest.update(b"none" if task.seeds.seed is None else str(task.seeds.integer("rounds")).encode())
    for records in (*task.clients, task.test, *([] if task.public is None else [task.public])):
        content = digest_arrays({"images": records.images, "labels": records.labels})
        digest.update(f"{records.name}:{content}".encode())
    return digest.hexdigest()


def keep_round(task: MethodInput, run: str, number: int, arrays: Arrays, modules: Sequence[nn.Module]) -> None:
    """Keep a finished round and the networks as they are after it, if there is a folder to keep them in."""
    folder = task.scratch
    if folder is None:
        return
    write_bytes(_file(folder, number), save(arrays, metadata={"run": run}))
    keep_draws(_file(folder, number, ".tape"), run, task.noise, lambda key: key.round == number)
    keep_trainings(_file(folder, number, ".trainings"), run, lambda key: key.round == number)
    # The networks come last: they say how many rounds are whole.
    state = {
        f"{index}.{name}": np.ascontiguousarray(tensor.detach().cpu().numpy())
        for index, module in enumerate(modules)
        for name, tensor in module.state_dict().items()
    }
    write_bytes(folder / _NETWORKS, save(state, metadata={"run": run, "rounds": str(number + 1)}))


def kept_rounds(task: MethodInput, run: str, modules: Sequence[nn.Module]) -> list[Arrays]:
    """The arrays of the rounds kept in a task's folder, in order; networks and tape are restored in place.

    Rounds of another run, or a file that is damaged, count as absent.
    """
    folder = task.scratch
    if folder is None or not (folder / _NETWORKS).exists():
        return []
    networks, about = _read(folder / _NETWORKS)
    if about.get("run") != run:
        return []
    found = []
    for number in range(int(about["rounds"])):
        arrays, of_round = _read(_file(folder, number))
        if of_round.get("run") != run:
            return []
        found.append(arrays)
    for index, module in enumerate(modules):
        own = {name: torch.tensor(networks[f"{index}.{name}"]) for name in module.state_dict()}
        module.load_state_dict(own)
    for number in range(len(found)):
        restore_draws(_file(folder, number, ".tape"), run, task.noise)
        restore_trainings(_file(folder, number, ".trainings"), run, task.noise)
    return found


def _file(folder: Path, number: int, kind: str = "") -> Path:
    return folder / f"round-{number:05d}{kind}.safetensors"


def _read(path: Path) -> tuple[Arrays, Mapping[str, str]]:
    try:
        with safe_open(path, framework="numpy") as kept:
            return {name: kept.get_tensor(name) for name in kept.keys()}, kept.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        _log.warning("%s cannot be read, the rounds start anew: %s", path, error)
        return {}, {}


class Rounds:
    """The rounds of a run; an interrupted run may have kept the first ones.

    Args:
        parameters: The method's.
        task: The work.
        modules: The clients' networks, restored in place to their state after the last kept round.
    """

    def __init__(self, parameters: Parameters, task: MethodInput, modules: Sequence[nn.Module]) -> None:
        self._task, self._modules = task, modules
        self._run = fingerprint(parameters, task)
        self._kept = kept_rounds(task, self._run, modules)
        self._history: list[Measured] = []

    def numbers(self, count: int) -> Iterator[int]:
        """The number of each round, as it begins."""
        return self._task.progress.each("rounds", range(count))

    def sent(self, number: int, train: Callable[[], Arrays]) -> Arrays:
        """Return the arrays that are sent in a round: the kept ones, or those of the training."""
        return self._kept[number] if number < len(self._kept) else train()

    def end(
        self, number: int, sent: Arrays, messages: Sequence[Message], measure: Callable[[], float | None]
    ) -> None:
        """Measure and keep a round that was not kept before.

        Args:
            number: The round.
            sent: From `sent`.
            messages: Messages of all rounds so far, both ways.
            measure: Personalized accuracy; None where there is none.
        """
        if number >= len(self._kept):
            accuracy = measure()
            sent["personalized"] = np.array([] if accuracy is None else [accuracy])
            keep_round(self._task, self._run, number, sent, self._modules)
        measured = float(sent["personalized"][0]) if sent["personalized"].size else None
        self._history.append(Measured(measured, sum(message.nbytes for message in messages)))

    def summary(self, target: float | None) -> tuple[dict[str, float], tuple[str, ...]]:
        """Figures and remarks of the run; see `summary`."""
        return summary(self._history, target)


@dataclass(frozen=True)
class Measured:
    """The state of a run after a round.

    Attributes:
        accuracy: Personalized accuracy; None where there is none.
        sent: Bytes sent so far, both ways.
    """

    accuracy: float | None
    sent: int


def summary(history: Sequence[Measured], target: float | None) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return utility figures of a run, and notes on them.

    Rounds and bytes to the target are counted up to the first round that reaches it. A target that is
    not reached has none; the note gives the best round, where Yu et al. 2026 (table 1) stop counting then.

    Args:
        history: One entry a round.
        target: Personalized accuracy to reach, or None.
    """
    known = [
        (entry.accuracy, number, entry.sent)
        for number, entry in enumerate(history, 1)
        if entry.accuracy is not None
    ]
    if not known or history[-1].accuracy is None:
        return {}, ("personalized accuracy: no client holds a class that has test records",)
    best, at, sent = max(known, key=lambda entry: (entry[0], -entry[1]))
    figures = {
        "personalized_accuracy": history[-1].accuracy,
        "best_personalized_accuracy": best,
        "rounds_to_best": float(at),
        "bytes_to_best": float(sent),
    }
    if target is None:
        return figures, ()
    reached = next((entry for entry in known if entry[0] >= target), None)
    if reached is None:
        return figures, (
            f"target {target:g} was not reached in {len(history)} rounds; the best personalized accuracy is "
            f"{best:.4f}, after round {at} and {sent} bytes",
        )
    return {**figures, "rounds_to_target": float(reached[1]), "bytes_to_target": float(reached[2])}, ()
