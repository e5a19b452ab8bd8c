"""Features of the two to eight records behind a converged softmax head, without any gallery.

The stationarity of a head with a penalty gives its records about their common mean (`fixed_point`), and the law of
single features gives the mean (`common_mean`). The classes of the records are
those of the head's longest rows. The solution is exact up to the gradient at which the head's solver stopped. With
another penalty than the head's, it is that of all records scaled by one factor.

Assumes a head of more classes than records, with a known penalty, a known number of records and one record of a
class at most, and images of the attacker's own, encoded by the same backbone.

A null result does not mean that the records of a head are safe. Several records of one class enter its equations
with nearly equal residuals, so that only their sum is determined. A head without an absent class has many
solutions. For more records, `gallery` solves a head for candidates.

Source: this project. Bertran et al. 2024 (arXiv 2405.20272) reconstruct a record from two linear models.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.attacks.head_reconstruction.common_mean import common_mean
from fedassay.attacks.head_reconstruction.fixed_point import Found, Stationarity, solved
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.facts import AttackFacts, Given
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Load, Sizes
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.sent_head import head_in
from fedassay.exchange.transcript import Message
from fedassay.exchange.view import View
from fedassay.heads.estimators import SoftmaxEstimator
from fedassay.heads.linear import LinearHead
from fedassay.plan import rates as rate
from fedassay.support.errors import NothingToReadError, above_limit
from fedassay.support.types import Ints, Matrix, Parameters

NAME = "head_reconstruction"

TRUSTED = 0.02
"""Largest distance of the best two solutions of a head at which its vectors are trusted."""
_LIVE = 1e-7
"""Weight of a feature, relative to the largest, below which it did not vary over the records."""


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    # Clients are about as large as their mean; heads of more records are passed over.
    few = sizes.private <= 2 * given["most"] * sizes.clients
    heads = min(given["max_heads"], sizes.clients) if few else 0
    return float(rate.AUDIT * load.cells * heads * given["starts"] / 16)


@register("attack", "head_reconstruction")
class HeadReconstruction(Parameters):
    """Recover the features of the few records that a converged softmax head was fitted to."""

    # No kind of field shows that a head has converged, or is of few records: its kinds are not declared.
    facts: ClassVar[AttackFacts] = AttackFacts(gives=("vectors",), needs=("attacker_records",), cost=_seconds)

    most: int = Field(default=8, ge=2, le=8)
    """Largest number of records of a head that is tried."""
    starts: int = Field(default=32, ge=2)
    """Heads of the attacker's own records, of which the nearest are starts of the search."""
    max_heads: int = Field(default=64, ge=1)
    """Heads that are tried at most, those of the fewest records first."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Solve every client's head of few records.

        Returns:
            Vectors named `head_reconstruction`, one for each record of a head that was solved; `apart` for each
            vector, how far the next solution is from it; `trusted`, 1 where that is below `TRUSTED`; and
            `records`, how many the head has.

        Raises:
            NothingToReadError: No head of few records that solves these equations is seen.
            NotRunError: The attacker has too few images of its own, or of another width.
        """
        heads, reasons = _heads(view, self.most)
        if not heads:
            raise NothingToReadError("; ".join(dict.fromkeys(reasons)) or "the view shows no head of a client")
        width = heads[0][1].weights.shape[1]
        own = knowledge.population(width)
        chosen = sorted(heads, key=lambda each: each[2])[: self.max_heads]
        found: list[tuple[str, Ints, Matrix, Found]] = []
        with knowledge.progress.step("records of heads") as advance:
            for number, (message, head, records, estimator) in enumerate(chosen):
                advance(number, len(chosen))
                rng = knowledge.seeds.numpy("starts", message.sender, str(message.round))
                solution = reconstructed(head, records, estimator, own, rng, self.starts)
                if solution is not None:
                    found.append((message.sender, *solution))
        return _result(found, len(chosen), len(heads) - len(chosen), width)


