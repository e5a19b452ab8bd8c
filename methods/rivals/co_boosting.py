"""Co-Boosting (Dai et al., ICLR 2024): images and ensemble make each other better, and a student learns from both.

As a rival of FedCGS: Guan et al. 2025, table 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from fedassay.contracts.facts import MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.methods.shared.data_free import DataFree, Game, Members, away, seconds

_SOFTENED = 4.0
"""Temperature at which the direction of a harder image is looked for; that of the authors' code."""


@register("method", "co_boosting")
class CoBoosting(DataFree):
    """DENSE's game with hard images and a weighted ensemble.

    A round draws latent vectors and labels, both inputs of the generator, and adapts the generator and the latent
    vectors by (section 3.1)

        (1 - p_y)^hardness CE(ensemble(x), y) + statistics * BN(x) - boundary * KL(ensemble(x) || student(x)),

    p_y the ensemble's probability of the label, held fixed: images on which the ensemble is confident count less.
    Then the weight of each client in the ensemble takes a step of fixed size against the sign of its gradient on
    all images kept, and stays in [0, 1]; weights need not add up to 1 (section 3.2, and the authors' code). The
    student imitates the weighted ensemble on harder images: they are moved by `shift` along the sign of a random
    direction's gradient (equation 7).

    In a private run the classifiers are trained by DP-SGD; all the rest is post-processing.

    Attributes:
        hardness: Power of the weight of hard images; 1 in the authors' code.
        statistics: Weight of the batch-norm term, see `dense`; 0 in the authors' code.
        shift: Distance that images are moved, in shares of the range of pixels; 8 / 255 in the authors' code.
        weight_step: Size of a step of the ensemble's weights; 0.01 in the authors' code.
        weight_decay: Factor on that size in every round; 0.99 in the authors' code.
        temperature: Temperature of the distillation; 4 in the authors' code.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(cost=seconds)

    hardness: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    statistics: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    shift: float = Field(default=8 / 255, ge=0, le=1)
    weight_step: float = Field(default=0.01, ge=0, le=1)
    weight_decay: float = Field(default=0.99, gt=0, le=1)
    temperature: float = Field(default=4.0, gt=0, allow_inf_nan=False)

    def run(self, task: MethodInput) -> Outcome:
        """One round: classifiers up, the student down.

        Raises:
            PlanError: Images do not fit through a body.
            DataError: No client has a record, or training has diverged.
        """
        _, messages = self.networks.train(task, "co_boosting")
        members = self.networks.received(messages, task)
        ensemble = Weighted([member.module for member in members]).to(task.device)
        game = Game(self, "co_boosting", ensemble, self.statistics, task)
        images, labels, scores = [], [], []
        for number in task.progress.each("distillation", range(self.rounds)):
            made, asked = game.generate(self._hard, lambda taught, own: away(taught, own, self.temperature).mean())
            images.append(made)
            labels.append(asked)
            with torch.no_grad():
                scores.append(ensemble.apart(made))
            if number:
                size = self.weight_step * self.weight_decay**number
                ensemble.weigh(torch.cat(scores, dim=1), torch.cat(labels), size)
            kept = torch.cat(images)
            for rows in game.lessons(kept):
                game.learn(self._lesson(kept[rows], game))
        weights = ensemble.weights.tolist()
        utility = {"smallest_weight": min(weights), "largest_weight": max(weights)}
        return self.outcome("co_boosting", task, (messages, members), game.end(), utility)

    def _hard(self, taught: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy, with less weight on images that the ensemble is confident about."""
        sure = taught.softmax(dim=1).gather(1, labels[:, None])[:, 0].detach()
        entropy = functional.cross_entropy(taught, labels, reduction="none")
        return ((1 - sure) ** self.hardness * entropy).mean()

    def _lesson(self, images: Tensor, game: Game) -> Tensor:
        harder = self.harder(images, game.ensemble, game.source)
        with torch.no_grad():
            taught = game.ensemble(harder)
        return away(taught, game.student(harder), self.temperature).mean()

    def harder(self, images: Tensor, ensemble: Members, source: torch.Generator) -> Tensor:
        """Images moved along the sign of the gradient of a random direction's softened probabilities."""
        if not self.shift:
            return images
        moved = images.clone().requires_grad_(True)
        found = (ensemble(moved) / _SOFTENED).softmax(dim=1)
        direction = (2 * torch.rand(found.shape, generator=source) - 1).to(found.device)
        (gradient,) = torch.autograd.grad((direction * found).sum(), moved)
        return (images + 255 * self.shift * gradient.sign()).clamp(0, 255)


class Weighted(Members):
    """The weighted sum of the scores of several frozen classifiers (equation 1)."""

    weights: Tensor

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__(members)
        self.register_buffer("weights", torch.full((len(members),), 1 / len(members)))

    def forward(self, images: Tensor) -> Tensor:
        """(n, channels, height, width) to scores (n, C)."""
        return torch.einsum("k,knc->nc", self.weights, self.apart(images))

    def weigh(self, scores: Tensor, labels: Tensor, size: float) -> None:
        """A step of the weights against the sign of their gradient.

        Args:
            scores: Scores of every member on all images that are kept, shape (members, n, C).
            labels: Labels of the images, shape (n,).
            size: Size of the step.
        """
        weights = self.weights.clone().requires_grad_(True)
        loss = functional.cross_entropy(torch.einsum("k,knc->nc", weights, scores), labels)
        (gradient,) = torch.autograd.grad(loss, weights)
        self.weights.copy_((weights.detach() - size * gradient.sign()).clamp(0, 1))
