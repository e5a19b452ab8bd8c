"""The entries of a transcript that carry independent noise of a declared scale, each draw once.

A field's release states the scale of its noise, not which entries it fell on; the kind of the field says that.
What was computed from a noised statistic (covariances, mixtures with more than one component, means over noised
counts) has noise of another scale and is left out, with the reason. So is what shows that it was projected: a
projection shrinks noise, and shrunk noise looks like missing noise.

| kind | independent draws | scale |
|---|---|---|
| one Gram matrix, with a ridge or without | lower triangle | sigma on the diagonal, sigma / sqrt(2) off it |
| `class_second_moments` | lower triangles, or diagonals | the same |
| `class_means`, `mixture_means` | entries, of means that were noised as such | of its cell |
| covariances, magnitudes, ridge weights, inverses | none: computed from what was noised | |
| any other | entries that are not copies of one another | of its cell |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.message import Message, MessageField
from fedassay.exchange.transcript import Transcript
from fedassay.mixtures.packed import diagonal_index, pack_lower, side_of_triangle
from fedassay.support.types import Bools, Floats, Matrix

_COMPUTED: frozenset[FieldKind] = frozenset(
    {
        "mixture_covariances",
        "class_covariances",
        "magnitude_mean",
        "mixture_weights",
        "ridge_weights",
        "inverse_gram",
    }
)
_ALIKE = 3
"""So many rows of one sum were made to have it."""


NOTHING_FREE = "every entry is clipped or a copy of another"


@dataclass(frozen=True)
class NoisedArray:
    """One array of entries with declared independent Gaussian noise.

    Attributes:
        field: Name of its field.
        sender: Sender; for secure fields, all senders of the round together.
        round: The round.
        values: Entries, a row for each class (or one row), shape (r, c).
        scales: Declared standard deviation of each, same shape.
        half_steps: Half the step to which each was rounded, same shape.
        tied: Entries that are copies of others or at a bound of clipping, same shape.
        nonnegative: Whether the values beneath the noise are known to be at least 0, and may have been projected
            upwards (the diagonal of a second moment that is positive semidefinite as sent).
        reason: Reason why it cannot be tested; "" where it can.
    """

    field: str
    sender: str
    round: int
    values: Matrix
    scales: Matrix
    half_steps: Matrix
    tied: Bools
    nonnegative: bool = False
    reason: str = ""


def noised_arrays(transcript: Transcript) -> Iterator[NoisedArray]:
    """Every array of a client that declares Gaussian noise; the sum over senders where only that is seen."""
    summed: dict[tuple[int, str], list[tuple[Message, MessageField]]] = {}
    for message in transcript.from_clients():
        for name, item in message.fields.items():
            scales = item.release.noise_scale
            if item.release.mechanism != "gaussian" or not scales or min(scales) <= 0 or not item.size:
                continue
            if item.secure and item.additive:
                summed.setdefault((message.round, name), []).append((message, item))
            else:
                yield _array(name, message, item, item.values, message.sender)
    for (_, name), parts in summed.items():
        # The scale of a secure sum is declared on it, and shares that each carry it all make it larger.
        message, item = parts[0]
        if len({part.shape for _, part in parts}) == 1:
            total = np.sum([part.values.astype(np.float64) for _, part in parts], axis=0)
            yield _array(name, message, item, total, "all clients together")


def _array(name: str, message: Message, item: MessageField, sent: Floats, sender: str) -> NoisedArray:
    values, scales, nonnegative = _draws(message, item, sent)
    half_steps, tied = _resolution(values, item, nonnegative)
    reason = _computed(message, item) or _projected(values, item)
    return NoisedArray(name, sender, message.round, values, scales, half_steps, tied, nonnegative, reason)


def _draws(message: Message, item: MessageField, sent: Floats) -> tuple[Matrix, Matrix, bool]:
    """Entries and scales (r, c) of the independent draws, and whether they are bounded from below alone."""
    values = sent.astype(np.float64)
    declared = np.array(item.release.noise_scale, dtype=np.float64)
    if item.kind in {"second_moment", "regularised_gram"}:
        return _of_moment(values, float(declared.min()))
    if item.kind == "class_second_moments" and values.ndim == 3:
        values = pack_lower(values)
    rows = values.reshape(values.shape[0], -1) if values.ndim > 1 else values.reshape(1, -1)
    if values.ndim == 1 and len(declared) == values.size:
        return rows, declared.reshape(1, -1), False
    # Blocks that do not match the rows are held to the smallest scale, which causes no false accusation.
    each = declared if len(declared) == len(rows) else np.full(len(rows), declared.min())
    scales = np.broadcast_to(each[:, None], rows.shape).copy()
    if item.kind == "class_second_moments" and rows.shape[1] != _width(message):
        diagonal = np.isin(np.arange(rows.shape[1]), diagonal_index("full", side_of_triangle(rows.shape[1])))
        scales[:, ~diagonal] /= np.sqrt(2)
    return rows, scales, False


def _width(message: Message) -> int | None:
    """Feature width of a message's class sums or means; None where it has none."""
    return next(
        (item.shape[1] for item in message.fields.values() if item.kind in {"class_sums", "class_means"}), None
    )


