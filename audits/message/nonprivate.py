"""End-to-end controls of attacks on messages: what the method's own run makes of control records.

Five kinds of clients without privacy, for what makes a rule fire or a factorization possible: one record a class;
as many records a class as mixtures have components; as many records of each class as an audited client, of the
leakiest or of the audited form; and the same client before and after one record a class joined. See
`fedassay.audits.nonprivate_releases` for the run and its view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedassay.audits.evidence import ControlResult
from fedassay.audits.features import encoder
from fedassay.audits.message.controls import attacked, by_hand_view
from fedassay.audits.message.truth import Recovery, class_means, judge, match, nothing, plain
from fedassay.audits.nonprivate_releases import (
    NonPrivateRelease,
    dealt_clients,
    nonprivate_clients,
    nonprivate_releases,
)
from fedassay.audits.simulation import control_seeds
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.contracts.membership import visible
from fedassay.data.records import Records, joined
from fedassay.exchange.feature_sources import VectorSource, sources
from fedassay.exchange.release import Release, exact
from fedassay.exchange.statistics import noise_of
from fedassay.exchange.transcript import AGGREGATE, Message, MessageField
from fedassay.exchange.view import View
from fedassay.support.errors import NotRunError
from fedassay.support.types import Ints, Matrix

FAINT = 1e-6
"""Noise on a field that an attack must see through, in units of its largest entry."""

DROWNED = 10.0
"""Noise on a field that nothing may be read from, in units of its largest entry."""


OWN_MESSAGES = "the method's own messages without privacy, of"
"""Beginning of the words for end-to-end controls."""

OF_AS_LARGE = f"{OWN_MESSAGES} control clients as large as the audited ones"


@dataclass(frozen=True)
class Reading:
    """Result of the attack on a release of known records.

    Attributes:
        clients: The clients with records.
        exposure: The release; its view may have been changed since.
        result: Of the attack.
        end_to_end: Whether the method's own run made it.
    """

    clients: tuple[Records, ...]
    exposure: NonPrivateRelease
    result: AttackResult
    end_to_end: bool = True

    def truth(self, sender: str) -> Records | None:
        """The records that a sender's message speaks of; None for one that holds none."""
        if sender == AGGREGATE:
            return joined(AGGREGATE, self.clients)
        return next((client for client in self.clients if client.name == sender), None)


def by_hand(context: AttackedContext, records: Records, encode: Callable[[Records], Matrix], rule: str) -> Reading:
    """Exact sums and second moment of known records, by no method; with counts, but for rules that seek them."""
    counts = rule not in ("derivable_counts", "rank")
    exposure = NonPrivateRelease(
        (records,), context.outcome, by_hand_view(records, context, encode, counts=counts)
    )
    return replace(read(exposure, context), end_to_end=False)


def read(exposure: NonPrivateRelease, context: AttackedContext, view: View | None = None) -> Reading:
    """The attack on a release, or on another view of it."""
    held = tuple(client for client in exposure.clients if len(client))
    return Reading(held, exposure, attacked(context, exposure.view if view is None else view))


def singletons(context: AttackedContext) -> tuple[Reading, ...]:
    """Clients with one record a class.

    Raises:
        NotRunError: The control role is too small, or the method cannot be run.
    """
    return tuple(read(exposure, context) for exposure in nonprivate_releases(context, 2 * context.data.classes))


def crowded(context: AttackedContext) -> tuple[Reading, ...]:
    """A client with as many records of each class as the audited mixtures have components; none where that is one.

    Raises:
        NotRunError: See `singletons`.
    """
    parts = [message.of_kind("component_counts") for message in context.view.from_clients()]
    most = max((int(each.max(initial=1)) for each in parts if each is not None), default=1)
    if most == 1:
        return ()
    dealt = dealt_clients(context, most * context.data.classes)[:most]
    group = joined("client/0", dealt)
    return tuple(read(exposure, context) for exposure in nonprivate_clients(context, [group], "crowded"))


def as_large(context: AuditContext, wanted: Records, number: int) -> Records:
    """A control client with as many records of each class as an audited one, as far as the control role goes.

    `number` distinguishes the control clients of one audited client.

    Where a class has too few control records, others stand in under its label: their messages have the same form.
    """
    control = context.data.control
    rng = control_seeds(context, "message", "as large", number).numpy()
    order = rng.permutation(len(control))
    left = np.ones(len(control), np.bool_)
    rows: list[int] = []
    labels: list[int] = []
    missing: list[int] = []
    for label, count in zip(*np.unique(wanted.labels, return_counts=True), strict=True):
        own = order[control.labels[order] == label][:count]
        left[own] = False
        rows += own.tolist()
        labels += [int(label)] * len(own)
        missing += [int(label)] * int(count - len(own))
    others = order[left[order]][: len(missing)]
    chosen = control.take(np.array([*rows, *others], np.int64), f"client/{number}")
    given = np.array([*labels, *missing[: len(others)]], np.int64)
    return Records(chosen.name, chosen.images, given, lambda _: chosen.features)


