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

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from fedassay.audits.claim.tape.answers import Answer, Attempt, Fault, answered
from fedassay.audits.claim.tape.compared import unlike_outcomes
from fedassay.audits.claim.tape.declared import Declared
from fedassay.audits.claim.tape.fillings import SAME_LABEL, Filling, fillings
from fedassay.audits.claim.tape.flips import Draws, walk, ways
from fedassay.audits.claim.tape.neighbours import Changed, filled, labels_at, place_in_class, place_of, unit_at
from fedassay.audits.claim.tape.overlap import Overlap, overlap
from fedassay.audits.claim.tape.rare import of_two_records
from fedassay.audits.claim.tape.replays import Replays
from fedassay.audits.claim.tape.worlds import STEPS, World, alike, made_up, of_clients, sums_of
from fedassay.contracts.audit import AuditContext, Replayed
from fedassay.data.records import Records
from fedassay.nets.dp_sgd.tape import trainings
from fedassay.privacy.tape import Tape
from fedassay.support.adjacency import Adjacency, Unit, record_counts_public
from fedassay.support.seeds import Seeds

LEAST_REPLAYS, REPLAYS, OF_TRAININGS = 8, 40, 8
"""Replays that are made at least, by default, and by default of runs with private trainings, which are dear."""

_FEW = 3
"""Fillings that clients of hardly any record are tried with."""
_KEPT = 4
"""Replays that are kept for outputs that were never seen and for images out of range."""
_NUMBERS = 8_000_000
"""Numbers of statistics that are kept for all replays together."""


