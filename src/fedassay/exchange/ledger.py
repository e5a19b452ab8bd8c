"""The release ledger: everything that leaves each client, its protection, and the accounted total.

The worst record decides. A record sits at one client and in one class. Only the releases over the whole client
(cell `all`) and those over its own class (cell `class/c`) can reveal it. Releases over other clients and other
classes are computed from other records and compose in parallel. Under `replace_one` a record is replaced within
its class, or it leaves one class for another and two class cells change at once: both are added up, and the worse
one counts. Releases of the server, or of a secure sum, depend on every client's records: they are added to each
client's own. Clients that collude with the server have no secrets from it, and their shares of a sum's noise hide
no one (`fedassay.exchange.colluders`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np

from fedassay.exchange.colluders import colluders_of, with_senders, without_shares
from fedassay.exchange.release import Release
from fedassay.exchange.transcript import AGGREGATE, SERVER, MessageField, Transcript
from fedassay.exchange.worst import Composition, foremost, largest
from fedassay.privacy.accounting import Total, compose, no_guarantee
from fedassay.privacy.conversions import compose_for_group, of_group
from fedassay.privacy.events import Event, GaussianEvent, PureEvent, SubsampledGaussianEvent, Unbounded
from fedassay.records.record import LedgerRow
from fedassay.support.adjacency import UNIT_ORDER, Adjacency, Unit, class_counts_public, record_counts_public
from fedassay.support.epsilon import Epsilon

_ALL = "all"
_CHANGES = 16
"""Classes, or bounds of neighbouring ones, that are combined for one client."""


@dataclass(frozen=True)
class _Entry:
    """Privacy loss by one release about a record of one cell.

    Attributes:
        inside: The record is replaced within the cell, or appears in it or vanishes from it.
        across: It leaves the cell for another one, or comes from there.
    """

    inside: Event
    across: Event


@dataclass(frozen=True)
class _Query:
    """Query to the ledger: a relation, a unit of privacy, and one of the two sensitivities.

    Attributes:
        records: The most records of one such unit; None: unknown.
    """

    adjacency: Adjacency
    unit: Unit
    records: int | None
    stated: bool


def account(transcript: Transcript, adjacency: Adjacency, delta: float, unit: Unit = "record") -> Accounted:
    """Total of everything that leaves the clients, for the worst record, person or client.

    Args:
        transcript: The transcript; messages of the server count where they are not derived or public.
        adjacency: The relation asked about; a release made for another one is converted where that
            is sound, else counted as unbounded.
        delta: In (0, 1).
        unit: The unit of privacy asked about. For persons a release for records is converted by the most records
            that the transcript says one person has, and is unbounded where it does not say; see
            `fedassay.privacy.conversions`.

    Returns:
        Epsilon on the exact and on the sources' stated sensitivities, mu, and what leaves exactly.
    """
    exact = exact_fields(transcript, adjacency)
    # The number of records of a client is unknown.
    most = transcript.most_records if unit == "person" else None
    asked, members = _Query(adjacency, unit, most, stated=False), 1
    if most is not None and _all_of_records(transcript):
        # Releases that compose as a whole are converted as a whole.
        asked, members = replace(asked, unit="record"), most
    ours = _worst(_events(transcript, asked), adjacency, delta, members)
    stated = ours
    if any(item.release.stated_sensitivity for message in transcript.messages for item in message.fields.values()):
        stated = _worst(_events(transcript, replace(asked, stated=True)), adjacency, delta, members)
    reason = f"sent exactly: {', '.join(exact)}" if exact else ours.method
    total = Epsilon(ours.epsilon, delta, adjacency, unit)
    return Accounted(total, total.like(stated.epsilon), ours.mu, exact, reason)


def _all_of_records(transcript: Transcript) -> bool:
    """Whether no release is for anything larger than a record."""
    return all(
        item.release.unit == "record" for message in transcript.messages for item in message.fields.values()
    )


def exact_fields(transcript: Transcript, adjacency: Adjacency) -> tuple[str, ...]:
    """Names of the fields that leave exactly and that the adjacency does not make public."""
    names = {
        name: None
        for message in transcript.messages
        for name, item in message.fields.items()
        if _breaks(item.release, adjacency)
    }
    return tuple(names)


def _breaks(release: Release, adjacency: Adjacency) -> bool:
    if release.mechanism != "exact":
        return False
    # Labels that are the same on both sides are as many on both sides.
    public = {"labels": class_counts_public, "size": record_counts_public}.get(release.depends_on)
    return public is None or not public(adjacency)


def _events(transcript: Transcript, asked: _Query) -> dict[str, dict[str, list[_Entry]]]:
    """Entries by client and cell; a joint release counts once, a securely summed one once a client.

    Of clients that release alike the first stands for all of them.
    """
    colluders = colluders_of(transcript.messages)
    senders = _senders_of_sums(transcript)
    released: dict[str, list[tuple[Release, str]]] = {}
    alone: dict[tuple[Release, bool, int], Release] = {}
    for number, message in enumerate(transcript.messages):
        if message.sender in colluders:
            continue
        seen: set[Release] = set()
        of_sender = released.setdefault(message.sender, [])
        for name, item in message.fields.items():
            secure = item.secure or message.sender == AGGREGATE
            summed = senders.get((message.round, name), 0)
            if (joint := alone.get((item.release, secure, summed))) is None:
                whole = with_senders(item.release, summed) if summed else item.release
                joint = alone[item.release, secure, summed] = _alone(whole, secure, len(colluders))
            if joint.group is not None and joint in seen:
                continue
            seen.add(joint)
            of_sender.append((joint, f"{name} in message {number} of {message.sender}"))
    unlike: dict[object, tuple[str, list[tuple[Release, str]]]] = {}
    for sender, releases in released.items():
        own = sender if sender in {SERVER, AGGREGATE} else None
        unlike.setdefault((own, *(release for release, _ in releases)), (sender, releases))
    found: dict[str, dict[str, list[_Entry]]] = {}
    for sender, releases in unlike.values():
        cells = found.setdefault(sender, {_ALL: []})
        for release, where in releases:
            for cell, entry in _of_release(release, asked, where):
                cells.setdefault(cell, []).append(entry)
    return _with_everybodys(found)


def _senders_of_sums(transcript: Transcript) -> Counter[tuple[int, str]]:
    """Number of clients that send each field with noise divided over its senders, by round and name."""
    senders = {
        (message.round, name, message.sender)
        for message in transcript.from_clients()
        if message.sender != AGGREGATE
        for name, item in message.fields.items()
        if item.release.shares > 1
    }
    return Counter((number, name) for number, name, _ in senders)


def _alone(release: Release, secure: bool, colluders: int) -> Release:
    """Protection of one sender: one draw of noise has one scale, whatever is noted beside it.

    Fields that share a group's name but not its release are two draws. Outside the secure sum only a sender's own
    share of the noise protects it.
    """
    changed: dict[str, object] = {"note": ""}
    if release.shares > 1 and release.noise_scale is not None and not secure:
        share = tuple(scale / math.sqrt(release.shares) for scale in release.noise_scale)
        changed |= {"noise_scale": share, "shares": 1}
    return without_shares(release.model_copy(update=changed), colluders)


def _with_everybodys(found: dict[str, dict[str, list[_Entry]]]) -> dict[str, dict[str, list[_Entry]]]:
    """The clients' entries, each with those of the server and of secure sums, which speak of all records."""
    common = [found.pop(sender) for sender in (SERVER, AGGREGATE) if sender in found]
    if not found:
        found[SERVER] = {_ALL: []}
    for cells in found.values():
        for shared in common:
            for name, entries in shared.items():
                cells.setdefault(name, []).extend(entries)
    return found


