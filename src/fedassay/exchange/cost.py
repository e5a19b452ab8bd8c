"""Cost of attacks on messages, known before any of them starts.

Every rule on second moments and covariances decomposes them, which takes the cube of their width: at 2,048 half a
minute, at 16,384 five hours. The width is chosen by the author of the messages, who is not trusted. A
factorization takes the cube of the number of records; where no counts are sent, the second moment's rank gives it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from fedassay.exchange.gram import Gram, least, measure, obstacle, uncounted
from fedassay.exchange.kinds import facts_of
from fedassay.exchange.message import Message
from fedassay.exchange.statistics import gram_of
from fedassay.exchange.transcript import SERVER, Transcript

_MOMENT = 4e-9
"""Seconds of all attacks on one second moment, over the cube of its width; 34 s were measured at 2,048."""

_COVARIANCE = 1e-9
"""Seconds of all attacks on one class's covariance, over the cube of its width: its eigenvalues, up to twice."""

_FACTORS = 60 / 256**3
"""Seconds of a factorization over the cube of the number of records: a minute at 256, a second at 64."""

_STACKS = {"class_covariances", "class_second_moments", "mixture_covariances"}
"""Kinds that are one symmetric matrix, or its diagonal, a class or component."""

_SEARCHED = 8
"""Factorizations that a search for counts takes, to an order of magnitude."""

_MOST_FACTORED = 256
"""Records beyond which `gram_factorization` does not try."""


@np.errstate(all="ignore")  # numbers that overflow are for the attacks to speak of
def seconds_of(transcript: Transcript, enough: float = math.inf) -> float:
    """Seconds that the attacks on messages take on one core, to an order of magnitude.

    Args:
        transcript: The messages.
        enough: Seconds beyond which the exact number does not matter.
    """
    sent = [message for message in transcript.messages if message.sender != SERVER]
    total = math.fsum(_decomposing(message) for message in sent)
    last: dict[str, Gram] = {}
    for message in sent:
        if total > enough:
            break
        total += _factoring_classes(message)
        # The cost of decompositions has been added, and is not too much.
        gram = gram_of(message, transcript.classes)
        if gram is not None:
            total += _factoring(gram)
            before = last.get(message.sender)
            if before is not None and before.second.shape == gram.second.shape:
                total += _factoring(_change(before, gram))
            last[message.sender] = gram
    return total


def _decomposing(message: Message) -> float:
    """Cost of every decomposition at full width, from the shapes alone."""
    total = 0.0
    for item in message.fields.values():
        if facts_of(item.kind).square == 2:
            total += _MOMENT * _width(item.shape, packed=len(item.shape) == 1) ** 3
        elif item.kind in _STACKS and len(item.shape) > 1:
            packed = len(item.shape) == 2
            if packed and item.kind != "class_covariances" and item.shape[1] == _means_width(message):
                continue  # diagonals, which nothing decomposes
            total += _COVARIANCE * item.shape[0] * _width(item.shape[1:], packed) ** 3
    return total


def _factoring(gram: Gram) -> float:
    """Cost of one factorization, where it would be tried; the number of records is sent, or the rank."""
    if not gram.second.size:
        return 0.0
    try:
        size = measure(gram)
    except np.linalg.LinAlgError:
        return 0.0  # numbers that overflow: the attack meets the same, and says so
    if obstacle(gram, size):
        return 0.0
    total, tries = size.total, 1
    if uncounted(gram, size):
        if gram.sums is None:
            return 0.0
        total, tries = least(gram, size)[1], _SEARCHED
    return 0.0 if total > _MOST_FACTORED else tries * _FACTORS * total**3


def _factoring_classes(message: Message) -> float:
    """Cost of factoring covariances with counts class by class, each tried with two normalisations."""
    counts = message.of_kind("class_counts")
    kinds = {item.kind for item in message.fields.values() if len(item.shape) > 1}
    if counts is None or not kinds & {"class_covariances", "mixture_covariances"}:
        return 0.0
    records = np.clip(counts.astype(np.float64), 0, None)
    return 2 * _FACTORS * float((records[records <= _MOST_FACTORED] ** 3).sum())


def _change(before: Gram, gram: Gram) -> Gram:
    """Difference between two messages of one sender, as the Gram matrix of records that came or went."""
    change = gram.second - before.second
    sign = 1.0 if np.trace(change) > 0 else -1.0
    unit = max(before.unit, gram.unit) * max(
        1.0, float(np.linalg.norm(gram.second) / (np.linalg.norm(change) or 1))
    )
    return Gram(sign * change, None, None, gram.labels, unit, float(np.hypot(before.noise, gram.noise)))


def _means_width(message: Message) -> int:
    shapes: Iterable[tuple[int, ...]] = (
        item.shape
        for item in message.fields.values()
        if item.kind in {"mixture_means", "class_sums", "class_means"}
    )
    return next((shape[1] for shape in shapes), 0)


def _width(shape: tuple[int, ...], packed: bool) -> int:
    """The side of a square matrix, or of one given by its packed lower triangle."""
    return math.isqrt(2 * shape[-1]) if packed else shape[-1]
