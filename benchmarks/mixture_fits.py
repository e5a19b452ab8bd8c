"""Gaussian mixtures of 50 clients x 100 classes, K = 10, diagonal, d = 512, against scikit-learn in a loop.

    python benchmarks/mixture_fits.py            500 of the 5,000 groups; scikit-learn on 12 of them
    python benchmarks/mixture_fits.py --full     all 5,000; scikit-learn on 60

Groups are a class's records at one client: 30 to 59 rectified features each, from four blobs of a class, in
float32 as a backbone gives them. Both sides stop at the same rise of the mean log-likelihood (1e-3) or
after 100 steps, start once from k-means, and are given the same covariance floor. scikit-learn adds its floor
to the variances where ours is a lower limit, so likelihoods differ a little: they must agree within 1 % of the
spread of a log density on average over the groups, or ours be higher. Compared by time per group.
"""

from __future__ import annotations

import warnings

import measure
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from fedassay.mixtures import Mixtures, fit_mixtures
from fedassay.mixtures.em import FLOOR

TARGET, WITHIN = 10, 0.01
GROUPS, WIDTH, COMPONENTS = 5000, 512, 10
SIZES = (30, 60)
Groups = list[NDArray[np.float32]]


def data(groups: int, width: int = WIDTH, sizes: tuple[int, int] = SIZES) -> Groups:
    """Records of every group, each (n, width), n drawn evenly from `sizes`."""
    rng = np.random.default_rng(0)
    made = []
    for size in rng.integers(*sizes, groups):
        centres = rng.normal(size=(4, width))
        records = centres[rng.integers(0, 4, size)] + rng.normal(0, 0.7, (size, width))
        made.append(np.maximum(records, 0).astype(np.float32))
    return made


def scale(records: NDArray[np.float32]) -> float:
    """Mean variance of a feature: what our floor is relative to."""
    return float(records.astype(np.float64).var(axis=0).mean())


def peer(groups: Groups, components: int) -> list[float]:
    """scikit-learn, one fit a group; mean log-likelihood of each."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for number, records in enumerate(groups):
            mixture = GaussianMixture(
                components, covariance_type="diag", reg_covar=FLOOR * scale(records), random_state=number
            )
            found.append(float(mixture.fit(records).score(records)))
    return found


def ours(groups: Groups, components: int) -> tuple[Mixtures, NDArray[np.float64]]:
    generators = [np.random.default_rng([0, number]) for number in range(len(groups))]
    mixtures, report = fit_mixtures(groups, components, "diag", generators)
    return mixtures, report.log_likelihood


def mean_log_density(records: NDArray[np.float32], mixture: Mixtures) -> float:
    """The definition, in float64, of one group's mean log-likelihood."""
    away = (records[:, None].astype(np.float64) - mixture.means) ** 2 / mixture.covariances
    log_terms = -(away + np.log(2 * np.pi * mixture.covariances)).sum(axis=2) / 2 + np.log(mixture.weights)
    return float(logsumexp(log_terms, axis=1).mean())


def check(groups: Groups, components: int) -> float:
    """Asserts that ours reports what its mixtures score, and that they fit as well; relative gap to the peer."""
    mixtures, likelihood = ours(groups, components)
    scored = [mean_log_density(records, mixtures.select([i])) for i, records in enumerate(groups)]
    np.testing.assert_allclose(likelihood, scored, rtol=1e-4, atol=1e-4 * groups[0].shape[1])
    theirs = np.mean(peer(groups, components))
    gap = float((np.mean(likelihood) - theirs) / abs(theirs))
    assert gap >= -WITHIN, f"mean log-likelihood {np.mean(likelihood):.2f}, scikit-learn's {theirs:.2f}"
    return gap


def timed(groups: Groups, few: Groups, components: int, target: int, repeats: int) -> measure.Row:
    """Times ours on all groups and scikit-learn on a few: what a row says of it."""
    theirs, mine = measure.alternate(
        lambda: peer(few, components), lambda: ours(groups, components), repeats=repeats
    )
    ratio = theirs.elapsed / len(few) / (mine.elapsed / len(groups))
    of_cpu = theirs.cpu / len(few) / (mine.cpu / len(groups))
    return {
        "ratio": round(ratio, 1),
        "target": target,
        "met": min(ratio, of_cpu) >= target,
        "ratio_of_cpu": round(of_cpu, 1),
        "peer": "scikit-learn GaussianMixture in a loop",
        "peer_ms_per_group": round(1e3 * theirs.elapsed / len(few), 2),
        "ours_ms_per_group": round(1e3 * mine.elapsed / len(groups), 3),
        "groups": len(groups),
        "peer_groups": len(few),
        "threads": torch.get_num_threads(),
    }


def run(full: bool = False, repeats: int = 3) -> measure.Row:
    """Times both and returns the row of the performance table."""
    groups = data(GROUPS if full else 500)
    few = groups[: 60 if full else 12]
    ours(groups[:50], COMPONENTS)
    ours(groups, COMPONENTS)
    peak = measure.peak_mib()
    gap = check(few, COMPONENTS)
    return {
        "row": "mixture fits: 50 clients x 100 classes x K = 10, diag, d = 512",
        **timed(groups, few, COMPONENTS, TARGET, 1 if full else repeats),
        "likelihood_gap": round(gap, 5),
        "peak_mib": peak,
    }


if __name__ == "__main__":
    measure.main(run, __doc__)
