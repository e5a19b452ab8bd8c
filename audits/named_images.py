"""Identification beside similarity: whether images made from a release name the records behind it.

An image that is no near copy may still be nearer, pixel by pixel, to a record of its sender than to any other
picture of the class. It is held against a gallery of its sender's records and of test records, which were not sent
and no attack has seen (`fedassay.audits.stats.identification`). Without a claim, identification beyond chance is a
leak; under one only identification beyond its allowance is. Where clients' images differ from test ones without
any release, images of half of their records name the other half, and nothing is counted.

Controls of its own: images of the method's own release of control records name these; the images themselves do not
name half of the test records. Beside it stands the attacker's own image of the nearest feature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedassay.audits.evidence import DOUBTED, ControlResult, Result, by_p_value
from fedassay.audits.message.identified import counting, identification, identification_metrics
from fedassay.audits.message.truth import truth_of
from fedassay.audits.nonprivate_images import NonPrivateImages
from fedassay.audits.stats.identification import Identification
from fedassay.contracts.attack import Reconstruction
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.membership import half_of_each
from fedassay.data.records import Records
from fedassay.records.facts import NEAREST, Harm
from fedassay.records.record import Metric
from fedassay.similarity.nearest import top_k_l2
from fedassay.support.types import Images, Ints, Matrix

_Held = Mapping[str, tuple[Ints, Records]]
"""For each sender, which images are its own, and its records."""


@dataclass(frozen=True, eq=False)
class NamedImages:
    """Identification by the images of one source, with its controls.

    Attributes:
        shown: The images themselves.
        counts: The same where it counts as a leak; None where a claim allows it, or other images explain it.
        nearest: The attacker's own images of the nearest features; None where there are none of their width.
        non_members: The images against records that were not sent.
        others: Images of half of the clients' records against the other half; None where these are too few.
        tests: Tests in the run.
        source: Name of the vectors' source.
    """

    shown: Identification
    counts: Identification | None
    nearest: Identification | None
    non_members: Identification | None
    others: Identification | None
    tests: int
    source: str

    def metrics(self, context: AuditContext) -> tuple[dict[str, Metric], dict[str, Metric]]:
        """Of the images, and of the attacker's own ones in their place."""
        ours, theirs = identification_metrics(self.shown, self.nearest, context)
        if self.explained and self.others is not None:
            words = (
                f"; not counted: images of their other records name records, too (p = {self.others.test.p:.2g})"
            )
            ours = {key: item.model_copy(update={"reason": item.reason + words}) for key, item in ours.items()}
        remark = "the attacker's own image with the nearest feature"
        return ours, {key: item.model_copy(update={"reason": remark}) for key, item in theirs.items()}

    @property
    def explained(self) -> bool:
        """Whether clients' images differ from fresh ones without any release."""
        return self.others is not None and self.others.test.p <= DOUBTED

    def result(self, result: Result, p: float) -> Result:
        """A result with both questions asked of the same images: closer than the baseline, or named.

        Args:
            result: Of similarity.
            p: p-value of its test.
        """
        if self.counts is None:
            return result
        test = by_p_value(min(1.0, 2 * min(p, self.counts.test.p)), self.tests, result.test.statistic)
        hits, asked = int(self.counts.hits.sum()), len(self.counts.hits)
        shown = f"{result.shown}; {self.counts.words('images', f', p = {self.counts.test.p:.2g}')}"
        if by_p_value(2 * self.counts.test.p, self.tests).rejects and not result.test.rejects:
            harm = Harm(
                kind="pictures", of="record", count=hits, total=asked, metric=NEAREST, mechanism=self.source
            )
            return replace(
                result,
                test=test,
                shown=shown,
                leak="images are nearest to records of their senders",
                harm=harm,
                below_baseline="",
            )
        return replace(result, test=test, shown=shown)

    def names_alone(self, result: Result) -> bool:
        """Whether a result rests on names alone, which have other data of the same clients of their own."""
        return result.harm is not None and result.harm.metric == NEAREST

    def caught(self, control: ControlResult, nonprivate: NonPrivateImages, context: AuditContext) -> ControlResult:
        """A positive control, which is caught where its images name their records as well."""
        if self.counts is None:
            return control
        held = _by_sender(nonprivate.made, {client.name: client for client in nonprivate.clients})
        named = _named(nonprivate.made.images[:, 0], nonprivate.made.source.labels, held, context)
        return control if named is None else replace(control, detected=control.detected or self._found(named))

    def silent(self, control: ControlResult) -> ControlResult:
        """A negative control, which is flagged where the images name records that were not sent."""
        if self.counts is None or self.non_members is None:
            return control
        return replace(control, detected=control.detected or self._found(self.non_members))

    def _found(self, named: Identification) -> bool:
        return by_p_value(min(1.0, 2 * named.test.p), self.tests).rejects


