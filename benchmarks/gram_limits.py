"""What Gram matrices give away, with intervals: the tables of docs/gram_factorization.md.

    FEDASSAY_DATA=... FEDASSAY_WEIGHTS=... python benchmarks/gram_limits.py PART [--seeds 20] [--data cifar10]

Parts: `share` (records with a relative error below 1e-3, by client size, type and hidden counts), `ratio` (more
records than features), `phase` (zeros and n / d on synthetic features, against the counting bound), `dense`
(signed features), `ridge` (AFL as its authors' code accumulates it) and `noise`. A line is printed as soon as it
is measured; intervals are Clopper-Pearson at 95 %, of records, which treats records of one client as independent.
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedassay.attacks.gram.attack import GramFactorization
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.backbones import build
from fedassay.backbones.base import BackboneRequest
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.data.records import Records
from fedassay.exchange.message import SERVER, FieldKind, Message, MessageField
from fedassay.exchange.release import Release, exact, public
from fedassay.exchange.view import ThreatModel, View
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.privacy.mechanisms import clip_features, release_shared_sums
from fedassay.privacy.sensitivities import shared_sums as shared_sums_sensitivity
from fedassay.privacy.tape import FreeNoise
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]

CLASSES = 10
EXACT = 1e-3
SCALE = 128.0
"""Features are divided by it: the squares of SqueezeNet's do not fit into float16."""

HELD = 6400
"""Images of the attacker's; clients are drawn from the others."""


@dataclass(frozen=True)
class Pool:
    """Features with labels: the attacker's first, then those that clients are drawn from."""

    features: Matrix
    labels: Labels

    def client(self, size: int, seed: int) -> tuple[Matrix, Labels]:
        """A client's features and labels."""
        rng = np.random.default_rng(seed)
        rows = HELD + rng.choice(len(self.features) - HELD, size, replace=False)
        return self.features[rows], self.labels[rows]

    @property
    def attacker(self) -> Records:
        """The attacker's own records."""
        own = self.features[:HELD].astype(np.float32)
        return Records("attacker", np.zeros((HELD, 1, 1, 1), np.uint8), self.labels[:HELD], lambda _: own)


def sent(fields: dict[FieldKind, Any], dtype: Any, release: Release | None = None) -> Message:
    """A message of these arrays; counts stay whole."""
    made = {
        kind: MessageField(
            np.asarray(values, np.int64 if kind == "class_counts" else dtype), kind, release or exact()
        )
        for kind, values in fields.items()
    }
    return Message(0, "client/0", SERVER, made)


def sums(features: Matrix, labels: Labels, *, counts: bool) -> dict[FieldKind, Any]:
    """What FedCGS sends."""
    member = (labels[:, None] == np.arange(CLASSES)).astype(np.float64)
    fields: dict[FieldKind, Any] = {"class_sums": member.T @ features, "second_moment": features.T @ features}
    return {**fields, "class_counts": member.sum(axis=0)} if counts else fields


def attacked(messages: tuple[Message, ...], own: Records | None = None, **parameters: Any) -> AttackResult:
    """The registered attack on a view of these messages."""
    knowledge = Knowledge(own, CLASSES, None, False, Seeds(0), "cpu", SILENT)
    return GramFactorization(max_records=1024, **parameters).run(View(messages, CLASSES, ThreatModel()), knowledge)


def errors(result: AttackResult, truth: Matrix, relative_to: Matrix | None = None) -> Matrix:
    """Relative error of every true record that is not 0, 1 where nothing was matched to it; shape (n,)."""
    found = np.asarray(result.artifacts["vectors"], np.float64)
    truth = truth[np.linalg.norm(truth, axis=1) > 0]
    norms = np.linalg.norm(truth if relative_to is None else truth - relative_to, axis=1)
    measured = np.ones(len(truth))
    if len(found):
        apart = np.linalg.norm(found[:, None] - truth, axis=2) / norms
        rows, columns = linear_sum_assignment(np.minimum(apart, 1e6))
        measured[columns] = apart[rows, columns]
    return measured


def line(name: str, found: list[Matrix], seconds: float) -> None:
    """Print a row: how many records came back, with an interval, and the median error."""
    everything = np.concatenate(found)
    exact_, size = int((everything < EXACT).sum()), len(everything)
    ends = clopper_pearson(exact_, size)
    close = float((everything < 0.1).mean())
    print(
        f"| {name} | {len(found)} | {exact_}/{size} = {exact_ / size:.3f} | {ends.low:.3f} to {ends.high:.3f} | "
        f"{close:.3f} | {np.median(everything):.1e} | {seconds:.0f} |",
        flush=True,
    )


