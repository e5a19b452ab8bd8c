"""The fourth question: is it known how far any record can move what is sent?

Replays hold a declared sensitivity against neighbours of this run's data, and a sensitivity that is local to these
data passes there: a median of eight records hardly moves, a median of one is that record. So a claim is `sound`
only where the worst case is known, in one of two ways.

- Sums over records. Two records of a client change, each alone and then both. What goes into the noise is a sum
  over records if, and only if, both together move it by what the two add up to; then how far one record moves it
  depends on that record alone, and the fillings of the second question are a search over single records. This is
  seen in replays, whatever the method calls its statistic. Private trainings are sums of gradients that the tape
  clips record by record (`fedassay.audits.claim.seen_steps`); others' mechanisms get one row a record.
- Worst neighbours of the method's own (`Outcome.mechanisms`) that attain the sensitivity that is declared.

Where neither holds, the claim is not refuted and no more. `fedassay.audits.claim.tape.farthest` searches for worse
neighbours then.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.claim.tape.answers import Answer, Attempt, listed
from fedassay.audits.claim.tape.coverage import Covered, named
from fedassay.audits.claim.tape.fillings import Filling, fillings
from fedassay.audits.claim.tape.neighbours import filled
from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyClaim
from fedassay.privacy.reruns import Experiment
from fedassay.privacy.tape import Draw, ExternalMechanism, Key, Tape, TapeEntry
from fedassay.privacy.variants import distances

_RELATIVE = 1e-6
"""Share of what two records move that rounding may leave of the difference."""

_ROUNDING = 2.0**-21
"""Share of a statistic that sums in float32 are off by."""

_ATTAINED = 1 - 1e-3

Part = tuple[str, str]
"""Names of a release and of a part of it, which all clients, rounds, cells and steps share."""

State = Literal["silent", "sum", "no sum"]


@dataclass
class WorstCase:
    """The question, for the Gaussian and foreign mechanisms of a run.

    Attributes:
        context: Of the run.
        cells: Draws that protect each noised field.
        claim: The claim.
        uncharged: Records that several clients send, uncharged for all of these, in words; empty: none.
        made: Replays that were made.
        states: Known state of every part.
        left: Cells with an input of the noise other than sums over records, as far as is known.
    """

    context: AuditContext
    cells: Sequence[Covered]
    claim: PrivacyClaim
    uncharged: str = ""
    made: int = 0
    states: dict[Part, State] = field(default_factory=dict)
    left: tuple[Covered, ...] = ()

    def answer(self) -> Answer:
        """Ask it."""
        own = [each for each in self.cells if each.draws]
        failures = [self._pair(pair) for pair in self._pairs()] if own else []
        if failures and all(failures):
            return Answer("worst_case", "crashed", f"it failed ({failures[0]})")
        left = self.left = tuple(each for each in own if not self._known(each))
        required = max((each.moved / each.deviation for each in left if each.deviation > 0), default=0.0)
        attained = max((reach(each) for each in self.context.outcome.mechanisms.values()), default=0.0)
        if left and attained < _ATTAINED * required:
            return Answer("worst_case", "not_asked", self._open(left), ", ".join(left[0].fields))
        if self.uncharged:
            return Answer("worst_case", "not_asked", self.uncharged)
        words = [f"what goes into the noise is a sum over records, in {self.made} replays"] if self.made else []
        if left:
            words = [f"worst neighbours of the method's own attain what {_names(left)} declares"]
        if self.context.tape.trainings:
            words.append("private trainings clip record by record")
        return Answer("worst_case", "passed", f"the worst case is known: {' and '.join(words)}")

    def _open(self, left: Sequence[Covered]) -> str:
        sums = [
            named(entry.key, each.fields)
            for each in left
            for entry in each.draws
            if self.states.get(_part(entry.key)) == "no sum"
        ]
        why = f"{listed(sums)} of a client is no sum over its records" if sums else "no replay moved it"
        return (
            f"{why}, so how far a record moves it on other data is not known; worst neighbours that attain what "
            f"{_names(left)} declares belong into Outcome(mechanisms=...) (docs/howto/add-method.md)"
        )

    def _known(self, covered: Covered) -> bool:
        """Whether all that goes into a cell's noise is sums over records."""
        states = [self.states.get(_part(entry.key), "silent") for entry in covered.draws if _noised(entry)]
        return not states or ("sum" in states and "no sum" not in states)

    def _pairs(self) -> list[tuple[Filling, Filling]]:
        """Pairs of fillings for two records: removed or extreme, and then ordinary."""
        tried = fillings("replace_one_same_label" if self.claim.unit != "record" else self.claim.adjacency)
        extreme = [each for each in tried if each.vector is not None]
        ordinary = (extreme[-1], extreme[-2])
        removed = next((each for each in tried if each.vector is None), None)
        first = (extreme[0], extreme[1]) if removed is None else (removed, removed)
        # Runs with private trainings are dear: one pair must do.
        return [first] if self.context.tape.trainings else [first, ordinary]

    def _pair(self, pair: tuple[Filling, Filling]) -> str:
        """Note what a pair shows of every part; how the method refuses such records, in words, where it does."""
        attempt = Attempt()
        with attempt:
            self._note(*(self._replayed(pair, chosen) for chosen in ((0,), (1,), (0, 1))))
        return attempt.failure

    def _note(self, one: Tape, two: Tape, both: Tape) -> None:
        for key, entry in self.context.tape.draws.items():
            if not _noised(entry):
                continue
            found = [tape.draws.get(key) for tape in (one, two, both)]
            state = _state(entry, found)
            earlier = self.states.get(_part(key), "silent")
            order: tuple[State, ...] = ("silent", "sum", "no sum")
            self.states[_part(key)] = max(earlier, state, key=order.index)

    def _replayed(self, pair: tuple[Filling, Filling], chosen: tuple[int, ...]) -> Tape:
        """The run with one or both of two records changed in every client that has two."""
        clients = []
        for number, client in enumerate(self.context.data.clients):
            places = two_places(client)
            changes = [] if places is None else [(places[each], pair[each]) for each in chosen]
            clients.append(changed_at(client, changes, self.context.data.classes, number))
        self.made += 1
        tape = self.context.replay(clients, self.context.tape, brief=True).tape
        return tape


