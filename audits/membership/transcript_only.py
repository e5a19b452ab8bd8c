"""Members of a gallery in captured messages: certificates, since the truth is unknown.

A leak is concluded where a certificate holds that was fixed beforehand: weights near whole numbers that reproduce
the message, or names at a false-discovery rate of 1 % by decoys. The positive control is a message of the same
sums over a half of the gallery, in the types of the captured one, which must be certified with exactly that half
named; the negative one is the same sums over candidates with features shuffled coordinate by coordinate, which no
certificate may name. Where a head was captured without sums, both are ridge heads of these candidates. Where sums
were sent at several times, a control changes between two of them: exactly those who joined or left must be named.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from fedassay.audits.evidence import Arms, ControlResult, Figures, Result, Subject, by_arithmetic
from fedassay.audits.verdict import assay, not_run
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext
from fedassay.contracts.membership import MembershipGame
from fedassay.data.records import Records, joined
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.linear import linear_blocks
from fedassay.exchange.release import exact
from fedassay.exchange.sent_head import head_in
from fedassay.exchange.transcript import SERVER, Message, MessageField, kinds_in
from fedassay.exchange.view import View
from fedassay.heads.penalised import PenalisedEstimator
from fedassay.mixtures.packed import pack_lower
from fedassay.records.facts import Harm
from fedassay.records.record import Finding, Metric
from fedassay.support.types import Bools, Ints, Matrix

_EACH = 8
"""Candidates of a label at most in a control that must be solved."""
_NULL = "the same sums over candidates whose features were shuffled coordinate by coordinate"
_HALF = "the same sums over a half of the gallery"
_CHANGED = "the same sums at two times, between which a twentieth of the gallery joined and left each"


def captured_gallery(audit: str, result: AttackResult, context: AttackedContext) -> Finding:
    """One finding on all senders.

    Args:
        audit: Registered name.
        result: With the artifacts `named`, `whole` and `clients`.
        context: Its game's questions are the gallery, of each sender.
    """
    subject = Subject(audit, result.attack, "messages", "joint")
    names = np.asarray(result.artifacts["named"], np.bool_)
    senders = np.asarray(result.artifacts["clients"])
    whole = np.asarray(result.artifacts["whole"], np.bool_)
    changes = np.asarray(result.artifacts["changes"])
    gallery = next(iter(context.game.questions.values()))
    if len(gallery) < 2:
        return not_run(subject, "a gallery of one candidate has no half to make a control of")
    told, right = _of_half(gallery, context, shuffled=False)
    several = [_of_change(gallery, context)] if changes.shape[1] else []
    flagged, _ = _of_half(gallery, context, shuffled=True)
    explained = sorted({str(sender) for sender in senders[whole]})
    count, total = int(names.sum()), len(names)
    shown = f"{int(told.sum())} of {len(gallery)} named, {'all rightly' if right else 'not the half'}"
    found = Result(
        test=by_arithmetic(count > 0, "records_named"),
        shown=f"{count} of {total} candidates are named, and the messages of {len(explained)} of "
        f"{len(context.game.questions)} sender(s) are explained as a whole{_in_words(changes)}",
        leak="the messages name who of the gallery is in them",
        undecided="the gallery may not hold the records that the messages were made of: one that does would "
        "decide",
        # The number of candidates that took part is unknown.
        harm=Harm(kind="named", of="record", count=count, mechanism="linear_in_members"),
    )
    figures = Figures(
        metrics={"records_named": Metric(value=float(count), n=total)},
        assumptions=(
            "names are certified: weights near whole numbers that reproduce a message, or a false-discovery "
            "rate of 1 % by records that the attacker knows to be in none",
        ),
    )
    half = ControlResult(_HALF, bool(told.any() and right), shown, float(told.sum()), len(gallery), "named")
    wrong = int(flagged.sum())
    null = ControlResult(_NULL, wrong > 0, f"{wrong} named", float(wrong), len(gallery), "named")
    return assay(subject, Arms(found, (half, *several), null), figures)


def _in_words(changes: Ints) -> str:
    """Return a clause on the candidates that joined or left between messages of several times."""
    if not changes.shape[1]:
        return ""
    came, went = (int((changes == sign).sum()) for sign in (1, -1))
    return f"; between their times {came} are named to have joined and {went} to have left"


def solved_control(context: AttackedContext) -> ControlResult:
    """The attack on sums that it must solve: exact ones over a half of a few candidates of every label."""
    asked = joined("candidates", list(context.game.questions.values()))
    few = [np.flatnonzero(asked.labels == label)[:_EACH] for label in np.unique(asked.labels)]
    gallery = asked.take(np.concatenate(few))
    told, right = _of_half(gallery, context, shuffled=False)
    shown = f"{int(told.sum())} of {len(gallery)} candidates named, {'' if right else 'not '}exactly the half"
    words = "the same sums, exact, over a half of a few candidates of every label"
    return ControlResult(words, right, shown, float(told.sum()), len(gallery), "named")


def _of_half(gallery: Records, context: AttackedContext, *, shuffled: bool) -> tuple[Bools, bool]:
    """Names from sums over a half of the gallery, and whether they are exactly that half."""
    rng = context.seeds.numpy("membership", "candidates", "shuffled" if shuffled else "half")
    half = _half(len(gallery), rng)
    features = gallery.features.astype(np.float64)
    if shuffled:
        features = np.stack([rng.permutation(column) for column in features.T], axis=1)
    result = _attacked(gallery, features, (half,), context)
    names = np.asarray(result.artifacts["named"], np.bool_)
    return names, bool((names == half).all())


def _of_change(gallery: Records, context: AttackedContext) -> ControlResult:
    """The attack on sums at two times, between which a few of a half of the gallery are exchanged for others."""
    rng = context.seeds.numpy("membership", "candidates", "changed")
    first = _half(len(gallery), rng)
    few = max(1, len(gallery) // 20)
    second, truth = first.copy(), np.zeros(len(gallery), np.int64)
    for held, sign in ((first, -1), (~first, 1)):
        rows = rng.permutation(np.flatnonzero(held))[:few]
        second[rows], truth[rows] = sign > 0, sign
    result = _attacked(gallery, gallery.features.astype(np.float64), (first, second), context)
    changes = np.asarray(result.artifacts["changes"])
    told = changes.shape[1] == 1 and bool((changes[:, 0] == truth).all())
    named = int((changes != 0).sum())
    shown = f"{named} of {2 * few} changes named, {'all rightly' if told else 'not those'}"
    return ControlResult(_CHANGED, told, shown, float(named), 2 * few, "named")


def _half(count: int, rng: np.random.Generator) -> Bools:
    half = np.zeros(count, np.bool_)
    half[rng.permutation(count)[: max(1, count // 2)]] = True
    return half


def _attacked(
    gallery: Records, features: Matrix, times: Sequence[Bools], context: AttackedContext
) -> AttackResult:
    """The attack on one sender's sums over parts of the gallery, a message for each."""
    sender = "control"
    messages = tuple(
        Message(number, sender, SERVER, _sums(features[held], gallery.labels[held], context))
        for number, held in enumerate(times)
    )
    # The number of records of a sender of a head alone is unknown, as it is for the captured one.
    known = np.bincount(gallery.labels[times[-1]], minlength=context.data.classes)
    kinds = kinds_in(context.view.from_clients())
    sizes = {} if _a_head_alone(context) or _a_scaler_alone(kinds) else {sender: known}
    game: MembershipGame = replace(
        context.game, questions={sender: gallery}, sizes=sizes, gallery=gallery, kept={}
    )
    return context.attack(View(messages, context.data.classes, context.view.threat), game)


