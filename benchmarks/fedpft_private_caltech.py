"""Can private FedPFT reach 86 % on Caltech101 with 50 clients?

Beitollahi et al. 2024, figure 1 and table 5, simulated.

    python benchmarks/fedpft_private_caltech.py

The setting of the paper: 6,084 records, 101 classes, 512 features of norm 1, 50 clients at Dirichlet 0.1,
spherical K = 1, Theorem 4.1 at epsilon 1 and delta 1/n. The features are simulated, and are easier than any
backbone's: classes are spheres around random directions (see `SPREAD`). Three readings of Theorem 4.1's n:
the records of the class at the client, all the client's, and those of all clients together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedassay.data.partition import dirichlet
from fedassay.heads.linear import train_head

WIDTH, CLASSES, RECORDS, TEST, CLIENTS = 512, 101, 6084, 3060, 50
SPREAD = 0.55
"""Norm of a record's own part, beside 0.7 of what all share and 0.45 of its class's."""


def main() -> None:
    """Print one line a reading."""
    rng = np.random.default_rng(0)
    # A few large classes and many small ones, as in Caltech101.
    shares = np.maximum(25, rng.lognormal(3.6, 0.75, CLASSES))
    sizes = np.rint(shares / shares.sum() * RECORDS).astype(np.int64)
    sizes[0] += RECORDS - sizes.sum()
    centres = rng.standard_normal((CLASSES, WIDTH))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    shared = rng.standard_normal(WIDTH)
    shared /= np.linalg.norm(shared)

    def features(labels: NDArray[np.int64]) -> NDArray[np.float32]:
        own = rng.standard_normal((len(labels), WIDTH)) / np.sqrt(WIDTH)
        rows = 0.7 * shared + 0.45 * centres[labels] + SPREAD * own
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    labels = np.repeat(np.arange(CLASSES), sizes)
    test_labels = rng.choice(CLASSES, TEST, p=sizes / RECORDS)
    train, test = features(labels), features(test_labels)
    parts = dirichlet(labels, CLIENTS, 0.1, 1, rng)
    cells = np.concatenate([np.unique(labels[part], return_counts=True)[1] for part in parts])
    print(f"{len(cells)} mixtures; median records of a class at a client: {np.median(cells):g}")
    print(f"centralized: {_accuracy(train, labels, test, test_labels):.1%}")
    for reading in ("no noise", "class at the client", "client", "all clients"):
        made: list[NDArray[np.float64]] = []
        of: list[int] = []
        for part in parts:
            for label in np.unique(labels[part]):
                rows = train[part][labels[part] == label]
                count = {"class at the client": len(rows), "client": len(part)}.get(reading, RECORDS)
                scale = 0.0 if reading == "no noise" else 4 / count * np.sqrt(5 * np.log(4 * count))
                mean = rows.mean(axis=0) + scale * rng.standard_normal(WIDTH)
                variance = max(float(rows.var(axis=0).mean()) + scale * rng.standard_normal(), 1e-6)
                made.append(mean + np.sqrt(variance) * rng.standard_normal((len(rows), WIDTH)))
                of += [int(label)] * len(rows)
        drawn = np.concatenate(made).astype(np.float32)
        print(f"n of the {reading}: {_accuracy(drawn, np.array(of), test, test_labels):.1%}", flush=True)


def _accuracy(
    features: NDArray[np.float32], labels: NDArray[np.int64], test: NDArray[np.float32], truth: NDArray[np.int64]
) -> float:
    return float(np.mean(train_head(features, labels).predict(test) == truth))


if __name__ == "__main__":
    main()
