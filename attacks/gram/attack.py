"""Individual features and labels from a second moment, as FedCGS sends it.

A client that sends B = sum of f f^T over its records, and class sums A, sends its records' features one by one
as long as they are fewer than the active features and its backbone ends in a rectifier: the rank of B is the
number of records (so hiding the counts hides nothing), and `fedassay.attacks.gram.factorization` finds the only
non-negative features with that B and those sums. The same holds for the sum over several clients under secure
aggregation while their records together are fewer than the features; for the difference of two messages of one
sender (records that came or went between them), whatever the number that stayed; and, class by class, for means
with full covariances (FedPFT with one component, CCVR).

Source: this project. Completely positive factorization by alternating projections is Groetzner and Duer 2020.

Assumes: non-negative features with some exact or nearly exact zeros. Neither the backbone nor any record of the
adversary's own is used.

A null result does not mean that second moments are safe: dense features are told apart only approximately, more
records than features (or privacy noise) hide them from this attack, not from every one. `expected_error` says
from the agreement of independent runs, without the truth, how far the vectors are to be trusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.attacks.gram.factorization import Factors, factorize
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.facts import AttackFacts, Given
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Load, Sizes
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.gram import Gram, Matrix, Size, measure, obstacle
from fedassay.exchange.statistics import gram_of, noise_of, roundoff, square, statistics_of
from fedassay.exchange.transcript import Message
from fedassay.exchange.view import View
from fedassay.plan import rates as rate
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.types import Ints, Parameters

NAME = "gram_factorization"


@dataclass(frozen=True)
class Target:
    """One Gram matrix to factor.

    Attributes:
        sender: Whose records it is made of.
        what: What it was taken from, for the notes.
        candidates: The statistics; more than one where a convention (n or n - 1) is not known, the one with the
            larger second moment first: one that is too small is as easy to meet, one that is too large is not.
    """

    sender: str
    what: str
    candidates: tuple[Gram, ...]


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    return rate.AUDIT * load.cells


@register("attack", "gram_factorization")
class GramFactorization(Parameters):
    """Recover single records' features and labels from a second moment and class sums."""

    facts: ClassVar[AttackFacts] = AttackFacts(
        gives=("vectors",),
        reads=(
            "second_moment",
            ("class_means", "class_covariances", "class_counts"),
            ("mixture_means", "mixture_covariances", "class_counts"),
        ),
        cost=_seconds,
    )

    restarts: int = Field(default=6, ge=2)
    """Random starts at most; two that agree are enough."""
    iterations: int = Field(default=1500, ge=1)
    """Projections of a start at most."""
    max_records: int = Field(default=256, ge=1)
    """Largest number of records tried; 256 take about a minute on one core, 64 a second."""
    trust: float = Field(default=0.5, gt=0)
    """Vectors whose expected relative error is above it are counted as not recovered."""
    differences: bool = True
    """Whether to factor the difference of two messages of the same sender as well."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Factor every second moment in the view.

        Returns:
            Vectors named `gram_factorization` (float32; in float64 as the artifact `vectors`), with
            `expected_error` and `target` per vector; `rank`, `records`, `recovered`, `residual` per target,
            in the order of the artifacts `senders` and `sources`. NaN where a target was not tried.

        Raises:
            NothingToReadError: The view holds no second moment or full covariance with a mean.
        """
        targets = list(_targets(view))
        if self.differences:
            targets += list(_differences(view))
        if not targets:
            raise NothingToReadError(
                "the view holds no second moment, and no full covariances with means and counts"
            )
        outcomes = []
        with knowledge.progress.step("factoring second moments") as advance:
            for number, target in enumerate(targets):
                advance(number, len(targets))
                outcomes.append(self._attack(target, knowledge))
        return self._result(targets, outcomes)

    def _attack(self, target: Target, knowledge: Knowledge) -> _Tried:
        best: _Tried | None = None
        for gram in target.candidates:
            size = measure(gram)
            reason = obstacle(gram, size)
            if reason is None and size.total > self.max_records:
                reason = f"{size.total} records are above max_records {self.max_records}"
            if reason is not None:
                best = best or _Tried(size, None, reason)
                continue
            rng = knowledge.seeds.numpy("starts", target.sender, target.what)
            factors = factorize(gram, size, rng, restarts=self.restarts, iterations=self.iterations)
            if best is None or best.factors is None or factors.residual < best.factors.residual:
                best = _Tried(size, factors, "")
            if factors.residual < max(10 * gram.unit, 0.01 / size.total):
                break
        assert best is not None
        return best

    def _result(self, targets: list[Target], outcomes: list[_Tried]) -> AttackResult:
        vectors, labels, errors, owners, notes = [], [], [], [], []
        untried: dict[str, list[str]] = {}
        recovered = np.zeros(len(targets))
        for number, (target, tried) in enumerate(zip(targets, outcomes, strict=True)):
            where = f"{target.sender}, {target.what}"
            if tried.factors is None:
                untried.setdefault(tried.reason, []).append(where)
                recovered[number] = 0 if tried.size.noise > 0 else np.nan
                continue
            kept = tried.factors.expected_error <= self.trust
            recovered[number] = kept.sum()
            if not kept.all():
                notes.append(
                    f"{where}: {int((~kept).sum())} of {len(kept)} vectors are left out, since independent runs "
                    f"did not agree on them or they break non-negativity"
                )
            vectors.append(tried.factors.vectors[kept])
            labels.append(tried.factors.labels[kept])
            errors.append(tried.factors.expected_error[kept])
            owners += [number] * int(kept.sum())
        for reason, which in untried.items():
            others = f" and {len(which) - 1} more" if len(which) > 1 else ""
            notes.insert(0, f"not tried on {which[0]}{others}: {reason}")
        widths = {part.shape[1] for part in vectors}
        if len(widths) > 1:
            raise NotRunError(f"second moments of different widths in one view: {sorted(widths)}")
        found = np.concatenate(vectors) if owners else np.zeros((0, max(widths, default=0)))
        source = VectorSource(
            NAME,
            found.astype(np.float32),
            np.concatenate(labels).astype(np.int64) if owners else np.zeros(0, np.int64),
            tuple(targets[owner].sender for owner in owners),
            np.full(len(found), -1),
        )
        return AttackResult(
            NAME,
            vectors=(source,) if owners else (),
            scores={
                "expected_error": np.concatenate(errors) if owners else np.zeros(0),
                "rank": np.array([float(tried.size.rank) for tried in outcomes]),
                "records": np.array([float(tried.size.total) for tried in outcomes]),
                "recovered": recovered,
                "residual": np.array([np.nan if t.factors is None else t.factors.residual for t in outcomes]),
            },
            artifacts={
                "vectors": found,
                "target": np.array(owners, np.int64),
                "senders": np.array([target.sender for target in targets]),
                "sources": np.array([target.what for target in targets]),
                "reasons": np.array([tried.reason for tried in outcomes]),
            },
            notes=tuple(notes),
        )


