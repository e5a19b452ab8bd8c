"""Does each client send its own records alone?

A ledger charges the releases of each client to that client's records: parallel composition assumes that no two
clients hold the same record. The audit therefore replaces the records of some clients and keeps the others', by
binary codes of the clients' numbers, which distinguish every pair in 2 ceil(log2 n) replays. The input to the
noise of an unchanged client must then be the same to the bit. Where it is not, several clients send one record:
its effect on all of them together is compared with the ledger's total.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedassay.audits.claim.tape.answers import Attempt, Fault
from fedassay.audits.claim.tape.compared import unlike_outcomes
from fedassay.audits.claim.tape.coverage import Covered
from fedassay.audits.claim.tape.fillings import fillings
from fedassay.audits.claim.tape.neighbours import Labels, filled, labels_at, neighbours, place_of
from fedassay.audits.claim.tape.others import other_records, with_others
from fedassay.audits.claim.tape.replays import Replays, inputs_of
from fedassay.audits.claim.tape.together import ROUNDING, distance, moved_together
from fedassay.contracts.audit import Replayed
from fedassay.exchange.ledger import account
from fedassay.exchange.release import PrivacyClaim
from fedassay.privacy.tape import Draw, Key, TapeEntry
from fedassay.support.adjacency import UNIT_WORDS
from fedassay.support.types import Ints

_SOURCES = 3
"""Maximum number of clients with records that are followed one by one."""
_FILLINGS = 4
"""Number of fillings in the place of their record, the strongest first."""


_World = tuple[str, Labels | None, Mapping[Key, TapeEntry]]
"""Filling of a record's place, its labels, and the resulting inputs of the draws."""


@dataclass
class Overlap:
    """Records that several clients send.

    Attributes:
        faults: Effects of one record on several clients together, above the charged ones.
        rest: Differences in what unchanged clients send beside their noise.
        found: Whether there are such records, charged or not.
        uncharged: Records that moved no further than charged on the tried neighbours, though the ledger does not
            add up what all their senders release, in words; empty: none.
        replays: Number of replays.
        words: A sentence on what was tried; empty: nothing.
    """

    faults: list[Fault] = field(default_factory=list)
    rest: list[Fault] = field(default_factory=list)
    found: bool = False
    uncharged: str = ""
    replays: int = 0
    words: str = ""


def codes(clients: int) -> Iterator[frozenset[int]]:
    """Yield sets of clients to change together; for each ordered pair one set holds only the first client."""
    for bit in range(max(0, clients - 1).bit_length()):
        for side in (0, 1):
            yield frozenset(number for number in range(clients) if number >> bit & 1 == side)


def overlap(
    replays: Replays,
    cells: Sequence[Covered],
    claim: PrivacyClaim,
    mu: float | None,
    skipped: frozenset[str] | None,
) -> Overlap:
    """Look for records that several clients send.

    Args:
        replays: Replays of the run.
        cells: The protection of each noised field.
        claim: The privacy claim.
        mu: Total mu of the ledger where all noise is Gaussian; None: it is not.
        skipped: Fields that are not compared; None: no message is.
    """
    context, found = replays.context, Overlap()
    if len(context.data.clients) < 2:
        return found
    others = other_records(context, claim.adjacency, odd=False)
    sent = _Sent()
    for code in codes(len(context.data.clients)):
        clients = tuple(others[n] if n in code else own for n, own in enumerate(context.data.clients))
        attempt = Attempt()
        with attempt:
            replay = replays(clients, look=inputs_of)
            found.replays += 1
            sent.note(code, _moved(replays.same, replay))
            if skipped is not None and not found.rest:
                found.rest = unlike_outcomes(replays.same, replay, skipped)
    names = [client.name for client in context.data.clients]
    by_source = sent.by_source(names)
    found.found = bool(by_source)
    for source in sorted(by_source)[:_SOURCES]:
        attempt = Attempt()
        with attempt:
            _hold(found, replays, cells, claim, mu, source, by_source[source])
    attempt = Attempt()
    with attempt:
        if not found.faults and (words := moved_together(replays, cells, claim, mu)):
            found.faults.append(Fault("", words))
    if found.replays and not found.faults:
        found.words = f"in {found.replays} replays in which some clients' records change alone, " + (
            "what others draw noise for is the same to the bit" if not by_source else _within(names, by_source)
        )
    return found


@dataclass
class _Sent:
    """Senders with changed and unchanged draws, by the clients that had changed."""

    codes: list[frozenset[int]] = field(default_factory=list)
    moved: list[frozenset[str]] = field(default_factory=list)

    def note(self, code: frozenset[int], moved: frozenset[str]) -> None:
        """Note the senders with changed draws in one replay."""
        self.codes.append(code)
        self.moved.append(moved)

    def by_source(self, names: Sequence[str]) -> dict[int, frozenset[str]]:
        """By the number of a client, the other senders with draws that may change with its records."""
        everybody = frozenset[str]().union(*self.moved)
        found = {
            number: frozenset(each for each in everybody - {name} if self._follows(each, number, names))
            for number, name in enumerate(names)
        }
        return {number: senders for number, senders in found.items() if senders}

    def _follows(self, sender: str, source: int, names: Sequence[str]) -> bool:
        """Whether a sender's draws changed whenever the source's records did and its own did not."""
        shown = [
            sender in moved
            for code, moved in zip(self.codes, self.moved, strict=True)
            if source in code and not (sender in names and names.index(sender) in code)
        ]
        return bool(shown) and all(shown)


