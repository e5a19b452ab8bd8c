"""Recognise a server's results: they add nothing to the clients' messages, and alone concern all clients.

A file with the name of an aggregate has the same arrays as the clients of its round. A file with the name of a
server or of a global model may hold the model before the round or after it. It is the latter where its numbers are
a linear combination of the clients' numbers, such as their weighted mean. Of messages without such a name the only
one that is a sum of others with positive weights is a result as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from fedassay.recorders.files.grouping import SERVER, SUMMED, Array, Arrays
from fedassay.support import limits
from fedassay.support.text import cut

_LOOKED = 1 << 14
"""Largest number of entries of each message that are compared."""
_MOST = 64
"""Largest number of clients for which a combination is sought."""
_NEAR = {2: 1e-2, 4: 1e-5, 8: 1e-9}
"""Largest relative residual of a combination, by the bytes of a number."""
_CLEAR = 1e-2
"""Largest residual of a sum, relative to the least difference among the messages in it."""
_NOTHING = 1e-6
"""Weight up to which a message is not in a sum."""
_SAME = 1e-12
"""Relative difference up to which messages are equal."""


def without_results(
    sent: Mapping[tuple[int, str], Arrays], clients: int | None
) -> tuple[dict[tuple[int, str], Arrays], str]:
    """Remove the server's results from messages; return them with a sentence on the removal, or with "".

    Args:
        sent: The messages by round and sender.
        clients: Number of clients, if given: names alone then say which messages are results.
    """
    rounds: dict[int, dict[str, Arrays]] = {}
    for (number, who), arrays in sent.items():
        rounds.setdefault(number, {})[who] = arrays
    gone, told = [], []
    for number, held in rounds.items():
        own = {who: arrays for who, arrays in held.items() if who not in {SERVER, SUMMED}}
        if not own or any(not _alike(*two) for two in pairwise(own.values())):
            continue
        named = [who for who in held if who not in own and _alike(held[who], next(iter(own.values())))]
        gone += [(number, who) for who in named if who == SUMMED or _combined(held[who], list(own.values()))]
        made = _sum_of_others(own) if clients is None and not named else None
        if made is not None:
            gone.append((number, made))
            told.append(made)
    text = "Results of the server are left out: they follow from the messages." if gone else ""
    if told:
        names = ", ".join(dict.fromkeys(cut(name, limits.NAME_LENGTH) for name in told))
        text = f"A sum of other messages with positive weights is no client's message: {names}. {text}"
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
    points, near = _points([result, *messages])
    return points is not None and _weights(points, 0, near) is not None


def _sum_of_others(messages: Mapping[str, Arrays]) -> str | None:
    """Return the sender of the only message that is a sum of two or more others with positive weights, or None."""
    points, near = _points(list(messages.values()))
    if points is None or len(points) < 3:
        return None
    found = []
    for place, sender in enumerate(messages):
        weights = _weights(points, place, near)
        if weights is None or weights.min() < -_NOTHING or (weights > _NOTHING).sum() < 2:
            continue
        others = np.delete(points, place, axis=0)
        apart = np.linalg.svd(others, compute_uv=False)
        residual = np.linalg.norm(weights @ others - points[place])
        if apart[-1] > _SAME * apart[0] and residual <= _CLEAR * apart[-1]:
            found.append(sender)
    return found[0] if len(found) == 1 else None


def _weights(points: NDArray[np.float64], place: int, near: float) -> NDArray[np.float64] | None:
    """Return the weights of the others in one message; None where it is no combination of them."""
    wanted, others = points[place], np.delete(points, place, axis=0)
    weights: NDArray[np.float64] = np.linalg.lstsq(others.T, wanted, rcond=None)[0]
    return weights if np.linalg.norm(weights @ others - wanted) <= near * np.linalg.norm(wanted) else None


def _points(messages: list[Arrays]) -> tuple[NDArray[np.float64] | None, float]:
    """Return a row for each message, of the same lengths and angles as its numbers, and the residual of rounding.

    None in place of rows: there are too many messages, or too few numbers that differ from each other.
    """
    if len(messages) > _MOST + 1:
        return None, 0.0
    rows = np.stack([_row(own) for own in messages])
    if not rows[0].any() or len(np.unique(rows, axis=1).T) <= 4 * (len(rows) - 1):
        return None, 0.0
    triangle: NDArray[np.float64] = np.linalg.qr(rows.T)[1]
    return triangle.T, _NEAR[min(map(_width, messages))]


def _width(arrays: Arrays) -> int:
    """Return the bytes of the coarsest numbers, or of the type that holds all of them: texts have them in full."""
    width = min((array.dtype.itemsize for array in arrays.values() if array.dtype.kind == "f"), default=8)
    row = _row(arrays)
    with np.errstate(over="ignore"):
        single = bool((row == row.astype(np.float32)).all() and (row != np.rint(row)).any())
    if width == 8 and single:
        return 4
    return width if width in _NEAR else 8


def _row(arrays: Arrays) -> NDArray[np.float64]:
    """Return the first entries of all arrays, in the order of their names, as one row."""
    each = max(1, _LOOKED // len(arrays))
    return np.concatenate([np.fromiter(islice(arrays[name].flat, each), np.float64) for name in sorted(arrays)])
