"""Do images inverted from messages show the clients' records?

Joins the truth to what `feature_inversion` made (paper 001, figure 4) and asks whether the images are closer, in
PSNR as in that figure, to the records behind them than to fresh records of the same classes, which the messages
know nothing of. Every finding carries both controls: images inverted from raw features of single records must be
closer to these; images inverted from raw features of records that nobody holds must not be.

Clients may have distributions of their own (domains), of which fresh records are none. So images of other records
of the same clients are held against the records, too: what is no closer than these explain is no leak.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedassay.audits.inversion.pictures import figure
from fedassay.audits.inversion.truth import BETWEEN, Pool, Shown, alike, candidates, hold, make_pool
from fedassay.audits.message.truth import encoder
from fedassay.audits.reconstruction.selections import nearest_feature
from fedassay.audits.simulation import raw_view
from fedassay.audits.stats.resampling import Interval, mean_of, resampled
from fedassay.contracts.audit import AttackedContext, AttackResult, AuditContext, Reconstruction
from fedassay.data.records import Records, joined
from fedassay.exchange.feature_sources import VectorSource
from fedassay.records.record import (
    Controls,
    Finding,
    Metric,
    NegativeControl,
    Picture,
    PositiveControl,
    Series,
    Verdict,
    unmeasured,
)
from fedassay.support.errors import NotRunError
from fedassay.support.registry import register
from fedassay.support.types import Ints, Parameters

_HELD, _FRESH = "control/held", "control/fresh"
_UNITS = {"psnr": "dB"}
_DOUBTED = 0.05
"""p-value of other records' images up to which they may explain what is seen."""

_Control = tuple[Shown, Shown]
"""Positive and negative; the records of the positive one are positions among the private records."""


