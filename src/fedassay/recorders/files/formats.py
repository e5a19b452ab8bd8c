"""Read one file as arrays by name; nothing in it is executed, and nothing is unpickled.

| ending | read as |
|---|---|
| `.npz`, `.npy` | NumPy arrays; those of records by their fields |
| `.safetensors` | arrays by name |
| `.pt`, `.pth`, `.bin`, `.ckpt` | tensors and numbers, nested or not (`torch.load(weights_only=True)`) |
| `.json` | numbers, lists and mappings, nested or not (of NVFlare: `fedassay.recorders.files.nvflare`) |
| `.pbuf` | a model of OpenFL (`fedassay.recorders.files.openfl`) |
| `.csv`, `.tsv`, `.txt` | a table (`fedassay.recorders.files.tables`) |
"""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.archive import open_archive, read_single
from fedassay.exchange.kinds import called
from fedassay.exchange.stored import UNREADABLE, arrays_in, declared_arrays
from fedassay.recorders.files.keys import BY_CLASS
from fedassay.recorders.files.nvflare import arrays_of_statistics, is_statistics
from fedassay.recorders.files.openfl import arrays_of_model
from fedassay.recorders.files.tables import arrays_of_table
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.reading import check_json, each_once, read_json, read_regular, regular_size
from fedassay.support.text import cut, shown

ENDINGS = (
    ".npz",
    ".npy",
    ".safetensors",
    ".pt",
    ".pth",
    ".bin",
    ".ckpt",
    ".json",
    ".pbuf",
    ".csv",
    ".tsv",
    ".txt",
)
_TORCH = (".pt", ".pth", ".bin", ".ckpt")
_PICKLES = (".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle")
_DEEP = 12
"""Mappings and lists inside each other; statistics of services go 5 deep."""
CLASS_NAMES = re.compile(r"(?i)(.*[./_])?(classes_?|class_(ids?|numbers?|names?)|target_names)")
"""Names of arrays that say which classes the rows of a model are."""
_HOLDS = "arrays of numbers, as np.savez(FILE, name=array) writes them"


@dataclass(frozen=True, eq=False)
class Leaf:
    """One array or one text of a file.

    Attributes:
        path: The keys that lead to it, from the outermost; an item of a list has its number with `#` before it.
        values: The array, or the text.
    """

    path: tuple[str, ...]
    values: NDArray[Any] | str


def read_file(path: Path, *, follow: bool = True) -> list[Leaf]:
    """Read the arrays and texts of a file.

    Args:
        path: The file.
        follow: Whether a link is followed: where the user named the file.

    Raises:
        DataError: The path is no regular file of a supported format, or the file is damaged or too large, or it
            holds pickled objects, NaN or infinity, or no array at all.
    """
    ending = path.suffix.lower()
    if ending in _PICKLES:
        raise DataError(
            f"{path}: a pickle, which runs code when it is loaded, and is never loaded here; save its arrays, "
            "as by np.savez('FILE.npz', **{name: array}), or for a model of scikit-learn "
            "np.savez('FILE.npz', coef_=model.coef_, intercept_=model.intercept_)"
        )
    if ending not in ENDINGS:
        raise DataError(f"{path}: files in {ending or 'no format'} are not read; allowed: {', '.join(ENDINGS)}")
    if not regular_size(path, limits.MESSAGE_BYTES, follow=follow):
        raise DataError(f"{path}: is empty (0 bytes)")
    found = list(_READERS.get(ending, _of_torch)(path))
    if len(found) > limits.ARRAYS:
        raise DataError(f"{path}: holds {len(found):,} arrays; allowed: {limits.ARRAYS:,}")
    arrays = [leaf for leaf in found if not isinstance(leaf.values, str)]
    for leaf in arrays:
        _check(leaf, path)
    if all(np.asarray(leaf.values).dtype.kind == "U" for leaf in found):
        raise DataError(f"{path}: holds no array of numbers")
    return found


def _check(leaf: Leaf, path: Path) -> None:
    """Refuse arrays that are no finite real numbers."""
    assert not isinstance(leaf.values, str)
    name, values = shown("/".join(leaf.path) or path.stem), leaf.values
    if values.dtype.kind == "U" and _of_classes(leaf.path) and values.ndim == 1 and len(values) <= limits.CLASSES:
        return
    if values.dtype.kind not in "biuf":
        raise DataError(f"{path}: {name} is of type {values.dtype}; allowed: real numbers")
    if values.ndim > limits.SIDES:
        raise DataError(f"{path}: {name} has {values.ndim} sides; allowed: {limits.SIDES}")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise DataError(f"{path}: {name} holds NaN or infinite values; every value must be finite")


def _of_classes(path: tuple[str, ...]) -> bool:
    """Whether texts under these keys are names of classes."""
    return bool(path) and CLASS_NAMES.fullmatch(path[-1]) is not None


def _of_archive(path: Path) -> Iterator[Leaf]:
    with open_archive(path, None, _HOLDS) as archive:
        for name in archive.headers:
            yield from _columns(tuple(name.split("/")), archive.read(name))


def _columns(path: tuple[str, ...], values: NDArray[Any]) -> Iterator[Leaf]:
    """Yield an array, texts in one type; for a structured array, one for each of its fields."""
    if values.dtype.names is None:
        texts = np.char.decode(values, "utf-8", "replace") if values.dtype.kind == "S" else values
        # A single text is a parameter of a model, such as its penalty.
        yield Leaf(path, str(texts) if texts.dtype.kind == "U" and not texts.ndim else texts)
        return
    for name in values.dtype.names:
        yield Leaf((*path, name), np.ascontiguousarray(values[name]))


