"""Odds of candidates in the equations of a head, beside a plain Cholesky factorization of their kernel.

    python benchmarks/head_posterior.py              4,000 candidates
    python benchmarks/head_posterior.py --full       12,000 candidates: 3.4 GiB
    python benchmarks/head_posterior.py --many N     N candidates, ours alone

A ridge head of ten classes and 64 features: 640 equations. One solve gives the weights of all candidates, their
variances, and draws of their errors. The peer forms the kernel, factors and inverts it (scipy).
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

import measure
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from fedassay.attacks.gallery.heads import _Weighted, inside_of
from fedassay.attacks.gallery.precision import Posterior, posterior
from fedassay.heads.estimators import RidgeEstimator

Matrix = NDArray[np.float64]

WIDTH, CLASSES, TARGET = 64, 10, 3.0
MULTIPLE, EVERY = 4.0, 1e-4
HEAD = RidgeEstimator(0.01)


def made(size: int) -> tuple[_Weighted, Matrix, NDArray[np.int64]]:
    """Candidates of whom every second one is in a head: their parts in it, features (N, d) and labels (N,)."""
    rng = np.random.default_rng(0)
    labels = np.arange(size) % CLASSES
    features = np.maximum(rng.standard_normal((size, WIDTH)) + np.eye(CLASSES, WIDTH)[labels], 0.0)
    equations = HEAD.equations(HEAD.fit(features[::2], labels[::2]), features, labels, None)
    return _Weighted.of(equations, None), features, labels


def plain(part: _Weighted, sides: Matrix) -> tuple[Matrix, Matrix]:
    """Solutions and variances by the kernel, its factor and its inverse."""
    every = slice(0, len(sides))
    factor = cho_factor(MULTIPLE * np.eye(len(sides)) + EVERY + part.products(every), lower=True)
    return cho_solve(factor, sides), cho_solve(factor, np.eye(len(sides))).diagonal()


def check(part: _Weighted, sides: Matrix, found: Posterior) -> None:
    """Asserts that both give the same."""
    solutions, variances = plain(part, sides)
    np.testing.assert_allclose(found.solutions, solutions, atol=1e-6)
    np.testing.assert_allclose(found.variances, variances, rtol=1e-6)


def run(full: bool = False, repeats: int = 3) -> measure.Row:
    """Times both and returns the row of the performance table."""
    size = 12_000 if full else 4_000
    part, *_ = made(size)
    sides = np.random.default_rng(1).standard_normal((size, 2))
    found = posterior([part], MULTIPLE, EVERY, sides, np.random.default_rng(0), 6)
    peak = measure.peak_mib()
    check(part, sides, found)
    theirs, ours = measure.alternate(
        partial(plain, part, sides),
        lambda: posterior([part], MULTIPLE, EVERY, sides, np.random.default_rng(0), 6),
        repeats=1 if full else repeats,
    )
    ratio, of_cpu = theirs.elapsed / ours.elapsed, theirs.cpu / ours.cpu
    return {
        "row": f"odds of {size:,} candidates in a head of {CLASSES} classes and {WIDTH} features",
        "ratio": round(ratio, 2),
        "target": TARGET,
        "met": min(ratio, of_cpu) >= TARGET,
        "ratio_of_cpu": round(of_cpu, 2),
        "peer": "kernel, factor and inverse by scipy",
        "cpu_seconds": round(ours.cpu, 2),
        "peer_cpu_seconds": round(theirs.cpu, 2),
        "peak_mib": peak,
    }


def many(size: int) -> None:
    """Prints seconds and memory of a whole attack on one head, and how many of the likelier half are in it."""
    _, features, labels = made(size)
    head, rng = HEAD.fit(features[::2], labels[::2]), np.random.default_rng(0)
    odds: list[Matrix] = []
    taken = measure.seconds(lambda: odds.append(inside_of(HEAD, head, features, labels, size / 2, rng).odds))
    right = float(np.mean(np.argsort(-odds[0])[: size // 2] % 2 == 0))
    print(f"{size:,}: {taken.cpu:.1f} processor s, {measure.peak_mib()} MiB, {right:.3f} of the likelier half")


if __name__ == "__main__":
    if "--many" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--many", type=int)
        many(parser.parse_args().many)
    else:
        measure.main(run, __doc__)
