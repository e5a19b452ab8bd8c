"""Certificates of recovered vectors in an audit: control clients like audited ones, through the same attack.

They are fitted before the truth of the audited clients is joined. A factorization gives the expected error of each
vector. The largest expected error to trust is fitted on control clients with known truth: the largest threshold t
such that

    (n / (n + 1)) mean over clients of sup over s <= t of FDP(s)  +  1 / (n + 1)  <=  alpha,

FDP(s) the share of wrong vectors among those of a client with an expected error of at most s. For an audited
client that is exchangeable with the n control clients, the expected share of wrong vectors among those certified
is then at most alpha (conformal risk control; Angelopoulos, Bates, Fisch, Lei and Schuster 2024, theorem 1, with
the loss made monotone). At alpha = .1 that takes 9 of them. The guarantee is of the share wrong of one client, in
the mean over clients: each counts once, however many vectors it has, as one without a wrong vector where none is
certified. It is no bound on the share wrong of all vectors together: large clients with wrong vectors may raise it
above alpha.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedassay.audits.features import encoder
from fedassay.audits.message import nonprivate
from fedassay.audits.simulation import control_seeds
from fedassay.audits.stats.persons import interval_of_shares
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext
from fedassay.data.records import Records, joined
from fedassay.exchange.message import any_protected
from fedassay.exchange.transcript import AGGREGATE
from fedassay.records.record import Metric, unmeasured
from fedassay.support.errors import NotRunError
from fedassay.support.types import Bools, Matrix

CLIENTS = 12
"""Control clients that a certificate is fitted on; 9 are the fewest that allow one at a rate of .1."""

_UNLIKE = (
    "control clients send no noise, and a certificate takes clients that are exchangeable with the audited ones"
)


def certified(result: AttackResult, truths: Mapping[str, Records], context: AttackedContext) -> dict[str, Metric]:
    """Metrics of certificates on the audited vectors, fitted on control clients.

    Control clients are as large as audited ones drawn at random, class by class, so that an audited client drawn
    at random is like them; they are drawn from the control role one by one and may share records. Their messages
    have no noise, so that there is no certificate where an audited field has some.

    Args:
        result: Of the attack on the audited messages.
        truths: Records of each sender.
        context: The cell's.
    """
    encode = encoder(context)
    if encode is None or not result.vectors or not truths:
        return {}
    if any_protected(context.view.from_clients()):
        return {name: unmeasured(_UNLIKE) for name in ("certified", "certified_wrong")}
    largest = max(len(records) for records in truths.values())
    if largest > len(context.data.control):
        why = f"the control role has {len(context.data.control)} records, the largest client {largest}"
        return {name: unmeasured(why) for name in ("certified", "certified_wrong")}
    try:
        certificate = _fitted(list(truths.values()), context)
    except NotRunError as error:
        return {name: unmeasured(str(error)) for name in ("certified", "certified_wrong")}
    audited = [recovered(result, sender, records, encode) for sender, records in truths.items()]
    return certificate_metrics(certificate, audited)


def _fitted(audited: Sequence[Records], context: AttackedContext) -> Certificate:
    held = [records for records in audited if len(records)]
    sizes = sorted(len(records) for records in held)
    form = f"{context.privacy.adjacency}/{context.view.threat.model_dump_json()}/{sizes}"
    key = f"certificate/{context.method_key}/{context.attack_key}/{form}"
    return context.data.once(key, lambda: _fit(held, context))


def _fit(held: Sequence[Records], context: AttackedContext) -> Certificate:
    rng = control_seeds(context, "message", "certificate").numpy()
    wanted = [held[number] for number in rng.integers(0, len(held), CLIENTS)]
    controls = []
    for reading in nonprivate.alike(context, wanted):
        encode = encoder(replace(context, outcome=reading.exposure.outcome))
        if encode is None:
            continue
        # Where only sums are seen, a run holds one client, and its sum is that client's.
        together = any(str(name) == AGGREGATE for name in reading.result.artifacts.get("senders", ()))
        owners = (joined(AGGREGATE, reading.clients),) if together else reading.clients
        controls += [recovered(reading.result, owner.name, owner, encode) for owner in owners]
    return fit(controls)


def recovered(
    result: AttackResult, sender: str, records: Records, encode: Callable[[Records], Matrix]
) -> Recovered:
    """The vectors of one sender, each with its distance to the nearest record of that sender."""
    names = np.array(result.vectors[0].senders if result.vectors else (), np.str_)
    own = np.flatnonzero(names == sender)
    vectors = np.asarray(result.artifacts.get("vectors", np.zeros((0, 0))), np.float64)
    expected = np.asarray(result.scores.get("expected_error", np.zeros(0)), np.float64)
    features = encode(records)
    norms = np.linalg.norm(features, axis=1)
    features, norms = features[norms > 0], norms[norms > 0]
    if not len(own) or not len(features) or vectors.shape[1] != features.shape[1]:
        return Recovered(expected[own], np.full(len(own), np.inf))
    apart = np.stack([np.linalg.norm(features - vector, axis=1) / norms for vector in vectors[own]])
    return Recovered(expected[own], apart.min(axis=1))


FALSE_DISCOVERIES = 0.1
"""Share of wrong vectors among the certified ones of a client, in the mean over clients."""

WRONG = 0.1
"""Relative error above which a certified vector is wrong: it is no longer nearly the record's."""


