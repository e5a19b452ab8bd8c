"""Readings of any transcript by plain arithmetic, in seconds and without learning.

Single records' features:

- `singletons`: the sum, or mean, of a class with one record is that record's feature (and so is a mixture's
  only component for such a class).
- `collapsed_components`: a mixture component that carries the weight of one record, or has lost its variance,
  has a record for its mean. A mixture with as many components as records has nothing else.
- `spreadless_means`: where no counts are sent, a class (or component) with a covariance of 0, or of nothing but
  the common regularisation, is one record, and its mean is that record's feature.
- `differences`: the class sums of two messages of one sender with counts that differ by one record, of mixtures
  too: whatever its components are, a mixture holds the sum of its class (`fedassay.exchange.mixture_sums`).

And facts, by the rules of `fedassay.exchange.statistics`: the number of records from the rank of a second moment,
counts that are sent or follow from other fields, redundant fields, fields without protection beside protected
ones, declared noise that is missing.

`APPLIES` lists the fields that each rule reads. A result names the rules that apply to its view, so that a rule
without a finding is distinguished from one without input.

Source: none; Guan et al. 2025, section 3.3, hold that sums hide single records, which these rules put to the test.

Assumes nothing but the kinds of the fields (see `fedassay.exchange.transcript`).

A null result does not mean that a message is safe: only these rules were tried, and none of them combines
fields by optimisation as `gram_factorization` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.facts import AttackFacts, Given
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Load, Sizes
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.linear import linear_blocks
from fedassay.exchange.message import any_protected
from fedassay.exchange.statistics import (
    field_of,
    known_counts,
    noise_of,
    remarks,
    statistics_of,
    without_spread,
)
from fedassay.exchange.transcript import Message, kinds_in
from fedassay.exchange.view import View
from fedassay.mixtures.packed import diagonal_index
from fedassay.plan import rates as rate
from fedassay.support.errors import NotRunError
from fedassay.support.types import Floats, Ints, Matrix, Parameters

NAME = "message_algebra"

KINDS: tuple[FieldKind, ...] = (
    "features",
    "class_counts",
    "class_sums",
    "class_means",
    "class_covariances",
    "second_moment",
    "regularised_gram",
    "inverse_gram",
    "mixture_means",
)
"""Kinds of fields that some rule reads."""

Applies = Callable[[Sequence[Message]], bool]
"""Whether a rule reads anything in the messages of one sender."""


def _sends(*kinds: str) -> Callable[[Message], bool]:
    """Whether a message has a field of each kind; `a|b` stands for either."""

    def sends(message: Message) -> bool:
        sent = {item.kind for item in message.fields.values()}
        return all(sent.intersection(kind.split("|")) for kind in kinds)

    return sends


def _any(applies: Callable[[Message], bool]) -> Applies:
    return lambda messages: any(map(applies, messages))


def _counted(message: Message) -> bool:
    """Whether numbers of records stand beside sums or means, or may follow from them."""
    return _sends("class_sums|class_means", "class_counts")(message) or _sends("class_sums", "second_moment")(
        message
    )


def _told(message: Message) -> bool:
    """Whether sums of classes stand beside numbers of records, or follow from mixtures."""
    return _counted(message) or _sends("mixture_means", "mixture_covariances", "class_counts")(message)


def _noised(*kinds: str) -> Callable[[Message], bool]:
    return lambda message: any(item.kind in kinds and noise_of(item) > 0 for item in message.fields.values())


def _declared_counts(message: Message) -> bool:
    """Whether counts stand there with their protection; of sums over clients only the whole is known, not how."""
    found = field_of(message, "class_counts")
    return found is not None and found[1].release.mechanism != "derived"


def _without_counts(message: Message) -> bool:
    return not _sends("class_counts")(message)


APPLIES: Mapping[str, Applies] = {
    "raw": _any(_sends("features")),
    "singletons": _any(_counted),
    "collapsed_components": _any(_sends("mixture_means", "class_counts")),
    "spreadless_means": _any(
        lambda message: (
            _without_counts(message)
            and (
                _sends("class_means", "class_covariances")(message)
                or _sends("mixture_means", "mixture_covariances")(message)
            )
        )
    ),
    "differences": lambda messages: sum(map(_told, messages)) > 1,
    "exact_counts": _any(_declared_counts),
    "derivable_counts": _any(
        lambda message: (
            _without_counts(message)
            and (_sends("class_sums")(message) or _sends("ridge_weights", "regularised_gram")(message))
        )
    ),
    "rank": _any(_sends("second_moment|regularised_gram|inverse_gram")),
    "redundant_field": _any(_noised("class_counts", "class_sums")),
    "missing_noise": _any(_noised("class_counts", "class_sums", "second_moment")),
    "unprotected_field": any_protected,
}
"""The rules by name: first those that give vectors, then those of `fedassay.exchange.statistics`."""


def applicable(view: View) -> tuple[str, ...]:
    """The rules that read something in a view, in the order of `APPLIES`."""
    senders = dict.fromkeys(message.sender for message in view.from_clients())
    return tuple(name for name, applies in APPLIES.items() if any(map(applies, map(view.from_client, senders))))


@dataclass
class _Found:
    """Vectors of one source, as they are found."""

    vectors: list[Floats] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    senders: list[str] = field(default_factory=list)

    def add(self, vector: Floats, label: int, sender: str) -> None:
        """Keep one more vector."""
        self.vectors.append(vector)
        self.labels.append(label)
        self.senders.append(sender)

    def source(self, name: str) -> VectorSource:
        """All kept vectors as one source."""
        return VectorSource(
            name,
            np.array(self.vectors, np.float32),
            np.array(self.labels, np.int64),
            tuple(self.senders),
            np.full(len(self.labels), -1),
        )


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    return rate.AUDIT * load.cells / 10


@register("attack", "message_algebra")
class MessageAlgebra(Parameters):
    """Read singletons, collapsed components, ranks, counts and differences from any message."""

    facts: ClassVar[AttackFacts] = AttackFacts(gives=("vectors", "remarks"), reads=KINDS, cost=_seconds)

    variance: float = Field(default=1e-2, gt=0, lt=1)
    """A component has collapsed when its variance is below this share of the median component's."""
    trust: float = Field(default=0.5, gt=0)
    """Vectors on which declared noise has a larger relative norm than this are left out."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Apply every rule to every message that leaves a client.

        Returns:
            Vectors named `singletons`, `collapsed_components`, `spreadless_means` and `differences`; remarks
            as parallel artifacts `rules`, `senders`, `fields`, `texts` and `discloses`, their numbers as
            `values/<i>`; artifact `applicable`, the rules that read something.

        Raises:
            NotRunError: No message holds a field that any rule reads.
        """
        messages = view.from_clients()
        if not messages:
            raise NotRunError(f"the {view.threat.view} view shows no message of any client")
        found: dict[str, _Found] = {}
        for name, vector, label, sender in self._vectors(messages, view.classes):
            found.setdefault(name, _Found()).add(vector, label, sender)
        said = remarks(messages, view.classes)
        fired = {*applicable(view), *found, *(remark.rule for remark in said if remark.discloses)}
        if not fired:
            kinds = sorted(kinds_in(messages))
            raise NotRunError(
                f"no rule of arithmetic applies: clients send {', '.join(kinds)}, and the rules read features; "
                "counts beside sums or means; sums beside second moments; moments of mixtures. What other "
                "attacks read in them is asked there"
            )
        return AttackResult(
            NAME,
            vectors=tuple(part.source(name) for name, part in found.items()),
            scores={f"values/{number}": remark.values for number, remark in enumerate(said)},
            artifacts={
                "applicable": np.array([rule for rule in APPLIES if rule in fired], np.str_),
                "rules": np.array([remark.rule for remark in said], np.str_),
                "senders": np.array([remark.sender for remark in said], np.str_),
                "fields": np.array([remark.field for remark in said], np.str_),
                "texts": np.array([remark.text for remark in said], np.str_),
                "discloses": np.array([remark.discloses for remark in said], np.bool_),
            },
            notes=tuple(dict.fromkeys(f"{remark.sender}: {remark.text}" for remark in said)),
        )

    def _vectors(self, messages: tuple[Message, ...], classes: int) -> Iterator[tuple[str, Floats, int, str]]:
        last: dict[str, Message] = {}
        for message in messages:
            for vector, label in self._singletons(message, classes):
                yield "singletons", vector, label, message.sender
            for vector, label in self._collapsed(message, classes):
                yield "collapsed_components", vector, label, message.sender
            for vector, label in self._spreadless(message, classes):
                yield "spreadless_means", vector, label, message.sender
            if message.sender in last:
                for vector, label in self._differences(last[message.sender], message, classes):
                    yield "differences", vector, label, message.sender
            last[message.sender] = message

    def _singletons(self, message: Message, classes: int) -> Iterator[tuple[Floats, int]]:
        own, known = statistics_of(message, classes), known_counts(message, classes)
        if known is None:
            return
        counts = np.rint(known[0])
        found = field_of(message, "class_sums") or field_of(message, "class_means")
        if found is None or own.sums is None:
            return
        for row in np.flatnonzero(counts == 1):
            vector = found[1].values[row].astype(np.float64)
            if self._clear(vector, noise_of(found[1])):
                yield vector, int(own.order[row])

    def _collapsed(self, message: Message, classes: int) -> Iterator[tuple[Floats, int]]:
        found, counts = field_of(message, "mixture_means"), message.of_kind("class_counts")
        covariances = message.of_kind("mixture_covariances")
        if found is None or counts is None:
            return
        means = found[1].values.astype(np.float64)
        parts, weights = message.of_kind("component_counts"), message.of_kind("mixture_weights")
        components = np.ones(len(counts), np.int64) if parts is None else parts.astype(np.int64)
        group = np.repeat(np.arange(len(components)), components)
        share = counts[group].astype(np.float64) * (1.0 if weights is None else weights.astype(np.float64))
        alone = np.abs(share - 1) < 0.05
        if covariances is not None:
            variance = _variances(covariances.astype(np.float64), means.shape[1])
            alone |= (variance < self.variance * float(np.median(variance))) & (share > 0.5)
        order = statistics_of(message, classes).order
        for row in np.flatnonzero(alone):
            if self._clear(means[row], noise_of(found[1])):
                yield means[row], int(order[group[row]])

    def _spreadless(self, message: Message, classes: int) -> Iterator[tuple[Floats, int]]:
        if message.of_kind("class_counts") is not None:
            return
        order = statistics_of(message, classes).order
        for what in ("class", "mixture"):
            found, spread = field_of(message, f"{what}_means"), field_of(message, f"{what}_covariances")
            if found is None or spread is None or noise_of(spread[1]):
                continue
            parts = message.of_kind("component_counts") if what == "mixture" else None
            labels = order if parts is None else np.repeat(order, parts.astype(np.int64))
            means = found[1].values.astype(np.float64)
            for row in np.flatnonzero(without_spread(spread[1].values, means)):
                # A class without records may be sent as zeros, and zeros are no record's feature.
                if row < len(labels) and means[row].any() and self._clear(means[row], noise_of(found[1])):
                    yield means[row], int(labels[row])

    def _differences(self, old: Message, new: Message, classes: int) -> Iterator[tuple[Floats, int]]:
        before, after = _summed(old, classes), _summed(new, classes)
        if before is None or after is None or before.sums.shape[1] != after.sums.shape[1]:
            return
        for label in np.union1d(before.order, after.order):
            (held, sums, off), (now, moved, error) = before.row(label), after.row(label)
            change = now - held
            if abs(round(change)) == 1 and min(held, now) > 0.5:
                vector = np.sign(change) * (moved - sums)
                if self._clear(vector, float(np.hypot(off, error))):
                    yield vector, int(label)

    def _clear(self, vector: Floats, noise: float) -> bool:
        """Whether declared noise leaves the vector recognisable."""
        return noise * float(np.sqrt(len(vector))) <= self.trust * float(np.linalg.norm(vector))


