"""A statistic under other noise, or at a smaller width: the controls of an observed bound, and its cost.

A control must be right whether or not the audited mechanism is. The positive control therefore uses the
mechanism's own noise, scaled down until the release is clearly not private. The noise of the negative control is
drawn here, on the mechanism's noise-free statistic. A mechanism with too little noise (or none) thus cannot make
its own negative control look like a leak.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedassay.privacy.reruns import Experiment, exact_coordinates
from fedassay.support.seeds import Seeds
from fedassay.support.types import Ints, Matrix


def with_mu(experiment: Experiment, mu: float) -> Experiment:
    """The mechanism on the same neighbours, its noise scaled so that its Gaussian-DP parameter is `mu`.

    Where a field that differs has no noise at all, every field gets the same noise instead.

    Args:
        experiment: The experiment to scale; its neighbours must differ in its statistic.
        mu: Greater than 0, finite.
    """
    return replace(experiment, mu=mu, sigmas=_sigmas(experiment, mu))


def with_reference_noise(experiment: Experiment, mu: float) -> Experiment:
    """Return the experiment with its exact statistic noised here alone, to be `mu`-GDP on its neighbours.

    Args:
        experiment: Source of the statistic and of the neighbours; they must differ in it.
        mu: Greater than 0, finite.
    """
    sigmas = _sigmas(experiment, mu)
    off = (0.0,) * len(sigmas)

    def release(
        x: Matrix, y: Ints, scales: tuple[float, ...], rng: np.random.Generator, reruns: int
    ) -> tuple[Matrix, ...]:
        exact = experiment.release(x, y, off, rng, 1)
        rows = (flat(field) for flat, field in zip(experiment.flatten, exact, strict=True))
        return tuple(
            row + scale * rng.standard_normal((reruns, row.shape[1]))
            for row, scale in zip(rows, scales, strict=True)
        )

    return replace(experiment, mu=mu, sigmas=sigmas, release=release, flatten=(_same,) * len(sigmas))


def in_span(experiment: Experiment, apart: Matrix) -> Experiment:
    """Return the experiment in the coordinates that separate its neighbours, where it has the same law there.

    White noise is white in every orthonormal basis, and so is that of a symmetric matrix where it is white in the
    embedding `vech`. Take a basis of the records that distinguish the neighbours. All other coordinates then carry
    noise alone, on both sides: their likelihood ratio is 1 (see `fedassay.privacy.reruns`). The last feature keeps
    an axis of its own, for some statistics leave it out.

    Args:
        experiment: Its neighbours must differ by few records.
        apart: Those records, (k, d).

    Returns:
        The experiment at width k + 1 at most; the experiment itself where that is no smaller, or where one of its
        fields' distances is another there: it clips, embeds or noises by coordinates.
    """
    width = apart.shape[1]
    if len(apart) + 1 >= width:
        return experiment
    basis, upper = np.linalg.qr(apart[:, :-1].T)
    # Nonnegative features stay so, two of them: clipping of negative features does not change the records.
    basis *= np.where(np.diag(upper) < 0, -1.0, 1.0)

    def narrow(features: Matrix) -> Matrix:
        return np.concatenate([features[:, :-1] @ basis, features[:, -1:]], axis=1)

    pair = experiment.neighbours
    narrowed = replace(
        experiment, neighbours=replace(pair, features0=narrow(pair.features0), features1=narrow(pair.features1))
    )
    same = np.allclose(distances(narrowed), distances(experiment), rtol=1e-9, atol=1e-12)
    return narrowed if same else experiment


def distances(experiment: Experiment) -> tuple[float, ...]:
    """L2 distance of the two neighbours' exact statistics, field by field, in the coordinates that are noised."""
    sides = exact_coordinates(experiment, Seeds(0).numpy("distances"))
    return tuple(float(np.linalg.norm(one - zero)) for zero, one in zip(*sides, strict=True))


def _sigmas(experiment: Experiment, mu: float) -> tuple[float, ...]:
    """Noise scales of the same proportions that give `mu`; equal ones where a differing field had none."""
    if not 0 < mu < math.inf:
        raise ValueError(f"mu must be finite and greater than 0, got {mu}")
    apart = distances(experiment)
    if not any(apart):
        raise ValueError("the neighbours do not differ in the statistic: no noise gives it that mu")
    if any(distance > 0 and sigma == 0 for distance, sigma in zip(apart, experiment.sigmas, strict=True)):
        return (math.hypot(*apart) / mu,) * len(apart)
    own = math.hypot(*(d / s for d, s in zip(apart, experiment.sigmas, strict=True) if s > 0))
    return tuple(sigma * own / mu for sigma in experiment.sigmas)


def _same(field: Matrix) -> Matrix:
    return field