def named_images(made: Reconstruction, context: AuditContext) -> NamedImages | None:
    """Hold the images of a source against galleries of their senders' records; None where there is no gallery.

    Args:
        made: Images with the vectors that they were made from.
        context: The cell.
    """
    truths = {name: records for name in made.source.senders if (records := truth_of(context, name)) is not None}
    held, images, labels = _by_sender(made, truths), made.images[:, 0], made.source.labels
    shown = _named(images, labels, held, context)
    if shown is None:
        return None
    rng = context.seeds.numpy("named images", made.source.name)
    first = half_of_each(context.data.test.labels, rng)
    sent = context.data.test.take(first)
    rest = context.data.test.take(np.setdiff1d(np.arange(len(context.data.test)), first))
    # All senders are held against the same strangers, so a stranger that is near to all counts once.
    fresh = {"strangers": (np.concatenate([rows for rows, _ in held.values()]), sent)}
    others = _others(images, labels, held, context, rng)
    return NamedImages(
        shown,
        None if others is not None and others.test.p <= DOUBTED else counting(shown, context),
        _nearest(made, held, context),
        _named(images, labels, fresh, context, rest),
        others,
        context.num_tests,
        made.source.name,
    )


def _by_sender(made: Reconstruction, truths: Mapping[str, Records]) -> _Held:
    rows = made.source.of_senders(truths)
    return {name: (rows[name], records) for name, records in truths.items()}


def _named(
    images: Images, labels: Ints, held: _Held, context: AuditContext, rest: Records | None = None
) -> Identification | None:
    """Images against their senders' records and `rest`, where it is given; else all test records."""
    return identification(_flat(images), labels, held, context.data.test if rest is None else rest, _pixels)


def _nearest(made: Reconstruction, held: _Held, context: AuditContext) -> Identification | None:
    """The attacker's own image with the nearest feature, in the place of each."""
    vectors, own = made.source.vectors, context.data.attacker
    if not len(own) or vectors.ndim != 2 or vectors.shape[1] != own.features.shape[1]:
        return None
    found = top_k_l2(vectors, own.features, 1, device=context.similarity.device).indices[:, 0]
    return _named(own.images[found], made.source.labels, held, context)


def _others(
    images: Images, labels: Ints, held: _Held, context: AuditContext, rng: np.random.Generator
) -> Identification | None:
    """Images of half of each sender's records, in the place of at most as many, against the other half."""
    shown: list[Images] = []
    given: list[Ints] = []
    rest: dict[str, tuple[Ints, Records]] = {}
    start = 0
    for name, (rows, records) in held.items():
        first = np.zeros(len(records), np.bool_)
        first[half_of_each(records.labels, rng)] = True
        chosen = rng.permutation(np.flatnonzero(first))[: len(rows)]
        shown.append(records.images[chosen])
        given.append(np.where((labels[rows] < 0).all(), -1, records.labels[chosen]))
        rest[name] = (np.arange(start, start + len(chosen)), records.take(np.flatnonzero(~first)))
        start += len(chosen)
    if not start:
        return None
    return _named(np.concatenate(shown), np.concatenate(given), rest, context)


def _pixels(records: Records) -> Matrix:
    return _flat(records.images)


def _flat(images: Images | Sequence[Images]) -> Matrix:
    stacked = np.asarray(images, np.float64)
    return stacked.reshape(len(stacked), -1)
