"""Federated averaging (McMahan et al. 2017), one-shot by default; LG-FedAvg, FedPer, and fine-tuning after it."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from fedassay.contracts.facts import MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.data.records import Records
from fedassay.exchange.release import Release, derived, exact, public
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.methods.shared.classifiers import Bodies, Start, make_classifier
from fedassay.methods.shared.dp_sgd import DpSgd, dp_sgd_release
from fedassay.methods.shared.heads import OVERFITTED, OVERFITTING_RATE
from fedassay.methods.shared.local_heads import head_loss
from fedassay.methods.shared.local_networks import (
    LocalNetwork,
    LocalTraining,
    MeanModel,
    Scores,
    finite,
    local_network,
    personalized,
    scores_of,
)
from fedassay.methods.shared.rounds import Arrays, Rounds
from fedassay.methods.shared.sent_networks import sent_networks
from fedassay.nets.bodies import BodySpec
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.plan.work import networks
from fedassay.support.errors import PlanError
from fedassay.support.types import Frozen, Parameters


class FineTune(Frozen):
    """How clients train the averaged model on.

    Attributes:
        epochs: Passes over a client's records.
        learning_rate: Adam's.
    """

    epochs: int = Field(default=5, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)


@dataclass(frozen=True, eq=False)
class _Site:
    """A client's network, and which of its parameters travel.

    Attributes:
        network: Body and head in sequence.
        shared: The parameters that are averaged.
    """

    network: LocalNetwork
    shared: tuple[nn.Parameter, ...]

    def read(self) -> NDArray[np.float32]:
        """The shared parameters as one vector."""
        return torch.cat([p.detach().flatten().cpu() for p in self.shared]).numpy().astype(np.float32)

    def write(self, values: NDArray[np.float32]) -> None:
        """Replace the shared parameters."""
        parts = np.split(values, np.cumsum([parameter.numel() for parameter in self.shared])[:-1])
        with torch.no_grad():
            for parameter, part in zip(self.shared, parts, strict=True):
                parameter.copy_(torch.tensor(part).view_as(parameter))


@register("method", "fedavg")
class FedAvg(Parameters):
    """Clients train a classifier from the same start; the server averages its parameters.

    Private runs train by DP-SGD, over all rounds together, and average with equal weights, since the
    numbers of records would leave exactly. `accuracy` is that of the averaged model, or, where clients keep
    a part for themselves, of the mean of their predictions.

    Attributes:
        rounds: 1 is one-shot averaging.
        local_epochs: Passes over a client's records in a round.
        share: What is averaged: `all`; the `head` alone (LG-FedAvg, Liang et al. 2020); the `body` alone
            (FedPer, Arivazhagan et al. 2019).
        width: Number of features m under the head, its bias counted as one, as FedLog counts.
        bodies: One, or with `share: head` several (client i gets entry i modulo their number).
        start: What bodies start from: `random`, or a copy of the plan's `backbone`, of its width.
        batch: Minibatch size; the divisor of noised gradient sums in a private run.
        learning_rate: Adam's.
        fine_tune: After the last round every client trains the averaged model on for itself (FedAvg-FT in
            Guan et al. 2025, table 3). Nothing more is sent, so nothing of it is noised. `personalized_accuracy`
            is then that of the clients' own models, `personalized_accuracy_global` that of the averaged one.
        target: Personalized accuracy up to which rounds and bytes are counted.
        dp_sgd: Parameters of a private run.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(cost=networks)

    rounds: int = Field(default=1, ge=1)
    local_epochs: int = Field(default=20, ge=1)
    share: Literal["all", "head", "body"] = "all"
    width: int = Field(default=32, ge=2)
    bodies: Bodies = (BodySpec(name="mlp"),)
    start: Start = "random"
    batch: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    fine_tune: FineTune | None = None
    target: float | None = Field(default=None, gt=0, le=1)
    dp_sgd: DpSgd = DpSgd()

    def exposed(self) -> FedAvg:
        """The same method, whose networks hold a few records by heart."""
        epochs = max(self.local_epochs, math.ceil(OVERFITTED / self.rounds))
        rate = max(self.learning_rate, OVERFITTING_RATE)
        return self.model_copy(update={"local_epochs": epochs, "learning_rate": rate})

    def run(self, task: MethodInput, *, other: float = 0.0) -> Outcome:
        """All rounds: parameters down, training, parameters up.

        Args:
            task: The work.
            other: Gaussian-DP parameter mu of what else is released about a record from the same budget.

        Raises:
            PlanError: Parameters that contradict each other.
            DataError: No client has a record, or training has diverged.
        """
        if len(self.bodies) > 1 and self.share != "head":
            raise PlanError(
                f"fedavg: {len(self.bodies)} bodies with share {self.share}: bodies that are averaged must be "
                "alike; allowed: one body, or share head"
            )
        task.require_records("fedavg")
        steps = None
        if task.privacy.private:
            steps = self.dp_sgd.steps(
                task.privacy, epochs=self.local_epochs, rounds=self.rounds, batch=self.batch, other=other
            )
        release = exact() if steps is None else dp_sgd_release(steps, task.privacy.adjacency)
        sites = [self.site(index, client, task) for index, client in enumerate(task.clients)]
        current = sites[0].read()
        rounds = Rounds(self, task, [site.network.module for site in sites])
        start = public("random initialisation")
        messages = task.spool.keep_all(_broadcast(0, client, current, start) for client in task.clients)
        for number in rounds.numbers(self.rounds):
            sent = rounds.sent(number, partial(self._train, number, sites, current, steps, task))
            messages += task.spool.keep_all(_upload(number, client, sent, release) for client in task.clients)
            current = _average(task.clients, sent, equally=steps is not None)
            answer = (_broadcast(number, client, current, derived()) for client in task.clients)
            messages += task.spool.keep_all(answer)
            rounds.end(number, sent, messages, partial(self._measure, sites, current, task))
        for site in sites:
            site.write(current)
        utility, remarks = rounds.summary(self.target)
        utility |= self._fine_tuned(sites, utility, task)
        exchanged = float(self.rounds * len(task.clients) * current.size)
        source = f"DP-SGD with Poisson sampling over {self.rounds} round(s), by privacy loss distributions"
        final = sites[:1] if self.share == "all" else [site for site in sites if len(site.network.labels)]
        return Outcome(
            Transcript("fedavg", task.classes, tuple(messages), task.privacy.claim(source)),
            MeanModel([scores_of(site.network.module) for site in final]),
            utility=utility,
            communication={"paper_parameters_up": exchanged, "paper_bytes_up": 4 * exchanged},
            networks=sent_networks(sites[0].network.module, messages) if self.share == "all" else {},
            notes=remarks,
        )

    def site(self, index: int, client: Records, task: MethodInput) -> _Site:
        """A client's network as it starts."""
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
        network = local_network(client.name, nn.Sequential(body, head), client, task.device)
        averaged = {"all": network.module, "head": head, "body": body}[self.share]
        return _Site(network, tuple(averaged.parameters()))

    def _train(
        self,
        number: int,
        sites: Sequence[_Site],
        current: NDArray[np.float32],
        steps: PrivateSteps | None,
        task: MethodInput,
    ) -> Arrays:
        """Train every client from the current parameters; what they send."""
        training = LocalTraining(self.local_epochs, self.batch, self.learning_rate, steps)
        sent: Arrays = {}
        for site in sites:
            network = site.network
            site.write(current)
            training(network, head_loss, task, number)
            where = f"fedavg: training at {network.name} has diverged in round {number}"
            sent[f"{network.name}/parameters"] = finite(site.read(), where)
            if steps is None:
                sent[f"{network.name}/records"] = np.array([len(network.labels)], dtype=np.int32)
        return sent

    def _measure(self, sites: Sequence[_Site], current: NDArray[np.float32], task: MethodInput) -> float | None:
        """Personalized accuracy with the averaged parameters in place."""
        for site in sites:
            site.write(current)
        if self.share == "all":
            owner, models = [0] * len(sites), [scores_of(sites[0].network.module)]
        else:
            owner, models = list(range(len(sites))), [scores_of(site.network.module) for site in sites]
        return personalized(models, owner, task.clients, task.test).mean

    def _fine_tuned(
        self, sites: Sequence[_Site], averaged: dict[str, float], task: MethodInput
    ) -> dict[str, float]:
        """Personalized accuracy of the clients' models after fine-tuning, which leaves the sites as they were."""
        if self.fine_tune is None or "personalized_accuracy" not in averaged:
            return {}
        training = LocalTraining(self.fine_tune.epochs, self.batch, self.fine_tune.learning_rate, None)
        models: list[Scores] = []
        for site in task.progress.each("fine-tuning", sites):
            own = replace(site.network, module=copy.deepcopy(site.network.module))
            training(own, head_loss, task, self.rounds, task.seeds.child("fine_tune"))
            models.append(scores_of(own.module))
        found = personalized(models, list(range(len(models))), task.clients, task.test).mean
        assert found is not None
        return {"personalized_accuracy": found, "personalized_accuracy_global": averaged["personalized_accuracy"]}


