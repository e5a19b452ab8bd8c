"""Canary clients: all records of a client are one outlying image, or all are its inverse.

The mean of identical records is an extreme point of what a client can add to a sum, where sensitivities are
attained. The score of real records, their law in the population, does not fit such outliers. The adversary knows
both possibilities and the method. So it runs it on either with the same random streams, and finds the direction in
which a client's messages differ, coordinate by coordinate over their variance (as `fedassay.audits.claim.reruns`
does). It guesses by the projection of a message on it, in runs that it knows nothing else of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedassay.audits.claim.reruns import Released, fit_direction, what_leaves
from fedassay.audits.membership.swaps import Guesses, Run, Swaps
from fedassay.audits.simulation import control_seeds
from fedassay.contracts.audit import AttackedContext
from fedassay.data.records import Records
from fedassay.support.errors import FedassayError, NotRunError
from fedassay.support.seeds import Seeds
from fedassay.support.types import Bools


def canary_clients(context: AttackedContext, chosen: Sequence[int]) -> Swaps:
    """Clients of one image each, as often as the client has records, and of its inverse.

    Args:
        context: The clients, and the adjacency.
        chosen: Places of the clients.

    Raises:
        NotRunError: There are features only.
    """
    if not all(context.data.clients[place].pictures for place in chosen):
        raise NotRunError("canary clients hold images of noise, and of these records only features are known")
    inside: list[Records] = []
    outside: list[Records] = []
    for place in chosen:
        client, rng = context.data.clients[place], context.seeds.numpy("membership", "clients", "canary", place)
        image = np.asarray(255 * rng.integers(0, 2, size=client.images.shape[1:]), np.uint8)
        label = int(np.bincount(client.labels).argmax())
        other = (
            label if context.privacy.adjacency == "replace_one_same_label" else (label + 1) % context.data.classes
        )
        for side, one, kind in ((inside, image, label), (outside, 255 - image, other)):
            images, labels = np.repeat(one[None], len(client), axis=0), np.full(len(client), kind, np.int64)
            side.append(Records(client.name, images, labels, context.data.encode))
    return Swaps(
        emptied(context.data.clients, chosen),
        tuple(context.data.clients[place].name for place in chosen),
        tuple(inside),
        tuple(outside),
        context.game.population,
    )


def canary_guesses(
    context: AttackedContext, run: Run, swaps: Swaps, runs: int, what: str, advance: Callable[[int, int], None]
) -> Guesses:
    """Guess which canary each client holds, in half of the runs; the other half, in pairs, find the directions.

    Arguments and errors as `fedassay.audits.membership.swaps.guesses_of`.
    """
    seeds = control_seeds(context, "membership", "canary clients", what)
    count, pairs, tested = len(swaps.inside), max(2, runs // 4), runs - 2 * max(2, runs // 4)
    sides: list[list[list[Released]]] = []
    for side in range(2):
        held = np.full(count, side == 1)
        sides.append([_messages(context, run, swaps, held, seeds.child("pair", i)) for i in range(pairs)])
        advance(pairs * (side + 1), runs)
    included = seeds.numpy("coins").random((tested, count)) < 0.5

    def released(number: int) -> list[Released]:
        advance(2 * pairs + number, runs)
        return _messages(context, run, swaps, included[number], seeds.child("run", number))

    return by_directions(sides, included, released, "canary clients")


def by_directions(
    sides: Sequence[Sequence[Sequence[Released]]],
    included: Bools,
    released: Callable[[int], Sequence[Released]],
    what: str,
) -> Guesses:
    """Guess coins (n, K) by directions that are fitted to releases with known coins.

    Args:
        sides: Releases of each unit in runs with known coins, by run: all units out, and all in.
        included: The coins of the runs to guess on.
        released: Makes the releases of each unit in such a run.
        what: Read off the messages, for the error.

    Raises:
        NotRunError: No message of a client is seen.
    """
    if not any(released for side in sides for each in side for released in each):
        raise NotRunError(f"the adversary sees no message of a client, and {what} are read off these")
    zero, one = (list(zip(*side, strict=True)) for side in sides)
    directions = [fit_direction(out, held) for out, held in zip(zero, one, strict=True)]
    known = np.array([[way.score(each) for each in (*zero[k], *one[k])] for k, way in enumerate(directions)])
    cuts, spread = known.mean(axis=1), known[:, : len(sides[0])].std(axis=1)
    runs = (zip(directions, released(number), strict=True) for number in range(len(included)))
    scores = np.array([[way.score(each) for way, each in run] for run in runs])
    margins = (scores - cuts) / np.where(spread > 0, spread, 1.0)
    return Guesses(margins > 0, included, "projection", margins)


def _messages(context: AttackedContext, run: Run, swaps: Swaps, included: Bools, seeds: Seeds) -> list[Released]:
    """Return the visible release of each swapped client, or of the secure sum, in one run."""
    try:
        outcome = run(swaps.held(included), seeds)
    except FedassayError as error:
        raise NotRunError(f"the method cannot be run on canary clients: {error}") from None
    return [what_leaves(outcome, owner, context.view.threat) for owner in swaps.owners]


def smallest(clients: Sequence[Records], most: int) -> list[int]:
    """Places of the smallest clients that have a record, in the order of the clients.

    Raises:
        NotRunError: No client has one.
    """
    held = [place for place, client in enumerate(clients) if len(client)]
    if not held:
        raise NotRunError("no client has a record")
    return sorted(sorted(held, key=lambda place: len(clients[place]))[:most])


def emptied(clients: Sequence[Records], chosen: Sequence[int]) -> tuple[Records, ...]:
    """The clients, those at the chosen places without any record."""
    nothing = np.zeros(0, np.int64)
    return tuple(client.take(nothing) if place in chosen else client for place, client in enumerate(clients))
