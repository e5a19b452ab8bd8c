"""Co-Boosting (Dai et al., ICLR 2024): images and ensemble make each other better, and a student learns from both.

As a rival of FedCGS: Guan et al. 2025, table 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from fedassay.contracts.facts import MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.exchange.release import derived
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.methods.rivals.dense import away, seconds
from fedassay.methods.rivals.ensemble import of_network, sent_classifiers
from fedassay.methods.shared.classifiers import Classifiers, read
from fedassay.methods.shared.local_heads import Ensemble
from fedassay.methods.shared.local_networks import LocalNetwork
from fedassay.nets.batch_statistics import KeptStatistics
from fedassay.nets.cvae import one_hot
from fedassay.nets.generator import build_generator
from fedassay.support.optimisation import OptimizerKey, chosen, take_step
from fedassay.support.seeds import Seeds
from fedassay.support.types import Parameters

_SOFTENED = 4.0
"""Temperature at which the direction of a harder image is looked for; that of the authors' code."""


@register("method", "co_boosting")
class CoBoosting(Parameters):
    """DENSE's game with hard images and a weighted ensemble.

    A round draws latent vectors and labels, which the generator is given besides, and adapts it to both by
    (section 3.1)

        (1 - p_y)^hardness CE(ensemble(x), y) + statistics * BN(x) - boundary * KL(ensemble(x) || student(x)),

    p_y the ensemble's probability of the label, held fixed: images that the ensemble is sure of count less. Then
    the weight of each client in the ensemble takes a step of fixed size against the sign of its gradient on all
    images kept, and stays in [0, 1]; weights need not add up to 1 (section 3.2, and the authors' code). The
    student imitates the weighted ensemble on images that are moved by `shift` along the sign of a random
    direction's gradient, where they are harder (equation 7).

    In a private run the classifiers are trained by DP-SGD; all the rest is post-processing.

    Attributes:
        networks: How clients train their classifiers; the student is the first kind.
        rounds: Rounds of generating, weighting and distilling; 200 in the authors' code.
        generator_steps: Steps of the generator in a round; 30 in Dai et al. 2024 and in Guan et al. 2025.
        student_steps: Steps of the student in a round.
        hardness: Power of the weight of hard images; 1 in the authors' code.
        boundary: Weight of the term against the student.
        statistics: Weight of the batch-norm term, see `dense`; 0 in the authors' code.
        shift: How far images are moved, in shares of the range of pixels; 8 / 255 in the authors' code.
        weight_step: Size of a step of the ensemble's weights; 0.01 in the authors' code.
        weight_decay: What that size is multiplied by in every round; 0.99 in the authors' code.
        temperature: Of the distillation; 4 in the authors' code.
        batch: Images in a batch.
        latent: Width of the generator's latent vectors.
        maps: Feature maps of the generator.
        generator_rate: Adam's, for the generator.
        learning_rate: The student's.
        optimizer: The student's; None: Adam.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(cost=seconds)

    networks: Classifiers = Classifiers()
    rounds: int = Field(default=50, ge=1)
    generator_steps: int = Field(default=10, ge=1)
    student_steps: int = Field(default=20, ge=1)
    hardness: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    boundary: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    statistics: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    shift: float = Field(default=8 / 255, ge=0, le=1)
    weight_step: float = Field(default=0.01, ge=0, le=1)
    weight_decay: float = Field(default=0.99, gt=0, le=1)
    temperature: float = Field(default=4.0, gt=0, allow_inf_nan=False)
    batch: int = Field(default=64, ge=2)
    latent: int = Field(default=64, ge=1)
    maps: int = Field(default=16, ge=1)
    generator_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    learning_rate: float = Field(default=2e-3, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None

    def exposed(self) -> CoBoosting:
        """The same method, whose clients' classifiers hold a few records by heart."""
        return self.model_copy(update={"networks": self.networks.exposed()})

    def run(self, task: MethodInput) -> Outcome:
        """One round: classifiers up, the student down.

        Raises:
            PlanError: Images do not fit through a body.
            DataError: No client has a record, or training has diverged.
        """
        _, messages = self.networks.train(task, "co_boosting")
        members = self.networks.received(messages, task)
        student, weights = self._distill(members, task)
        fields = {"parameters": MessageField(read(student.module), "parameters", derived())}
        sent = float(sum(message.fields["parameters"].size for message in messages))
        return Outcome(
            Transcript(
                "co_boosting",
                task.classes,
                (*messages, *(Message(0, SERVER, client.name, fields) for client in task.clients)),
                self.networks.claim(task),
            ),
            Ensemble([of_network(student)]),
            utility={"smallest_weight": min(weights), "largest_weight": max(weights)},
            communication={"paper_parameters_up": sent, "paper_bytes_up": 4 * sent},
            networks=sent_classifiers(members),
        )

    def _distill(self, members: Sequence[LocalNetwork], task: MethodInput) -> tuple[LocalNetwork, list[float]]:
        """The student, and the ensemble's weights; what is drawn depends on the task's seeds alone."""
        seeds = task.seeds.child("co_boosting")
        nobody = task.clients[0].take(np.zeros(0, np.int64), "server")
        student = self.networks.network(0, nobody, task)
        generator = build_generator(
            nobody.image_shape,
            latent=self.latent + task.classes,
            maps=self.maps,
            seed=seeds.integer("generator"),
        ).to(task.device)
        ensemble = _Ensemble([member.module for member in members]).to(task.device)
        game = _Game(self, generator, student.module, ensemble, task, seeds)
        for number in task.progress.each("distillation", range(self.rounds)):
            game.round(number)
        game.known.close()
        student.module.eval()
        return student, ensemble.weights.tolist()