def averaged_network(method: FedAvg, outcome: Outcome, task: MethodInput) -> nn.Sequential:
    """The averaged model of a run that shared everything, from its last broadcast: body and head in sequence."""
    broadcast = next(message for message in reversed(outcome.transcript.messages) if message.sender == SERVER)
    site = method.site(0, task.clients[0], task)
    site.write(broadcast.fields["parameters"].values)
    assert isinstance(site.network.module, nn.Sequential)
    return site.network.module.eval()


def _average(clients: Sequence[Records], sent: Arrays, *, equally: bool) -> NDArray[np.float32]:
    """The mean over the clients, weighted by their numbers of records where those are sent."""
    weights = [1.0 if equally else float(sent[f"{client.name}/records"][0]) for client in clients]
    vectors = [sent[f"{client.name}/parameters"].astype(np.float64) for client in clients]
    return np.average(vectors, axis=0, weights=weights).astype(np.float32)


def _upload(number: int, client: Records, sent: Arrays, release: Release) -> Message:
    fields = {"parameters": MessageField(sent[f"{client.name}/parameters"], "parameters", release)}
    if f"{client.name}/records" in sent:
        fields["records"] = MessageField(sent[f"{client.name}/records"], "other", exact("labels"))
    return Message(number, client.name, SERVER, fields)


def _broadcast(number: int, client: Records, values: NDArray[np.float32], release: Release) -> Message:
    return Message(number, SERVER, client.name, {"parameters": MessageField(values, "parameters", release)})
