"""Vectorised reruns of the statistic mechanisms on worst neighbours: raw material of observed bounds.

An `Experiment` is a mechanism, its noise, and two neighbouring data sets that attain its exact sensitivity.
`llr_scores` releases each data set many times through the functions of `fedassay.privacy.mechanisms` that methods
call. It scores every release by the log-likelihood ratio of the two Gaussians, the most powerful test by Neyman
and Pearson. The scores are N(-mu^2/2, mu^2) and N(+mu^2/2, mu^2) exactly if, and only if, the mechanism clips,
sums and noises as it should.

Worst pairs live on two axes and two classes. Coordinates that are equal in both neighbours carry independent noise
with likelihood ratio 1; leaving them out changes no score. Experiments therefore default to feature width 2,
independent of the width in use; pass `dim` to run in full (same scores in distribution, which a test checks).

Where the unit is a person or a client, every record of a worst pair is one of `ALIKE` equal records of its unit:
these are the extreme points of means of records.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fedassay.privacy import mechanisms as m
from fedassay.privacy import sensitivities as s
from fedassay.privacy.sensitivities import Neighbours, WorstCase, worst_pair
from fedassay.privacy.symmetric import Family, vech
from fedassay.privacy.tape import FreeNoise
from fedassay.privacy.units import contribution_weights
from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.seeds import Seeds
from fedassay.support.types import Ints, Matrix

Release = Callable[[Matrix, Ints, tuple[float, ...], np.random.Generator, int], tuple[Matrix, ...]]
Flatten = Callable[[Matrix], Matrix]

_BLOCK = 8_000_000  # released numbers held at once
_SAME: Adjacency = "replace_one_same_label"

ALIKE = 3
"""Records of each person, or client, of an experiment."""


@dataclass(frozen=True, eq=False)
class Experiment:
    """A mechanism on the neighbours that are the worst for it.

    Attributes:
        neighbours: the two data sets.
        mu: exact Gaussian-DP parameter of the mechanism, inf where a field that differs has no noise.
        sigmas: noise on each field.
        release: (features, labels, sigmas, rng, reruns) to the fields, each with a leading axis of reruns.
        flatten: for each field, (reruns, ...) to (reruns, k): its coordinates, each with noise sigma.
        of_records: Whether `release` takes records; else gradients or updates, which no record of a client is.
    """

    neighbours: Neighbours
    mu: float
    sigmas: tuple[float, ...]
    release: Release
    flatten: tuple[Flatten, ...]
    of_records: bool = True


def llr_scores(experiment: Experiment, *, reruns: int, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Log-likelihood ratios (data set 1 over 0) of `reruns` releases of each of the two data sets.

    Args:
        experiment: the experiment to rerun.
        reruns: releases a side, at least 1.
        rng: all the noise.

    Returns:
        Scores (reruns,) under data set 0, and under data set 1. Where a field that differs between the two carries
        no noise they are -inf and +inf: the two are distinguished with certainty.
    """
    exact = exact_coordinates(experiment, rng)
    return _scores(experiment, 0, exact, reruns, rng), _scores(experiment, 1, exact, reruns, rng)


def null_scores(experiment: Experiment, *, reruns: int, rng: np.random.Generator) -> Matrix:
    """Those of data set 0 alone, (reruns,); see `llr_scores`."""
    return _scores(experiment, 0, exact_coordinates(experiment, rng), reruns, rng)


def exact_coordinates(experiment: Experiment, rng: np.random.Generator) -> tuple[list[Matrix], list[Matrix]]:
    """The coordinates of either data set without noise: of each field (1, k)."""
    pair, off = experiment.neighbours, (0.0,) * len(experiment.sigmas)
    return (
        _coordinates(experiment, pair.features0, pair.labels0, off, rng, 1),
        _coordinates(experiment, pair.features1, pair.labels1, off, rng, 1),
    )