def share(pool: Pool, seeds: int) -> None:
    """Records recovered by client size, type and hidden counts."""
    for size in (4, 8, 16, 32, 64, 128):
        for dtype in (np.float64, np.float32, np.float16):
            for counts in (True, False):
                start, found = time.process_time(), []
                for seed in range(seeds):
                    features, labels = pool.client(size, seed)
                    fields = sums(features, labels, counts=counts)
                    found.append(errors(attacked((sent(fields, dtype),)), features))
                name = f"{size} | {np.dtype(dtype).name} | {'sent' if counts else 'hidden'}"
                line(name, found, time.process_time() - start)


def ratio(pool: Pool, seeds: int) -> None:
    """More records than features, on the most active columns, counts sent and hidden."""
    active = np.argsort(-(pool.features[:HELD] > 0).mean(axis=0))[32:]
    for width in (32, 64, 128):
        columns = np.random.default_rng(0).permutation(active)[:width]
        for over in (1.1, 1.3, 1.5, 2.0):
            for counts in (True, False):
                start, found, zeros, counted = time.process_time(), [], [], []
                for seed in range(seeds):
                    features, labels = pool.client(round(over * width), seed)
                    features = features[:, columns]
                    fields = sums(features, labels, counts=counts)
                    found.append(errors(attacked((sent(fields, np.float64),)), features))
                    zeros.append(float((features == 0).mean()))
                    counted.append(counting(features, fields))
                how = "sent" if counts else "hidden"
                name = f"{width} | {over} | {how} | {np.mean(zeros):.2f} | {np.mean(counted):.2f}"
                line(name, found, time.process_time() - start)


def counting(features: Matrix, fields: dict[FieldKind, Any]) -> float:
    """Unknowns over equations, nnz(F) / (nnz(vech B) + nnz(A)): above 1 nothing can be determined."""
    second = np.asarray(fields["second_moment"])
    equations = (second[np.tril_indices(len(second))] != 0).sum() + (np.asarray(fields["class_sums"]) != 0).sum()
    return float((features > 0).sum() / equations)


def phase(pool: Pool, seeds: int) -> None:
    """Synthetic features of width 32: share of clients whose records come back, by zeros and n / d."""
    del pool
    width, member = 32, 4
    for zeros in (0.9, 0.8, 0.7, 0.6, 0.5):
        for over in (0.5, 1.1, 1.3, 1.5, 2.0, 2.5):
            start, found, counted = time.process_time(), [], []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                size = round(over * width)
                features = rng.lognormal(0, 1, width) * rng.exponential(1, (size, width))
                features *= rng.random((size, width)) >= zeros
                fields = sums(features, np.arange(size) % member, counts=True)
                found.append(errors(attacked((sent(fields, np.float64),)), features))
                counted.append(counting(features, fields))
            line(f"{zeros} | {over} | {np.mean(counted):.2f}", found, time.process_time() - start)


def ridge(pool: Pool, seeds: int) -> None:
    """AFL: W and C in float32, accumulated record by record as the authors' code does; no counts."""
    for gamma in (0.1, 1.0, 100.0):
        for size in (8, 16, 32):
            start, found = time.process_time(), []
            for seed in range(seeds):
                features, labels = pool.client(size, seed)
                moment = gamma * np.eye(features.shape[1], dtype=np.float32)
                products = np.zeros((CLASSES, features.shape[1]), np.float32)
                for row, label in zip((SCALE * features).astype(np.float32), labels, strict=True):
                    moment += np.outer(row, row)
                    products[label] += row
                weights = np.linalg.solve(moment.astype(np.float64), products.T.astype(np.float64)).T
                fields: dict[FieldKind, Any] = {"ridge_weights": weights, "regularised_gram": moment}
                found.append(errors(attacked((sent(fields, np.float32),)), SCALE * features))
            line(f"{gamma} | {size}", found, time.process_time() - start)


def dense(pool: Pool, seeds: int) -> None:
    """Signed features, whole and through a public projection, against what needs no message."""
    own = pool.features[:HELD]
    for projected in (0, 256):
        matrix = np.random.default_rng(1).standard_normal((own.shape[1], projected)) / math.sqrt(own.shape[1])
        known = pool.attacker
        for size in (4, 8, 16):
            start, found, turned, nearest = time.process_time(), [], [], []
            for seed in range(seeds):
                whole, labels = pool.client(size, seed)
                features, mine = (whole @ matrix, own @ matrix) if projected else (whole, own)
                messages = (sent(sums(features, labels * 0, counts=True), np.float64),)
                if projected:
                    field = MessageField(matrix, "projection", public())
                    messages = (Message(0, SERVER, "client/0", {"R": field}), *messages)
                mean = features.mean(axis=0)
                found.append(errors(attacked(messages, known, trust=1e9), features, mean))
                turned.append(_turned(features, seed))
                nearest.append(_nearest(features, mine))
            line(f"{projected or 'none'} | {size}", found, time.process_time() - start)
            others = [float(np.median(np.concatenate(each))) for each in (turned, nearest)]
            print(f"| random rotation {others[0]:.2f}, client mean 1, nearest own {others[1]:.2f} |", flush=True)


