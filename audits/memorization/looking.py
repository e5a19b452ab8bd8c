"""Generators' images held against records in a space where copies stay close that pixel distance misses.

Scores are those of `fedassay.audits.memorization.scores`, with the distance of another space, to the alteration of
an image that fits a record best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.memorization.scores import Found, Scores, Search
from fedassay.audits.memorization.spaces import Space
from fedassay.data.records import Records
from fedassay.exchange.models import Generator
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images, Ints

_TOGETHER = 512
_SHORTEST = 1e-12


@dataclass(frozen=True, eq=False)
class Watched:
    """Generator with an observer of its images: a `fedassay.exchange.models.Generator`.

    Attributes:
        generator: The generator that draws the images.
        seen: Called with every block of them.
    """

    generator: Generator
    seen: Callable[[Images], None]

    def sample(self, count: int, seeds: Seeds, progress: Progress) -> Images:
        """`count` images of the generator."""
        images = self.generator.sample(count, seeds, progress)
        self.seen(images)
        return images


@dataclass(eq=False)
class Looks:
    """Generators' images held against records in a space, client by client.

    Attributes:
        space: The space of the comparison.
        search: Parameters of the scores.
        made: The images that were compared so far.
    """

    space: Space
    search: Search
    made: list[_Look] = field(default_factory=list)

    def beside(self, training: Records, matched: Ints, heldout: Records) -> Callable[[Images], None]:
        """Return a callback for every block of a generator's images; arguments are those of `scores.score`."""
        self.made.append(_Look(self.space, self.search, training, matched, heldout))
        return self.made[-1].add

    @property
    def scores(self) -> list[Scores]:
        """Scores by client."""
        return [each.scores for each in self.made]


@dataclass(eq=False)
class _Look:
    """One generator's images in a space, block by block."""

    space: Space
    search: Search
    training: Records
    matched: Ints
    heldout: Records
    found: Found = field(init=False)
    _vectors: NDArray[np.float32] = field(init=False)
    _centre: NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        raw = np.asarray(self.space.embed(np.concatenate([self.training.images, self.heldout.images])), np.float32)
        gallery = raw[self._gallery]
        # The mean over both groups alike: a test that exchanges them must not be able to tell them by it.
        self._centre = gallery.mean(axis=0) if self.space.centred else np.zeros(raw.shape[1], np.float32)
        self._vectors = _unit(raw - self._centre)
        self.found = Found(np.full(len(gallery), 1 / self.search.alpha))

    @property
    def _gallery(self) -> Ints:
        return np.concatenate([self.matched, len(self.training) + np.arange(len(self.heldout))])

    def add(self, images: Images) -> None:
        """Score a block of images."""
        for start in range(0, len(images), _TOGETHER):
            part = images[start : start + _TOGETHER]
            distances = self._distances(part)
            size, gallery = len(self.training), self._gallery
            ours, nearest = self._adaptive(distances[:, :size])
            theirs, _ = self._adaptive(distances[:, size:])
            both, places = self._adaptive(distances[:, gallery])
            np.minimum.at(self.found.closeness, places, both)
            self.found.training.append(ours)
            self.found.heldout.append(theirs)
            self.found.keep(part, self.training.images[nearest], ours, self.search.closest)

    def _distances(self, images: Images) -> NDArray[np.float64]:
        """To every record, of the alteration that fits it best, (n, training + held-out)."""
        best = np.full((len(images), len(self._vectors)), -1.0, np.float32)
        for shown in self.space.alterations(images):
            vectors = _unit(np.asarray(self.space.embed(shown), np.float32) - self._centre)
            np.maximum(best, vectors @ self._vectors.T, out=best)
        return np.sqrt(np.maximum(0.0, 2.0 - 2.0 * best.astype(np.float64)))

    def _adaptive(self, distances: NDArray[np.float64]) -> tuple[NDArray[np.float64], Ints]:
        """The adaptive distance of each image and its nearest record; see `fedassay.similarity.memorization`."""
        count = min(self.search.neighbours, distances.shape[1])
        mean = np.partition(distances, count - 1, axis=1)[:, :count].mean(axis=1)
        least = distances.min(axis=1)
        scores = np.divide(least, self.search.alpha * mean, out=np.zeros_like(least), where=mean > 0)
        return scores, np.asarray(distances.argmin(axis=1), np.int64)

    @property
    def scores(self) -> Scores:
        """Scores of the images seen so far."""
        size = len(self.matched)
        return Scores(
            training=np.concatenate(self.found.training),
            heldout=np.concatenate(self.found.heldout),
            closeness=self.found.closeness[:size],
            heldout_closeness=self.found.closeness[size:],
            strata=(self.training.labels[self.matched], self.heldout.labels),
            trained=len(self.training),
            neighbours=min(self.search.neighbours, len(self.training)),
            generated=self.found.generated,
            nearest=self.found.nearest,
            smallest=self.found.smallest,
        )


def _unit(vectors: Floats) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, _SHORTEST), np.float32)
