"""Gram matrices in a view: second moments as sent, regularised, inverted or class by class; and differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from fedassay.exchange.gram import Gram
from fedassay.exchange.ridge import regularised, square
from fedassay.exchange.statistics import gram_of, noise_of, roundoff, statistics_of
from fedassay.exchange.transcript import AGGREGATE, Message
from fedassay.exchange.view import View
from fedassay.support.types import Ints, Matrix

WHOLE = 0.05
"""Largest distance of a component's share of the records from a whole number: above the rounding of float16."""


@dataclass(frozen=True)
class Target:
    """One Gram matrix to factor.

    Attributes:
        sender: The sender of the records.
        what: Its origin, for the notes.
        candidates: The statistics; more than one where a convention (n or n - 1) is not known, the one with the
            larger second moment first: one that is too small is as easy to satisfy, one that is too large is not.
            None where `reason` says why.
        reason: Reason why the statistics do not follow from the message; empty where they do.
        round: Of the message; of the later one where it is a difference.
        before: Round of the earlier message of a difference; else None.
    """

    sender: str
    what: str
    candidates: tuple[Gram, ...]
    reason: str = ""
    round: int = field(default=0, kw_only=True)
    before: int | None = field(default=None, kw_only=True)


def targets(view: View, *, gamma: float | None, differences: bool) -> list[Target]:
    """Everything in a view that can be factored.

    Args:
        view: The messages that are seen.
        gamma: The ridge of regularised moments, where it is known; None: as the moments give it, or as that of
            another sender does, since a system gives all its clients the same.
        differences: Whether to add what changed between consecutive messages of one sender.
    """
    shared = _shared_ridge(view) if gamma is None else gamma
    ridges = [_ridge(message, gamma, shared) for message in view.from_clients()]
    found = [
        target
        for message, ridge in zip(view.from_clients(), ridges, strict=True)
        for target in _targets(message, ridge, view.classes)
    ]
    return found + (list(_differences(view, ridges)) if differences else [])


def _shared_ridge(view: View) -> float | None:
    """The ridge that single clients' moments are sure of, in the median; None where none is."""
    ridges = [
        ridge.gamma
        for message in view.from_clients()
        if message.sender != AGGREGATE and (ridge := regularised(message)) is not None and ridge.certain
    ]
    return float(np.median(ridges)) if ridges else None


def _ridge(message: Message, gamma: float | None, shared: float | None) -> float | None:
    """The ridge to take off a message's moment; None where only the moment itself can say."""
    if gamma is not None:
        return gamma
    own = regularised(message)
    return None if own is None or own.certain or message.sender == AGGREGATE else shared


def _targets(message: Message, ridge: float | None, classes: int) -> Iterator[Target]:
    what = f"round {message.round}"
    gram = gram_of(message, classes, ridge)
    if gram is not None:
        yield Target(message.sender, what, (gram,), round=message.round)
    elif (own := regularised(message)) is not None:
        yield Target(
            message.sender,
            what,
            (),
            f"the ridge is at most {own.gamma:.4g}, and nothing says what it is: the second moment has full rank",
            round=message.round,
        )
    order = statistics_of(message, classes).order
    yield from _class_moments(message, order)
    yield from class_targets(message, order)


