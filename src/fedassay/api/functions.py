"""An external mechanism as a black box: a callable that maps records to a message.

    def clip_and_sum(records):
        return {"sums": ...}

    tested = fedassay.audit_function(clip_and_sum, records, classes=10, output="tested", epsilon=2.0)
    print(*tested.clauses, sep=" ")

The code is unknown: the source of its noise as well as the computations before. Its noise is tested by runs on the
same records, and its sensitivity by neighbours: records left out, records twice, and records at corners of the
range of the data. The worst of them is run on fresh coins, and the error of distinguishing both data sets bounds
epsilon from below. The search covers these neighbours alone: an effect that it does not find may still exist.

Where the function can be forked, first calls in processes of their own, with other coins, are compared with calls
of this process, one after the other: a function that counts its calls cannot count there. If they differ, all
other tests use first calls alone. Earlier inputs are varied in the same way: a function that then sends another
message has a memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.api.blackbox import differs, epsilon_bound, fixed_bits
from fedassay.api.calls import Where, audit
from fedassay.api.run import Run
from fedassay.execution.fresh import Fresh, message_of, timed
from fedassay.recorders.plain import as_array, is_whole, record
from fedassay.support.errors import DataError, NotRunError, PlanError
from fedassay.support.seeds import Seeds
from fedassay.support.text import shown
from fedassay.support.types import Matrix

Array = NDArray[Any]
Mechanism = Callable[[Array], Mapping[str, Any]]

_ALIKE = 1e-3
"""The p-value below which runs that should be equal are reported as different."""

_COMPARED = 40
"""Runs on each side of such a comparison."""

_FEW_BITS = 8
"""Low-order bits that may be the same in all runs by chance."""


@dataclass(frozen=True)
class Neighbour:
    """Records that differ in one from those that were given.

    Attributes:
        words: Their difference, in words.
        moved: Euclidean distance between the means of both messages' numbers, over the noise of a number where
            there is any.
    """

    words: str
    moved: float


@dataclass(frozen=True)
class FunctionAudit:
    """The results of the audit of a mechanism.

    Attributes:
        run: The audit of its message: every attack that applies.
        clauses: The clauses of the claim that were tested, and how, a sentence each.
        tricks: Those of them about behaviour that no honest mechanism has: memory, calls that differ, fixed bits.
        worst: The neighbour that moves the message most.
        observed: Lower bound on epsilon, at 95 %; `draws` limit how large it can be.
        refuted: Whether the claim is refuted.
    """

    run: Run
    clauses: tuple[str, ...]
    tricks: tuple[str, ...]
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
        fn: Maps records, a NumPy array with first side n, to a message: arrays by name, of shapes that do not
            depend on n. It receives copies.
        records: At least two: an array, or what becomes one (a list, a tensor, a frame of numbers).
        classes: Number of classes in its messages.
        output: A new folder, for the message (`message`) and its audit (`audit`).
        epsilon: The claim under addition or removal of one record; None: none is made.
        delta: Delta of the claim.
        neighbours: Number of neighbouring data sets to try.
        reruns: Runs of each, at least two.
        draws: Runs on each side of the worst neighbour for the bound on epsilon; at least 40.
        seed: Seed for the choice and order of the neighbours.

    Raises:
        PlanError: An argument is out of range, or messages have other shapes for other records.
        DataError: Records or a message hold no finite numbers, or the folder holds a transcript already.
    """
    if not callable(fn):
        raise PlanError(f"audit_function: fn: given {shown(fn)}; allowed: a function of an array")
    records = _array(records)
    _check(records, output, neighbours, reruns, draws, epsilon, delta)
    rng = Seeds(seed).numpy("audited function")
    with _Box(fn) as box:
        first = box.first(records)
        folder = Path(output)
        with record(folder / "message", classes=classes, method=getattr(fn, "__name__", "a function")) as recorder:
            recorder.sent(0, first)
        run = audit(folder / "message", folder / "audit", device="cpu", progress=False)
        starts = box.starts(records)
        own = box.rows(records, reruns)
        # Clipping of single numbers, or constants, must not make a distance infinite.
        spread = float(np.sqrt(own.var(axis=0, ddof=1).mean())) if np.ptp(own, axis=0).any() else 0.0
        tried = list(_neighbours(records, neighbours, epsilon is not None, rng))
        moves = [
            (float(np.linalg.norm(box.rows(data, reruns).mean(axis=0) - own.mean(axis=0))), words, data)
            for words, data in tried
        ]
        distance, words, data = max(moves, key=lambda each: each[0])
        worst = Neighbour(words, distance / (spread or 1.0))
        on_records = box.rows(records, draws)
        # Also of a message that never changes: honest noise on whole numbers may not show in a few hundred runs.
        observed = epsilon_bound(on_records, box.rows(data, draws), delta) if distance > 0 else 0.0
        tricks = tuple(_tricks(box, records, [data for _, data in tried], on_records, starts))
    clauses = (
        *_clauses(spread, distance, worst, observed, (neighbours, reruns, draws), epsilon),
        *tricks,
        box.words,
        _OUT_OF_REACH,
    )
    return FunctionAudit(run, clauses, tricks, worst, observed, epsilon is not None and observed > epsilon)


