"""Distance of synthetic features from real ones, one feature at a time (Beitollahi et al. 2024, figure 7)."""

from __future__ import annotations

import numpy as np

from fedassay.support.types import Floats, Ints

LEAST = 10
"""Records of a class on either side below which the class is left out."""


def density_gap(given: Floats, given_labels: Ints, reference: Floats, reference_labels: Ints) -> float | None:
    """Mean Wasserstein-1 distance between the densities of single features, in standard deviations.

    Figure 7 of the paper shows the densities of a few features picked at random, real and sampled from the
    mixtures; this is the area between the cumulative ones, over every feature of every class, in units of the
    feature's standard deviation among the reference records of the class. Two samples of one distribution
    are not at 0 but at the order of n^(-1/2): compare with real records against the same reference.

    Args:
        given: Features to judge, shape (n, d).
        given_labels: Their classes, shape (n,).
        reference: Real features that the given ones were not made from, shape (m, d).
        reference_labels: Their classes, shape (m,).

    Returns:
        The mean over classes and over features that vary; None where no class has `LEAST` on either side.
    """
    from scipy.stats import wasserstein_distance

    gaps: list[float] = []
    for label in np.unique(reference_labels):
        ours, theirs = given[given_labels == label], reference[reference_labels == label]
        if min(len(ours), len(theirs)) < LEAST:
            continue
        scale = theirs.std(axis=0)
        gaps.extend(
            wasserstein_distance(ours[:, j], theirs[:, j]) / scale[j] for j in np.flatnonzero(scale > 1e-9)
        )
    return float(np.mean(gaps)) if gaps else None
