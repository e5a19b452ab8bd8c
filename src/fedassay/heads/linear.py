"""Linear classifier heads over frozen features, and their training by cross-entropy.

FedPFT's server trains one on synthetic features (Beitollahi et al. 2024, equation 4); raw features and the
centralized oracle train the same one on real features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from fedassay.data.records import Records
from fedassay.support.optimisation import Minibatches, take_step
from fedassay.support.progress import SILENT, Progress
from fedassay.support.types import Floats, Ints, Matrix

_STEPS = 200
DECAY = 1e-2
"""Default L2 penalty on standardised weights.

Of 0, 1e-5, ..., 1e-1 the best or within one point of it on digits (pixels and features of a small network)
and on CIFAR-10 (512 SqueezeNet features, 6,000 records: 61 % against 52 % without a penalty).
"""


class Head(Protocol):
    """A classifier over the features of a frozen backbone."""

    @property
    def classes(self) -> Ints:
        """Shape (P,), ascending: the classes that it knows."""
        ...

    def scores(self, features: Floats) -> Matrix:
        """Scores of features (n, d), shape (n, P)."""
        ...

    def predict(self, features: Floats) -> Ints:
        """Classes of features (n, d), shape (n,)."""
        ...


@dataclass(frozen=True)
class LinearHead:
    """A linear classifier over the classes it knows.

    Attributes:
        classes: Shape (P,), ascending: a class that no record taught it is never predicted.
        weights: Shape (P, d).
        bias: Shape (P,).
    """

    classes: Ints
    weights: Floats
    bias: Floats

    def scores(self, features: Floats) -> Matrix:
        """Scores of features (n, d), shape (n, P)."""
        rows = np.asarray(features, dtype=np.float64)
        return np.asarray(rows @ self.weights.T.astype(np.float64) + self.bias, dtype=np.float64)

    def predict(self, features: Floats) -> Ints:
        """Classes of features (n, d), shape (n,)."""
        return np.asarray(self.classes[self.scores(features).argmax(axis=1)], dtype=np.int64)


@dataclass(frozen=True)
class FeatureModel:
    """The frozen backbone with a head: a `fedassay.contracts.method.Model`.

    Attributes:
        head: The classifier.
        transform: The map applied to features (n, d) before the head: the same as for the features of its training
            (clipping, expansion); None: the identity.
    """

    head: Head
    transform: Callable[[Floats], Floats] | None = None

    def predict(self, records: Records) -> Ints:
        """Predicted classes, shape (n,)."""
        features = records.features
        return self.head.predict(features if self.transform is None else self.transform(features))


def train_head(
    features: Floats,
    labels: Ints,
    *,
    decay: float = DECAY,
    minibatches: Minibatches | None = None,
    generator: torch.Generator | None = None,
    device: str | torch.device = "cpu",
    progress: Progress = SILENT,
    classes: int | None = None,
) -> LinearHead:
    """Train a softmax head by cross-entropy over the classes that occur, or over a given number of them.

    L-BFGS (default) minimises a convex objective over the whole set to a gradient tolerance: mean cross-entropy
    plus decay / 2 times the squared weights on standardised features. The result depends on no seed. The paper's
    training is by minibatches of unstandardised features, without a penalty.

    Args:
        features: Shape (n, d), n >= 1.
        labels: Shape (n,), any class numbers.
        decay: L2 penalty of L-BFGS, at least 0; with 0 separable classes have no minimum, and the
            solver stops after 200 iterations.
        minibatches: Passes, size of a minibatch, and optimiser; None: L-BFGS.
        generator: A CPU generator that shuffles minibatches, which need one.
        device: Device of the training.
        progress: The display that long trainings report to.
        classes: C: the head has a row for each of the classes 0 to C - 1, even if it does not occur; None: for
            those that occur. Absent classes are trained as never the answer. Without a penalty on the biases that
            has no minimum, so L-BFGS then penalises these like the weights.

    Returns:
        The head, in float32, in the units of `features`.

    Raises:
        ValueError: No records, shapes that do not match, or non-finite features.
    """
    _check(features, labels, decay)
    known, targets, absent = _targets(labels, classes)
    inputs = torch.as_tensor(np.asarray(features, dtype=np.float32), device=device)
    goals = torch.as_tensor(targets, device=device)
    if minibatches is not None:
        if generator is None:
            raise ValueError("train_head: training by minibatches shuffles and needs a generator")
        matrix, bias = _by_minibatches(inputs, goals, len(known), minibatches, generator, progress)
    else:
        matrix, bias = _lbfgs(inputs, goals, len(known), decay, absent, progress)
    return LinearHead(known.astype(np.int64), matrix.cpu().numpy(), bias.cpu().numpy())


def _targets(labels: Ints, classes: int | None) -> tuple[Ints, Ints, bool]:
    """The classes of the head, each record's place among them, and whether some do not occur."""
    present, places = np.unique(labels, return_inverse=True)
    if classes is None:
        return present, places, False
    if present[0] < 0 or present[-1] >= classes:
        raise ValueError(f"train_head: labels must lie in 0..{classes - 1}, given {present[0]}..{present[-1]}")
    return np.arange(classes), np.asarray(labels, dtype=np.int64), len(present) < classes