def _turned(features: Matrix, seed: int) -> Matrix:
    """Errors of vectors with the same second moment and sum, rotated at random."""
    rng, size = np.random.default_rng(seed), len(features)
    basis = np.linalg.qr(np.column_stack([np.ones(size), rng.standard_normal((size, size - 1))]))[0][:, 1:]
    turn = np.linalg.qr(rng.standard_normal((size - 1, size - 1)))[0]
    mean = features.mean(axis=0)
    other = mean + basis @ turn @ basis.T @ (features - mean)
    apart = np.linalg.norm(other[:, None] - features, axis=2) / np.linalg.norm(features - mean, axis=1)
    rows, columns = linear_sum_assignment(apart)
    return np.asarray(apart[rows, columns])


def _nearest(features: Matrix, own: Matrix) -> Matrix:
    squares = (features**2).sum(axis=1)[:, None] + (own**2).sum(axis=1) - 2 * features @ own.T
    apart = np.sqrt(np.maximum(squares, 0)).min(axis=1)
    return np.asarray(apart / np.linalg.norm(features - features.mean(axis=0), axis=1))


def noise(pool: Pool, seeds: int) -> None:
    """One joint Gaussian mechanism at epsilon 8, delta 1e-5."""
    width = pool.features.shape[1]
    sensitivity = shared_sums_sensitivity(
        width, adjacency="add_remove", classes=CLASSES, nonnegative=False, weights=(1.0, 1.0, 1.0)
    ).sensitivity
    sigma = calibrate_sigma(8.0, 1e-5, sensitivity)
    release = Release(
        mechanism="gaussian", adjacency="add_remove", noise_scale=(sigma,), sensitivity=(sensitivity,)
    )
    for size in (8, 32, 128):
        start, found = time.process_time(), []
        for seed in range(seeds):
            features, labels = pool.client(size, seed)
            door = FreeNoise(np.random.default_rng(seed))
            noised = release_shared_sums(features, labels, CLASSES, sigmas=(sigma, sigma, sigma), noise=door)
            fields: dict[FieldKind, Any] = {"class_sums": noised.sums, "second_moment": noised.second}
            result = attacked((sent(fields, np.float64, release),))
            found.append(errors(result, clip_features(features)))
        line(f"{size}", found, time.process_time() - start)


PARTS: dict[str, Callable[[Pool, int], None]] = {
    "share": share,
    "ratio": ratio,
    "phase": phase,
    "ridge": ridge,
    "dense": dense,
    "noise": noise,
}


def load(data: str, *, signed: bool) -> Pool:
    """SqueezeNet's features at 64 pixels; `signed`: those before its last rectifiers."""
    root = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("FEDASSAY_DATA", root / "data"))
    weights = Path(os.environ.get("FEDASSAY_WEIGHTS", root / "weights"))
    images, labels = dict(_images(folder, data))["all"]
    made = build(
        BackboneRequest(
            name="squeezenet1_1",
            weights=str((weights / "squeezenet1_1_imagenet_features.pt").resolve()),
            input_size=64,
            image_shape=tuple(images.shape[1:]),
            classes=CLASSES,
            public=None,
            seed=0,
            device="cpu",
            base=Path.cwd(),
        )
    )
    if signed:
        from torch import nn

        last = [part for part in made.module.modules() if hasattr(part, "expand1x1_activation")][-1]
        last.expand1x1_activation = last.expand3x3_activation = nn.Identity()
    return Pool(made.features(images).astype(np.float64) / SCALE, labels)


def _images(folder: Path, data: str) -> Iterator[tuple[str, tuple[Any, Labels]]]:
    if data == "cifar10":
        with np.load(folder / "cifar10_subset.npz", allow_pickle=False) as archive:
            yield "all", (archive["x_train"][:8000], archive["y_train"][:8000].astype(np.int64))
        return
    raw = folder / "FashionMNIST" / "raw"
    with gzip.open(raw / "train-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28, 1)[:8000]
    with gzip.open(raw / "train-labels-idx1-ubyte.gz") as file:
        yield "all", (images, np.frombuffer(file.read(), np.uint8, offset=8)[:8000].astype(np.int64))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--data", choices=("cifar10", "fashion_mnist"), default="cifar10")
    given = parser.parse_args()
    pool = (
        Pool(np.zeros((0, 1)), np.zeros(0, np.int64))
        if given.part == "phase"
        else load(given.data, signed=given.part == "dense")
    )
    print(f"\n### {given.part}, {given.data}: case | clients | below 1e-3 | 95 % | below .1 | median | s\n")
    PARTS[given.part](pool, given.seeds)


if __name__ == "__main__":
    main()
