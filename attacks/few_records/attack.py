"""Single records from mixture components and classes of two to eight records, with diagonal covariances.

A component of m records sends m numbers' first two moments for each feature, which leave little open
(`components`). The rest is decided by annealing (`search`), from the joint law of a class's features, which the
attacker knows from images of its own (`law`). Components that the attacker makes of its own images in the same
way, with known records, teach it when to trust the vectors found (`trusted`).

Source: this project. That EM at clients of few records makes components of one to three is a property of FedPFT's
mixtures (Beitollahi et al. 2024, section 4.1; tables 3 and 7 use diagonal and spherical covariances).

Assumes images of the attacker's own of the same classes, encoded by the same backbone.

A null result does not mean that components of few records are safe. Spherical covariances are not attacked: one
variance for all features says nothing of the order of any. Full covariances are the work of `gram_factorization`.
Noised components, and those with a weight of no whole number of records, are left alone.

Trust in found vectors as records is learned from components of the attacker's own images. Half of the attacker's
images are the law, the others are dealt into components of the same numbers of records. A vector is right where it
is nearer to its record than `NEARER` times the distance of the component's mean, which was sent: a random order of
the values only moves it away. The threshold on the distance between starts is the largest at which at least
`RIGHT` of the vectors below it are right, and none where that holds nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.attacks.few_records.components import Component, components
from fedassay.attacks.few_records.law import class_law
from fedassay.attacks.few_records.search import Found, search
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.facts import AttackFacts, Given
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Load, Sizes
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.view import View
from fedassay.plan import rates as rate
from fedassay.support.errors import NothingToReadError, above_limit
from fedassay.support.types import Bools, Ints, Matrix, Parameters

NAME = "few_records"

_TOGETHER = 8
"""Components that are annealed side by side."""


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    return float(rate.AUDIT * load.cells * given["sweeps"] / 10)


@register("attack", "few_records")
class FewRecords(Parameters):
    """Recover single records' features from components of few records with diagonal covariances."""

    facts: ClassVar[AttackFacts] = AttackFacts(
        gives=("vectors",),
        needs=("attacker_records",),
        reads=(
            ("mixture_means", "mixture_covariances", "class_counts"),
            ("class_means", "class_covariances", "class_counts"),
        ),
        cost=_seconds,
    )
    most: int = Field(default=8, ge=2, le=8)
    """Largest number of records of a component that is tried."""
    starts: int = Field(default=8, ge=2)
    """Independent starts of the search; how far they agree says how far to trust it."""
    sweeps: int = Field(default=40, ge=1)
    """Sweeps of a start over all features. Components of four records and more gain by 150."""
    max_components: int = Field(default=64, ge=1)
    """Components that are tried at most, those of the fewest records first."""
    own_components: int = Field(default=8, ge=1)
    """Components of the attacker's own images, for each number of records, that tell when to trust the search."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Find the records of every component of few.

        Returns:
            Vectors named `few_records`, m for each component; `apart` for each vector, how far other starts are
            from it; and `trusted`, 1 where the attacker may take it for a record by what it learned of its own
            images.

        Raises:
            NothingToReadError: No component of few records without noise, with a variance for each feature.
            NotRunError: The attacker has too few images of its own, or of another width.
        """
        found, noised = components(view, self.most)
        if not found:
            why = "noise is declared on every one" if noised else "with a variance for each feature"
            raise NothingToReadError(f"the view holds no component of 2 to {self.most} records: {why}")
        own = knowledge.population(len(found[0].sums))
        features, labels = own.features.astype(np.float64), own.labels
        chosen = sorted(found, key=lambda part: part.records)[: self.max_components]
        law = class_law(features, labels, knowledge.classes)
        results: list[tuple[Component, Found]] = []
        with knowledge.progress.step("records of small components") as advance:
            for block in _blocks(chosen):
                advance(len(results), len(chosen))
                rng = knowledge.seeds.numpy("search", str(block[0].records), str(len(results)))
                results += zip(block, search(block, law, rng, starts=self.starts, sweeps=self.sweeps), strict=True)
            limits = thresholds(
                features,
                labels,
                knowledge.classes,
                sorted({part.records for part in chosen}),
                knowledge.seeds.numpy("own"),
                number=self.own_components,
                starts=self.starts,
                sweeps=self.sweeps,
            )
        return _result(results, limits, len(found) - len(chosen))


def _blocks(parts: list[Component]) -> list[list[Component]]:
    """Components of one number of records, a few at a time."""
    blocks: list[list[Component]] = []
    for part in parts:
        if blocks and len(blocks[-1]) < _TOGETHER and blocks[-1][0].records == part.records:
            blocks[-1].append(part)
        else:
            blocks.append([part])
    return blocks


def _result(results: list[tuple[Component, Found]], limits: Mapping[int, float], left: int) -> AttackResult:
    apart = np.concatenate([found.apart for _, found in results])
    sizes = np.repeat([part.records for part, _ in results], [part.records for part, _ in results])
    trusted = apart <= np.array([limits[int(size)] for size in sizes])
    source = VectorSource(
        NAME,
        np.concatenate([found.records for _, found in results]).astype(np.float32),
        np.repeat([part.label for part, _ in results], [part.records for part, _ in results]).astype(np.int64),
        tuple(part.sender for part, _ in results for _ in range(part.records)),
        np.full(len(apart), -1),
    )
    notes = [
        f"{int(trusted.sum())} of {len(apart)} vectors may be trusted, by components of the attacker's own images"
    ]
    limited = None
    if left:
        words = f"{left} further components of few records were not tried; `max_components` is {len(results)}"
        notes.append(words)
        limited = above_limit(words, "max_components", len(results), len(results) + left)
    return AttackResult(
        NAME,
        vectors=(source,),
        scores={"apart": apart, "trusted": trusted.astype(np.float64), "records": sizes.astype(np.float64)},
        notes=tuple(notes),
        limited=limited,
    )


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