@dataclass(frozen=True)
class _Tried:
    """What came of a target: factors, or the reason why it was not tried."""

    size: Size
    factors: Factors | None
    reason: str


def _targets(view: View) -> Iterator[Target]:
    for message in view.from_clients():
        gram = gram_of(message, view.classes)
        if gram is not None:
            yield Target(message.sender, f"round {message.round}", (gram,))
        yield from _class_targets(message, statistics_of(message, view.classes).order)


def _class_targets(message: Message, order: Ints) -> Iterator[Target]:
    """Means with full covariances, one Gram matrix a class."""
    means, covariances = message.of_kind("class_means"), message.of_kind("class_covariances")
    if means is None or covariances is None:
        means, covariances = message.of_kind("mixture_means"), message.of_kind("mixture_covariances")
        parts = message.of_kind("component_counts")
        if parts is not None and (parts != 1).any():
            return  # a component's share of the records is not whole
    counts = message.of_kind("class_counts")
    if means is None or covariances is None or counts is None or covariances.ndim < 2:
        return
    noise = [
        max((noise_of(item) for item in message.fields.values() if item.kind in kinds), default=0.0)
        for kinds in (("class_means", "mixture_means"), ("class_covariances", "mixture_covariances"))
    ]
    width = means.shape[1]
    if covariances.ndim == 2 and (width == 1 or covariances.shape[1] != width * (width + 1) // 2):
        return
    for row, label in enumerate(order):
        count = round(float(counts[row]))
        if count < 1:
            continue
        mean, covariance = means[row].astype(np.float64), square(covariances[row])
        # Fewer records than features leave the covariance singular, but for a floor that the sender added.
        spectrum = np.linalg.eigvalsh(covariance)
        if count <= width // 2:
            covariance = covariance - float(np.median(spectrum[: width - count + 1])) * np.eye(width)
        unit, known = roundoff(covariances), (mean * count)[None]
        on_mean, on_spread = noise
        grams = [
            Gram(
                weight * covariance + count * np.outer(mean, mean),
                known,
                np.array([count]),
                order[row : row + 1],
                unit,
                float(np.hypot(weight * on_spread, count * on_mean * np.linalg.norm(mean))),
            )
            for weight in ((count, count - 1) if count > 1 else (count,))
        ]
        yield Target(message.sender, f"round {message.round}, class {label}", tuple(grams))


def _differences(view: View) -> Iterator[Target]:
    """What changed between consecutive messages of one sender: the records that came, or that went."""
    last: dict[str, tuple[Message, Gram]] = {}
    for message in view.from_clients():
        gram = gram_of(message, view.classes)
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
        yield Target(
            message.sender,
            f"round {message.round} minus round {before[0].round}",
            (
                Gram(
                    second=sign * change,
                    sums=_minus(new.sums, old.sums, sign),
                    counts=_minus(new.counts, old.counts, sign),
                    labels=new.labels,
                    unit=max(old.unit, new.unit) * max(1.0, float(np.linalg.norm(new.second)) / norm),
                    noise=float(np.hypot(old.noise, new.noise)),
                ),
            ),
        )


def _minus(new: Matrix | None, old: Matrix | None, sign: float) -> Matrix | None:
    return None if new is None or old is None else sign * (new - old)
