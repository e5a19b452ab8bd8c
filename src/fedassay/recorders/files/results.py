"""Recognise a server's results: they add nothing to the clients' messages, and alone concern all clients.

A file with the name of an aggregate has the same arrays as the clients of its round. A file with the name of a
server or of a global model may hold the model before the round or after it. It is the latter where its numbers are
a linear combination of the clients' numbers, such as their weighted mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from fedassay.recorders.files.grouping import SERVER, SUMMED, Array, Arrays

_LOOKED = 1 << 16
"""Largest number of entries of each message that are compared."""
_MOST = 64
"""Largest number of clients for which a combination is sought."""
_NEAR = {2: 1e-2, 4: 1e-5, 8: 1e-9}
"""Largest relative residual of a combination, by the bytes of a number."""


def without_results(sent: Mapping[tuple[int, str], Arrays]) -> tuple[dict[tuple[int, str], Arrays], str]:
    """Remove the server's results from messages; return them with a sentence on the removal, or with "".

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
    """Read models of the server alone as results of all clients, each beside the model of the round before.

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
    """Whether a result is a linear combination of the messages."""
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
    """Return the first entries of all arrays, in the order of their names, as one row."""
    each = max(1, _LOOKED // len(arrays))
    return np.concatenate([np.fromiter(islice(arrays[name].flat, each), np.float64) for name in sorted(arrays)])
