"""Results of inverted images: figures, the harm, the confounder and the assumptions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedassay.audits.evidence import (
    NEAR_COPY,
    WORSE,
    Confounder,
    Result,
)
from fedassay.audits.inversion.truth import (
    ImageMatch,
)
from fedassay.audits.stats.resampling import mean_of, resampled
from fedassay.audits.stats.typed_intervals import mean_within
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.metrics import declared
from fedassay.exchange.feature_sources import VectorSource, between
from fedassay.records.facts import Harm
from fedassay.records.record import Limit, Metric, Series
from fedassay.support.types import Matrix


def metric_of(values: Matrix, name: str, remark: str = "") -> Metric:
    """The mean, with the interval of its range."""
    facts = declared(name)
    found = mean_within(values, facts.low, facts.high)
    approximate = found.method if "approximate" in found.method else ""
    return found.metric("; ".join(part for part in (remark, found.reason or approximate) if part), facts.unit)


def confounder_of(shown: ImageMatch, others: ImageMatch | None, context: AuditContext) -> Confounder | None:
    """Images of the same clients' other records, by the upper end of what they gain (bootstrap).

    What is shown may be smoother than an image of one record, and so closer to all.
    """
    if others is None:
        return None
    return Confounder(
        others.p,
        float(shown.gain.mean()),
        resampled(len(others.gain), mean_of(others.gain), context.seeds.numpy("inversion", "reach")).high,
        "clients' records may differ from fresh ones without any release: images of their other records gain "
        f"{others.gain.mean():.2f} dB over those of other classes or clients (p = {others.p:.2g}), and "
        f"{shown.gain.mean():.2f} dB is no more than that explains",
        others.control("images of other records of the same clients"),
    )


def harm_of(shown: ImageMatch, among: int, source: str) -> Harm:
    """Near copies by the number of records that they show, of all that they may; other images by their mean."""
    near = shown.is_near_copy
    if near.any():
        # Two images may be copies of one record.
        shows = len(np.unique(shown.records[near]))
        return Harm(kind="pictures", of="record", count=shows, total=among, mechanism=source)
    mean, many = float(np.mean(shown.psnr)), len(shown.psnr)
    return Harm(kind="pictures", of="record", total=many, metric="psnr", value=mean, mechanism=source)


def result_of(
    shown: ImageMatch, harm: Harm, limit: Callable[[], Limit | str] | None, untried: str, *, noised: bool
) -> Result:
    """The judged images as the result of an assay; `untried`: the reason why an attack was limited, or empty."""
    copies = shown.near_copies
    return Result(
        test=shown.test,
        shown=shown.words,
        leak="images are closer to the records behind them than to fresh ones",
        harm=harm,
        below_baseline="fresh records of the same classes" if shown.p_farther <= WORSE else "",
        ruin_expected=noised,
        near_copies=copies,
        limit=limit,
        undecided=f"{copies} images are near copies of records (above {NEAR_COPY:g} dB)" if copies else untried,
        decided_by="more images (the attack's `max_vectors` or `max_images`), a larger preset or a run of this "
        "cell alone may decide",
    )


def assumptions(source: VectorSource, others: ImageMatch | None, context: AuditContext) -> tuple[str, ...]:
    """Assumptions of a finding on images of a source; `others`: other records of the same clients, or None."""
    return (
        "PSNR and SSIM on the data range 255",
        "an image is held against the closest of the records behind it, in PSNR"
        if between(source.name)
        else "an image is held against the record of the closest feature among those behind it",
        "baseline: fresh (test) records of the same classes, matched alike",
        f"leak: closer in PSNR to the true records than to others of their classes, permutation test at "
        f"5 %, corrected for {context.num_tests} tests",
        "no client could be halved: its records are taken to be of the fresh ones' distribution"
        if others is None
        else "no leak: what images of other records of the same clients show as well",
    )


def targets(shown: ImageMatch) -> Series:
    """The similarity of every image, as a series."""
    return Series(
        title="PSNR of each image (dB)",
        columns={"psnr": tuple(shown.psnr.tolist()), "fresh": tuple(shown.fresh_psnr.tolist())},
    )
