"""Recover the numbers v behind the whole numbers of secure aggregation, x mod M = round(s v).

Masks cancel in the sum over clients, modulo M: the upper half of 0 to M - 1 holds negative numbers. Neither M nor
the scale s is in a file. M is found only if the numbers lie at both ends of a range of a power of two. The scale
is found from class sums A beside a second moment G: diag(A G^+ A') adds up to s times the number of records, which
is the rank of G above the rounding of its entries (`fedassay.exchange.gram`). The part that rounding adds to a
symmetric matrix of lower rank is removed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from fedassay.exchange.kinds import called
from fedassay.recorders.files.grouping import Array, Arrays
from fedassay.support.errors import PlanError

LARGEST_MODULUS = 1 << 64
_WORD = 16
"""Least number of bits of a modulus: smaller whole numbers are pixels."""
_COUNTED = {"histogram", "class_counts", "labels"}
"""Kinds of whole numbers that are never scaled."""
_SURE = 0.005
_WHOLE = 0.05
_WIDEST = 768


@dataclass(frozen=True)
class Scaled:
    """Messages with whole numbers converted to the numbers for which they stand.

    Attributes:
        sent: The messages by round and sender.
        text: A sentence on the conversion; empty where nothing is quantised.
    """

    sent: dict[tuple[int, str], Arrays]
    text: str


def scaled(
    sent: Mapping[tuple[int, str], Arrays],
    scale: float | None,
    modulus: int | None,
    declared: Collection[str] = (),
) -> Scaled:
    """Convert whole numbers x mod M = round(s v) to v, with s and M as given or as the numbers show them.

    Args:
        sent: The messages by round and sender.
        scale: s, above 0; None: inferred from the numbers.
        modulus: M; None: inferred from the numbers.
        declared: Names of arrays with a declared kind.

    Raises:
        PlanError: A scale or a modulus is given, and no array holds whole numbers in its range.
    """
    whole = {key: [name for name, array in arrays.items() if _whole(array)] for key, arrays in sent.items()}
    given = scale is not None or modulus is not None
    if not any(whole.values()):
        if given:
            raise PlanError(
                "--scale, --modulus: given, but no array holds whole numbers; allowed: with those alone"
            )
        return Scaled(dict(sent), "")
    held = [sent[key][name] for key, names in whole.items() for name in names]
    largest = max((int(array.max()) for array in held if array.size), default=0)
    if modulus is not None and largest >= modulus:
        raise PlanError(f"--modulus {modulus}: given, but numbers go up to {largest}; allowed: a larger one")
    found = modulus or _modulus(held, largest)
    centred = {
        key: arrays | {name: _centred(arrays[name], found) for name in whole[key]} for key, arrays in sent.items()
    }
    told = (
        [(s, words) for arrays in centred.values() for s, words in [_scale(arrays)] if s] if scale is None else []
    )
    factor, words = (scale, "") if scale is not None else told[0] if told else (None, "")
    if factor is None or any(s != factor for s, _ in told):
        return Scaled(centred if found else dict(sent), _unscaled(centred, whole, found, declared))
    done = {}
    for key, arrays in centred.items():
        width = max((array.shape[-1] for array in arrays.values() if array.ndim > 1), default=0)
        done[key] = arrays | {name: _divided(arrays[name], factor, width) for name in whole[key]}
    of = f" modulo {found}" if found else ""
    why = f", since {words}" if words else ""
    return Scaled(done, f"Whole numbers are read as numbers times {factor:g}{of}{why}.")


def _unscaled(
    sent: Mapping[tuple[int, str], Arrays],
    whole: Mapping[tuple[int, str], list[str]],
    modulus: int | None,
    declared: Collection[str],
) -> str:
    """Return a sentence on tables of whole numbers with an unknown scale; empty where there are none."""
    tables = [
        name
        for key, names in whole.items()
        for name in names
        if sent[key][name].ndim > 1 and name not in declared and not _COUNTED & set(called(name))
    ]
    texts = [f"Whole numbers are read modulo {modulus}."] if modulus else []
    if tables:
        texts.append(f"{tables[0]} holds whole numbers: if these are numbers times a scale, give it by --scale.")
    return " ".join(texts)


def _whole(array: Array) -> bool:
    """Whether an array holds whole numbers in a type of at least four bytes."""
    if array.dtype.kind not in "iuf" or not array.size or array.dtype.itemsize < 4:
        return False
    return array.dtype.kind in "iu" or bool((array == np.rint(array)).all() and np.abs(array).max() < 2**53)


def _modulus(held: list[Array], largest: int) -> int | None:
    """Return the power of two M where all numbers lie near 0 or near M, some at each end; None otherwise."""
    bits = largest.bit_length()
    if bits < _WORD or any((array < 0).any() for array in held):
        return None
    modulus = 1 << bits
    low = sum(int((array < modulus // 8).sum()) for array in held)
    high = sum(int((array >= modulus - modulus // 8).sum()) for array in held)
    return modulus if low and high and low + high == sum(array.size for array in held) else None


def _centred(array: Array, modulus: int | None) -> Array:
    """Convert remainders modulo M to numbers from -M / 2 to M / 2, in 64 bits."""
    if modulus is None:
        return array
    if modulus == LARGEST_MODULUS:
        return array.astype(np.uint64).view(np.int64)
    values = array.astype(np.uint64) if array.dtype.kind == "u" else array.astype(np.int64)
    values = values % modulus
    return np.where(values >= (modulus + 1) // 2, values.astype(np.int64) - modulus, values.astype(np.int64))


def _divided(array: Array, factor: float, width: int) -> Array:
    """Divide numbers by the scale; counts of records, which were not scaled, stay."""
    small = array.ndim < 2 and array.size != width and bool(((array >= 0) & (array < factor)).all())
    values = np.asarray(array, np.float64) if small else np.asarray(array, np.float64) / factor
    if _symmetric(array) and len(array) <= _WIDEST:
        lengths, vectors = np.linalg.eigh(values)
        kept = lengths > _rounding(len(array)) / factor
        if not kept.all() and (lengths > -_rounding(len(array)) / factor).all():
            lower = (vectors[:, kept] * lengths[kept]) @ vectors[:, kept].T
            return np.asarray((lower + lower.T) / 2)
    rounded = np.rint(values)
    return rounded.astype(np.int64) if array.ndim < 2 and bool((values == rounded).all()) else values


def _rounding(width: int) -> float:
    """Bound the spectral norm of a symmetric matrix of independent roundings to whole numbers (semicircle law)."""
    return float(4 * np.sqrt(width / 3))


def _scale(arrays: Arrays) -> tuple[float, str]:
    """Infer the scale, a power of two or of ten, from sums beside a second moment; 0 where they give none."""
    square = [name for name, array in arrays.items() if _symmetric(array)]
    if len(square) != 1 or not 2 < len(arrays[square[0]]) <= _WIDEST:
        return 0.0, ""
    gram = np.asarray(arrays[square[0]], np.float64)
    width = len(gram)
    values, vectors = np.linalg.eigh(gram)
    kept = values > _rounding(width)
    rank = int(kept.sum())
    if not 0 < rank < int((np.diagonal(gram) > 0).sum()) or values[0] < -_rounding(width):
        return 0.0, ""
    for name, array in arrays.items():
        if name == square[0] or width not in array.shape or array.ndim > 2 or not _whole(array):
            continue
        rows = np.atleast_2d(np.asarray(array, np.float64))
        rows = rows if rows.shape[1] == width else rows.T
        counts = ((rows @ vectors[:, kept]) ** 2 / values[kept]).sum(axis=1)
        total = float(counts.sum())
        for base in (2.0, 10.0):
            near = base ** round(np.log(total / rank) / np.log(base)) if total > 0 else 1.0
            off = np.abs(counts / near - np.rint(counts / near)).max()
            if near > 1 and abs(total / rank / near - 1) < _SURE and off < _WHOLE:
                words = f"{name} and {square[0]} make {total:.4g} of the {rank} records that the rank shows"
                return near, words
    return 0.0, ""


def _symmetric(array: Array) -> bool:
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not _whole(array):
        return False
    return bool((array == array.T).all()) and bool((np.diagonal(array) >= 0).all())
