"""The second question: is the sensitivity what was declared?

The method runs again and again with the outputs of its mechanisms kept, every client with something else in the
place of one record. What goes into the mechanisms may then differ, between any two neighbouring fillings, by no
more than the message's release declares, over all parts and steps of it in quadrature; and all of a client's
releases together by no more than the ledger's total. Outputs that were never seen are kept as well (zeros, ten
standard deviations off, another seed's), for they are in a Gaussian's support and later statistics may hang on
them. Private trainings are asked at tested steps for their sums, the differing record's coin forced.

A search: what it does not find may exist. The answer says how many neighbours were tried.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.claim.tape.answers import Answer, Attempt, Fault, answered
from fedassay.audits.claim.tape.compared import unlike_outcomes
from fedassay.audits.claim.tape.coverage import Covered, named
from fedassay.audits.claim.tape.flips import Draws, walk, ways
from fedassay.audits.claim.tape.neighbours import (
    SAME_LABEL,
    Changed,
    Filling,
    Labels,
    filled,
    fillings,
    labels_at,
    neighbours,
    place_in_class,
    place_of,
    unit_at,
)
from fedassay.audits.claim.tape.overlap import overlap
from fedassay.audits.claim.tape.replays import Replays
from fedassay.audits.claim.tape.streams import expected, squared_distance
from fedassay.contracts.audit import AuditContext, Replayed
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyClaim
from fedassay.nets.dp_sgd.tape import Training, trainings
from fedassay.privacy.tape import Draw, Key, Tape, TapeEntry
from fedassay.support.adjacency import UNIT_ORDER, Adjacency, Unit, record_counts_public
from fedassay.support.seeds import Seeds

_ROUNDING = 1e-3
_STEPS = 2
"""Tested steps of every training."""
_ROWS = -1
"""In the place of a step: the rows of a training whose number is not that of the records."""

LEAST_REPLAYS, REPLAYS, OF_TRAININGS = 8, 40, 8
"""Replays that are made at least, by default, and by default of runs with private trainings, which are dear."""

_FEW = 3
"""Fillings that clients of hardly any record are tried with."""
_KEPT = 4
"""Replays that are kept for outputs that were never seen and for images out of range."""
_NUMBERS = 8_000_000
"""Numbers of statistics that are kept for all replays together."""


@dataclass(frozen=True)
class _World:
    """Inputs of the mechanisms in one replay.

    Attributes:
        name: Of the filling.
        labels: Of the records that fill the place of each client; None: there are none.
        draws: Inputs by key, of the clients that are compared.
        sums: Of trainings at tested steps, by key and step.
    """

    name: str
    labels: Mapping[str, Labels | None]
    draws: Mapping[Key, TapeEntry]
    sums: Mapping[tuple[Key, int], NDArray[np.float64]]


@dataclass
class Search:
    """The search for neighbours that move statistics too far.

    Attributes:
        replayed: Replays of the run.
        cells: What protects each noised field.
        claim: What is claimed.
        mu: What the ledger adds up to where all is Gaussian; None: it is not.
        replays: That may be made. They are counted, never clocked: the same plan gives the same answer.
        skipped: Fields that no replay may compare; None: messages are not compared.
        faults: What moves too far.
        rest: What else changes with a record: an answer to the third question.
        refused: Fillings that the method refuses, and how.
    """

    replayed: Replays
    cells: Sequence[Covered]
    claim: PrivacyClaim
    mu: float | None
    replays: int
    skipped: frozenset[str] | None = None
    faults: list[Fault] = field(default_factory=list)
    rest: list[Fault] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    tried: int = 0
    made: int = 0
    tapes: int = 1
    fixed: bool = False
    largest: float = 0.0
    uncharged: str = ""

    @property
    def context(self) -> AuditContext:
        """Of the run."""
        return self.replayed.context

    @property
    def adjacency(self) -> Adjacency:
        """Of the claim."""
        return self.claim.adjacency

    @property
    def unit(self) -> Unit:
        """Of the claim."""
        return self.claim.unit

    def answer(self) -> Answer:
        """Search, and say what was found."""
        clients = [client for client in self.context.clients if len(client)]
        chosen = self._chosen([client.name for client in clients])
        if not self.context.tape.draws and not self.context.tape.trainings:
            return Answer("sensitivity", "not_asked", "no noise was drawn from task.mechanism")
        if not chosen:
            return Answer("sensitivity", "not_asked", "no client has any record")
        worlds = self._worlds(chosen)
        if not self.faults and not self.rest:
            if not self.refused:
                self._other_tapes(worlds[1:3], chosen)
            self._out_of_range(chosen)
            self._of_few_records(chosen)
            self._other_classes(worlds[0], chosen)
        shared = overlap(self.replayed, self.cells, self.claim, self.mu, self.skipped)
        self.faults += shared.faults
        self.rest += shared.rest
        self.uncharged = shared.uncharged
        if not (self.faults or self.rest or shared.found or self.replayed.trained) and self.unit == "record":
            self._flips(chosen)
        if not self.tried and not self.faults and self.refused:
            name, failure = next(iter(self.refused.items()))
            return Answer("sensitivity", "crashed", f"with {name} it fails ({failure})")
        if not self.tried and not self.faults:
            return Answer("sensitivity", "not_asked", "no client has a neighbour to be compared with")
        refused = f"the method refuses {', '.join(self.refused)}" if self.refused else ""
        words = "; ".join(filter(None, (self._words(len(chosen)), shared.words, refused)))
        return answered("sensitivity", self.faults, words)

    def _worlds(self, chosen: frozenset[str]) -> list[_World]:
        """The run itself and its replays with every filling, compared pair by pair, up to the first fault."""
        worlds = [self._first(chosen)]
        for filling in fillings(self.adjacency, self.unit):
            if self.made >= self.replays - _KEPT:
                break
            attempt = Attempt()
            with attempt:
                world = self._world(filling, self.context.tape, chosen, whole=not self.replayed.trained)
            if attempt.failure:
                # A method may refuse such a record; it may not send something else.
                self.refused[filling.name] = attempt.failure
                continue
            worlds.append(world)
            for earlier in worlds[:-1]:
                self._compare(earlier, worlds[-1])
            if self.rest or any(fault.status == "failed" for fault in self.faults):
                break
        return worlds

    def _words(self, clients: int) -> str:
        of = len(self.context.clients)
        tapes = "1 tape, of whose outputs what goes in does not depend" if self.fixed else f"{self.tapes} tapes"
        many = f"{clients} of {of} clients" if clients < of else f"{of} clients"
        return (
            f"not refuted on {self.tried:,} neighbours of {many} x {tapes}, in {self.made} replays; the worst "
            f"moves {self.largest:.3f} of what is declared"
        )

    def _chosen(self, names: Sequence[str]) -> frozenset[str]:
        """The clients with kept statistics: all, or as many as there is room for, by a public rotation."""
        sizes: dict[str, int] = defaultdict(int)
        for key, entry in self.context.tape.draws.items():
            sizes[key.sender] += int(np.prod(entry.shape))
        for key, training in trainings(self.context.tape).items():
            sizes[key.sender] += _STEPS * sum(each.size for each in training.weights.values())
        smallest = min(self.context.clients, key=lambda client: (not len(client), len(client))).name
        order = [smallest, *Seeds(0).numpy("tape", "clients").permutation(names).tolist()]
        worlds = len(fillings(self.adjacency, self.unit)) + 1
        chosen: list[str] = []
        for name in dict.fromkeys(order):
            if name in names and (
                not chosen or (sum(sizes[n] for n in chosen) + sizes[name]) * worlds <= _NUMBERS
            ):
                chosen.append(name)
        return frozenset(chosen)

    def _first(self, chosen: frozenset[str]) -> _World:
        """The run itself: the place holds the record that it holds."""
        labels = {
            client.name: labels_at(client, place_of(client, number), self.unit)
            for number, client in enumerate(self.context.clients)
            if client.name in chosen
        }
        return _World("the record itself", labels, _of_clients(self.context.tape, chosen), {})

    def _out_of_range(self, chosen: frozenset[str]) -> None:
        """Images out of range, for methods that make their features of images themselves; some refuse them."""
        pair = fillings(self.adjacency, self.unit)[:2]
        attempt = Attempt()
        with attempt:
            one, two = (self._world(filling, self.context.tape, chosen, far=True) for filling in pair)
        if attempt.failure:
            # A method that refuses such images needs no clip for them.
            return
        before = len(self.faults)
        self._compare(one, two)
        # Numbers that overflow on the way say nothing of a clip.
        overflown = ("by nan", "by inf")
        self.faults[before:] = [
            f for f in self.faults[before:] if not any(words in f.words for words in overflown)
        ]

    def _of_few_records(self, chosen: frozenset[str]) -> None:
        """Clients of two records, one of them removed: what follows from a mean moves furthest there."""
        if record_counts_public(self.adjacency) or self.unit != "record" or self.replayed.trained:
            return
        with Attempt():
            worlds = [
                self._world(filling, self.context.tape, chosen, alone=True)
                for filling in fillings(self.adjacency, self.unit)[:_FEW]
            ]
            for number, world in enumerate(worlds):
                for earlier in worlds[:number]:
                    self._compare(earlier, world)

    def _other_classes(self, first: _World, chosen: frozenset[str]) -> None:
        """One record of each class in turn, of another one in every client."""
        for offset in range(self.context.classes):
            if self.made >= self.replays:
                return
            places = {
                client.name: place_in_class(client, (number + offset) % self.context.classes)
                for number, client in enumerate(self.context.clients)
                if client.name in chosen
            }
            own = {name: place for name, place in places.items() if place is not None}
            if own:
                # To replace a record is to remove one and to add one.
                twice = 2.0 if self.adjacency == "add_remove" else 1.0
                with Attempt():
                    world = self._world(SAME_LABEL, self.context.tape, chosen, places=own)
                    self._compare(first, world, dict.fromkeys(own, twice))

    def _flips(self, chosen: frozenset[str]) -> None:
        """Ways to other records, along which a choice that follows from a client's records changes."""

        def draw(clients: Sequence[Records], name: str) -> Draws:
            self.made += 1
            found = self.replayed(clients)
            self.faults += [Fault(each.field, f"with {name}: {each.words}") for each in found.tape.faults]
            self.rest += self._unlike(found, name)
            return found.tape.draws

        def moved(first: Draws, second: Draws, apart: Mapping[str, float], about: str) -> dict[str, float]:
            self.tried += sum(steps == 1 for steps in apart.values())
            return self._distances(first, second, apart, f"{about} for the records themselves")

        for way in ways(self.adjacency, self.context.classes):
            # A method that refuses such records chooses nothing by them.
            with Attempt():
                walk(way, self.context.clients, chosen, draw, moved)
            if self.faults or self.rest:
                return

    def _world(
        self,
        filling: Filling,
        answers: Tape,
        chosen: frozenset[str],
        *,
        far: bool = False,
        places: Mapping[str, int] | None = None,
        whole: bool = False,
        alone: bool = False,
    ) -> _World:
        """One replay with every chosen client changed, or those of `places`; `alone`: cut to two records."""
        changed: dict[str, Changed] = {}
        clients = list(self.context.clients)
        for number, whole_client in enumerate(clients):
            client = whole_client
            if client.name in chosen and len(client) and (places is None or client.name in places):
                place = place_of(client, number) if places is None else places[client.name]
                if alone:
                    client, place = client.take(np.array([place, (place + 1) % len(client)])), 0
                # Somebody must hold a record: without any there is nothing to run.
                if (
                    filling.vector is None
                    and number == 0
                    and len(unit_at(client, place, self.unit)) == len(client)
                ):
                    continue
                own = filled(client, place, filling, self.context.classes, number, far=far, unit=self.unit)
                changed[client.name], clients[number] = own, own.records
        self.made += 1
        found = self.replayed(clients, answers, look=partial(_sums, changed=changed), whole=whole)
        tape, sums = found.tape, found.looked
        assert isinstance(sums, dict)
        if answers is self.context.tape:
            # Outputs that were never seen may lead to other mechanisms; records may not.
            self.faults += [Fault(each.field, f"with {filling.name}: {each.words}") for each in tape.faults]
            if not far:
                self.rest += self._unlike(found, filling.name)
        labels = {name: own.label for name, own in changed.items()}
        return _World(filling.name, labels, _of_clients(tape, chosen), sums)

    def _unlike(self, found: Replayed, name: str) -> list[Fault]:
        """Differences that a neighbour makes beside the input of the noise."""
        if self.skipped is None:
            return []
        unlike = unlike_outcomes(self.replayed.same, found, self.skipped)
        return [replace(fault, words=f"with {name}: {fault.words}") for fault in unlike]

    def _other_tapes(self, worlds: Sequence[_World], chosen: frozenset[str]) -> None:
        """The first two fillings again, with outputs that were never seen."""
        tried = fillings(self.adjacency, self.unit)[:2]
        for answers in made_up(self.context.tape, self.context.seeds):
            if self.fixed or (self.tapes > 1 and self.made > self.replays - _KEPT):
                return
            attempt = Attempt()
            with attempt:
                pair = [self._world(filling, answers, chosen) for filling in tried]
            if attempt.failure:
                words = f"with outputs that were never seen it fails ({attempt.failure})"
                self.faults.append(Fault("", words, "crashed"))
                return
            self.fixed = all(_alike(own, other) for own, other in zip(worlds, pair, strict=True))
            self.tapes += not self.fixed
            self._compare(pair[0], pair[1])

    def _compare(self, first: _World, second: _World, apart: Mapping[str, float] | None = None) -> None:
        """Hold the difference between two fillings against what is declared.

        Args:
            first: One filling.
            second: The other one.
            apart: How many neighbours apart they are, by client; None: one, where their labels say that they are
                neighbours.
        """
        about = f"{second.name} for {first.name}"
        if apart is None:
            apart = {
                name: 1.0
                for name, label in first.labels.items()
                if name in second.labels and neighbours(label, second.labels[name], self.adjacency)
            }
        self.tried += len(apart)
        self._distances(first.draws, second.draws, apart, about)
        self._compare_sums(first, second, apart, about)

    def _distances(self, first: Draws, second: Draws, apart: Mapping[str, float], about: str) -> dict[str, float]:
        """Distances that draws' inputs have moved, by sender, in deviations; held against the declaration."""
        together: dict[str, float] = defaultdict(float)
        for covered in self.cells:
            sender = covered.message.sender
            if sender not in apart or covered.release.mechanism != "gaussian" or covered.deviation == 0:
                continue
            square = self._moved(covered, first, second, apart[sender], about)
            together[sender] += square / covered.deviation**2
        found = {sender: math.sqrt(squared) for sender, squared in together.items()}
        if self.mu is not None and math.isfinite(self.mu):
            for sender, moved in found.items():
                where = f"all releases of {sender} together"
                self._hold(moved, self.mu, apart[sender], "", where, about, "mu")
        return found

    def _moved(self, covered: Covered, first: Draws, second: Draws, steps: float, about: str) -> float:
        """Squared distance of what went into a cell's draws, held against its declared sensitivity."""
        parts: dict[str, float] = defaultdict(float)
        for entry in covered.draws:
            if isinstance(entry, Draw) and entry.scale > 0:
                one, two = first.get(entry.key), second.get(entry.key)
                if (one is None) != (two is None):
                    name = named(entry.key, covered.fields)
                    self.faults.append(Fault(name, f"{covered.where}: {about} makes or unmakes a draw"))
                if isinstance(one, Draw) and isinstance(two, Draw) and one.exact.shape == two.exact.shape:
                    parts[named(entry.key, covered.fields)] += squared_distance(one, two)
        square = sum(parts.values())
        allowed = covered.moved * _conversion(covered.release.adjacency, self.adjacency)
        allowed *= self._members(covered.release.unit)
        worst = max(parts, key=lambda name: parts[name]) if parts else ", ".join(covered.fields)
        self._hold(math.sqrt(square), allowed, steps, worst, covered.where, about, "sensitivity")
        return square

    def _members(self, made_for: Unit) -> float:
        """By how much the ledger raises a sensitivity for another unit."""
        larger = UNIT_ORDER.index(self.unit) - UNIT_ORDER.index(made_for)
        if larger > 0:
            most = self.context.outcome.transcript.most_records if self.unit == "person" else None
            return float(most or math.inf)
        return 2.0 if larger < 0 and self.adjacency == "add_remove" else 1.0

    def _hold(
        self, moved: float, allowed: float, steps: float, name: str, where: str, about: str, what: str
    ) -> None:
        if allowed > 0 and steps == 1 and math.isfinite(moved):
            self.largest = max(self.largest, moved / allowed)
        allowed *= steps
        if not moved <= allowed * (1 + _ROUNDING):
            words = f"{where}: {about} moves it by {moved:.4g}, above the declared {what} of {allowed:.4g}"
            self.faults.append(Fault(name, words))

    def _compare_sums(self, first: _World, second: _World, apart: Mapping[str, float], about: str) -> None:
        entries = trainings(self.context.tape)
        for (key, step), sums in second.sums.items():
            other = first.sums.get((key, step))
            if key.sender not in apart or other is None:
                continue
            if step == _ROWS:
                self._compare_rows(key, other, sums, apart[key.sender], about)
                continue
            if other.shape != sums.shape:
                continue
            allowed = entries[key].declared.norm * (1.0 if self.adjacency == "add_remove" else 2.0)
            where = f"the gradients of {key.field} of {key.sender} in round {key.round}, step {step + 1}"
            moved = float(np.linalg.norm(sums - other))
            self._hold(moved, allowed, apart[key.sender], key.field, where, about, "clipping norm")

    def _compare_rows(
        self, key: Key, first: NDArray[np.float64], second: NDArray[np.float64], steps: float, about: str
    ) -> None:
        """Hold how many rows of a training change against one, since each row is sampled and clipped by itself."""
        one, two = Counter(first.tolist()), Counter(second.tolist())
        count = max((one - two).total(), (two - one).total())
        if count > steps:
            words = (
                f"the training of {key.field} of {key.sender} in round {key.round}: {about} changes {count} of "
                f"{len(second)} rows, each of which is sampled and clipped by itself"
            )
            self.faults.append(Fault(key.field, words))


