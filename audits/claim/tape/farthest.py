"""A search for the neighbours that a mechanism separates most, whatever it computes.

The outputs of a run are given out again, so the input of its noise is a known vector on every data set. The
distance of two neighbours is that of these vectors, in standard deviations of the noise. A test of many releases
would estimate it (Kong et al., "DP-Auditorium", 2023, maximise such estimates over data sets); here it is
computed. The search covers the causes of global sensitivities: clients that are cut to few records of a class or
to that class alone, other records that are all alike, and one record that becomes extreme, ordinary, or absent.
The first pairs are the strongest known ones, some are drawn at random, and the others change one part of the best
so far.

It is counted in pairs of neighbours, seeded, and refutes nothing by silence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.claim.tape.answers import Attempt
from fedassay.audits.claim.tape.fillings import Filling, fillings
from fedassay.audits.claim.tape.neighbours import filled, labels_at, neighbours
from fedassay.audits.claim.tape.streams import squared_distance
from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyClaim
from fedassay.privacy.reruns import Experiment, flat_rows
from fedassay.privacy.sensitivities import Neighbours
from fedassay.privacy.tape import Draw, Key, Tape

PAIRS = 24
"""Pairs of neighbours of every client that are tried by default, in two replays each."""

_KEPT: tuple[int | None, ...] = (1, 2, 3, None)
"""Records that are left of the class in question; None: all."""


class Pair(NamedTuple):
    """Two neighbouring fillings of one record, and what the client holds beside it.

    Attributes:
        first: The record in one data set.
        second: The record in the other.
        kept: Number of records left of its class, it included; None: all.
        rest: Filling of every other record of that class; None: itself.
        alone: Whether the client holds no other class.
    """

    first: Filling
    second: Filling
    kept: int | None
    rest: Filling | None
    alone: bool

    @property
    def words(self) -> str:
        """In words."""
        size = "" if self.kept is None else f", {self.kept} of its class"
        rest = "" if self.rest is None or self.kept == 1 else f", the others {self.rest.name}"
        return f"{self.second.name} for {self.first.name}{size}{rest}{', no other class' if self.alone else ''}"


@dataclass(frozen=True)
class Farthest:
    """The worst neighbours of a search.

    Attributes:
        mu: Distance in standard deviations of the noise.
        words: Description of the pair.
        tried: Number of pairs of neighbours that were compared.
        experiment: The mechanism on them; None where no pair differs.
    """

    mu: float
    words: str
    tried: int
    experiment: Experiment | None


def farthest(context: AuditContext, claim: PrivacyClaim, pairs: int) -> Farthest:
    """Search the neighbours of every client that are farthest apart.

    Args:
        context: Of the run.
        claim: Its adjacency says what neighbours are.
        pairs: Of neighbours, for every client at once.
    """
    rng = context.seeds.numpy("tape", "farthest")
    best: dict[str, tuple[float, Pair]] = {}
    found = Farthest(0.0, "", 0, None)
    tried = 0
    with context.io.progress.step("neighbours") as advance:
        for number in range(pairs):
            advance(number, pairs)
            world = _worst(best) if number >= pairs // 2 else None
            chosen = {
                client.name: _first(claim, number) or (_varied(world, claim, rng) if world else _drawn(claim, rng))
                for client in context.data.clients
                if len(client)
            }
            sides = _replayed(context, claim, chosen)
            if sides is None:
                continue
            for name, apart in _apart(*sides).items():
                if name not in chosen:
                    continue
                tried += 1
                mu = math.hypot(*(math.sqrt(squared_distance(a, b)) / a.scale for a, b in apart))
                if mu > best.get(name, (0.0, chosen[name]))[0]:
                    best[name] = (mu, chosen[name])
                if mu > found.mu:
                    found = Farthest(mu, f"{chosen[name].words} at {name}", tried, _experiment(apart))
    return replace(found, tried=tried)


def _worst(best: dict[str, tuple[float, Pair]]) -> Pair | None:
    return max(best.values(), key=lambda each: each[0])[1] if best else None


def _fillings(claim: PrivacyClaim) -> Sequence[Filling]:
    return fillings(claim.adjacency if claim.unit == "record" else "replace_one_same_label")


def _first(claim: PrivacyClaim, number: int) -> Pair | None:
    """The first pairs: the strongest fillings of the only record of a class, and of one of two; None: no more."""
    first, second = _fillings(claim)[:2]
    sizes = ((1, False), (1, True), (2, False))
    return Pair(first, second, sizes[number][0], None, sizes[number][1]) if number < len(sizes) else None


def _drawn(claim: PrivacyClaim, rng: np.random.Generator) -> Pair:
    """A pair at random; where records are added or removed, one side is empty."""
    tried = _fillings(claim)
    put = [each for each in tried if each.vector is not None]
    first = tried[0] if tried[0].vector is None else put[int(rng.integers(len(put)))]
    second = put[int(rng.integers(len(put)))]
    rest = (None, *put)[int(rng.integers(len(put) + 1))]
    return Pair(first, second, _KEPT[int(rng.integers(len(_KEPT)))], rest, bool(rng.integers(4) == 0))


def _varied(pair: Pair, claim: PrivacyClaim, rng: np.random.Generator) -> Pair:
    """The pair with one thing of it drawn anew."""
    name = Pair._fields[int(rng.integers(len(Pair._fields)))]
    return pair._replace(**{name: getattr(_drawn(claim, rng), name)})


def _replayed(context: AuditContext, claim: PrivacyClaim, chosen: dict[str, Pair]) -> tuple[Tape, Tape] | None:
    """The draws on both data sets; None where the method cannot be run on one of them."""
    sides: tuple[list[Records], list[Records]] = ([], [])
    for number, client in enumerate(context.data.clients):
        pair = chosen.get(client.name)
        both = (client, client) if pair is None else _neighbours(client, pair, claim, context.data.classes, number)
        for side, records in zip(sides, both, strict=True):
            side.append(records)
    if not all(any(map(len, side)) for side in sides):
        return None
    tapes = []
    attempt = Attempt()
    with attempt:
        tapes = [context.replay(side, context.tape, brief=True).tape for side in sides]
    return None if attempt.failure else (tapes[0], tapes[1])


def _neighbours(
    client: Records, pair: Pair, claim: PrivacyClaim, classes: int, number: int
) -> tuple[Records, Records]:
    """A client's two data sets; twice the same one where the fillings are no neighbours."""
    label = int(np.bincount(client.labels).argmax()) if number % 2 else int(client.labels[0])
    of_class = np.flatnonzero(client.labels == label)
    own = of_class if pair.kept is None else of_class[: pair.kept]
    others = np.flatnonzero(client.labels != label)
    if claim.unit != "record":
        # Cutting a client would cut its persons: what is changed is all of one unit.
        own, others = np.arange(len(client)), np.zeros(0, np.int64)
    small = client.take(own if pair.alone else np.sort(np.concatenate([own, others])))
    place = int(np.flatnonzero(small.labels == label)[0])
    if pair.rest is not None and claim.unit == "record":
        for each in np.flatnonzero(small.labels == label)[1:][:_MOST].tolist():
            same = replace(pair.rest, label="own")
            small = filled(small, each, same, classes, number).records
    changed = [filled(small, place, side, classes, number, unit=claim.unit) for side in (pair.first, pair.second)]
    held = labels_at(small, place, claim.unit)
    near = neighbours(changed[0].label, changed[1].label, claim.adjacency)
    if not near and neighbours(held, changed[1].label, claim.adjacency):
        return small, changed[1].records
    return (changed[0].records, changed[1].records) if near else (small, small)