class _Ensemble(nn.Module):
    """The weighted sum of the scores of several frozen classifiers (equation 1)."""

    weights: Tensor

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members).requires_grad_(False).eval()
        self.register_buffer("weights", torch.full((len(members),), 1 / len(members)))

    def apart(self, images: Tensor) -> Tensor:
        """(n, channels, height, width) to every member's scores, (members, n, C)."""
        return torch.stack([member(images) for member in self.members])

    def forward(self, images: Tensor) -> Tensor:
        """(n, channels, height, width) to scores (n, C)."""
        return torch.einsum("k,knc->nc", self.weights, self.apart(images))


class _Game:
    """The state of the trainings: networks, optimisers, random streams, and the images kept so far."""

    def __init__(
        self,
        settings: CoBoosting,
        generator: nn.Module,
        student: nn.Module,
        ensemble: _Ensemble,
        task: MethodInput,
        seeds: Seeds,
    ) -> None:
        self.settings, self.generator, self.student, self.ensemble = settings, generator, student, ensemble
        self.classes, self.device = task.classes, task.device
        self.kept: list[_Kept] = []
        self.known = KeptStatistics(list(ensemble.members) if settings.statistics else [])
        self.source = torch.Generator().manual_seed(seeds.integer("draws"))
        self.of_generator = torch.optim.Adam(generator.parameters(), lr=settings.generator_rate)
        self.of_student = chosen(settings.optimizer).build(student.parameters(), settings.learning_rate)

    def round(self, number: int) -> None:
        """Generate a batch, weigh the clients on all that are kept, and let the student learn from these."""
        self.kept.append(self._generate())
        if number:
            self._weigh(self.settings.weight_step * self.settings.weight_decay**number)
        images = torch.cat([part.images for part in self.kept])
        self.student.train()
        for _ in range(self.settings.student_steps):
            rows = torch.randint(len(images), (self.settings.batch,), generator=self.source).to(images.device)
            harder = self._harder(images[rows])
            with torch.no_grad():
                taught = self.ensemble(harder)
            take_step(self.of_student, away(taught, self.student(harder), self.settings.temperature).mean())

    def _generate(self) -> _Kept:
        """Adapt the generator to one batch of latent vectors and labels; the images of its last step."""
        settings = self.settings
        latent = torch.randn(settings.batch, settings.latent, generator=self.source).to(self.device)
        labels = torch.randint(self.classes, (settings.batch,), generator=self.source).to(self.device)
        latent = torch.cat([latent, one_hot(labels, self.classes)], dim=1)
        self.generator.train()
        self.student.eval()
        for _ in range(settings.generator_steps):
            images = self.generator(latent)
            taught = self.ensemble(images)
            sure = taught.softmax(dim=1).gather(1, labels[:, None])[:, 0].detach()
            entropy = functional.cross_entropy(taught, labels, reduction="none")
            loss = ((1 - sure) ** settings.hardness * entropy).mean()
            if self.known.layers:
                loss = loss + settings.statistics * self.known.distance()
            if settings.boundary:
                apart = away(taught, self.student(images), settings.temperature)
                loss = loss - settings.boundary * apart.mean()
            take_step(self.of_generator, loss)
        with torch.no_grad():
            images = self.generator(latent)
            return _Kept(images, labels, self.ensemble.apart(images))

    def _weigh(self, size: float) -> None:
        """A step of the ensemble's weights against the sign of their gradient on all images that are kept."""
        scores = torch.cat([part.scores for part in self.kept], dim=1)
        labels = torch.cat([part.labels for part in self.kept])
        weights = self.ensemble.weights.clone().requires_grad_(True)
        loss = functional.cross_entropy(torch.einsum("k,knc->nc", weights, scores), labels)
        (gradient,) = torch.autograd.grad(loss, weights)
        self.ensemble.weights.copy_((weights.detach() - size * gradient.sign()).clamp(0, 1))

    def _harder(self, images: Tensor) -> Tensor:
        """Images moved along the sign of the gradient of a random direction's softened probabilities."""
        if not self.settings.shift:
            return images
        moved = images.clone().requires_grad_(True)
        found = (self.ensemble(moved) / _SOFTENED).softmax(dim=1)
        direction = (2 * torch.rand(found.shape, generator=self.source) - 1).to(found.device)
        (gradient,) = torch.autograd.grad((direction * found).sum(), moved)
        return (images + 255 * self.settings.shift * gradient.sign()).clamp(0, 255)


@dataclass(frozen=True, eq=False)
class _Kept:
    """Images of a round, their labels, and every member's scores on them."""

    images: Tensor
    labels: Tensor
    scores: Tensor
