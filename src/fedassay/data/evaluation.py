"""Records that accuracy is measured on: the test role's, or the clients' own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedassay.data.images import ImageSet
from fedassay.data.sampling import by_class
from fedassay.support.errors import PlanError

Evaluate = Literal["test", "own", "held_out"]
"""Records that accuracy is measured on.

`test`: the test role. `own`: all records of the clients, which is training accuracy. `held_out`: a share of every
client's own records, which no method sees.
"""


def held_out(
    private: ImageSet, parts: Sequence[NDArray[np.int64]], share: float, rng: np.random.Generator
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Take a share of each client's records aside, class by class, groups whole.

    Args:
        private: The clients' records.
        parts: Positions of each client's records.
        share: Of each client's records, in (0, 1).
        rng: Source of randomness.

    Returns:
        Positions that each client keeps, and those that are held out of it; ascending.

    Raises:
        PlanError: Nothing is held out of any client, or nothing is left to one that has records.
    """
    kept, aside = [], []
    for number, part in enumerate(parts):
        mine = _drawn(private, part, share, rng)
        kept.append(part[~mine])
        aside.append(part[mine])
        if len(part) and mine.all():
            raise PlanError(
                f"clients.held_out: {share:g} of the {len(part)} records of client {number} leaves none; "
                "allowed: a smaller share, or more records a client"
            )
    if not any(len(part) for part in aside):
        raise PlanError(
            f"clients.held_out: {share:g} of the clients' records is no record; allowed: a larger share"
        )
    return kept, aside


def against_chance(hits: NDArray[np.bool_], labels: NDArray[np.int64]) -> dict[str, float]:
    """Compare an accuracy with chance: the largest class's share, and the mean of the classes' own accuracies.

    Args:
        hits: Whether each record was classified rightly, shape (n,).
        labels: Their true classes, shape (n,).

    Returns:
        `majority_share`, the accuracy of always naming the largest class; `balanced_accuracy`, the mean over the
        classes that occur; and of two classes `sensitivity`, the accuracy on the class of the higher number, and
        `specificity`, that on the other.
    """
    classes, counts = np.unique(labels, return_counts=True)
    of_class = [float(hits[labels == label].mean()) for label in classes]
    found = {
        "majority_share": float(counts.max(initial=0) / max(len(labels), 1)),
        "balanced_accuracy": float(np.mean(of_class)) if of_class else 0.0,
    }
    if len(of_class) == 2:
        found |= {"specificity": of_class[0], "sensitivity": of_class[1]}
    return found


def _drawn(
    private: ImageSet, part: NDArray[np.int64], share: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Draw the records of a client that are held out."""
    mine = np.zeros(len(part), dtype=np.bool_)
    if not len(part):
        return mine
    if private.groups is None:
        order = np.concatenate(by_class(private.labels[part], rng))
        # Spread over the classes: every 1/share-th record of the list that goes through them in order.
        mine[order[np.diff(np.floor(share * np.arange(len(order) + 1) + 1e-9)) > 0]] = True
        return mine
    groups, group = np.unique(private.groups[part], return_inverse=True)
    chosen = rng.permutation(len(groups))[: round(share * len(groups))]
    mine[np.isin(group, chosen)] = True
    return mine
