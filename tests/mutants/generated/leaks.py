"""Does a method leak more than it claims? Asked of its transcripts alone, by code that the audits do not know.

The method runs many times, with noise and hidden coins drawn anew, on two neighbouring data sets. What is public
(first weights, projections) is the same in every run. A classifier of whole transcripts is made from some of the
runs, and judged on others: under (epsilon, delta) the share of the second data set that it names is at most
e^epsilon times the share of the first that it names as well, plus delta. A leak is counted where exact bounds
(Clopper and Pearson, 1934) refute that at `LEVEL`, over all pairs of data sets and looks together.

The claim is (.05, .5): half as much noise as that needs is refuted by some hundred runs, where (1, 1e-5) would
take many thousands. The method computes its noise for either by the same lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

EPSILON, DELTA = 0.05, 0.5
LEVEL = 1e-6
PAIRED, FEW, CHOSEN, JUDGED, MORE = 24, 40, 120, 400, 800
"""Runs a side: with the noise in common, to choose a statistic and a threshold (some of them before the others),
at the first look, at the second."""
PROMISING = 0.05
"""How far beyond the claim the chosen classifier must be where it was chosen, for it to be judged."""
MORE_THAN = 1.05
"""How much further apart two data sets must seem than without the change."""
HOPELESS = -0.12
"""How far it may be from the claim on `FEW` runs, where the best of many always looks better than it is."""
PAIRS = 2
SERVER = "server"

Vector = NDArray[np.float64]
Pair = tuple[Any, Any]
"""Two neighbouring data sets, each a list of (images, labels), one a client."""


@dataclass(frozen=True)
class Row:
    """One transcript.

    Attributes:
        form: What is no number: which client sends what to whom, types, shapes, releases, claim and notes.
        fields: Where each array begins and ends in `values`.
        values: All numbers that clients send, shape (p,); what the server sends follows from them.
        digest: Equal where clients send the same to the bit.
    """

    form: str
    fields: tuple[tuple[int, int], ...]
    values: Vector
    digest: str


@dataclass(frozen=True)
class Shown:
    """What the oracle says.

    Attributes:
        leaks: Whether the claim is refuted.
        named: Of the second data set.
        wrongly: Of the first.
        runs: A side.
        pair: Which pair of data sets.
    """

    leaks: bool
    named: int = 0
    wrongly: int = 0
    runs: int = 0
    pair: int = -1


Run = Callable[[Any, int, bool], Row]
"""A run on a data set, with the noise of a number; the last says that it is shared with the other data set."""


def row_of(transcript: Any) -> Row:
    """The transcript of a run, whole.

    Raises:
        ValueError: It holds a number that is none.
    """
    said, parts, fields, start = [transcript.claim.model_dump_json(), repr(transcript.notes)], [], [], 0
    sent = hashlib.sha256("".join(said).encode())
    for message in transcript.messages:
        for name, item in message.fields.items():
            release = item.release.model_dump_json()
            head = f"{message.round}/{message.sender}/{message.receiver}/{name}/{item.kind}/{item.secure}"
            if message.sender == SERVER:
                continue
            said.append(f"{head}/{item.values.dtype}/{item.values.shape}/{release}")
            parts.append(np.ravel(item.values).astype(np.float64))
            fields.append((start, start := start + parts[-1].size))
            sent.update(said[-1].encode() + parts[-1].tobytes())
    values = np.concatenate(parts)
    if not np.isfinite(values).all():
        raise ValueError("NaN or infinity is sent")
    return Row("\n".join(said), tuple(fields), values, sent.hexdigest())


def strength(rows: list[list[Row]]) -> list[float]:
    """How far apart two data sets seem, from runs with the noise in common: nothing where transcripts differ in
    form.

    By all numbers, and by what is left of them when their partners are taken off (see `_measure`).
    """
    if len({row.form for side in rows for row in side}) > 1:
        return []
    first, second = (np.array([row.values for row in side]) for side in rows)
    _, weight, shift, _, _, left_weight, left_shift = _linear(first, second)
    return [float(np.sqrt(weight @ shift)), float(np.sqrt(left_weight @ left_shift))]


def in_common(run: Run, pair: Pair) -> list[list[Row]]:
    """Runs on both data sets with the noise in common."""
    return [[run(side, root, True) for root in range(PAIRED)] for side in pair]


def judge(run: Run, pairs: list[Pair], intact: list[list[float]]) -> Shown:
    """Whether any pair of neighbours is told apart better than the claim allows.

    Args:
        run: The method as it is changed.
        pairs: Neighbours.
        intact: `strength` of the method as it is shipped, pair by pair. Where the same noise shows no more,
        nothing is
            looked for.
    """
    best = Shown(False)
    for number, pair in enumerate(pairs):
        rows = in_common(run, pair)
        now = strength(rows)
        if now and all(new <= MORE_THAN * old + 0.1 for new, old in zip(now, intact[number], strict=True)):
            continue
        chosen: list[list[Row]] = [[], []]
        names = None
        for first, last, least in ((0, FEW, HOPELESS), (FEW, CHOSEN, PROMISING)):
            for place, side in enumerate(pair):
                chosen[place] += [run(side, root, False) for root in _roots(place, first, last - first)]
            names = _classifier(rows, chosen, least)
            if names is None:
                break
        if names is None:
            continue
        for first, runs in ((CHOSEN, JUDGED), (CHOSEN + JUDGED, MORE)):
            wrongly, named = (
                sum(names(run(side, root, False)) for root in _roots(place, first, runs))
                for place, side in enumerate(pair)
            )
            found = Shown(refuted(named, wrongly, runs, LEVEL / (2 * PAIRS)), named, wrongly, runs, number)
            if found.leaks:
                return found
            best = found
            if named <= np.exp(EPSILON) * wrongly + DELTA * runs:
                break
    return best


def refuted(named: int, wrongly: int, runs: int, level: float) -> bool:
    """Whether (EPSILON, DELTA) is refuted at a level by a classifier's hits and false alarms, `runs` each."""
    least = beta.ppf(level / 2, named, runs - named + 1) if named else 0.0
    most = beta.ppf(1 - level / 2, wrongly + 1, runs - wrongly) if wrongly < runs else 1.0
    return bool(least > np.exp(EPSILON) * most + DELTA)


