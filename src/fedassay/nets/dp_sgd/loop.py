"""DP-SGD: the one loop of all private training, for heads as for whole diffusion models.

Abadi et al., "Deep Learning with Differential Privacy" (2016), algorithm 1: records are sampled independently
(Poisson), every record's gradient is clipped, and the sum is noised. AdamW follows the noised sum over a constant,
which is post-processing. Empty batches release noise alone. A batch goes through the network in parts; their
clipped gradients are added up before there is any noise.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from fedassay.nets.checkpoint import KEPT_EVERY, TrainingState, read_checkpoint, write_checkpoint
from fedassay.nets.dp_sgd.clipped_sums import ClippedSums, trained
from fedassay.nets.dp_sgd.record_gradients import CHECKED_STEPS
from fedassay.nets.dp_sgd.tape import Training, digest, put_weights, replayed, watch, write
from fedassay.nets.dp_sgd.watch import TrainingWatch
from fedassay.privacy.tape import running_tape
from fedassay.support.progress import Advance, no_progress


def train_with_noise(
    training: Training,
    *,
    known: bool = False,
    progress: Advance = no_progress,
    checkpoint: Path | None = None,
    fingerprint: str = "",
) -> dict[str, Tensor]:
    """Train a network in place by DP-SGD, or in a replay restore the weights of the first run.

    Args:
        training: The network, its records and its settings.
        known: Whether every layer must be of a kind with known per-record gradients.
        progress: Called with (steps done, total steps).
        checkpoint: A file for the state of the run, written now and then, to resume the same run.
        fingerprint: Name of the run in that file.

    Returns:
        The released weights by parameter name: the network's own, or their moving average.

    Raises:
        RuntimeError: Per-record gradients are not those of the records.
        TypeError: `known`, and a layer is of another kind.
    """
    training.network.train()
    tape = running_tape()
    private = training.private
    clip = ClippedSums(training.network, training.objective, private.norm, known=known, engine=private.engine)
    if tape is not None and tape.answers is not None and (found := replayed(training, tape)) is not None:
        put_weights(training.network, found)
        training.network.eval()
        return found
    start = "" if tape is None else digest(training.network)
    watching = None if tape is None else watch(training, tape)
    state = _initial_state(training)
    done = 0
    if checkpoint is not None:
        done, kept = read_checkpoint(checkpoint, fingerprint, state)
        if watching is not None and done:
            watching.restore(kept, done, state)
    _take_steps(training, clip, state, watching, done, progress, checkpoint, fingerprint)
    own = state.average if training.updates.average else state.parameters
    released = {name: each.detach().clone() for name, each in own.items()}
    if tape is not None and watching is not None:
        write(training, start, watching, released, tape)
    training.network.eval()
    return released


def _take_steps(
    training: Training,
    clip: ClippedSums,
    state: TrainingState,
    watching: TrainingWatch | None,
    done: int,
    progress: Advance,
    checkpoint: Path | None,
    fingerprint: str,
) -> None:
    """All steps after the first `done`."""
    steps = training.private.steps
    # A shadow release takes the steps of a run that was checked.
    checked = CHECKED_STEPS if training.mechanism.shadow else 0
    for step in range(done, steps):
        if watching is not None:
            watching.before(step, training.inputs, training.labels)
        checked += _take_step(step, training, clip, state, watching, check=checked < CHECKED_STEPS)
        progress(step + 1, steps)
        if checkpoint is not None and (step + 1) % KEPT_EVERY == 0:
            write_checkpoint(
                checkpoint, fingerprint, step + 1, state, None if watching is None else watching.state()
            )


def _take_step(
    step: int,
    training: Training,
    clip: ClippedSums,
    state: TrainingState,
    watching: TrainingWatch | None,
    *,
    check: bool,
) -> bool:
    """Take one step; returns whether it has checked the gradients of a batch with possible mixing of records."""
    private, mechanism = training.private, training.mechanism
    chosen = mechanism.sampled(step, len(training.labels), private.sampling_rate)
    rows = torch.from_numpy(chosen).to(training.labels.device)
    sums = clip(training.inputs[rows], training.labels[rows], mechanism.streams(step, chosen), check=check)
    noised = mechanism.noised(step, sums, private.noise_multiplier * private.norm)
    means = [noised[name] for name in state.parameters]
    if mechanism.shadow:
        # No other code reads these.
        torch._foreach_div_(means, private.batch)
    else:
        means = list(torch._foreach_div(means, private.batch))
    for parameter, mean in zip(state.parameters.values(), means, strict=True):
        parameter.grad = mean.to(parameter.dtype)
    state.optimizer.step()
    if training.updates.average:
        training.updates.follow(list(state.average.values()), list(state.parameters.values()), step)
    if watching is not None:
        watching.after(step, chosen, sums, noised)
    return check and len(chosen) > 1


def _initial_state(training: Training) -> TrainingState:
    parameters = trained(training.network)
    averaged = parameters if training.updates.average else {}
    return TrainingState(
        parameters=parameters,
        average={name: p.detach().clone() for name, p in averaged.items()},
        # Nothing is selected here: a choice by records would be another release.
        best={},
        best_loss=torch.tensor(torch.inf),
        best_step=0,
        optimizer=training.updates.optimizer(parameters.values()),
        generator=None,
    )
