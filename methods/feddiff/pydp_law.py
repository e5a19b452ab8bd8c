"""Repeated releases of the `pydp` mean magnitude: the law of PyDP's BoundedMean, drawn here.

PyDP makes one release in about a hundredth of a second, and an observed bound needs a hundred thousand of them.
Its algorithm is short (Google's differential privacy library, `bounded-mean.h`, with bounds given): of n values
in [low, high] with the middle c,

    mean = c + (sum of (value - c) + Laplace((high - low) / epsilon)) / max(1, round(n + Laplace(2 / epsilon))),

clamped to [low, high]. Half of epsilon is for the sum, which has sensitivity (high - low) / 2, and half for the
number of records. A test compares this law with PyDP's own releases.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.release import PrivacyTarget
from fedassay.privacy.gaussian import mu_of
from fedassay.privacy.reruns import Experiment
from fedassay.privacy.sensitivities import Neighbours

COORDINATES = 1024
"""Coordinates that are released again, at most: each carries noise of its own, so fewer show less."""


def drawn_means(
    values: NDArray[np.float64],
    epsilon: float,
    bounds: tuple[float, float],
    rng: np.random.Generator,
    size: tuple[int, ...] = (),
) -> NDArray[np.float64]:
    """Means of every column of (n, D) values, n >= 1, each as PyDP would release it: (*size, D).

    Args:
        values: Within the bounds.
        epsilon: Epsilon of one column.
        bounds: Low and high.
        rng: All the noise.
        size: Leading axes: independent releases.
    """
    low, high = bounds
    middle, shape = (low + high) / 2, (*size, values.shape[1])
    sums = (values - middle).sum(axis=0) + rng.laplace(0.0, (high - low) / epsilon, shape)
    counts = np.maximum(1.0, np.rint(len(values) + rng.laplace(0.0, 2 / epsilon, shape)))
    return np.asarray(np.clip(middle + sums / counts, low, high), dtype=np.float64)


def can_be_observed(target: PrivacyTarget, coordinates: int) -> bool:
    """Whether bounds from `pydp_experiment` mean anything under a claim.

    They are of a share of coordinates that must be nearly normal, also in the positive control, which has a tenth
    of the noise that the claim needs: an epsilon of each of at most 2 there, so that both shares are well inside
    (0, 1).
    """
    needed = 10 * mu_of(target.epsilon, target.delta)
    return target.adjacency == "add_remove" and needed <= math.sqrt(min(coordinates, COORDINATES))


def pydp_experiment(epsilon: float, coordinates: int, bounds: tuple[float, float]) -> Experiment:
    """The release of a client without records and with one black image, neighbours under add_remove.

    A release is scored only by the share of its coordinates above the middle. A mean is above the middle whenever
    its noised sum is above 0, for every noised count and after the clamp. At a small epsilon the sign of a Laplace
    release carries nearly all of its information. The arcsine of the share's root has a spread that hardly depends
    on the share (Anscombe, "The Transformation of Poisson, Binomial and Negative-Binomial Data", 1948): the same
    for both data sets.

    A black image's magnitudes are all 0, as far from the middle as a value can be, so it moves every coordinate's
    sum by its whole sensitivity. (A client without records is one record in the middle; see
    `fedassay.methods.feddiff.magnitudes.pydp_means`.)

    Args:
        epsilon: Epsilon of one coordinate.
        coordinates: H W C; at most `COORDINATES` of them are released again.
        bounds: Lower and upper bound on the magnitudes.

    Returns:
        Its `mu` is that of the signs for many coordinates (the central limit) and a small epsilon: an approximate
        size, not a bound.
    """
    low, high = bounds
    middle, width = (low + high) / 2, min(coordinates, COORDINATES)
    # Exact means of the two data sets stay as far apart as without the arcsine: noise scales keep their meaning.
    scale = (middle - low) * math.sqrt(width) / (math.pi / 4)

    def stabilised(released: NDArray[np.float64]) -> NDArray[np.float64]:
        share = (1 + np.sign(released - middle).mean(axis=1, keepdims=True)) / 2
        return np.asarray(scale * np.arcsin(np.sqrt(share)), dtype=np.float64)

    def release(
        x: NDArray[np.float64],
        _: NDArray[np.int64],
        sigmas: tuple[float, ...],
        rng: np.random.Generator,
        reruns: int,
    ) -> tuple[NDArray[np.float64], ...]:
        if not sigmas[0]:
            return (np.broadcast_to(x.mean(axis=0), (reruns, width)).copy(),)
        return (drawn_means(x, (high - low) / sigmas[0], bounds, rng, (reruns,)),)

    none, black = np.full((1, width), middle), np.full((1, width), low)
    labels = np.zeros(1, dtype=np.int64)
    return Experiment(
        neighbours=Neighbours(none, labels, black, labels),
        mu=float(np.sqrt(width)) * epsilon / 2,
        sigmas=((high - low) / epsilon,),
        release=release,
        flatten=(stabilised,),
    )
