"""Scores of generated images against a generator's training records, and against records that it never saw.

Images are drawn and scored block by block: memory grows by one score an image.

The score of a generated image is Carlini's adaptive distance (`fedassay.similarity.memorization`). The test needs
a score of a *record*, since records are the exchangeable units: all training and held-out records make one
gallery. A record's closeness is the smallest score of the generated images nearest to it, or 1 / alpha, the
largest score, where it is the nearest of no image. Neither score depends on which records were trained on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedassay.data.records import Records
from fedassay.exchange.models import Generator
from fedassay.similarity.memorization import memorization_scores
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images, Ints, Matrix

_BLOCK = 4096


@dataclass(frozen=True)
class Search:
    """Parameters of the scores.

    Attributes:
        neighbours: n, the records that the mean distance runs over.
        alpha: Scale of the score.
        device: Torch device of the computation.
        closest: Number of pairs of images that are kept.
    """

    neighbours: int
    alpha: float
    device: str
    closest: int


@dataclass(eq=False)
class Scores:
    """Scores of one generator's images.

    Attributes:
        training: Score of each generated image against all training records.
        heldout: The same against the held-out records.
        closeness: Of each matched training record, see the module.
        heldout_closeness: Of each held-out record.
        strata: Class of each matched training and each held-out record.
        trained: Training records.
        neighbours: Records that the means run over; fewer than asked for where there are fewer.
        generated: The images with the smallest scores against the training records, smallest first.
        nearest: The training record nearest to each of these.
        smallest: Their scores.
    """

    training: Matrix
    heldout: Matrix
    closeness: Matrix
    heldout_closeness: Matrix
    strata: tuple[Ints, Ints]
    trained: int
    neighbours: int
    generated: Images
    nearest: Images
    smallest: Matrix


def score(
    generator: Generator,
    count: int,
    training: Records,
    matched: Ints,
    heldout: Records,
    search: Search,
    seeds: Seeds,
    progress: Progress,
) -> Scores:
    """Draw `count` images and score them.

    Args:
        generator: The generator that was sent.
        count: Number of images, at least 1.
        training: The records it was trained on, without duplicates.
        matched: Those that the test compares with the held-out ones: as many of each class.
        heldout: Records that it never saw.
        search: Parameters of the scores.
        seeds: Of the images.
        progress: Display that sampling reports to.
    """
    gallery = np.concatenate([training.images[matched], heldout.images])
    found = Found(np.full(len(gallery), 1 / search.alpha))
    for images in _blocks(generator, count, seeds, progress):
        ours = memorization_scores(
            images, training.images, n=search.neighbours, alpha=search.alpha, device=search.device
        )
        theirs = memorization_scores(
            images, heldout.images, n=search.neighbours, alpha=search.alpha, device=search.device
        )
        both = memorization_scores(images, gallery, n=search.neighbours, alpha=search.alpha, device=search.device)
        np.minimum.at(found.closeness, both.nearest, both.scores)
        found.training.append(ours.scores)
        found.heldout.append(theirs.scores)
        found.keep(images, training.images[ours.nearest], ours.scores, search.closest)
    size = len(matched)
    return Scores(
        training=np.concatenate(found.training),
        heldout=np.concatenate(found.heldout),
        closeness=found.closeness[:size],
        heldout_closeness=found.closeness[size:],
        strata=(training.labels[matched], heldout.labels),
        trained=len(training),
        neighbours=min(search.neighbours, len(training)),
        generated=found.generated,
        nearest=found.nearest,
        smallest=found.smallest,
    )


def distinct(records: Records) -> Records:
    """Drop records that repeat an earlier record's image: duplicates would hide memorization."""
    if not len(records):
        return records
    flat = records.images.reshape(len(records), -1)
    _, first = np.unique(flat, axis=0, return_index=True)
    return records.take(np.sort(first))


def deal(owners: Sequence[Records], unseen: Records, rng: np.random.Generator) -> list[Records]:
    """Deal every unseen record to one owner at most, each class in proportion to the owners' counts of it.

    One record held against two generators would make their results depend on each other, and a permutation test
    over both would not be exact; nor would it be with two records of one person, so one of each person is dealt.
    """
    if unseen.groups is not None:
        unseen = unseen.take(one_of_each(unseen.groups, rng))
    chosen: list[list[Ints]] = [[np.zeros(0, dtype=np.int64)] for _ in owners]
    for label in np.unique(unseen.labels):
        pool = rng.permutation(np.flatnonzero(unseen.labels == label))
        wanted = np.array([int((own.labels == label).sum()) for own in owners])
        share = min(1.0, len(pool) / max(1, wanted.sum()))
        ends = np.floor(np.cumsum(wanted) * share + 1e-9).astype(np.int64)
        for rows, start, end in zip(chosen, [0, *ends[:-1]], ends, strict=True):
            rows.append(pool[start:end])
    return [unseen.take(np.sort(np.concatenate(rows))) for rows in chosen]


def one_of_each(groups: Ints, rng: np.random.Generator) -> Ints:
    """The position of one record of each person, drawn at random: records of one person are no trials each."""
    order = rng.permutation(len(groups))
    return np.asarray(order[np.unique(groups[order], return_index=True)[1]], np.int64)


def match_classes(first: Records, second: Records, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Positions of as many records of each class in both sets, as many as both have; at most one of a person."""
    chosen: tuple[list[Ints], list[Ints]] = ([], [])
    usable = [
        np.arange(len(each)) if each.groups is None else np.sort(one_of_each(each.groups, rng))
        for each in (first, second)
    ]
    for label in np.intersect1d(first.labels, second.labels):
        rows = [
            rng.permutation(places[each.labels[places] == label])
            for each, places in zip((first, second), usable, strict=True)
        ]
        size = min(len(each) for each in rows)
        for side, each in zip(chosen, rows, strict=True):
            side.append(each[:size])
    nothing = np.zeros(0, dtype=np.int64)
    ours, theirs = (np.sort(np.concatenate([*side, nothing])) for side in chosen)
    return ours, theirs


@dataclass(eq=False)
class Found:
    """Scores and best pairs of the blocks so far."""

    closeness: Matrix
    training: list[Matrix] = field(default_factory=list)
    heldout: list[Matrix] = field(default_factory=list)
    generated: Images = field(default_factory=lambda: np.zeros((0, 1, 1, 1), dtype=np.uint8))
    nearest: Images = field(default_factory=lambda: np.zeros((0, 1, 1, 1), dtype=np.uint8))
    smallest: Matrix = field(default_factory=lambda: np.zeros(0))

    def keep(self, images: Images, nearest: Images, scores: Matrix, count: int) -> None:
        """Keep the pairs with the smallest scores of those known and these."""
        if len(self.smallest):
            images = np.concatenate([self.generated, images])
            nearest = np.concatenate([self.nearest, nearest])
        scores = np.concatenate([self.smallest, scores])
        best = np.argsort(scores, kind="stable")[:count]
        self.generated, self.nearest, self.smallest = images[best], nearest[best], scores[best]


def _blocks(generator: Generator, count: int, seeds: Seeds, progress: Progress) -> Iterator[Images]:
    for start in range(0, count, _BLOCK):
        yield generator.sample(min(_BLOCK, count - start), seeds.child("block", start), progress)
