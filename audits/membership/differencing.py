"""The informed adversary against releases without noise: differencing for sums, consistency for the rest.

It runs the method itself on both possibilities, a client's records with the one in question or with another of
the same label, and takes the one whose messages are nearer to the real ones.

Positive control: the features themselves. Negative: a release of a third data set, which holds neither record.
"""

from __future__ import annotations

import numpy as np

from fedassay.audits.claim.reruns import Released, what_leaves
from fedassay.audits.membership.verdict import informed_finding
from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records, joined
from fedassay.records.record import Finding
from fedassay.support.errors import FedassayError, NotRunError


def differencing(context: AuditContext, trials: int) -> Finding:
    """Exact releases: whose simulated messages are nearer, those with the record or those with another?

    Args:
        context: The outcome, the records and the method.
        trials: Independent releases, half of them with the record; three runs of the method each.

    Raises:
        NotRunError: No record can stand in for a client's, or the method cannot be run that often or alone.
    """
    if context.outcome.generators:
        raise NotRunError("a generator would have to be trained anew three times in every trial")
    rng = context.seeds.numpy("membership", "differencing")
    held = [client for client in context.clients if len(client) >= 2]
    if not held:
        raise NotRunError("no client has two records")
    seeds = context.seeds.child("membership", "differencing")
    owner = min(held, key=len)
    index = next(i for i, client in enumerate(context.clients) if client.name == owner.name)

    def released(records: Records, *path: str | int) -> Released:
        clients = [client.take(np.zeros(0, np.int64)) for client in context.clients]
        clients[index] = records
        try:
            return what_leaves(context.rerun(clients, seeds.child(*path)), owner.name)
        except FedassayError as error:
            raise NotRunError(f"the method cannot be run on {owner.name} alone: {error}") from None

    kinds: dict[str, list[list[float]]] = {name: [[], []] for name in ("audited", "positive", "negative")}
    with context.workplace.progress.step("informed adversary") as advance:
        for trial in range(trials):
            advance(trial, trials)
            place = int(rng.integers(len(owner)))
            fitting = np.flatnonzero(context.test.labels == owner.labels[place])
            if fitting.size < 2:
                continue
            chosen = rng.permutation(fitting)[:2]
            rest = owner.take(np.flatnonzero(np.arange(len(owner)) != place))
            inside, outside, third = (
                joined(owner.name, [rest, one])
                for one in (owner.take(np.array([place])), *(context.test.take(row[None]) for row in chosen))
            )
            side = trial % 2
            real = released((outside, inside)[side], "real", trial)
            # The adversary does not know the run's own streams.
            guesses = [released(each, "guess", trial) for each in (outside, inside)]
            kinds["audited"][side].append(_nearer(real, *guesses))
            raw = [{"features": each.features.astype(np.float64).ravel()} for each in (outside, inside)]
            kinds["positive"][side].append(_nearer(raw[side], *raw))
            kinds["negative"][side].append(_nearer(released(third, "real", trial), *guesses))
    if min(len(part) for part in kinds["audited"]) < 4:
        raise NotRunError(f"{trials} trials are too few, or no test record can stand in for one of {owner.name}'s")
    found = {name: (np.array(sides[0]), np.array(sides[1])) for name, sides in kinds.items()}
    return informed_finding(
        "differencing",
        f"what {owner.name} sends, {len(owner)} records",
        context,
        found["audited"],
        (found["positive"], "the same client's features, sent as they are"),
        (found["negative"], "releases that hold neither of the two records"),
        None,
        "all other records, both candidates and the method are known; the run's random streams are not",
    )


def _nearer(real: Released, outside: Released, inside: Released) -> float:
    """By how much messages are nearer to the simulation with the record, relative to how far the two are apart."""
    with_it, without_it, apart = (
        _distance(*pair) for pair in ((real, inside), (real, outside), (inside, outside))
    )
    return (without_it - with_it) / apart if apart > 0 else 0.0


def _distance(first: Released, second: Released) -> float:
    """Sum over the fields of squared distances, each relative to the field's own size."""
    total = 0.0
    for name in first.keys() | second.keys():
        one, two = first.get(name, np.zeros(0)), second.get(name, np.zeros(0))
        if one.shape != two.shape:
            total += 1.0
            continue
        size = float(one @ one + two @ two)
        total += float(((one - two) ** 2).sum()) / size if size > 0 else 0.0
    return total
