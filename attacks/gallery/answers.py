"""Find which candidates are in the sums of one sender, and which joined or left between two times.

Sums without noise are solved exactly, and certify themselves. Other sums, and those that the gallery does not
explain, get posterior weights, and names that decoys calibrate (`certificate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from fedassay.attacks.gallery.certificate import in_part, named, whole
from fedassay.attacks.gallery.changes import difference
from fedassay.attacks.gallery.population import Known, Population, known_of
from fedassay.attacks.gallery.solving import Solved, exact_weights, posterior_changes, posterior_weights
from fedassay.attacks.gallery.system import System, system_of
from fedassay.data.records import Records
from fedassay.exchange.blocks import LinearBlock
from fedassay.support.types import Bools, Floats, Ints, Matrix


@dataclass(frozen=True, eq=False)
class Kept:
    """Candidates and decoys, equal ones merged.

    Attributes:
        records: One record of each group of equal ones, shape (N,).
        copies: Number of candidates for which each record stands, shape (N,).
        decoys: Whether each is a decoy, a record known to be in no message, shape (N,).
        keys: Index of each record by image and label.
    """

    records: Records
    copies: Ints
    decoys: Bools
    keys: dict[tuple[bytes, int], int]


@dataclass(frozen=True, eq=False)
class Answer:
    """Weights and names of the gallery's candidates by the messages of one sender.

    Attributes:
        weights: Weights of the candidates and decoys, shape (N,).
        names: Whether each candidate is named, shape (N,).
        whole: Whether the candidates explain the whole message.
        words: A sentence on the result.
        changes: 1 for candidates that joined between two times of sums, -1 for those that left, else 0, shape
            (N, times - 1).
    """

    weights: Matrix
    names: Bools
    whole: bool
    words: str
    changes: Ints


def kept_of(records: Records, candidates: int) -> Kept:
    """Merge candidates (the first ones) and decoys with equal features and label."""
    features = np.ascontiguousarray(records.features)
    keys = keys_of(records)
    first: dict[tuple[bytes, int], int] = {}
    of = np.array(
        [first.setdefault((row.tobytes(), key[1]), len(first)) for row, key in zip(features, keys, strict=True)]
    )
    there = np.zeros(len(first), np.int64)
    np.add.at(there, of[:candidates], 1)
    kept = np.unique(of, return_index=True)[1]
    places = {key: int(place) for key, place in zip(keys[:candidates], of[:candidates], strict=True)}
    return Kept(records.take(kept), there, there == 0, places)


def keys_of(records: Records) -> list[tuple[bytes, int]]:
    """Return the key of each record: its image and its label."""
    return [(image.tobytes(), int(label)) for image, label in zip(records.images, records.labels, strict=True)]


def matched(sent: Floats, features: Matrix, kept: Kept) -> Answer:
    """Name the candidates with features that occur unchanged in a message."""
    held = {row.tobytes() for row in np.asarray(sent, np.float32)}
    names = np.array([row.tobytes() in held for row in features.astype(np.float32)]) & ~kept.decoys
    words = f"{int(names.sum())} features are sent as they are"
    return Answer(names.astype(np.float64), names, False, words, np.zeros((len(names), 0), np.int64))


def answer(
    times: Sequence[Sequence[LinearBlock]], features: Matrix, kept: Kept, sizes: Ints | None, coverage: float
) -> Answer | str:
    """Combine the answers at all times and their changes in one; a string says why there is none.

    Args:
        times: Blocks of each set of records behind the sender's messages, in order of time.
        features: Features of candidates and decoys, as they enter the sums, shape (N, d).
        kept: The candidates and decoys.
        sizes: Records per class that the sender is known to have, shape (C,), or None.
        coverage: Share of the candidates that the gallery holds.

    Returns:
        The weights of the last time, and candidates named at any time, or named as having joined or left.
    """
    told = [_told(blocks, features, kept, sizes, coverage) for blocks in times]
    if isinstance(told[-1], str):
        return told[-1]
    steps = [
        _between(before, after, kept) or _changed(difference(*blocks), features, kept)
        for (before, after), blocks in zip(pairwise(told), pairwise(times), strict=True)
    ]
    words = "; ".join(each if isinstance(each, str) else each.words for each in (*told, *steps))
    solved = [each for each in told if isinstance(each, Answer)]
    none = np.zeros((len(features), 1), np.int64)
    return replace(
        told[-1],
        names=np.any([each.names for each in (*solved, *steps) if isinstance(each, Answer)], axis=0),
        whole=len(solved) == len(told) and all(each.whole for each in solved),
        words=words,
        changes=np.concatenate(
            [told[-1].changes, *(none if isinstance(step, str) else step.changes for step in steps)], axis=1
        ),
    )


def _told(
    blocks: Sequence[LinearBlock], features: Matrix, kept: Kept, sizes: Ints | None, coverage: float
) -> Answer | str:
    """Solve the sums of one time by mixture component, or by class where that names no fewer candidates."""
    finest = _solved(blocks, features, kept, sizes, coverage)
    if isinstance(finest, str) or finest.whole or not any(block.cells for block in blocks):
        return finest
    # If a fit stopped early, its last step used other responsibilities than those of its components.
    together = _solved([block.together() for block in blocks], features, kept, sizes, coverage)
    if isinstance(together, str):
        return finest
    return finest if finest.names.sum() > together.names.sum() and not together.whole else together


def _solved(
    blocks: Sequence[LinearBlock], features: Matrix, kept: Kept, sizes: Ints | None, coverage: float
) -> Answer | str:
    """Solve the sums of one time for their members; a string says why there is no answer."""
    count = _count(blocks, sizes)
    lacked = missing = (1 - coverage) * count
    here, none = np.flatnonzero(~kept.decoys), np.zeros((len(features), 0), np.int64)
    system = _system(blocks, features, kept, here, missing)
    if system is None:
        return f"its sums are not of the {features.shape[1]} features that candidates have"
    words, sure = f"{system.size} candidates, {system.equations} equations", np.zeros(len(features), np.bool_)
    exactly = np.zeros(len(features))
    if not system.noised:
        solved = exact_weights(system)
        words += "" if solved.rank is None else f", rank {solved.rank}"
        exactly[here] = solved.weights
        if whole(system, solved, kept.copies[here]):
            return Answer(exactly, _all_of(exactly, kept), True, f"{words}: explained as a whole", none)
        sure[here] = in_part(system, solved, kept.copies[here])
        missing = max(lacked, _lacking(system, solved))
    # Where the number of members outside the gallery is unknown, all numbers are equally likely.
    inside = (count - lacked) / (2 if missing > lacked else 1)
    # Names need decoys in the same system; candidates are ranked without decoys, which are in no message.
    every = np.arange(len(features))
    own = Population(features, kept.records.images, kept.records.labels, sizes)
    known = [known_of(block, blocks, own) for block in blocks] if missing else None
    beside = _posterior(blocks, features, kept, every, sizes, missing, inside, known)
    names, weights = named(beside, kept.decoys), np.zeros(len(features))
    weights[here] = (
        _posterior(blocks, features, kept, here, sizes, missing, inside, known) if kept.decoys.any() else beside
    )
    weights, names = np.where(sure, exactly, weights), np.where(sure, _all_of(exactly, kept), names)
    how = f"explained for {int(sure.sum())} of them" if sure.any() else "not explained as a whole"
    return Answer(weights, names, False, f"{words}: {how}, {int(names.sum())} named", none)


def _all_of(weights: Matrix, kept: Kept) -> Bools:
    """Whether every copy of each candidate is a member by exact weights, shape (N,)."""
    return np.asarray((np.rint(weights) >= np.maximum(kept.copies, 1)) & ~kept.decoys)


def _posterior(
    blocks: Sequence[LinearBlock],
    features: Matrix,
    kept: Kept,
    rows: Ints,
    sizes: Ints | None,
    missing: float,
    inside: float,
    known: Sequence[Known | None] | None,
) -> Matrix:
    """Return posterior weights of some candidates and decoys, shape (n,), in the order of `rows`.

    Args:
        blocks: Blocks of one time.
        features: Features of all candidates and decoys, shape (N, d).
        kept: The candidates and decoys.
        rows: Indices of those that are solved for, shape (n,).
        sizes: Records per class that the sender is known to have, shape (C,), or None.
        missing: Expected number of members that are no candidates.
        inside: Expected number of members among the candidates.
        known: Knowledge of missing records, block by block; None: none is missing.
    """
    labels = kept.records.labels[rows]
    system = _system(blocks, features, kept, rows, missing, known)
    assert system is not None
    if sizes is None:
        share = np.full(len(labels), min(1.0, max(0.0, inside) / len(labels)))
    else:
        there = np.maximum(np.bincount(labels, minlength=len(sizes)), 1)
        share = (sizes * max(0.0, inside / max(1.0, float(sizes.sum()))) / there)[labels]
    return posterior_weights(system, share)


def _between(before: Answer | str, after: Answer | str, kept: Kept) -> Answer | None:
    """Return the candidates that joined or left between two times, if both are explained as a whole; else None."""
    if isinstance(before, str) or isinstance(after, str) or not (before.whole and after.whole):
        return None
    return _whole_change(after.weights - before.weights, kept)


def _changed(blocks: Sequence[LinearBlock], features: Matrix, kept: Kept) -> Answer | str:
    """Solve the difference of two times for the candidates that joined or left."""
    here = np.flatnonzero(~kept.decoys)
    system = _system(blocks, features, kept, here, 0.0)
    if system is None:
        return "no sum was sent at both times"
    missing, weights = 0.0, np.zeros(len(features))
    if not system.noised:
        solved = exact_weights(system, boxes=False)
        if whole(system, solved, kept.copies[here], changes=True):
            weights[here] = solved.weights
            return _whole_change(weights, kept)
        missing = _lacking(system, solved)
    both = _system(blocks, features, kept, np.arange(len(features)), missing)
    assert both is not None
    weights = posterior_changes(both)
    return _of_change(weights, named(weights, kept.decoys), named(-weights, kept.decoys), "not explained")


def _whole_change(weights: Matrix, kept: Kept) -> Answer:
    came, went = (np.rint(sign * weights) >= np.maximum(kept.copies, 1) for sign in (1, -1))
    return _of_change(weights, came & ~kept.decoys, went & ~kept.decoys, "explained")


def _of_change(weights: Matrix, came: Bools, went: Bools, how: str) -> Answer:
    words = f"between two times {int(came.sum())} joined and {int(went.sum())} left by name, the difference {how}"
    changes = came.astype(np.int64) - went.astype(np.int64)
    return Answer(weights, came | went, how == "explained", f"{words} as a whole", changes[:, None])


def _system(
    blocks: Sequence[LinearBlock],
    features: Matrix,
    kept: Kept,
    rows: Ints,
    missing: float,
    known: Sequence[Known | None] | None = None,
) -> System | None:
    """Return the linear system of some candidates and decoys; None where no block is of their vectors."""
    images, labels = kept.records.images[rows], kept.records.labels[rows]
    return system_of(blocks, features[rows], images, labels, missing=missing, known=known)


def _lacking(system: System, solved: Solved) -> float:
    """Estimate the number of members that are no candidates from the residual of the exact solution."""
    return system.left(solved.weights) / max(system.equations - system.size, system.size)


def _count(blocks: Sequence[LinearBlock], sizes: Ints | None) -> float:
    """Return the number of a sender's records, as known or as in its messages; 1 where neither gives it."""
    if sizes is not None:
        return float(sizes.sum())
    return next((max(1.0, float(block.total.sum())) for block in blocks if block.of == "ones"), 1.0)
