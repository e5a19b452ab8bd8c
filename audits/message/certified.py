"""Certificates of recovered vectors in an audit: control clients like audited ones, through the same attack."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedassay.audits.features import encoder
from fedassay.audits.message import nonprivate
from fedassay.audits.message.certificates import Certificate, Recovered, certificate_metrics, fit
from fedassay.audits.simulation import control_seeds
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext
from fedassay.data.records import Records, joined
from fedassay.exchange.transcript import AGGREGATE
from fedassay.records.record import Metric, unmeasured
from fedassay.support.errors import NotRunError
from fedassay.support.types import Matrix

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
    if _noised(context):
        return {name: unmeasured(_UNLIKE) for name in ("certified", "certified_wrong")}
    largest = max(len(records) for records in truths.values())
    if largest > len(context.control):
        why = f"the control role has {len(context.control)} records, the largest client {largest}"
        return {name: unmeasured(why) for name in ("certified", "certified_wrong")}
    try:
        certificate = _fitted(list(truths.values()), context)
    except NotRunError as error:
        return {name: unmeasured(str(error)) for name in ("certified", "certified_wrong")}
    audited = [recovered(result, sender, records, encode) for sender, records in truths.items()]
    return certificate_metrics(certificate, audited)


def _noised(context: AttackedContext) -> bool:
    """Whether a client's message has noise of any mechanism."""
    return any(
        item.release.mechanism in {"gaussian", "pure", "dp_sgd"}
        for message in context.view.from_clients()
        for item in message.fields.values()
    )


def _fitted(audited: Sequence[Records], context: AttackedContext) -> Certificate:
    held = [records for records in audited if len(records)]
    sizes = sorted(len(records) for records in held)
    form = f"{context.privacy.adjacency}/{context.view.threat.model_dump_json()}/{sizes}"
    key = f"certificate/{context.method_key}/{context.attack_key}/{form}"
    return context.io.once(key, lambda: _fit(held, context))


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