def _of_release(release: Release, asked: _Query, where: str) -> Iterable[tuple[str, _Entry]]:
    adjacency = asked.adjacency
    if release.mechanism in {"public", "derived"}:
        return []
    if release.mechanism == "exact":
        return [(_ALL, _unbounded(f"{where} is exact"))] if _breaks(release, adjacency) else []
    coarser = UNIT_ORDER.index(asked.unit) - UNIT_ORDER.index(release.unit)
    if coarser > 0 and asked.records is None:
        reason = f"{where} was released for one {release.unit}, asked about one {asked.unit}"
        return [(_ALL, _unbounded(f"{reason}, and the number of these records is not known"))]
    members = asked.records if coarser > 0 and asked.records is not None else 1
    # A record that comes or goes changes a person that stays: that is one person replaced.
    parted = coarser < 0 and adjacency == release.adjacency == "add_remove"
    if release.mechanism == "dp_sgd":
        # The accountant knows Poisson sampling under every relation, and other batches under replacement.
        assert release.noise_multiplier is not None
        assert release.sampling_rate is not None
        assert release.steps is not None
        if release.noise_multiplier == 0 and release.steps > 0:
            return [(_ALL, _unbounded(f"{where}: DP-SGD without noise"))]
        event = SubsampledGaussianEvent(
            release.noise_multiplier,
            release.sampling_rate,
            release.steps,
            "replace_one" if coarser < 0 and adjacency == "add_remove" else adjacency,
            sampling=release.sampling,
        )
        own = of_group(event, members)
        return [(_ALL, _Entry(own, own))]
    inside = _conversion(release.adjacency, adjacency)
    if inside is None:
        return [(_ALL, _unbounded(f"{where} was released under {release.adjacency}, asked {adjacency}"))]
    inside *= members * (2.0 if parted else 1.0)
    # A record that moves between two cells is removed from one and added to the other: once each.
    across = float(members) if release.adjacency == "add_remove" else inside
    if release.mechanism == "pure":
        assert release.pure_epsilon is not None
        pures = zip(release.cells, release.pure_epsilon, strict=True)
        return [(cell, _Entry(PureEvent(inside * own), PureEvent(across * own))) for cell, own in pures]
    sensitivity = release.stated_sensitivity if asked.stated else release.sensitivity
    sensitivity = release.sensitivity if sensitivity is None else sensitivity
    assert sensitivity is not None
    assert release.noise_scale is not None
    return [
        (cell, _Entry(_gaussian(inside * moved, scale, where), _gaussian(across * moved, scale, where)))
        for cell, moved, scale in zip(release.cells, sensitivity, release.noise_scale, strict=True)
    ]


