"""Checks of a private training against its declaration, made while its steps are taken.

Every step is observed from outside of the code that takes it. The choice of its records, the noise added to their
sum and the resulting weights are computed again from the declaration, the streams and the noised sums alone. At a
few steps, chosen beforehand from public coins, every record of the batch is computed again by itself. Gradients
are not stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedassay.nets.checkpoint import TrainingState
from fedassay.nets.dp_sgd.alone import Alone, each_alone, length_of, scaled_to
from fedassay.nets.dp_sgd.clipped_sums import Objective, RecordStreams, trained
from fedassay.nets.dp_sgd.facts import TrainingFacts
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.shadow import ShadowUpdates
from fedassay.nets.dp_sgd.statistics import NoiseBlocks, sampling_p_values
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.support.errors import is_of_the_machine
from fedassay.support.seeds import Seeds

TESTED = 8
"""Steps at which single records are computed again."""

_FIRST = 256
"""Numbers of a parameter's noise that are computed again in steps that are not tested; in those, all are."""

_TOLERANCE = 1e-3
"""Relative: sums are float32."""


def chosen_steps(steps: int) -> tuple[int, ...]:
    """The first step, the last, and one drawn from each part between them; public and fixed beforehand."""
    if steps <= TESTED:
        return tuple(range(steps))
    rng = Seeds(0).numpy("tested steps", steps)
    edges = np.linspace(1, steps - 1, TESTED - 1).round().astype(int)
    between = [int(rng.integers(low, high)) for low, high in pairwise(edges)]
    return (0, *between, steps - 1)