def each_as_large(context: AuditContext, wanted: Sequence[Records]) -> list[Records]:
    """A control client for each audited one; others for one that is asked for again.

    Whichever audit asks for clients of a histogram, and whatever it asks for beside them, the first is the same,
    and what an attack makes of its message need not be computed again.
    """
    asked: Counter[bytes] = Counter()
    found = []
    for client in wanted:
        histogram = np.bincount(client.labels, minlength=context.data.classes).tobytes()
        found.append(as_large(context, client, asked[histogram]))
        asked[histogram] += 1
    return found


def alike(context: AttackedContext, wanted: Sequence[Records]) -> tuple[Reading, ...]:
    """Control clients as large as these audited ones.

    Raises:
        NotRunError: The control role is empty, or the method cannot be run.
    """
    group = [client for client in each_as_large(context, wanted) if len(client)]
    if not group:
        needed = max((len(client) for client in wanted), default=1)
        raise NotRunError(
            "the control role has no records: give data.split.control a share",
            role="control",
            held=0,
            needed=needed,
        )
    name = "alike/" + "/".join(str(len(client)) for client in group)
    # Without privacy they are the same at every epsilon, and large ones are the dearest controls of all.
    key = f"message/{name}/{context.attack_key}/{context.release_key}"
    return context.data.once(
        key, lambda: tuple(read(exposure, context) for exposure in nonprivate_clients(context, group, name))
    )


def as_audited(context: AttackedContext, wanted: Sequence[Records]) -> tuple[Reading, ...]:
    """Control clients as large as these audited ones, of the method in its audited form; none under privacy.

    Attacks on what a method converges to read nothing of its leakiest form, which is overfitted.
    """
    group = [client for client in each_as_large(context, wanted) if len(client)]
    if context.privacy.private or not group or len(context.data.clients) < len(group):
        return ()
    nobody = context.data.control.take(np.zeros(0, np.int64))
    others = [
        nobody.take(np.zeros(0, np.int64), f"client/{i}") for i in range(len(group), len(context.data.clients))
    ]
    clients = (*(client.take(np.arange(len(client)), f"client/{i}") for i, client in enumerate(group)), *others)
    try:
        outcome = context.method.run_on(clients, control_seeds(context, "message", "as audited"))
    except NotRunError:
        return ()
    return (read(NonPrivateRelease(clients, outcome, visible(outcome, context.view.threat)), context),)


def before_and_after(context: AttackedContext) -> tuple[Reading, ...]:
    """A client with one record a class, and the same client after one more a class joined: two transcripts.

    The records of a reading are those that joined.

    Raises:
        NotRunError: See `singletons`.
    """
    dealt = dealt_clients(context, 2 * context.data.classes)
    if len(dealt) < 2:
        raise NotRunError(
            f"the control role has {len(context.data.control)} records; two of a class are needed: give "
            "data.split.control more",
            role="control",
            held=len(context.data.control),
            needed=4 * context.data.classes,
        )
    first = joined("client/0", dealt[:1])
    kept = np.isin(dealt[1].labels, first.labels)
    new = dealt[1].take(np.flatnonzero(kept), "client/0")
    before = nonprivate_clients(context, [first], "before")[0]
    after = nonprivate_clients(context, [joined("client/0", [first, new])], "after")[0]
    last = 1 + max((message.round for message in before.view.messages), default=0)
    later = tuple(replace(message, round=last + message.round) for message in after.view.messages)
    view = replace(after.view, messages=(*before.view.messages, *later))
    return (Reading((new,), after, attacked(context, view)),)


def recovered(
    readings: Sequence[Reading], name: str, context: AttackedContext, plainly: bool = False
) -> list[Recovery]:
    """Recover the records of each reading from the vectors of one source.

    Args:
        readings: Of releases of known records.
        name: Of the source; `raw`: features that are sent as such.
        context: The cell's.
        plainly: Whether vectors are held against the backbone's features, and not what the method makes of them.
    """
    found = []
    for number, reading in enumerate(readings):
        own = replace(context, outcome=reading.exposure.outcome)
        encode = plain if plainly else encoder(own)
        if encode is None:
            continue
        means = class_means(own, encode)
        part = _part(reading, name, context)
        vectors = _vectors(reading, part, name)
        vectors = vectors if vectors.shape[1:] == means.shape[1:] else np.zeros((0, means.shape[1]))
        senders = np.array(part.senders[: len(vectors)])
        truth = []
        for client in _owners(reading, part):
            truth.append((np.flatnonzero(senders == client.name), encode(client), client.labels))
        rng = control_seeds(context, "message", name, number).numpy()
        found.append(judge(match(vectors, part.labels, truth, means), rng, tests=context.num_tests))
    return found


