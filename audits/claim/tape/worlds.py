"""One replay of a run on neighbouring records, as far as neighbours are compared: the inputs of its mechanisms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.claim.tape.neighbours import Changed, Labels
from fedassay.audits.claim.tape.streams import expected
from fedassay.nets.dp_sgd.tape import Training, trainings
from fedassay.privacy.tape import Draw, Key, Tape, TapeEntry
from fedassay.support.seeds import Seeds

STEPS = 2
"""Tested steps of every training."""
ROWS = -1
"""In the place of a step: the rows of a training whose number is not that of the records."""


@dataclass(frozen=True)
class World:
    """Inputs of the mechanisms in one replay.

    Attributes:
        name: Of the filling.
        labels: Of the records that fill the place of each client; None: there are none.
        draws: Inputs by key, of the clients that are compared.
        sums: Of trainings at tested steps, by key and step.
    """

    name: str
    labels: Mapping[str, Labels | None]
    draws: Mapping[Key, TapeEntry]
    sums: Mapping[tuple[Key, int], NDArray[np.float64]]


def of_clients(tape: Tape, chosen: frozenset[str]) -> dict[Key, TapeEntry]:
    """Inputs of the draws of chosen senders."""
    return {key: entry for key, entry in tape.draws.items() if key.sender in chosen}


def sums_of(tape: Tape, changed: Mapping[str, Changed]) -> dict[tuple[Key, int], NDArray[np.float64]]:
    """Inputs of changed clients to the noise of tested steps, with the changed record's coin forced.

    Where a training has another number of rows than its client has records or persons, no row is known to be the
    changed one: its rows are held instead, under the step `ROWS`.
    """
    found = {}
    for key, entry in trainings(tape).items():
        own = changed.get(key.sender)
        if own is None or entry.replay is None:
            continue
        if len(entry.replay.training.labels) != len(own.identities):
            found[key, ROWS] = _rows(entry.replay.training)
            continue
        forced = () if own.label is None else (own.place,)
        for step in sorted(entry.facts.kept)[:: max(1, len(entry.facts.kept) - 1)][:STEPS]:
            sums = entry.sums_at(step, forced=forced, identities=own.identities)
            found[key, step] = np.concatenate([each.numpy().ravel() for each in sums.values()])
    return found


def _rows(training: Training) -> NDArray[np.float64]:
    """A number for each row of a training and its label, equal for equal ones, shape (n,)."""
    inputs, labels = (each.detach().cpu().numpy() for each in (training.inputs, training.labels))
    rows = (row.tobytes() + label.tobytes() for row, label in zip(inputs, labels, strict=True))
    # 48 bits are whole numbers in float64.
    return np.array([int.from_bytes(blake2b(row, digest_size=6).digest(), "big") for row in rows], np.float64)


def alike(own: World, other: World) -> bool:
    """Whether the same went into the draws that both replays made."""
    return all(
        isinstance(entry, Draw)
        and isinstance(first := own.draws[key], Draw)
        and np.array_equal(first.exact, entry.exact)
        for key, entry in other.draws.items()
        if isinstance(entry, Draw) and key in own.draws
    )


def made_up(tape: Tape, seeds: Seeds) -> Iterator[Tape]:
    """Tapes with other outputs in the place of those of a run: zeros, ten deviations off, another seed's."""
    root = seeds.child("tape", "other outputs")

    def outputs(draw: Draw, kind: int) -> Draw:
        if kind == 0 or draw.scale == 0:
            return replace(draw, out=np.zeros_like(draw.out))
        other = expected(draw, root)
        out = other if kind == 2 else draw.exact + 10 * draw.scale * np.sign(other - draw.exact)
        return replace(draw, out=np.asarray(out))

    for kind in range(3):
        draws: dict[Key, TapeEntry] = {
            key: outputs(entry, kind) if isinstance(entry, Draw) else entry for key, entry in tape.draws.items()
        }
        yield Tape(draws=draws, trainings=tape.trainings, messages=tape.messages, root=tape.root)
