"""Archives of NumPy arrays."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from material import DRY, RUN, Case, Special, archive, images_npz, own_plan

from named.parts import FIFO, FOLDER, ZERO, zipped


def _npy(head: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = head.encode("latin1") + b"\n"
    length = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + version + length + text + data


def cases() -> Iterator[Case]:
    def make(name: str, content: bytes | Special) -> Iterator[Case]:
        for args in (DRY, RUN):
            yield Case(
                "npz", f"{name}, {args[2]}", args, {"plan.yaml": own_plan("npz", "in.npz"), "in.npz": content}
            )

    sound = images_npz()
    held = archive(**sound)
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
        yield from make(name, zipped({"x.npy": _npy(head, bytes(256)), "y.npy": y}))
        yield from make(
            f"labels: {name}",
            zipped({"x.npy": _member(sound["x"][:4]), "y.npy": _npy(head, bytes(32))}),
        )
    long = _npy("{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }" + " " * 10_000_000, b"", b"\x02\x00")
    yield from make("a header of 10 MB", zipped({"x.npy": long, "y.npy": y}))
    zeros = np.zeros((3000, 512, 512), np.uint8)
    yield from make(
        "a bomb that unpacks to 750 MB", zipped({"x.npy": _member(zeros), "y.npy": _member(np.arange(3000) % 2)})
    )
    yield from make("nothing", b"")
    yield from make("text", b"text")
    yield from make("cut short", held[:-30])
    yield from make("a broken checksum", held.replace(sound["x"].tobytes()[:20], b"\1" * 20, 1))
    yield from make("200,000 members", zipped({f"m{i}": b"" for i in range(60_000)}, zipfile.ZIP_STORED))
    yield from make("an array twice", _twice())
    yield from make("an array .npy of its own", _member(sound["x"]))
    yield from make("3 GB of nothing", Special("sparse", "PK", 3 << 30))
    yield from make("a named pipe", FIFO)
    yield from make("a device", ZERO)
    yield from make("a folder", FOLDER)
    yield from make("a link to itself", Special("link", "in.npz"))
    arrays: dict[str, dict[str, Any]] = {
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
    for name, given in arrays.items():
        yield from make(name, archive(**{**sound, **given}))


def _member(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array)
    return stream.getvalue()


def _twice() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            made.writestr("x.npy", _member(np.zeros((4, 8, 8), np.uint8)))
    return stream.getvalue()
