"""Similarity to records of a generator's most similar images, in the metrics of reconstructions.

A receiver of a generator needs no attack to rebuild a record from it: the best picture that it has drawn of a
record is the sample most like it. The same samples are held against records of the same classes that no client
trained on, which gives the similarity that look-alikes reach. The verdict does not rest on these figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np

from fedassay.audits.memorization.facts import MOST_SAMPLES
from fedassay.audits.stats.typed_intervals import mean_within
from fedassay.contracts.metrics import declared
from fedassay.records.record import Metric, PictureColumn, unmeasured
from fedassay.similarity.metrics import Similarity
from fedassay.similarity.ssim_search import most_similar
from fedassay.support.types import Images, Matrix

MOST_SHOWN = 12
"""Records that are shown beside the samples most like them."""
_SAID = "of the sample most like each training record, by SSIM"
_BESIDE = "of the same samples, for records outside the training"


@dataclass(eq=False)
class MostAlike:
    """The sample most like each record of one client, and of as many records that its generator never saw.

    Attributes:
        training: Shape (n, H, W, C).
        heldout: Shape (m, H, W, C).
        device: Device of the comparison.
        seen: Samples that were looked at so far.
    """

    training: Images
    heldout: Images
    device: str
    seen: int = 0
    _best: Images = field(init=False)
    _values: Matrix = field(init=False)

    def __post_init__(self) -> None:
        self._best = np.concatenate([self.training, self.heldout])
        self._values = np.full(len(self._best), -np.inf)

    def add(self, images: Images) -> None:
        """Look at a block of samples, as far as `MOST_SAMPLES` goes."""
        images = images[: MOST_SAMPLES - self.seen]
        if not len(images):
            return
        self.seen += len(images)
        records = np.concatenate([self.training, self.heldout])
        found = most_similar(records, images, device=self.device)
        better = found.values > self._values
        self._best[better] = images[found.indices[better]]
        self._values[better] = found.values[better]

    @property
    def found(self) -> tuple[Images, Images, Matrix]:
        """The training records, the sample most like each, and its SSIM: shapes (n, H, W, C) twice, and (n,)."""
        size = len(self.training)
        return self.training, self._best[:size], self._values[:size]

    def measured(self, similarity: Similarity) -> tuple[dict[str, Matrix], ...]:
        """Every metric of the training records, (n,) each, and of the held-out ones, (m,) each."""
        size = len(self.training)
        return (
            similarity.measure(self.training, self._best[:size]),
            similarity.measure(self.heldout, self._best[size:]),
        )


def sample_metrics(
    clients: Sequence[MostAlike], similarity: Similarity
) -> tuple[dict[str, Metric], dict[str, Metric]]:
    """The metrics of all clients together: of training records, and of the held-out ones as baseline."""
    parts = [each.measured(similarity) for each in clients]
    found: list[dict[str, Metric]] = []
    for side, said in enumerate((_SAID, _BESIDE)):
        values = {name: np.concatenate([part[side][name] for part in parts]) for name in parts[0][side]}
        metrics = {name: _mean(each, name, said) for name, each in values.items()}
        for name, remark in similarity.remarks.items():
            metrics[name] = (
                metrics[name].model_copy(update={"reason": f"{said}; {remark}"})
                if name in metrics
                else unmeasured(remark)
            )
        found.append(metrics)
    return found[0], found[1]


def pictured(
    clients: Sequence[MostAlike], attacker: Images, most: int, similarity: Similarity
) -> tuple[dict[str, Images], list[PictureColumn]]:
    """Rows and columns of a grid: training records, their look-alikes, and the samples most like them.

    Half of the records are those with the sample most like them; the others are the same at every epsilon.

    Args:
        clients: Of the cell.
        attacker: The adversary's own images, whose most similar one is a record's look-alike; may be empty.
        most: At most so many columns.
        similarity: The metrics below each column.
    """
    records, samples, ssim = (
        np.concatenate(parts) for parts in zip(*(each.found for each in clients), strict=True)
    )
    drawn = sorted(range(len(records)), key=lambda at: crc32(records[at].tobytes()))
    kept = list(dict.fromkeys((*np.argsort(-ssim, kind="stable")[: most // 2].tolist(), *drawn)))[:most]
    private, nearest = records[kept], samples[kept]
    rows = {"private image": private}
    if len(attacker):
        rows["attacker's image"] = attacker[most_similar(private, attacker, device=similarity.device).indices]
    values = similarity.measure(private, nearest)
    columns = [
        PictureColumn(metrics={name: float(each[at]) for name, each in values.items()}) for at in range(len(kept))
    ]
    return {**rows, "nearest sample": nearest}, columns


def _mean(values: Matrix, name: str, said: str) -> Metric:
    facts = declared(name)
    mean = mean_within(values, facts.low, facts.high)
    reason = "; ".join(part for part in (said, mean.reason) if part)
    return mean.metric(reason, facts.unit)
