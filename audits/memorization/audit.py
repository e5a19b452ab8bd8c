"""Does a generator that a client sends give back the client's own images?

Audit A3; paper 004, section 5.2.

From each client's generator five times as many images are drawn as it was trained on, and scored by Carlini's
adaptive distance to the training records (Carlini et al., "Extracting Training Data from Diffusion Models", 2023,
section 5.1). A score under the threshold is a copy. How many of these there are depends on the data as well, so
the verdict rests on a test that does not: the same images, held against records of the same classes that nobody
trained on. Given the generator, training and held-out records are exchangeable if it has learnt nothing but
their distribution; a leak is that more training than held-out records are given back, or, where no claim of
privacy allows membership some room, that training records lie closer to the generated images at all.

A null result means that no images like the training records were drawn: it does not bound what another way of
sampling, or of reading the weights, would find.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.audits.memorization.controls import Redrawn, halves, overfit
from fedassay.audits.memorization.judging import (
    Judged,
    by_client,
    histogram_of,
    judge,
    metrics_of,
    tested_metrics,
)
from fedassay.audits.memorization.scores import Scores, Search, deal, distinct, match_classes, score, without
from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records, joined
from fedassay.exchange.models import Generator
from fedassay.records.record import (
    Controls,
    Finding,
    NegativeControl,
    Picture,
    PictureColumn,
    PositiveControl,
    Verdict,
)
from fedassay.support.errors import NotRunError
from fedassay.support.registry import register
from fedassay.support.seeds import Seeds
from fedassay.support.types import Parameters

_DOUBTED = 0.05
"""p-value of the negative control up to which training records that are closer, but not copied, are no leak."""


@register("audit", "memorization")
class MemorizationAudit(Parameters):
    """Whether generators that clients send give back training images: adaptive distance, held-out records."""

    reads: ClassVar[tuple[str, ...] | None] = None
    tests_per_cell: ClassVar[int] = 2

    factor: float = Field(default=5.0, gt=0, allow_inf_nan=False)
    """Generated images for each training record; 5 in the paper."""
    neighbours: int = Field(default=50, ge=2)
    """n of the adaptive distance."""
    alpha: float = Field(default=0.5, gt=0, allow_inf_nan=False)
    """Its scale."""
    threshold: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Scores below count as copies."""
    closest: int = Field(default=30, ge=0)
    """Pairs of generated and nearest training image that are shown."""
    control_records: int = Field(default=64, ge=8, le=64)
    """At most so many images are learnt by heart for the positive control."""
    control_steps: int = Field(default=1500, ge=1)
    """Training steps of its model."""
    draws: int = Field(default=2000, ge=200)
    """Least number of permutations, and number of bootstrap resamples."""

    def assess(self, result: None, context: AuditContext) -> list[Finding]:
        """One finding on all generators of the cell."""
        if not context.outcome.generators:
            raise NotRunError("the method sends no generator")
        owners = [
            (distinct(own), generator)
            for name, generator in context.outcome.generators.items()
            if (own := context.records(name)) is not None and len(distinct(own)) >= 2
        ]
        if not owners:
            raise NotRunError("no client that sent a generator holds two different images")
        unseen, seeds = self._unseen(context), context.seeds.child("memorization")
        dealt = deal([own for own, _ in owners], unseen, seeds.numpy("deal"))
        scores, names = [], []
        for (own, generator), held in zip(owners, dealt, strict=True):
            matched, kept = match_classes(own, held, seeds.numpy("heldout", own.name))
            if len(matched) < 2:
                continue
            names.append(own.name)
            count = max(1, round(self.factor * len(own)))
            given = (own, matched, held.take(kept), self._search(context, self.closest))
            scores.append(score(generator, count, *given, seeds.child(own.name), context.workplace.progress))
        if not scores:
            raise NotRunError(
                "no held-out records of the clients' classes; more records in the attacker or test role are needed"
            )
        judged = self._judge(scores, context, seeds.numpy("test"))
        return [
            self._finding(
                judged, names, self._positive(unseen, context), self._negative(owners, dealt, context), context
            )
        ]

    def _search(self, context: AuditContext, closest: int) -> Search:
        return Search(self.neighbours, self.alpha, context.workplace.device, closest)

    def _unseen(self, context: AuditContext) -> Records:
        """Records of the private distribution that no client holds, each image once."""
        return without(
            distinct(joined("heldout", [context.fresh, context.test])), joined("private", context.clients)
        )

    def _judge(self, scores: Sequence[Scores], context: AuditContext, rng: np.random.Generator) -> Judged:
        return judge(scores, self.threshold, rng, tests=context.bounds, draws=self.draws)

    def _positive(self, unseen: Records, context: AuditContext) -> Judged:
        """A diffusion model that has learnt a few private images by heart; the same for every cell of a seed."""
        key = f"memorization control/{self.model_dump_json()}/{context.bounds}"
        made = context.workplace.shared.get(key)
        if isinstance(made, Judged):
            return made
        # Not the cell's own stream: which cell comes first depends on the number of workers.
        seeds = Seeds(context.seeds.seed or 0).child("memorization", "control")
        private = distinct(joined("private", context.clients))
        ours, _ = match_classes(private, unseen, seeds.numpy("match"))
        chosen = np.sort(seeds.numpy("records").permutation(ours)[: self.control_records])
        records = private.take(chosen, "control")
        matched, held = match_classes(records, unseen, seeds.numpy("heldout"))
        generator = overfit(
            records,
            context.classes,
            steps=self.control_steps,
            seeds=seeds,
            device=context.workplace.device,
            progress=context.workplace.progress,
        )
        count = max(1, round(self.factor * len(records)))
        given = (records, matched, unseen.take(held), self._search(context, 0))
        found = score(generator, count, *given, seeds.child("images"), context.workplace.progress)
        made = context.workplace.shared[key] = self._judge([found], context, seeds.numpy("test"))
        return made

    def _negative(
        self, owners: Sequence[tuple[Records, Generator]], dealt: Sequence[Records], context: AuditContext
    ) -> Judged | None:
        """Either half of a client's images in the place of generated ones, asked about the other half.

        Nothing of that half is in them. If it lies closer to them than held-out records do, these are not of the
        client's distribution, and no test against them can speak of memory.
        """
        seeds = context.seeds.child("memorization", "negative")
        scores = []
        for (own, _), held in zip(owners, dealt, strict=True):
            parts = halves(own, seeds.numpy("halves", own.name))
            aside = halves(held, seeds.numpy("heldout halves", own.name))
            for number, (shown, asked, others) in enumerate(zip(parts, parts[::-1], aside, strict=True)):
                rest, unseen = own.take(asked), held.take(others)
                matched, kept = match_classes(rest, unseen, seeds.numpy("heldout", own.name, number))
                if len(matched) < 2:
                    continue
                count = max(1, round(self.factor * len(shown)))
                given = (rest, matched, unseen.take(kept), self._search(context, 0))
                drawn = Redrawn(own.images[shown])
                scores.append(
                    score(drawn, count, *given, seeds.child(own.name, number), context.workplace.progress)
                )
        return self._judge(scores, context, seeds.numpy("test")) if scores else None

    def _finding(
        self,
        judged: Judged,
        names: Sequence[str],
        positive: Judged,
        negative: Judged | None,
        context: AuditContext,
    ) -> Finding:
        values, heldout = judged.training, judged.heldout
        copies = int((values < self.threshold).sum())
        shown = (
            f"{copies} of {len(values)} generated images score under {self.threshold:g} (smallest "
            f"{values.min():.2f}; against held-out records {int((heldout < self.threshold).sum())} and "
            f"{heldout.min():.2f}); {judged.shown}"
        )
        # A claim allows membership some room, and what of it is used is for the audits of claims to say.
        claimed = context.privacy.private
        verdict: Verdict = "no_leak_found"
        reason = f"no generated image is a copy: {shown}"
        if judged.separated and claimed:
            reason = f"{reason}; {judged.apart}, which is membership, not memorization"
        if negative is None:
            verdict, reason = "inconclusive", f"too few records for a negative control; {shown}"
        elif negative.flagged or (negative.separated and not claimed):
            which = negative.shown if negative.flagged else negative.apart
            verdict, reason = "inconclusive", f"the negative control was flagged ({which}); {shown}"
        elif not positive.flagged:
            verdict, reason = "inconclusive", f"a model that knows its images by heart was missed; {shown}"
        elif judged.flagged:
            verdict, reason = "leak", f"training records are given back: {shown}"
        elif judged.separated and not claimed and negative.gap.p <= _DOUBTED:
            verdict = "inconclusive"
            reason = (
                f"{judged.apart}, but so may records that no generator saw (p = {negative.gap.p:.2g}): {shown}"
            )
        elif judged.separated and not claimed:
            verdict, reason = "leak", f"{judged.apart}: {shown}"
        elif copies:
            verdict, reason = (
                "inconclusive",
                f"low scores, but not of training records more than of others: {shown}",
            )
        known = positive.training
        return Finding(
            audit="memorization",
            source=names[0] if len(names) == 1 else f"{len(names)} generators",
            selection="all",
            metrics={**metrics_of(values, self.threshold), **tested_metrics(judged)},
            baseline=metrics_of(heldout, self.threshold),
            controls=Controls(
                positive=PositiveControl(
                    release=f"a diffusion model overfitted on {positive.gap.n[0]} of the private images",
                    caught=positive.flagged,
                    value=positive.copied.value,
                    n=positive.copied.n[0],
                    detail=f"{positive.shown}; {int((known < self.threshold).sum())} of {len(known)} images under "
                    f"{self.threshold:g}",
                ),
                negative=None
                if negative is None
                else NegativeControl(
                    release="either half of each client's images as if generated, asked about the other half",
                    flagged=negative.flagged or (negative.separated and not claimed),
                    value=negative.copied.value,
                    n=negative.copied.n[0],
                    detail=negative.shown,
                ),
            ),
            verdict=verdict,
            reason=reason,
            assumptions=self._assumptions(judged, context),
            pictures=self._pictures(judged.scores, context),
            series={"scores": histogram_of(values, heldout), "clients": by_client(judged, names)},
        )

    def _assumptions(self, judged: Judged, context: AuditContext) -> tuple[str, ...]:
        fewest = min(each.neighbours for each in judged.scores)
        found = [
            f"{self.factor:g} generated images a training record; adaptive distance over {self.neighbours} "
            f"neighbours, alpha {self.alpha:g}, Euclidean on pixels; duplicates dropped",
            "given back: nearest record of a generated image with a score under the threshold, among training and "
            "held-out records together; leak: so are more training than held-out records, permuted within client "
            f"and class, one-sided 95 % corrected for {context.bounds} tests",
            "heldout_gap asks for less: whether training records are closer at all, which is membership, not yet "
            "memorization",
        ]
        held = sum(len(each.heldout_closeness) for each in judged.scores)
        trained = sum(each.trained for each in judged.scores)
        if held < trained:
            found.append(
                f"only {held} held-out records for {trained} training records: the test takes as many of each; "
                "the two columns of scores are over galleries of different size"
            )
        if fewest < self.neighbours:
            found.append(
                f"a client has only {fewest} records: its scores run over these and are not comparable with those "
                f"over {self.neighbours} neighbours"
            )
        return tuple(found)

    def _pictures(self, scores: Sequence[Scores], context: AuditContext) -> tuple[Picture, ...]:
        if not self.closest:
            return ()
        smallest = np.concatenate([each.smallest for each in scores])
        best = np.argsort(smallest, kind="stable")[: self.closest]
        rows = {
            "nearest training image": np.concatenate([each.nearest for each in scores])[best],
            "generated image": np.concatenate([each.generated for each in scores])[best],
        }
        columns = [PictureColumn(metrics={"score": float(smallest[index])}) for index in best]
        title = f"the {len(best)} generated images closest to a training image"
        return (context.workplace.grid((), title, rows, columns),)