def _of_moment(values: Matrix, scale: float) -> tuple[Matrix, Matrix, bool]:
    if values.ndim == 2 and not np.array_equal(values, values.T):
        return values, np.full(values.shape, scale), False
    width = values.shape[0] if values.ndim == 2 else (int(np.sqrt(8 * values.size + 1)) - 1) // 2
    rows, columns = np.tril_indices(width)
    packed = values[rows, columns] if values.ndim == 2 else values
    whole = np.zeros((width, width))
    whole[rows, columns] = whole[columns, rows] = packed
    spectrum = np.linalg.eigvalsh(whole)
    if spectrum[0] >= -1e-6 * max(float(np.abs(spectrum).max()), 1e-300):
        # A projection onto the semidefinite cone adds to the diagonal, and shrinks the rest.
        return np.diag(whole)[None].copy(), np.full((1, width), scale), True
    each = np.where(rows == columns, scale, scale / np.sqrt(2))
    return packed[None].copy(), each[None], False


def _resolution(values: Matrix, item: MessageField, nonnegative: bool) -> tuple[Matrix, Bools]:
    """Half the step that entries were rounded to, and which entries are no draws of their own.

    Noise in full precision has no ties. Where there are some, the entries were rounded (then to steps of at least
    the smallest distance between two of them), copied, or clipped (ties at an end of the range).
    """
    dtype = item.dtype if item.dtype.kind == "f" else np.dtype(np.float64)
    top = float(np.finfo(dtype).max)
    half = np.spacing(np.minimum(np.abs(values), top).astype(dtype)).astype(np.float64) / 2
    if item.dtype.kind != "f":
        half = np.maximum(half, 0.5)
    if nonnegative:
        return half, np.zeros(values.shape, np.bool_)
    flat = values.ravel()
    distinct, first, copies = np.unique(flat, return_index=True, return_counts=True)
    if (copies > 1).any() and len(distinct) > 1:
        half = np.maximum(half, float(np.diff(distinct).min()) / 2)
    ends = (copies > 1) & np.isin(np.arange(len(distinct)), (0, len(distinct) - 1))
    tied = np.isin(flat, distinct[ends]) | (np.abs(flat) >= top)
    repeated = np.ones(flat.size, np.bool_)
    repeated[first] = False
    return half, (tied | repeated).reshape(values.shape)


def _computed(message: Message, item: MessageField) -> str:
    """Return the reason why the scale is not that of the entries as sent, or ""."""
    if item.kind in _COMPUTED:
        return f"{item.kind.replace('_', ' ')} are computed from what was noised"
    if item.kind == "class_means" and _noised_counts(message):
        return "class means may be noised sums over noised counts"
    if item.kind == "mixture_means":
        parts = message.of_kind("component_counts")
        if parts is not None and (parts > 1).any():
            return "means of mixtures are fitted to what was noised"
        if len(item.release.cells) != item.shape[0]:
            return "the scale is that of the mixtures together, not of their means"
    return ""


def _noised_counts(message: Message) -> bool:
    return any(
        item.kind == "class_counts" and item.release.mechanism == "gaussian" for item in message.fields.values()
    )


def _projected(values: Matrix, item: MessageField) -> str:
    """Reason why entries are no independent draws: rows, or all of them, were scaled to a length or a sum; or "".

    Clipping to a ball leaves several rows of the largest length, or one of length 1; lengths of noise are almost
    never equal to the precision of the type.
    """
    rounding = float(np.finfo(item.dtype).eps) if item.dtype.kind == "f" else 0.0
    near = max(2 * rounding, 1e-9)
    wide = values.shape[1] > 1
    lengths = np.linalg.norm(values, axis=1) if wide else np.zeros(1)
    longest = int((lengths >= lengths.max() * (1 - near)).sum())
    whole = float(np.linalg.norm(values))
    if wide and lengths.max() > 0 and (longest > 1 or abs(lengths.max() - 1) <= near):
        return f"{longest} row(s) have the length {lengths.max():.4g}: they were scaled to it, if they had noise"
    if values.size > 1 and abs(whole - 1) <= near:
        return "the array has the length 1: it was scaled to it, if it had noise"
    sums = values.sum(axis=1)
    if wide and len(sums) >= _ALIKE and np.ptp(sums) <= near * float(np.abs(values).sum(axis=1).max()):
        return "all rows have one sum: they were scaled or shifted to it, if they had noise"
    return ""
