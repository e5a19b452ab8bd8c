"""Controls of the attack alone: raw features of private records, and what knows nothing of the targets.

The end-to-end control is made in `fedassay.audits.nonprivate_images`.
"""

from __future__ import annotations

import numpy as np

from fedassay.audits.reconstruction.selections import Truth
from fedassay.audits.simulation import control_seeds, fresh_clients, raw_view
from fedassay.contracts.attack import AttackResult, Reconstruction
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.contracts.membership import visible
from fedassay.data.groups import units_of
from fedassay.data.records import Records, joined
from fedassay.exchange.feature_sources import offered
from fedassay.support.errors import NotRunError
from fedassay.support.types import Images, Ints


def raw_features(
    truth: Truth, context: AttackedContext, most: int, name: str
) -> tuple[Records, Ints, Reconstruction]:
    """Some private records, their closest attacker images, and what the attack makes of their features.

    The same for every cell of a seed, and so made once.

    Args:
        truth: The private images that count.
        context: The cell and its attack.
        most: Records at most.
        name: Names the selection of private images, under which the control is kept.
    """

    def make() -> tuple[Records, Ints, Reconstruction]:
        size = min(most, len(truth.images))
        rng = control_seeds(context, "reconstruction", "records").numpy()
        chosen = np.sort(rng.permutation(len(truth.images))[:size])
        where = {owner: position for position, owner in enumerate(owners(context.data.clients))}
        positions = np.array([where[truth.owner[i]] for i in chosen], np.int64)
        records = joined("private", context.data.clients).take(positions, "control")
        return records, truth.closest[chosen], _only(context.attack(raw_view([records], context)))

    return context.data.once(f"{name}/{most}/{context.attack_key}", make)


def shuffled_features(records: Records, context: AttackedContext) -> Reconstruction:
    """Images that the attack makes of these records' features, each exchanged for another record's."""
    # A cyclic shift of a random order gives every record another record's feature.
    order = context.seeds.numpy("reconstruction", "shuffle").permutation(len(records))
    wrong = np.empty(len(records), np.int64)
    wrong[order] = np.roll(order, 1)
    return _only(context.attack(raw_view([records.take(wrong)], context)))


def null_images(name: str, context: AttackedContext) -> Images:
    """Images that the method and the attack make of records that no client holds, shape (n, H, W, C).

    Vectors of other attacks are recovered again. Where none are, raw features stand in for them.
    """
    clients = fresh_clients(context, context.data.fresh)
    seeds = context.seeds.child("reconstruction", "simulated")
    seen = visible(context.method.run_on(clients, seeds), context.view.threat)
    try:
        again = context.attack(seen) if offered(name) else context.attack(seen, rerun_previous_attacks=True)
        made = [item for item in again.reconstructions if item.source.name == name]
    except NotRunError:
        made = []
    item = made[0] if made else _only(context.attack(raw_view([joined("control", clients)], context)))
    return item.images[:, 0]


def other_images(reconstruction: Reconstruction, truth: Truth, context: AuditContext) -> tuple[Images, Ints]:
    """Half of the private images, in the place of at most as many reconstructions, and where the other half is.

    No person is in both halves.
    """
    units = units_of(np.zeros(len(truth.images), np.int64), truth.persons)
    order = context.seeds.numpy("reconstruction", "others").permutation(len(units.labels))
    half = len(order) // 2
    shown = units.rows(order[:half])[: len(reconstruction.images)]
    return truth.images[shown], np.sort(units.rows(order[half:]))


def owners(clients: tuple[Records, ...]) -> list[tuple[str, int]]:
    """Sender and row of every record of these clients."""
    return [(client.name, row) for client in clients for row in range(len(client))]


def _only(result: AttackResult) -> Reconstruction:
    return next(item for item in result.reconstructions if item.source.name == "raw")
