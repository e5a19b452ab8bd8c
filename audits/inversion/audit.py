"""Do images inverted from messages show the clients' records?

Joins the truth to what `feature_inversion` made (Guan et al. 2025, figure 4) and asks whether the images are
closer, in PSNR as in that figure, to the records behind them than to fresh records of the same classes, which the
messages know nothing of. Every finding carries its controls: images inverted from the method's own release of
control records without privacy must be closer to these, and images inverted from raw features of single records to
those; images inverted from raw features of records that no client holds must not be. For an attack that reads no
features the second are left out, and the last come from the method's own release of such records.

Clients may have distributions of their own (domains), and fresh records do not come from these. So images of other
records of the same clients are held against the records, too. Images that are no closer than these are no leak.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.audits.detection_limit import limit_of
from fedassay.audits.evidence import (
    NO_CLIENTS_RECORDS,
    OWN_RELEASE,
    Arms,
    ControlResult,
    Figures,
    Subject,
)
from fedassay.audits.features import encoder, nearest_feature
from fedassay.audits.inversion.detection_limit import SHIFTS, InvertedRuns, silent_trials
from fedassay.audits.inversion.facts import CONTROLS, INVERSION
from fedassay.audits.inversion.judging import assumptions, confounder_of, harm_of, metric_of, result_of, targets
from fedassay.audits.inversion.pictures import figure
from fedassay.audits.inversion.truth import (
    ImageMatch,
    Pool,
    RecordMatch,
    alike,
    candidates,
    image_match,
    make_pool,
    records_behind,
)
from fedassay.audits.named_images import NamedImages, named_images
from fedassay.audits.nonprivate_images import NonPrivateImages, nonprivate_images
from fedassay.audits.simulation import control_seeds, fresh_clients, noised, raw_view
from fedassay.audits.verdict import assay, not_run
from fedassay.contracts.attack import AttackResult, Reconstruction
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.membership import visible
from fedassay.contracts.registry import register
from fedassay.data.records import Records, joined
from fedassay.exchange.feature_sources import VectorSource, between
from fedassay.records.record import Finding, Limit, Metric, unmeasured
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.types import Ints, Matrix, Parameters

_HELD, _FRESH = "control/held", "control/fresh"
_CLIENTS = 4
"""Control clients at least, as far as the control role goes, of an attack that reads no features."""

_MISFIT = "median of what is left of what an image was fitted to: |f(x)-t|^2/|t|^2 of features"

_Values = dict[str, Matrix]
"""Metric name to one value an image, shape (k,)."""


@dataclass(frozen=True)
class _Setting:
    """Comparison data for every source of one attack.

    Attributes:
        result: The attack's images.
        pool: Private and fresh records.
        fresh: The fresh records.
        raw: Images of raw features of private records, which are positions in the pool, and of records that no
            client holds; None where the attack reads no features.
        context: The cell and its attack.
    """

    result: AttackResult
    pool: Pool
    fresh: Records
    raw: tuple[ImageMatch, ImageMatch] | None
    context: AttackedContext


@register("audit", "inversion")
class InversionAudit(Parameters):
    """Whether images inverted from messages are closer to the records behind them than to fresh ones."""

    facts: ClassVar[AuditFacts] = INVERSION
    control_records: int = Field(default=32, ge=8)
    """Records of each control; the attack's own limit (`max_vectors` or `max_images`) applies to both together."""
    fresh_records: int = Field(default=1000, ge=20)
    """Fresh (test) records drawn for comparison."""
    permutations: int = Field(default=2000, ge=200)
    """Permutations at least."""
    pictures: int = Field(default=8, ge=0)
    """Columns of a picture grid."""

    def assess(self, result: AttackResult, context: AttackedContext) -> list[Finding]:
        """One finding a source of vectors."""
        if not result.reconstructions:
            raise NotRunError("the attack inverted nothing")
        pool, fresh, held_out = self._records(context)
        setting = _Setting(result, pool, fresh, self._controls(pool, held_out, context), context)
        return [self._of_source(made, setting) for made in result.reconstructions]

    def _of_source(self, made: Reconstruction, setting: _Setting) -> Finding:
        """Hold the images of one source against the records that they may show."""
        context, source = setting.context, made.source
        sets = candidates(source, context.data.clients)
        used = np.flatnonzero([len(part) > 0 for part in sets])
        subject = Subject(
            "inversion", setting.result.attack, source.name, "nearest" if between(source.name) else "own"
        )
        if len(used) < 2:
            reason = f"{len(used)} of {len(sets)} images can be held against known records; at least 2 are needed"
            return not_run(replace(subject, selection=None), reason)
        kept = [sets[i] for i in used]
        matched = _record_match(made, used, kept, setting.pool)
        shown = self._match(matched, context.seeds.numpy("inversion", source.name), context)
        others = self._others(source, setting.pool, context)
        figures = self._figures(made, used, shown, others, setting)
        attack_only: tuple[ControlResult, ...] = ()
        named = named_images(made, context)
        if named is not None:
            shares, of_own = named.metrics(context)
            figures = replace(
                figures, metrics={**figures.metrics, **shares}, baseline={**figures.baseline, **of_own}
            )
        if setting.raw is None:
            unknown = self._nobodys(source, setting)
            negative = unknown.control(NO_CLIENTS_RECORDS)
        else:
            known, unknown = setting.raw
            attack_only = (known.control("raw features of single records that clients hold"),)
            negative = unknown.control("raw features of records that no client holds")
        own, limit = self._held_to_own_release(source, matched, unknown, named, setting)
        behind = records_behind([source.senders[i] for i in used], kept, context.view)
        harm = harm_of(shown, behind, source.name)
        result = result_of(shown, harm, limit, setting.result.limited or "", noised=noised(context))
        confounder = confounder_of(shown, others, context)
        if named is not None:
            result, negative = named.result(result, shown.p), named.silent(negative)
            confounder = None if named.names_alone(result) else confounder
        return assay(subject, Arms(result, own, negative, attack_only, confounder), figures)

    def _held_to_own_release(
        self,
        source: VectorSource,
        matched: RecordMatch,
        unknown: ImageMatch,
        named: NamedImages | None,
        setting: _Setting,
    ) -> tuple[tuple[ControlResult, ...] | str, Callable[[], Limit | str] | None]:
        """The control on the method's own release, and what computes the limit of detection from it.

        Where there is no such release, the reason stands for the control, and there is no limit.
        """
        context = setting.context
        seeds = context.seeds.child("inversion", "limit", source.name)
        try:
            released = self._released(source, setting)
            nonprivate = _nonprivate(released, setting)
        except NotRunError as error:
            return error.why, None
        judged = self._match(nonprivate, seeds.numpy("control"), context)
        caught = judged.control(OWN_RELEASE, end_to_end=True)
        silent = silent_trials(unknown, matched.sets, setting.pool, seeds.numpy("silent"), between=matched.between)
        asked = context.num_tests * (2 if named is not None and named.counts is not None else 1)
        count = len(matched.sets)
        runs = InvertedRuns(count, silent, nonprivate, asked, self.permutations)
        limit = limit_of(runs, seeds, shifts=SHIFTS, unit="dB PSNR", of="record", planted="inversion", reach=count)
        return (caught if named is None else named.caught(caught, released, context),), limit

    def _match(self, matched: RecordMatch, rng: np.random.Generator, context: AuditContext) -> ImageMatch:
        """Images held against their records, at the level of this run's tests."""
        return image_match(matched, rng, tests=context.num_tests, draws=self.permutations)

    def _released(self, source: VectorSource, setting: _Setting) -> NonPrivateImages:
        """Images of the same source in the method's own release of control records, without privacy.

        Raises:
            NotRunError: There is no such release, or it offers too few of these vectors.
        """
        context, records = setting.context, self.control_records
        if setting.raw is None:
            # A client as large as the audited ones may lead to a single image.
            records = max(records, _CLIENTS * max(len(client) for client in context.data.clients))
        return nonprivate_images(context, source.name, records, least=CONTROLS)

    def _figures(
        self,
        made: Reconstruction,
        used: Ints,
        shown: ImageMatch,
        others: ImageMatch | None,
        setting: _Setting,
    ) -> Figures:
        """Return the figures shown beside the verdict on one source."""
        context, source = setting.context, made.source
        values, baseline = self._values(shown, setting.pool, context)
        metrics = self._metrics(values, shown)
        if others is not None:
            remark = f"images of the same clients' other records; permutation p = {others.p:.2g}"
            metrics["psnr_gain_others"] = metric_of(others.gain, "psnr", remark)
        metrics |= self._context_metrics(made, used, shown, setting)
        for key, remark in context.similarity.remarks.items():
            metrics[key] = (
                metrics[key].model_copy(update={"reason": remark}) if key in metrics else unmeasured(remark)
            )
        everything = setting.result.reconstructions
        return Figures(
            metrics=metrics,
            baseline={key: metric_of(part, key) for key, part in baseline.items()},
            assumptions=assumptions(source, others, context),
            pictures=figure(made, shown, setting.raw, everything, setting.pool, context, self.pictures),
            series={"targets": targets(shown)},
        )

    def _others(self, source: VectorSource, pool: Pool, context: AuditContext) -> ImageMatch | None:
        """Images of other records of the same clients; None where clients are too small for it."""
        rng = context.seeds.numpy("inversion", "others", source.name)
        records, sets = alike(source, context, rng)
        if len(records) < 2:
            return None
        matched = RecordMatch(pool.images[records], pool.features[records], sets, pool, between(source.name))
        return self._match(matched, rng, context)

    def _records(self, context: AuditContext) -> tuple[Pool, Records, Records]:
        """The pool of comparison, its fresh records, and others for the negative control.

        Raises:
            NotRunError: Too few fresh records of the clients' classes.
        """
        private = joined("private", context.data.clients)
        usable = np.flatnonzero(np.isin(context.data.test.labels, private.labels))
        order = control_seeds(context, "inversion", "fresh").numpy().permutation(usable)
        control, rest = order[: self.control_records], order[self.control_records :][: self.fresh_records]
        if len(rest) < 20:
            needed = self.control_records + 20
            raise NotRunError(
                f"{len(usable)} test records of the clients' classes are too few to compare with; at least "
                f"{needed} are needed",
                role="test",
                held=len(usable),
                needed=needed,
            )
        fresh = context.data.test.take(rest, "fresh")
        return _pool(private, fresh, context), fresh, context.data.test.take(control, _FRESH)

    def _nobodys(self, source: VectorSource, setting: _Setting) -> ImageMatch:
        """Images of the same source from the same method on records that no client holds.

        Raises:
            NotRunError: It cannot be run on such records, or leads to fewer than 2 images.
        """
        context = setting.context
        clients = fresh_clients(context, context.data.fresh)
        outcome = context.method.run_on(clients, context.seeds.child("inversion", "nobody"))
        result = context.attack(visible(outcome, context.view.threat))
        made = [item for item in result.reconstructions if item.source.name == source.name]
        # An image of a record that no client holds may be compared with any record, whatever its class.
        sets = [
            candidates(replace(item.source, labels=0 * item.source.labels - 1), context.data.clients)
            for item in made
        ]
        used = np.flatnonzero([len(part) > 0 for part in sets[0]]) if sets else np.zeros(0, np.int64)
        if len(used) < 2:
            raise NotRunError(
                f"the method on records that no client holds leads to {len(used)} images; 2 are needed"
            )
        matched = _record_match(made[0], used, [sets[0][i] for i in used], setting.pool)
        return self._match(matched, context.seeds.numpy("nobody", source.name), context)

    def _controls(
        self, pool: Pool, held_out: Records, context: AttackedContext
    ) -> tuple[ImageMatch, ImageMatch] | None:
        """Images of raw features of private records, and of records that no client holds: one inversion for both.

        None where the attack reads no features.

        Raises:
            NotRunError: The attack drew so few of the vectors that a control has none to speak of.
        """
        key = f"inversion control/{self}/{context.attack_key}/{context.num_tests}"
        return context.data.once(key, lambda: self._both(pool, held_out, context))

    def _both(
        self, pool: Pool, held_out: Records, context: AttackedContext
    ) -> tuple[ImageMatch, ImageMatch] | None:
        rng = control_seeds(context, "inversion", "records").numpy()
        private = joined("private", context.data.clients)
        chosen = np.sort(rng.permutation(len(private))[: self.control_records])
        try:
            result = context.attack(raw_view([private.take(chosen, _HELD), held_out], context))
        except NothingToReadError:
            return None
        made = next(item for item in result.reconstructions if item.source.name == "raw")
        senders = np.array(made.source.senders)
        controls = []
        for sender in (_HELD, _FRESH):
            of = np.flatnonzero(senders == sender)
            if len(of) < 2:
                raise NotRunError(
                    "the attack leaves fewer than 2 images for a control; raise its `max_vectors` or `max_images`"
                )
            rows = made.source.rows[of]
            sets = [chosen[row : row + 1] for row in rows]
            if sender == _FRESH:
                # Any private record of the class: the image knows none of them.
                same = [np.flatnonzero(pool.labels[: pool.private] == held_out.labels[row]) for row in rows]
                sets = [rng.choice(part, 1) for part in same]
            vectors = made.source.vectors[of].astype(np.float64)
            matched = RecordMatch(made.images[of, 0], vectors, sets, pool, between=False)
            controls.append(self._match(matched, rng, context))
        return controls[0], controls[1]

    def _metrics(self, values: _Values, shown: ImageMatch) -> dict[str, Metric]:
        """Of the images themselves, and against fresh records."""
        metrics = {key: metric_of(part, key) for key, part in values.items()}
        metrics["psnr_each"] = metric_of(shown.each, "psnr")
        remark = f"over fresh records of the class; permutation p = {shown.p:.2g}"
        metrics["psnr_gain"] = metric_of(shown.psnr - shown.fresh_psnr, "psnr", remark)
        return metrics

    def _context_metrics(
        self, made: Reconstruction, used: Ints, shown: ImageMatch, setting: _Setting
    ) -> dict[str, Metric]:
        """Metrics of the misfit between images and their vectors, and of the best images without inversion."""
        context, pool = setting.context, setting.pool
        misfit = np.asarray(setting.result.scores[f"misfit/{made.source.name}"], np.float64)[used]
        metrics = {"misfit": Metric(value=float(np.median(misfit)), n=len(misfit), reason=_MISFIT)}
        vectors = made.source.vectors
        if len(context.data.attacker) and vectors.shape[1] == context.data.attacker.features.shape[1]:
            near = nearest_feature(
                vectors[used], context.data.attacker, pool.images[shown.records], context.similarity
            )
            plain = context.similarity.measure(pool.images[shown.records], near)["psnr"]
            remark = "the attacker's own image with the nearest feature, without inversion"
            metrics["psnr_nearest_own"] = metric_of(plain, "psnr", remark)
        return metrics

    def _values(self, shown: ImageMatch, pool: Pool, context: AuditContext) -> tuple[_Values, _Values]:
        """Every metric of the images, and of fresh records in the place of the true ones, shape (k,) each."""
        ours = context.similarity.measure(pool.images[shown.records], shown.images)
        parts = [context.similarity.measure(pool.images[others], shown.images) for others in shown.fresh]
        return ours, {key: np.mean([part[key] for part in parts], axis=0) for key in ours}


def _nonprivate(released: NonPrivateImages, setting: _Setting) -> RecordMatch:
    """Images of control records with these.

    Raises:
        NotRunError: Fewer than 2 images can be held against any.
    """
    sets = candidates(released.made.source, released.clients)
    used = np.flatnonzero([len(part) > 0 for part in sets])
    if len(used) < 2:
        raise NotRunError(f"{len(used)} images of control records can be held against these")
    pool = _pool(joined("control", released.clients), setting.fresh, setting.context)
    return _record_match(released.made, used, [sets[i] for i in used], pool)


def _pool(private: Records, fresh: Records, context: AuditContext) -> Pool:
    """Private and fresh records; pools of one seed with equal records have equal exchanges."""
    return make_pool(private, fresh, encoder(context), control_seeds(context, "inversion", "exchanges").integer())


def _record_match(made: Reconstruction, used: Ints, sets: Sequence[Ints], pool: Pool) -> RecordMatch:
    vectors = made.source.vectors[used].astype(np.float64)
    return RecordMatch(made.images[used, 0], vectors, sets, pool, between(made.source.name))