def _variances(covariances: Matrix, width: int) -> Matrix:
    """Mean variance per feature of each component, shape (S,), in any of the transcript's packings."""
    if covariances.ndim == 1:
        return covariances
    if covariances.shape[1] == width:
        return np.asarray(covariances.mean(axis=1))
    return np.asarray(covariances[:, diagonal_index("full", width)].mean(axis=1))


@dataclass(frozen=True)
class _Summed:
    """The sums of classes that a message holds.

    Attributes:
        order: Classes, shape (P,).
        counts: Records of each, shape (P,).
        sums: Shape (P, d).
        error: Standard deviation of noise, and of what transport rounds off mixtures, shape (P,).
    """

    order: Ints
    counts: Matrix
    sums: Matrix
    error: Matrix

    def row(self, label: int) -> tuple[float, Matrix, float]:
        """Count, sum and error of a class, zeros where the message does not speak of it."""
        rows = np.flatnonzero(self.order == label)
        if not len(rows):
            return 0.0, np.zeros(self.sums.shape[1]), 0.0
        return float(self.counts[rows[0]]), self.sums[rows[0]], float(self.error[rows[0]])


def _summed(message: Message, classes: int) -> _Summed | None:
    own, known = statistics_of(message, classes), known_counts(message, classes)
    if known is None:
        return None
    sent = field_of(message, "class_sums") or field_of(message, "class_means")
    if own.sums is not None and sent is not None:
        return _Summed(own.order, known[0], own.sums, np.full(len(own.order), noise_of(sent[1])))
    mixed, blocks = field_of(message, "mixture_means"), linear_blocks(message, classes)
    found = next(
        (block.together() for block in blocks if mixed and (block.field, block.of) == (mixed[0], "features")), None
    )
    return None if found is None else _Summed(own.order, known[0], found.total[own.order], found.error[own.order])
