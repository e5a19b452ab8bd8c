"""Further releases of the audited method, on the clients' records dealt anew, for more senders than one run has.

Five sites send five histograms, and no test of five can reject at the level of a run. How much a method reveals of
the labels of its clients is a property of the method, though. It can be run again as it was audited, with its
noise, on other clients of the same records.

Clients are dealt in turn. Each draws records with weights that are another client's label histogram with its
classes in another order (a sample without replacement by Gumbel keys), so that clients of few classes stay so.
The records of a person stay together. Where only the sum over all clients is seen, half of the records take part,
drawn likewise: of all of them the sum would be the same again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedassay.audits.message.nonprivate import Reading, read
from fedassay.audits.nonprivate_releases import NonPrivateRelease, summed_only
from fedassay.contracts.audit import AttackedContext
from fedassay.contracts.membership import visible
from fedassay.data.records import Records, joined
from fedassay.nets.dp_sgd.tape import trainings
from fedassay.support.types import Ints

MOST_RUNS = 16
MOST_TRAININGS = 3
"""At most so many further runs, and of a method that trains under privacy."""


def further_readings(context: AttackedContext, senders: int, seen: int) -> list[Reading]:
    """Read label histograms from further runs: of twice the senders that a test needs, or as many as possible.

    Args:
        context: The audited run; its method is run again under its own privacy.
        senders: Least number that the test needs, those of the audited run among them; fewer are not made.
        seen: Senders of one run.

    Raises:
        NotRunError: The method cannot be run again.
    """
    most = MOST_TRAININGS if trainings(context.tape) else MOST_RUNS
    wanted = min(most, -(-(2 * senders - seen) // seen))
    if (1 + wanted) * seen < senders:
        return []
    found = []
    for number in range(wanted):
        seeds = context.seeds.child("message", "dealt anew", number)
        clients = deal(
            context.data.clients, seeds.numpy("records"), part=0.5 if summed_only(context.view) else 1.0
        )
        outcome = context.method.run_on(clients, seeds)
        release = NonPrivateRelease(tuple(clients), outcome, visible(outcome, context.view.threat))
        found.append(read(release, context))
    return found


def deal(clients: Sequence[Records], rng: np.random.Generator, part: float = 1.0) -> list[Records]:
    """The clients' records among as many clients of about the same sizes, none twice.

    Args:
        clients: At least one of them holds a record.
        rng: Deals.
        part: Share of every client's size that is dealt, in (0, 1].
    """
    held = [client for client in clients if len(client)]
    pool = joined("pool", held)
    classes = int(pool.labels.max()) + 1
    left = _blocks(pool)
    # Each block's shares of the classes, shape (blocks, classes).
    shares = np.array([np.bincount(pool.labels[rows], minlength=classes) / len(rows) for rows in left])
    dealt: dict[str, Records] = {}
    for place in rng.permutation(len(held)):
        client, like = held[place], held[int(rng.integers(len(held)))]
        weights = np.bincount(like.labels, minlength=classes)[rng.permutation(classes)] + 1e-6
        keys = np.log(shares @ weights) + rng.gumbel(size=len(left))
        order = np.argsort(-keys)
        sizes = np.cumsum([len(left[index]) for index in order])
        count = int(np.searchsorted(sizes, max(1, round(part * len(client))))) + 1
        chosen = np.concatenate([left[index] for index in order[:count]]) if len(order) else np.zeros(0, np.int64)
        dealt[client.name] = pool.take(np.sort(chosen), client.name)
        left, shares = [left[index] for index in order[count:]], shares[order[count:]]
    return [dealt.get(client.name, client) for client in clients]


def _blocks(pool: Records) -> list[Ints]:
    """Rows that stay together: of one person, or each by itself."""
    if pool.groups is None:
        return [np.array([row]) for row in range(len(pool))]
    return [np.flatnonzero(pool.groups == person) for person in np.unique(pool.groups)]