@register("audit", "inversion")
class InversionAudit(Parameters):
    """Whether images inverted from messages are closer to the records behind them than to fresh ones."""

    reads: ClassVar[tuple[str, ...]] = ("feature_inversion",)
    tests_per_cell: ClassVar[int] = 6

    control_records: int = Field(default=32, ge=8)
    """Records of each control; the attack's own `limit` applies to both together."""
    fresh_records: int = Field(default=1000, ge=20)
    """Fresh (test) records drawn for comparison."""
    draws: int = Field(default=2000, ge=200)
    """Permutations at least, and bootstrap resamples."""
    pictures: int = Field(default=8, ge=0)
    """Columns of a picture grid."""

    def assess(self, result: AttackResult, context: AttackedContext) -> list[Finding]:
        """One finding a source of vectors."""
        if not result.reconstructions:
            raise NotRunError("the attack inverted nothing")
        pool, held_out = self._records(context)
        positive, negative = self._controls(pool, held_out, context)
        findings = []
        for made in result.reconstructions:
            sets = candidates(made.source, context)
            used = np.flatnonzero([len(part) > 0 for part in sets])
            if len(used) < 2:
                reason = (
                    f"{len(used)} of {len(sets)} images can be held against known records; at least 2 are needed"
                )
                findings.append(_not_run(result.attack, made.source.name, reason))
                continue
            shown = hold(
                made.images[used, 0],
                made.source.vectors[used].astype(np.float64),
                [sets[i] for i in used],
                pool,
                context.seeds.numpy("inversion", made.source.name),
                between=made.source.name in BETWEEN,
                tests=context.bounds,
                draws=self.draws,
            )
            pictures = figure(made, shown, positive, result.reconstructions, pool, context, self.pictures)
            others = self._others(made.source, pool, context)
            findings.append(
                self._finding(made, used, shown, positive, negative, others, pool, context, result, pictures)
            )
        return findings

    def _others(self, source: VectorSource, pool: Pool, context: AuditContext) -> Shown | None:
        """Images of other records of the same clients; None where clients are too small for it."""
        rng = context.seeds.numpy("inversion", "others", source.name)
        records, sets = alike(source, context, rng)
        if len(records) < 2:
            return None
        return hold(
            pool.images[records],
            pool.features[records],
            sets,
            pool,
            rng,
            between=source.name in BETWEEN,
            tests=context.bounds,
            draws=self.draws,
        )

    def _records(self, context: AuditContext) -> tuple[Pool, Records]:
        """The pool of comparison, and as many other fresh records for the negative control.

        Raises:
            NotRunError: Too few fresh records of the clients' classes.
        """
        private = joined("private", context.clients)
        usable = np.flatnonzero(np.isin(context.test.labels, private.labels))
        order = np.random.default_rng(0).permutation(usable)
        control, rest = order[: self.control_records], order[self.control_records :][: self.fresh_records]
        if len(rest) < 20:
            raise NotRunError(
                f"{len(usable)} test records of the clients' classes are too few to compare with; at least "
                f"{self.control_records + 20} are needed"
            )
        fresh = context.test.take(rest, "fresh")
        return make_pool(private, fresh, encoder(context)), context.test.take(control, _FRESH)

    def _controls(self, pool: Pool, held_out: Records, context: AttackedContext) -> _Control:
        """Images of raw features of private records, and of records that nobody holds: one inversion for both.

        Raises:
            NotRunError: The attack drew so few of the vectors that a control has none to speak of.
        """
        key = f"inversion control/{self}/{context.attack_key}/{context.bounds}"
        kept = context.workplace.shared.get(key)
        if isinstance(kept, tuple):
            return kept
        rng = np.random.default_rng(0)
        private = joined("private", context.clients)
        chosen = np.sort(rng.permutation(len(private))[: self.control_records])
        result = context.attack(raw_view([private.take(chosen, _HELD), held_out], context))
        made = next(item for item in result.reconstructions if item.source.name == "raw")
        senders = np.array(made.source.senders)
        controls = []
        for sender in (_HELD, _FRESH):
            of = np.flatnonzero(senders == sender)
            if len(of) < 2:
                raise NotRunError("the attack's limit leaves fewer than 2 images for a control; raise its `limit`")
            rows = made.source.rows[of]
            sets = [chosen[row : row + 1] for row in rows]
            if sender == _FRESH:
                # Any private record of the class: the image knows none of them.
                same = [np.flatnonzero(pool.labels[: pool.private] == held_out.labels[row]) for row in rows]
                sets = [rng.choice(part, 1) for part in same]
            vectors = made.source.vectors[of].astype(np.float64)
            controls.append(
                hold(
                    made.images[of, 0],
                    vectors,
                    sets,
                    pool,
                    rng,
                    between=False,
                    tests=context.bounds,
                    draws=self.draws,
                )
            )
        context.workplace.shared[key] = found = (controls[0], controls[1])
        return found

    def _finding(
        self,
        made: Reconstruction,
        used: Ints,
        shown: Shown,
        positive: Shown,
        negative: Shown,
        others: Shown | None,
        pool: Pool,
        context: AuditContext,
        result: AttackResult,
        pictures: tuple[Picture, ...],
    ) -> Finding:
        name = made.source.name
        rng = context.seeds.numpy("inversion", "bootstrap", name)
        values, baseline = self._values(shown, pool, context)
        metrics = {key: self._metric(part, key, rng) for key, part in values.items()}
        metrics["psnr_each"] = self._metric(shown.each, "psnr", rng)
        metrics["psnr_gain"] = self._metric(shown.psnr - shown.fresh_psnr, "psnr", rng).model_copy(
            update={"reason": f"over fresh records of the class; permutation p = {shown.p:.2g}"}
        )
        domain = None if others is None else resampled(len(others.gain), mean_of(others.gain), rng)
        if others is not None and domain is not None:
            metrics["psnr_gain_others"] = Metric(
                value=domain.value,
                low=domain.low,
                high=domain.high,
                n=len(others.gain),
                unit="dB",
                reason=f"images of the same clients' other records; permutation p = {others.p:.2g}",
            )
        explained = shown.beats and others is not None and domain is not None and _explains(others, domain, shown)
        misfit = np.asarray(result.scores[f"misfit/{name}"], np.float64)[used]
        metrics["misfit"] = Metric(value=float(np.median(misfit)), n=len(misfit), reason="median |f(x)-t|^2/|t|^2")
        if len(context.attacker):
            near = nearest_feature(
                made.source.vectors[used], context.attacker, pool.images[shown.records], context.similarity
            )
            plain = context.similarity.measure(pool.images[shown.records], near)["psnr"]
            metrics["psnr_nearest_own"] = self._metric(plain, "psnr", rng).model_copy(
                update={"reason": "the attacker's own image with the nearest feature, without inversion"}
            )
        for key, remark in context.similarity.remarks.items():
            metrics[key] = (
                metrics[key].model_copy(update={"reason": remark}) if key in metrics else unmeasured(remark)
            )
        verdict, reason = _verdict(shown, positive, negative, others if explained else None)
        return Finding(
            audit="inversion",
            attack=result.attack,
            source=name,
            selection="nearest" if name in BETWEEN else "own",
            metrics=metrics,
            baseline={key: self._metric(part, key, rng) for key, part in baseline.items()},
            controls=Controls(
                positive=PositiveControl(
                    release="raw features of single records that clients hold",
                    caught=positive.beats,
                    value=_gain(positive),
                    n=len(positive.psnr),
                    detail="dB PSNR over fresh records of the class",
                ),
                negative=NegativeControl(
                    release="images of other records of the same clients"
                    if explained
                    else "raw features of records that no client holds",
                    flagged=negative.beats or explained,
                    value=_gain(others if explained and others is not None else negative),
                    n=len((others if explained and others is not None else negative).psnr),
                    detail="dB PSNR over fresh records of the class",
                ),
            ),
            verdict=verdict,
            reason=reason,
            assumptions=(
                "PSNR and SSIM on the data range 255",
                "an image is held against the closest of the records behind it, in PSNR"
                if name in BETWEEN
                else "an image is held against the record of the closest feature among those behind it",
                "baseline: fresh (test) records of the same classes, matched alike",
                f"leak: closer in PSNR to the true records than to others of their classes, permutation test at "
                f"5 %, corrected for {context.bounds} tests",
                "no client could be halved: its records are taken to be of the fresh ones' distribution"
                if others is None
                else "no leak: what images of other records of the same clients show as well",
            ),
            pictures=pictures,
            series={
                "targets": Series(
                    title="PSNR of each image (dB)",
                    columns={"psnr": tuple(shown.psnr.tolist()), "fresh": tuple(shown.fresh_psnr.tolist())},
                )
            },
        )

    def _values(
        self, shown: Shown, pool: Pool, context: AuditContext
    ) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]]]:
        """Every metric of the images, and of fresh records in the place of the true ones, shape (k,) each."""
        ours = context.similarity.measure(pool.images[shown.records], shown.images)
        parts = [context.similarity.measure(pool.images[others], shown.images) for others in shown.fresh]
        return ours, {key: np.mean([part[key] for part in parts], axis=0) for key in ours}

    def _metric(self, values: NDArray[np.float64], name: str, rng: np.random.Generator) -> Metric:
        found = resampled(len(values), mean_of(values), rng, draws=self.draws)
        unit = _UNITS.get(name, "")
        return Metric(value=found.value, low=found.low, high=found.high, n=len(values), unit=unit)


