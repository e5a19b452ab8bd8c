"""The noise mechanism of private training: it draws a step's records and adds its noise.

It has three kinds of random streams, which are never mixed. Noise is keyed by sender, round, field, step and
parameter. Coins (the choice of a step's records, and the draws in a record's loss) are keyed by step and by the
record's place, so that neighbouring sets share them. Initial weights are public and come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedassay.nets.dp_sgd.clipped_sums import RecordStreams
from fedassay.privacy.tape import Key
from fedassay.support.seeds import Seeds


@dataclass(frozen=True)
class TrainingMechanism:
    """The noise mechanism of one training.

    Attributes:
        noise: Root of the noise streams of a run.
        hidden_randomness: Root of its hidden coins.
        key: Key of the release of the trained weights; parameter and step are added to it.
        shadow: Whether this is an attack's shadow release, which is neither published nor measured. Its noise has
            the same law, in float32 and from one stream a step, at a third of the time.
    """

    noise: Seeds
    hidden_randomness: Seeds
    key: Key
    shadow: bool = field(default=False, kw_only=True)

    def sampled(self, step: int, records: int, rate: float) -> NDArray[np.int64]:
        """Places of the records that come into a step, each independently with probability `rate` (Poisson)."""
        drawn = self.hidden_randomness.numpy("sampling", *self.key.path, step).random(records) < rate
        return np.flatnonzero(drawn)

    def streams(self, step: int, positions: NDArray[np.int64]) -> RecordStreams:
        """The records' own streams in a step."""
        return RecordStreams(self.hidden_randomness.integer("draws", *self.key.path, step), positions)

    def noised(self, step: int, sums: Mapping[str, Tensor], deviation: float) -> dict[str, Tensor]:
        """The sums plus normals of standard deviation `deviation`, float64, by parameter name.

        That of a shadow is float32.
        """
        if self.shadow:
            return self._at_once(step, sums, deviation)
        return {name: self._noised(name, step, each.detach(), deviation) for name, each in sums.items()}

    def _noised(self, name: str, step: int, exact: Tensor, deviation: float) -> Tensor:
        source = self.noise.numpy(*replace(self.key, part=name, step=step).path)
        noise = torch.from_numpy(np.asarray(source.standard_normal(tuple(exact.shape)))).to(exact.device)
        return noise.mul_(deviation).add_(exact)

    def _at_once(self, step: int, sums: Mapping[str, Tensor], deviation: float) -> dict[str, Tensor]:
        """Return sums with noise for all parameters from one stream.

        Its tails end at 5.8 deviations, and the step's seed reveals all of it. That is enough to learn the
        distribution of releases, but not to protect one.
        """
        exact = [each.detach() for each in sums.values()]
        sizes = [each.numel() for each in exact]
        source = torch.Generator().manual_seed(self.noise.integer(*replace(self.key, step=step).path))
        noise = torch.empty(sum(sizes)).normal_(0.0, deviation, generator=source).to(exact[0].device)
        noised = [part.view_as(each) for part, each in zip(torch.split(noise, sizes), exact, strict=True)]
        torch._foreach_add_(noised, exact)
        return dict(zip(sums, noised, strict=True))
