"""A stranger's mechanism as a black box: a callable that maps records to a message.

    def clip_and_sum(records):
        return {"sums": ...}

    tested = fedassay.audit_function(clip_and_sum, records, classes=10, output="tested", epsilon=2.0)
    print(*tested.clauses, sep=" ")

Nothing is known of the code: neither where its noise comes from nor what it computes before. So its noise is
tested by runs on the same records, and what one record moves by neighbours: records left out, and records at
corners of the range of the data. The worst of them is run on fresh coins, and the error of telling both apart
bounds epsilon from below (Kairouz, Oh and Viswanath 2015, theorem 2.1; Clopper and Pearson 1934). The search is
one over these neighbours alone: what it does not find is not shown to be absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedassay.api.calls import Where, audit
from fedassay.api.run import Run
from fedassay.recorders.plain import as_array, record
from fedassay.support.errors import PlanError
from fedassay.support.seeds import Seeds

Array = NDArray[Any]
Mechanism = Callable[[Array], Mapping[str, Any]]

_LEVEL = 0.05
"""Probability that the bound on epsilon of an honest mechanism is too large."""


@dataclass(frozen=True)
class Neighbour:
    """Records that differ in one from those that were given.

    Attributes:
        words: How they differ.
        moved: Euclidean distance between the means of both messages' numbers, over the noise of a number where
            there is any.
    """

    words: str
    moved: float


@dataclass(frozen=True)
class FunctionAudit:
    """What was found of a mechanism.

    Attributes:
        run: The audit of its message: every attack that applies.
        clauses: Which clause of the claim was tested how, a sentence each.
        worst: The neighbour that moves the message most.
        observed: Lower bound on epsilon, at 95 %; `draws` limit how large it can be.
        refuted: Whether the claim is.
    """

    run: Run
    clauses: tuple[str, ...]
    worst: Neighbour
    observed: float
    refuted: bool


def audit_function(
    fn: Mechanism,
    records: Array,
    *,
    classes: int,
    output: Where,
    epsilon: float | None = None,
    delta: float = 0.0,
    neighbours: int = 12,
    reruns: int = 8,
    draws: int = 200,
    seed: int = 0,
) -> FunctionAudit:
    """Audit a function of records as a black box.

    Args:
        fn: Maps records, first side n, to a message: arrays by name, of shapes that do not depend on n. It is
            given copies.
        records: At least two.
        classes: Number of classes of what it sends.
        output: A new folder, for the message (`message`) and its audit (`audit`).
        epsilon: The claim under add or remove of one record; None: none is made.
        delta: Of the claim.
        neighbours: Neighbouring data sets that are tried.
        reruns: Runs of each, at least two.
        draws: Runs on each side of the worst neighbour, from which epsilon is bounded; at least 40.
        seed: Which neighbours are tried, in which order.

    Raises:
        PlanError: An argument is out of range, or messages have other shapes for other records.
        DataError: A message holds no numbers, or the folder holds a transcript already.
    """
    _check(records, neighbours, reruns, draws, epsilon, delta)
    rng = Seeds(seed).numpy("audited function")
    first = {name: as_array(values, name) for name, values in fn(records.copy()).items()}
    folder = Path(output)
    with record(folder / "message", classes=classes, method=getattr(fn, "__name__", "a function")) as recorder:
        recorder.sent(0, first)
    run = audit(folder / "message", folder / "audit", device="cpu", progress=False)

    def sample(data: Array, count: int) -> NDArray[np.float64]:
        rows = [_row(fn(data.copy())) for _ in range(count)]
        if {len(row) for row in rows} != {width}:
            raise PlanError("audit_function: fn: messages of other sizes; allowed: shapes that do not depend on n")
        return np.array(rows)

    width = len(_row(first))
    own = sample(records, reruns)
    # Clipping of single numbers, or constants, must not make a distance infinite.
    spread = float(np.sqrt(own.var(axis=0, ddof=1).mean())) if np.ptp(own, axis=0).any() else 0.0
    tried = list(_neighbours(records, neighbours, epsilon is not None, rng))
    moves = [
        (np.linalg.norm(sample(data, reruns).mean(axis=0) - own.mean(axis=0)), words, data)
        for words, data in tried
    ]
    distance, words, data = max(moves, key=lambda each: each[0])
    worst = Neighbour(words, float(distance) / (spread or 1.0))
    # Also of a message that never changes: honest noise on whole numbers may not show in a few hundred runs.
    observed = _bound(sample(records, draws), sample(data, draws), delta) if distance > 0 else 0.0
    again = _row(fn(records.copy()))
    changed = spread == 0 and not np.array_equal(again, own[0])
    refuted = epsilon is not None and observed > epsilon
    clauses = tuple(
        _clauses(spread, float(distance), worst, observed, (neighbours, reruns, draws), epsilon, changed)
    )
    return FunctionAudit(run, clauses, worst, observed, refuted)


def _check(records: Array, neighbours: int, reruns: int, draws: int, epsilon: float | None, delta: float) -> None:
    given = (
        ("records", len(records), 2),
        ("neighbours", neighbours, 1),
        ("reruns", reruns, 2),
        ("draws", draws, 40),
    )
    for name, number, least in given:
        if number < least:
            raise PlanError(f"audit_function: {name}: given {number}; allowed: {least} or more")
    if epsilon is not None and not epsilon > 0:
        raise PlanError(f"audit_function: epsilon: given {epsilon}; allowed: above 0, or None")
    if not 0 <= delta < 1:
        raise PlanError(f"audit_function: delta: given {delta}; allowed: 0 to below 1")


def _row(message: Mapping[str, Any]) -> NDArray[np.float64]:
    """All numbers of a message, by the order of names."""
    parts = [as_array(message[name], name).astype(np.float64).ravel() for name in sorted(message)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _neighbours(
    records: Array, count: int, claimed: bool, rng: np.random.Generator
) -> Iterator[tuple[str, Array]]:
    """Records without one, the longest first; and, where no relation is claimed, with one at a corner."""
    norms = np.linalg.norm(records.reshape(len(records), -1).astype(np.float64), axis=1)
    order = [*np.argsort(-norms)[: (count + 1) // 2], *rng.permutation(len(records))]
    places = list(dict.fromkeys(int(place) for place in order))[:count]
    corners = [records.min(axis=0), records.max(axis=0)]
    made = [(f"without record {place}", np.delete(records, place, axis=0)) for place in places]
    for number, place in enumerate(places):
        replaced = records.copy()
        replaced[place] = corners[number % 2]
        if claimed:
            # One record more, as add or remove of one has it.
            made.append(
                ("with one record more, at a corner of the data", np.concatenate([records, replaced[[place]]]))
            )
        else:
            made.append((f"with record {place} at a corner of the data", replaced))
    chosen = [*made[: (count + 1) // 2], *made[len(places) : len(places) + count // 2]]
    yield from (chosen[place] for place in rng.permutation(len(chosen)))


def _bound(one: NDArray[np.float64], other: NDArray[np.float64], delta: float) -> float:
    """Lower bound on epsilon from runs on both sides: direction and threshold by one half, error by the other."""
    half = len(one) // 2
    spread = np.concatenate([one[:half], other[:half]]).std(axis=0)
    direction = np.divide(
        other[:half].mean(axis=0) - one[:half].mean(axis=0), spread**2, out=np.zeros_like(spread), where=spread > 0
    )
    left, right = one @ direction, other @ direction
    cuts = np.quantile(np.concatenate([left[:half], right[:half]]), np.linspace(0.02, 0.98, 49))
    ways = ((left, right), (right, left))
    guesses = [
        (_epsilon(a[:half], b[:half], cut, sign, delta), cut, sign, way)
        for way, (a, b) in enumerate(ways)
        for cut in cuts
        for sign in (1, -1)
    ]
    _, cut, sign, way = max(guesses, key=lambda each: each[0])
    a, b = ways[way]
    return _epsilon(a[half:], b[half:], cut, sign, delta)


def _epsilon(a: NDArray[np.float64], b: NDArray[np.float64], cut: float, sign: int, delta: float) -> float:
    """log((P_b - delta) / P_a) of an event, each probability at its worse end of an interval."""
    hits, seen = int((sign * a > sign * cut).sum()), int((sign * b > sign * cut).sum())
    most = float(stats.beta.ppf(1 - _LEVEL / 2, hits + 1, len(a) - hits)) if hits < len(a) else 1.0
    least = float(stats.beta.ppf(_LEVEL / 2, seen, len(b) - seen + 1)) if seen else 0.0
    return max(0.0, math.log((least - delta) / most)) if least > delta else 0.0


def _clauses(
    spread: float,
    distance: float,
    worst: Neighbour,
    observed: float,
    counts: tuple[int, int, int],
    epsilon: float | None,
    changed: bool,
) -> Iterator[str]:
    neighbours, reruns, draws = counts
    if spread > 0:
        yield f"Noise: tested statistically on {reruns} runs of the same records; its scale is about {spread:.3g}."
    else:
        yield f"Noise: none was seen; {reruns} runs of the same records gave the same message."
    yield (
        f"Sensitivity: tested on {neighbours} neighbours, not exact; the message moves most "
        f"({distance:.3g}) {worst.words}."
    )
    exact = "; infinite if there is no noise" if spread == 0 and distance > 0 else ""
    yield f"Epsilon: at least {observed:.3g} (95 %), by {draws} runs on each side of that neighbour{exact}."
    if epsilon is not None:
        said = "is refuted" if observed > epsilon else "was not refuted, which does not show that it holds"
        yield f"Claim: epsilon {epsilon:g} {said}."
    if changed:
        yield "Memory: the same records gave another message after other records had been seen."
    yield "Not tested: code that behaves otherwise when it is audited, and records hidden in the coins of noise."
