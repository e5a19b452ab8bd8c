"""Controls of the memorization audit: a model that knows its images by heart, and records nobody trained on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedassay.nets.generators import GENERATORS, one_hot, train_generator
from fedassay.nets.sampling import sample
from fedassay.nets.trained import TrainedDenoiser
from fedassay.progress import Progress
from fedassay.seeds import Seeds
from fedassay.task import Records
from fedassay.values import Images, Ints


@dataclass(frozen=True, eq=False)
class Overfitted:
    """A diffusion model that has learnt a few images by heart: a `fedassay.task.Generator`.

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


def halves(unseen: Records, held: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Two disjoint sets of records that nobody trained on, with the same number of each class.

    Args:
        unseen: All such records.
        held: Positions of those that the result is compared with; each set has as many of a class as these
            where there are twice as many in all, and half of all otherwise.
        rng: Deals them out.
    """
    first: list[Ints] = [np.zeros(0, dtype=np.int64)]
    second: list[Ints] = [np.zeros(0, dtype=np.int64)]
    rest = np.setdiff1d(np.arange(len(unseen)), held)
    for label in np.unique(unseen.labels[held]):
        own = held[unseen.labels[held] == label]
        pool = rng.permutation(np.concatenate([own, rest[unseen.labels[rest] == label]]))
        size = min(len(own), len(pool) // 2)
        first.append(pool[:size])
        second.append(pool[size : 2 * size])
    return np.sort(np.concatenate(first)), np.sort(np.concatenate(second))