def _unbounded(reason: str) -> _Entry:
    return _Entry(Unbounded(reason), Unbounded(reason))


def _gaussian(sensitivity: float, scale: float, where: str) -> Event:
    if sensitivity == 0:
        return GaussianEvent(0.0)
    return GaussianEvent(sensitivity / scale) if scale > 0 else Unbounded(f"{where}: no noise")


def _conversion(made_for: Adjacency | None, asked: Adjacency) -> float | None:
    """By how much a sensitivity grows from one relation to another; None where nothing follows.

    Replacing a record is removing one and adding one, so add_remove converts with a factor of 2. A
    same-label replacement is a replacement. Nothing else follows.
    """
    if made_for == asked or (made_for == "replace_one" and asked == "replace_one_same_label"):
        return 1.0
    return 2.0 if made_for == "add_remove" else None


def _worst(
    cells_of: dict[str, dict[str, list[_Entry]]], adjacency: Adjacency, delta: float, members: int = 1
) -> Total:
    """The total of the worst record over clients and cells, or of so many records of one client together.

    Records of several classes together give no more away than as many of the worst class do: Gaussian-DP
    parameters and pure epsilons of the records of one unit add up at most.
    """
    if (reason := _no_guarantee(cells_of)) is not None:
        return Total(math.inf, None, reason)
    return _largest([_candidates(cells_of, adjacency)], adjacency, delta, members)


def _no_guarantee(cells_of: dict[str, dict[str, list[_Entry]]]) -> str | None:
    """Return the reason for an infinite total: the first release that bounds nothing."""
    entries = (entry for cells in cells_of.values() for part in cells.values() for entry in part)
    return next((reason for entry in entries if (reason := no_guarantee(entry.inside)) is not None), None)


def _candidates(cells_of: dict[str, dict[str, list[_Entry]]], adjacency: Adjacency) -> list[Composition]:
    """Compositions that a record may take part in, over clients and cells, none of it unbounded."""
    candidates: dict[Composition, None] = {(): None}
    known: dict[tuple[Composition, ...], list[Composition]] = {}
    for cells in cells_of.values():
        whole = [entry.inside for entry in cells[_ALL]]
        classes = [part for name, part in cells.items() if name != _ALL]
        # Most clients release alike.
        key = tuple(tuple(event for entry in part for event in (entry.inside, entry.across)) for part in classes)
        if key not in known:
            known[key] = _changes(classes, adjacency)
        for change in known[key]:
            candidates[tuple(sorted([*whole, *change], key=repr))] = None
    return list(candidates)


def _changes(classes: list[list[_Entry]], adjacency: Adjacency) -> list[Composition]:
    """Compositions for a record that changes within a class, or that moves between two of them."""
    if not classes:
        return [()]
    changes = foremost([tuple(entry.inside for entry in part) for part in classes], 1, _CHANGES)
    if adjacency == "replace_one":
        moved = foremost([tuple(entry.across for entry in part) for part in classes], 2, _CHANGES)
        changes += [first + second for first, second in combinations(moved, 2)]
    return changes


def _largest(sets: Sequence[Sequence[Composition]], adjacency: Adjacency, delta: float, members: int) -> Total:
    """The largest total of one composition of each set together, for so many records together."""

    def composed(events: Composition) -> Total:
        if members == 1:
            return compose(list(events), delta)
        return compose_for_group(list(events), members, delta, adjacency)

    return largest(sets, composed)