def _of_clients(tape: Tape, chosen: frozenset[str]) -> dict[Key, TapeEntry]:
    return {key: entry for key, entry in tape.draws.items() if key.sender in chosen}


def _sums(tape: Tape, changed: Mapping[str, Changed]) -> dict[tuple[Key, int], NDArray[np.float64]]:
    """Inputs of changed clients to the noise of tested steps, with the changed record's coin forced.

    Where a training has another number of rows than its client has records or persons, no row is known to be the
    changed one: its rows are held instead, under the step `_ROWS`.
    """
    found = {}
    for key, entry in trainings(tape).items():
        own = changed.get(key.sender)
        if own is None or entry.replay is None:
            continue
        if len(entry.replay.training.labels) != len(own.identities):
            found[key, _ROWS] = _rows(entry.replay.training)
            continue
        forced = () if own.label is None else (own.place,)
        for step in sorted(entry.facts.kept)[:: max(1, len(entry.facts.kept) - 1)][:_STEPS]:
            sums = entry.sums_at(step, forced=forced, identities=own.identities)
            found[key, step] = np.concatenate([each.numpy().ravel() for each in sums.values()])
    return found


def _rows(training: Training) -> NDArray[np.float64]:
    """A number for each row of a training and its label, equal for equal ones, shape (n,)."""
    inputs, labels = (each.detach().cpu().numpy() for each in (training.inputs, training.labels))
    rows = (row.tobytes() + label.tobytes() for row, label in zip(inputs, labels, strict=True))
    # 48 bits are whole numbers in float64.
    return np.array([int.from_bytes(blake2b(row, digest_size=6).digest(), "big") for row in rows], np.float64)


