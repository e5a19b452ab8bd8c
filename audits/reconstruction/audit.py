"""Audit of reconstruction: can private images be reconstructed from the clients' messages?

Joins the truth to the images that a reconstruction attack made (Beitollahi et al. 2024, section 6.4 and appendix
E). Asks whether they are closer to the private images than those that the adversary could have shown without a
generator. Every finding carries its controls: the method's own release of control records without privacy, through
the same view and attack, must be caught, and so must raw features; a release without information on the records
must not be flagged. A set that seems to leak is held against other private images in its place: where clients'
distributions are not the fresh images', these are closer, too.

Where records carry a person's identity, a person is a target, by the mean over its images: see `Scored.by_person`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from pydantic import Field

from fedassay.audits.detection_limit import limit_of
from fedassay.audits.evidence import NO_CLIENTS_RECORDS, OWN_RELEASE, Arms, ControlResult, Figures, Subject
from fedassay.audits.named_images import NamedImages, named_images
from fedassay.audits.nonprivate_images import NonPrivateImages, nonprivate_images
from fedassay.audits.reconstruction.controls import (
    null_images,
    other_images,
    owners,
    raw_features,
    shuffled_features,
)
from fedassay.audits.reconstruction.detection_limit import SHIFTS, PooledRuns, pairs
from fedassay.audits.reconstruction.facts import RECONSTRUCTION
from fedassay.audits.reconstruction.figures import assumptions, figure, targets
from fedassay.audits.reconstruction.identified import identified
from fedassay.audits.reconstruction.judging import Closeness, confounder_of, judge, result_of
from fedassay.audits.reconstruction.selections import (
    Scored,
    Truth,
    paired_selections,
    private_truth,
    set_selections,
)
from fedassay.audits.simulation import noised
from fedassay.audits.trials import PairedRuns
from fedassay.audits.verdict import assay
from fedassay.contracts.attack import AttackResult, Reconstruction
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.registry import register
from fedassay.data.records import Records, joined
from fedassay.exchange.feature_sources import VectorSource
from fedassay.records.record import Finding, Limit
from fedassay.similarity.ssim_search import most_similar
from fedassay.support.errors import NotRunError
from fedassay.support.types import Images, Ints, Parameters

_WHOLE = frozenset({"all", "oracle_all"})
"""Selections of all images of a source."""


@dataclass(frozen=True)
class _Compared:
    """One selection of a source beside its controls.

    Attributes:
        selection: Its name.
        result: The audited release.
        own: The end-to-end positive control, or why there is none.
        raw: That of the attack alone.
        negative: The negative control.
        others: Other private images in the place of reconstructions; None where these need not be asked.
        runs: Runs that a limit of detection is computed from; None without an end-to-end control.
    """

    selection: str
    result: Closeness
    own: Closeness | str
    raw: Closeness
    negative: Closeness
    others: Closeness | None = None
    runs: PairedRuns | PooledRuns | None = None


class _Set(NamedTuple):
    """Images that are held against targets as a set, and the targets' persons; None: no person has two of them."""

    shown: Images
    targets: Images
    persons: Ints | None


