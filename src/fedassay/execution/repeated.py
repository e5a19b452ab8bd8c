"""Attacks that audits ask for again on equal views: those that recover vectors run once.

Controls of several audits, and of cells that differ in epsilon alone, attack the same releases of the same control
records. What an attack makes of a view follows from the view's content, its own parameters and random streams that
all cells of a seed have in common; a result is kept under a hash of the first two, among what these cells share.
"""

from __future__ import annotations

import hashlib

from fedassay.contracts.attack import Attack, AttackResult, Knowledge
from fedassay.exchange.view import View
from fedassay.plan.schema import Component
from fedassay.support.hashing import digest_arrays

_LARGEST = 64 << 20
"""Bytes of a view that is hashed at most."""


def run_once(
    attack: Component[Attack], seen: View, knowledge: Knowledge, shared: dict[str, object]
) -> AttackResult:
    """Run an attack on a view, or return its result on an equal one before.

    Args:
        attack: The plan's; one that recovers no vectors, or goes on from those of others, always runs.
        seen: The view; one that carries networks is not kept, since its arrays do not identify them.
        knowledge: With the random streams that all cells of a seed have in common.
        shared: Results that these cells share.

    Raises:
        NotRunError: As the attack.
    """
    facts = attack.build.facts
    from_arrays = "vectors" in facts.gives and not (facts.takes or knowledge.recovered)
    small = sum(item.nbytes for message in seen.messages for item in message.fields.values()) <= _LARGEST
    if not (from_arrays and small) or seen.models or seen.generators:
        return attack.build.run(seen, knowledge)
    # A malicious server sends each method a backbone for it.
    network = "" if knowledge.backbone is None else knowledge.backbone.fingerprint
    key = f"attacked/{attack.label}/{attack.params}/{knowledge.seeds}/{network}/{content(seen)}"
    kept = shared.get(key)
    if not isinstance(kept, AttackResult):
        kept = shared[key] = attack.build.run(seen, knowledge)
    return kept


def content(seen: View) -> str:
    """SHA-256 over everything that a view without networks shows: 64 hexadecimal digits."""
    known = (seen.classes, seen.threat.model_dump_json(), sorted(seen.cohorts.items()))
    digest = hashlib.sha256(repr(known).encode())
    for message in seen.messages:
        digest.update(repr((message.round, message.sender, message.receiver)).encode())
        for name, item in message.fields.items():
            declared = (name, item.kind, item.additive, item.secure, item.release.model_dump_json())
            digest.update(repr(declared).encode())
            digest.update(digest_arrays({name: item.values}).encode())
    return digest.hexdigest()