def reconstructed(
    head: LinearHead,
    records: int,
    estimator: SoftmaxEstimator,
    own: Records,
    rng: np.random.Generator,
    starts: int,
) -> tuple[Ints, Matrix, Found] | None:
    """Return classes (n,) and features (n, d) of a head's records, one a class; None where there is no solution.

    Args:
        head: The head as it was sent.
        records: Number of its records n, below its number of classes.
        estimator: Gives the head's penalty and stationarity.
        own: The attacker's own records.
        rng: Draws records of the attacker's own for starts.
        starts: Number of heads of its own records; the nearest are starts of the search.
    """
    weights = head.weights.astype(np.float64)
    size = np.abs(weights).max(axis=0)
    live = size > _LIVE * size.max()
    places = np.sort(np.argsort(-np.linalg.norm(weights, axis=1), kind="stable")[:records])
    equations = Stationarity(weights[:, live], places, estimator.decay)
    solution = solved(equations, _starts(places, estimator, own, rng, starts))
    if solution is None:
        return None
    centred = np.zeros((records, weights.shape[1]))
    centred[:, live] = solution.centred
    features = centred + common_mean(centred, own.features.astype(np.float64))
    return head.classes[places], features, solution


def _starts(
    places: Ints, estimator: SoftmaxEstimator, own: Records, rng: np.random.Generator, number: int
) -> Iterator[Matrix]:
    """Yield logits of heads of the attacker's own records, of the same classes, or of any where one is absent."""
    for _ in range(number):
        rows = []
        for place in places:
            alike = np.flatnonzero(own.labels == place)
            rows.append(int(rng.choice(alike if len(alike) else len(own))))
        features = own.features[rows]
        yield estimator.fit(features, places).scores(features)


def _heads(view: View, most: int) -> tuple[list[tuple[Message, LinearHead, int, SoftmaxEstimator]], list[str]]:
    """Return clients' heads with their numbers of records and estimators, and reasons why others are not read."""
    found, reasons = [], []
    for message in view.messages:
        head, estimator = head_in(message), view.estimators.get((message.sender, message.round))
        if head is None:
            continue
        records, classes = message.fields.get("records"), len(head.classes)
        if not isinstance(estimator, SoftmaxEstimator):
            reasons.append("a head is no softmax head that was trained to convergence with a penalty and no noise")
        elif estimator.classes is None or records is None or records.size != 1:
            reasons.append("a head says neither its number of records nor has it rows for classes without any")
        elif not 2 <= (number := int(records.values.item())) <= most:
            reasons.append(f"a head has {number} records; 2 to {most} are read")
        elif number >= classes:
            reasons.append(f"a head of {number} records has {classes} classes, and all of them may be present")
        else:
            found.append((message, head, number, estimator))
    return found, reasons


def _result(found: list[tuple[str, Ints, Matrix, Found]], tried: int, left: int, width: int) -> AttackResult:
    apart = np.concatenate([np.zeros(0), *(solution.apart for *_, solution in found)])
    source = VectorSource(
        NAME,
        np.concatenate([np.zeros((0, width)), *(features for _, _, features, _ in found)]).astype(np.float32),
        np.concatenate([np.zeros(0, np.int64), *(labels for _, labels, _, _ in found)]).astype(np.int64),
        tuple(sender for sender, labels, _, _ in found for _ in labels),
        np.full(len(apart), -1),
    )
    trusted = apart < TRUSTED
    notes = [
        f"{len(found)} of {tried} heads were solved, {int(trusted.sum())} of {len(apart)} vectors may be trusted"
    ]
    limited = None
    if left:
        words = f"{left} further heads of few records were not tried; `max_heads` is {tried}"
        notes.append(words)
        limited = above_limit(words, "max_heads", tried, tried + left)
    sizes = np.concatenate([np.zeros(0), *(np.full(len(labels), float(len(labels))) for _, labels, _, _ in found)])
    scores = {"apart": apart, "trusted": trusted.astype(np.float64), "records": sizes}
    return AttackResult(NAME, vectors=(source,), scores=scores, notes=tuple(notes), limited=limited)
