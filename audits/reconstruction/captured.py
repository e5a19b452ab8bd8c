"""What a reconstruction attack says of captured messages: images whose truth nobody gave.

Two things can be known without the private images. Whether the attack works at all under the plan's backbone: it
reconstructs records of the plan, whose images are known, from their features (positive control), and from other
records' features (negative). And whether a reconstruction fits its vector: encoded again, its feature should be
closer to the vector received than that of any image of the attacker's own.

A leak is said only of vectors that are a record's feature as it is, where both hold: what works on features of
known records works on features of unknown ones, as far as both come from one backbone. Everything else
(samples, means) stays inconclusive, with the pictures to be held against the records by those who have them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.stats.resampling import Interval, difference, mean_of, resampled
from fedassay.contracts.audit import AttackedContext, AttackResult, AuditContext, Reconstruction
from fedassay.data.records import Records
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.exchange.view import View
from fedassay.records.record import (
    Controls,
    Finding,
    Metric,
    NegativeControl,
    Picture,
    PictureColumn,
    PositiveControl,
    Verdict,
    unmeasured,
)
from fedassay.support.types import Floats, Images

Matrix = NDArray[np.float64]

_DRAWS = 2000
_PICTURES = 8
_NO_IMAGES = "the clients' records were not given"


def captured_image_findings(
    audit: str, result: AttackResult, context: AttackedContext, known: Records
) -> list[Finding]:
    """One finding for each source of vectors that the attack made images from.

    Args:
        audit: Name of the audit that reads this attack.
        result: The attack's images.
        context: Without clients, with the plan's backbone and the attacker's records; its `attack` runs the attack
            on another view.
        known: Records of the plan that the attacker does not hold, for the controls.
    """
    measure = "psnr" if audit == "inversion" else "ssim"
    caught, flagged = (_control(measure, context, known, shuffled=shuffled) for shuffled in (False, True))
    return [_judged(audit, item, result.attack, context, caught, flagged) for item in result.reconstructions]


def _control(measure: str, context: AttackedContext, known: Records, *, shuffled: bool) -> Interval:
    """How much closer images made from features of known records are to these than the baseline.

    As in the audits of `fedassay run`: `reconstruction` asks for SSIM over the attacker's nearest image;
    `inversion`, which has no images to learn from, for PSNR over that to another record of the same class.
    """
    order = np.roll(np.arange(len(known)), 1) if shuffled else np.arange(len(known))
    fields = {"features": MessageField(known.features[order], "features", exact())}
    seen = View((Message(0, "control", SERVER, fields),), context.classes, context.view.threat)
    made = next(item for item in context.attack(seen).reconstructions if item.source.name == "raw")
    # An attack may have a limit, and then makes images of some of the vectors only.
    rows = made.source.rows
    ours = context.similarity.measure(known.images[rows], made.images[:, 0])[measure]
    if measure == "psnr":
        theirs = context.similarity.measure(known.images[_another(known.labels)[rows]], made.images[:, 0])[measure]
    else:
        nearest = context.attacker.images[_nearest(known.features[order][rows], context.attacker.features)]
        theirs = context.similarity.measure(known.images[rows], nearest)[measure]
    rng = np.random.default_rng(int(shuffled))
    gain = difference(mean_of(ours), mean_of(theirs))
    return resampled(len(rows), gain, rng, tests=context.bounds, draws=_DRAWS)


def _another(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each record the next one of its class, cyclically; any next one where it is the only one."""
    found = np.roll(np.arange(len(labels)), -1)
    for label in np.unique(labels):
        alike = np.flatnonzero(labels == label)
        if len(alike) > 1:
            found[alike] = np.roll(alike, -1)
    return found