class TrainingWatch:
    """A record of the steps of one training.

    Args:
        network: The network at the start of the training.
        records: Number of records.
        objective: The loss.
        private: The declared steps.
        updates: The declared optimiser.
        mechanism: Its streams.
        room: Numbers that may be kept for weights at tested steps.

    Attributes:
        kept: The weights before tested steps, by step, as many as there is room for.
        partial: The reason that some steps were not seen; empty: all were.
    """

    def __init__(
        self,
        network: nn.Module,
        records: int,
        objective: Objective,
        private: PrivateSteps,
        updates: Updates,
        mechanism: TrainingMechanism,
        *,
        room: int,
    ) -> None:
        self._network, self._objective = network, objective
        self._private, self._mechanism = private, mechanism
        self._failures: dict[str, tuple[int, str]] = {}
        self._counts = np.zeros(records, dtype=np.int64)
        self._sizes: list[int] = []
        self._skipped = 0
        self._alone: Alone | None = None
        self.partial = ""
        self.kept: dict[int, dict[str, Tensor]] = {}
        self.tested = chosen_steps(private.steps)
        parameters = trained(network)
        size = sum(parameter.numel() for parameter in parameters.values())
        self._keeps = _evenly(self.tested, room // max(1, size))
        self.blocks = NoiseBlocks(max(1, size))
        self._noise = np.zeros(size)
        self._shadow = ShadowUpdates(network, updates, private.batch)

    def before(self, step: int, inputs: Tensor, labels: Tensor) -> None:
        """A step begins on these records."""
        if step in self._keeps:
            self.kept[step] = {name: p.detach().cpu().clone() for name, p in trained(self._network).items()}
        self._alone = None
        if step in self.tested:
            positions = self._coins(step)
            try:
                self._alone = each_alone(
                    self._network,
                    self._objective,
                    inputs,
                    labels,
                    self._streams(step, positions),
                    self._private.norm,
                )
            except (ValueError, IndexError, RuntimeError) as error:
                if is_of_the_machine(error):
                    raise
                self._fail(
                    "alone", f"step {step + 1}: a record cannot be computed alone ({error}): layers mix records"
                )

    @torch.no_grad()
    def after(
        self, step: int, chosen: NDArray[np.int64], sums: Mapping[str, Tensor], noised: Mapping[str, Tensor]
    ) -> None:
        """A step has been taken.

        Args:
            step: Number of the step.
            chosen: Places of the records in it.
            sums: Sums of their clipped gradients.
            noised: The noise mechanism's outputs for these sums.
        """
        self._sizes.append(len(chosen))
        self._counts[chosen] += 1
        if step >= self._private.steps:
            self._fail("steps", f"step {step + 1} was taken where {self._private.steps} were declared")
        expected = self._coins(step)
        if not np.array_equal(chosen, expected):
            self._fail(
                "coins",
                f"step {step + 1}: {len(chosen)} records were taken where the coins at the declared sampling rate "
                f"{self._private.sampling_rate:.4g} choose {len(expected)} (not the same ones)",
            )
        self._hold_sums(step, len(chosen), sums)
        self._hold_noise(step, sums, noised)
        self._follow(step, noised)

    def end(self, released: Mapping[str, Tensor]) -> tuple[TrainingFacts, dict[str, NDArray[np.float32]]]:
        """The training is over.

        Args:
            released: The weights that it gives out.

        Returns:
            The facts, and the weights that follow from the noised sums alone.
        """
        own = self._shadow.released()
        for name, each in own.items():
            if name not in released or not torch.equal(each, released[name].detach()):
                self._fail("released", f"the released weights {name} do not follow from the noised sums alone")
                break
        taken = self._skipped + len(self._sizes)
        if taken < self._private.steps:
            self._fail("steps", f"{taken} steps were taken where {self._private.steps} were declared")
        facts = TrainingFacts(
            tuple(words if n == 1 else f"{words} (and {n - 1} more)" for n, words in self._failures.values()),
            self._shown(),
            self._p_values(),
            len(self._counts),
            len(self._sizes),
            self.blocks.share,
            self.blocks.coordinates,
            self.partial,
            self.kept,
        )
        return facts, {name: each.cpu().numpy().copy() for name, each in own.items()}

    def _shown(self) -> str:
        sizes, blocks = self._sizes, self.blocks
        tested = sum(0 <= step - self._skipped < len(sizes) for step in self.tested)
        return (
            f"{len(sizes):,} steps: coins, noise and weights computed again in each; "
            f"every record alone and all noise in {tested}; "
            f"{int(self._counts.sum()):,} of {len(sizes) * len(self._counts):,} inclusions; "
            f"noise {blocks.share:.4g} of the declared over {blocks.coordinates:,} numbers"
        )

    def _p_values(self) -> dict[str, float]:
        sampling = sampling_p_values(self._counts, np.array(self._sizes, np.int64), self._private.sampling_rate)
        found = {f"noise: {name}": p for name, p in self.blocks.p_values().items()}
        return found | {f"sampling: {name}": p for name, p in sampling.items()}

    def state(self) -> dict[str, Tensor]:
        """Everything that is not a function of the weights, for a checkpoint."""
        words = json.dumps(
            {"failures": self._failures, "partial": self.partial, "skipped": self._skipped}
        ).encode()
        found = {f"blocks.{name}": torch.from_numpy(each) for name, each in self.blocks.state().items()}
        for step, weights in self.kept.items():
            found |= {f"kept.{step}.{name}": each for name, each in weights.items()}
        return found | {
            "words": torch.from_numpy(np.frombuffer(words, dtype=np.uint8).copy()),
            "counts": torch.from_numpy(self._counts.copy()),
            "sizes": torch.tensor(self._sizes, dtype=torch.int64),
        }

    def restore(self, found: Mapping[str, Tensor], step: int, state: TrainingState) -> None:
        """Resume the watch after `step` steps.

        Args:
            found: From `state`; empty where the training was not watched.
            step: Steps done.
            state: Weights, their average and the optimiser's moments after those steps.
        """
        self._shadow.restore(state)
        if not found:
            self.partial = f"its first {step:,} steps were taken unobserved, and found in a checkpoint"
            self._skipped = step
            return
        words = json.loads(found["words"].numpy().tobytes())
        self._failures = {kind: (int(count), text) for kind, (count, text) in words["failures"].items()}
        self.partial, self._skipped = words["partial"], int(words["skipped"])
        self._counts, self._sizes = found["counts"].numpy().copy(), found["sizes"].tolist()
        self.blocks.restore(
            {name.removeprefix("blocks."): each.numpy() for name, each in found.items() if name[:7] == "blocks."}
        )
        for name, each in found.items():
            if name.startswith("kept."):
                _, number, parameter = name.split(".", 2)
                self.kept.setdefault(int(number), {})[parameter] = each

    def _fail(self, kind: str, words: str) -> None:
        count, first = self._failures.get(kind, (0, words))
        self._failures[kind] = (count + 1, first)

    def _coins(self, step: int) -> NDArray[np.int64]:
        """The records that come into a step, from their stream: not through the noise mechanism's own code."""
        drawn = self._mechanism.hidden_randomness.numpy("sampling", *self._mechanism.key.path, step).random(
            len(self._counts)
        )
        return np.flatnonzero(drawn < self._private.sampling_rate)

    def _streams(self, step: int, positions: NDArray[np.int64]) -> RecordStreams:
        return RecordStreams(
            self._mechanism.hidden_randomness.integer("draws", *self._mechanism.key.path, step), positions
        )

    def _hold_sums(self, step: int, count: int, sums: Mapping[str, Tensor]) -> None:
        norm = self._private.norm
        length = length_of(sums)
        if not length <= count * norm * (1 + _TOLERANCE):
            self._fail(
                "long",
                f"step {step + 1}: the sum over {count} records is {length:.4g} long, "
                f"{length / max(1, count):.4g} for each, where gradients are declared to be clipped to {norm:g}",
            )
        alone = self._alone
        if alone is None or alone.matches(sums, alone.clipped):
            return
        words = "is not that of the records of the batch, each computed and clipped alone"
        if alone.matches(sums, alone.plain):
            words = "is that of gradients that were not clipped"
        elif alone.matches(sums, scaled_to(alone.plain, norm)):
            words = "is that of the batch, clipped as a whole and not record by record"
        self._fail("sums", f"step {step + 1}: what went into the noise {words}, at norm {norm:g}")

    def _hold_noise(self, step: int, sums: Mapping[str, Tensor], noised: Mapping[str, Tensor]) -> None:
        deviation, start = self._private.noise_multiplier * self._private.norm, 0
        for name, exact in sums.items():
            before, after = (each.detach().cpu().numpy().ravel() for each in (exact, noised[name]))
            noise = self._noise[start : start + before.size]
            np.subtract(after, before, out=noise)
            start += before.size
            # A stream's first numbers are the same however many are drawn.
            count = before.size if step in self.tested else min(before.size, _FIRST)
            source = self._mechanism.noise.numpy(*replace(self._mechanism.key, part=name, step=step).path)
            expected = source.standard_normal(count) * deviation + before[:count].astype(np.float64)
            if not np.array_equal(expected, after[:count]):
                size = float(np.sqrt(np.mean(noise * noise))) / (deviation or 1.0)
                self._fail(
                    "noise",
                    f"step {step + 1}: what was added to {name} is not the noise of its stream: {size:.4g} of the "
                    "declared deviation",
                )
        if deviation and start:
            self.blocks.add(self._noise, deviation)

    def _follow(self, step: int, noised: Mapping[str, Tensor]) -> None:
        self._shadow.step(step, noised)
        # Once they have parted, they do not meet again.
        if "weights" not in self._failures and (words := self._shadow.difference(self._network)):
            self._fail("weights", f"step {step + 1}: {words}")


def _evenly(steps: tuple[int, ...], count: int) -> frozenset[int]:
    """Return this many tested steps, the last one first: in the first, layers that start at zero hide others."""
    if count >= len(steps):
        return frozenset(steps)
    chosen = np.linspace(len(steps) - 1, 0, max(count, 1)).round().astype(int)[:count]
    return frozenset(steps[index] for index in chosen)
