"""DENSE (Zhang et al. 2022, NeurIPS): the ensemble of clients' classifiers distilled into one, without data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from fedassay.contracts.facts import EVERY_UNIT, Given, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Sizes
from fedassay.exchange.release import derived
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.methods.rivals.ensemble import of_network, sent_classifiers
from fedassay.methods.shared.classifiers import Classifiers, read
from fedassay.methods.shared.local_heads import Ensemble
from fedassay.methods.shared.local_networks import LocalNetwork
from fedassay.nets.batch_statistics import KeptStatistics
from fedassay.nets.cvae import one_hot
from fedassay.nets.generator import ImageGenerator, build_generator
from fedassay.plan.work import body, networks
from fedassay.support.optimisation import OptimizerKey, chosen, take_step
from fedassay.support.seeds import Seeds
from fedassay.support.types import Parameters


def seconds(given: Given, sizes: Sizes, private: bool) -> float:
    """Clients' classifiers, then rounds of generating and distilling."""
    inner = given["networks"]
    operations, _, speed = body(inner["bodies"][0], sizes)
    # Every client's classifier and the student, forwards and backwards; the generator costs about ten bodies.
    against = 3 * operations * given["batch"] * (sizes.clients + 11) * given["generator_steps"]
    learning = 3 * operations * given["batch"] * given["student_steps"]
    return float(networks(inner, sizes, private) + given["rounds"] * (against + learning) / speed)


@register("method", "dense")
class Dense(Parameters):
    """The server trains a generator against the clients' classifiers, and a student on what it generates.

    A round draws latent vectors and labels, which the generator is given besides (in the paper it must guess
    them), and adapts it to both by (equations 2 to 5)

        CE(ensemble(x), y) + statistics * BN(x) - boundary * [student disagrees] KL(ensemble(x) || student(x)),

    keeps the images, and lets the student imitate the ensemble's mean scores on all that are kept
    (equation 6). BN is the distance from what the classifiers' batch normalisations keep; networks without any, as
    those that DP-SGD can train, leave it out.

    In a private run the classifiers are trained by DP-SGD; all the rest is post-processing.

    Attributes:
        networks: How clients train their classifiers; the student is the first kind.
        rounds: Rounds of generating and distilling.
        generator_steps: Steps of the generator in a round; 30 in the paper's code.
        student_steps: Steps of the student in a round.
        boundary: Weight of the boundary term; 1 in the paper's code.
        statistics: Weight of the batch-norm term.
        temperature: Of the distillation.
        batch: Images in a batch.
        latent: Width of the generator's latent vectors.
        maps: Feature maps of the generator.
        generator_rate: Adam's, for the generator.
        learning_rate: The student's.
        optimizer: The student's; None: Adam.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(units=EVERY_UNIT, cost=seconds)

    networks: Classifiers = Classifiers()
    rounds: int = Field(default=50, ge=1)
    generator_steps: int = Field(default=10, ge=1)
    student_steps: int = Field(default=20, ge=1)
    boundary: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    statistics: float = Field(default=1.0, ge=0, allow_inf_nan=False, exclude_if=lambda given: given == 1)
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    batch: int = Field(default=64, ge=2)
    latent: int = Field(default=64, ge=1)
    maps: int = Field(default=16, ge=1)
    generator_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    learning_rate: float = Field(default=2e-3, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None

    def exposed(self) -> Dense:
        """The same method, whose clients' classifiers hold a few records by heart."""
        return self.model_copy(update={"networks": self.networks.exposed()})

    def run(self, task: MethodInput) -> Outcome:
        """One round: classifiers up, the student down.

        Raises:
            PlanError: Images do not fit through a body.
            DataError: No client has a record, or training has diverged.
        """
        _, messages = self.networks.train(task, "dense")
        members = self.networks.received(messages, task)
        student = self._distill(members, task)
        ensemble = Ensemble([of_network(member) for member in members], "logits")
        fields = {"parameters": MessageField(read(student.module), "parameters", derived())}
        sent = float(sum(message.fields["parameters"].size for message in messages))
        return Outcome(
            Transcript(
                "dense",
                task.classes,
                (*messages, *(Message(0, SERVER, client.name, fields) for client in task.clients)),
                self.networks.claim(task),
            ),
            Ensemble([of_network(student)]),
            utility={"accuracy_ensemble": float(np.mean(ensemble.predict(task.test) == task.test.labels))},
            communication={"paper_parameters_up": sent, "paper_bytes_up": 4 * sent},
            networks=sent_classifiers(members),
        )

    def _distill(self, members: Sequence[LocalNetwork], task: MethodInput) -> LocalNetwork:
        """Train generator and student in turn; what is drawn depends on the task's seeds alone."""
        seeds = task.seeds.child("dense")
        nobody = task.clients[0].take(np.zeros(0, np.int64), "server")
        student = self.networks.network(0, nobody, task)
        generator = build_generator(
            nobody.image_shape,
            latent=self.latent + task.classes,
            maps=self.maps,
            seed=seeds.integer("generator"),
        ).to(task.device)
        teacher = _Teacher([member.module for member in members])
        game = _Game(self, generator, student.module, teacher, task, seeds)
        for _ in task.progress.each("distillation", range(self.rounds)):
            game.round()
        game.known.close()
        student.module.eval()
        return student


