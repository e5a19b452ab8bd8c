"""The joint attack under noise must be nearly as good as the best linear answer, where that can be computed.

Controls without noise are solved exactly, and say nothing of the way that noised messages are solved. This one is
sums over half of a few hundred candidates of every label, with Gaussian noise of a third of a record, or of less
where that hides who is in from the best answer as well: records that are much alike differ in little. The best
linear answer, for coins as a prior, is one system of candidates by candidates, solved for here by itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedassay.audits.evidence import ControlResult
from fedassay.audits.stats.estimate import Estimate
from fedassay.audits.stats.roc import auc
from fedassay.contracts.audit import AttackedContext
from fedassay.contracts.membership import MembershipGame, half_of_each
from fedassay.data.records import joined
from fedassay.exchange.message import Message, MessageField
from fedassay.exchange.release import Release
from fedassay.exchange.transcript import SERVER, kinds_in
from fedassay.exchange.view import View
from fedassay.mixtures.packed import pack_lower, unpack_lower
from fedassay.support.types import Bools, Ints, Matrix

_SENDER = "control"
_MOST = 300
"""Candidates at most."""
_LENGTH = 3.0
"""Length of a typical record's sums in standard deviations of the noise."""
_TOLD = 0.75
"""Noise is halved, up to `_HALVINGS` times, until the best linear answer surely has this AUC: with a lower one the
trial says nothing of the attack."""
_HALVINGS = 10
_SHARE = 0.9
"""Least share of the best linear answer's advantage over chance that the attack must reach."""
_WORDS = "the same sums over half of the candidates of every label, with noise of a third of a record or less"
_MOMENTS = {"second_moment", "regularised_gram", "inverse_gram"}


def noised_control(context: AttackedContext) -> ControlResult:
    """The attack on noised sums, beside the best linear answer."""
    rng = context.seeds.numpy("membership", "candidates", "noised")
    asked = joined("candidates", list(context.game.questions.values()))
    gallery = asked.take(_even(asked.labels, rng))
    if not len(gallery):
        return ControlResult(_WORDS, False, "no label has two candidates", detail="AUC")
    inside = np.isin(np.arange(len(gallery)), half_of_each(gallery.labels, rng))
    features = gallery.features.astype(np.float64)
    features = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1.0)
    kinds = kinds_in(context.view.from_clients())
    moment = bool(kinds & _MOMENTS)
    inner = features @ features.T
    kernel = inner * (gallery.labels[:, None] == gallery.labels) + (inner**2 if moment else 0.0)
    noise = float(np.sqrt(np.median(kernel.diagonal()))) / _LENGTH
    if not noise:
        return ControlResult(_WORDS, False, "candidates have no features", detail="AUC")
    for _ in range(_HALVINGS):
        message = _noised(features, gallery.labels, inside, context, noise, moment, rng)
        linear = _best_linear(message, features, gallery.labels, kernel, inside, noise)
        if linear.low is not None and linear.low >= _TOLD:
            break
        noise /= 2
    sizes = np.bincount(gallery.labels[inside], minlength=context.data.classes)
    game: MembershipGame = replace(
        context.game, questions={_SENDER: gallery}, sizes={_SENDER: sizes}, gallery=gallery, kept={}
    )
    result = context.attack(View((message,), context.data.classes, context.view.threat), game)
    scores = np.asarray(next(iter(result.scores.values())), np.float64)
    if np.isnan(scores).any():
        return ControlResult(_WORDS, False, "some of the candidates were not scored", detail="AUC")
    ours = auc(scores[~inside], scores[inside])
    assert ours.value is not None
    assert ours.low is not None
    assert linear.value is not None
    enough = ours.low > 0.5 and ours.value - 0.5 >= _SHARE * (linear.value - 0.5)
    shown = f"AUC {ours.value:.3f}, and {linear.value:.3f} of the best linear answer"
    return ControlResult(_WORDS, enough, shown, ours.value, len(gallery), "AUC")


def _best_linear(
    message: Message, features: Matrix, labels: Ints, kernel: Matrix, inside: Bools, noise: float
) -> Estimate:
    """AUC of the posterior mean of all candidates together, for coins as a prior: one system, (n, n)."""
    sums, second = message.fields["A"].values, _square(message)
    told = (features * sums[labels]).sum(axis=1)
    if second is not None:
        told = told + np.einsum("ij,jk,ik->i", features, second, features)
    away = (told - kernel.sum(axis=1) / 2) / noise**2
    best = np.linalg.solve(kernel / noise**2 + 4 * np.eye(len(kernel)), away)
    return auc(best[~inside], best[inside])


def _even(labels: Ints, rng: np.random.Generator) -> Ints:
    """Positions of `_MOST` candidates at most, of every label as many as can be halved, shape (n,)."""
    order = rng.permutation(len(labels))[:_MOST]
    rows = [order[labels[order] == label] for label in np.unique(labels[order])]
    return np.sort(np.concatenate([each[: len(each) // 2 * 2] for each in rows]))


def _noised(
    features: Matrix,
    labels: Ints,
    inside: Bools,
    context: AttackedContext,
    noise: float,
    moment: bool,
    rng: np.random.Generator,
) -> Message:
    """Class sums, and a second moment where the messages hold one, with isometric Gaussian noise."""
    release = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(noise,), sensitivity=(1.0,))
    sums = np.zeros((context.data.classes, features.shape[1]))
    np.add.at(sums, labels[inside], features[inside])
    fields = {"A": MessageField(sums + noise * rng.standard_normal(sums.shape), "class_sums", release)}
    if moment:
        drawn = rng.standard_normal((features.shape[1],) * 2)
        lower = np.tril(drawn, -1) / np.sqrt(2)
        second = features[inside].T @ features[inside] + noise * (lower + lower.T + np.diag(drawn.diagonal()))
        fields["B"] = MessageField(pack_lower(second), "second_moment", release)
    return Message(0, _SENDER, SERVER, fields)


def _square(message: Message) -> Matrix | None:
    found = message.of_kind("second_moment")
    return None if found is None else unpack_lower(np.asarray(found, np.float64))
