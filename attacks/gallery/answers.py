"""What the sums of one sender say of a gallery: who is in them, and who joined or left between two times.

Sums without noise are solved exactly, and certify themselves; others, and those that the gallery does not explain,
have the posterior's weights, and names that decoys calibrate (`certificate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedassay.attacks.gallery.certificate import in_part, named, whole
from fedassay.attacks.gallery.changes import difference
from fedassay.attacks.gallery.population import Known, Population, known_of
from fedassay.attacks.gallery.solving import Solved, exact_weights, posterior_changes, posterior_weights
from fedassay.attacks.gallery.system import System, system_of
from fedassay.data.records import Records
from fedassay.exchange.blocks import LinearBlock
from fedassay.support.types import Bools, Floats, Ints

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Kept:
    """Candidates and decoys, equal ones merged.

    Attributes:
        records: One of each kind, shape (N,).
        copies: How many candidates each stands for, shape (N,).
        decoys: Which are known to be in no message, shape (N,).
        keys: Names each by image and label.
    """

    records: Records
    copies: Ints
    decoys: Bools
    keys: dict[tuple[bytes, int], int]


@dataclass(frozen=True, eq=False)
class Answer:
    """What one sender's messages say of the gallery.

    Attributes:
        weights: Shape (N,).
        names: Who is named, shape (N,).
        whole: Whether the whole message is explained.
        words: How, as one sentence.
        changes: Who joined (1) or left (-1) between the times that sums were sent at, shape (N, times - 1).
    """

    weights: Matrix
    names: Bools
    whole: bool
    words: str
    changes: Ints


def kept_of(records: Records, candidates: int) -> Kept:
    """Candidates (the first ones) and decoys, those of equal features and label as one."""
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
    """What names each record: its image and its label."""
    return [(image.tobytes(), int(label)) for image, label in zip(records.images, records.labels, strict=True)]


def matched(sent: Floats, features: Matrix, kept: Kept) -> Answer:
    """Features that were sent as they are name their records."""
    held = {row.tobytes() for row in np.asarray(sent, np.float32)}
    names = np.array([row.tobytes() in held for row in features.astype(np.float32)]) & ~kept.decoys
    words = f"{int(names.sum())} features are sent as they are"
    return Answer(names.astype(np.float64), names, False, words, np.zeros((len(names), 0), np.int64))


def answer(
    times: Sequence[Sequence[LinearBlock]], features: Matrix, kept: Kept, sizes: Ints | None, coverage: float
) -> Answer | str:
    """One answer of all times and of what changed between them; in words why there is none.

    Args:
        times: Blocks of every set of records that the sender's messages are of, in order of time.
        features: As the sums are of them, shape (N, d).
        kept: The candidates and decoys.
        sizes: Records per class that the sender is known to have, shape (C,), or None.
        coverage: Share of the candidates that the gallery holds.

    Returns:
        The weights of the last time; whoever is named at any, or named to have joined or left.
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
    """Who is in the sums of one time: of components by themselves, or of classes where these name no fewer."""
    finest = _solved(blocks, features, kept, sizes, coverage)
    if isinstance(finest, str) or finest.whole or not any(block.cells for block in blocks):
        return finest
    # The last step of a fit that stopped early was of other responsibilities than those that its components give.
    together = _solved([block.together() for block in blocks], features, kept, sizes, coverage)
    if isinstance(together, str):
        return finest
    return finest if finest.names.sum() > together.names.sum() and not together.whole else together


def _solved(
    blocks: Sequence[LinearBlock], features: Matrix, kept: Kept, sizes: Ints | None, coverage: float
) -> Answer | str:
    """Who is in the sums of one time."""
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
    # Where it is not known how many members the gallery lacks, any number of them is as likely.
    inside = (count - lacked) / (2 if missing > lacked else 1)
    # Names are given where decoys are solved for alike; candidates are ranked without them, who are in nothing.
    every = np.arange(len(features))
    own = Population(features, kept.records.images, kept.records.labels, sizes)
    known = [known_of(block, blocks, own) for block in blocks] if missing else None
    names = named(_posterior(blocks, features, kept, every, sizes, missing, inside, known), kept.decoys)
    weights = np.zeros(len(features))
    weights[here] = _posterior(blocks, features, kept, here, sizes, missing, inside, known)
    weights, names = np.where(sure, exactly, weights), np.where(sure, _all_of(exactly, kept), names)
    how = f"explained for {int(sure.sum())} of them" if sure.any() else "not explained as a whole"
    return Answer(weights, names, False, f"{words}: {how}, {int(names.sum())} named", none)


def _all_of(weights: Matrix, kept: Kept) -> Bools:
    """Candidates of which every copy is a member by exact weights, shape (N,)."""
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
    """Weights of some of the candidates and decoys, solved for alike, in the order of their rows.

    Args:
        blocks: Of one time.
        features: Of all candidates and decoys, shape (N, d).
        kept: These.
        rows: Those that are solved for, shape (n,).
        sizes: Records per class that the sender is known to have, shape (C,), or None.
        missing: Records that no candidate stands for.
        inside: Members that are expected among the candidates.
        known: What is known of missing records, block by block; None: none is missing.
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
    """Who joined, and who left, between two times that are both explained as a whole."""
    if isinstance(before, str) or isinstance(after, str) or not (before.whole and after.whole):
        return None
    return _whole_change(after.weights - before.weights, kept)


def _changed(blocks: Sequence[LinearBlock], features: Matrix, kept: Kept) -> Answer | str:
    """Who joined, and who left, between two times."""
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
    """The system of some of the candidates and decoys."""
    images, labels = kept.records.images[rows], kept.records.labels[rows]
    return system_of(blocks, features[rows], images, labels, missing=missing, known=known)


def _lacking(system: System, solved: Solved) -> float:
    """Records that no candidate stands for, by what the exact solution leaves."""
    return system.left(solved.weights) / max(system.equations - system.size, system.size)


def _count(blocks: Sequence[LinearBlock], sizes: Ints | None) -> float:
    """Records of a sender: as they are known, or as its messages say; 1 where nothing does."""
    if sizes is not None:
        return float(sizes.sum())
    return next((max(1.0, float(block.total.sum())) for block in blocks if block.of == "ones"), 1.0)
