"""The arrays of captured messages."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from material import AUDIT, Case, Material, as_json
from safetensors.numpy import save as save_tensors

from named.parts import header


def _one(kind: str, values: np.ndarray, name: str, classes: int = 10, **more: tuple[str, np.ndarray]) -> Case:
    """A transcript of one message with these fields."""
    held = {"f": (kind, values), **more}
    fields = {key: {"kind": what, "release": {"mechanism": "exact"}} for key, (what, _) in held.items()}
    message = {"round": 0, "sender": "client/0", "file": "0.safetensors", "fields": fields}
    tree = {"format": 1, "method": "m", "classes": classes, "messages": [message]}
    data = save_tensors({key: np.ascontiguousarray(array) for key, (_, array) in held.items()})
    return Case("transcript", name, AUDIT, {"in/transcript.json": as_json(tree), "in/0.safetensors": data})


def cases(material: Material) -> Iterator[Case]:
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(512, 512)).astype(np.float32)
    yield _one("second_moment", wide @ wide.T, "a moment of width 512")
    yield _one("second_moment", np.zeros((6000, 6000), np.uint8), "a moment of width 6,000, of zeros")
    yield _one(
        "second_moment", np.zeros(24_506_000, np.uint8)[: 7000 * 7001 // 2], "a packed moment of width 7,000"
    )
    yield _one("class_sums", rng.normal(size=(2, 200_000)), "sums of width 200,000", classes=2)
    yield _one("features", rng.normal(size=(200_000, 8)), "200,000 features")
    yield _one(
        "class_means",
        rng.normal(size=(60, 160)),
        "60 covariances of width 160",
        60,
        c=("class_covariances", np.ones((60, 160, 160))),
        n=("class_counts", np.full(60, 5.0)),
    )
    yield _one("mixture_means", np.zeros((0, 0)), "a mixture of nothing")
    yield _one("class_sums", np.zeros((10, 0)), "sums of width 0")
    yield _one("second_moment", np.zeros((0, 0)), "a moment of width 0")
    yield _one("second_moment", np.full((4, 4), 1e308), "a moment that overflows")
    yield _one("class_sums", np.full((10, 4), 1e308), "sums that overflow", n=("class_counts", np.ones(10)))
    yield _one("class_counts", np.full(10, -5.0), "negative counts")
    yield _one("labels", np.full(10, 2**62), "labels of 2^62")
    yield _one("component_counts", np.full(10, 2**62), "component counts of 2^62")
    yield _one("features", np.zeros((3, 4), bool), "features that are booleans")
    yield _one("magnitude_mean", np.zeros(3), "a magnitude of one side")
    yield _one("class_counts", np.float64(3.0), "counts without a side")
    yield _one("class_counts", np.ones(100_000), "100,000 classes", classes=100_000)
    tree, make = material.transcript, material.transcript_case
    first = tree["messages"][0]
    file, names = f"in/{first['file']}", [*first["fields"]]

    def tensor(shape: list[int], size: int, dtype: str = "U8") -> dict[str, Any]:
        return {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}

    big = 60_000**2
    only = {
        **tree,
        "messages": [{**first, "fields": {"f": {"kind": "second_moment", "release": {"mechanism": "exact"}}}}],
    }
    yield make("a moment of width 60,000", only, {file: header({"f": tensor([60_000, 60_000], big)}, big)})
    yield make(
        "a message of 3 GiB that declares little", tree, {file: header({names[0]: tensor([1], 1)}, 3 << 30)}
    )
    yield make("a shape of 2^62", only, {file: header({"f": tensor([2**62], 1)}, 1)})
    yield make("a shape whose product overflows", only, {file: header({"f": tensor([2**32, 2**32], 0)}, 0)})
    yield make("a shape of a million sides", only, {file: header({"f": tensor([1] * 1_000_000, 1)}, 1)})
    yield make("a shape of 100 sides", only, {file: header({"f": tensor([1] * 100, 1)}, 1)})
    yield make("a type that NumPy has not", only, {file: header({"f": tensor([2], 2, "F8_E4M3")}, 2)})
    yield make("bfloat16", only, {file: header({"f": tensor([2, 2], 8, "BF16")}, 8)})
    yield make("an unknown type", only, {file: header({"f": tensor([2], 2, "X9")}, 2)})
    yield make("a header that is a list", only, {file: header([])})
    yield make("a header that is no JSON", only, {file: header("{")})
    yield make("a header of nesting", only, {file: header('{"f": ' + "[" * 100_000)})
    many = {f"t{i}": tensor([0], 0) for i in range(300_000)}
    yield make("300,000 arrays", only, {file: header(many)})
    yield make(
        "metadata of 20 MB", only, {file: header({"__metadata__": {"a": "x" * (20 << 20)}, "f": tensor([0], 0)})}
    )
    yield make("a header longer than the file", tree, {file: struct.pack("<Q", 2**63) + b"{}"})
    yield make("a pickle", tree, {file: pickle.dumps({"a": 1})})
    yield make("an empty message", tree, {file: b""})
    yield make("NaN", only, {file: save_tensors({"f": np.full((4, 4), np.nan)})})
