"""Sampling from mixtures and their density."""

from __future__ import annotations

import math

import numpy as np

from fedassay.mixtures.packed import Mixtures, unpack_lower
from fedassay.support.types import Floats, Ints, Matrix


def sample_mixtures(mixtures: Mixtures, counts: Ints, generator: np.random.Generator) -> tuple[Matrix, Ints]:
    """Draw records from every mixture (FedPFT's server: as many as there were records).

    Args:
        mixtures: P mixtures over d features.
        counts: Records to draw from each, shape (P,), at least 0.
        generator: Source of randomness; the draws of a mixture depend on the mixtures before it.

    Returns:
        The records, shape (sum of counts, d), mixture after mixture, and the mixture of each.

    Raises:
        ValueError: A count is negative, or a `full` covariance is not positive definite.
    """
    if counts.shape != (mixtures.groups,) or counts.min(initial=0) < 0:
        raise ValueError(f"sample_mixtures: counts must be {mixtures.groups} numbers >= 0, given {counts}")
    chosen = np.concatenate(
        [
            np.repeat(np.arange(span.start, span.stop), generator.multinomial(count, mixtures.weights[span]))
            for span, count in zip(mixtures.spans(), counts, strict=True)
        ]
        or [np.empty(0, dtype=np.int64)]
    )
    noise = generator.standard_normal((chosen.size, mixtures.width))
    means = mixtures.means[chosen]
    if mixtures.family == "full":
        _colour(noise, chosen, mixtures)
    elif mixtures.family == "diag":
        noise *= np.sqrt(mixtures.covariances)[chosen]
    else:
        noise *= np.sqrt(mixtures.covariances)[chosen, None]
    return means + noise, mixtures.group_of_component[chosen]


def _colour(noise: Matrix, chosen: Ints, mixtures: Mixtures) -> None:
    """Give white noise each component's covariance, in place (`chosen` ascends)."""
    starts = np.searchsorted(chosen, np.arange(mixtures.weights.size + 1))
    for component in np.unique(chosen):
        try:
            factor = np.linalg.cholesky(unpack_lower(mixtures.covariances[component]))
        except np.linalg.LinAlgError:
            raise ValueError(
                f"sample_mixtures: the covariance of component {component} is not positive definite"
            ) from None
        rows = slice(int(starts[component]), int(starts[component + 1]))
        noise[rows] = noise[rows] @ factor.T


def log_density(mixtures: Mixtures, group: int, records: Floats) -> Matrix:
    """Log density of records under one mixture, in nats.

    Args:
        mixtures: The mixtures.
        group: Index of the group.
        records: Shape (n, d).

    Returns:
        Shape (n,).

    Raises:
        ValueError: A `full` covariance is not positive definite.
    """
    span = list(mixtures.spans())[group]
    width = mixtures.width
    joint = np.empty((span.stop - span.start, len(records)))
    for row, component in enumerate(range(span.start, span.stop)):
        centred = np.asarray(records, dtype=np.float64) - mixtures.means[component]
        quadratic, log_det = _quadratic(mixtures, component, centred)
        weight = mixtures.weights[component]
        log_weight = math.log(weight) if weight > 0 else -math.inf
        joint[row] = log_weight - 0.5 * (quadratic + log_det + width * math.log(2 * math.pi))
    return np.asarray(np.logaddexp.reduce(joint, axis=0), dtype=np.float64)


def _quadratic(mixtures: Mixtures, component: int, centred: Matrix) -> tuple[Matrix, float]:
    covariance = mixtures.covariances[component]
    if mixtures.family == "diag":
        return (centred**2 / covariance).sum(axis=1), float(np.log(covariance).sum())
    if mixtures.family == "spherical":
        variance = float(covariance)
        return (centred**2).sum(axis=1) / variance, mixtures.width * math.log(variance)
    from scipy.linalg import solve_triangular

    try:
        factor = np.linalg.cholesky(unpack_lower(covariance))
    except np.linalg.LinAlgError:
        raise ValueError(
            f"log_density: the covariance of component {component} is not positive definite"
        ) from None
    solved = solve_triangular(factor, centred.T, lower=True)
    return (solved**2).sum(axis=0), float(2 * np.log(np.diagonal(factor)).sum())
