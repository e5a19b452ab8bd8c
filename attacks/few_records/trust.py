"""Trust in found vectors as records: learned from components of the attacker's own images.

Half of the attacker's images are the law, the others are dealt into components of the same numbers of records. A
vector is right where it is nearer to its record than `NEARER` times the distance of the component's mean, which
was sent: a random order of the values only moves it away. The threshold on the distance between starts is the
largest at which at least `RIGHT` of the vectors below it are right, and none where that holds nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedassay.attacks.few_records.components import Component
from fedassay.attacks.few_records.law import class_law
from fedassay.attacks.few_records.search import search
from fedassay.support.types import Bools, Ints, Matrix

NEARER = 0.75
"""Largest distance of a right vector from its record, as a share of the mean's distance."""

RIGHT = 0.9
"""Share of the vectors below the threshold that are right, among the attacker's own."""


def thresholds(
    features: Matrix,
    labels: Ints,
    classes: int,
    sizes: Sequence[int],
    rng: np.random.Generator,
    *,
    number: int,
    starts: int,
    sweeps: int,
) -> dict[int, float]:
    """For each number of records, how far apart starts may be; -1 where no vector can be trusted.

    Args:
        features: The attacker's own, shape (n, d).
        labels: Shape (n,).
        classes: Number of classes C.
        sizes: Numbers of records of components.
        rng: Deals images and draws starts.
        number: Components of each number of records.
        starts: Of the search.
        sweeps: Of the search.
    """
    order = rng.permutation(len(features))
    law_half, other = order[: len(order) // 2], order[len(order) // 2 :]
    law = class_law(features[law_half], labels[law_half], classes)
    limits = {}
    for size in sizes:
        parts, held = _dealt(features, labels, other, size, number, rng)
        if not parts:
            limits[size] = -1.0
            continue
        apart, right = [], []
        found_each = search(parts, law, rng, starts=starts, sweeps=sweeps)
        for rows, found in zip(held, found_each, strict=True):
            right.append(_nearer(found.records, features[rows]))
            apart.append(found.apart)
        limits[size] = _largest(np.concatenate(apart), np.concatenate(right))
    return limits


def _nearer(found: Matrix, truth: Matrix) -> Bools:
    """Whether each found record is nearer to the one that it is matched to than the mean of all is."""
    from scipy.optimize import linear_sum_assignment

    gaps = np.linalg.norm(found[:, None] - truth, axis=2)
    rows, columns = linear_sum_assignment(gaps)
    plain = np.linalg.norm(truth - truth.mean(axis=0), axis=1)
    return np.asarray(gaps[rows, columns] < NEARER * plain[columns])


def _dealt(
    features: Matrix, labels: Ints, rows: Ints, size: int, number: int, rng: np.random.Generator
) -> tuple[list[Component], list[Ints]]:
    """Components of the attacker's own images, from classes that have more images than a component takes."""
    seen, counts = np.unique(labels[rows], return_counts=True)
    usable = seen[counts > size]
    parts, held = [], []
    for label in rng.choice(usable, number) if len(usable) else ():
        own = rng.choice(rows[labels[rows] == label], size, replace=False)
        values = features[own]
        parts.append(Component("own", int(label), size, values.sum(axis=0), (values**2).sum(axis=0)))
        held.append(own)
    return parts, held


def _largest(apart: Matrix, right: Bools) -> float:
    order = np.argsort(apart, kind="stable")
    share = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    # The whole group of equal distances is below a threshold, or none of it.
    last = np.append(apart[order][1:] > apart[order][:-1], True)
    good = np.flatnonzero(last & (share >= RIGHT))
    return float(apart[order][good[-1]]) if len(good) else -1.0
