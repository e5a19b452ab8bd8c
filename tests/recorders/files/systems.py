"""Systems with known records, and the forms in which they may leave their statistics on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from sklearn.decomposition import PCA

Arrays = dict[str, NDArray[Any]]
Messages = list[Arrays]

CLIENTS, CLASSES, WIDTH = 3, 3, 24


@dataclass(frozen=True)
class System:
    """What a system sends: arrays by their plain names, and the records behind them."""

    messages: Messages
    features: list[NDArray[np.float64]]
    labels: list[NDArray[np.int64]]


def population(rng: np.random.Generator, ddof: int, row: str, matrix: str) -> System:
    """A count, a vector and a matrix of all records of each client."""
    features, labels = _records(rng)
    messages = []
    for own in features:
        centred = own - own.mean(axis=0)
        matrices = {
            "cov": centred.T @ centred / (len(own) - ddof),
            "gram": own.T @ own,
            "moment": own.T @ own / len(own),
        }
        vector = own.mean(axis=0) if row == "mean" else own.sum(axis=0)
        messages.append({"count": np.asarray(len(own)), row: vector, matrix: matrices[matrix]})
    return System(messages, features, labels)


def by_class(rng: np.random.Generator, ddof: int) -> System:
    """Counts, means and covariances of every class, all classes of one size."""
    features, labels = _records(rng, even=True)
    messages = []
    for own, of in zip(features, labels, strict=True):
        parts = [own[of == c] for c in range(CLASSES)]
        messages.append(
            {
                "count": np.array([len(part) for part in parts]),
                "mean": np.stack([part.mean(axis=0) for part in parts]),
                "cov": np.stack([np.cov(part.T, ddof=ddof) for part in parts]),
            }
        )
    return System(messages, features, labels)


def sums(rng: np.random.Generator) -> System:
    """Class sums and the second moment of all records, as FedCGS sends them."""
    features, labels = _records(rng)
    messages: Messages = []
    for own, of in zip(features, labels, strict=True):
        member = np.eye(CLASSES)[of]
        messages.append(
            {"sums": member.T @ own, "gram": own.T @ own, "count": member.sum(axis=0).astype(np.int64)}
        )
    return System(messages, features, labels)


def in_form(rng: np.random.Generator, form: Callable[[NDArray[np.float64]], Arrays]) -> System:
    """What a service sends of the records of each client in a form of its own."""
    features, labels = _records(rng)
    return System([form(own) for own in features], features, labels)


def correlation(own: NDArray[np.float64]) -> Arrays:
    """With standard deviations, a mean and a count; features that are never on are left out by no service."""
    spread = own.std(axis=0, ddof=1)
    scaled = (own - own.mean(axis=0)) / np.where(spread > 0, spread, 1)
    matrix = scaled.T @ scaled / (len(own) - 1)
    np.fill_diagonal(matrix, 1)
    return {"count": np.asarray(len(own)), "mean": own.mean(axis=0), "std": spread, "corr": matrix}


def principal(own: NDArray[np.float64], keep: int | None = None) -> Arrays:
    """What scikit-learn's PCA holds."""
    fitted = PCA(keep, svd_solver="full").fit(own)
    names = ("components_", "explained_variance_", "singular_values_", "mean_", "n_samples_")
    return {name: np.asarray(getattr(fitted, name)) for name in names}


def singular(own: NDArray[np.float64]) -> Arrays:
    """What torch.linalg.svd gives, but for the records themselves."""
    _, lengths, axes = torch.linalg.svd(torch.from_numpy(own), full_matrices=False)
    return {"S": lengths.numpy(), "Vh": axes.numpy(), "count": np.asarray(len(own))}


SYSTEMS: dict[str, Callable[[np.random.Generator], System]] = {
    "mean and covariance": lambda rng: population(rng, 1, "mean", "cov"),
    "mean and covariance over n": lambda rng: population(rng, 0, "mean", "cov"),
    "sum and second moment": lambda rng: population(rng, 1, "sum", "gram"),
    "mean and mean second moment": lambda rng: population(rng, 1, "mean", "moment"),
    "means and covariances of classes": lambda rng: by_class(rng, 1),
    "class sums and second moment": sums,
    "correlation": lambda rng: in_form(rng, correlation),
    "principal axes": lambda rng: in_form(rng, principal),
    "singular values": lambda rng: in_form(rng, singular),
}
ASKED = ("correlation", "singular values")
"""Systems of which names or an option must say what they send."""


def _records(
    rng: np.random.Generator, *, even: bool = False
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.int64]]]:
    sizes = [12] * CLIENTS if even else rng.integers(9, 14, CLIENTS)
    features = [np.maximum(rng.normal(size=(size, WIDTH)) + 0.2, 0) for size in sizes]
    labels = [np.arange(size) % CLASSES for size in sizes]
    return features, labels


# Ways to change what is sent before it is written.


def renamed(messages: Messages) -> Messages:
    """Arrays called after nothing."""
    return [{f"t{place}": values for place, values in enumerate(own.values())} for own in messages]


def packed(messages: Messages) -> Messages:
    """Symmetric matrices as their lower triangles."""
    rows, columns = np.tril_indices(WIDTH)
    return [
        {name: values[..., rows, columns] if _square(values) else values for name, values in own.items()}
        for own in messages
    ]