def _owners(reading: Reading, part: VectorSource) -> tuple[Records, ...]:
    """The records that the vectors of a source are held against; all together where only sums are seen."""
    whole = set(part.senders) == {AGGREGATE}
    return (joined(AGGREGATE, reading.clients),) if whole else reading.clients


def _part(reading: Reading, name: str, context: AuditContext) -> VectorSource:
    parts: Sequence[VectorSource] = reading.result.vectors
    if name == "raw":
        parts = sources(reading.exposure.view, context.seeds.numpy("message", "sources"))
    return next((part for part in parts if part.name == name), nothing(name))


def _vectors(reading: Reading, part: VectorSource, name: str) -> Matrix:
    """In float64 where the attack has them so."""
    precise = reading.result.artifacts.get("vectors")
    if precise is not None and name == reading.result.attack and len(precise) == len(part.vectors):
        return np.asarray(precise, np.float64)
    return part.vectors.astype(np.float64)


def control_of(recoveries: Sequence[Recovery]) -> ControlResult:
    """As one control, which every release must pass; the worst one is shown."""
    release = f"{OWN_MESSAGES} control records"
    if not recoveries:
        return ControlResult(release, False, "no record came back", end_to_end=True)
    return min(recoveries, key=lambda each: (each.caught, each.share)).control(release, end_to_end=True)


def also_faintly_noised(readings: Sequence[Reading], context: AttackedContext) -> tuple[Reading, ...]:
    """The releases, and the same under faint noise where the audited one is noised.

    What an attack does with noised messages is another path than with exact ones, and must work as well.
    """
    noised = {
        item.kind: item for m in context.view.from_clients() for item in m.fields.values() if noise_of(item) > 0
    }
    if not noised:
        return tuple(readings)
    rng = control_seeds(context, "message", "faint").numpy()

    def change(_: str, item: MessageField) -> MessageField:
        like = noised.get(item.kind)
        return item if like is None else faint(item, like.dtype, rng)

    views = (changed(reading.exposure.view, change) for reading in readings)
    again = (
        replace(reading, result=attacked(context, view), exposure=replace(reading.exposure, view=view))
        for reading, view in zip(readings, views, strict=True)
    )
    return (*readings, *again)


def faint(item: MessageField, dtype: np.dtype[Any], rng: np.random.Generator) -> MessageField:
    """A field under noise far below its entries, which it declares."""
    noised = _noised(item, FAINT * max(_largest(item), 1e-3), rng)
    return replace(noised, sent=noised.values.astype(dtype if dtype.kind == "f" else np.float64))


def drowned(view: View, rng: np.random.Generator) -> View:
    """A view with declared noise on every array, ten times as large as its entries."""

    def change(_: str, item: MessageField) -> MessageField:
        if item.kind in {"class_ids", "component_counts"} or item.values.dtype.kind not in "iuf":
            return replace(item, release=exact("labels"))  # the order of other fields
        return _noised(item, DROWNED * max(_largest(item), 1.0), rng)

    return changed(view, change)


def _largest(item: MessageField) -> float:
    return float(np.abs(item.values.astype(np.float64)).max(initial=0.0))


def _noised(item: MessageField, scale: float, rng: np.random.Generator) -> MessageField:
    """A field under Gaussian noise of a scale, which it declares; second moments stay symmetric."""
    values = item.values.astype(np.float64)
    noise = rng.normal(0, scale, values.shape)
    if item.kind == "second_moment" and values.ndim == 2:
        noise = (noise + noise.T) / 2
    return replace(item, sent=values + noise, release=gaussian(scale))


def gaussian(scale: float) -> Release:
    """Return the declaration of a field under Gaussian noise of a scale, at sensitivity one scale."""
    return Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(scale,), sensitivity=(scale,))


def redeclared(view: View, audited: View) -> View:
    """A release without privacy that declares what the audited one does: its noise was left out."""
    declared: dict[str, MessageField] = {}
    for message in audited.from_clients():
        for item in message.fields.values():
            declared.setdefault(item.kind, item)

    def change(_: str, item: MessageField) -> MessageField:
        like = declared.get(item.kind)
        if like is None:
            return item
        sent = item.values.astype(like.dtype) if like.dtype.kind == "f" else item.values
        return replace(item, sent=sent, release=like.release)

    return changed(view, change)


def changed(view: View, change: Callable[[str, MessageField], MessageField]) -> View:
    """Map every field of a view, from its name and itself."""
    return replace(
        view,
        messages=tuple(
            Message(m.round, m.sender, m.receiver, {name: change(name, item) for name, item in m.fields.items()})
            for m in view.messages
        ),
    )


def counts_of(records: Records) -> Ints:
    """Records per class that is present, sorted: what a message may say without naming the classes."""
    return np.sort(np.unique(records.labels, return_counts=True)[1]).astype(np.int64)
