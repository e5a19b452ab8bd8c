"""Files that nobody should trust, each with a part of the message that refuses it."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch


class Trap:
    """Would write a file where it is loaded."""

    def __init__(self, where: Path) -> None:
        self.where = where

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.where,)


def _truncated(base: Path, name: str) -> Path:
    path = base / name
    save = {"npz": np.savez, "npy": lambda file, a: np.save(file, a)}.get(path.suffix[1:])
    if save is not None:
        save(path, np.arange(1000.0))
    else:
        torch.save({"a": torch.arange(1000.0)}, path)
    path.write_bytes(path.read_bytes()[:-400])
    return path


def _packed(base: Path, name: str, member: str, head: bytes) -> Path:
    with zipfile.ZipFile(base / name, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, head + bytes(100 << 20))
    return base / name


def _header(shape: tuple[int, ...]) -> bytes:
    made = io.BytesIO()
    np.lib.format.write_array_header_1_0(made, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return made.getvalue()


def _written(base: Path, name: str, content: bytes | str) -> Path:
    (base / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return base / name


def _saved(base: Path, name: str, **arrays: object) -> Path:
    np.savez(base / name, **arrays)  # type: ignore[arg-type]
    return base / name


def _torch(base: Path, name: str, held: object) -> Path:
    torch.save(held, base / name)
    return base / name


def _linked(base: Path) -> Path:
    (base / "folder").mkdir()
    (base / "folder" / "a.npz").symlink_to("/etc/hostname")
    return base / "folder"


HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "truncated npz": (lambda b: _truncated(b, "a.npz"), "no sound .npz archive"),
    "truncated npy": (lambda b: _truncated(b, "a.npy"), "not the size it has"),
    "truncated pt": (lambda b: _truncated(b, "a.pt"), "cannot be read"),
    "objects in npz": (lambda b: _saved(b, "a.npz", a=np.array([{}], object)), "pickled Python objects"),
    "trap in npz": (lambda b: _saved(b, "a.npz", a=np.array([Trap(b / "ran")], object)), "pickled Python objects"),
    "texts in npz": (lambda b: _saved(b, "a.npz", a=np.array(["x"])), "allowed: real numbers"),
    "complex in npz": (lambda b: _saved(b, "a.npz", a=np.zeros(2, complex)), "allowed: real numbers"),
    "NaN in npz": (lambda b: _saved(b, "a.npz", a=np.array([np.nan])), "NaN or infinite"),
    "nothing in npz": (lambda b: _saved(b, "a.npz"), "no array of numbers"),
    "bomb in npz": (lambda b: _packed(b, "a.npz", "a.npy", _header((100 << 20,))), "unpacks from"),
    "bomb in pt": (lambda b: _packed(b, "a.pt", "archive/data/0", b""), "unpacks to"),
    "promise in npy": (lambda b: _written(b, "a.npy", _header((1 << 40,))), "not the size it has"),
    "trap in pt": (lambda b: _torch(b, "a.pt", {"a": Trap(b / "ran")}), "not a file of plain tensors"),
    "trap as pt": (lambda b: _written(b, "a.pt", pickle.dumps(Trap(b / "ran"))), "not a file of plain tensors"),
    "module in pt": (lambda b: _torch(b, "a.pt", torch.nn.Linear(2, 2)), "not a file of plain tensors"),
    "expanded in pt": (lambda b: _torch(b, "a.pt", torch.zeros(1).expand(1 << 40)), "more numbers than the file"),
    "NaN in pt": (lambda b: _torch(b, "a.pt", {"a": torch.tensor([torch.nan])}), "NaN or infinite"),
    "pickle": (lambda b: _written(b, "a.pkl", pickle.dumps(Trap(b / "ran"))), "np.savez"),
    "joblib": (lambda b: _written(b, "a.joblib", pickle.dumps(Trap(b / "ran"))), "coef_=model.coef_"),
    "header of safetensors": (
        lambda b: _written(b, "a.safetensors", (1 << 40).to_bytes(8, "little") + b"{}"),
        "header would be",
    ),
    "NaN in JSON": (lambda b: _written(b, "a.json", '{"a": NaN}'), "no JSON of finite numbers"),
    "nested JSON": (lambda b: _written(b, "a.json", "[" * 50_000 + "]" * 50_000), "no JSON of finite numbers"),
    "digits in JSON": (lambda b: _written(b, "a.json", '{"a": ' + "9" * 5000 + "}"), "digits"),
    "broken JSON": (lambda b: _written(b, "a.json", '{"a": [1, 2'), "no JSON of finite numbers"),
    "words in CSV": (lambda b: _written(b, "a.csv", "client,mean\n1,abc\n"), "is no number"),
    "empty": (lambda b: _written(b, "a.npz", b""), "is empty"),
    "another format": (lambda b: _written(b, "a.h5", b"x"), "are not read"),
    "link": (_linked, "it is a link"),
}
