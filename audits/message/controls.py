"""Releases by hand that are known to leak by algebra, and releases that cannot.

They are second controls, of an attack alone: the first ones are the method's own messages (`nonprivate`). Of
captured messages there is no method, and these are all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedassay.audits.simulation import control_seeds
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.data.records import Records, joined
from fedassay.exchange.release import Release, exact, public
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.exchange.view import View
from fedassay.support.errors import NotRunError
from fedassay.support.types import Ints, Matrix

SENDER = "control"
CONTROL_RECORDS = 4


def control_records(context: AuditContext) -> Records:
    """A few private records with distinct features, the same ones for every cell of a seed.

    Where the clients' records are not known, of those that no client holds: arithmetic is the same on any.
    """
    held = [client for client in context.data.clients if len(client)]
    everything = joined("clients", held) if held else context.data.fresh
    chosen = (
        control_seeds(context, "message", "records").numpy().permutation(len(everything))[: 4 * CONTROL_RECORDS]
    )
    _, first = np.unique(everything.features[chosen], axis=0, return_index=True)
    return everything.take(np.sort(chosen[np.sort(first)[:CONTROL_RECORDS]]), SENDER)


def view_of(messages: list[Message], context: AuditContext) -> View:
    """A view of these messages under the plan's threat model."""
    return View(tuple(messages), context.data.classes, context.view.threat)


def attacked(context: AttackedContext, view: View) -> AttackResult:
    """The attack on a control, or an empty result where it finds nothing to work on."""
    try:
        return context.attack(view)
    except NotRunError:
        return AttackResult("")


def sums_view(records: Records, context: AuditContext, encode: Callable[[Records], Matrix]) -> View:
    """Exact counts, class sums and second moment of a small client, in float64.

    The records count as one class: alone in its class, a record is its class sum and needs no factorization.
    """
    together = Records(records.name, records.images, np.zeros_like(records.labels), lambda _: records.features)
    return view_of([sums_of(together, context, encode, counts=True)], context)


def by_hand_view(
    records: Records, context: AuditContext, encode: Callable[[Records], Matrix], *, counts: bool
) -> View:
    """Exact class sums and second moment of records, in float64, with their counts or without."""
    return view_of([sums_of(records, context, encode, counts=counts)], context)


def algebra_view(records: Records, context: AuditContext, encode: Callable[[Records], Matrix]) -> View:
    """One sender for every source of vectors that arithmetic can read, and one for what it says of counts."""
    features = encode(records)
    size, width = features.shape
    # Classes of the control are numbered by record, as if every record were alone in its class.
    ids = np.arange(min(size, context.data.classes))
    alone = features[: len(ids)]
    one = np.ones(len(ids), np.int64)

    def message(sender: str, number: int, fields: dict[str, MessageField]) -> Message:
        first = {"class_ids": MessageField(ids, "class_ids", exact("labels"))}
        return Message(number, f"{SENDER}/{sender}", SERVER, first | fields)

    def counts(values: Ints) -> MessageField:
        return MessageField(values, "class_counts", exact("labels"))

    def sums(values: Matrix) -> MessageField:
        return MessageField(values, "class_sums", exact())

    means = MessageField(alone, "mixture_means", exact())
    flat = MessageField(np.full((len(ids), width), 1e-9), "mixture_covariances", exact())
    class_means = MessageField(alone, "class_means", exact())
    nothing = MessageField(np.zeros((len(ids), width * (width + 1) // 2)), "class_covariances", exact())
    rest = features.sum(axis=0)
    errors = 1 / context.data.classes - np.eye(context.data.classes)[ids]
    head = {"w": np.zeros((context.data.classes, width)), "b": np.zeros(context.data.classes)}
    step = {"w": errors.T @ alone, "b": errors.sum(axis=0)}
    hidden = sums_of(records, context, encode, counts=False)
    return view_of(
        [
            message("singletons", 0, {"counts": counts(one), "sums": sums(alone)}),
            message("components", 0, {"counts": counts(one), "means": means, "covariances": flat}),
            message("spreadless", 0, {"means": class_means, "covariances": nothing}),
            Message(
                0, SERVER, f"{SENDER}/head", {name: MessageField(v, "head", public()) for name, v in head.items()}
            ),
            message(
                "head",
                1,
                {name: MessageField(v, "gradient", exact()) for name, v in step.items()}
                | {"records": MessageField(np.array([len(ids)]), "other", exact("labels"))},
            ),
            message("differences", 0, {"counts": counts(5 * one), "sums": sums(np.tile(rest, (len(ids), 1)))}),
            message("differences", 1, {"counts": counts(6 * one), "sums": sums(rest + alone)}),
            Message(0, f"{SENDER}/hidden", SERVER, hidden.fields),
        ],
        context,
    )


def noised_view(records: Records, context: AuditContext, encode: Callable[[Records], Matrix]) -> View:
    """Class sums and second moment under noise ten times as long as they are: nothing is left to read."""
    plain = sums_of(records, context, encode, counts=False)
    rng = control_seeds(context, "message", "noise").numpy()
    fields = {}
    for name, item in plain.fields.items():
        scale = 10 * float(np.abs(item.values).max())
        noise = rng.normal(0, scale, item.values.shape)
        if item.kind == "second_moment":
            noise = (noise + noise.T) / 2
        release = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(scale,), sensitivity=(scale,))
        fields[name] = MessageField(item.values + noise, item.kind, release)
    return view_of([Message(0, f"{SENDER}/noised", SERVER, fields)], context)


def sums_of(
    records: Records, context: AuditContext, encode: Callable[[Records], Matrix], *, counts: bool
) -> Message:
    """Exact class sums and second moment of records as one message, with counts or without."""
    features = encode(records)
    member = (records.labels[:, None] == np.arange(context.data.classes)).astype(np.float64)
    fields = {
        "A": MessageField(member.T @ features, "class_sums", exact()),
        "B": MessageField(features.T @ features, "second_moment", exact()),
    }
    if counts:
        fields["N"] = MessageField(member.sum(axis=0).astype(np.int64), "class_counts", exact("labels"))
    return Message(0, SENDER, SERVER, fields)
