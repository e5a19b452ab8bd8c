"""Individual features and labels from second moments, as FedCGS, AFL, Fed3R and others send them.

A client that sends B = sum of f f^T over its records, and class sums A, sends its records' features one by one
where its backbone ends in a rectifier: below the number of features the rank of B is the number of records (so
hiding the counts hides nothing), and `fedassay.attacks.gram.factorization` finds the only non-negative features
with that B and those sums; from there on it still does while features have more zeros than freedom
(`fedassay.attacks.gram.splitting`), counts or none (`count_search`). Signed and dense features are left with a
rotation, which an attacker with images of its own seeks among features that look like its own (`rotation`); of
random Fourier features it is none, and the records follow from the public map (`through_map`).

The same holds for a regularised moment and ridge weights (AFL), for the inverse of that, for second moments of
single classes (GH-OFL), through a public projection, and for the sum over several clients under secure
aggregation. It also holds for the difference of two messages of one sender (records that came or went between
them), whatever the number that stayed; and, class by class, with means and full covariances (CCVR, FedPFT with any
number of components).

Source: this project. Completely positive factorization by alternating projections is Groetzner and Duer 2020.

Assumes: non-negative features with some exact or nearly exact zeros, for which neither the backbone nor any record
of the adversary's own is used; or records of its own, for others.

A null result does not mean that second moments are safe: dense features are separated only approximately, and
protections against this attack (privacy noise, more records than counting allows) need not protect against every
one. `expected_error` estimates the error of the vectors from the agreement of independent runs, without the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedassay.attacks.gram.attribution import SURE, Part, attribute
from fedassay.attacks.gram.count_search import search
from fedassay.attacks.gram.factorization import Factors, factorize
from fedassay.attacks.gram.remembered import Found, once
from fedassay.attacks.gram.rotation import components_of, own_features, rotated, turnable
from fedassay.attacks.gram.targets import Target, targets
from fedassay.attacks.gram.through_map import through_map
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.facts import AttackFacts, Given
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Load, Sizes
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.gram import Gram, Size, is_signed, obstacle, sizes, uncounted
from fedassay.exchange.message import AGGREGATE
from fedassay.exchange.view import View
from fedassay.plan import rates as rate
from fedassay.support.errors import NothingToReadError, NotRunError, Why, above_limit
from fedassay.support.types import Bools, Parameters

NAME = "gram_factorization"

_UNKNOWN = Size(0, np.zeros(0, np.int64), 0, 0.0, 0.0, "rank")

_LOOSE = 0.05
"""Median expected error above which vectors without negative entries may be others than the true ones."""

_TRIED = Why("")
_UNCOUNTED = Why(
    "the second moment has full rank: there are at least as many records as active features, and no number "
    "of them that was tried leaves no negative entry",
    kind="not_possible",
)


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    return rate.AUDIT * load.cells


@register("attack", "gram_factorization")
class GramFactorization(Parameters):
    """Recover single records' features and labels from a second moment and class sums."""

    facts: ClassVar[AttackFacts] = AttackFacts(
        gives=("vectors",),
        reads=(
            "second_moment",
            "regularised_gram",
            "inverse_gram",
            "class_second_moments",
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
    """Largest expected relative error of a vector that counts as recovered."""
    gamma: float | None = Field(default=None, ge=0)
    """Ridge of regularised moments, where it is known; else read off their eigenvalues."""
    differences: bool = True
    """Whether to factor the difference of two messages of the same sender as well."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Factor every second moment in the view.

        Returns:
            Vectors named `gram_factorization` (float32; in float64 as the artifact `vectors`), with
            `expected_error` and `target` per vector; `rank`, `records`, `recovered`, `residual` per target,
            in the order of the artifacts `senders` and `sources`, and of `reasons` and `obstacles`, which say in
            words and by kind why a target was not tried. NaN where it was not. Where vectors
            came from sums over clients: artifacts `clients` (S,), `possible` (k, S), which of them each vector may
            be of, `evidence` (k,) and `unattributed`, the reason where none is of one client only; see
            `fedassay.attacks.gram.attribution`.

        Raises:
            NothingToReadError: The view holds no second moment or full covariance with a mean.
        """
        found = targets(view, gamma=self.gamma, differences=self.differences)
        if not found:
            raise NothingToReadError(
                "the view holds no second moment, and no full covariances with means and counts"
            )
        outcomes = []
        with knowledge.progress.step("factoring second moments") as advance:
            for number, target in enumerate(found):
                advance(number, len(found))
                outcomes.append(self._attack(target, view, knowledge))
        return self._result(found, outcomes, view)

    def _attack(self, target: Target, view: View, knowledge: Knowledge) -> _Tried:
        best: _Tried | None = None
        options = [(gram, size) for gram in target.candidates for size in sizes(gram)]
        several = len(options) > len(target.candidates)
        for gram, size in options:
            why = obstacle(gram, size)
            turned = self._turned(gram, size, view, knowledge) if is_signed(gram, size) else None
            if turned is not None:
                best = best or _Tried(size, turned)
                continue
            if why is None and size.total > self.max_records:
                above = f"{size.total} records are above max_records {self.max_records}"
                why = above_limit(above, "max_records", self.max_records, size.total)
            if why is not None:
                best = best or _Tried(size, None, why)
                continue
            rng = knowledge.seeds.numpy("starts", target.what)
            searched, factors = self._factors(gram, size, rng)
            if factors is None:
                best = best or _Tried(size, None, _UNCOUNTED)
                continue
            factors = self._denser(factors, gram, searched, view, knowledge)
            if best is None or best.factors is None or factors.residual < best.factors.residual:
                best = _Tried(searched, factors)
            if factors.residual < max(10 * gram.unit, 0.01 / searched.total) and not several:
                break
        return best or _Tried(_UNKNOWN, None, Why(target.reason, kind="not_possible"))

    def _turned(self, gram: Gram, size: Size, view: View, knowledge: Knowledge) -> Factors | None:
        """Vectors by a public map, or by the rotation that makes them look like the attacker's own; or None."""
        mapped = through_map(gram, size, view, knowledge.attacker)
        if mapped is not None:
            return mapped
        if not turnable(gram, size):
            return None
        own = own_features(view, knowledge.attacker, len(gram.second))
        if own is None:
            return None
        rng = knowledge.seeds.numpy("rotation", str(size.total))
        return rotated(gram, size, components_of(own, 0), rng)

    def _denser(self, factors: Factors, gram: Gram, size: Size, view: View, knowledge: Knowledge) -> Factors:
        """The factors, or rotated ones where runs do not agree, for want of zeros, and these do better."""
        if np.median(factors.expected_error) < _LOOSE:
            return factors
        turned = self._turned(gram, size, view, knowledge)
        if turned is None or np.median(turned.expected_error) > np.median(factors.expected_error):
            return factors
        return turned

    def _factors(self, gram: Gram, size: Size, rng: np.random.Generator) -> tuple[Size, Factors | None]:
        """Vectors with a second moment, and how many; None where it has full rank and nothing says how many."""
        tries = {"restarts": self.restarts, "iterations": self.iterations}

        def make() -> Found:
            if not uncounted(gram, size):
                return size, factorize(gram, size, rng, **tries)
            found = search(gram, size, rng, most=self.max_records, **tries)
            return (size, None) if found is None else found

        return once(gram, size, rng, {**tries, "most": self.max_records}, make)

    def _result(self, found: list[Target], outcomes: list[_Tried], view: View) -> AttackResult:
        vectors, labels, errors, owners, notes, parts = [], [], [], [], [], []
        untried: dict[str, list[str]] = {}
        reasons = [tried.reason for tried in outcomes if tried.factors is None]
        recovered = np.zeros(len(found))
        for number, (target, tried) in enumerate(zip(found, outcomes, strict=True)):
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
            parts.append(_part(target, tried.factors, kept))
        for reason, which in untried.items():
            others = f" and {len(which) - 1} more" if len(which) > 1 else ""
            notes.insert(0, f"not tried on {which[0]}{others}: {reason}")
        widths = {part.shape[1] for part in vectors}
        if len(widths) > 1:
            raise NotRunError(f"second moments of different widths in one view: {sorted(widths)}")
        together = np.concatenate(vectors) if owners else np.zeros((0, max(widths, default=0)))
        attributed, said = _attributed(view, parts)
        notes += said
        source = VectorSource(
            NAME,
            together.astype(np.float32),
            np.concatenate(labels).astype(np.int64) if owners else np.zeros(0, np.int64),
            tuple(found[owner].sender for owner in owners),
            np.full(len(together), -1),
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
                "vectors": together,
                "target": np.array(owners, np.int64),
                "senders": np.array([target.sender for target in found]),
                "sources": np.array([target.what for target in found]),
                "reasons": np.array([str(tried.reason) for tried in outcomes]),
                "obstacles": np.array([tried.reason.kind for tried in outcomes], np.str_),
                **attributed,
            },
            notes=tuple(notes),
            limited=max((why for why in reasons if why.key), key=lambda why: why.needed or 0, default=None),
        )


@dataclass(frozen=True)
class _Tried:
    """Result for a target: factors, or the reason why it was not tried."""

    size: Size
    factors: Factors | None
    reason: Why = _TRIED


def _part(target: Target, factors: Factors, kept: Bools) -> Part:
    """Recovered part of a target, for attribution."""
    expected = factors.expected_error[kept]
    whole = bool(kept.all() and (expected <= SURE).all())
    labels, vectors = factors.labels[kept].astype(np.int64), factors.vectors[kept]
    return Part(target.sender, target.round, target.before, vectors, labels, expected, whole)


def _attributed(view: View, parts: list[Part]) -> tuple[dict[str, NDArray[np.generic]], list[str]]:
    """Attribute vectors to clients, as artifacts, with a sentence; none where no sum over clients was factored."""
    summed = np.repeat([part.sender == AGGREGATE for part in parts], [len(part.vectors) for part in parts])
    if not summed.any():
        return {}, []
    found = attribute(view, parts)
    single = int((found.possible[summed].sum(axis=1) == 1).sum())
    said = f"{single} of {int(summed.sum())} vectors of sums over clients are one client's by what else is seen"
    artifacts: dict[str, NDArray[np.generic]] = {
        "clients": np.array(found.clients, np.str_),
        "possible": found.possible,
        "evidence": np.array(found.evidence, np.str_),
        "unattributed": np.array(found.reason, np.str_),
    }
    return artifacts, [found.reason or said]
