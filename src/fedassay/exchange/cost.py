"""What attacks on messages would take, told from the shapes of their arrays before anything is computed.

Every rule on second moments and covariances decomposes them, which takes the cube of their width: at 2,048
half a minute, at 16,384 five hours. Whoever captured the messages, or made them up, chose the width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fedassay.exchange.message import Message
from fedassay.exchange.transcript import SERVER, Transcript

_MOMENT = 4e-9
"""Seconds of all attacks on one second moment, over the cube of its width; 34 s were measured at 2,048."""

_COVARIANCE = 1e-9
"""The same of one class's covariance, of which only eigenvalues are computed, up to twice."""

_FACTORS = 60 / 256**3
"""Seconds of a factorization over the cube of the number of records: a minute at 256, a second at 64."""

_MOST_FACTORED = 256
"""Records beyond which `gram_factorization` does not try."""


def seconds_of(transcript: Transcript) -> float:
    """Seconds that the attacks on messages take on one core, to an order of magnitude."""
    return math.fsum(_seconds(message) for message in transcript.messages if message.sender != SERVER)


def _seconds(message: Message) -> float:
    total = 0.0
    for item in message.fields.values():
        if item.kind == "second_moment":
            total += _MOMENT * _width(item.shape, packed=len(item.shape) == 1) ** 3 + _factoring(message)
        elif item.kind in {"class_covariances", "mixture_covariances"} and len(item.shape) > 1:
            packed = len(item.shape) == 2
            if packed and item.kind == "mixture_covariances" and item.shape[1] == _means_width(message):
                continue  # diagonals, which nothing decomposes
            total += _COVARIANCE * item.shape[0] * _width(item.shape[1:], packed) ** 3
    return total


def _factoring(message: Message) -> float:
    """Of the factorization, where the message says how many records there are."""
    counts = message.of_kind("class_counts")
    records = 0.0 if counts is None else float(counts.sum())
    return _FACTORS * records**3 if 0 < records <= _MOST_FACTORED else 0.0


def _means_width(message: Message) -> int:
    shapes: Iterable[tuple[int, ...]] = (
        item.shape for item in message.fields.values() if item.kind == "mixture_means"
    )
    return next((shape[1] for shape in shapes), 0)


def _width(shape: tuple[int, ...], packed: bool) -> int:
    """The side of a square matrix, or of the one whose lower triangle is packed in a row."""
    return math.isqrt(2 * shape[-1]) if packed else shape[-1]
