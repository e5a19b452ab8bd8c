"""Contents of a finding on reconstructions: assumptions, private images beside reconstructions, every score."""

from __future__ import annotations

import numpy as np

from fedassay.audits.reconstruction.selections import Scored
from fedassay.contracts.audit import AuditContext
from fedassay.exchange.feature_sources import VectorSource
from fedassay.records.record import Picture, PictureColumn, Series
from fedassay.support.types import Ints

_PAIRED_BASELINE = "baseline: the attacker's image with the nearest feature, or the mean of the five nearest"
_SET_BASELINE = "baseline: the attacker's images, or fresh images matched with the same set, whichever is closer"
_IDENTIFIED = "each recovered vector is held against the record whose feature it is, to a relative error of 1 %"


def figure(scored: Scored, source: str, selection: str, context: AuditContext, most: int) -> tuple[Picture, ...]:
    """Write the grid of one selection: private images, the attacker's own, and reconstructions.

    Args:
        scored: The selection.
        source: Name of its source.
        selection: Its name.
        context: The context, with the folder to write to.
        most: Columns at most; none writes nothing.
    """
    count = min(most, scored.top)
    if count == 0:
        return ()
    chosen = _examples(scored, count)
    columns = [
        PictureColumn(
            caption=f"target {i}", metrics={name: float(scored.values[name][i]) for name in scored.values}
        )
        for i in chosen
    ]
    rows = {
        "private image": scored.truth[chosen],
        "attacker's image": scored.baseline[chosen],
        "reconstruction": scored.images[chosen],
    }
    return (context.io.grid((source, selection), f"{source}, selection {selection}", rows, columns),)


def targets(scored: Scored) -> Series:
    """SSIM of every target that counts, beside its baseline's."""
    best = np.sort(np.argsort(-scored.rank, kind="stable")[: scored.top])
    theirs = np.sort(np.argsort(-scored.baseline_rank, kind="stable")[: scored.top])
    return Series(
        title="SSIM of each target",
        columns={
            "ssim": tuple(scored.values["ssim"][best].tolist()),
            "baseline": tuple(scored.baseline_values["ssim"][theirs].tolist()),
        },
    )


def _examples(scored: Scored, count: int) -> Ints:
    """Evenly spaced among the targets in order where all count, the best-ranked ones otherwise."""
    if scored.top == len(scored.truth):
        return np.linspace(0, len(scored.truth) - 1, count).astype(np.int64)
    return np.argsort(-scored.rank, kind="stable")[:count]


def assumptions(source: VectorSource, near_duplicates: float, context: AuditContext) -> tuple[str, ...]:
    """Assumptions of the verdicts on a source; `near_duplicates` is the share of images dropped."""
    return (
        "PSNR and SSIM on the data range 255; SSIM with a 7x7 uniform window",
        _PAIRED_BASELINE if source.paired else _SET_BASELINE,
        *([_IDENTIFIED] if source.paired and source.name != "raw" else []),
        f"near duplicates of attacker images dropped: {near_duplicates:.0%} of the private ones",
        "leak: mean SSIM above the baseline"
        + ("" if source.paired else " and higher for private than for fresh images")
        + f", one-sided 95 % corrected for {context.num_tests} tests",
    )
