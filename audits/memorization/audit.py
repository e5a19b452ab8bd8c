"""Audit of memorization: does a generator that a client sends give back the client's own images?

Audit A3; Mendieta et al. 2025, section 5.2.

From each client's generator five times as many images are drawn as it was trained on. They are scored by Carlini's
adaptive distance to the training records (Carlini et al., "Extracting Training Data from Diffusion Models", 2023,
section 5.1). A score under the threshold is a copy. How many of these there are depends on the data as well, so
the verdict rests on a test that does not: the same images, held against records of the same classes that no client
trained on. Given the generator, training and held-out records are exchangeable if it has learnt nothing but their
distribution; a leak is that more training than held-out records are given back, or, where no claim of privacy
allows membership some room, that training records lie closer to the generated images at all.

Its positive control is the method's own generator, overfitted to a few control records, drawn from and searched in
the same way: a sampler that draws constants or noise, or a search that finds the wrong neighbours, gives none of
them back. The limit of detection plants that control's copies among records that no generator has learnt.

A null result means that no images like the training records were drawn: it does not bound what another way of
sampling, or of reading the weights, would find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedassay.audits.evidence import Figures, Subject
from fedassay.audits.memorization.altered import Altered, Watch, copies_metric, watched
from fedassay.audits.memorization.controls import Redrawn, halves, overfitted
from fedassay.audits.memorization.detection_limit import for_halves, planted_limit
from fedassay.audits.memorization.facts import MEMORIZATION
from fedassay.audits.memorization.judging import (
    Memory,
    arms_of,
    by_client,
    histogram_of,
    judge,
    metrics_of,
    tested_metrics,
)
from fedassay.audits.memorization.looking import Watched
from fedassay.audits.memorization.samples import MOST_SHOWN, MostAlike, pictured, sample_metrics
from fedassay.audits.memorization.scores import Scores, Search, deal, distinct, match_classes, score
from fedassay.audits.memorization.spaces import SpaceName, altered
from fedassay.audits.simulation import control_seeds
from fedassay.audits.verdict import assay, inconclusive
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.registry import register
from fedassay.data.records import Records, joined
from fedassay.exchange.models import Generator
from fedassay.records.record import Finding, Limit, Picture, PictureColumn
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.seeds import Seeds
from fedassay.support.types import Ints, Parameters

FEWEST = 8
"""Records that a generator for the positive control is overfitted to, at least."""


_Asked = tuple[Records, Ints, Records]
"""Records that a generator trained on, the places of those that are matched, and as many held-out ones."""


@dataclass(frozen=True)
class _Controls:
    """Results of the same test on generators with known memory of records.

    Attributes:
        overfitted: The method's own, by architecture, the one that remembers least first; or why they could not be
            made.
        copies: Images of the clients' records as they are.
        negative: Images made without the records they are asked about; None: too few records.
        altered: Evidence of altered copies, with controls of its own; or why there was no search, empty: not
            asked.
    """

    overfitted: tuple[Memory, ...] | str
    copies: Memory
    negative: Memory | None
    altered: Altered | str


@register("audit", "memorization")
class MemorizationAudit(Parameters):
    """Whether generators that clients send give back training images: adaptive distance, held-out records."""

    facts: ClassVar[AuditFacts] = MEMORIZATION
    samples_per_record: float = Field(default=5.0, gt=0, allow_inf_nan=False)
    """Generated images for each training record; 5 in the paper."""
    neighbours: int = Field(default=50, ge=2)
    """n of the adaptive distance."""
    alpha: float = Field(default=0.5, gt=0, allow_inf_nan=False)
    """Scale of the adaptive distance."""
    threshold: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Scores below count as copies."""
    pictures: int = Field(default=30, ge=0)
    """Pairs of generated and nearest training image that are shown."""
    control_records: int = Field(default=24, ge=8, le=64)
    """At most so many control records the positive control's generator is overfitted to."""
    permutations: int = Field(default=2000, ge=200)
    """Least number of permutations, and number of bootstrap resamples."""
    altered_copies: Literal["none"] | SpaceName = "none"
    """Space of the search for copies that were mirrored, shifted or recoloured: `aligned` pixels, features of the
    `backbone`, or activations of `lpips`. It gives evidence towards a leak alone, and is one more test."""

    def assess(self, result: None, context: AuditContext) -> list[Finding]:
        """One finding on all generators of the cell."""
        if not context.outcome.generators:
            raise NothingToReadError("the method sends no generator")
        if context.view.threat.view != "per_client":
            raise NothingToReadError(f"the {context.view.threat.view} view shows no client's generator")
        owners = [
            (distinct(own), generator)
            for name, generator in context.outcome.generators.items()
            if (own := context.records(name)) is not None and len(distinct(own)) >= 2
        ]
        if not owners:
            raise NotRunError("no client that sent a generator holds two different images")
        unseen, seeds = self._unseen(context), context.seeds.child("memorization")
        dealt = deal([own for own, _ in owners], unseen, seeds.numpy("deal"))
        scores, names, alike = [], [], []
        watch = watched(self.altered_copies, self._search(context, self.pictures), context)
        for (own, generator), held in zip(owners, dealt, strict=True):
            asked = _matched(own, held, seeds.numpy("heldout", own.name))
            if asked is None:
                continue
            names.append(own.name)
            alike.append(MostAlike(own.images[asked[1]], asked[2].images, context.io.device))
            drawing = Watched(watch.over("audited", generator, asked), alike[-1].add)
            scores.append(self._scored(drawing, asked, seeds.child(own.name), context, self.pictures))
        if not scores:
            raise NotRunError(
                "no held-out records of the clients' classes; more records in the attacker or test role are needed"
            )
        memory = self._judge(scores, context, seeds.numpy("test"))
        controls = self._controls(owners, dealt, unseen, watch, context)
        finding = self._finding(memory, names, controls, context, len(unseen))
        metrics, baseline = sample_metrics(alike, context.similarity)
        update = {
            "metrics": {**finding.metrics, **metrics},
            "baseline": {**finding.baseline, **baseline},
            "pictures": (*finding.pictures, *self._nearest_samples(alike, context)),
        }
        return [finding.model_copy(update=update)]

    def _nearest_samples(self, alike: Sequence[MostAlike], context: AuditContext) -> tuple[Picture, ...]:
        most = min(self.pictures, MOST_SHOWN)
        if not most:
            return ()
        rows, columns = pictured(alike, context.data.attacker.images, most, context.similarity)
        title = f"the sample most like each of {len(columns)} training records"
        return (context.io.grid(("samples",), title, rows, columns),)

    def _controls(
        self,
        owners: Sequence[tuple[Records, Generator]],
        dealt: Sequence[Records],
        unseen: Records,
        watch: Watch,
        context: AuditContext,
    ) -> _Controls:
        try:
            made: tuple[Memory, ...] | str = self._overfitted(unseen, context)
        except NotRunError as error:
            made = error.why
        copies, negative = self._copies(owners, dealt, context), self._negative(owners, dealt, watch, context)
        seeds = context.seeds.child("memorization", "altered")
        told = watch.told(
            lambda scores, arm: self._judge(scores, context, seeds.numpy("test", arm)),
            lambda: self._copies(owners, dealt, context, watch, seeds),
        )
        return _Controls(made, copies, negative, told or watch.why)

    def _search(self, context: AuditContext, closest: int) -> Search:
        return Search(self.neighbours, self.alpha, context.io.device, closest)

    def _scored(
        self, drawn: Generator, asked: _Asked, seeds: Seeds, context: AuditContext, closest: int = 0
    ) -> Scores:
        """Scores of as many images as the plan wants of so many training records; `closest` pairs are kept."""
        count = max(1, round(self.samples_per_record * len(asked[0])))
        return score(drawn, count, *asked, self._search(context, closest), seeds, context.io.progress)

    def _unseen(self, context: AuditContext) -> Records:
        """Records of the private distribution that no client holds, each image once."""
        return distinct(joined("heldout", [context.data.fresh, context.data.test])).without(*context.data.clients)

    def _judge(self, scores: Sequence[Scores], context: AuditContext, rng: np.random.Generator) -> Memory:
        return judge(scores, self.threshold, rng, tests=context.num_tests, draws=self.permutations)

    def _overfitted(self, unseen: Records, context: AuditContext) -> tuple[Memory, ...]:
        """The method's own generators of a few control records; the same for cells that differ in epsilon alone.

        Raises:
            NotRunError: The control role is too small, or the method cannot be run on it.
        """
        key = f"memorization/{context.method_key}/{self.model_dump_json()}/{context.num_tests}"
        return context.data.once(key, lambda: self._remembering(unseen, context))

    def _remembering(self, unseen: Records, context: AuditContext) -> tuple[Memory, ...]:
        seeds = control_seeds(context, "memorization", "control")
        others = unseen.without(context.data.control)
        ours, _ = match_classes(distinct(context.data.control), others, seeds.numpy("match"))
        if len(ours) < FEWEST:
            raise NotRunError(
                f"the control role has {len(ours)} records with held-out ones of their class beside them; a "
                f"generator that is overfitted for the positive control takes {FEWEST}: give "
                f"data.split.control at least {FEWEST - len(ours)} more",
                role="control",
                held=len(context.data.control),
                needed=len(context.data.control) + FEWEST - len(ours),
            )
        chosen = np.sort(seeds.numpy("records").permutation(ours)[: self.control_records])
        records = distinct(context.data.control).take(chosen, "control")
        matched, held = match_classes(records, others, seeds.numpy("heldout"))
        asked = (records, matched, others.take(held))
        made = []
        with context.io.progress.step("positive control"):
            for number, generator in enumerate(overfitted(records, context)):
                images = seeds.child("images", number)
                scores = self._scored(generator, asked, images, context)
                made.append(self._judge([scores], context, seeds.numpy("test", number)))
        return tuple(sorted(made, key=lambda each: -each.copied.p))

    def _copies(
        self,
        owners: Sequence[tuple[Records, Generator]],
        dealt: Sequence[Records],
        context: AuditContext,
        watch: Watch | None = None,
        changes: Seeds | None = None,
    ) -> Memory:
        """Clients' images as they are, or altered, in the place of generated ones: the search alone."""
        seeds = changes or context.seeds.child("memorization", "copies")
        scores = []
        for (own, _), held in zip(owners, dealt, strict=True):
            asked = _matched(own, held, seeds.numpy("heldout", own.name))
            if asked is None:
                continue
            images = own.images if changes is None else altered(own.images, changes.numpy("changes", own.name))
            drawn: Generator = Redrawn(images)
            drawn = drawn if watch is None else watch.over("control", drawn, asked)
            scores.append(self._scored(drawn, asked, seeds.child(own.name), context))
        return self._judge(scores, context, seeds.numpy("test"))

    def _negative(
        self,
        owners: Sequence[tuple[Records, Generator]],
        dealt: Sequence[Records],
        watch: Watch,
        context: AuditContext,
    ) -> Memory | None:
        """Either half of a client's images in the place of generated ones, asked about the other half.

        Nothing of that half is in them. If it lies closer to them than held-out records do, these are not of the
        client's distribution, and no test against them can speak of memory.
        """
        seeds = context.seeds.child("memorization", "negative")
        scores = []
        for (own, _), held in zip(owners, dealt, strict=True):
            parts = halves(own, seeds.numpy("halves", own.name))
            aside = halves(held, seeds.numpy("heldout halves", own.name))
            for number, (shown, rest, others) in enumerate(zip(parts, parts[::-1], aside, strict=True)):
                asked = _matched(own.take(rest), held.take(others), seeds.numpy("heldout", own.name, number))
                if asked is None:
                    continue
                drawn = watch.over("negative", Redrawn(own.images[shown]), asked)
                scores.append(self._scored(drawn, asked, seeds.child(own.name, number), context))
        return self._judge(scores, context, seeds.numpy("test")) if scores else None

    def _finding(
        self, memory: Memory, names: Sequence[str], controls: _Controls, context: AuditContext, unseen: int
    ) -> Finding:
        source = names[0] if len(names) == 1 else f"{len(names)} generators"
        subject, told = Subject("memorization", source=source, selection="all"), controls.altered
        figures = Figures(
            metrics={
                **metrics_of(memory.training, self.threshold),
                **tested_metrics(memory),
                **copies_metric(told),
            },
            baseline=metrics_of(memory.heldout, self.threshold),
            assumptions=self._assumptions(memory, context),
            pictures=(
                *self._pictures(memory.scores, context),
                *(() if isinstance(told, str) else self._pictures(told.memory.scores, context, told.space.name)),
            ),
            series={
                "scores": histogram_of(memory.training, memory.heldout),
                "clients": by_client(memory, names),
            },
        )
        negative, own = controls.negative, controls.overfitted
        if negative is None:
            return inconclusive(subject, for_halves(memory, unseen), figures)
        claimed, rng = context.privacy.private, control_seeds(context, "memorization", "limit").numpy()

        def limit() -> Limit | str:
            return own if isinstance(own, str) else planted_limit(memory, negative, own[0], rng, unseen=unseen)

        arms = arms_of(memory, own, controls.copies, negative, claimed=claimed, limit=limit)
        return assay(subject, arms if isinstance(told, str) else told.towards_leak(arms), figures)

    def _assumptions(self, memory: Memory, context: AuditContext) -> tuple[str, ...]:
        fewest = min(each.neighbours for each in memory.scores)
        lines = [
            f"{self.samples_per_record:g} generated images a training record; adaptive distance over "
            f"{self.neighbours} neighbours, alpha {self.alpha:g}, Euclidean on pixels; duplicates dropped",
            "given back: nearest record of a generated image with a score under the threshold, among training and "
            "held-out records together; leak: so are more training than held-out records, permuted within client "
            f"and class, one-sided 95 % corrected for {context.num_tests} tests",
            "heldout_gap asks for less: whether training records are closer at all, which is membership, not yet "
            "memorization",
        ]
        held = sum(len(each.heldout_closeness) for each in memory.scores)
        trained = sum(each.trained for each in memory.scores)
        if held < trained:
            lines.append(
                f"only {held} held-out records for {trained} training records: the test takes as many of each; "
                "the two columns of scores are over galleries of different size"
            )
        if fewest < self.neighbours:
            lines.append(
                f"a client has only {fewest} records: its scores run over these and are not comparable with those "
                f"over {self.neighbours} neighbours"
            )
        return tuple(lines)

    def _pictures(self, scores: Sequence[Scores], context: AuditContext, space: str = "") -> tuple[Picture, ...]:
        if not self.pictures:
            return ()
        smallest = np.concatenate([each.smallest for each in scores])
        best = np.argsort(smallest, kind="stable")[: self.pictures]
        rows = {
            "nearest training image": np.concatenate([each.nearest for each in scores])[best],
            "generated image": np.concatenate([each.generated for each in scores])[best],
        }
        columns = [PictureColumn(metrics={"score": float(smallest[index])}) for index in best]
        title = f"the {len(best)} generated images closest to a training image"
        if space:
            title = f"{title}, altered ({space})"
        return (context.io.grid((space,) if space else (), title, rows, columns),)


def _matched(own: Records, held: Records, rng: np.random.Generator) -> _Asked | None:
    """The records with held-out ones, as many of each class; None where fewer than two have one."""
    matched, kept = match_classes(own, held, rng)
    return None if len(matched) < 2 else (own, matched, held.take(kept))
