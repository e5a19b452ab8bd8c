"""The informed adversary: it knows every record of a client but one.

- `worst_case`: noised statistics that the method names, on the neighbours that are worst for them.
- `real_records`: the same on a client's real records (both: `statistics`).
- `differencing`: releases without noise, differencing for sums and consistency for the rest.

The first two need a claim: its (epsilon, delta) holds for exactly these neighbours; their trials are independent
releases.

Without noise it runs the method itself on both possibilities, a client's records with the one in question or with
another of the same label, and takes the one with messages nearer to the real ones.

Positive controls: the same for a client of one control record a class, with messages that the method makes without
privacy, in the form in which it gives records away most; and the features themselves. Negative: a release of a
third data set, which holds neither record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.audits.claim.reruns import Released, what_leaves
from fedassay.audits.membership.judging import Releases, Scores, informed_finding, membership
from fedassay.audits.membership.statistics import real_records, worst_case
from fedassay.audits.verdict import not_run
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import Outcome
from fedassay.data.records import Records, joined
from fedassay.exchange.release import PrivacyClaim
from fedassay.records.record import Finding
from fedassay.support.errors import FedassayError, NotRunError, Why
from fedassay.support.progress import Advance
from fedassay.support.seeds import Seeds


def informed_findings(context: AuditContext, *, trials: int, releases: int) -> list[Finding]:
    """Findings of the informed adversary on a context's outcome; none where it was not asked for.

    Args:
        context: The outcome, the records and the method.
        trials: Of `differencing`.
        releases: On either side, of the other two.
    """
    claim = context.outcome.transcript.claim
    if isinstance(claim, PrivacyClaim):
        # A training that is private step by step names no statistic; dp_claim's canaries ask this of it.
        if not releases or not context.outcome.mechanisms:
            return []
        return [
            _guarded("worst_case", lambda: worst_case(context, claim, releases)),
            _guarded("real_records", lambda: real_records(context, claim, releases)),
        ]
    return [_guarded("differencing", lambda: differencing(context, trials))] if trials else []


def _guarded(selection: str, find: Callable[[], Finding]) -> Finding:
    try:
        return find()
    except NotRunError as error:
        return not_run(membership("informed", selection), error.why)


_CONTROLS = 20
"""Trials of the end-to-end control: each must be guessed rightly, or the control is none."""


Run = Callable[[Sequence[Records], Seeds], Outcome]


@dataclass(frozen=True, eq=False)
class _Trials:
    """Scores of trials, without and with the record.

    Attributes:
        audited: Of the releases.
        features: Of the features themselves.
        neither: Of releases that hold neither of the two records.
    """

    audited: Scores
    features: Scores
    neither: Scores


def differencing(context: AuditContext, trials: int) -> Finding:
    """Decide, on exact releases, which simulated messages are nearer: those with the record or those with another.

    Args:
        context: The outcome, the records and the method.
        trials: Independent releases, half of them with the record; three runs of the method each.

    Raises:
        NotRunError: No record can stand in for a client's, or the method cannot be run that often or alone.
    """
    if context.outcome.generators:
        raise NotRunError("a generator would have to be trained anew three times in every trial")
    held = [client for client in context.data.clients if len(client) >= 2]
    if not held:
        raise NotRunError("no client has two records")
    owner = min(held, key=len)
    with context.io.progress.step("informed adversary") as advance:
        audited = _trials(context, context.method.run_on, owner, context.data.test, trials, advance)
    if min(len(part) for part in audited.audited) < 4:
        raise NotRunError(f"{trials} trials are too few, or no test record can stand in for one of {owner.name}'s")
    own, missing = _end_to_end(context, owner.name, trials)
    releases = Releases(
        "differencing",
        f"what {owner.name} sends, {len(owner)} records",
        audited.audited,
        own,
        (audited.neither, "releases that hold neither of the two records"),
        "all other records, both candidates and the method are known; the run's random streams are not",
        attack_only=(audited.features, "the same client's features, sent as they are"),
        missing=missing,
    )
    return informed_finding(releases, None, context)


def _end_to_end(context: AuditContext, name: str, trials: int) -> tuple[tuple[Scores, str] | None, str]:
    """Scores for the revealing messages of a client of one control record a class; or why there are none."""
    control = context.data.control
    _, first = np.unique(control.labels, return_index=True)
    rest = control.take(np.setdiff1d(np.arange(len(control)), first))
    if len(first) < 2 or not np.isin(control.labels[first], rest.labels).any():
        words = (
            f"{len(control)} control records are too few for a release that must be found: 3 of a class would do"
        )
        return None, Why(words, "control", len(control), 3 * context.data.classes)
    owner = control.take(np.sort(first), name)
    try:
        with context.io.progress.step("informed adversary: control") as advance:
            found = _trials(context, context.method.run_nonprivate, owner, rest, min(trials, _CONTROLS), advance)
    except NotRunError as error:
        return None, error.why
    if min(len(part) for part in found.audited) < 4:
        words = f"{len(control)} control records are too few for a release that must be found: more would do"
        return None, Why(words, "control", len(control), 2 * max(len(control), 3 * context.data.classes))
    words = f"what the method sends without privacy of {len(owner)} control records, one of a class"
    return (found.audited, words), ""


def _trials(
    context: AuditContext, run: Run, owner: Records, others: Records, trials: int, advance: Advance
) -> _Trials:
    """Releases of an owner's records, every second one with one of them replaced by another of its label.

    Args:
        context: Its clients' names, and seeds.
        run: The method.
        owner: Under the name of a client.
        others: Records that stand in.
        trials: Releases.
        advance: Called after each.
    """
    rng = context.seeds.numpy("membership", "differencing", len(owner))
    seeds = context.seeds.child("membership", "differencing", len(owner))

    def released(records: Records, *path: str | int) -> Released:
        return _alone(context, run, owner.name, records, seeds.child(*path))

    kinds: dict[str, list[list[float]]] = {name: [[], []] for name in ("audited", "features", "neither")}
    for trial in range(trials):
        advance(trial, trials)
        place = int(rng.integers(len(owner)))
        fitting = np.flatnonzero(others.labels == owner.labels[place])
        if fitting.size < 2:
            continue
        chosen = rng.permutation(fitting)[:2]
        rest = owner.take(np.flatnonzero(np.arange(len(owner)) != place))
        inside, outside, third = (
            joined(owner.name, [rest, one])
            for one in (owner.take(np.array([place])), *(others.take(row[None]) for row in chosen))
        )
        side = trial % 2
        real = released((outside, inside)[side], "real", trial)
        # The adversary does not know the run's own streams.
        guesses = [released(each, "guess", trial) for each in (outside, inside)]
        kinds["audited"][side].append(_nearer(real, *guesses))
        raw = [{"features": each.features.astype(np.float64).ravel()} for each in (outside, inside)]
        kinds["features"][side].append(_nearer(raw[side], *raw))
        kinds["neither"][side].append(_nearer(released(third, "real", trial), *guesses))
    return _Trials(**{name: (np.array(sides[0]), np.array(sides[1])) for name, sides in kinds.items()})


def _alone(context: AuditContext, run: Run, owner: str, records: Records, seeds: Seeds) -> Released:
    """Return the owner's messages on these records, where all other clients hold none."""
    clients = [
        records if client.name == owner else client.take(np.zeros(0, np.int64)) for client in context.data.clients
    ]
    try:
        return what_leaves(run(clients, seeds), owner)
    except FedassayError as error:
        raise NotRunError(f"the method cannot be run on {owner} alone: {error}") from None


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
