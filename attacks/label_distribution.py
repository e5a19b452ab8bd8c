"""A client's label histogram from whatever it sends, behind secure aggregation where counts are hidden.

The best evidence in a message decides: labels beside features; counts, exact or noised; counts that follow from
class sums and second moment (A_c B^+ A_c^T = n_c) or from a constant feature, as hiding the counts alone leaves
them; class sums measured against the class means of the adversary's own records, or by their norms; at last
which classes the message speaks of at all. Noised counts are combined with class sums, by their variances, and
averaged over rounds. Under the aggregate view it is the histogram of all clients together.

Source: this project; label inference of this kind is property inference on gradients or statistics (Wainakh et
al. 2021, "User-level label leakage from gradients in federated learning").

Assumes nothing where counts or labels are sent; the adversary's class means are taken to be the clients' where
only sums are; norms assume that features of all classes are equally long.

A null result does not mean that a message hides the labels: trained parameters also tell them (the bias of a
local head follows the label frequencies), which is not tried here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.facts import AttackFacts, Given
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Load, Sizes
from fedassay.data.records import Records
from fedassay.exchange.statistics import field_of, known_counts, noise_of, statistics_of
from fedassay.exchange.transcript import Message
from fedassay.exchange.view import View
from fedassay.plan import rates as rate
from fedassay.support.errors import NothingToReadError
from fedassay.support.types import Matrix, Parameters

NAME = "label_distribution"

EVIDENCE = ("labels", "sent", "second_moment", "constant_feature", "sums_on_means", "norms", "presence")
"""Evidence for an estimate, the best first."""


@dataclass(frozen=True)
class _Estimate:
    """Records per class, shape (C,), any scale where only proportions are known, and what they rest on."""

    counts: Matrix
    evidence: str
    absolute: bool


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    return rate.AUDIT * load.cells / 10


@register("attack", "label_distribution")
class LabelDistribution(Parameters):
    """Estimate the label histogram of every sender from counts, sums, norms or presence."""

    facts: ClassVar[AttackFacts] = AttackFacts(
        gives=("counts",),
        reads=("labels", "class_counts", "class_sums", "class_means", "class_ids"),
        cost=_seconds,
    )

    use_attacker: bool = Field(default=True)
    """Whether to measure class sums against the class means of the adversary's own records."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Estimate every sender's histogram.

        Returns:
            Artifacts `histograms` (S, C), rows summing to one, `senders` and `evidence`; score `total`,
            records a sender, NaN where only proportions are known.

        Raises:
            NothingToReadError: No message depends on labels.
        """
        means = _class_means(knowledge.attacker, view.classes) if self.use_attacker else None
        found: dict[str, list[_Estimate]] = {}
        for message in view.from_clients():
            estimate = _estimate(message, view.classes, means)
            if estimate is not None:
                found.setdefault(message.sender, []).append(estimate)
        if not found:
            raise NothingToReadError(
                "the view tells nothing about labels: no labels, counts, class sums, class means or class lists"
            )
        joined = {sender: _joined(estimates) for sender, estimates in found.items()}
        return AttackResult(
            NAME,
            scores={
                "total": np.array(
                    [float(item.counts.clip(0).sum()) if item.absolute else np.nan for item in joined.values()]
                )
            },
            artifacts={
                "histograms": np.array([_on_simplex(item.counts) for item in joined.values()]),
                "senders": np.array(list(joined), np.str_),
                "evidence": np.array([item.evidence for item in joined.values()], np.str_),
            },
            notes=tuple(f"{sender}: from {item.evidence}" for sender, item in joined.items()),
        )


def _estimate(message: Message, classes: int, means: Matrix | None) -> _Estimate | None:
    labels = message.of_kind("labels")
    if labels is not None:
        return _Estimate(np.bincount(labels.astype(np.int64), minlength=classes).astype(float), "labels", True)
    own, known = statistics_of(message, classes), known_counts(message, classes)
    sums = _spread(own.sums, own.order, classes)
    weighed = None if sums is None else _on_means(sums, means)
    if known is not None:
        counts = _spread(known[0], own.order, classes)
        assert counts is not None
        return _Estimate(_combined(message, counts, weighed, means), known[1], True)
    if weighed is not None:
        return _Estimate(weighed, "sums_on_means", True)
    if sums is not None:
        return _Estimate(np.linalg.norm(sums, axis=1), "norms", False)
    ids = message.of_kind("class_ids")
    if ids is not None and len(ids):
        present = np.zeros(classes)
        present[ids.astype(np.int64)] = 1
        return _Estimate(present, "presence", False)
    return None


def _combined(message: Message, counts: Matrix, weighed: Matrix | None, means: Matrix | None) -> Matrix:
    """Noised counts averaged with what the noised sums say, weighted by the inverse of their variances."""
    own, sums = field_of(message, "class_counts"), field_of(message, "class_sums")
    if own is None or sums is None or weighed is None or means is None:
        return counts
    noise, other = noise_of(own[1]), noise_of(sums[1])
    if noise == 0 or other == 0:
        return counts
    squares = (means**2).sum(axis=1)
    first, second = np.full(len(counts), 1 / noise**2), squares / other**2
    return np.asarray((first * counts + second * weighed) / (first + second))


def _on_means(sums: Matrix, means: Matrix | None) -> Matrix | None:
    """Class sums over class means: n_c = <A_c, mu_c> / <mu_c, mu_c>, shape (C,)."""
    if means is None or means.shape != sums.shape:
        return None
    squares = (means**2).sum(axis=1)
    return None if (squares == 0).any() else np.asarray((sums * means).sum(axis=1) / squares)


def _class_means(attacker: Records | None, classes: int) -> Matrix | None:
    """Mean feature of each class among the adversary's records (C, d); None where one has no record."""
    if attacker is None:
        return None
    counts = np.bincount(attacker.labels, minlength=classes)
    if not counts.all():
        return None
    features = attacker.features.astype(np.float64)
    return np.stack([features[attacker.labels == label].mean(axis=0) for label in range(classes)])


def _spread(values: Matrix | None, order: Iterable[int], classes: int) -> Matrix | None:
    """Blocks of the classes in `order` as blocks of all C classes."""
    if values is None:
        return None
    whole = np.zeros((classes, *values.shape[1:]))
    whole[np.asarray(order)] = values
    return whole


def _joined(estimates: list[_Estimate]) -> _Estimate:
    """The mean over the messages with the best evidence."""
    best = min(estimates, key=lambda item: EVIDENCE.index(item.evidence))
    same = [item.counts for item in estimates if item.evidence == best.evidence]
    return _Estimate(np.mean(same, axis=0), best.evidence, best.absolute)


def _on_simplex(counts: Matrix) -> Matrix:
    """The nearest histogram to counts over their sum (Euclidean projection on the simplex; Duchi et al. 2008)."""
    total = float(counts.sum())
    point = counts / (total if total > 0 else max(float(np.abs(counts).sum()), 1.0))
    ordered = np.sort(point)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(point) + 1)
    shift = excess[np.flatnonzero(ordered > excess)[-1]]
    return np.asarray(np.maximum(point - shift, 0.0))
