"""The figure of an inversion: records, what raw features show of them, and messages.

Source: Guan et al. 2025, figure 4.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedassay.audits.inversion.truth import ImageMatch, Pool, candidates
from fedassay.contracts.attack import Reconstruction
from fedassay.contracts.audit import AuditContext
from fedassay.exchange.feature_sources import between
from fedassay.records.record import Picture, PictureColumn
from fedassay.support.types import Images


def figure(
    made: Reconstruction,
    shown: ImageMatch,
    raw: tuple[ImageMatch, ImageMatch] | None,
    everything: Sequence[Reconstruction],
    pool: Pool,
    context: AuditContext,
    columns: int,
) -> tuple[Picture, ...]:
    """Write the grid of one source: its records, other images of the same records, and its own images.

    Args:
        made: The source's images.
        shown: These images with the records that they are held against.
        raw: Images of raw features of some records, what the best message could show, and of records that no
            client holds; or None.
        everything: Images of all sources; sums and means of the same records are shown beside single features.
        pool: The records.
        context: The context: the folder to write to, and the metrics.
        columns: At most so many; none writes nothing.
    """
    known = {} if raw is None else dict(zip(raw[0].records.tolist(), raw[0].images, strict=True))
    # Records of the control come first, because the image of their raw feature can be shown beside them.
    chosen = sorted(range(len(shown.records)), key=lambda i: int(shown.records[i]) not in known)[:columns]
    if not chosen:
        return ()
    records = [int(record) for record in shown.records[chosen]]
    # The reconstruction stands beside its record; other images of the same records come below.
    rows: dict[str, Images] = {
        "private image": pool.images[records],
        "reconstruction": shown.images[chosen],
    }
    single = not between(made.source.name)
    if made.source.name != "raw" and all(record in known for record in records):
        rows["from its raw feature (control)"] = np.stack([known[record] for record in records])
    for other in everything:
        images = _first_of(other, records, context) if single and between(other.source.name) else None
        if images is not None:
            rows[f"from {other.source.name}"] = images
    values = context.similarity.measure(rows["private image"], shown.images[chosen])
    captions = [
        PictureColumn(caption=f"image {i}", metrics={name: float(part[at]) for name, part in values.items()})
        for at, i in enumerate(chosen)
    ]
    source = made.source.name
    return (context.io.grid((source,), f"images inverted from {source}", rows, captions),)


def _first_of(made: Reconstruction, records: Sequence[int], context: AuditContext) -> Images | None:
    """For each record the first image of `made` that may show it; None where a record has none."""
    sets = candidates(made.source, context.data.clients)
    found = [next((i for i, part in enumerate(sets) if record in part), None) for record in records]
    usable = [i for i in found if i is not None]
    return np.asarray(made.images[usable, 0]) if len(usable) == len(records) else None
