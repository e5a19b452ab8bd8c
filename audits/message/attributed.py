"""Attribution to one client of vectors recovered from sums over clients, and the share attributed rightly.

The attack says which clients each vector may be of. The truth is joined here: a vector is of the client that holds
the record nearest to it, and of no client where that is farther than `NEAR`. Chance is the share of right
attributions when the records' owners are shuffled. As a control, the same attack must attribute four known
records, two of a client that leaves after the first round.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.features import encoder
from fedassay.audits.message.controls import attacked, control_records, sums_of
from fedassay.audits.message.truth import NEAR
from fedassay.audits.stats.persons import share_interval, share_of_persons
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext
from fedassay.data.records import Records, joined
from fedassay.exchange.transcript import AGGREGATE, Message
from fedassay.exchange.view import View
from fedassay.records.record import Metric, unmeasured
from fedassay.support.types import Bools, Ints, Matrix

Metrics = dict[str, Metric]

_NO_RECORDS = "the clients' records were not given, so no attribution was checked"


def attributed(result: AttackResult, context: AttackedContext) -> tuple[Metrics, Metrics]:
    """Metrics of attribution and what chance gives; none where nothing came from a sum over clients."""
    if "possible" not in result.artifacts or not result.vectors:
        return {}, {}
    summed = np.array([sender == AGGREGATE for sender in result.vectors[0].senders])
    possible = np.asarray(result.artifacts["possible"], np.bool_)
    single = summed & (possible.sum(axis=1) == 1)
    share = Metric(
        value=float(single[summed].mean()), n=int(summed.sum()), reason=_words(result, single) + _by_hand(context)
    )
    if not single.any():
        return {"attributed": share, "attribution_right": unmeasured("no vector is of one client only")}, {}
    encode = encoder(context)
    if not context.data.clients or encode is None:
        return {"attributed": share, "attribution_right": unmeasured(_NO_RECORDS)}, {}
    vectors = np.asarray(result.artifacts["vectors"], np.float64)[single]
    names = [str(name) for name in result.artifacts["clients"]]
    said = [names[number] for number in possible[single].argmax(axis=1)]
    everybody = joined("clients", context.data.clients)
    owners = np.repeat(
        [client.name for client in context.data.clients], [len(client) for client in context.data.clients]
    )
    true = owner_of(vectors, encode(everybody), owners)
    right = np.array([claim == owner for claim, owner in zip(said, true, strict=True)])
    whose = np.unique(said, return_inverse=True)[1]
    chance = float(np.mean([(owners == claim).mean() for claim in sorted(set(said))]))
    low, high = share_interval(right, whose)
    reason = f"mean over the {len(set(said))} client(s) to whom records are attributed"
    return (
        {
            "attributed": share,
            "attribution_right": Metric(
                value=share_of_persons(right, whose), low=low, high=high, n=len(right), reason=reason
            ),
        },
        {"attribution_right": Metric(value=chance, n=len(right), reason="the same with owners shuffled")},
    )


def owner_of(vectors: Matrix, features: Matrix, owners: NDArray[np.str_]) -> list[str]:
    """Return the owner of the record nearest to each vector, from features (n, d) and owners (n,); "" for none."""
    norms = np.linalg.norm(features, axis=1)
    seen = np.flatnonzero(norms > 0)
    found = []
    for vector in vectors:
        apart = np.linalg.norm(features[seen] - vector, axis=1) / norms[seen]
        nearest = int(apart.argmin()) if len(seen) else -1
        found.append(str(owners[seen[nearest]]) if nearest >= 0 and apart[nearest] < NEAR else "")
    return found


def _words(result: AttackResult, single: Bools) -> str:
    """Return the evidence for attributions as a clause, or the reason why there is none."""
    if not single.any():
        return str(result.artifacts["unattributed"])
    counted = Counter(str(each) for each in result.artifacts["evidence"][single])
    return "of one client by " + ", ".join(f"{each} ({size})" for each, size in sorted(counted.items()))


def _by_hand(context: AttackedContext) -> str:
    """Attribute known records by the attack alone, from sums of two clients when one of them leaves."""
    encode = encoder(context)
    records = control_records(context)
    if encode is None or len(records) < 4:
        return ""
    clients = {"client/0": records.take(np.arange(2)), "client/1": records.take(np.arange(2, len(records)))}
    stays = joined(AGGREGATE, [clients["client/0"]])
    messages = tuple(
        Message(number, AGGREGATE, seen.receiver, seen.fields)
        for number, part in enumerate((joined(AGGREGATE, list(clients.values())), stays))
        for seen in [sums_of(part, context, encode, counts=True)]
    )
    cohorts = {0: tuple(clients), 1: ("client/0",)}
    result = attacked(context, View(messages, context.data.classes, context.view.threat, cohorts=cohorts))
    right = _right(result, clients, encode(records), np.array([0, 0, *[1] * (len(records) - 2)]))
    return f"; control by hand: {right} of {len(records)} records attributed rightly"


def _right(result: AttackResult, clients: dict[str, Records], features: Matrix, owner: Ints) -> int:
    """Number of known records that the attack attributes to the client that holds them, and to no other one."""
    if "possible" not in result.artifacts:
        return 0
    names = [str(name) for name in result.artifacts["clients"]]
    found = owner_of(
        np.asarray(result.artifacts["vectors"], np.float64),
        features,
        np.array([str(i) for i in range(len(owner))]),
    )
    right = set()
    for record, row in zip(found, np.asarray(result.artifacts["possible"], np.bool_), strict=True):
        if record and [names[i] for i in np.flatnonzero(row)] == [list(clients)[owner[int(record)]]]:
            right.add(record)
    return len(right)
