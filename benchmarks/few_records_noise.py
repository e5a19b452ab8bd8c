"""What declared noise leaves of components of one and two records: docs/fedpft.md.

    python benchmarks/few_records_noise.py [--seeds 20] [--data cifar10]

The attack under noise is maximum a posteriori: the values of all records of a component at once, under the noise
that is declared on their sums and sums of squares and the attacker's law of their class, by descent from several
starts. SqueezeNet's features at 64 pixels, clipped to norm 1 as private methods do. The noise is the Gaussian
mechanism's for a record that joins or leaves (add/remove, delta 1e-5): sums and squares change by at most the root
of 2, and the number of records is told. Four components of one class a seed. Beside the share that names its
record stand the noised mean's, and what the claim allows where one in the gallery is the prior. Intervals at 95 %
are by seed.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import public_data
import torch
from few_records import OWN, Matrix
from gram_limits import CLASSES, Pool, load

from fedassay.audits.stats.typed_intervals import Bounded, interval
from fedassay.privacy.gaussian import calibrate_sigma, mu_of, reconstruction_ceiling

DELTA = 1e-5
STARTS = 4
STEPS = 300


def law(pool: Pool) -> tuple[Matrix, Matrix]:
    """Class means (C, d) and the precision within classes (d, d) of the attacker's clipped features."""
    from sklearn.covariance import ledoit_wolf

    features, labels = pool.features[:OWN], pool.labels[:OWN]
    means = np.array([features[labels == label].mean(axis=0) for label in range(CLASSES)])
    covariance, _ = ledoit_wolf(features - means[labels], assume_centered=True)
    floor = 1e-3 * np.trace(covariance) / len(covariance)
    return means, np.linalg.inv(covariance + floor * np.eye(len(covariance)))


def likeliest(
    sums: Matrix, squares: Matrix, size: int, sigma: float, mean: Matrix, precision: Matrix, seed: int
) -> Matrix:
    """Records with the highest posterior given noised sums and sums of squares, shape (size, d)."""
    generator = torch.Generator().manual_seed(seed)
    centre, inverse = torch.from_numpy(mean), torch.from_numpy(precision)
    given = torch.from_numpy(np.stack([sums, squares]))
    spread = torch.rsqrt(torch.diagonal(inverse))
    start = centre + spread * torch.randn((STARTS, size, len(mean)), generator=generator, dtype=torch.float64)
    values = start.clamp(min=0).requires_grad_()
    optimiser = torch.optim.Adam([values], lr=0.003)

    def energy() -> torch.Tensor:
        kept = values.clamp(min=0)
        rest = kept - centre
        prior = ((rest @ inverse) * rest).sum(dim=(1, 2)) / 2
        seen = torch.stack([kept.sum(dim=1), (kept**2).sum(dim=1)], dim=1)
        return prior + ((seen - given) ** 2).sum(dim=(1, 2)) / (2 * sigma**2)

    for _ in range(STEPS):
        optimiser.zero_grad()
        energy().sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        return np.asarray(values[energy().argmin()].clamp(min=0).numpy())


def measured(pool: Pool, size: int, epsilon: float, seed: int, known: tuple[Matrix, Matrix]) -> Matrix:
    """Of one seed: error and share named of the attack, the same of the noised mean, and of the class mean."""
    rng, label = np.random.default_rng(seed), seed % CLASSES
    gallery = OWN + np.flatnonzero(pool.labels[OWN:] == label)
    sigma = calibrate_sigma(epsilon, DELTA, 2**0.5)
    figures = []
    for part, rows in enumerate(rng.choice(gallery, (4, size), replace=False)):
        truth = pool.features[rows]
        sums = truth.sum(axis=0) + sigma * rng.standard_normal(truth.shape[1])
        squares = (truth**2).sum(axis=0) + sigma * rng.standard_normal(truth.shape[1])
        found = likeliest(sums, squares, size, sigma, known[0][label], known[1], 1000 * seed + part)
        plain = np.repeat(sums[None] / size, size, axis=0)
        means = np.repeat(known[0][label][None], size, axis=0)
        figures.append([each for guess in (found, plain, means) for each in held(guess, rows, gallery, pool)])
    return np.asarray(np.mean(figures, axis=0))


def held(guess: Matrix, rows: Matrix, gallery: Matrix, pool: Pool) -> tuple[float, float]:
    """Relative error of the guesses to the nearest of the records, and the share that name one of them."""
    truth = pool.features[rows]
    gaps = np.linalg.norm(guess[:, None] - truth, axis=2) / np.linalg.norm(truth, axis=1)
    near = gallery[np.linalg.norm(guess[:, None] - pool.features[gallery], axis=2).argmin(axis=1)]
    return float(np.median(gaps.min(axis=1))), float(np.isin(near, rows).mean())


def main() -> None:
    """Print a line for each number of records and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    public_data.add_arguments(parser)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2], help="records of a component")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 8.0, 50.0, 1000.0])
    given = parser.parse_args()
    pool = load(given.data, given.weights, signed=False)
    lengths = np.linalg.norm(pool.features, axis=1, keepdims=True)
    pool = Pool(pool.features / np.maximum(lengths, 1.0), pool.labels)
    known = law(pool)
    size_of = np.bincount(pool.labels[OWN:], minlength=CLASSES).mean()
    for size in given.sizes:
        for epsilon in given.epsilons:
            begun = time.process_time()
            rows = np.array([measured(pool, size, epsilon, seed, known) for seed in range(given.seeds)])
            named, mean = (interval(rows[:, column], Bounded(0, 1)) for column in (1, 3))
            allowed = float(reconstruction_ceiling(size / size_of, mu_of(epsilon, DELTA)))
            taken = (time.process_time() - begun) / (4 * given.seeds)
            errors = [float(np.median(rows[:, column])) for column in (0, 4, 2)]
            print(
                f"{public_data.called(given.data)}, {size} records, epsilon {epsilon:g}, {given.seeds} seeds: "
                f"error {errors[0]:.3f}, class mean {errors[1]:.3f}, noised mean {errors[2]:.3f}; "
                f"named {named.value:.3f} [{named.low:.3f}, {named.high:.3f}], "
                f"by the noised mean {mean.value:.3f} [{mean.low:.3f}, {mean.high:.3f}], "
                f"chance {size / size_of:.3f}, the claim allows {allowed:.3f}; "
                f"{taken:.1f} s a component",
                flush=True,
            )


if __name__ == "__main__":
    public_data.ended(main)