_MOST = 8
"""Other records of the class that are made alike: what is left of larger classes stays as it is."""


def _apart(first: Tape, second: Tape) -> dict[str, list[tuple[Draw, Draw]]]:
    """Comparable draws of both data sets, by sender; none for a sender with an incomparable draw."""
    found: dict[str, list[tuple[Draw, Draw]]] = {}
    odd = {key.sender for key in first.draws.keys() ^ second.draws.keys()}
    for key in first.draws.keys() & second.draws.keys():
        one, two = first.draws[key], second.draws[key]
        if not isinstance(one, Draw) or not isinstance(two, Draw) or one.scale == 0:
            continue
        if one.shape != two.shape or one.scale != two.scale:
            odd.add(key.sender)
        else:
            found.setdefault(key.sender, []).append((one, two))
    return {name: _ordered(pairs) for name, pairs in found.items() if name not in odd}


def _ordered(pairs: list[tuple[Draw, Draw]]) -> list[tuple[Draw, Draw]]:
    def key(pair: tuple[Draw, Draw]) -> Key:
        return pair[0].key

    return sorted(pairs, key=key)


def _experiment(apart: Sequence[tuple[Draw, Draw]]) -> Experiment:
    """The noise of a sender's draws, in standard deviations, on both known inputs along what they differ by."""
    squares = [squared_distance(one, two) / one.scale**2 for one, two in apart]
    moved: NDArray[np.float64] = np.sqrt(np.asarray(squares, dtype=np.float64))
    none = np.zeros(1, dtype=np.int64)

    def release(
        x: NDArray[np.float64],
        _labels: NDArray[np.int64],
        scales: tuple[float, ...],
        rng: np.random.Generator,
        reruns: int,
    ) -> tuple[NDArray[np.float64]]:
        return (x + scales[0] * rng.standard_normal((reruns, x.shape[1])),)

    sides = Neighbours(np.zeros((1, len(moved))), none, moved[None], none)
    mu = float(np.linalg.norm(moved))
    return Experiment(sides, mu, (1.0,), release, (flat_rows,), of_records=False)
