"""Partial reconstruction: the candidate vectors that membership inference takes for real records.

Beitollahi et al. 2024 (appendix E.2) order an attacker's aims: a set of reconstructions with a few real ones, and
a small subset that it can name as real. They say that set-level reconstruction combined with a good membership
inference attack implies partial reconstruction, and carry out neither that attack nor the chain.

Candidates are samples of the received mixtures, and vectors that other attacks recovered. Each is scored as a
membership attack scores a record: by the likelihood ratio of the sender's message with and without it, the law of
other records known from images of the attacker's own (`fedassay.attacks.membership.tracing`). The best are kept,
no two of one sender alike.

Assumes images of the attacker's own from the same distribution, encoded by the same backbone.

A null result does not mean that no candidate is real: samples of large components cannot be distinguished from
others, and a better score than this likelihood ratio may do more.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.attacks.membership.signals import as_ratio
from fedassay.attacks.membership.tracing import evidence
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.facts import AttackFacts
from fedassay.contracts.registry import register
from fedassay.exchange.feature_sources import VectorSource, concatenated, sources
from fedassay.exchange.view import View
from fedassay.mixtures.population import Population, population_of
from fedassay.plan import rates as rate
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.types import Ints, Matrix, Parameters

NAME = "partial_reconstruction"

SAMPLES = "mixture_samples"

_ALIKE = 0.1
"""Relative distance below which two candidates of one sender show one record."""


@register("attack", "partial_reconstruction")
class PartialReconstruction(Parameters):
    """Choose, of sampled and recovered vectors, those that membership inference takes for real records."""

    facts: ClassVar[AttackFacts] = AttackFacts(
        gives=("vectors",),
        needs=("attacker_records",),
        takes=("vectors",),
        reads=(("mixture_means", "mixture_covariances"),),
        cost=lambda given, sizes, load: rate.AUDIT * load.cells,
    )

    share: float = Field(default=0.1, gt=0, le=1)
    """Share of the candidates that are kept; the paper keeps 1 % of 9,000."""
    at_least: int = Field(default=20, ge=2)
    """So many are kept at least."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Score the candidates, and keep the best.

        Returns:
            Vectors named `partial_reconstruction`, best first; `evidence` for each, the log-likelihood ratio.

        Raises:
            NothingToReadError: The view holds no mixtures, and no attack before this one recovered a vector.
            NotRunError: The attacker has no records, or vectors of another width; or the messages say nothing of
                single records.
        """
        drawn = [part for part in sources(view, knowledge.seeds.numpy("sources")) if part.name == SAMPLES]
        parts = [part for part in (*drawn, *knowledge.recovered) if len(part.vectors)]
        if not parts:
            raise NothingToReadError(
                "the view holds no mixtures, and no attack before this one recovered a vector"
            )
        own = knowledge.attacker
        if own is None or not len(own):
            raise NotRunError("the attacker has no records to learn from what others are like", role="attacker")
        width = own.features.shape[1]
        usable = [part for part in parts if part.vectors.ndim == 2 and part.vectors.shape[1] == width]
        if not usable:
            raise NotRunError(
                f"the attacker's features have width {width}, the vectors {parts[0].vectors.shape[1]}"
            )
        candidates = concatenated(usable)
        people = population_of(own.features.astype(np.float64), own.labels, knowledge.classes)
        scores = ratios(view, candidates, people)
        wanted = max(self.at_least, round(self.share * len(scores)))
        kept = best(candidates, scores, wanted)
        chosen = candidates.take(kept)
        source = VectorSource(NAME, chosen.vectors, chosen.labels, chosen.senders, np.full(len(kept), -1))
        names = np.repeat([part.name for part in usable], [len(part.vectors) for part in usable])[kept]
        told = ", ".join(f"{int((names == name).sum())} of {name}" for name in np.unique(names))
        return AttackResult(
            NAME,
            vectors=(source,),
            scores={"evidence": scores[kept]},
            notes=(f"{len(kept)} of {len(scores)} candidates are kept: {told}",),
        )


def ratios(view: View, candidates: VectorSource, people: Population) -> Matrix:
    """The log-likelihood ratio of each candidate in its sender's messages, shape (n,).

    Raises:
        NotRunError: No message of theirs holds evidence on single records.
    """
    scores = np.full(len(candidates.vectors), -np.inf)
    seen = view.from_clients()
    own = candidates.of_senders(message.sender for message in seen)
    for message in seen:
        rows = own[message.sender]
        rows = rows[candidates.labels[rows] >= 0]
        if not len(rows):
            continue
        vectors, labels = candidates.vectors[rows].astype(np.float64), candidates.labels[rows]
        found = evidence(message, vectors, labels, people, view.classes, None)
        if set(found) & {"class_sum", "density", "span", "nearest"}:
            scores[rows] = np.maximum(scores[rows], as_ratio(found, vectors.shape[1]))
    if np.isneginf(scores).all():
        raise NotRunError("the messages hold no evidence on single records of the candidates' classes")
    return scores


def best(candidates: VectorSource, scores: Matrix, wanted: int) -> Ints:
    """The candidates of the highest scores, best first, no two of one sender alike."""
    kept: list[int] = []
    names = np.array(candidates.senders)
    for row in np.argsort(-scores, kind="stable"):
        if len(kept) == wanted or np.isneginf(scores[row]):
            break
        vector = candidates.vectors[row].astype(np.float64)
        others = [other for other in kept if names[other] == names[row]]
        gaps = np.linalg.norm(candidates.vectors[others].astype(np.float64) - vector, axis=1)
        if not (gaps < _ALIKE * np.linalg.norm(vector)).any():
            kept.append(int(row))
    return np.array(kept, np.int64)
