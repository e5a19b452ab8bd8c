"""The cells that the oracles run: private methods on a hundred digits at two clients, and pairs of neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from catalogue import plans
from leaks import DELTA, EPSILON, Pair, Row, Run, row_of

SAME, ADDED, REPLACED = "replace_one_same_label", "add_remove", "replace_one"
CASES: dict[str, str] = {
    "fedcgs": ADDED,
    "fedcgs-replace-one": REPLACED,
    "fedcgs-expansion": ADDED,
    "fedcgs-float32": ADDED,
    "fedpft": SAME,
    "fedpft-spherical": SAME,
    "fedpft-sums": ADDED,
    "fedpft-chain": SAME,
    "fedlog": ADDED,
    "afl": ADDED,
    "fed3r": ADDED,
    "fed3r-assembled": ADDED,
    "one_shot_ridge": ADDED,
    "fedcof": REPLACED,
    "fedncm": ADDED,
    "fedsgd": ADDED,
}
"""Plans of `plans.toml` whose methods the oracle of leaks runs, and their adjacencies."""

SHORT: dict[str, Any] = {"head": {"solver": "adam", "epochs": 1}}
"""FedPFT's head, trained for one pass: it is made of what was sent."""

RECORDS, CLIENTS = 120, 2
LONE, OTHER = 7, 8
"""Classes that the first client has no record of in the second pair of data sets, but the one that differs."""


def configured(case: str) -> tuple[str, dict[str, Any]]:
    """The method of a cell and its parameters."""
    plan = plans().get(case, {"method": case})
    short = SHORT if plan["method"].startswith("fedpft") else {}
    return plan["method"], {**plan.get("parameters", {}), **short}


@dataclass(frozen=True)
class Digits:
    """scikit-learn's digits in an order that is not the writers'."""

    images: Any
    labels: Any


@cache
def digits() -> Digits:
    """All of them, images (n, 8, 8, 1) in 0 to 255."""
    from sklearn.datasets import load_digits

    held = load_digits()
    order = np.random.default_rng(0).permutation(len(held.target))
    images = np.rint(held.images * (255 / 16)).astype(np.uint8)[order, ..., None]
    return Digits(images, held.target.astype(np.int64)[order])


def _image(*, rows: slice = slice(None), columns: slice = slice(None)) -> Any:
    """An image (1, 8, 8, 1) that is white there and black elsewhere."""
    image = np.zeros((1, 8, 8, 1), np.uint8)
    image[:, rows, columns] = 255
    return image


def pairs(adjacency: str) -> list[Pair]:
    """Two pairs of neighbouring data sets: one record more among many, and the only one of its class.

    Replaced records have no pixel in common.
    """
    held, size = digits(), RECORDS // CLIENTS
    one, two = _image(rows=slice(0, 4)), _image(rows=slice(4, 8))
    dot, other = _image(rows=slice(0, 1), columns=slice(0, 1)), _image(rows=slice(5, 6), columns=slice(3, 4))
    bare = ~np.isin(held.labels, (LONE, OTHER))
    many = (held.images[:size], held.labels[:size])
    few = (held.images[bare][:size], held.labels[bare][:size])
    rest = (held.images[size : 2 * size], held.labels[size : 2 * size])

    def with_(base: tuple[Any, Any], image: Any, label: int) -> list[tuple[Any, Any]]:
        images, labels = base
        return [(np.concatenate([images, image]), np.append(labels, label)), rest]

    if adjacency == ADDED:
        return [
            ([many, rest], with_(many, _image(), 3)),
            ([few, rest], with_(few, dot, LONE)),
        ]
    second = 4 if adjacency == REPLACED else 3
    last = OTHER if adjacency == REPLACED else LONE
    return [
        (with_(many, one, 3), with_(many, two, second)),
        (with_(few, dot, LONE), with_(few, other, last)),
    ]


@cache
def pixels() -> Any:
    from fedassay.backbones import build
    from fedassay.backbones.base import BackboneRequest
    from fedassay.data.images import ImageSet

    held = digits()
    public = ImageSet(held.images[1200:1500], held.labels[1200:1500], tuple(str(i) for i in range(10)))
    return build(
        BackboneRequest(
            name="pixels",
            weights=None,
            input_size=None,
            image_shape=(8, 8, 1),
            classes=10,
            public=public,
            seed=0,
            device="cpu",
            base=Path(),
        )
    )


def runner(method: str, parameters: dict[str, Any], adjacency: str) -> Run:
    """Runs a method of the package that is imported."""
    from dataclasses import dataclass as frozen

    from fedassay.contracts.method import MethodInput
    from fedassay.data.records import Records
    from fedassay.exchange.release import PrivacyTarget
    from fedassay.support.progress import SILENT
    from fedassay.support.registry import lookup
    from fedassay.support.seeds import Seeds

    @frozen(frozen=True)
    class Asked(MethodInput):
        root: int = 0

        @property
        def noise(self) -> Seeds:  # type: ignore[override]
            return Seeds(self.root).child("oracle")

    held, extractor = digits(), pixels()

    def records(name: str, images: Any, labels: Any) -> Records:
        return Records(name, images, labels, extractor.extract)

    test = records("test", held.images[1500:1550], held.labels[1500:1550])
    public = records("public", held.images[1200:1300], held.labels[1200:1300])

    def run(side: Any, root: int, shared: bool) -> Row:
        task = Asked(
            clients=tuple(records(f"client/{place}", *own) for place, own in enumerate(side)),
            test=test,
            public=public,
            classes=10,
            backbone=extractor,
            privacy=PrivacyTarget(epsilon=EPSILON, delta=DELTA, adjacency=adjacency),
            seeds=Seeds(0),
            device="cpu",
            progress=SILENT,
            simulated=shared,
            other=str(root),
            root=root,
        )
        return row_of(lookup("method", method)(**parameters).run(task).transcript)

    return run