def _scores(
    experiment: Experiment,
    side: int,
    exact: tuple[list[Matrix], list[Matrix]],
    reruns: int,
    rng: np.random.Generator,
) -> Matrix:
    pair = experiment.neighbours
    own = ((pair.features0, pair.labels0), (pair.features1, pair.labels1))[side]
    block = max(1, _BLOCK // max(sum(field.shape[1] for field in exact[0]), 1))
    scores = np.empty(reruns)
    for start in range(0, reruns, block):
        stop = min(start + block, reruns)
        fields = _coordinates(experiment, *own, experiment.sigmas, rng, stop - start)
        scores[start:stop] = sum(
            _log_ratio(*field) for field in zip(fields, *exact, experiment.sigmas, strict=True)
        )
    return scores


def _coordinates(
    experiment: Experiment,
    features: Matrix,
    labels: Ints,
    sigmas: tuple[float, ...],
    rng: np.random.Generator,
    reruns: int,
) -> list[Matrix]:
    fields = experiment.release(features, labels, sigmas, rng, reruns)
    return [flat(field) for flat, field in zip(experiment.flatten, fields, strict=True)]


def _log_ratio(released: Matrix, exact0: Matrix, exact1: Matrix, sigma: float) -> Matrix:
    """Log-likelihood ratio (reruns,) of one field, N(exact1, sigma^2) over N(exact0, sigma^2)."""
    step = (exact1 - exact0)[0]
    along = (released - (exact0 + exact1) / 2) @ step
    if sigma > 0:
        return np.asarray(along / sigma**2, dtype=np.float64)
    return np.where(along == 0, 0.0, np.copysign(math.inf, along)) if step.any() else np.zeros(len(released))


def mean_second_moment(
    n: int,
    *,
    sigmas: tuple[float, float],
    dim: int = 2,
    family: Family = "full",
    nonnegative: bool = False,
    isometric: bool = True,
) -> Experiment:
    """FedPFT `tight` and `second_moment` (with `isometric` False), one class of n records."""

    def sensitivity(weights: tuple[float, ...]) -> WorstCase:
        return s.mean_second_moment(
            n,
            dim,
            adjacency=_SAME,
            family=family,
            nonnegative=nonnegative,
            weights=(weights[0], weights[1]),
        )

    def release(x: Matrix, _: Ints, scales: tuple[float, ...], rng: np.random.Generator, r: int) -> m.Moments:
        return m.release_mean_second_moment(
            x,
            sigmas=(scales[0], scales[1]),
            noise=FreeNoise(rng, (r,)),
            family=family,
            nonnegative=nonnegative,
            isometric=isometric,
        )

    return _experiment(sensitivity, n, sigmas, release, (flat_rows, _second(family, isometric)))


def mean_covariance(n: int, *, sigma: float, dim: int = 2, family: Family = "full") -> Experiment:
    """FedPFT `paper` (Theorem 4.1), one class of n records."""

    def sensitivity(weights: tuple[float, ...]) -> WorstCase:
        return s.mean_covariance(n, dim, adjacency=_SAME, weights=(weights[0], weights[1]))

    def release(x: Matrix, _: Ints, scales: tuple[float, ...], rng: np.random.Generator, r: int) -> m.Moments:
        return m.release_mean_covariance(x, sigma=scales[0], noise=FreeNoise(rng, (r,)), family=family)

    return _experiment(sensitivity, n, (sigma, sigma), release, (flat_rows, _second(family, False)))


def class_sums(
    *,
    adjacency: Adjacency,
    sigmas: tuple[float, float, float],
    dim: int = 2,
    classes: int = 2,
    family: Family = "full",
    nonnegative: bool = False,
    records: int = 3,
    unit: Unit = "record",
) -> Experiment:
    """FedPFT where counts are private: count, sum and second-moment sum of every class, `records` in all."""
    asked: dict[str, Any] = {"classes": classes, "family": family, "nonnegative": nonnegative}
    return _joint(
        partial(s.class_sums, dim, adjacency=adjacency, **asked),
        partial(m.release_class_sums, **asked),
        records,
        unit,
        sigmas,
        (flat_rows, flat_rows, _second(family, True)),
    )


def shared_sums(
    *,
    adjacency: Adjacency,
    sigmas: tuple[float, float, float],
    dim: int = 2,
    classes: int = 2,
    nonnegative: bool = False,
    records: int = 3,
    unit: Unit = "record",
) -> Experiment:
    """FedCGS: (N, A, B) of one client of `records` records, jointly."""
    asked: dict[str, Any] = {"classes": classes, "nonnegative": nonnegative}
    return _joint(
        partial(s.shared_sums, dim, adjacency=adjacency, **asked),
        partial(m.release_shared_sums, **asked),
        records,
        unit,
        sigmas,
        (flat_rows, flat_rows, _second("full", True)),
    )


def count_sums(
    *,
    adjacency: Adjacency,
    sigmas: tuple[float, float],
    dim: int = 2,
    classes: int = 2,
    nonnegative: bool = False,
    records: int = 3,
    unit: Unit = "record",
) -> Experiment:
    """FedNCM and FedCOF: (N, A) of one client of `records` records, jointly."""
    asked: dict[str, Any] = {"classes": classes, "nonnegative": nonnegative}
    return _joint(
        partial(s.count_sums, dim, adjacency=adjacency, **asked),
        partial(m.release_count_sums, **asked),
        records,
        unit,
        sigmas,
        (flat_rows, flat_rows),
    )


def ridge_sums(
    *,
    adjacency: Adjacency,
    sigmas: tuple[float, float],
    dim: int = 2,
    classes: int = 2,
    constant: bool = False,
    nonnegative: bool = False,
    records: int = 3,
    unit: Unit = "record",
) -> Experiment:
    """Ridge regression: (A, B) of one client of `records` records, jointly."""
    asked: dict[str, Any] = {"classes": classes, "constant": constant, "nonnegative": nonnegative}
    return _joint(
        partial(s.ridge_sums, dim, adjacency=adjacency, **asked),
        partial(m.release_ridge_sums, **asked),
        records,
        unit,
        sigmas,
        (flat_rows, _second("full", True)),
    )


def beside_constant(experiment: Experiment) -> Experiment:
    """The experiment on records with a last feature that is 1, which the statistic leaves out."""
    pair = experiment.neighbours

    def longer(features: Matrix) -> Matrix:
        return np.concatenate([features, np.ones((len(features), 1))], axis=1)

    def release(
        x: Matrix, y: Ints, scales: tuple[float, ...], rng: np.random.Generator, r: int
    ) -> tuple[Matrix, ...]:
        return experiment.release(x[:, :-1], y, scales, rng, r)

    neighbours = Neighbours(longer(pair.features0), pair.labels0, longer(pair.features1), pair.labels1)
    return replace(experiment, neighbours=neighbours, release=release)


def magnitude_sum(
    clip: float,
    *,
    adjacency: Adjacency,
    sigma: float,
    dim: int = 2,
    records: int = 3,
    unit: Unit = "record",
) -> Experiment:
    """FedDiff's sum of Fourier magnitudes, clipped to L2 norm `clip`."""
    worst = s.magnitude_sum(dim, clip, adjacency=adjacency)

    def release(x: Matrix, y: Ints, scales: tuple[float, ...], rng: np.random.Generator, r: int) -> tuple[Matrix]:
        noise, weights = FreeNoise(rng, (r,)), weights_alike(len(y), unit)
        return (m.release_magnitude_sum((x,), clip=clip, sigma=scales[0], noise=noise, weights=weights),)

    return of_unit(_experiment(_scaled(worst), records, (sigma,), release, (flat_rows,)), unit)


def vector_sum(clip: float, *, adjacency: Adjacency, sigma: float, dim: int = 2, records: int = 3) -> Experiment:
    """A sum of gradients, clipped to L2 norm `clip`."""
    worst = s.vector_sum(dim, clip, adjacency=adjacency)

    def release(x: Matrix, _: Ints, scales: tuple[float, ...], rng: np.random.Generator, r: int) -> tuple[Matrix]:
        return (m.release_vector_sum(x, clip=clip, sigma=scales[0], noise=FreeNoise(rng, (r,))),)

    found = _experiment(_scaled(worst), records, (sigma,), release, (flat_rows,))
    return replace(found, of_records=False)


def class_counts(
    *, adjacency: Adjacency, sigma: float, classes: int = 2, records: int = 3, unit: Unit = "record"
) -> Experiment:
    """A label histogram."""
    worst = s.class_counts(adjacency=adjacency, classes=classes)

    def release(_: Matrix, y: Ints, scales: tuple[float, ...], rng: np.random.Generator, r: int) -> tuple[Matrix]:
        noise, weights = FreeNoise(rng, (r,)), weights_alike(len(y), unit)
        return (m.release_class_counts(y, classes, sigma=scales[0], noise=noise, weights=weights),)

    return of_unit(_experiment(_scaled(worst), records, (sigma,), release, (flat_rows,)), unit)


def _experiment(
    sensitivity: Callable[[tuple[float, ...]], WorstCase],
    n: int,
    sigmas: tuple[float, ...],
    release: Release,
    flatten: tuple[Flatten, ...],
) -> Experiment:
    """Pick the pair that is worst for these noise scales; `sensitivity` takes one weight a field."""
    bare = sensitivity(tuple(1.0 if sigma == 0 else 0.0 for sigma in sigmas))
    if bare.sensitivity > 0:  # a field that can differ leaves without noise
        return Experiment(worst_pair(bare, n), math.inf, sigmas, release, flatten)
    worst = sensitivity(tuple(1 / sigma if sigma > 0 else 0.0 for sigma in sigmas))
    return Experiment(worst_pair(worst, n), worst.sensitivity, sigmas, release, flatten)


def _joint(
    worst: Callable[..., WorstCase],
    mechanism: Callable[..., tuple[Matrix, ...]],
    n: int,
    unit: Unit,
    sigmas: tuple[float, ...],
    flatten: tuple[Flatten, ...],
) -> Experiment:
    """A joint release: its sensitivity takes `weights`, and the mechanism features, labels and `sigmas`."""

    def release(
        x: Matrix, y: Ints, scales: tuple[float, ...], rng: np.random.Generator, r: int
    ) -> tuple[Matrix, ...]:
        return mechanism(x, y, sigmas=scales, noise=FreeNoise(rng, (r,)), weights=weights_alike(len(y), unit))

    found = _experiment(lambda weights: worst(weights=weights), n, sigmas, release, flatten)
    return of_unit(found, unit)


def of_unit(experiment: Experiment, unit: Unit) -> Experiment:
    """Return the experiment with one unit of `ALIKE` records as the difference; its release must weigh them."""
    if unit == "record":
        return experiment
    pair = experiment.neighbours
    several = Neighbours(
        np.repeat(pair.features0, ALIKE, axis=0),
        np.repeat(pair.labels0, ALIKE),
        np.repeat(pair.features1, ALIKE, axis=0),
        np.repeat(pair.labels1, ALIKE),
    )
    return replace(experiment, neighbours=several)


def weights_alike(records: int, unit: Unit) -> Matrix | None:
    """Return the weights that a method's clients give to records in consecutive groups of `ALIKE` of one unit."""
    if unit == "record":
        return None
    return contribution_weights(np.arange(records) // ALIKE, None, Seeds(0))


def _scaled(worst: WorstCase) -> Callable[[tuple[float, ...]], WorstCase]:
    return lambda weights: replace(worst, sensitivity=weights[0] * worst.sensitivity)


def flat_rows(field: Matrix) -> Matrix:
    """Flatten a field with independent noise on its entries: (reruns, ...) to (reruns, k)."""
    return field.reshape(len(field), -1)


def _second(family: Family, isometric: bool) -> Flatten:
    """Return the independent coordinates of a noised second moment, each with noise of one scale."""
    if family != "full":
        return flat_rows
    if isometric:
        return lambda field: flat_rows(vech(field))

    def upper(field: Matrix) -> Matrix:
        row, column = np.triu_indices(field.shape[-1])
        return flat_rows(field[..., row, column])

    return upper
