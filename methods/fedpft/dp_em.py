"""Differentially private expectation-maximisation for one group of records.

Source: Park, Foulds, Choudhary and Welling 2017, "DP-EM: Differentially Private Expectation
Maximization": every M-step sees the data through noised moments only. Here one joint Gaussian
mechanism a step, on (sum r, sum r x, sum r x x^T) of the clipped records over all components, r the
responsibilities; the steps compose as Gaussian mechanisms do, and the E-step of the next step is a
function of the releases.

The first step releases the moments of a single component, and the components start around its mean,
spread over part of its covariance: initialisation on the records themselves would have to be paid for too.

A person or a client with records S adds the mean of its records' contributions: weights of 1 / |S|
(`record_weights`). Given the releases before, responsibilities are a fixed function of a record. Its contribution
to a step, over all classes and components, is therefore one vector. A unit's mean is in the convex hull of such
vectors, and the sensitivity of a step is that of a record (`fedassay.privacy.units`). Steps compose as they do for
records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from fedassay.mixtures.bounded import bounded_moments
from fedassay.mixtures.densities import Stack, expand, joint_log_density
from fedassay.mixtures.packed import Family, pack_lower
from fedassay.privacy.mechanisms import Moments, Sums, noised_sums
from fedassay.privacy.postprocess import covariance_from_moments
from fedassay.privacy.sensitivities import class_sums, responsibility_sums
from fedassay.privacy.tape import NoiseMechanism
from fedassay.support.adjacency import Adjacency
from fedassay.support.types import Floats, Matrix

_NARROW = 0.1
"""Variance of the first assignment of `full`, relative to the mean variance within components."""


@dataclass(frozen=True)
class PrivateMixture:
    """A mixture fitted under differential privacy.

    Attributes:
        count: Noised number of records (exact where `count_noised` was false).
        weights: Shape (K,), summing to one.
        means: Shape (K, d).
        covariances: Packed by family, as in `fedassay.mixtures.packed.Mixtures`.
    """

    count: float
    weights: Matrix
    means: Matrix
    covariances: Matrix


@dataclass(frozen=True)
class Fit:
    """Settings of a private fit.

    Attributes:
        components: K.
        family: The covariance family.
        steps: Releases, at least 1; the first has one component.
        floor: Smallest eigenvalue of a covariance, positive.
        count_noised: Whether the first step's count carries noise; later responsibilities always do.
    """

    components: int
    family: Family
    steps: int
    floor: float
    count_noised: bool = True


def dp_em_sensitivity(
    width: int,
    components: int,
    steps: int,
    *,
    adjacency: Adjacency,
    classes: int,
    family: Family,
    nonnegative: bool = False,
    count_noised: bool = True,
) -> float:
    """L2 sensitivity of all steps together, for one noise scale: the root of the sum of squares.

    The first step moves as class sums do, each later one as responsibility sums
    (`fedassay.privacy.sensitivities`); `count_noised` false leaves the first step's count out.
    """
    first = class_sums(
        width,
        adjacency=adjacency,
        classes=classes,
        family=family,
        nonnegative=nonnegative,
        weights=(float(count_noised), 1.0, 1.0),
    ).sensitivity
    # A record that may change its class leaves one class's components for another's, even where each has one.
    reach = max(components, classes) if adjacency == "replace_one" else components
    later = responsibility_sums(
        width, adjacency=adjacency, components=reach, family=family, nonnegative=nonnegative
    ).sensitivity
    return math.hypot(first, math.sqrt(steps - 1) * later)


def dp_em(
    features: Floats,
    fit: Fit,
    *,
    sigma: float,
    noise: NoiseMechanism,
    start: np.random.Generator,
    record_weights: Matrix | None = None,
) -> PrivateMixture:
    """Fit a mixture to clipped records through noised releases.

    Args:
        features: Shape (n, d), n >= 0, of norm at most 1 (`fedassay.privacy.mechanisms.clip_features`).
        fit: The settings.
        sigma: Noise standard deviation of every release, per isometric coordinate.
        noise: The noise mechanism of this class's release; every step draws under its own key.
        start: Draws the initial components: public randomness, never the noise's.
        record_weights: Shape (n,), of each record in every sum; None: 1 each.

    Raises:
        ValueError: Steps or components are under 1.
    """
    components, family, steps = fit.components, fit.family, fit.steps
    if steps < 1 or components < 1:
        raise ValueError(f"dp_em: steps and components must be at least 1, given {steps} and {components}")
    rows = np.asarray(features, dtype=np.float64)
    first = (sigma if fit.count_noised else 0.0, sigma, sigma)
    share = np.ones(len(rows)) if record_weights is None else record_weights
    whole = _release(rows, share[None], family, first, noise.at(step=0))
    _, means, covariances = _parameters(whole, family, fit.floor, sigma)
    weights = np.full(components, 1.0 / components)
    # Part of the spread goes between the components, the rest stays within: together they are the released spread.
    between = (1 - 1 / components) / 2
    means = _draws(means[0], between * covariances[0], components, family, start)
    covariances = np.repeat((1 - between) * covariances, components, axis=0)
    for step in range(steps - 1):
        # The first assignment is close to nearest means, as in k-means. Under one common full covariance every
        # direction looks the same, and components that differ along an empty one stay so for long.
        shape = _spherical(covariances) if step == 0 and family == "full" else covariances
        responsibilities = share * _responsibilities(rows, weights, means, shape, family)
        released = _release(rows, responsibilities, family, (sigma, sigma, sigma), noise.at(step=step + 1))
        weights, means, covariances = _parameters(released, family, fit.floor, sigma)
    packed = pack_lower(covariances) if family == "full" else covariances
    return PrivateMixture(float(whole.counts[0]), weights, means, packed)


def _release(
    rows: Matrix,
    responsibilities: Matrix,
    family: Family,
    sigmas: tuple[float, float, float],
    noise: NoiseMechanism,
) -> Sums:
    if family == "diag":
        second = responsibilities @ rows**2
    elif family == "spherical":
        second = responsibilities @ np.sum(rows**2, axis=1)
    else:
        second = np.stack([(rows * share[:, None]).T @ rows for share in responsibilities])
    exact = Sums(responsibilities.sum(axis=1), responsibilities @ rows, second)
    return noised_sums(exact, sigmas, noise, full=family == "full")


def _parameters(released: Sums, family: Family, floor: float, sigma: float) -> tuple[Matrix, Matrix, Matrix]:
    """Weights, means and covariances from noised sums (post-processing).

    A component holds at least one noise scale of records (and one record): dividing by less would make its
    moments arbitrary.
    """
    counts = np.maximum(released.counts, max(1.0, sigma))
    extra = released.second.ndim - 1
    mean, second = bounded_moments(
        released.sums / counts[:, None], released.second / counts.reshape(-1, *(1,) * extra), family
    )
    covariances = covariance_from_moments(Moments(mean, second), family, floor=floor)
    return counts / counts.sum(), mean, covariances


def _spherical(covariances: Matrix) -> Matrix:
    width = covariances.shape[-1]
    variances = _NARROW * np.trace(covariances, axis1=1, axis2=2) / width
    return np.asarray(variances[:, None, None] * np.eye(width), dtype=np.float64)


def _draws(
    mean: Matrix,
    covariance: Matrix,
    components: int,
    family: Family,
    rng: np.random.Generator,
) -> Matrix:
    noise = rng.standard_normal((components, mean.size))
    if family == "full":
        values, vectors = np.linalg.eigh(covariance)
        noise = (noise * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        return np.asarray(mean + noise, dtype=np.float64)
    return np.asarray(mean + noise * np.sqrt(covariance), dtype=np.float64)


def _responsibilities(
    rows: Matrix,
    weights: Matrix,
    means: Matrix,
    covariances: Matrix,
    family: Family,
) -> Matrix:
    """E-step, shape (K, n)."""
    stack = Stack(*(torch.from_numpy(array)[None] for array in (weights, means, covariances)))
    joint = joint_log_density(expand(torch.from_numpy(rows)[None], family), stack, family)
    return np.asarray(torch.softmax(joint[0], 0).numpy(), dtype=np.float64)
