"""Can private images be reconstructed from what the clients send?

Joins the truth to the images that a reconstruction attack made (paper 000, section 6.4 and appendix
E) and asks whether they are closer to the private images than what the adversary could have shown
without a generator. Every finding carries both controls: raw features of the same records must be
caught, a release without information on the records must not be flagged. A set that seems to leak is held against
other private images in its place: where clients' distributions are not the fresh images', these are closer, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.audits.reconstruction.identified import identified
from fedassay.audits.reconstruction.judging import Judged, explains, judge
from fedassay.audits.reconstruction.judging import verdict as verdict_of
from fedassay.audits.reconstruction.selections import (
    Scored,
    Truth,
    paired_selections,
    private_truth,
    set_selections,
)
from fedassay.audits.simulation import fresh_clients, raw_view
from fedassay.contracts.audit import AttackedContext, AttackResult, AuditContext, Reconstruction
from fedassay.data.records import Records, joined
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.view import view
from fedassay.records.record import (
    Controls,
    Finding,
    NegativeControl,
    Picture,
    PictureColumn,
    PositiveControl,
    Series,
)
from fedassay.support.errors import NotRunError
from fedassay.support.registry import register
from fedassay.support.types import Images, Ints, Parameters

_PAIRED_BASELINE = "baseline: the attacker's image with the nearest feature, or the mean of the five nearest"
_SET_BASELINE = "baseline: the attacker's images, or fresh images matched with the same set, whichever is closer"
_IDENTIFIED = "each recovered vector is held against the record whose feature it is, to a relative error of 1 %"


_Compared = tuple[str, Judged, Judged, Judged, Judged | None]
"""Selection, result, positive control, negative control, other private images if they explain the result."""


@register("audit", "reconstruction")
class ReconstructionAudit(Parameters):
    """Whether reconstructed images come closer to the private ones than what needs no generator."""

    reads: ClassVar[tuple[str, ...]] = ("feature_diffusion",)
    tests_per_cell: ClassVar[int] = 6

    near_duplicates: float = Field(default=0.1, ge=0, lt=1)
    """Share of the private images dropped beforehand: those most similar (SSIM) to an attacker image."""
    top: float = Field(default=0.01, gt=0, le=1)
    """Share of the targets that the selections `attacker` and `oracle` keep."""
    at_least: int = Field(default=20, ge=2)
    """They keep at least so many."""
    control_records: int = Field(default=600, ge=20)
    """At most so many records for each control. Fewer than are scored make `oracle` and `attacker` harder to
    catch than they are for the result itself: the best 20 are then taken of fewer."""
    draws: int = Field(default=2000, ge=200)
    """Bootstrap resamples."""
    pictures: int = Field(default=8, ge=0)
    """Columns of a picture grid."""

    def assess(self, result: AttackResult, context: AttackedContext) -> list[Finding]:
        """One finding for each source and selection of the attack's reconstructions."""
        if not len(context.attacker):
            raise NotRunError("no attacker records: the baselines need some")
        if not result.reconstructions:
            raise NotRunError("the attack reconstructed nothing")
        truth = self._truth(context)
        findings = []
        for made in result.reconstructions:
            reconstruction = identified(made, context.clients, self.at_least)
            compare = self._paired if reconstruction.source.paired else self._set_level
            for compared in compare(reconstruction, truth, context):
                findings.append(self._finding(result.attack, reconstruction.source, compared, context))
        return findings

    def _paired(
        self, reconstruction: Reconstruction, truth: Truth, context: AttackedContext
    ) -> Iterator[_Compared]:
        """Every selection of reconstructions that belong to one record each, with its controls."""
        name = reconstruction.source.name
        top = self._top(len(truth.images))
        controls = self._paired_controls(truth, context)
        for selection, scored in paired_selections(
            reconstruction, truth, context.attacker, context.similarity, top
        ).items():
            judged = self._judge(scored, context, f"{name}/{selection}")
            yield selection, judged, controls["positive", selection], controls["negative", selection], None

    def _set_level(
        self, reconstruction: Reconstruction, truth: Truth, context: AttackedContext
    ) -> Iterator[_Compared]:
        """Both set-level selections, with controls that go through the same matching."""
        name = reconstruction.source.name
        records, _, raw = self._raw_control(truth, context)
        judged: dict[tuple[str, str], Judged] = {}
        for kind, images, target in (
            ("result", reconstruction.images[:, 0], truth.images),
            ("positive", raw.images[:, 0], records.images),
            ("negative", self._simulated(name, context), truth.images),
        ):
            judged |= self._judged_sets(name, kind, images, target, truth, context)
        beaten = any(judged["result", selection].beats for selection in ("oracle_all", "oracle"))
        if beaten and len(truth.images) >= 4:
            judged |= self._judged_sets(
                name, "others", *self._others(reconstruction, truth, context), truth, context
            )
        for selection in ("oracle_all", "oracle"):
            found = judged["result", selection]
            others = judged.get(("others", selection))
            yield (
                selection,
                found,
                judged["positive", selection],
                judged["negative", selection],
                others if others is not None and explains(others, found) else None,
            )

    def _judged_sets(
        self, name: str, kind: str, images: Images, target: Images, truth: Truth, context: AuditContext
    ) -> dict[tuple[str, str], Judged]:
        """Both set-level selections of one set of images, by its kind and the selection."""
        matched = self._matched(images, target, truth.fresh, context, f"{name}/{kind}")
        return {
            (kind, selection): self._judge(scored, context, f"{name}/{kind}/{selection}")
            for selection, scored in matched.items()
        }

    def _others(
        self, reconstruction: Reconstruction, truth: Truth, context: AuditContext
    ) -> tuple[Images, Images]:
        """Half of the private images, in the place of at most as many reconstructions, and the other half."""
        order = context.seeds.numpy("reconstruction", "others").permutation(len(truth.images))
        half = len(order) // 2
        shown = order[:half][: len(reconstruction.images)]
        return truth.images[shown], truth.images[np.sort(order[half:])]

    def _matched(
        self, images: Images, target: Images, fresh: Images, context: AuditContext, path: str
    ) -> dict[str, Scored]:
        rng = context.seeds.numpy("reconstruction", "sets", path)
        top = self._top(len(target))
        return set_selections(images, target, fresh, context.attacker.images, context.similarity, top, rng)

    def _simulated(self, name: str, context: AttackedContext) -> Images:
        """What the method and the attack make of records that no client holds, shape (n, H, W, C).

        Vectors that the method does not itself offer (those another attack recovered) are stood in for by
        raw features.
        """
        clients = fresh_clients(context, context.fresh)
        seeds = context.seeds.child("reconstruction", "simulated")
        seen = view(context.rerun(clients, seeds).transcript, context.view.threat)
        try:
            found = [item for item in context.attack(seen).reconstructions if item.source.name == name]
        except NotRunError:
            found = []
        item = found[0] if found else _only(context.attack(raw_view([joined("control", clients)], context)))
        return item.images[:, 0]

    def _truth(self, context: AuditContext) -> Truth:
        """The private images that count; the same for every cell of a seed."""
        key = f"truth/{self.near_duplicates}"
        kept = context.workplace.shared.get(key)
        if not isinstance(kept, Truth):
            kept = context.workplace.shared[key] = private_truth(context, self.near_duplicates)
        return kept

    def _top(self, n: int) -> int:
        return max(self.at_least, round(self.top * n))

    def _judge(self, scored: Scored, context: AuditContext, path: str) -> Judged:
        rng = context.seeds.numpy("reconstruction", "bootstrap", path)
        return judge(scored, context.similarity, rng, tests=context.bounds, draws=self.draws)

    def _raw_control(self, truth: Truth, context: AttackedContext) -> tuple[Records, Ints, Reconstruction]:
        """Some private records, their closest attacker images, and what the attack makes of their features.

        The same for every cell of a seed, and so made once.
        """
        key = f"raw control/{self.near_duplicates}/{self.control_records}/{context.attack_key}"
        kept = context.workplace.shared.get(key)
        if isinstance(kept, tuple):
            return kept
        size = min(self.control_records, len(truth.images))
        chosen = np.sort(np.random.default_rng(0).permutation(len(truth.images))[:size])
        where = {owner: position for position, owner in enumerate(_owners(context.clients))}
        positions = np.array([where[truth.owner[i]] for i in chosen], np.int64)
        records = joined("private", context.clients).take(positions, "control")
        made = records, truth.closest[chosen], _only(context.attack(raw_view([records], context)))
        context.workplace.shared[key] = made
        return made

    def _paired_controls(self, truth: Truth, context: AttackedContext) -> dict[tuple[str, str], Judged]:
        """Raw features of the same records, and the same features shuffled, by kind and selection."""
        records, closest, positive = self._raw_control(truth, context)
        size = len(records)
        # A cyclic shift of a random order gives every record another record's feature.
        order = context.seeds.numpy("reconstruction", "shuffle").permutation(size)
        wrong = np.empty(size, np.int64)
        wrong[order] = np.roll(order, 1)
        negative = _only(context.attack(raw_view([records.take(wrong)], context)))
        known = Truth(records.images, truth.fresh, tuple(("control", i) for i in range(size)), closest)
        found = {}
        for kind, raw in (("positive", positive), ("negative", negative)):
            selections = paired_selections(raw, known, context.attacker, context.similarity, self._top(size))
            for selection, scored in selections.items():
                found[kind, selection] = self._judge(scored, context, f"{kind}/{selection}")
        return found

    def _finding(
        self,
        attack: str,
        source: VectorSource,
        compared: _Compared,
        context: AuditContext,
    ) -> Finding:
        selection, judged, positive, negative, others = compared
        verdict, reason = verdict_of(judged, positive, negative, others)
        silent = negative if others is None else others
        return Finding(
            audit="reconstruction",
            attack=attack,
            source=source.name,
            selection=selection,
            metrics=judged.metrics,
            baseline=judged.baseline,
            controls=Controls(
                positive=PositiveControl(
                    release="raw features of the same records",
                    caught=positive.beats,
                    value=positive.metrics["ssim_gain"].value,
                    n=positive.scored.top,
                    detail="SSIM over the same baseline",
                ),
                negative=NegativeControl(
                    release=(
                        "raw features of the same records, shuffled"
                        if source.paired
                        else "the same method on records that no client holds"
                        if others is None
                        else "other private images in the place of reconstructions"
                    ),
                    flagged=negative.beats or others is not None,
                    value=silent.metrics["ssim_gain"].value,
                    n=silent.scored.top,
                    detail="SSIM over the same baseline",
                ),
            ),
            verdict=verdict,
            reason=reason,
            assumptions=(
                "PSNR and SSIM on the data range 255; SSIM with a 7x7 uniform window",
                _PAIRED_BASELINE if source.paired else _SET_BASELINE,
                *([_IDENTIFIED] if source.paired and source.name != "raw" else []),
                f"near duplicates of attacker images dropped: {self.near_duplicates:.0%} of the private ones",
                "leak: mean SSIM above the baseline"
                + ("" if source.paired else " and higher for private than for fresh images")
                + f", one-sided 95 % corrected for {context.bounds} tests",
            ),
            pictures=self._pictures(judged, source.name, selection, context),
            series={"targets": _targets(judged.scored)},
        )

    def _pictures(self, judged: Judged, source: str, selection: str, context: AuditContext) -> tuple[Picture, ...]:
        scored = judged.scored
        count = min(self.pictures, scored.top)
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
        title = f"{source}, selection {selection}"
        return (context.workplace.grid((source, selection), title, rows, columns),)


def _targets(scored: Scored) -> Series:
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


def _owners(clients: tuple[Records, ...]) -> list[tuple[str, int]]:
    return [(client.name, row) for client in clients for row in range(len(client))]


def _only(result: AttackResult) -> Reconstruction:
    return next(item for item in result.reconstructions if item.source.name == "raw")