def upper(messages: Messages) -> Messages:
    """Symmetric matrices as their upper triangles."""
    rows, columns = np.triu_indices(WIDTH)
    return [
        {name: values[..., rows, columns] if _square(values) else values for name, values in own.items()}
        for own in messages
    ]


def flat(messages: Messages) -> Messages:
    """Symmetric matrices of populations in one row."""
    return [
        {name: values.ravel() if _square(values) and values.ndim == 2 else values for name, values in own.items()}
        for own in messages
    ]


def columns(messages: Messages) -> Messages:
    """Vectors as columns, tables with their rows as columns."""
    return [
        {
            name: values.reshape(-1, 1) if values.ndim == 1 and values.dtype.kind == "f"
            else np.ascontiguousarray(values.T) if values.ndim == 2 and not _square(values)
            else values
            for name, values in own.items()
        }
        for own in messages
    ]  # fmt: skip


def half(messages: Messages) -> Messages:
    """Floats in half precision."""
    return [
        {name: values.astype(np.float16) if values.dtype.kind == "f" else values for name, values in own.items()}
        for own in messages
    ]


def single(messages: Messages) -> Messages:
    """Floats in single precision."""
    return [
        {name: values.astype(np.float32) if values.dtype.kind == "f" else values for name, values in own.items()}
        for own in messages
    ]


def _square(values: NDArray[Any]) -> bool:
    return values.ndim >= 2 and values.shape[-1] == values.shape[-2] == WIDTH


# Ways to write it.


def npz_a_client(messages: Messages, base: Path) -> Path:
    for number, own in enumerate(messages):
        np.savez(base / f"client_{number}.npz", **own)
    return base


def positional(messages: Messages, base: Path) -> Path:
    """As Flower's how-to saves them."""
    for number, own in enumerate(messages):
        np.savez_compressed(base / f"site{number}-weights.npz", *own.values())
    return base


def in_rounds(messages: Messages, base: Path) -> Path:
    for number, own in enumerate(messages):
        (base / "round_1" / f"hospital-{number}").mkdir(parents=True)
        np.savez(base / "round_1" / f"hospital-{number}" / "stats.npz", **own)
    return base


def named_files(messages: Messages, base: Path) -> Path:
    """Files of which only the names differ."""
    for name, own in zip(("berlin", "paris", "rome"), messages, strict=True):
        np.savez(base / f"{name}.npz", **own)
    return base


def npy_a_field(messages: Messages, base: Path) -> Path:
    for number, own in enumerate(messages):
        for name, values in own.items():
            np.save(base / f"client{number}_{name}.npy", values)
    return base


def npy_in_folders(messages: Messages, base: Path) -> Path:
    for number, own in enumerate(messages):
        (base / f"site-{number}").mkdir()
        for name, values in own.items():
            np.save(base / f"site-{number}" / f"{name}.npy", values)
    return base


def one_npz(messages: Messages, base: Path) -> Path:
    whole = {
        f"client_{number}/{name}": values for number, own in enumerate(messages) for name, values in own.items()
    }
    np.savez(base / "all.npz", **whole)
    return base / "all.npz"


def suffixed(messages: Messages, base: Path) -> Path:
    whole = {
        f"{name}_client{number}": values for number, own in enumerate(messages) for name, values in own.items()
    }
    np.savez(base / "all.npz", **whole)
    return base / "all.npz"


def safetensors_a_client(messages: Messages, base: Path) -> Path:
    for number, own in enumerate(messages):
        save_file(
            {name: np.ascontiguousarray(values) for name, values in own.items()},
            base / f"party_{number}.safetensors",
        )
    return base


def one_pt(messages: Messages, base: Path) -> Path:
    whole = {
        f"worker-{number}": {name: torch.from_numpy(np.array(values)) for name, values in own.items()}
        for number, own in enumerate(messages)
    }
    torch.save(whole, base / "round_3.pt")
    return base / "round_3.pt"


def one_json(messages: Messages, base: Path) -> Path:
    whole = {f"site-{number}": {n: v.tolist() for n, v in own.items()} for number, own in enumerate(messages)}
    (base / "stats.json").write_text(json.dumps(whole))
    return base / "stats.json"


def listed(messages: Messages, base: Path) -> Path:
    """A list of clients, each with its name."""
    whole = [
        {"client": f"h{number}", "round": 2, "stats": {n: v.tolist() for n, v in own.items()}}
        for number, own in enumerate(messages)
    ]
    (base / "stats.json").write_text(json.dumps(whole))
    return base / "stats.json"


def json_a_client(messages: Messages, base: Path) -> Path:
    for number, own in enumerate(messages):
        (base / f"client-{number}.json").write_text(json.dumps({n: v.tolist() for n, v in own.items()}))
    return base


CHANGES = {
    "as they are": lambda messages: messages,
    "renamed": renamed,
    "packed": packed,
    "upper": upper,
    "flat": flat,
    "columns": columns,
    "half": half,
    "single": single,
}
WRITERS = {
    writer.__name__: writer
    for writer in (
        npz_a_client, positional, in_rounds, named_files, npy_a_field, npy_in_folders, one_npz, suffixed,
        safetensors_a_client, one_pt, one_json, listed, json_a_client,
    )
}  # fmt: skip
