"""What the DP-SGD steps of a run really did, measured where they are taken.

The ledger takes a training's word for its noise, its clipping and its sampling. Here each step is looked at from
outside of the code that does these: the sum of the gradients before the noise against the sum after
it, and how many records came into it. `fedassay.audits.claim.training` holds the log against what was declared.
Nothing of it leaves a client, and measuring changes no step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from fedassay.nets.private_steps import PrivateSteps


@dataclass
class Measured:
    """All steps of a run that were declared alike.

    Attributes:
        trainings: How many times such steps were begun.
        steps: Steps taken.
        offered: Records that could have come into a step, summed over the steps.
        sampled: Records that did.
        coordinates: Numbers that noise was added to, summed over the steps.
        squares: Sum of the squares of what was added to them.
        longest: Largest norm of a step's sum before the noise, over the number of its records and over the norm
            that they were to be clipped to: above 1, some record was not clipped.
    """

    trainings: int = 0
    steps: int = 0
    offered: int = 0
    sampled: int = 0
    coordinates: int = 0
    squares: float = 0.0
    longest: float = 0.0


StepLog = dict[PrivateSteps, Measured]
"""What was measured, by what was declared."""

_LOG: ContextVar[StepLog | None] = ContextVar("steps of DP-SGD", default=None)


@contextmanager
def steps_measured() -> Iterator[StepLog]:
    """Measure every step of DP-SGD in this block."""
    log: StepLog = {}
    token = _LOG.set(log)
    try:
        yield log
    finally:
        _LOG.reset(token)


def note_training(private: PrivateSteps) -> None:
    """Steps declared as `private` begin."""
    log = _LOG.get()
    if log is not None:
        log.setdefault(private, Measured()).trainings += 1


@torch.no_grad()
def note_step(
    private: PrivateSteps, offered: int, sampled: int, clipped: Sequence[Tensor], given: Sequence[Tensor]
) -> None:
    """One step has been taken.

    Args:
        private: What was declared of it.
        offered: Records that could have come into it.
        sampled: Records that did.
        clipped: Sums of their clipped gradients, any shapes.
        given: What the optimiser is given for them: noised, and divided by `private.batch`.
    """
    log = _LOG.get()
    if log is None:
        return
    found = log.setdefault(private, Measured())
    found.steps += 1
    found.offered += offered
    found.sampled += sampled
    found.coordinates += sum(part.numel() for part in clipped)
    added = [after * private.batch - before for before, after in zip(clipped, given, strict=True)]
    found.squares += float(torch.stack([part.double().square().sum() for part in added]).sum())
    if sampled:
        length = float(torch.stack([part.double().square().sum() for part in clipped]).sum().sqrt())
        found.longest = max(found.longest, length / (sampled * private.norm))