def _class_moments(message: Message, order: Ints) -> Iterator[Target]:
    """Second moments of single classes, one Gram matrix each; diagonals hold no products of features."""
    moments = message.of_kind("class_second_moments")
    if moments is None or moments.ndim < 2:
        return
    own = statistics_of(message, len(order))
    wide = None if own.sums is None else own.sums.shape[1]
    side = moments.shape[1] if moments.ndim == 3 else (int(np.sqrt(8 * moments.shape[1] + 1)) - 1) // 2
    if moments.ndim == 2 and (wide == moments.shape[1] or side * (side + 1) // 2 != moments.shape[1]):
        return
    noise = max((noise_of(i) for i in message.fields.values() if i.kind == "class_second_moments"), default=0.0)
    for row, label in enumerate(order):
        if not moments[row].any():
            continue
        yield Target(
            message.sender,
            f"round {message.round}, class {label}",
            (
                Gram(
                    square(moments[row]),
                    None if own.sums is None else own.sums[row : row + 1],
                    None if own.counts is None else own.counts[row : row + 1],
                    order[row : row + 1],
                    roundoff(moments),
                    noise,
                ),
            ),
            round=message.round,
        )


def class_targets(message: Message, order: Ints) -> Iterator[Target]:
    """Means with full covariances: one Gram matrix a class, or a component of a whole number of records.

    Components that share records are no sums of any, but all of a class together are those of its records
    (`fedassay.exchange.linear`).
    """
    means, covariances = message.of_kind("class_means"), message.of_kind("class_covariances")
    counts = message.of_kind("class_counts")
    together: Iterator[_Part] = iter(())
    if means is None or covariances is None:
        means, covariances = message.of_kind("mixture_means"), message.of_kind("mixture_covariances")
        if counts is not None:
            sizes, classes = counts, order
            counts, order = _by_component(message, counts, order)
            together = _shared(message, sizes, classes, counts)
    if means is None or covariances is None or counts is None or covariances.ndim < 2:
        return
    noise = [
        max((noise_of(item) for item in message.fields.values() if item.kind in kinds), default=0.0)
        for kinds in (("class_means", "mixture_means"), ("class_covariances", "mixture_covariances"))
    ]
    width = means.shape[1]
    if covariances.ndim == 2 and (width == 1 or covariances.shape[1] != width * (width + 1) // 2):
        return
    whole = (
        _Part(int(label), round(float(count)), mean.astype(np.float64), square(covariance))
        for label, count, mean, covariance in zip(order, counts, means, covariances, strict=True)
        if round(float(count)) >= 1
    )
    for label, count, mean, sent in chain(whole, () if any(noise) else together):
        # Fewer records than features leave the covariance singular, but for a floor that the sender added.
        spectrum, covariance = np.linalg.eigvalsh(sent), sent
        if count <= width // 2:
            covariance = sent - float(np.median(spectrum[: width - count + 1])) * np.eye(width)
        unit, known = roundoff(covariances), (mean * count)[None]
        on_mean, on_spread = noise
        grams = [
            Gram(
                weight * covariance + count * np.outer(mean, mean),
                known,
                np.array([count]),
                np.array([label]),
                unit,
                float(np.hypot(weight * on_spread, count * on_mean * np.linalg.norm(mean))),
            )
            for weight in ((count, count - 1) if count > 1 else (count,))
        ]
        yield Target(message.sender, f"round {message.round}, class {label}", tuple(grams), round=message.round)


class _Part(NamedTuple):
    """Mean and covariance, shapes (d,) and (d, d), of so many records of a class."""

    label: int
    records: int
    mean: Matrix
    covariance: Matrix


def _shared(message: Message, counts: Matrix, order: Ints, own: Matrix) -> Iterator[_Part]:
    """Classes with records shared by components, each as the mean and covariance of all of its own.

    Args:
        message: With mixtures.
        counts: Records of each class, shape (P,).
        order: Classes, shape (P,).
        own: Records of each component, 0 where it shares them, shape (S,).
    """
    parts, weights = message.of_kind("component_counts"), message.of_kind("mixture_weights")
    means, covariances = message.of_kind("mixture_means"), message.of_kind("mixture_covariances")
    if parts is None or weights is None or means is None or covariances is None or len(own) != len(means):
        return
    group = np.repeat(np.arange(len(parts)), parts.astype(np.int64))
    for place, label in enumerate(order):
        rows = np.flatnonzero(group == place)
        count = round(float(counts[place]))
        if len(rows) < 2 or count < 1 or (own[rows] > 0).all() or covariances.ndim < 2:
            continue
        shares = weights[rows].astype(np.float64)
        shares /= shares.sum()
        centres = means[rows].astype(np.float64)
        mean = shares @ centres
        apart = centres - mean
        within = sum(share * square(covariances[row]) for share, row in zip(shares, rows, strict=True))
        yield _Part(int(label), count, mean, within + (shares[:, None] * apart).T @ apart)


def _by_component(message: Message, counts: Matrix, order: Ints) -> tuple[Matrix, Ints]:
    """Records and class of every component of a message's mixtures; no record where its share is not whole."""
    parts, weights = message.of_kind("component_counts"), message.of_kind("mixture_weights")
    if parts is None or (parts == 1).all():
        return counts, order
    group = np.repeat(np.arange(len(parts)), parts.astype(np.int64))
    share = 1.0 if weights is None else weights.astype(np.float64)
    records = counts[group].astype(np.float64) * share
    return np.where(np.abs(records - np.rint(records)) <= WHOLE, np.rint(records), 0.0), order[group]


def _differences(view: View, ridges: list[float | None]) -> Iterator[Target]:
    """Changes between consecutive messages of one sender: the records that came, or that went."""
    last: dict[str, tuple[Message, Gram]] = {}
    for message, ridge in zip(view.from_clients(), ridges, strict=True):
        gram = gram_of(message, view.classes, ridge)
        if gram is None:
            continue
        before = last.get(message.sender)
        last[message.sender] = (message, gram)
        if before is None or before[1].second.shape != gram.second.shape:
            continue
        old, new = before[1], gram
        change = new.second - old.second
        norm = float(np.linalg.norm(change))
        if norm == 0 or not np.array_equal(old.labels, new.labels):
            continue
        sign = 1.0 if np.trace(change) > 0 else -1.0
        gram = Gram(
            second=sign * change,
            sums=_minus(new.sums, old.sums, sign),
            counts=_minus(new.counts, old.counts, sign),
            labels=new.labels,
            unit=max(old.unit, new.unit) * max(1.0, float(np.linalg.norm(new.second)) / norm),
            noise=float(np.hypot(old.noise, new.noise)),
        )
        what = f"round {message.round} minus round {before[0].round}"
        both = "records came and others went: their difference has eigenvalues of either sign"
        reason = both if _either_way(gram) else ""
        candidates = () if reason else (gram,)
        yield Target(message.sender, what, candidates, reason, round=message.round, before=before[0].round)


def _either_way(gram: Gram) -> bool:
    """Whether a difference has negative eigenvalues that rounding or noise did not make.

    Noise spreads all eigenvalues, and hides the records where its reach is near the largest one.
    """
    values = np.linalg.eigvalsh(gram.second)
    rounding = gram.unit * float(np.sqrt((gram.second**2).sum(axis=1).max()))
    reach = max(rounding, gram.noise * float(np.sqrt(2 * len(values))), np.finfo(float).eps * float(values[-1]))
    lowest = -float(values[0])
    return lowest > 3 * reach and lowest > min(0.1 * float(values[-1]), 10 * float(np.median(np.abs(values))))


def _minus(new: Matrix | None, old: Matrix | None, sign: float) -> Matrix | None:
    return None if new is None or old is None else sign * (new - old)
