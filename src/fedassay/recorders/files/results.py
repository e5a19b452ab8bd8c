"""What a server made of messages: beside these it tells nothing more, and alone it is of all clients together.

A file that is called an aggregate has the same arrays as the clients of its round. One that is called a server's
or global may be the model that they started from as well as the one that they came to: it is the latter where its
numbers are a combination of theirs, such as their weighted mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from fedassay.recorders.files.grouping import SERVER, SUMMED, Array, Arrays

_LOOKED = 1 << 16
"""Numbers of each message that are compared."""
_MOST = 64
"""Clients at most of which a combination is looked for."""
_NEAR = {2: 1e-2, 4: 1e-5, 8: 1e-9}
"""Share of a server's numbers that may be left over, by the bytes of a number."""


def without_results(sent: Mapping[tuple[int, str], Arrays]) -> tuple[dict[tuple[int, str], Arrays], str]:
    """Messages without what the server made of them, and a sentence on what was left out; empty: nothing.

    Args:
        sent: The messages by round and sender.
    """
    rounds: dict[int, list[Arrays]] = {}
    for (number, who), arrays in sent.items():
        if who not in {SERVER, SUMMED}:
            rounds.setdefault(number, []).append(arrays)
    made = {
        (number, who): who == SUMMED or _combined(arrays, rounds[number])
        for (number, who), arrays in sent.items()
        if who in {SERVER, SUMMED} and number in rounds and all(_alike(arrays, own) for own in rounds[number])
    }
    gone = [key for key, result in made.items() if result]
    text = "What the server made of the messages is left out: it tells nothing that they do not." if gone else ""
    return {key: arrays for key, arrays in sent.items() if key not in gone}, text


def published(sent: Mapping[tuple[int, str], Arrays]) -> dict[tuple[int, str], Arrays]:
    """Models of the server alone as what all clients came to, each beside the one of the round before.

    Args:
        sent: The server's messages by round.
    """
    found: dict[tuple[int, str], Arrays] = {}
    before: Arrays = {}
    for (number, _), arrays in sorted(sent.items()):
        if _alike(before, arrays) and not any(map(_symmetric, arrays.values())):
            found[number, SERVER] = before
        found[number, SUMMED] = before = arrays
    return found


def _symmetric(array: Array) -> bool:
    return array.ndim > 1 and array.shape[-1] == array.shape[-2] and bool((array == array.swapaxes(-1, -2)).all())


def _alike(one: Arrays, other: Arrays) -> bool:
    return {name: array.shape for name, array in one.items()} == {name: a.shape for name, a in other.items()}


def _combined(result: Arrays, messages: list[Arrays]) -> bool:
    """Whether numbers are a linear combination of those of the messages."""
    if len(messages) > _MOST:
        return False
    wanted = _row(result)
    rows = np.stack([_row(own) for own in messages])
    if wanted.size <= 4 * len(rows) or not wanted.any():
        return False
    weights = np.linalg.lstsq(rows.T, wanted, rcond=None)[0]
    width = min((array.dtype.itemsize for array in result.values() if array.dtype.kind == "f"), default=8)
    return bool(np.linalg.norm(weights @ rows - wanted) <= _NEAR.get(width, 1e-9) * np.linalg.norm(wanted))


def _row(arrays: Arrays) -> NDArray[np.float64]:
    """The first numbers of all arrays, in the order of their names."""
    each = max(1, _LOOKED // len(arrays))
    return np.concatenate([np.fromiter(islice(arrays[name].flat, each), np.float64) for name in sorted(arrays)])