@dataclass(frozen=True)
class Recovered:
    """One client's vectors.

    Attributes:
        expected: Expected error of each vector, from what can be seen without the truth, shape (k,).
        errors: True relative error of each, infinite where it is no record's, shape (k,).
    """

    expected: Matrix
    errors: Matrix


@dataclass(frozen=True)
class Certificate:
    """Largest expected error at which a vector is trusted.

    Attributes:
        threshold: Vectors with an expected error of at most that are certified; below 0: none are.
        clients: Control clients that it was fitted on.
    """

    threshold: float
    clients: int

    def certified(self, expected: Matrix) -> Bools:
        """Whether each vector is certified, shape (k,)."""
        return np.asarray(expected <= self.threshold)


def fit(controls: Sequence[Recovered], alpha: float = FALSE_DISCOVERIES) -> Certificate:
    """The largest threshold at which control clients keep the expected share of wrong vectors at alpha."""
    size = len(controls)
    if size == 0 or 1 / (size + 1) > alpha + 1e-12:
        return Certificate(-1.0, size)
    levels = np.unique(np.concatenate([control.expected for control in controls]))
    best = -1.0
    worst = np.zeros(size)
    for level in levels[np.isfinite(levels)]:
        worst = np.maximum(worst, [_false_share(control, float(level)) for control in controls])
        if (float(worst.sum()) + 1) / (size + 1) > alpha + 1e-12:
            break
        best = float(level)
    return Certificate(best, size)


def _false_share(client: Recovered, level: float) -> float:
    taken = client.expected <= level
    return float((client.errors[taken] > WRONG).mean()) if taken.any() else 0.0


def certificate_metrics(certificate: Certificate, audited: Sequence[Recovered]) -> dict[str, Metric]:
    """Metrics of certificates: the number of certified vectors, and the mean share of a client's that is wrong."""
    needed = round(1 / FALSE_DISCOVERIES) - 1
    if certificate.clients < needed:
        why = (
            f"certificates at a false-discovery rate of {FALSE_DISCOVERIES:g} take {needed} control clients, and "
            f"there are {certificate.clients}"
        )
        return {"certified": unmeasured(why), "certified_wrong": unmeasured(why)}
    vectors = sum(len(client.expected) for client in audited)
    taken = sum(int(certificate.certified(client.expected).sum()) for client in audited)
    fitted = (
        f"expected error at most {max(certificate.threshold, 0):.2g}, from {certificate.clients} control clients"
    )
    found = {"certified": Metric(value=float(taken), n=vectors, reason=fitted)}
    if taken == 0:
        return {**found, "certified_wrong": unmeasured("no vector was certified")}
    shares = np.array([_false_share(client, certificate.threshold) for client in audited])
    low, high = interval_of_shares(shares)
    reason = f"{fitted}; mean over clients of the share of a client's certified features"
    share = Metric(value=float(shares.mean()), low=low, high=high, n=len(audited), reason=reason)
    return {**found, "certified_wrong": share}