def _conversion(made_for: Adjacency | None, asked: Adjacency) -> float:
    """By how much the ledger raises a sensitivity: replacing a record is removing one and adding one."""
    return 2.0 if made_for == "add_remove" and asked != "add_remove" else 1.0


def _alike(own: _World, other: _World) -> bool:
    return all(
        isinstance(entry, Draw)
        and isinstance(first := own.draws[key], Draw)
        and np.array_equal(first.exact, entry.exact)
        for key, entry in other.draws.items()
        if isinstance(entry, Draw) and key in own.draws
    )


def made_up(tape: Tape, seeds: Seeds) -> Iterator[Tape]:
    """Tapes with other outputs in the place of those of a run: zeros, ten deviations off, another seed's."""
    root = seeds.child("tape", "other outputs")

    def outputs(draw: Draw, kind: int) -> Draw:
        if kind == 0 or draw.scale == 0:
            return replace(draw, out=np.zeros_like(draw.out))
        other = expected(draw, root)
        out = other if kind == 2 else draw.exact + 10 * draw.scale * np.sign(other - draw.exact)
        return replace(draw, out=np.asarray(out))

    for kind in range(3):
        draws: dict[Key, TapeEntry] = {
            key: outputs(entry, kind) if isinstance(entry, Draw) else entry for key, entry in tape.draws.items()
        }
        yield Tape(draws=draws, trainings=tape.trainings, messages=tape.messages, root=tape.root)
