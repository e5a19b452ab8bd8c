"""Messages of other kinds than statistics of records: what is read of them must be no statistic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def network(rng: np.random.Generator) -> Arrays:
    """A convolution and a layer."""
    return {
        "conv.weight": rng.normal(size=(4, 3, 3, 3)),
        "conv.bias": rng.normal(size=4),
        "fc.weight": rng.normal(size=(5, 16)),
        "fc.bias": rng.normal(size=5),
    }


def normalised(rng: np.random.Generator) -> Arrays:
    """A network with batch normalisation, whose running statistics are named as such."""
    return network(rng) | {
        "bn.weight": np.ones(4),
        "bn.bias": np.zeros(4),
        "bn.running_mean": rng.normal(size=4),
        "bn.running_var": rng.random(4) + 0.5,
        "bn.num_batches_tracked": np.asarray(120),
    }


def orthogonal(rng: np.random.Generator) -> Arrays:
    """A layer as orthogonal initialisation draws it, and its offsets."""
    return {
        "fc.weight": np.linalg.qr(rng.normal(size=(24, 6)))[0].T.copy(),
        "fc.bias": rng.normal(size=6),
        "out.weight": rng.normal(size=(3, 6)),
        "out.bias": rng.normal(size=3),
    }


def other_moments(rng: np.random.Generator) -> Arrays:
    """A count, a vector and a covariance that are of different records."""
    return {
        "n": np.asarray(12),
        "v": rng.normal(size=20),
        "m": np.cov(rng.normal(size=(30, 20)).T),
    }


def symmetric(rng: np.random.Generator) -> Arrays:
    """A symmetric matrix that is indefinite, and a vector."""
    matrix = rng.normal(size=(12, 12))
    return {"n": np.asarray(5), "v": rng.normal(size=12), "m": matrix + matrix.T}


def rotation(rng: np.random.Generator) -> Arrays:
    """A public rotation of features."""
    return {"r": np.linalg.qr(rng.normal(size=(12, 12)))[0]}


def confusion(rng: np.random.Generator) -> Arrays:
    """How often each class was taken for each."""
    return {"confusion": rng.integers(0, 40, (10, 10)), "loss": rng.random(1), "n": np.asarray(300)}


def graph(rng: np.random.Generator) -> Arrays:
    """Who is linked with whom, and how often."""
    links = np.triu(rng.integers(0, 2, (12, 12)), 1)
    return {"links": links + links.T, "degrees": (links + links.T).sum(axis=0)}


def optimiser(rng: np.random.Generator) -> Arrays:
    """Adam's averages of a network's gradients and of their squares."""
    shapes = {"fc.weight": (8, 12), "fc.bias": (8,), "out.weight": (3, 8), "out.bias": (3,)}
    first = {f"m.{name}": rng.normal(size=shape) * 1e-3 for name, shape in shapes.items()}
    return first | {f"q.{name}": rng.random(shape) * 1e-6 for name, shape in shapes.items()}


HONEST: dict[str, Callable[[np.random.Generator], Arrays]] = {
    "network": network,
    "normalised network": normalised,
    "orthogonal network": orthogonal,
    "other moments": other_moments,
    "symmetric": symmetric,
    "rotation": rotation,
    "confusion": confusion,
    "graph": graph,
    "optimiser": optimiser,
    "losses": lambda rng: {"loss": rng.random(20), "n": np.asarray(5), "steps": np.arange(20)},
    "correlations": lambda rng: {
        "n": np.asarray(50),
        "r": np.corrcoef(rng.normal(size=(8, 30))),
        "v": rng.random(8),
    },
    "metric and kernel": lambda rng: {"a": rng.normal(size=(7, 7)), "b": rng.normal(size=7), "n": np.asarray(9)},
    "adapter": lambda rng: {"lora_A": rng.normal(size=(4, 24)), "lora_B": rng.normal(size=(24, 4))},
    "tokens": lambda rng: {"ids": rng.integers(0, 50_000, (16, 64)), "mask": np.ones((16, 64), np.int64)},
    "prompts": lambda rng: {"prompt": rng.normal(size=(8, 64)) * 0.02},
    "masks": lambda rng: {"mask": rng.integers(0, 2, (12, 30)), "threshold": rng.random(1)},
    "scores": lambda rng: {"auc": np.asarray(0.8), "fpr": np.sort(rng.random(30)), "tpr": np.sort(rng.random(30))},
    "attention": lambda rng: {"attention": rng.dirichlet(np.ones(16), (4, 16))},
    "rates": lambda rng: {"lr": 0.1 * 0.9 ** np.arange(40), "epochs": np.asarray(40)},
    "codes": lambda rng: {"codes": rng.integers(0, 256, (64, 8)).astype(np.uint8), "scale": rng.random(8)},
}