def _lbfgs(
    inputs: torch.Tensor,
    goals: torch.Tensor,
    classes: int,
    decay: float,
    biases_too: bool,
    progress: Progress,
) -> tuple[torch.Tensor, torch.Tensor]:
    centre = inputs.mean(0)
    spread = inputs.std(0, correction=0)
    # A feature that never moves teaches nothing: its weight stays at 0 instead of exploding.
    scale = torch.where(spread > 1e-6 * spread.max(), spread, torch.inf)
    standard = (inputs - centre).div_(scale)  # in place: this is the largest array of a run of many clients
    matrix = torch.zeros(classes, inputs.shape[1], device=inputs.device, requires_grad=True)
    bias = torch.zeros(classes, device=inputs.device, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [matrix, bias],
        max_iter=_STEPS,
        tolerance_grad=1e-5,
        tolerance_change=1e-12,
        history_size=20,
        line_search_fn="strong_wolfe",
    )
    with progress.step("head") as advance:
        calls = 0

        def closure() -> torch.Tensor:
            nonlocal calls
            calls += 1
            advance(min(calls, _STEPS), _STEPS)
            optimiser.zero_grad()
            losses = torch.nn.functional.cross_entropy(standard @ matrix.T + bias, goals, reduction="none")
            loss = losses.mean() + 0.5 * decay * matrix.square().sum()
            if biases_too:
                loss = loss + 0.5 * decay * bias.square().sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimiser.step(closure)  # type: ignore[no-untyped-call]
    final = matrix.detach() / scale
    return final, bias.detach() - final @ centre


def _by_minibatches(
    inputs: torch.Tensor,
    goals: torch.Tensor,
    classes: int,
    minibatches: Minibatches,
    generator: torch.Generator,
    progress: Progress,
) -> tuple[torch.Tensor, torch.Tensor]:
    matrix = torch.zeros(classes, inputs.shape[1], device=inputs.device, requires_grad=True)
    bias = torch.zeros(classes, device=inputs.device, requires_grad=True)
    optimizer = minibatches.build([matrix, bias])
    with progress.step("head") as advance:
        for epoch in range(minibatches.epochs):
            shuffled = torch.randperm(len(goals), generator=generator).to(inputs.device)
            for rows in torch.split(shuffled, minibatches.batch):
                scores = inputs[rows] @ matrix.T + bias
                losses = torch.nn.functional.cross_entropy(scores, goals[rows], reduction="none")
                take_step(optimizer, losses.mean())
            advance(epoch + 1, minibatches.epochs)
    return matrix.detach(), bias.detach()


def _check(features: Floats, labels: Ints, decay: float) -> None:
    if features.ndim != 2 or len(features) < 1 or labels.shape != (len(features),):
        raise ValueError(
            f"train_head: features {features.shape} and labels {labels.shape}; "
            "at least one labelled record is needed"
        )
    if not np.isfinite(features).all():
        raise ValueError("train_head: features hold NaN or infinite values")
    if not (decay >= 0 and np.isfinite(decay)):
        raise ValueError(f"train_head: decay must be finite and at least 0, given {decay}")