def account_together(
    transcripts: Sequence[Transcript], adjacency: Adjacency, delta: float, unit: Unit = "record"
) -> Total:
    """Total of several runs on the same records with independent noise, all of them published.

    Every run is accounted under the one relation, and the releases of all are composed at once. One record may be
    the worst of every run, so the worst composition of each run counts: never below the loss of any record.

    Args:
        transcripts: Of the runs.
        adjacency: The relation asked about, for all of them.
        delta: Strictly between 0 and 1, of the whole.
        unit: The unit of privacy asked about.
    """
    most = [transcript.most_records for transcript in transcripts]
    known = [number for number in most if number is not None]
    members, asked_unit = 1, unit
    if unit == "person" and len(known) == len(most) and all(map(_all_of_records, transcripts)):
        members, asked_unit = max(known, default=1), "record"
    runs: list[list[Composition]] = []
    for transcript, number in zip(transcripts, most, strict=True):
        records = number if asked_unit == "person" else None
        events = _events(transcript, _Query(adjacency, asked_unit, records, stated=False))
        if (reason := _no_guarantee(events)) is not None:
            return Total(math.inf, None, reason)
        runs.append(_candidates(events, adjacency))
    return _largest(runs, adjacency, delta, members)


def ledger_rows(transcript: Transcript, adjacency: Adjacency) -> tuple[LedgerRow, ...]:
    """One row for each field and direction, summed over the messages that carry it."""
    found: dict[tuple[str, Literal["up", "down"]], list[MessageField]] = {}
    for message in transcript.messages:
        direction: Literal["up", "down"] = "down" if message.sender == SERVER else "up"
        for name, item in message.fields.items():
            found.setdefault((name, direction), []).append(item)
    return tuple(_row(name, direction, items, adjacency) for (name, direction), items in found.items())


def _row(
    name: str, direction: Literal["up", "down"], items: list[MessageField], adjacency: Adjacency
) -> LedgerRow:
    first = items[0]
    # A field may be noised by one sender and exact at another: the ledger names every mechanism.
    mechanisms = list(dict.fromkeys(item.release.mechanism for item in items))
    exact = "exact" in mechanisms
    dp_sgd = None
    if first.release.mechanism == "dp_sgd":
        dp_sgd = {
            "noise_multiplier": float(first.release.noise_multiplier or 0.0),
            "sampling_rate": float(first.release.sampling_rate or 0.0),
            "steps": float(first.release.steps or 0),
        }
    return LedgerRow(
        field=name,
        kind=first.kind,
        direction=direction,
        messages=len(items),
        shape=_shapes(items),
        dtype=str(first.dtype),
        nbytes=sum(item.nbytes for item in items),
        mechanism="+".join(mechanisms),
        exact=exact,
        public_under_adjacency=exact and not any(_breaks(item.release, adjacency) for item in items),
        secure=first.secure,
        adjacency=first.release.adjacency,
        unit=first.release.unit,
        sensitivity=_range([item.release.sensitivity for item in items]),
        noise_scale=_range([item.release.noise_scale for item in items]),
        group=first.release.group,
        dp_sgd=dp_sgd,
        note=first.release.note,
    )


def _shapes(items: list[MessageField]) -> str:
    shapes = np.array([[*item.shape] for item in items if len(item.shape) == len(items[0].shape)])
    if shapes.size == 0:
        return "()"
    low, high = shapes.min(axis=0), shapes.max(axis=0)
    sides = [f"{a}" if a == b else f"{a}..{b}" for a, b in zip(low, high, strict=True)]
    return f"({', '.join(sides)})"


def _range(values: list[tuple[float, ...] | None]) -> tuple[float, float] | None:
    known = [value for part in values if part is not None for value in part]
    return (min(known), max(known)) if known else None


@dataclass(frozen=True)
class Accounted:
    """The ledger's totals for a transcript under the plan's adjacency.

    Attributes:
        total: Accounted epsilon of the kind that was asked about; infinite where something leaves exactly.
        total_stated: The same on the sources' own stated sensitivities.
        mu: Total Gaussian-DP parameter where everything is Gaussian, else None.
        exact_fields: Names of the fields that leave exactly and break the adjacency.
        reason: Reason why epsilon is infinite, or how it was composed.
    """

    total: Epsilon
    total_stated: Epsilon
    mu: float | None
    exact_fields: tuple[str, ...]
    reason: str

    @property
    def epsilon(self) -> float:
        """The bare number, for accountants and what is written for programs."""
        return self.total.bare

    @property
    def epsilon_stated(self) -> float:
        """Epsilon of the total on the sources' stated sensitivities, as a number."""
        return self.total_stated.bare