def _of_safetensors(path: Path) -> Iterator[Leaf]:
    try:
        declared_arrays(path)
    except DataError:
        # NumPy has no bfloat16, in which adapters of language models come.
        with path.open("rb") as stream:
            if b'"BF16"' not in stream.read(limits.HEADER_BYTES):
                raise
        yield from _of_torch(path)
        return
    try:
        arrays = arrays_in(read_regular(path, limits.MESSAGE_BYTES))
    except UNREADABLE as error:
        raise DataError(f"{path}: not a safetensors file of NumPy types ({error})") from None
    for name, values in arrays.items():
        yield Leaf(tuple(name.split("/")), values)


def _of_torch(path: Path) -> Iterator[Leaf]:
    # This imports torch: other files are read without it.
    from fedassay.support.weights import load_tensors

    _check_packed(path)
    yield from _nested((), load_tensors(path), path)


def _check_packed(path: Path) -> None:
    """Refuse an archive that unpacks to more than its own size: torch stores tensors uncompressed."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > max(limits.UNPACKED_FREELY, 2 * path.stat().st_size):
        raise DataError(f"{path}: unpacks to {unpacked:,} bytes; allowed of such a file: twice its size")


def _of_json(path: Path) -> Iterator[Leaf]:
    content = read_json(path)
    check_json(content, path)

    def refused(constant: str) -> float:
        raise ValueError(f"{constant} in place of a finite number")

    try:
        held = json.loads(content, parse_constant=refused, object_pairs_hook=each_once)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is no JSON of finite numbers ({cut(str(error), limits.NAME_LENGTH)})") from None
    if is_statistics(held):
        for keys, values in arrays_of_statistics(held):
            yield Leaf(keys, values)
        return
    yield from _nested((), held, path)


def _of_model(path: Path) -> Iterator[Leaf]:
    for name, values in arrays_of_model(path):
        # Only OpenFL's aggregator writes such files.
        yield Leaf(("aggregator", *name.split("/")), values)


def _nested(at: tuple[str, ...], held: Any, path: Path) -> Iterator[Leaf]:
    """Yield the arrays, numbers and texts in nested mappings and lists."""
    if len(at) > _DEEP:
        raise DataError(f"{path}: holds more than {_DEEP} mappings and lists inside each other")
    if isinstance(held, Mapping):
        for key, value in held.items():
            yield from _nested((*at, *cut(str(key), limits.NAME_LENGTH).split("/")), value, path)
    elif hasattr(held, "detach"):
        yield Leaf(at, _of_tensor(held, f"{path}: {shown('/'.join(at) or path.stem)}"))
    elif isinstance(held, str):
        array = _rectangular([held]) if at and called(at[-1]) else None
        yield Leaf(at, held if array is None else array[0])
    elif isinstance(held, int | float):
        number = np.asarray(held)
        if number.dtype.kind == "O":
            raise DataError(
                f"{path}: {shown('/'.join(at))} holds {cut(str(held), 40)}; allowed: numbers of 64 bits"
            )
        yield Leaf(at, number)
    elif isinstance(held, list | tuple):
        yield from _of_list(at, held, path)


def _of_list(at: tuple[str, ...], held: list[Any] | tuple[Any, ...], path: Path) -> Iterator[Leaf]:
    named = _of_classes(at) and held and all(isinstance(each, str) for each in held)
    values = np.array(held, np.str_) if named else _rectangular(held)
    if values is not None:
        yield Leaf(at, values)
        return
    if None in held and any(isinstance(value, int | float | list) for value in held):
        where = shown("/".join(at) or path.stem)
        raise DataError(f"{path}: {where} holds null in place of a number; every value must be finite")
    rows = [_rectangular(value) for value in held if isinstance(value, list | tuple)]
    shapes = {str(row.shape): row for row in rows if row is not None}
    if at and BY_CLASS.intersection(called(at[-1])) and len(rows) == len(held) and len(shapes) > 1:
        raise DataError(
            f"{path}: {shown('/'.join(at))} has rows of shapes {', '.join(shapes)}; allowed: one shape"
        )
    for number, value in enumerate(held):
        yield from _nested((*at, f"#{number}"), value, path)


def _rectangular(held: list[Any] | tuple[Any, ...]) -> NDArray[Any] | None:
    """Numbers, or texts of such, in lists of equal lengths as an array; None for anything else."""
    first: Any = held
    while isinstance(first, list | tuple) and len(first):
        first = first[0]
    if not isinstance(first, int | float | str):
        return None
    try:
        values = np.array(held)
        values = values.astype(np.float64) if values.dtype.kind == "U" and isinstance(first, str) else values
    except (ValueError, OverflowError):
        return None
    return values if values.dtype.kind in "biuf" else None


def _of_tensor(tensor: Any, where: str) -> NDArray[Any]:
    """A tensor as an array, if the file holds as many numbers as it declares."""
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta or tensor.is_complex():
        raise DataError(f"{where} is no plain tensor of real numbers")
    if math.prod(tensor.shape) * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise DataError(f"{where} declares {cut(str(tuple(tensor.shape)), 100)}, more numbers than the file has")
    plain = tensor.detach().cpu()
    return np.ascontiguousarray((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy())


def _of_table(path: Path) -> Iterator[Leaf]:
    for keys, values in arrays_of_table(path):
        yield Leaf(keys, values)


_READERS = {
    ".npz": _of_archive,
    ".npy": lambda path: _columns((), read_single(path)),
    ".safetensors": _of_safetensors,
    ".json": _of_json,
    ".pbuf": _of_model,
    **dict.fromkeys((".csv", ".tsv", ".txt"), _of_table),
}
