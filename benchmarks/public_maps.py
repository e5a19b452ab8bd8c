"""What public maps of features cost and protect: the table of docs/closed_forms.md.

    python benchmarks/public_maps.py PART [--seeds 8] [--data cifar10] [--weights imagenet]

SqueezeNet 1.1 at 64 pixels, 12,000 training and 2,500 test images, features over 128. `accuracy`: heads of 5,600
records at 10 clients on the test records, with Clopper-Pearson intervals. `attack`: the Gram attack with 6,400 own
images on clients whose records count as one class; errors relative to a record's distance from its client's mean:
median over records, its bootstrap interval over clients, the share below 1e-3, the medians of a random rotation
and of the nearest own feature. Bandwidths are in median distances between features.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import public_data
from gram_limits import CLASSES, HELD, SCALE, _nearest, _turned, errors
from numpy.typing import NDArray

from fedassay.attacks.gram.attack import GramFactorization
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.backbones.base import Backbone
from fedassay.contracts.attack import Knowledge
from fedassay.contracts.method import Method, MethodInput
from fedassay.data.records import Records
from fedassay.exchange.public_map import as_summed
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.view import ThreatModel, view
from fedassay.methods.closed_forms.fed3r import Fed3R
from fedassay.methods.closed_forms.gh_ofl import GHOFL
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

Matrix = NDArray[np.float64]

TRAIN, TEST = 12_000, 2500
"""Images that are taken."""


@dataclass(frozen=True)
class Table:
    """Features of images, which stand in for them: an image holds the number of its row."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    backbone: Backbone

    def records(self, name: str, rows: NDArray[np.int64], *, labelled: bool = True) -> Records:
        """Records of these rows; of one class where they are not to be told by their labels."""
        images = np.ascontiguousarray(rows.astype("<u4")).view(np.uint8).reshape(len(rows), 1, 4, 1)
        labels = self.labels[rows] if labelled else np.zeros(len(rows), np.int64)
        return Records(name, images, labels, lambda given: self.features[_rows(given)])

    @property
    def distance(self) -> float:
        """Median distance between the attacker's features."""
        some = self.features[:1000].astype(np.float64)
        squares = (some**2).sum(axis=1)
        apart = squares[:, None] + squares - 2 * some @ some.T
        return float(np.sqrt(np.median(apart[np.triu_indices(len(some), 1)])))


def _rows(images: NDArray[np.uint8]) -> NDArray[np.int64]:
    return np.ascontiguousarray(images.reshape(len(images), 4)).view("<u4").ravel().astype(np.int64)


def load(data: str, weights: str) -> Table:
    """Training images first, then test images."""
    images, labels = public_data.in_two(data, TRAIN, TEST)
    made = public_data.backbone("squeezenet1_1", weights, public_data.SIZE, images, CLASSES)
    return Table((made.features(images) / SCALE).astype(np.float32), labels, made)


def task(table: Table, clients: tuple[Records, ...], test: Records, epsilon: float, seed: int) -> MethodInput:
    """One run of a method."""
    privacy = PrivacyTarget(epsilon=epsilon, delta=1e-5, adjacency="add_remove")
    return MethodInput(clients, test, None, CLASSES, table.backbone, privacy, Seeds(seed), "cpu", SILENT)


def methods(
    table: Table, widths: tuple[int, ...], times: tuple[int, ...], head: dict[str, Any]
) -> dict[str, Method]:
    """What is compared."""
    made: dict[str, Method] = {"`fed3r`": Fed3R(transport="float64"), "`gh_ofl`": GHOFL(**head)}
    for size in widths:
        for wide in times:
            made[f"`fed3r`, {size} random features, bandwidth {wide}"] = Fed3R(
                random_features=size, bandwidth=wide * table.distance, transport="float64"
            )
    return made | {f"`gh_ofl`, sketch {size}": GHOFL(sketch=size, **head) for size in (128, 256)}


def accuracy(table: Table, seeds: int) -> None:
    """Of the heads, at two epsilons."""
    del seeds
    rows = np.arange(HELD, TRAIN)
    clients = tuple(table.records(f"client/{i}", part) for i, part in enumerate(np.array_split(rows, 10)))
    test = table.records("test", np.arange(TRAIN, len(table.labels)))
    for name, method in methods(table, (512, 2048), (1, 3, 10), {"head": "lda"}).items():
        line = f"| {name} |"
        for epsilon in (float("inf"), 8.0):
            model = method.run(task(table, clients, test, epsilon, 0)).model
            right = 0 if model is None else int((model.predict(test) == test.labels).sum())
            ends = clopper_pearson(right, len(test))
            line += f" {right / len(test):.3f} ({ends.low:.3f} to {ends.high:.3f}) |"
        print(line, flush=True)


def attack(table: Table, seeds: int) -> None:
    """Errors of the Gram attack through the same map."""
    own = table.records("attacker", np.arange(HELD))
    known = Knowledge(own, CLASSES, None, False, Seeds(0), "cpu", SILENT)
    for name, method in methods(table, (512, 1024), (1, 3), {}).items():
        for size in (4, 8, 16):
            found, turned, nearest = [], [], []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                rows = HELD + rng.choice(TRAIN - HELD, size, replace=False)
                client = table.records("client/0", np.sort(rows), labelled=False)
                seen = view(method.run(replace(task(table, (client,), own, np.inf, 0))).transcript, ThreatModel())
                result = GramFactorization(trust=1e9).run(seen, known)
                width = result.artifacts["vectors"].shape[1]
                truth, mine = (as_summed(seen, each.features, width) for each in (client, own))
                assert truth is not None
                assert mine is not None
                found.append(errors(result, truth, truth.mean(axis=0)))
                turned.append(_turned(truth, seed))
                nearest.append(_nearest(truth, mine))
            low, high = _interval(found)
            middle, exact = np.median(np.concatenate(found)), np.mean(np.concatenate(found) < 1e-3)
            others = " | ".join(f"{np.median(np.concatenate(each)):.2f}" for each in (turned, nearest))
            print(
                f"| {name} | {size} | {middle:.2g} | {low:.2g} to {high:.2g} | {exact:.2f} | {others} |",
                flush=True,
            )


def _interval(found: list[Matrix]) -> tuple[float, float]:
    """Percentile bootstrap of the median over clients, at 95 %."""
    rng = np.random.default_rng(0)
    drawn = [
        np.median(np.concatenate([found[i] for i in rng.integers(len(found), size=len(found))]))
        for _ in range(2000)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", choices=("accuracy", "attack"))
    parser.add_argument("--seeds", type=int, default=8)
    public_data.add_arguments(parser)
    given = parser.parse_args()
    {"accuracy": accuracy, "attack": attack}[given.part](load(given.data, given.weights), given.seeds)


if __name__ == "__main__":
    public_data.ended(main)