def _sums(features: Matrix, labels: Ints, context: AttackedContext) -> dict[str, MessageField]:
    """Class sums, and a second moment where the captured messages hold one, in their type; or a ridge head."""
    fields = [item for message in context.view.from_clients() for item in message.fields.values()]
    kinds = {item.kind for item in fields}
    floats = [item.dtype for item in fields if item.dtype.kind == "f" and item.dtype.itemsize >= 4]
    kind = min(floats, key=lambda each: each.itemsize) if floats else np.dtype(np.float64)
    if _a_scaler_alone(kinds):
        sent = {"mean_": features.mean(axis=0), "var_": features.var(axis=0)}
        made = {name: np.asarray(values, kind) for name, values in sent.items()}
        if "scaler_count" in kinds:
            made["n_samples_seen_"] = np.array([len(features)])
        told: list[FieldKind] = ["scaler_mean", "scaler_variance", "scaler_count"]
        return {name: MessageField(made[name], each, exact()) for name, each in zip(made, told, strict=False)}
    if _a_head_alone(context):
        head = PenalisedEstimator("least_squares", 1.0).fit(features, labels)
        return {
            "head_classes": MessageField(head.classes.astype(np.int32), "other", exact()),
            "weights": MessageField(head.weights.astype(kind), "head", exact()),
            "bias": MessageField(head.bias.astype(kind), "head", exact()),
        }
    sums = np.zeros((context.data.classes, features.shape[1]))
    np.add.at(sums, labels, features)
    found = {"A": MessageField(sums.astype(kind), "class_sums", exact())}
    if kinds & {"second_moment", "regularised_gram", "inverse_gram"}:
        packed = pack_lower(features.T @ features).astype(kind)
        found["B"] = MessageField(packed, "second_moment", exact())
    if kinds & {"mixture_covariances", "class_second_moments", "class_covariances"}:
        squares = np.zeros_like(sums)
        np.add.at(squares, labels, features**2)
        found["S"] = MessageField(squares.astype(kind), "class_second_moments", exact())
    return found


def _a_scaler_alone(kinds: Collection[str]) -> bool:
    """Whether the captured messages hold a scaler, and nothing else that is read."""
    return "scaler_mean" in kinds and not set(kinds) - {"scaler_mean", "scaler_variance", "scaler_count", "other"}


def _a_head_alone(context: AttackedContext) -> bool:
    """Whether the captured messages hold a head, and no sums beside it."""
    messages = context.view.from_clients()
    heads = [message for message in messages if head_in(message) is not None]
    return bool(heads) and not any(linear_blocks(message, context.view.classes, None) for message in messages)