def _moved(same: Replayed, replay: Replayed) -> frozenset[str]:
    """Senders with a different input to a draw, or to a private training."""
    moved = {key.sender for key, entry in replay.tape.draws.items() if _unlike(same.tape.draws.get(key), entry)}
    first, second = (each.looked if isinstance(each.looked, dict) else {} for each in (same, replay))
    return frozenset(moved | {key.sender for key, digest in second.items() if first.get(key) != digest})


def _unlike(first: TapeEntry | None, second: TapeEntry) -> bool:
    if not isinstance(first, Draw) or not isinstance(second, Draw):
        return False
    return first.exact.shape != second.exact.shape or first.exact.tobytes() != second.exact.tobytes()


def _hold(
    found: Overlap,
    replays: Replays,
    cells: Sequence[Covered],
    claim: PrivacyClaim,
    mu: float | None,
    source: int,
    senders: frozenset[str],
) -> None:
    """Hold one record's effect on several clients' releases against the ledger's total."""
    own = replays.context.data.clients[source].name
    sent = f"records of {own} are sent by {' and '.join(sorted({own, *senders}))}"
    if mu is None or not math.isfinite(mu):
        if total := _above(replays, claim, {own, *senders}):
            found.faults.append(Fault("", f"{sent}: what these release {total}"))
        return
    moved, about, movers = _together(replays, cells, claim, source, senders)
    if moved > mu * (1 + ROUNDING):
        words = f"{about} moves all of their releases together by {moved:.4g}, above the declared mu of {mu:.4g}"
        found.faults.append(Fault("", f"{sent}: {words}"))
    elif total := _above(replays, claim, movers):
        found.uncharged = found.uncharged or (
            f"records of {own} move the releases of {' and '.join(sorted(movers))}: by at most {moved:.4g} on the "
            f"tried neighbours, within the declared mu of {mu:.4g}, but what these release {total}"
        )


def _above(replays: Replays, claim: PrivacyClaim, senders: Collection[str]) -> str:
    """Words on the ledger's total where these senders release one's records; empty: it is within the claim."""
    own = replays.context.outcome.transcript
    one = min(senders, default="")
    joined = [replace(each, sender=one if each.sender in senders else each.sender) for each in own.messages]
    total = account(replace(own, messages=tuple(joined)), claim.adjacency, claim.delta, claim.unit)
    if total.epsilon <= claim.epsilon * (1 + 1e-6):
        return ""
    return (
        f"adds up to epsilon {total.epsilon:.4g} for {UNIT_WORDS[claim.unit]}, above the claimed {claim.epsilon:g}"
    )


def _together(
    replays: Replays, cells: Sequence[Covered], claim: PrivacyClaim, source: int, senders: frozenset[str]
) -> tuple[float, str, frozenset[str]]:
    """Distance by which one record moves all messages together, in deviations; its filling, and the senders."""
    context = replays.context
    client = context.data.clients[source]
    place = _sent_place(replays, source, senders)
    itself: _World = ("the record itself", labels_at(client, place, claim.unit), replays.same.tape.draws)
    worlds = [itself]
    worst = (0.0, "")
    movers: set[str] = set()
    for filling in fillings(claim.adjacency, claim.unit)[:_FILLINGS]:
        own = filled(client, place, filling, context.data.classes, source, unit=claim.unit)
        changed = tuple(own.records if n == source else each for n, each in enumerate(context.data.clients))
        if any(map(len, changed)):
            worlds.append((filling.name, own.label, replays(changed).tape.draws))
        name, label, draws = worlds[-1]
        for other, before, first in worlds[:-1]:
            if neighbours(before, label, claim.adjacency):
                worst = max(worst, (distance(cells, first, draws), f"{name} for {other}"))
                movers |= {key.sender for key, entry in draws.items() if _unlike(first.get(key), entry)}
    return *worst, frozenset(movers)


def _sent_place(replays: Replays, source: int, senders: frozenset[str]) -> int:
    """Return the place of a client's record that others send as well; they may send only some of its records.

    It is that of `place_of` if that record moves a sender; else bisection finds it, the first half tried first.
    """
    context = replays.context
    client = context.data.clients[source]
    other = other_records(context, "replace_one_same_label", odd=False)[source]

    def moves(places: Ints) -> bool:
        changed = with_others(client, places, other.take(places))
        clients = tuple(changed if n == source else each for n, each in enumerate(context.data.clients))
        return not senders.isdisjoint(_moved(replays.same, replays(clients, look=inputs_of)))

    places = np.array([place_of(client, source)])
    if moves(places):
        return int(places[0])
    places = np.arange(len(client))
    while len(places) > 1:
        first, second = np.array_split(places, 2)
        places = first if moves(first) else second
    return int(places[0])


def _within(names: Sequence[str], by_source: Mapping[int, frozenset[str]]) -> str:
    """Remark on records that several clients send, and that are charged for that."""
    source, senders = min(by_source.items())
    others = ", ".join(sorted(senders))
    return f"records of {names[source]} are sent by {others} as well, together within what is charged"