_OUT_OF_REACH = (
    "Not tested: code that behaves otherwise when it is audited by what it reads outside (files, the clock, this "
    "library) or in a few calls, timing, and records enciphered in noise or in the choice of its generator."
)


class _Box:
    """A function that is run here, and by first calls in processes of their own where it can be forked.

    Args:
        fn: Not called yet.

    Attributes:
        why: Reason why it is not run in processes of their own, or "".
        counts: Whether first calls send something else than later ones.
    """

    def __init__(self, fn: Mechanism) -> None:
        self._fn = fn
        self._coins = 0
        self._width = 0
        self.why = ""
        self.counts = False
        self._fresh: Fresh | None = None
        try:
            self._fresh = Fresh(fn)
        except NotRunError as error:
            self.why = str(error)

    def __enter__(self) -> _Box:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fresh is not None:
            self._fresh.close()

    @property
    def apart(self) -> bool:
        """Whether runs are first ones in processes of their own."""
        return self._fresh is not None

    @property
    def words(self) -> str:
        """A sentence on the runs that were made."""
        if not self.apart:
            return (
                f"Runs: one after the other in this process, for {self.why}: what counts its calls was not found."
            )
        which = "all of them first calls" if self.counts else f"{_COMPARED} first calls among them"
        return f"Runs: in this process and in new ones, in which the function had never run; {which}."

    def first(self, records: Array) -> Mapping[str, Array]:
        """Return the first message of all, made in this process; shows whether the function can be forked."""
        message, seconds = timed(self._fn, records)
        self._width = len(_row(message))
        if self._fresh is not None:
            self._fresh.took(seconds)
            try:
                # A first call that draws no coins does not show whether these can be changed; a later one does.
                varied = [
                    _row(self._fresh.message([records] * calls, coins)) for calls in (1, 3) for coins in (1, 2)
                ]
            except Exception as error:  # noqa: BLE001
                self._give_up(f"it does not run in a forked process ({error})")
            else:
                here = [_row(self._fn(records.copy())) for _ in range(2)]
                alike = np.array_equal(varied[0], varied[1]) and np.array_equal(varied[2], varied[3])
                if alike and not np.array_equal(here[0], here[1]):
                    self._give_up("its coins are the same in every new process")
        return message

    def _give_up(self, why: str) -> None:
        if self._fresh is not None:
            self._fresh.close()
        self._fresh, self.why = None, why

    def starts(self, records: Array) -> Matrix | None:
        """First calls with other coins, compared with calls of this process; None where it cannot be forked."""
        if self._fresh is None:
            return None
        found = self._first_calls(records, _COMPARED)
        self.counts = differs(found, self.here(records, _COMPARED)) < _ALIKE
        return found

    def rows(self, data: Array, count: int) -> Matrix:
        """Messages on the same data with other coins, shape (count, numbers)."""
        return self._first_calls(data, count) if self.counts else self.here(data, count)

    def _first_calls(self, data: Array, count: int) -> Matrix:
        return self._checked([self.after([data], self._next()) for _ in range(count)])

    def here(self, data: Array, count: int) -> Matrix:
        """Messages of this process, one after the other."""
        return self._checked([_row(self._fn(data.copy())) for _ in range(count)])

    def after(self, calls: Sequence[Array], coins: int) -> Matrix:
        """The last message of some calls in a process of their own, shape (numbers,)."""
        assert self._fresh is not None
        return _row(self._fresh.message(calls, coins))

    def _next(self) -> int:
        self._coins += 1
        return self._coins

    def _checked(self, rows: list[Matrix]) -> Matrix:
        if {len(row) for row in rows} != {self._width}:
            raise PlanError("audit_function: fn: messages of other sizes; allowed: shapes that do not depend on n")
        return np.array(rows)


def _tricks(
    box: _Box, records: Array, others: Sequence[Array], rows: Matrix, starts: Matrix | None
) -> Iterator[str]:
    """Yield a sentence for each behaviour that no honest mechanism has.

    Args:
        box: The function.
        records: The input.
        others: Neighbouring data sets.
        rows: Messages of the records, one a run.
        starts: Messages of first calls; None: it cannot be forked.
    """
    later = box.here(records, _COMPARED)
    if starts is None:
        # Neighbours were seen between those runs and these.
        if not np.ptp(rows, axis=0).any() and not np.array_equal(rows[0], later[-1]):
            yield _REMEMBERS
    else:
        p = differs(starts, later)
        if box.counts or p < _ALIKE:
            yield "Calls: calls of one process, one after the other, do not send what first calls send."
        yield from _memory(box, records, others)
    if (fixed := fixed_bits(rows)) > _FEW_BITS:
        yield (
            f"Low-order bits: {fixed} of them are the same in each of {len(rows)} runs, in numbers that change."
        )


