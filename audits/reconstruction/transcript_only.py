"""Judge reconstructions from captured messages, where the true images are unknown.

Two things can be known without the private images. First, whether the attack works at all under the plan's
backbone: it reconstructs the plan's known images from their features (positive control), and from other records'
features (negative). Second, whether a reconstruction fits its vector: encoded again, its feature should be closer
to the vector received than that of any image of the attacker's own.

A leak is concluded only for vectors that are exact features of records, where both hold: an attack that works on
features of known records works on those of unknown ones, as far as both come from one backbone. Everything else
(samples, means) stays inconclusive, with the pictures to be held against the records by those who have them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedassay.audits.evidence import (
    Arms,
    ControlResult,
    Figures,
    LeakTest,
    Result,
    Subject,
    by_arithmetic,
    by_p_value,
)
from fedassay.audits.stats.paired import paired_test
from fedassay.audits.stats.resampling import Interval, difference, level_of, mean_of, resampled
from fedassay.audits.verdict import assay
from fedassay.contracts.attack import AttackResult, Reconstruction
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.contracts.registry import audit_facts
from fedassay.data.records import Records
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.exchange.view import View
from fedassay.records.facts import Harm
from fedassay.records.record import Finding, Metric, Picture, PictureColumn, unmeasured
from fedassay.support.types import Floats, Images, Ints, Matrix

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
    facts = audit_facts(audit)
    inverts = facts is not None and "inversions" in facts.judges
    measure = "psnr" if inverts else "ssim"
    what = "dB PSNR over other records of the class" if inverts else "SSIM over the nearest image"

    def control(release: str, *, shuffled: bool) -> ControlResult:
        gain, p = _gain(measure, context, known, shuffled=shuffled)
        span = f"[{gain.low:+.3f}, {gain.high:+.3f}]"
        shown = f"on known records it gains {gain.value:+.3f} {what} {span}, p = {p:.2g}"
        return ControlResult(release, p <= level_of(context.num_tests), shown, gain.value, detail=what)

    positive = control("features of the plan's own records", shuffled=False)
    negative = control("features of other records of the plan", shuffled=True)
    return [
        _finding(Subject(audit, result.attack, item.source.name, "all"), item, context, positive, negative)
        for item in result.reconstructions
    ]


def _gain(measure: str, context: AttackedContext, known: Records, *, shuffled: bool) -> tuple[Interval, float]:
    """Gain in closeness of images made from known records' features over the baseline, and its p-value.

    As in the audits of `fedassay run`: of reconstructions, SSIM over the attacker's nearest image; of inversions,
    which have no images to learn from, PSNR over that to another record of the same class.
    """
    order = np.roll(np.arange(len(known)), 1) if shuffled else np.arange(len(known))
    fields = {"features": MessageField(known.features[order], "features", exact())}
    seen = View((Message(0, "control", SERVER, fields),), context.data.classes, context.view.threat)
    made = next(item for item in context.attack(seen).reconstructions if item.source.name == "raw")
    # An attack may have a limit, and then makes images of some of the vectors only.
    rows = made.source.rows
    ours = context.similarity.measure(known.images[rows], made.images[:, 0])[measure]
    if measure == "psnr":
        theirs = context.similarity.measure(known.images[_another(known.labels)[rows]], made.images[:, 0])[measure]
    else:
        nearest = context.data.attacker.images[
            _nearest(known.features[order][rows], context.data.attacker.features)
        ]
        theirs = context.similarity.measure(known.images[rows], nearest)[measure]
    rng = context.seeds.numpy("captured", measure, "shuffled" if shuffled else "as sent")
    gain = difference(mean_of(ours), mean_of(theirs))
    p = paired_test(ours, theirs, rng, tests=context.num_tests, draws=_DRAWS).p
    return resampled(len(rows), gain, rng, draws=_DRAWS), p


def _another(labels: Ints) -> Ints:
    """For each record the next one of its class, cyclically; any next one where it is the only one."""
    following = np.roll(np.arange(len(labels)), -1)
    for label in np.unique(labels):
        alike = np.flatnonzero(labels == label)
        if len(alike) > 1:
            following[alike] = np.roll(alike, -1)
    return following


def _finding(
    subject: Subject, item: Reconstruction, context: AuditContext, positive: ControlResult, negative: ControlResult
) -> Finding:
    source, images = item.source, item.images[:, 0]
    nearest = _nearest(source.vectors, context.data.attacker.features)
    ours = _cosine(context.data.encode(images), source.vectors)
    theirs = _cosine(context.data.attacker.features[nearest], source.vectors)
    rng = context.seeds.numpy("captured", subject.audit, source.name)
    figures = Figures(
        metrics={"feature_cosine": _metric(ours, rng), "ssim_gain": unmeasured(_NO_IMAGES)},
        baseline={"feature_cosine": _metric(theirs, rng)},
        assumptions=(
            _NO_IMAGES,
            "the system's features come from the plan's backbone, and the plan's records resemble the clients'",
        ),
        pictures=_pictures(images, context.data.attacker.images[nearest], ours, subject, context),
    )
    why = "the images do not fit what was sent better than the attacker's own do"
    if not source.paired:
        why = f"the persons of these images are not known, since {_NO_IMAGES}"
    result = Result(
        test=_fits(ours, theirs, rng, context) if source.paired else by_arithmetic(False, "feature_cosine"),
        shown=f"{len(images)} images made from {source.name.replace('_', ' ')}: encoded again, cosine "
        f"{ours.mean():.3f} to what was sent, {theirs.mean():.3f} for the attacker's nearest images; "
        f"{positive.shown}",
        leak="images fit the features that were sent",
        harm=Harm(kind="pictures", of="record", total=len(images), mechanism=source.name),
        undecided=why,
    )
    return assay(subject, Arms(result, (positive,), negative), figures)


def _fits(ours: Matrix, theirs: Matrix, rng: np.random.Generator, context: AuditContext) -> LeakTest:
    """Whether images encode to what was sent, more nearly than the attacker's own."""
    if len(ours) < 2:
        return by_arithmetic(False, "feature_cosine")
    p = paired_test(ours, theirs, rng, tests=context.num_tests, draws=_DRAWS).p
    return by_p_value(p, context.num_tests, "feature_cosine")


def _pictures(
    images: Images, nearest: Images, cosines: Matrix, subject: Subject, context: AuditContext
) -> tuple[Picture, ...]:
    chosen = np.linspace(0, len(images) - 1, min(_PICTURES, len(images))).astype(np.int64)
    columns: Sequence[PictureColumn] = [
        PictureColumn(caption=f"vector {i}", metrics={"feature_cosine": float(cosines[i])}) for i in chosen
    ]
    rows = {"attacker's image": nearest[chosen], "reconstruction": images[chosen]}
    name = (str(subject.source),)
    return (context.io.grid(name, f"{subject.attack}: {subject.source}", rows, columns),)


def _nearest(vectors: Floats, features: Floats) -> Ints:
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
    mean = resampled(len(values), mean_of(values), rng, draws=_DRAWS)
    return Metric(value=mean.value, low=mean.low, high=mean.high, n=len(values))