@register("audit", "reconstruction")
class ReconstructionAudit(Parameters):
    """Whether reconstructed images come closer to the private ones than what needs no generator."""

    facts: ClassVar[AuditFacts] = RECONSTRUCTION
    near_duplicates: float = Field(default=0.1, ge=0, lt=1)
    """Share of the private images dropped beforehand: those most similar (SSIM) to an attacker image."""
    top: float = Field(default=0.01, gt=0, le=1)
    """Share of the targets that the selections `attacker` and `oracle` keep."""
    at_least: int = Field(default=20, ge=2)
    """Fewest targets that the selections `attacker` and `oracle` keep."""
    control_records: int = Field(default=600, ge=20)
    """At most so many records for each control. Fewer than are scored make `oracle` and `attacker` harder to
    catch than they are for the result itself: the best 20 are then taken of fewer."""
    permutations: int = Field(default=2000, ge=200)
    """Exchanges and permutations of a test at least."""
    pictures: int = Field(default=8, ge=0)
    """Columns of a picture grid."""

    def assess(self, result: AttackResult, context: AttackedContext) -> list[Finding]:
        """One finding for each source and selection of the attack's reconstructions."""
        if not len(context.data.attacker):
            raise NotRunError("no attacker records: the baselines need some")
        if not result.reconstructions:
            raise NotRunError("the attack reconstructed nothing")
        truth = self._truth(context)
        findings = []
        for made in result.reconstructions:
            reconstruction = identified(made, context.data.clients, self.at_least)
            compare = self._paired if reconstruction.source.paired else self._set_level
            for compared in compare(reconstruction, truth, context):
                findings.append(self._finding(result.attack, reconstruction, compared, context))
        return findings

    def _paired(
        self, reconstruction: Reconstruction, truth: Truth, context: AttackedContext
    ) -> Iterator[_Compared]:
        """Every selection of reconstructions that belong to one record each, with its controls."""
        name = reconstruction.source.name
        top = self._top(len(truth.images))
        controls = self._paired_controls(truth, context)
        own = self._own_pairs(reconstruction, truth, context)
        for selection, scored in paired_selections(
            reconstruction, truth, context.data.attacker, context.similarity, top
        ).items():
            judged = self._judge(scored, context, f"{name}/{selection}")
            raw, negative = controls["positive", selection], controls["negative", selection]
            nonprivate = own if isinstance(own, str) else own.get(selection, f"no {selection} of {name}")
            if isinstance(nonprivate, str):
                yield _Compared(selection, judged, nonprivate, raw, negative)
                continue
            ours, silent, known = (pairs(each.trials) for each in (judged, negative, nonprivate))
            runs = PairedRuns(ours, silent, known, context.num_tests)
            yield _Compared(selection, judged, nonprivate, raw, negative, runs=runs)

    def _own_pairs(
        self, reconstruction: Reconstruction, truth: Truth, context: AttackedContext
    ) -> dict[str, Closeness] | str:
        """Closeness of images from the method's release of control records, by selection; or why there is none."""
        name = reconstruction.source.name
        try:
            nonprivate = self._nonprivate(reconstruction, context)
        except NotRunError as error:
            return error.why
        made = identified(nonprivate.made, nonprivate.clients, 2)
        if not made.source.paired:
            return f"of {len(made.images)} vectors of control records, too few are a record's own feature"
        images = joined("control", nonprivate.clients).images
        closest = most_similar(images, context.data.attacker.images, device=context.similarity.device).indices
        groups = joined("control", nonprivate.clients).groups
        known = Truth(images, truth.fresh, tuple(owners(nonprivate.clients)), closest, groups)
        top = self._top(len(made.images))
        selections = paired_selections(made, known, context.data.attacker, context.similarity, top)
        return {
            selection: self._judge(scored, context, f"{name}/own/{selection}")
            for selection, scored in selections.items()
        }

    def _nonprivate(self, reconstruction: Reconstruction, context: AttackedContext) -> NonPrivateImages:
        return nonprivate_images(context, reconstruction.source.name, self.control_records, least=self.at_least)

    def _set_level(
        self, reconstruction: Reconstruction, truth: Truth, context: AttackedContext
    ) -> Iterator[_Compared]:
        """Both set-level selections, with controls that go through the same matching."""
        name = reconstruction.source.name
        records, _, raw = self._raw(truth, context)
        silent = null_images(name, context)
        sets = {
            "result": _Set(reconstruction.images[:, 0], truth.images, truth.persons),
            "raw": _Set(raw.images[:, 0], records.images, records.groups),
            "negative": _Set(silent, truth.images, truth.persons),
        }
        missing = ""
        try:
            nonprivate = self._nonprivate(reconstruction, context)
            held = joined("control", nonprivate.clients)
            sets["own"] = _Set(nonprivate.made.images[:, 0], held.images, held.groups)
        except NotRunError as error:
            missing = error.why
        judged: dict[tuple[str, str], Closeness] = {}
        for kind, each in sets.items():
            judged |= self._judged_sets(name, kind, each, truth, context)
        tests = [judged["result", selection].test for selection in ("oracle_all", "oracle")]
        if any(test.rejects or test.uncorrected for test in tests) and len(truth.images) >= 4:
            shown, rest = other_images(reconstruction, truth, context)
            others_held = _Set(shown, truth.images[rest], None if truth.persons is None else truth.persons[rest])
            judged |= self._judged_sets(name, "others", others_held, truth, context)
        for selection in ("oracle_all", "oracle"):
            yield _Compared(
                selection,
                judged["result", selection],
                missing or judged["own", selection],
                judged["raw", selection],
                judged["negative", selection],
                judged.get(("others", selection)),
                None if missing else self._pooled(sets, truth, context, selection, name),
            )

    def _pooled(
        self,
        sets: Mapping[str, _Set],
        truth: Truth,
        context: AuditContext,
        selection: str,
        name: str,
    ) -> PooledRuns:
        n = len(truth.images)
        shown, nonprivate, _ = sets["own"]
        return PooledRuns(
            truth=truth.images,
            fresh=truth.fresh,
            silent=sets["negative"].shown,
            persons=truth.persons,
            fresh_persons=truth.fresh_persons,
            nonprivate=nonprivate,
            shown=shown,
            attacker=context.data.attacker.images,
            top=n if selection == "oracle_all" else min(n, self._top(n)),
            tests=context.num_tests,
            seeds=context.seeds.child("reconstruction", "limit", name, selection),
            device=context.similarity.device,
        )

    def _judged_sets(
        self, name: str, kind: str, each: _Set, truth: Truth, context: AuditContext
    ) -> dict[tuple[str, str], Closeness]:
        """Both set-level selections of one set of images, by its kind and the selection."""
        matched = self._matched(each, truth, context, f"{name}/{kind}")
        return {
            (kind, selection): self._judge(scored, context, f"{name}/{kind}/{selection}")
            for selection, scored in matched.items()
        }

    def _matched(self, each: _Set, truth: Truth, context: AuditContext, path: str) -> dict[str, Scored]:
        rng = context.seeds.numpy("reconstruction", "sets", path)
        top, attacker = self._top(len(each.targets)), context.data.attacker.images
        found = set_selections(each.shown, each.targets, truth.fresh, attacker, context.similarity, top, rng)
        return {
            name: replace(scored, persons=each.persons, fresh_persons=truth.fresh_persons)
            for name, scored in found.items()
        }

    def _truth(self, context: AuditContext) -> Truth:
        """The private images that count; the same for every cell of a seed."""
        key = f"truth/{self.near_duplicates}"
        return context.data.once(key, lambda: private_truth(context, self.near_duplicates))

    def _top(self, n: int) -> int:
        return max(self.at_least, round(self.top * n))

    def _judge(self, scored: Scored, context: AuditContext, path: str) -> Closeness:
        rng = context.seeds.numpy("reconstruction", "bootstrap", path)
        return judge(scored, context.similarity, rng, tests=context.num_tests, draws=self.permutations)

    def _raw(self, truth: Truth, context: AttackedContext) -> tuple[Records, Ints, Reconstruction]:
        return raw_features(truth, context, self.control_records, f"raw control/{self.near_duplicates}")

    def _paired_controls(self, truth: Truth, context: AttackedContext) -> dict[tuple[str, str], Closeness]:
        """Raw features of the same records, and the same features shuffled, by kind and selection."""
        records, closest, positive = self._raw(truth, context)
        size = len(records)
        mine = tuple(("control", i) for i in range(size))
        known = Truth(records.images, truth.fresh, mine, closest, records.groups)
        controls = {}
        for kind, raw in (("positive", positive), ("negative", shuffled_features(records, context))):
            selections = paired_selections(raw, known, context.data.attacker, context.similarity, self._top(size))
            for selection, scored in selections.items():
                controls[kind, selection] = self._judge(scored, context, f"{kind}/{selection}")
        return controls

    def _finding(
        self, attack: str, reconstruction: Reconstruction, compared: _Compared, context: AttackedContext
    ) -> Finding:
        ours, source = compared.result, reconstruction.source
        # Identification is tested once a source: on all of its images.
        named = named_images(reconstruction, context) if compared.selection in _WHOLE else None
        shares, of_own = ({}, {}) if named is None else named.metrics(context)
        subject = Subject("reconstruction", attack, source.name, compared.selection)
        silent = "raw features of the same records, shuffled" if source.paired else NO_CLIENTS_RECORDS
        figures = Figures(
            metrics={**ours.metrics, **shares},
            baseline={**ours.baseline, **of_own},
            assumptions=(*assumptions(source, self.near_duplicates, context), *ours.persons_in_words),
            pictures=figure(ours.trials, source.name, compared.selection, context, self.pictures),
            series={"targets": targets(ours.trials)},
        )
        result = result_of(
            ours, source.name, self._limit(source, compared, named, context), noised=noised(context)
        )
        negative, confounder = compared.negative.control(silent), confounder_of(compared.others, ours)
        if isinstance(compared.own, str):
            own: tuple[ControlResult, ...] | str = compared.own
        else:
            caught = compared.own.control(OWN_RELEASE, end_to_end=True)
            if named is not None:
                caught = named.caught(caught, self._nonprivate(reconstruction, context), context)
            own = (caught,)
        if named is not None:
            result, negative = named.result(result, ours.p), named.silent(negative)
            confounder = None if named.names_alone(result) else confounder
        raw = compared.raw.control("raw features of the same records")
        return assay(subject, Arms(result, own, negative, (raw,), confounder), figures)

    def _limit(
        self, source: VectorSource, compared: _Compared, named: NamedImages | None, context: AuditContext
    ) -> Callable[[], Limit | str] | None:
        if compared.runs is None:
            return None
        return limit_of(
            _asked_twice(compared.runs, named, context),
            context.seeds.child("reconstruction", "limit", source.name, compared.selection),
            shifts=SHIFTS,
            unit="SSIM",
            of="record" if compared.result.scored.persons is None else "person",
            planted="reconstruction",
            reach=len(source.vectors),
        )


def _asked_twice(
    runs: PairedRuns | PooledRuns, named: NamedImages | None, context: AuditContext
) -> PairedRuns | PooledRuns:
    """The runs of a limit at the level that is left to similarity where identification is asked as well."""
    return runs if named is None or named.counts is None else replace(runs, tests=2 * context.num_tests)
