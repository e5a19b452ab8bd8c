"""The records of a plan under a backbone, or a body, that a malicious server has sent for an honest one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedassay.backbones.base import renewed
from fedassay.contracts.facts import MethodFacts
from fedassay.contracts.method import Method
from fedassay.data.records import Records
from fedassay.exchange.view import ThreatModel
from fedassay.execution.prepare import Prepared
from fedassay.nets.cells import cells_for
from fedassay.support.seeds import Seeds


def with_trap(prepared: Prepared, method: Method, threat: ThreatModel, seeds: Seeds) -> Prepared:
    """The same records under the backbone that the server sends; as they are where it is honest or sends none.

    Args:
        prepared: Records and backbone that the cells of a seed share.
        method: Of the cell.
        threat: Of the plan.
        seeds: Of the cell.
    """
    facts: MethodFacts = method.facts
    own = prepared.attacker
    if threat.server == "honest" or facts.malicious not in ("backbone", "body") or not len(own):
        return prepared
    # A body has one feature fewer than the head's width, which counts its bias.
    width = prepared.backbone.width if facts.malicious == "backbone" else getattr(method, "width", 0) - 1
    together = threat.view == "aggregate" or getattr(method, "secure_aggregation", "none") == "all"
    network = cells_for(
        own.images,
        own.labels,
        width,
        records_of_a_class(prepared.clients, prepared.classes, together=together),
        seeds,
    )
    words = f"{network.layout.cells} cells of {network.layout.numbers} numbers, which a malicious server chose"
    backbone = renewed(prepared.backbone, network, words, f"{len(own)} images of the server's own")

    def under(records: Records) -> Records:
        return replace(records, extract=backbone.features)

    def perhaps(records: Records | None) -> Records | None:
        return None if records is None else under(records)

    return replace(
        prepared,
        clients=tuple(map(under, prepared.clients)),
        colluders=tuple(map(under, prepared.colluders)),
        test=under(prepared.test),
        evaluation=under(prepared.evaluation),
        public=perhaps(prepared.public),
        attacker=under(own),
        fresh=under(prepared.fresh),
        control=under(prepared.control),
        gallery=perhaps(prepared.gallery),
        backbone=backbone,
    )


def records_of_a_class(clients: Sequence[Records], classes: int, *, together: bool) -> float:
    """Records of a class that a sum is over, in the mean over sums of any: what the server is taken to know."""
    counts = np.stack([np.bincount(client.labels, minlength=classes) for client in clients])
    seen = counts.sum(axis=0) if together else counts
    held = seen[seen > 0]
    return float(held.mean()) if len(held) else 0.0
