"""Distilling an ensemble of clients' classifiers without data: a generator against them, and a student.

Common parts of DENSE (Zhang et al., NeurIPS 2022) and Co-Boosting (Dai et al., ICLR 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from fedassay.contracts.facts import Given
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.sizes import Sizes
from fedassay.exchange.release import derived
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.methods.shared.classifiers import Classifiers, of_network, read, sent_classifiers
from fedassay.methods.shared.dp_sgd import update_experiments
from fedassay.methods.shared.local_heads import Ensemble
from fedassay.methods.shared.local_networks import LocalNetwork
from fedassay.nets.batch_statistics import KeptStatistics
from fedassay.nets.cvae import one_hot
from fedassay.nets.generator import build_generator
from fedassay.plan.work import body, networks
from fedassay.support.optimisation import OptimizerKey, chosen, take_step
from fedassay.support.types import Parameters


def seconds(given: Given, sizes: Sizes, private: bool) -> float:
    """Clients' classifiers, then rounds of generating and distilling."""
    inner = given["networks"]
    operations, _, speed = body(inner["bodies"][0], sizes)
    # Every client's classifier and the student, forwards and backwards; the generator costs about ten bodies.
    against = 3 * operations * given["batch"] * (sizes.clients + 11) * given["generator_steps"]
    learning = 3 * operations * given["batch"] * given["student_steps"]
    return float(networks(inner, sizes, private) + given["rounds"] * (against + learning) / speed)