def _roots(place: int, first: int, runs: int) -> range:
    """Numbers of noise that no other run has; those of the two sides are apart."""
    start = 1_000_000 * (1 + place) + first
    return range(start, start + runs)


def _classifier(rows: list[list[Row]], chosen: list[list[Row]], least: float) -> Callable[[Row], bool] | None:
    """Names the second data set; None where nothing is found that is beyond the claim by `least`."""
    measure = _measure(rows)
    first, second = (np.array([measure(row) for row in side]) for side in chosen)
    both = np.concatenate([first, second])
    centre = np.median(both, axis=0)
    spread = np.maximum(np.percentile(both, 84, axis=0) - np.percentile(both, 16, axis=0), 1e-300)

    def scaled(values: Vector) -> Vector:
        return np.clip((values - centre) / spread, -6, 6)

    first, second = scaled(first), scaled(second)
    width = first.shape[1]
    inside = (np.atleast_2d(np.cov(first.T)) + np.atleast_2d(np.cov(second.T))) / 2 + 1e-6 * np.eye(width)
    weights = np.linalg.solve(inside, second.mean(axis=0) - first.mean(axis=0))
    ways = [*np.eye(width), *-np.eye(width), weights]
    best, way, threshold = -1.0, ways[0], 0.0
    for each in ways:
        low, high = np.sort(first @ each), np.sort(second @ each)
        for place in np.unique(np.concatenate([low, high])):
            hits = 1 - np.searchsorted(high, place, side="left") / len(high)
            alarms = 1 - np.searchsorted(low, place, side="left") / len(low)
            if hits - np.exp(EPSILON) * alarms > best:
                best, way, threshold = hits - np.exp(EPSILON) * alarms, each, place
    if best < DELTA + least:
        return None
    # Equal numbers, summed in another order, stay on the side that they were on.
    slack = 1e-9 * max(1.0, abs(threshold))
    return lambda row: bool(scaled(measure(row)[None])[0] @ way >= threshold - slack)