def two_places(client: Records) -> tuple[int, int] | None:
    """Two records of the client's largest class, or any two; None where it has fewer."""
    if len(client) < 2:
        return None
    largest = np.flatnonzero(client.labels == np.argmax(np.bincount(client.labels)))
    chosen = largest if len(largest) > 1 else np.arange(len(client))
    return int(chosen[0]), int(chosen[-1])


def changed_at(client: Records, changes: Sequence[tuple[int, Filling]], classes: int, number: int) -> Records:
    """A client with records of it filled or removed; places are those of the unchanged client."""
    removed = [place for place, filling in changes if filling.vector is None]
    for place, filling in changes:
        if filling.vector is not None:
            client = filled(client, place, filling, classes, number).records
    return client if not removed else client.take(np.setdiff1d(np.arange(len(client)), np.array(removed)))


def _state(entry: TapeEntry, found: Sequence[TapeEntry | None]) -> State:
    """State of one draw by three changed runs."""
    if isinstance(entry, ExternalMechanism):
        return _rows(entry, found)
    kept = [each for each in found if isinstance(each, Draw) and each.exact.shape == entry.shape]
    if len(kept) < 3 or not isinstance(entry, Draw):
        return "no sum"
    zero, one, two, both = (each.exact for each in (entry, *kept))
    moved = [float(np.abs(each - zero).max(initial=0.0)) for each in (one, two)]
    mixed = float(np.abs((both - one) - (two - zero)).max(initial=0.0))
    rounding = _ROUNDING * max(float(np.abs(each).max(initial=0.0)) for each in (zero, one, two, both))
    if not mixed <= _RELATIVE * max(moved) + rounding + 4 * entry.grid:
        return "no sum"
    return "sum" if min(moved) > rounding else "silent"


def _rows(entry: ExternalMechanism, found: Sequence[TapeEntry | None]) -> State:
    """Whether another library's mechanism gets one row a record, within the bounds that it is given."""
    kept = [each for each in found[:2] if isinstance(each, ExternalMechanism)]
    tables = [each.values for each in (entry, *kept)]
    if len(tables) < 3 or any(table is None for table in tables):
        return "silent"
    own, one, two = (table for table in tables if table is not None)
    low, high = entry.bounds
    within = all(bool(((table >= low) & (table <= high)).all()) for table in (own, one, two))
    changed = [_changed_rows(own, each) for each in (one, two)]
    return "sum" if within and max(changed) <= 1 and min(changed) > 0 else "no sum"


def _changed_rows(own: NDArray[np.float64], other: NDArray[np.float64]) -> int:
    """Number of rows by which two tables differ, in any order, one longer than the other or not."""
    ours, theirs = (Counter(row.tobytes() for row in table) for table in (own, other))
    return max((ours - theirs).total(), (theirs - ours).total())


def reach(experiment: Experiment) -> float:
    """Distance of an experiment's neighbours in standard deviations of its noise, computed from both."""
    apart = zip(distances(experiment), experiment.sigmas, strict=True)
    return math.hypot(*(moved / sigma if sigma else math.inf for moved, sigma in apart if moved))


def _noised(entry: TapeEntry) -> bool:
    return not isinstance(entry, Draw) or entry.scale > 0


def _part(key: Key) -> Part:
    return key.field, key.part


def _names(cells: Sequence[Covered]) -> str:
    return listed(", ".join(each.fields) for each in cells)