class DataFree(Parameters):
    """Parameters of methods that distill without data; each gives `statistics` and `temperature` its own default.

    Attributes:
        networks: Settings of the clients' classifiers; the student is the first kind.
        rounds: Rounds of generating and distilling; 200 in Co-Boosting's code.
        generator_steps: Steps of the generator in a round; 30 in the authors' code of both.
        student_steps: Steps of the student in a round.
        boundary: Weight of the term against the student; 1 in the authors' code of both.
        batch: Images in a batch.
        latent: Width of the generator's latent vectors.
        maps: Feature maps of the generator.
        generator_rate: Adam's, for the generator.
        learning_rate: The student's.
        optimizer: The student's; None: Adam.
    """

    networks: Classifiers = Classifiers()
    rounds: int = Field(default=50, ge=1)
    generator_steps: int = Field(default=10, ge=1)
    student_steps: int = Field(default=20, ge=1)
    boundary: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    batch: int = Field(default=64, ge=2)
    latent: int = Field(default=64, ge=1)
    maps: int = Field(default=16, ge=1)
    generator_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    learning_rate: float = Field(default=2e-3, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None

    def leakiest_form(self) -> Self:
        """The same method, with clients' classifiers that memorize a few records."""
        return self.model_copy(update={"networks": self.networks.leakiest_form()})

    def outcome(
        self,
        method: str,
        task: MethodInput,
        sent: tuple[Sequence[Message], Sequence[LocalNetwork]],
        student: nn.Module,
        utility: Mapping[str, float],
    ) -> Outcome:
        """Classifiers up, the student down.

        Args:
            method: The method's name.
            task: The work.
            sent: The clients' messages, and the classifiers that the server has by them.
            student: The distilled student.
            utility: Beside the student's accuracy.
        """
        messages, members = sent
        fields = {"parameters": MessageField(read(student), "parameters", derived())}
        down = (Message(0, SERVER, client.name, fields) for client in task.clients)
        size = float(sum(message.fields["parameters"].size for message in messages))
        return Outcome(
            Transcript(method, task.classes, (*messages, *down), self.networks.claim(task)),
            Ensemble([of_network(student)]),
            utility=dict(utility),
            communication={"paper_parameters_up": size, "paper_bytes_up": 4 * size},
            networks=sent_classifiers(members),
            mechanisms=update_experiments(self.networks.steps(task), 1),
        )


class Members(nn.Module):
    """Mean scores of several frozen classifiers."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members).requires_grad_(False).eval()

    def apart(self, images: Tensor) -> Tensor:
        """(n, channels, height, width) to every member's scores, (members, n, C)."""
        return torch.stack([member(images) for member in self.members])

    def forward(self, images: Tensor) -> Tensor:
        """(n, channels, height, width) to scores (n, C)."""
        return self.apart(images).mean(dim=0)


Loss = Callable[[Tensor, Tensor], Tensor]


class Game:
    """The state of the two trainings: networks, optimisers and random streams.

    Args:
        settings: Parameters of the method.
        method: Name of the method, which names the random draws besides the task's seeds.
        ensemble: The members that the generator is adapted to and the student learns from.
        statistics: Weight of the distance from the statistics of the ensemble's batch normalisations.
        task: The classes, and the shape of the clients' images.

    Attributes:
        student: A classifier of the first kind, untrained.
        source: Random generator of all draws.
    """

    def __init__(
        self, settings: DataFree, method: str, ensemble: Members, statistics: float, task: MethodInput
    ) -> None:
        seeds = task.seeds.child(method)
        nobody = task.clients[0].take(np.zeros(0, np.int64), "server")
        self.settings, self.ensemble, self.statistics = settings, ensemble, statistics
        self.classes, self.device = task.classes, task.device
        self.student = settings.networks.network(0, nobody, task).module
        self.source = torch.Generator().manual_seed(seeds.integer("draws"))
        self._generator = build_generator(
            nobody.image_shape,
            latent=settings.latent + task.classes,
            maps=settings.maps,
            seed=seeds.integer("generator"),
        ).to(task.device)
        self._known = KeptStatistics(list(ensemble.members) if statistics else [])
        self._of_generator = torch.optim.Adam(self._generator.parameters(), lr=settings.generator_rate)
        self._of_student = chosen(settings.optimizer).build(self.student.parameters(), settings.learning_rate)

    def generate(self, entropy: Loss, disagreement: Loss) -> tuple[Tensor, Tensor]:
        """Adapt the generator to one batch of latent vectors and labels.

        Args:
            entropy: Cross-entropy of the ensemble's scores (n, C) and labels (n,), to be small.
            disagreement: Of the ensemble's and the student's scores (n, C), to be large where `boundary` is not 0.

        Returns:
            The images (n, channels, height, width) that it then makes of them, and their labels.
        """
        settings = self.settings
        latent = torch.randn(settings.batch, settings.latent, generator=self.source).to(self.device)
        labels = torch.randint(self.classes, (settings.batch,), generator=self.source).to(self.device)
        latent = torch.cat([latent, one_hot(labels, self.classes)], dim=1)
        self._generator.train()
        self.student.eval()
        for _ in range(settings.generator_steps):
            images = self._generator(latent)
            taught = self.ensemble(images)
            loss = entropy(taught, labels)
            if self._known.layers:
                loss = loss + self.statistics * self._known.distance()
            if settings.boundary:
                loss = loss - settings.boundary * disagreement(taught, self.student(images))
            take_step(self._of_generator, loss)
        with torch.no_grad():
            return self._generator(latent), labels

    def lessons(self, images: Tensor) -> Iterator[Tensor]:
        """Places of the images (n, ...) that the student, in training mode, sees in each of its steps."""
        self.student.train()
        for _ in range(self.settings.student_steps):
            yield torch.randint(len(images), (self.settings.batch,), generator=self.source).to(images.device)

    def learn(self, loss: Tensor) -> None:
        """A step of the student."""
        take_step(self._of_student, loss)

    def end(self) -> nn.Module:
        """The student, ready to be evaluated."""
        self._known.close()
        return self.student.eval()


def away(taught: Tensor, own: Tensor, temperature: float) -> Tensor:
    """KL(taught || own) of scores (n, C) at a temperature, times its square, of each image."""
    goal = functional.log_softmax(taught / temperature, dim=1)
    given = functional.log_softmax(own / temperature, dim=1)
    return temperature**2 * functional.kl_div(given, goal, reduction="none", log_target=True).sum(dim=1)