def _measure(rows: list[list[Row]]) -> Callable[[Row], Vector]:
    """Statistics of a transcript that may tell the two data sets apart, made from runs with the noise in common.

    One for its form; for each field the likelihood ratio of independent Gaussians, the energy around the mean and
    the share of exact zeros; the largest deviation of all; and the likelihood ratio of what is left of numbers
    when the one that goes with them most closely, anywhere in the transcript, is taken off: noise that was used
    twice.
    """
    known = {row.form for row in rows[0]}
    form = rows[0][0].form
    alike = [[row.values for row in side if row.form == form] for side in rows]
    least = min(len(side) for side in alike)
    if least < PAIRED // 2:
        return lambda row: np.array([row.form not in known], np.float64)
    first, second = (np.array(side[:least]) for side in alike)
    mean = first.mean(axis=0)
    varying, weight, _, moved, (partner, factor, kept), left_weight, _ = _linear(first, second)
    fields = rows[0][0].fields

    def of(row: Row) -> Vector:
        if row.form != form:
            return np.array([row.form not in known] + [0.0] * (3 * len(fields) + 2), np.float64)
        apart = row.values - mean
        own = [row.values[start:end] for start, end in fields]
        ratio = [apart[start:end] @ weight[start:end] for start, end in fields]
        energy = [np.log1p(np.mean(apart[a:b] ** 2 / varying[a:b])) if b > a else 0.0 for a, b in fields]
        zeros = [float(np.mean(part == 0)) if part.size else 0.0 for part in own]
        largest = np.log1p(np.max(np.abs(apart[moved]) / np.sqrt(varying[moved]), initial=0.0))
        rest = float((row.values[kept] - factor * row.values[partner]) @ left_weight)
        return np.array([0.0, *ratio, *energy, *zeros, largest, rest], np.float64)

    return of


def _linear(first: Vector, second: Vector) -> tuple[Any, ...]:
    """The likelihood ratio of independent Gaussians, from runs (m, p) of each side with the noise in common.

    Returns:
        Variance, weight and shift of each number (p,), the places of those that differ; partners (see
        `_partners`), and weight and shift of what is left of numbers without them.
    """
    shift = second.mean(axis=0) - first.mean(axis=0)
    varying = _variance(first, second)
    moved = np.flatnonzero(np.any(second != first, axis=0))
    strongest = moved[np.argsort(-(shift[moved] ** 2 / varying[moved]))[:400]]
    partner, factor, kept = _partners(first, strongest)
    left = [side[:, kept] - factor * side[:, partner] for side in (first, second)]
    left_shift = left[1].mean(axis=0) - left[0].mean(axis=0)
    return (
        varying,
        shift / varying,
        shift,
        moved,
        (partner, factor, kept),
        left_shift / _variance(*left),
        left_shift,
    )


def _variance(first: Vector, second: Vector) -> Vector:
    """Of each number within its side, never less than rounding leaves."""
    size = np.maximum(np.abs(first).max(axis=0, initial=0.0), np.abs(second).max(axis=0, initial=0.0))
    return np.asarray((first.var(axis=0) + second.var(axis=0)) / 2 + (1e-7 * size) ** 2 + 1e-30)


def _partners(rows: Vector, moved: NDArray[np.int64]) -> tuple[NDArray[np.int64], Vector, NDArray[np.int64]]:
    """For numbers that go closely with another one: that one, its factor, and they themselves."""
    centred = rows - rows.mean(axis=0)
    norms = np.linalg.norm(centred, axis=0)
    unit = np.divide(centred, norms, out=np.zeros_like(centred), where=norms > 0)
    close = np.abs(unit[:, moved].T @ unit)
    close[np.arange(len(moved)), moved] = 0
    best = close.argmax(axis=1) if len(moved) else np.zeros(0, np.int64)
    kept = close[np.arange(len(moved)), best] > 0.95
    chosen, partner = moved[kept], best[kept]
    factor = np.sum(centred[:, chosen] * centred[:, partner], axis=0) / norms[partner] ** 2
    return partner, factor, chosen