def _explains(others: Shown, domain: Interval, shown: Shown) -> bool:
    """Whether what makes a client's other images close to its records may be all that makes the shown ones so.

    As far as twice its reach: what is shown may be smoother than an image of one record, and so closer to all.
    """
    return others.p <= _DOUBTED and float(shown.gain.mean()) <= 2 * domain.high


def _verdict(shown: Shown, positive: Shown, negative: Shown, others: Shown | None) -> tuple[Verdict, str]:
    """What is said, `others` being images that explain what is shown, if any do."""
    ours = f"{_said(shown)}, {len(shown.psnr)} images"
    if negative.beats:
        return "inconclusive", f"the negative control was flagged ({_said(negative)}); {ours}"
    if not positive.beats:
        return "inconclusive", f"the attack is too weak here: raw features show {_said(positive)}; {ours}"
    if others is not None:
        return "inconclusive", (
            f"clients' records may differ from fresh ones without any release: images of their other records gain "
            f"{others.gain.mean():.2f} dB over those of other classes or clients (p = {others.p:.2g}), and "
            f"{shown.gain.mean():.2f} dB is no more than that explains; {ours}"
        )
    if shown.beats:
        return "leak", f"images are closer to the records behind them than to fresh ones: {ours}"
    control = f"{_said(positive)}, {len(positive.psnr)} images"
    return "no_leak_found", f"{ours}; the positive control was caught ({control})"


def _said(shown: Shown) -> str:
    return (
        f"PSNR {shown.psnr.mean():.2f} dB against {shown.fresh_psnr.mean():.2f} for fresh records of the class "
        f"(p = {shown.p:.2g})"
    )


def _gain(shown: Shown) -> float:
    return float((shown.psnr - shown.fresh_psnr).mean())


def _not_run(attack: str, source: str, reason: str) -> Finding:
    return Finding(audit="inversion", attack=attack, source=source, verdict="not_run", reason=reason)
