"""10^5 reruns of a noised statistic, vectorised, against rerunning the mechanism in Python.

    python benchmarks/mechanism_reruns.py

Both release the FedCGS statistics (N, A, B) of the same worst pair of neighbours through the same function of
`fedassay.privacy.mechanisms`, and score every release by the same log-likelihood ratio; the peer calls it once a
rerun. The peer's time is taken on a stated subsample. Before anything is timed, the scores of both are held
against each other and against the Gaussians that theory gives, by Kolmogorov-Smirnov tests.
"""

from __future__ import annotations

import measure
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import ks_2samp, kstest

from fedassay.privacy.reruns import Experiment, llr_scores, shared_sums

TARGET, RERUNS, PEER_RERUNS = 50, 100_000, 500
SIGNIFICANCE = 1e-3
Scores = NDArray[np.float64]


def experiment() -> Experiment:
    return shared_sums(adjacency="add_remove", sigmas=(2.0, 2.0, 2.0))


def peer(given: Experiment, reruns: int, seed: int) -> tuple[Scores, Scores]:
    """One call of the mechanism a rerun, on each data set; the same scores from one release at a time."""
    rng = np.random.default_rng(seed)
    pair, off = given.neighbours, (0.0,) * len(given.sigmas)

    def fields(features: Scores, labels: NDArray[np.int64], sigmas: tuple[float, ...]) -> list[Scores]:
        released = given.release(features, labels, sigmas, rng, 1)
        return [flat(field)[0] for flat, field in zip(given.flatten, released, strict=True)]

    sides = ((pair.features0, pair.labels0), (pair.features1, pair.labels1))
    exact0, exact1 = (fields(*side, off) for side in sides)
    scores = np.empty((2, reruns))
    for row, side in enumerate(sides):
        for rerun in range(reruns):
            ratio = 0.0
            for value, zero, one, sigma in zip(
                fields(*side, given.sigmas), exact0, exact1, given.sigmas, strict=True
            ):
                ratio += float((value - (zero + one) / 2) @ (one - zero)) / sigma**2
            scores[row, rerun] = ratio
    return scores[0], scores[1]


def ours(given: Experiment, reruns: int, seed: int) -> tuple[Scores, Scores]:
    return llr_scores(given, reruns=reruns, rng=np.random.default_rng(seed))


def check(given: Experiment, reruns: int, peer_reruns: int) -> None:
    """Asserts one distribution: ours, the peer's, and N(-+mu^2/2, mu^2)."""
    for side, a, b in zip((-1, 1), ours(given, reruns, 1), peer(given, peer_reruns, 2), strict=True):
        law = (side * given.mu**2 / 2, given.mu)
        for p in (kstest(a, "norm", args=law).pvalue, kstest(b, "norm", args=law).pvalue, ks_2samp(a, b).pvalue):
            assert p > SIGNIFICANCE, f"the scores of side {side:+d} are not of one distribution (p = {p:.2g})"


def run(full: bool = False, repeats: int = 3) -> measure.Row:
    """The row; `full` runs the peer on 20 times as many."""
    given, few = experiment(), PEER_RERUNS * (20 if full else 1)
    ours(given, RERUNS, 0)
    peak = measure.peak_mib()
    check(given, RERUNS, few)
    theirs, mine = measure.alternate(lambda: peer(given, few, 0), lambda: ours(given, RERUNS, 0), repeats=repeats)
    ratio = theirs.elapsed / few / (mine.elapsed / RERUNS)
    of_cpu = theirs.cpu / few / (mine.cpu / RERUNS)
    return {
        "row": "empirical epsilon for a noised statistic, 10^5 reruns",
        "ratio": round(ratio, 1),
        "target": TARGET,
        "met": min(ratio, of_cpu) >= TARGET,
        "ratio_of_cpu": round(of_cpu, 1),
        "peer": "one call of the mechanism a rerun, in Python",
        "peer_us_per_rerun": round(1e6 * theirs.elapsed / few / 2, 2),
        "ours_us_per_rerun": round(1e6 * mine.elapsed / RERUNS / 2, 3),
        "reruns": RERUNS,
        "peer_reruns": few,
        "peak_mib": peak,
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    measure.main(run, __doc__)
