"""FedProto (Tan et al. 2022): clients share class means of their features and train towards the global ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from fedassay.contracts.facts import EVERY_UNIT, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.data.records import Records
from fedassay.exchange.release import derived, exact
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.methods.fedlog.messages import as_sent, upload
from fedassay.methods.fedlog.private import (
    GROUP,
    BodyTraining,
    Protection,
    Statistic,
    claimed,
    clamped,
    class_means,
    experiments,
    protection,
)
from fedassay.methods.shared.classifiers import Bodies, Start, make_classifier
from fedassay.methods.shared.dp_sgd import DpSgd
from fedassay.methods.shared.heads import overfitted
from fedassay.methods.shared.local_networks import (
    LocalNetwork,
    LocalTraining,
    MeanModel,
    finite,
    local_network,
    outputs,
    personalized,
    scores_of,
)
from fedassay.methods.shared.rounds import Arrays, Rounds
from fedassay.nets.bodies import BodySpec
from fedassay.nets.local_training import RecordLoss
from fedassay.plan.work import networks
from fedassay.privacy.mechanisms import release_fedlog_sums
from fedassay.support.optimisation import OptimizerKey
from fedassay.support.types import Floats, Parameters


@dataclass(frozen=True, eq=False)
class Prototypes:
    """The global prototypes after a round.

    Attributes:
        classes: Those that have one, shape (P,), ascending.
        means: Shape (P, d), float32 as they travel.
    """

    classes: NDArray[np.int32]
    means: NDArray[np.float32]


@register("method", "fedproto")
class FedProto(Parameters):
    """Clients keep whole classifiers; per round they send the mean feature of each class and get the global ones.

    A client minimises cross-entropy plus `strength` times the mean squared distance of its features to the
    global prototype of their class (Tan et al. 2022, equation 7; the squared distance of their
    code). The server averages prototypes by the clients' counts of the class (equation 6).
    `accuracy` is that of the mean of all clients' predictions; personalized accuracy is the method's aim.

    Private runs. Means and counts are a function of class sums and counts, FedLog's statistic T, so these are
    clipped, noised and accounted as there: features to [-clip, clip], counts derived from the noised sums. The
    body is trained on the same records. `dp_sgd` composes its training with T; `private` trains as published,
    without protection by the noise on T (accounted as unbounded).

    Attributes:
        rounds: 100 in the papers that compare with it.
        local_epochs: Passes over a client's records in a round.
        strength: Weight of the distance; 1 in the paper's experiments.
        width: Number of features under the head, its bias counted as one.
        bodies: One or several; client i gets entry i modulo their number.
        start: Initial weights of bodies: `random`, or a copy of the plan's `backbone`, of its width.
        batch: Minibatch size; the divisor of noised gradient sums in a private run.
        learning_rate: Learning rate of the optimiser.
        optimizer: None: Adam.
        clip: In a private run, features are clipped to [-clip, clip].
        body: The training of bodies in a private run.
        dp_sgd: Parameters of `body: dp_sgd`.
        body_share: Share of the squared Gaussian-DP parameter that `body: dp_sgd` may spend.
        target: Personalized accuracy up to which rounds and bytes are counted.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(units=EVERY_UNIT, cost=networks)

    rounds: int = Field(default=5, ge=1)
    local_epochs: int = Field(default=5, ge=1)
    strength: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    width: int = Field(default=32, ge=2)
    bodies: Bodies = (BodySpec(name="mlp"),)
    start: Start = "random"
    batch: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None
    clip: float = Field(default=2.0, gt=0, allow_inf_nan=False)
    body: Literal["dp_sgd", "private"] = "dp_sgd"
    dp_sgd: DpSgd = DpSgd()
    body_share: float = Field(default=0.5, gt=0, lt=1)
    target: float | None = Field(default=None, gt=0, le=1)

    def leakiest_form(self) -> FedProto:
        """The same method, with networks that memorize a few records."""
        return overfitted(self, self.local_epochs, self.learning_rate, self.rounds)

    def run(self, task: MethodInput) -> Outcome:
        """All rounds: training, prototypes up, global prototypes down.

        Raises:
            PlanError: Images do not fit through a body.
            DataError: No client has a record, or training has diverged.
        """
        task.require_records("fedproto")
        networks = [self._network(index, client, task) for index, client in enumerate(task.clients)]
        width = _width(networks[0])
        protected = self._protection(task, width)
        rounds = Rounds(self, task, [network.module for network in networks])
        scores = [scores_of(network.module, task.classes) for network in networks]
        shared: Prototypes | None = None
        messages: list[Message] = []
        for number in rounds.numbers(self.rounds):
            sent = rounds.sent(number, partial(self._round, number, networks, shared, protected, task))
            received = task.spool.keep_all(_upload(number, client, sent, protected) for client in task.clients)
            shared = self._aggregate(received, protected)
            answer = task.spool.keep_all(_broadcast(number, client, shared) for client in task.clients)
            messages += received + answer
            rounds.end(
                number,
                sent,
                messages,
                lambda: personalized(scores, list(range(len(scores))), task.clients, task.test).mean,
            )
        utility, remarks = rounds.summary(self.target)
        claim, said = claimed(task.privacy, protected)
        exchanged = float(self.rounds * len(task.clients) * task.classes * width)
        return Outcome(
            Transcript("fedproto", task.classes, tuple(messages), claim, said),
            MeanModel([own for own, client in zip(scores, task.clients, strict=True) if len(client)]),
            utility=utility,
            communication={"paper_parameters_up": exchanged, "paper_bytes_up": 4 * exchanged},
            mechanisms=experiments(protected, f"class sums of {self.rounds} rounds"),
            notes=remarks,
            stays=frozenset({"model", *utility}),
        )

    def _network(self, index: int, client: Records, task: MethodInput) -> LocalNetwork:
        kind = index % len(self.bodies)
        body, head = make_classifier(
            task,
            client,
            self.bodies[kind],
            start=self.start,
            width=self.width,
            body_seed=task.seeds.integer("body", kind),
            head_seed=task.seeds.integer("head"),
        )
        return local_network(client.name, _Both(body, head), client, task.device, task.persons(client))

    def _protection(self, task: MethodInput, width: int) -> Protection | None:
        if not task.privacy.private:
            return None
        statistic = Statistic(
            rounds=self.rounds,
            width=width + 1,
            clip=self.clip,
            classes=task.classes,
            clients=len(task.clients),
        )
        bodies = BodyTraining(
            body=self.body,
            epochs=self.local_epochs,
            batch=self.batch,
            dp_sgd=self.dp_sgd,
            share=self.body_share,
        )
        return protection(task.privacy, statistic, bodies)

    def _round(
        self,
        number: int,
        networks: Sequence[LocalNetwork],
        shared: Prototypes | None,
        protected: Protection | None,
        task: MethodInput,
    ) -> Arrays:
        """Train every client towards the global prototypes; returns its message arrays."""
        steps = None if protected is None else protected.steps
        training = LocalTraining(
            self.local_epochs, self.batch, self.learning_rate, steps, "body_dependence", self.optimizer
        )
        loss = self._loss(shared, task)
        sent: Arrays = {}
        for client, network in zip(task.clients, networks, strict=True):
            training(network, loss, task, number)
            found = outputs(network.module, client.images)[:, task.classes :]
            found = finite(found, f"fedproto: training at {client.name} has diverged in round {number}")
            sent |= _sums(found, client, protected, self.clip, number, task)
        return sent

    def _loss(self, shared: Prototypes | None, task: MethodInput) -> RecordLoss:
        """Return the cross-entropy plus the distance to the global prototypes, where a record's class has one."""
        if shared is None or not len(shared.classes) or not self.strength:
            return lambda both, labels: functional.cross_entropy(both[:, : task.classes], labels, reduction="none")
        means = torch.zeros(task.classes, shared.means.shape[1])
        known = torch.zeros(task.classes)
        rows = torch.tensor(shared.classes, dtype=torch.int64)
        means[rows], known[rows] = torch.tensor(shared.means), 1.0
        means, known = means.to(task.device), known.to(task.device)

        def loss(both: Tensor, labels: Tensor) -> Tensor:
            away = (both[:, task.classes :] - means[labels]).square().mean(dim=1) * known[labels]
            entropy = functional.cross_entropy(both[:, : task.classes], labels, reduction="none")
            return entropy + self.strength * away

        return loss

    def _aggregate(self, received: Sequence[Message], protected: Protection | None) -> Prototypes:
        """Equation 6: class means over all clients, weighted by their counts."""
        if protected is None:
            return weighted_means(received)
        total = sum(
            np.column_stack([message.fields["counts"].values, message.fields["sums"].values]).astype(np.float64)
            for message in received
        )
        means, known = class_means(clamped(np.asarray(total), None)[0], self.clip)
        return Prototypes(np.flatnonzero(known).astype(np.int32), means[known].astype(np.float32))


