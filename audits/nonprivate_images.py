"""Images that the audited attack makes of releases known to give control records away, by source of vectors.

The end-to-end positive control of audits of images: the method's own messages, the cell's view,
the same source, and the same attack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedassay.audits.nonprivate_releases import NonPrivateRelease, nonprivate_releases
from fedassay.contracts.attack import Reconstruction
from fedassay.contracts.audit import AttackedContext
from fedassay.data.records import Records, joined
from fedassay.exchange.feature_sources import concatenated, offered
from fedassay.support.errors import NotRunError

OF_SENDERS = frozenset({"gram_directions"})
"""Sources that hold all classes of a sender in one vector."""


@dataclass(frozen=True)
class NonPrivateImages:
    """Images that an attack makes of one source of vectors in the releases that give control records away.

    Attributes:
        made: Its images, with the vectors; senders are those of `clients`.
        clients: The clients with their control records.
    """

    made: Reconstruction
    clients: tuple[Records, ...]


def nonprivate_images(context: AttackedContext, source: str, records: int, *, least: int) -> NonPrivateImages:
    """The audited attack on what is seen of exposed records, as far as it goes by one source.

    These may be more vectors than the audited release has: whether so few would show is asked by the limit.

    Vectors that another attack recovered are recovered from these releases by the same attacks before it.

    Args:
        context: The cell and its attack.
        source: Name of the source.
        records: Control records at most.
        least: Vectors at least.

    Raises:
        NotRunError: The control role is too small, or the exposed release offers no such vectors.
    """
    recovered, single = not offered(source), source in OF_SENDERS
    key = f"exposed images/{context.release_key}/{context.attack_key}/{records}/{recovered}/{single}/{least}"

    def make() -> tuple[tuple[tuple[Reconstruction, ...], tuple[Records, ...]], ...]:
        released = nonprivate_releases(context, records, least=least, as_large=recovered, single=single)
        return tuple(_attacked(context, release, recovered) for release in released)

    kept = context.data.once(key, make)
    parts = [
        _renamed(made, clients, number, several=len(kept) > 1)
        for number, (result, clients) in enumerate(kept)
        for made in result
        if made.source.name == source
    ]
    if not parts:
        raise NotRunError(f"the method's own release of control records, without privacy, offers no {source}")
    return _put_together(parts)


def _attacked(
    context: AttackedContext, release: NonPrivateRelease, rerun_previous_attacks: bool
) -> tuple[tuple[Reconstruction, ...], tuple[Records, ...]]:
    try:
        result = (
            context.attack(release.view, rerun_previous_attacks=True)
            if rerun_previous_attacks
            else context.attack(release.view)
        )
    except NotRunError:
        return (), release.clients
    return result.reconstructions, release.clients


def _renamed(
    made: Reconstruction, clients: tuple[Records, ...], number: int, *, several: bool
) -> tuple[Reconstruction, tuple[Records, ...]]:
    """The same, with names of their own where runs come together: a sum belongs to the one who holds records."""
    holders = tuple(client for client in clients if len(client))
    if not several:
        return made, holders
    name = f"control/{number}"
    source = replace(made.source, senders=(name,) * len(made.source.vectors))
    return Reconstruction(source, made.images), (joined(name, holders),)


def _put_together(parts: Sequence[tuple[Reconstruction, tuple[Records, ...]]]) -> NonPrivateImages:
    made = [part for part, _ in parts]
    source = concatenated([part.source for part in made])
    images = np.concatenate([part.images for part in made])
    return NonPrivateImages(
        Reconstruction(source, images), tuple(client for _, clients in parts for client in clients)
    )