class _Teacher(nn.Module):
    """Mean scores of several frozen classifiers (equation 1)."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members).requires_grad_(False).eval()

    def forward(self, images: Tensor) -> Tensor:
        """(n, channels, height, width) to scores (n, C)."""
        return torch.stack([member(images) for member in self.members]).mean(dim=0)


class _Game:
    """The state of the two trainings: networks, optimisers, random streams, and the images kept so far."""

    def __init__(
        self,
        settings: Dense,
        generator: ImageGenerator,
        student: nn.Module,
        teacher: _Teacher,
        task: MethodInput,
        seeds: Seeds,
    ) -> None:
        self.settings, self.generator, self.student, self.teacher = settings, generator, student, teacher
        self.classes, self.device = task.classes, task.device
        self.kept: list[_Kept] = []
        self.known = KeptStatistics(list(teacher.members) if settings.statistics else [])
        self.source = torch.Generator().manual_seed(seeds.integer("draws"))
        self.of_generator = torch.optim.Adam(generator.parameters(), lr=settings.generator_rate)
        self.of_student = chosen(settings.optimizer).build(student.parameters(), settings.learning_rate)

    def round(self) -> None:
        """Generate a batch, keep it, and let the student learn from all that are kept."""
        self.kept.append(self._generate())
        images = torch.cat([part.images for part in self.kept])
        goals = torch.cat([part.scores for part in self.kept])
        self.student.train()
        for _ in range(self.settings.student_steps):
            drawn = torch.randint(len(images), (self.settings.batch,), generator=self.source)
            rows = drawn.to(images.device)
            loss = self._away(goals[rows], self.student(images[rows])).mean()
            take_step(self.of_student, loss)

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
            taught = self.teacher(images)
            loss = functional.cross_entropy(taught, labels)
            if self.known.layers:
                loss = loss + settings.statistics * self.known.distance()
            if settings.boundary:
                own = self.student(images)
                apart = (own.argmax(dim=1) != taught.argmax(dim=1)).float()
                loss = loss - settings.boundary * (self._away(taught, own) * apart).mean()
            take_step(self.of_generator, loss)
        with torch.no_grad():
            images = self.generator(latent)
            return _Kept(images, self.teacher(images))

    def _away(self, taught: Tensor, own: Tensor) -> Tensor:
        return away(taught, own, self.settings.temperature)


def away(taught: Tensor, own: Tensor, temperature: float) -> Tensor:
    """KL(taught || own) of scores (n, C) at a temperature, times its square, of each image."""
    goal = functional.log_softmax(taught / temperature, dim=1)
    given = functional.log_softmax(own / temperature, dim=1)
    return temperature**2 * functional.kl_div(given, goal, reduction="none", log_target=True).sum(dim=1)


@dataclass(frozen=True, eq=False)
class _Kept:
    """Images of a round, and the ensemble's scores on them."""

    images: Tensor
    scores: Tensor