class _Both(nn.Module):
    """A classifier that gives class scores (C) and features (d) side by side."""

    def __init__(self, body: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.body, self.head = body, head

    def forward(self, images: Tensor) -> Tensor:
        """(n, channels, height, width) to (n, C + d)."""
        features = self.body(images)
        return torch.cat([self.head(features), features], dim=1)


def weighted_means(received: Sequence[Message]) -> Prototypes:
    """Class means over all clients from every client's means and counts (equation 6)."""
    ids = [message.fields["class_ids"].values for message in received]
    classes = np.unique(np.concatenate(ids))
    width = received[0].fields["prototypes"].shape[1]
    sums, counts = np.zeros((len(classes), width)), np.zeros(len(classes))
    for message, own in zip(received, ids, strict=True):
        rows = np.searchsorted(classes, own)
        weights = message.fields["class_counts"].values.astype(np.float64)
        sums[rows] += weights[:, None] * message.fields["prototypes"].values
        counts[rows] += weights
    return Prototypes(classes.astype(np.int32), (sums / counts[:, None]).astype(np.float32))


def _sums(
    features: Floats, client: Records, protected: Protection | None, clip: float, number: int, task: MethodInput
) -> Arrays:
    """Means and counts of the classes present; noised sums and counts of all of them in a private run."""
    if protected is not None:
        noise = protected.noise(task.mechanism(client.name, number, GROUP))
        noised = release_fedlog_sums(
            features,
            client.labels,
            task.classes,
            clip=clip,
            sigma=protected.scale,
            noise=noise,
            weights=task.weights(client),
        )
        return as_sent(client, noised, protected)
    classes, counts = np.unique(client.labels, return_counts=True)
    means = [features[client.labels == label].astype(np.float64).mean(axis=0) for label in classes]
    return {
        f"{client.name}/class_ids": classes.astype(np.int32),
        f"{client.name}/class_counts": counts.astype(np.int32),
        f"{client.name}/prototypes": np.array(means, dtype=np.float32).reshape(len(classes), features.shape[1]),
    }


def _upload(number: int, client: Records, sent: Arrays, protected: Protection | None) -> Message:
    if protected is not None:
        return upload(number, client, sent, protected)
    fields = {
        "class_ids": MessageField(sent[f"{client.name}/class_ids"], "class_ids", exact("labels")),
        "class_counts": MessageField(sent[f"{client.name}/class_counts"], "class_counts", exact("labels")),
        "prototypes": MessageField(sent[f"{client.name}/prototypes"], "class_means", exact()),
    }
    return Message(number, client.name, SERVER, fields)


def _broadcast(number: int, client: Records, shared: Prototypes) -> Message:
    fields = {
        "class_ids": MessageField(shared.classes, "class_ids", derived()),
        "prototypes": MessageField(shared.means, "class_means", derived()),
    }
    return Message(number, SERVER, client.name, fields)


def _width(network: LocalNetwork) -> int:
    module = network.module
    assert isinstance(module, _Both)
    return module.head.in_features
