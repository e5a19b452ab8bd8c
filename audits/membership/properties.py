"""Property inference on a whole client: does it hold records of a class, or a given share of them?

The adversary knows none of a client's records and infers a property of them all: property inference (Ateniese et
al. 2015; Ganju et al. 2018). In every run of the method anew, each of some clients holds by a fair coin either
`share` of its records of one class, or none of it; all of them are drawn anew from records that no other client
holds. The adversary has records of its own alone. It runs the method on clients of these, with the property and
without, in pairs that share random streams and all records but those of the class. It finds the direction in which
a client's messages differ, coordinate by coordinate over their variance, and guesses by the projection of a
message on it. For Gaussian-noised sums that is the likelihood ratio, but for correlations between coordinates.

Exact counts in a message reveal such a property without an attack (`fedassay.attacks.label_distribution`). This
test applies to any message, and to claims: the two kinds of clients can be paired so that they differ in the
records of the class alone, k of n. So a claim for records allows k steps of it, whatever the distribution is.
Where the adjacency makes labels public there is nothing to infer.

Positive control: the same property, at the same share, in the method's messages without privacy. Where that is not
inferred either, the verdict is `inconclusive`. Negative: the same guesses against coins drawn after the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedassay.audits.claim.reruns import Released
from fedassay.audits.membership.client_canaries import by_directions, emptied, smallest
from fedassay.audits.membership.swaps import Guesses, Run, Swaps
from fedassay.audits.simulation import control_seeds
from fedassay.contracts.audit import AttackedContext
from fedassay.data.records import Records, joined
from fedassay.exchange.transcript import AGGREGATE
from fedassay.exchange.view import View, view
from fedassay.support.adjacency import class_counts_public
from fedassay.support.errors import FedassayError, NotRunError
from fedassay.support.seeds import Seeds
from fedassay.support.types import Bools

_FEWEST = 2
"""Records of a client with a property."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Records that clients are made of.

    Attributes:
        inside: Of the class.
        outside: Of all others.
    """

    inside: Records
    outside: Records

    def client(self, name: str, size: int, special: int, held: bool, rng: np.random.Generator) -> Records:
        """A client of `size` records, `special` of them of the class or none; the same others for either."""
        others = self.outside.take(rng.choice(len(self.outside), size, replace=False), name)
        chosen = rng.choice(len(self.inside), special, replace=False)
        if not held:
            return others
        return joined(name, [self.inside.take(chosen), others.take(np.arange(special, size))])


@dataclass(frozen=True, eq=False)
class Property:
    """The tested property of clients, and the records that they are made of.

    Attributes:
        label: The class.
        sizes: Records of each client, K of them.
        special: Records among them of the class where the client has the property.
        tested: The records of the clients that are guessed on.
        known: The adversary's own records.
        swaps: The clients, and for one client of each kind the records that differ.
    """

    label: int
    sizes: tuple[int, ...]
    special: tuple[int, ...]
    tested: Pool
    known: Pool
    swaps: Swaps

    @property
    def words(self) -> str:
        """Return the property and the clients, as a clause."""
        held = ", ".join(f"{k} of {n}" for k, n in zip(self.special, self.sizes, strict=True))
        return f"{len(self.sizes)} clients that hold {held} records of class {self.label}, or none"

    def guesses(
        self,
        context: AttackedContext,
        run: Run,
        swaps: Swaps,
        runs: int,
        what: str,
        advance: Callable[[int, int], None],
    ) -> Guesses:
        """Guess who has the property, in half of the runs; the other half, in pairs, are the adversary's.

        Arguments and errors as `fedassay.audits.membership.swaps.guesses_of`.
        """
        seeds = control_seeds(context, "membership", "property", what)
        count, pairs, tested = len(self.sizes), max(2, runs // 4), runs - 2 * max(2, runs // 4)
        sides: list[list[list[Released]]] = [[], []]
        for number in range(pairs):
            for side in range(2):
                advance(2 * number + side, runs)
                own = self._clients(self.known, np.full(count, side == 1), seeds.child("known", number))
                sides[side].append(_messages(context, run, swaps, own, seeds.child("pair", number)))
        included = seeds.numpy("coins").random((tested, count)) < 0.5

        def released(number: int) -> list[Released]:
            advance(2 * pairs + number, runs)
            held = self._clients(self.tested, included[number], seeds.child("tested", number))
            return _messages(context, run, swaps, held, seeds.child("run", number))

        return by_directions(sides, included, released, "properties")

    def _clients(self, pool: Pool, included: Bools, seeds: Seeds) -> list[Records]:
        """Clients with the property where their coin says so."""
        rng = seeds.numpy("records")
        rows = zip(self.swaps.owners, self.sizes, self.special, included, strict=True)
        return [pool.client(name, size, special, bool(coin), rng) for name, size, special, coin in rows]


def property_of(context: AttackedContext, most: int, label: int | None, share: float) -> Property:
    """The smallest clients with the property, and the records that they are made of.

    Args:
        context: The clients, and records that no client holds.
        most: Clients at most.
        label: The class; None: the most frequent one among the records that no client holds.
        share: Of a client's records, in (0, 1].

    Raises:
        NotRunError: Labels are public, no client has a record, or there are too few records to make clients of.
    """
    adjacency = context.privacy.adjacency
    if class_counts_public(adjacency):
        raise NotRunError(f"labels are public under {adjacency}: no share of a class is hidden")
    chosen = smallest(context.data.clients, most)
    unseen = context.data.test.without(*context.data.clients)
    counts = np.minimum(
        *(np.bincount(each.labels, minlength=context.data.classes) for each in (unseen, context.data.attacker))
    )
    asked = int(counts.argmax()) if label is None else label
    tested, known = (_pool(each, asked) for each in (unseen, context.data.attacker))
    there = min(len(tested.outside), len(known.outside))
    sizes = tuple(min(len(context.data.clients[place]), there) for place in chosen)
    special = tuple(min(max(1, round(share * size)), size) for size in sizes)
    short = max(special) - min(len(tested.inside), len(known.inside))
    if min(sizes) < _FEWEST or short > 0:
        raise NotRunError(
            f"clients with {max(special)} records of class {asked} cannot be made of {len(unseen)} records that "
            f"no client holds and {len(context.data.attacker)} of the adversary's: {len(tested.inside)} and "
            f"{len(known.inside)} are of that class"
        )
    names = tuple(context.data.clients[place].name for place in chosen)
    differ = tuple(tested.inside.take(np.arange(k)) for k in special)
    without = tuple(tested.outside.take(np.arange(k)) for k in special)
    swaps = Swaps(emptied(context.data.clients, chosen), names, differ, without, None)
    return Property(asked, sizes, special, tested, known, swaps)


def _pool(records: Records, label: int) -> Pool:
    inside = records.labels == label
    return Pool(records.take(np.flatnonzero(inside)), records.take(np.flatnonzero(~inside)))


def _messages(
    context: AttackedContext, run: Run, swaps: Swaps, made: Sequence[Records], seeds: Seeds
) -> list[Released]:
    """Return the visible release of each of these clients, or of the secure sum, in one run."""
    held = np.ones(len(made), np.bool_)
    try:
        outcome = run(replace(swaps, inside=tuple(made), outside=tuple(made)).held(held), seeds)
    except FedassayError as error:
        raise NotRunError(f"the method cannot be run on clients with a property: {error}") from None
    seen = view(outcome.transcript, context.view.threat)
    return [_released(seen, owner) for owner in swaps.owners]


def _released(seen: View, owner: str) -> Released:
    """Return the visible fields of a client or of the secure sum, by name; blocks of classes over all classes."""
    found: Released = {}
    for message in seen.from_clients():
        if message.sender not in {owner, AGGREGATE}:
            continue
        ids = message.of_kind("class_ids")
        for name, item in message.fields.items():
            values = np.asarray(item.values, np.float64)
            if ids is not None and values.ndim and len(values) == len(ids):
                spread = np.zeros((seen.classes, *values.shape[1:]))
                spread[ids.astype(np.int64)] = 1.0 if item.kind == "class_ids" else values
                values = spread
            found[f"{message.round}/{name}"] = values.ravel()
    return found