_REMEMBERS = "Memory: the same records gave another message after other records had been seen."


def _memory(box: _Box, records: Array, others: Sequence[Array]) -> Iterator[str]:
    """Yield signs that earlier inputs change a message: with the same coins, or in the distribution of runs.

    Of records of another number other coins may be drawn, so that only distributions are compared.
    """
    corner = np.broadcast_to(records.max(axis=0), records.shape)
    alike = [np.ascontiguousarray(data) for data in (records[::-1], corner, records[[0] * len(records)])]
    fewer = next(data for data in others if len(data) < len(records))
    plain, compared = box.after([records, records], 1), [fewer]
    if not np.array_equal(plain, box.after([records, records], 1)):
        compared = [alike[1], fewer]
    elif any(not np.array_equal(box.after([data, records], 1), plain) for data in alike):
        yield _REMEMBERS
        return
    before = np.array([box.after([records, records], place) for place in range(_COMPARED)])
    for number, data in enumerate(compared, start=1):
        coins = range(number * _COMPARED, (number + 1) * _COMPARED)
        if differs(before, np.array([box.after([data, records], place) for place in coins])) < _ALIKE:
            yield _REMEMBERS
            return


def _array(records: object) -> Array:
    """Records as an array, which neighbours are made of.

    Raises:
        DataError: They are no array of finite numbers.
    """
    array = as_array(records, "records")
    if not array.ndim or not np.isfinite(array).all():
        found = "NaN or infinite values" if array.ndim else "one number"
        raise DataError(f"audit_function: records: given {found}; allowed: an array (n, ...) of finite numbers")
    return array


def _check(
    records: Array, output: Where, neighbours: int, reruns: int, draws: int, epsilon: float | None, delta: float
) -> None:
    given = (
        ("records", len(records), 2),
        ("neighbours", neighbours, 1),
        ("reruns", reruns, 2),
        ("draws", draws, 40),
    )
    for name, number, least in given:
        if not is_whole(number) or number < least:
            raise PlanError(f"audit_function: {name}: given {shown(number)}; allowed: {least} or more, whole")
    if epsilon is not None and not (_is_number(epsilon) and epsilon > 0):
        raise PlanError(f"audit_function: epsilon: given {shown(epsilon)}; allowed: above 0, or None")
    if not (_is_number(delta) and 0 <= delta < 1):
        raise PlanError(f"audit_function: delta: given {shown(delta)}; allowed: 0 to below 1")
    if not isinstance(output, str | os.PathLike) or Path(output).is_file():
        raise PlanError(f"audit_function: output: given {shown(output)}; allowed: a new folder")


def _is_number(given: object) -> bool:
    return isinstance(given, Real) and not isinstance(given, bool)


def _row(sent: object) -> Matrix:
    """Return all numbers of a function's output, by the order of names."""
    message = message_of(sent)
    row = np.concatenate([message[name].astype(np.float64).ravel() for name in sorted(message)])
    if not np.isfinite(row).all():
        raise DataError("audit_function: the function gave NaN or infinite values; allowed: finite numbers")
    return row


def _neighbours(
    records: Array, count: int, claimed: bool, rng: np.random.Generator
) -> Iterator[tuple[str, Array]]:
    """Records without one, the longest first; with one at a corner; and with a real one, in a random order.

    A canary at a corner of the data is easily recognised; one record for another of the same data is not.
    """
    norms = np.linalg.norm(records.reshape(len(records), -1).astype(np.float64), axis=1)
    order = [*np.argsort(-norms)[: (count + 1) // 2], *rng.permutation(len(records))]
    places = list(dict.fromkeys(int(place) for place in order))[:count]
    corners = [records.min(axis=0), records.max(axis=0)]
    without = [(f"without record {place}", np.delete(records, place, axis=0)) for place in places]
    corner: list[tuple[str, Array]] = []
    real: list[tuple[str, Array]] = []
    for number, place in enumerate(places):
        other = int(rng.integers(len(records) - 1))
        other += other >= place
        for words, value, made in (
            ("at a corner of the data", corners[number % 2], corner),
            (f"equal to record {other}", records[other], real),
        ):
            if claimed:
                # One record more, as add or remove of one has it.
                made.append((f"with one record more, {words}", np.concatenate([records, value[None]])))
            else:
                made.append((f"with record {place} {words}", _with(records, place, value)))
    rest = count - (count + 1) // 2
    chosen = [*without[: (count + 1) // 2], *corner[: (rest + 1) // 2], *real[: rest // 2]]
    yield from (chosen[place] for place in rng.permutation(len(chosen)))


def _with(records: Array, place: int, value: Array) -> Array:
    replaced = records.copy()
    replaced[place] = value
    return replaced


def _clauses(
    spread: float,
    distance: float,
    worst: Neighbour,
    observed: float,
    counts: tuple[int, int, int],
    epsilon: float | None,
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