def _judged(
    audit: str, item: Reconstruction, attack: str, context: AuditContext, works: Interval, wrong: Interval
) -> Finding:
    source, images = item.source, item.images[:, 0]
    nearest = _nearest(source.vectors, context.attacker.features)
    ours = _cosine(context.encode(images), source.vectors)
    theirs = _cosine(context.attacker.features[nearest], source.vectors)
    rng = np.random.default_rng(0)
    metrics = {"feature_cosine": _metric(ours, rng), "ssim_gain": unmeasured(_NO_IMAGES)}
    fits = len(ours) > 1 and (
        resampled(
            len(ours), difference(mean_of(ours), mean_of(theirs)), rng, tests=context.bounds, draws=_DRAWS
        ).corrected_low
        > 0
    )
    caught, flagged = works.corrected_low > 0, wrong.corrected_low > 0
    shown = (
        f"{len(images)} images made from {source.name.replace('_', ' ')}: encoded again, cosine "
        f"{ours.mean():.3f} to what was sent, {theirs.mean():.3f} for the attacker's nearest images"
    )
    what = "dB PSNR over other records of the class" if audit == "inversion" else "SSIM over the nearest image"
    able = f"on known records it gains {works.value:+.3f} {what} [{works.low:+.3f}, {works.high:+.3f}]"
    verdict: Verdict = "inconclusive"
    if flagged:
        reason = f"the negative control was flagged; {shown}"
    elif not caught:
        reason = f"the attack is too weak here: {able}; {shown}"
    elif source.paired and fits:
        verdict, reason = "leak", f"{shown}; {able}"
    else:
        why = "the images do not fit what was sent better than the attacker's own do; "
        if not source.paired:
            why = f"whose images they show cannot be said, since {_NO_IMAGES}; "
        reason = f"{why}{shown}; {able}"
    return Finding(
        audit=audit,
        attack=attack,
        source=source.name,
        selection="all",
        metrics=metrics,
        baseline={"feature_cosine": _metric(theirs, rng)},
        controls=Controls(
            positive=PositiveControl(
                release="features of the plan's own records",
                caught=caught,
                value=works.value,
                detail=what,
            ),
            negative=NegativeControl(
                release="features of other records of the plan",
                flagged=flagged,
                value=wrong.value,
                detail=what,
            ),
        ),
        verdict=verdict,
        reason=reason,
        assumptions=(
            _NO_IMAGES,
            "the system's features come from the plan's backbone, and the plan's records resemble the clients'",
        ),
        pictures=_pictures(images, context.attacker.images[nearest], ours, source.name, attack, context),
    )


def _pictures(
    images: Images, nearest: Images, cosines: Matrix, source: str, attack: str, context: AuditContext
) -> tuple[Picture, ...]:
    chosen = np.linspace(0, len(images) - 1, min(_PICTURES, len(images))).astype(np.int64)
    columns: Sequence[PictureColumn] = [
        PictureColumn(caption=f"vector {i}", metrics={"feature_cosine": float(cosines[i])}) for i in chosen
    ]
    rows = {"attacker's image": nearest[chosen], "reconstruction": images[chosen]}
    return (context.workplace.grid((source,), f"{attack}: {source}", rows, columns),)


def _nearest(vectors: Floats, features: Floats) -> NDArray[np.int64]:
    """Row of the nearest feature for each vector."""
    ours, theirs = vectors.astype(np.float64), features.astype(np.float64)
    squares = (theirs**2).sum(axis=1)[None] - 2 * ours @ theirs.T
    return np.asarray(np.argmin(squares, axis=1), np.int64)


def _cosine(first: Floats, second: Floats) -> Matrix:
    ours, theirs = first.astype(np.float64), second.astype(np.float64)
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return np.asarray((ours * theirs).sum(axis=1) / np.maximum(norms, np.finfo(float).tiny))


def _metric(values: Matrix, rng: np.random.Generator) -> Metric:
    if len(values) < 2:
        return Metric(value=float(values.mean()) if len(values) else None, n=len(values))
    found = resampled(len(values), mean_of(values), rng, draws=_DRAWS)
    return Metric(value=found.value, low=found.low, high=found.high, n=len(values))
