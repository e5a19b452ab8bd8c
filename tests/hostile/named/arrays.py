"""Archives of NumPy arrays: of images, and of features."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from material import DRY, RUN, Case, Kind, Special, archive, features_npz, features_plan, images_npz, own_plan

from named.parts import FIFO, FOLDER, ZERO, zipped


def _npy(head: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = head.encode("latin1") + b"\n"
    length = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + version + length + text + data


def cases() -> Iterator[Case]:
    """Archives that are broken as such, then arrays that are no images and features of theirs."""

    def make(kind: Kind, name: str, content: bytes | Special) -> Iterator[Case]:
        plan = own_plan("npz", "in.npz") if kind == "npz" else features_plan()
        for args in (DRY, RUN):
            yield Case(kind, f"{name}, {args[2]}", args, {"plan.yaml": plan, "in.npz": content})

    for name, content in _broken("x", "y", images_npz()["x"]):
        yield from make("npz", name, content)
    for name, content in _broken("features", "labels", features_npz()["features"]):
        yield from make("features", name, content)
    for kind, sound, wrong in (
        ("npz", images_npz(), _wrong_images),
        ("features", features_npz(), _wrong_features),
    ):
        for name, given in wrong(sound).items():
            yield from make(kind, name, archive(**{**sound, **given}))


def _broken(first: str, second: str, values: np.ndarray) -> Iterator[tuple[str, bytes | Special]]:
    """Archives of two arrays, one row and one label a record, that cannot be unpacked or should not be."""
    held = archive(**{first: values, second: np.arange(len(values)) % 2})
    y = _npy("{'descr': '<i8', 'fortran_order': False, 'shape': (4,), }", bytes(32))
    heads = {
        "a shape of 10^12": "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000, 8, 8), }",
        "a shape of 10^400": f"{{'descr': '|u1', 'fortran_order': False, 'shape': (1{'0' * 400},), }}",
        "a negative shape": "{'descr': '|u1', 'fortran_order': False, 'shape': (-4, 8, 8), }",
        "a shape that is text": "{'descr': '|u1', 'fortran_order': False, 'shape': 'x', }",
        "a shape of booleans": "{'descr': '|u1', 'fortran_order': False, 'shape': (True, 8, 8), }",
        "a shape of 1,000 sides": f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({'1, ' * 1000}), }}",
        "a type that is none": "{'descr': 'spam', 'fortran_order': False, 'shape': (4,), }",
        "a type of nothing": "{'descr': '|V0', 'fortran_order': False, 'shape': (4, 8, 8), }",
        "a structured type": "{'descr': [('a', '<i4'), ('b', '<f8')], 'fortran_order': False, 'shape': (4,), }",
        "a type with a bad tuple": "{'descr': ('a', 3, 5, 'x'), 'fortran_order': False, 'shape': (4,), }",
        "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (4,), }",
        "dates": "{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (4,), }",
        "code": "__import__('os').system('touch owned')",
        "nesting": "(" * 3000,
        "a key too many": "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), 'x': 1}",
        "a long header": "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }" + " " * 60_000,
    }
    for name, head in heads.items():
        yield name, zipped({f"{first}.npy": _npy(head, bytes(256)), f"{second}.npy": y})
        yield (
            f"labels: {name}",
            zipped({f"{first}.npy": _member(values[:4]), f"{second}.npy": _npy(head, bytes(32))}),
        )
    long = _npy("{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }" + " " * 10_000_000, b"", b"\x02\x00")
    yield "a header of 10 MB", zipped({f"{first}.npy": long, f"{second}.npy": y})
    zeros = np.zeros((3000, 512, 512) if values.ndim > 2 else (3000, 1 << 16), values.dtype)
    yield (
        "a bomb that unpacks to 750 MB",
        zipped({f"{first}.npy": _member(zeros), f"{second}.npy": _member(np.arange(3000) % 2)}),
    )
    yield "nothing", b""
    yield "text", b"text"
    yield "cut short", held[:-30]
    yield "a broken checksum", held.replace(values.tobytes()[:20], b"\1" * 20, 1)
    yield "200,000 members", zipped({f"m{i}": b"" for i in range(60_000)}, zipfile.ZIP_STORED)
    yield "an array twice", _twice(first)
    yield "an array .npy of its own", _member(values)
    yield "3 GB of nothing", Special("sparse", "PK", 3 << 30)
    yield "a named pipe", FIFO
    yield "a device", ZERO
    yield "a folder", FOLDER
    yield "a link to itself", Special("link", "in.npz")


def _wrong_images(sound: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        "floats": {"x": sound["x"] / 255.0},
        "NaN": {"x": np.full((40, 8, 8), np.nan)},
        "no images": {"x": sound["x"][:0], "y": sound["y"][:0]},
        "no pixels": {"x": sound["x"][:, :0]},
        "images of one side": {"x": sound["x"][:, 0]},
        "5 channels": {"x": np.zeros((40, 8, 8, 5), np.uint8)},
        "labels of 2^64": {"y": np.full(40, 2**64 - 1, np.uint64)},
        "labels that are text": {"y": np.array(["a", "b"] * 20)},
        "labels of two sides": {"y": np.zeros((40, 2), int)},
        "fewer labels": {"y": sound["y"][:3]},
        "every record a class": {"y": np.arange(40)},
        "one class": {"y": np.zeros(40, int)},
        "x_train too": {"x_train": sound["x"]},
        "x_test alone": {"x_test": sound["x"]},
        "domains that are text": {"domain": np.array(["a"] * 40)},
        "Fortran order": {"x": np.asfortranarray(sound["x"])},
        "a scalar": {"x": np.uint8(3)},
        "labels that are a scalar": {"y": np.int64(3)},
    }


def _wrong_features(sound: dict[str, Any]) -> dict[str, dict[str, Any]]:
    rows, labels = sound["features"], sound["labels"]
    return {
        "integers": {"features": np.arange(400).reshape(40, 10)},
        "NaN": {"features": np.full_like(rows, np.nan)},
        "one infinite value": {"features": np.where(np.arange(400).reshape(40, 10) == 7, np.inf, rows)},
        "beyond float32": {"features": np.full(rows.shape, 1e300)},
        "complex": {"features": rows.astype(complex)},
        "no records": {"features": rows[:0], "labels": labels[:0]},
        "no columns": {"features": rows[:, :0]},
        "a million columns": {"features": np.zeros((2, 1_000_000), np.float32), "labels": labels[:2]},
        "one side": {"features": rows[:, 0]},
        "three sides": {"features": rows[:, :, None]},
        "a scalar": {"features": np.float32(3)},
        "Fortran order": {"features": np.asfortranarray(rows)},
        "labels of 2^64": {"labels": np.full(40, 2**64 - 1, np.uint64)},
        "labels that are text": {"labels": np.array(["a", "b"] * 20)},
        "labels of two sides": {"labels": np.zeros((40, 2), int)},
        "fewer labels": {"labels": labels[:3]},
        "every record a class": {"labels": np.arange(40)},
        "one class": {"labels": np.zeros(40, int)},
        "a name too many": {"embeddings": rows},
        "images of other records": {"images": np.zeros((3, 8, 8), np.uint8)},
        "images one pixel high": {"images": np.zeros((40, 1, 8), np.uint8)},
        "images of floats": {"images": np.zeros((40, 8, 8))},
        "groups of other records": {"groups": np.zeros(3, int)},
        "groups that are text": {"groups": np.array(["a"] * 40)},
        "one person": {"groups": np.zeros(40, int)},
        "test labels alone": {"test_labels": labels},
        "a test set of another width": {"test_features": rows[:, :3], "test_labels": labels},
        "images in the training set alone": {
            "images": np.zeros((40, 8, 8), np.uint8),
            "test_features": rows,
            "test_labels": labels,
        },
    }


def _member(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array)
    return stream.getvalue()


def _twice(name: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            made.writestr(f"{name}.npy", _member(np.zeros((4, 8, 8), np.uint8)))
    return stream.getvalue()
