"""Features of single records from the gradient of a softmax head.

The gradient of cross-entropy by the weights of a head is G = sum_i (p_i - y_i) f_i^T, p_i the probabilities of
record i and y_i its label as a unit vector. Labels follow from the bias gradient
(`fedassay.attacks.gradients.labels`). From weights of 0 all p_i are the same p, and G_c = p_c S - S_c with S_c the
sum of the features of class c and S that of all: an absent class gives S, and so does every feature that is 0 in
some class, where features are not negative, since then S = max_c G_c / p_c. A label that occurs once gives a
record's own feature, exactly; one that occurs more often gives the sum of its records'. From other weights p_i
follows from f_i, and both are solved for in turn.

Sources: labels, Zhao et al. 2020; features under a head, Wainakh et al., "User-level label leakage from gradients
in federated learning", 2022, have the labels; the closed form above is this project's.

Assumes: the head as the server sent it, and how many records the gradient is of.

A null result does not mean that a head's gradient is safe: classes with several records give their sums, which
further attacks may take apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from pydantic import Field
from scipy.special import softmax

from fedassay.attacks.gradients.labels import label_counts
from fedassay.attacks.gradients.targets import Layer, Target, targets
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.facts import AttackFacts, Given
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Load, Sizes
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.view import View
from fedassay.plan import rates as rate
from fedassay.support.errors import NothingToReadError
from fedassay.support.types import Ints, Matrix, Parameters

NAME = "head_inversion"


def _seconds(given: Given, sizes: Sizes, load: Load) -> float:
    return rate.AUDIT * load.cells / 10


@register("attack", "head_inversion")
class HeadInversion(Parameters):
    """Recover features of records from the gradient of a softmax head, where their label occurs once."""

    facts: ClassVar[AttackFacts] = AttackFacts(gives=("vectors",), reads=(("gradient", "head"),), cost=_seconds)

    passes: int = Field(default=30, ge=1)
    """Times that probabilities and features are solved for in turn, where the weights were not 0."""
    fit: float = Field(default=1e-3, gt=0)
    """Largest residual of the gradient, relative to its norm, where they were not."""

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Attack every gradient of a head in the view.

        Returns:
            Vectors named `head_inversion`; artifact `counts`, records a class and gradient, shape (gradients, C).

        Raises:
            NothingToReadError: The view holds no gradient of a head with weights sent by the server.
        """
        heads = [
            (target, layers[0])
            for target in targets(view)
            if target.network is None and len(layers := target.layers()) == 1 and layers[0].weights is not None
        ]
        if not heads:
            raise NothingToReadError(
                "the view holds no gradient of a head beside the weights that it was taken at"
            )
        vectors: list[Matrix] = []
        labels: list[int] = []
        senders: list[str] = []
        counted, notes = [], []
        for target, head in heads:
            counts = _counts(target, head)
            counted.append(counts if counts is not None else np.zeros(len(head.bias_gradient), np.int64))
            if counts is None:
                notes.append(f"{target.sender}: how many records the gradient is of is not known")
                continue
            for label, vector in self._singles(head, counts):
                vectors.append(vector)
                labels.append(label)
                senders.append(target.sender)
        none = np.full(len(labels), -1)
        known = np.array(vectors, np.float32).reshape(len(labels), heads[0][1].gradient.shape[1])
        source = VectorSource(NAME, known, np.array(labels, np.int64), tuple(senders), none)
        return AttackResult(
            NAME,
            vectors=(source,) if labels else (),
            artifacts={"counts": np.array(counted)},
            notes=tuple(notes),
        )

    def _singles(self, head: Layer, counts: Ints) -> Iterator[tuple[int, Matrix]]:
        """Labels that occur once, and the features of their records."""
        gradient, records = head.gradient.astype(np.float64), int(counts.sum())
        assert head.weights is not None
        weights, bias = (np.asarray(part, np.float64) for part in head.weights)
        own = softmax(bias)
        # A mean is a sum over n: the bias gradient says which.
        gradient *= _factor(head, counts, own)
        present = np.flatnonzero(counts)
        total = np.max(gradient / own[:, None], axis=0)
        if len(present) < len(counts):
            total = np.mean((gradient / own[:, None])[counts == 0], axis=0)
        sums = own[:, None] * total - gradient
        if weights.any():
            if records != len(present) or records >= len(counts):
                return
            found = self._solved(gradient, weights, bias, sums[present], present)
            if found is None:
                return
            sums[present] = found
        for label in np.flatnonzero(counts == 1):
            yield int(label), sums[label]

    def _solved(
        self, gradient: Matrix, weights: Matrix, bias: Matrix, features: Matrix, labels: Ints
    ) -> Matrix | None:
        """Features (n, d) of records with different labels, n < C; None where no solution was found."""
        errors = np.zeros((len(labels), len(bias)))
        for _ in range(self.passes):
            errors = softmax(features @ weights.T + bias, axis=-1) - np.eye(len(bias))[labels]
            features = np.asarray(np.linalg.lstsq(errors.T, gradient, rcond=None)[0], np.float64)
        errors = softmax(features @ weights.T + bias, axis=-1) - np.eye(len(bias))[labels]
        left = np.linalg.norm(errors.T @ features - gradient)
        return features if left <= self.fit * np.linalg.norm(gradient) else None


def _counts(target: Target, head: Layer) -> Ints | None:
    assert head.weights is not None
    if not target.records or target.records < 0:
        return None
    return label_counts(head.bias_gradient, target.records, softmax(np.asarray(head.weights[1], np.float64)))


def _factor(head: Layer, counts: Ints, own: Matrix) -> float:
    """Factor from the gradient to a sum over records: 1 or their number."""
    records = float(counts.sum())
    expected = records * own - counts
    given = head.bias_gradient.astype(np.float64)
    return min((1.0, records), key=lambda each: float(np.linalg.norm(each * given - expected)))
