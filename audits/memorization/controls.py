"""Controls of the memorization audit: a model that knows its images by heart, and images that know no record."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedassay.data.records import Records
from fedassay.nets.generators import GENERATORS, one_hot, train_generator
from fedassay.nets.sampling import sample
from fedassay.nets.trained import TrainedDenoiser
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images, Ints


@dataclass(frozen=True, eq=False)
class Overfitted:
    """A diffusion model that has learnt a few images by heart: a `fedassay.exchange.models.Generator`.

    Attributes:
        model: It.
        labels: Of the images that it has learnt.
        classes: C.
        device: Where to compute.
    """

    model: TrainedDenoiser
    labels: Ints
    classes: int
    device: str

    def sample(self, count: int, seeds: Seeds, progress: Progress) -> Images:
        """`count` images, labels in turn; without guidance, which would lead away from the images learnt."""
        with progress.step("sampling") as advance:
            return sample(
                self.model,
                one_hot(np.resize(self.labels, count), self.classes),
                seed=seeds.integer("noise"),
                guidance=1.0,
                device=self.device,
                progress=advance,
            )


@dataclass(frozen=True, eq=False)
class Redrawn:
    """Draws from images as they are: a `fedassay.exchange.models.Generator` that knows only them.

    Attributes:
        images: Shape (n, H, W, C), n at least 1.
    """

    images: Images

    def sample(self, count: int, seeds: Seeds, progress: Progress) -> Images:
        """`count` of the images, with replacement."""
        del progress
        return self.images[seeds.numpy("rows").integers(len(self.images), size=count)]


def overfit(
    records: Records, classes: int, *, steps: int, seeds: Seeds, device: str, progress: Progress
) -> Overfitted:
    """Train the smallest generator on a few records, all of them in every step.

    Args:
        records: At most 64.
        classes: C.
        steps: Training steps.
        seeds: Of training.
        device: Where to compute.
        progress: Where training reports.
    """
    with progress.step("positive control") as advance:
        model = train_generator(
            records.images,
            records.labels,
            classes,
            replace(GENERATORS["tiny"], batch=max(32, len(records))),
            epochs=steps,
            seed=seeds.integer("training"),
            device=device,
            progress=advance,
        )
    return Overfitted(model, records.labels, classes, device)


def halves(records: Records, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Positions of two disjoint sets of records with the same number of each class."""
    first: list[Ints] = [np.zeros(0, dtype=np.int64)]
    second: list[Ints] = [np.zeros(0, dtype=np.int64)]
    for label in np.unique(records.labels):
        pool = rng.permutation(np.flatnonzero(records.labels == label))
        size = len(pool) // 2
        first.append(pool[:size])
        second.append(pool[size : 2 * size])
    return np.sort(np.concatenate(first)), np.sort(np.concatenate(second))