@dataclass
class Search:
    """The search for neighbours that move statistics too far.

    Attributes:
        replayed: Replays of the run.
        declared: Its declarations, and the fields that move too far.
        replays: That may be made. They are counted, never clocked: the same plan gives the same answer.
        skipped: Fields that no replay may compare; None: messages are not compared.
        rest: Other parts that change with a record: an answer to the third question.
        refused: Fillings that the method refuses, and how.
        shared: Records that several clients send.
    """

    replayed: Replays
    declared: Declared
    replays: int
    skipped: frozenset[str] | None = None
    rest: list[Fault] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    shared: Overlap = field(default_factory=Overlap)
    made: int = 0
    tapes: int = 1
    fixed: bool = False

    @property
    def context(self) -> AuditContext:
        """Of the run."""
        return self.replayed.context

    @property
    def adjacency(self) -> Adjacency:
        """Of the claim."""
        return self.declared.claim.adjacency

    @property
    def unit(self) -> Unit:
        """Of the claim."""
        return self.declared.claim.unit

    def answer(self) -> Answer:
        """Search, and say what was found."""
        found, clients = self.declared, [client for client in self.context.data.clients if len(client)]
        chosen = self._chosen([client.name for client in clients])
        if not chosen:
            return Answer("sensitivity", "not_asked", "no client has any record")
        worlds = self._worlds(chosen)
        if not found.faults and not self.rest:
            if not self.refused:
                self._other_tapes(worlds[1:3], chosen)
            self._out_of_range(chosen)
            self._of_few_records(chosen)
            self._other_classes(worlds[0], chosen)
        shared = self.shared = overlap(self.replayed, found.cells, found.claim, found.mu, self.skipped)
        found.faults += shared.faults
        self.rest += shared.rest
        if not (found.faults or self.rest or shared.found or self.replayed.trained) and self.unit == "record":
            self._flips(chosen)
        if not found.tried and not found.faults and self.refused:
            name, failure = next(iter(self.refused.items()))
            return Answer("sensitivity", "crashed", f"with {name} it fails ({failure})")
        if not found.tried and not found.faults:
            return Answer("sensitivity", "not_asked", "no client has a neighbour to be compared with")
        refused = f"the method refuses {', '.join(self.refused)}" if self.refused else ""
        words = "; ".join(filter(None, (self._words(len(chosen)), shared.words, refused)))
        return answered("sensitivity", found.faults, words)

    def _worlds(self, chosen: frozenset[str]) -> list[World]:
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
                self.declared.compare(earlier, worlds[-1])
            if self.rest or any(fault.status == "failed" for fault in self.declared.faults):
                break
        return worlds

    def _words(self, clients: int) -> str:
        of = len(self.context.data.clients)
        tapes = "1 tape, whose inputs do not depend on its outputs" if self.fixed else f"{self.tapes} tapes"
        many = f"{clients} of {of} clients" if clients < of else f"{of} clients"
        tried, largest = self.declared.tried, self.declared.largest
        return (
            f"not refuted on {tried:,} neighbours of {many} x {tapes}, in {self.made} replays; the worst moves "
            f"{largest:.3f} of what is declared"
        )

    def _chosen(self, names: Sequence[str]) -> frozenset[str]:
        """The clients with kept statistics: all, or as many as there is room for, by a public rotation."""
        sizes: dict[str, int] = defaultdict(int)
        for key, entry in self.context.tape.draws.items():
            sizes[key.sender] += int(np.prod(entry.shape))
        for key, training in trainings(self.context.tape).items():
            sizes[key.sender] += STEPS * sum(each.size for each in training.weights.values())
        smallest = min(self.context.data.clients, key=lambda client: (not len(client), len(client))).name
        order = [smallest, *Seeds(0).numpy("tape", "clients").permutation(names).tolist()]
        worlds = len(fillings(self.adjacency, self.unit)) + 1
        chosen: list[str] = []
        for name in dict.fromkeys(order):
            if name in names and (
                not chosen or (sum(sizes[n] for n in chosen) + sizes[name]) * worlds <= _NUMBERS
            ):
                chosen.append(name)
        return frozenset(chosen)

    def _first(self, chosen: frozenset[str]) -> World:
        """The run itself: the place holds the record that it holds."""
        labels = {
            client.name: labels_at(client, place_of(client, number), self.unit)
            for number, client in enumerate(self.context.data.clients)
            if client.name in chosen
        }
        return World("the record itself", labels, of_clients(self.context.tape, chosen), {})

    def _out_of_range(self, chosen: frozenset[str]) -> None:
        """Images out of range, for methods that make their features of images themselves; some refuse them."""
        pair = fillings(self.adjacency, self.unit)[:2]
        attempt = Attempt()
        with attempt:
            one, two = (self._world(filling, self.context.tape, chosen, far=True) for filling in pair)
        if attempt.failure:
            # A method that refuses such images needs no clip for them.
            return
        before = len(self.declared.faults)
        self.declared.compare(one, two)
        # Numbers that overflow on the way say nothing of a clip.
        new = self.declared.faults[before:]
        self.declared.faults[before:] = [f for f in new if "by nan" not in f.words and "by inf" not in f.words]

    def _of_few_records(self, chosen: frozenset[str]) -> None:
        """Clients of two records, one of them removed: what follows from a mean moves furthest there."""
        if record_counts_public(self.adjacency) or self.unit != "record" or self.replayed.trained:
            return
        cut, first = of_two_records(self.context.data.clients), dict.fromkeys(chosen, 0)
        with Attempt():
            worlds = [
                self._world(filling, self.context.tape, chosen, clients=cut, places=first)
                for filling in fillings(self.adjacency, self.unit)[:_FEW]
            ]
            for number, world in enumerate(worlds):
                for earlier in worlds[:number]:
                    self.declared.compare(earlier, world)

    def _other_classes(self, first: World, chosen: frozenset[str]) -> None:
        """One record of each class in turn, of another one in every client."""
        for offset in range(self.context.data.classes):
            if self.made >= self.replays:
                return
            places = {
                client.name: place_in_class(client, (number + offset) % self.context.data.classes)
                for number, client in enumerate(self.context.data.clients)
                if client.name in chosen
            }
            own = {name: place for name, place in places.items() if place is not None}
            if own:
                # To replace a record is to remove one and to add one.
                twice = 2.0 if self.adjacency == "add_remove" else 1.0
                with Attempt():
                    world = self._world(SAME_LABEL, self.context.tape, chosen, places=own)
                    self.declared.compare(first, world, dict.fromkeys(own, twice))

    def _flips(self, chosen: frozenset[str]) -> None:
        """Ways to other records, along which a choice that follows from a client's records changes."""

        def draw(clients: Sequence[Records], name: str) -> Draws:
            self.made += 1
            found = self.replayed(clients)
            self._note(found, name)
            return found.tape.draws

        def moved(first: Draws, second: Draws, apart: Mapping[str, float], about: str) -> dict[str, float]:
            self.declared.tried += sum(steps == 1 for steps in apart.values())
            return self.declared.distances(first, second, apart, f"{about} for the records themselves")

        for way in ways(self.adjacency, self.context.data.classes):
            # A method that refuses such records chooses nothing by them.
            with Attempt():
                walk(way, self.context.data.clients, chosen, draw, moved)
            if self.declared.faults or self.rest:
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
        clients: Sequence[Records] | None = None,
    ) -> World:
        """One replay with every chosen client changed, or those of `places`; `clients`: None: those of the run."""
        changed: dict[str, Changed] = {}
        clients = list(self.context.data.clients if clients is None else clients)
        for number, client in enumerate(clients):
            if client.name in chosen and len(client) and (places is None or client.name in places):
                place = place_of(client, number) if places is None else places[client.name]
                # Somebody must hold a record: without any there is nothing to run.
                if (
                    filling.vector is None
                    and number == 0
                    and len(unit_at(client, place, self.unit)) == len(client)
                ):
                    continue
                own = filled(client, place, filling, self.context.data.classes, number, far=far, unit=self.unit)
                changed[client.name], clients[number] = own, own.records
        self.made += 1
        found = self.replayed(clients, answers, look=partial(sums_of, changed=changed), whole=whole)
        tape, sums = found.tape, found.looked
        assert isinstance(sums, dict)
        if answers is self.context.tape:
            # Outputs that were never seen may lead to other mechanisms; records may not.
            self._note(found, filling.name, far=far)
        labels = {name: own.label for name, own in changed.items()}
        return World(filling.name, labels, of_clients(tape, chosen), sums)

    def _note(self, found: Replayed, name: str, *, far: bool = False) -> None:
        """Note differences that a neighbour makes beside the input of the noise."""
        self.declared.faults += [Fault(each.field, f"with {name}: {each.words}") for each in found.tape.faults]
        if self.skipped is not None and not far:
            unlike = unlike_outcomes(self.replayed.same, found, self.skipped)
            self.rest += [replace(fault, words=f"with {name}: {fault.words}") for fault in unlike]

    def _other_tapes(self, worlds: Sequence[World], chosen: frozenset[str]) -> None:
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
                self.declared.faults.append(Fault("", words, "crashed"))
                return
            self.fixed = all(alike(own, other) for own, other in zip(worlds, pair, strict=True))
            self.tapes += not self.fixed
            self.declared.compare(pair[0], pair[1])
