"""Federated averaging (McMahan et al. 2017), one-shot by default, and its variants by others.

FedProx (Li et al., MLSys 2020), FedYogi (Reddi et al., ICLR 2021), LG-FedAvg (Liang et al. 2020), FedPer
(Arivazhagan et al. 2019), FedRep (Collins et al., ICML 2021), FedBABU (Oh, Kim and Yun, ICLR 2022), and
fine-tuning after any of them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import nn

from fedassay.contracts.facts import EVERY_UNIT, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.data.records import Records
from fedassay.exchange.release import Release, derived, exact, public
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.methods.shared.classifiers import Bodies, Start, make_classifier
from fedassay.methods.shared.dp_sgd import (
    DpSgd,
    NoisedTraining,
    training_release,
    training_words,
    update_experiments,
)
from fedassay.methods.shared.heads import overfitted
from fedassay.methods.shared.local_heads import head_loss
from fedassay.methods.shared.local_networks import (
    LocalTraining,
    MeanModel,
    Scores,
    local_network,
    personalized,
    scores_of,
)
from fedassay.methods.shared.rounds import Arrays, Rounds
from fedassay.methods.shared.sent_networks import sent_networks
from fedassay.methods.shared.server_steps import ServerKey, ServerSteps
from fedassay.methods.shared.sites import Share, Site, average, make_site, trained, upload
from fedassay.nets.bodies import BodySpec
from fedassay.plan.work import networks
from fedassay.support.errors import PlanError
from fedassay.support.optimisation import OptimizerKey
from fedassay.support.types import Frozen, Parameters

Schedule = Annotated[Literal["joint", "alternating", "body"], Field(exclude_if=lambda given: given == "joint")]
"""The part that a client trains in a round; a record holds it where a plan gave another than `joint`."""


class FineTune(Frozen):
    """Fine-tuning of the averaged model at the clients.

    Attributes:
        epochs: Passes over a client's records.
        learning_rate: Learning rate of the optimiser.
        optimizer: None: Adam.
    """

    epochs: int = Field(default=5, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None


@register("method", "fedavg")
class FedAvg(Parameters):
    """Clients train a classifier from the same start; the server averages its parameters.

    Private runs train by DP-SGD, over all rounds together, and average with equal weights, since the numbers of
    records would leave exactly. `accuracy` is that of the averaged model, or, where clients keep a part to
    themselves, of the mean of their predictions.

    Attributes:
        rounds: 1 is one-shot averaging.
        local_epochs: Passes over a client's records in a round.
        share: The part that is averaged: `all`; the `head` alone (LG-FedAvg); the `body` alone (FedPer, FedRep,
            FedBABU).
        head_layers: Fully connected layers, the last ones, that count as the head where a part is shared.
        schedule: The part that a client trains in a round. `joint`: all of it at once. The other two need `share`
            to be `body`. `alternating`: the head alone for `head_epochs`, then the body alone for `local_epochs`
            (FedRep, algorithm 1); it has no private form. `body`: the body alone; the head keeps its initial
            weights, equal at all clients (FedBABU, section 4), until `fine_tune`.
        head_epochs: Passes over a client's records for the head, with `alternating`.
        proximal: mu, the strength of the pull of a round's training towards its starting point (FedProx).
        server: None: the clients' mean is the next round's start. Given: FedYogi's step towards it.
        width: Number of features m under the head, its bias counted as one, as FedLog counts; a `resnet16` has its
            own 512, `mobilenet_v2` 1,280.
        bodies: One, or with `share: head` several (client i gets entry i modulo their number).
        start: Initial weights of bodies: `random`, or a copy of the plan's `backbone`, of its width.
        batch: Minibatch size; the divisor of noised gradient sums in a private run.
        learning_rate: Learning rate of the optimiser.
        optimizer: None: Adam.
        fine_tune: After the last round every client fine-tunes the averaged model for itself (FedAvg-FT in Guan et
            al. 2025, table 3). Nothing more is sent, so this training is not noised. `personalized_accuracy` is
            then that of the clients' own models, `personalized_accuracy_global` that of the averaged one.
        target: Personalized accuracy up to which rounds and bytes are counted.
        dp_sgd: Parameters of a private run.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(units=EVERY_UNIT, cost=networks, sends=("parameters",))

    rounds: int = Field(default=1, ge=1)
    local_epochs: int = Field(default=20, ge=1)
    share: Share = "all"
    head_layers: int = Field(default=1, ge=1, exclude_if=lambda given: given == 1)
    schedule: Schedule = "joint"
    head_epochs: int = Field(default=10, ge=1, exclude_if=lambda given: given == 10)
    proximal: float = Field(default=0.0, ge=0, allow_inf_nan=False, exclude_if=lambda given: given == 0)
    server: ServerKey = None
    width: int = Field(default=32, ge=2)
    bodies: Bodies = (BodySpec(name="mlp"),)
    start: Start = "random"
    batch: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None
    fine_tune: FineTune | None = None
    target: float | None = Field(default=None, gt=0, le=1)
    dp_sgd: DpSgd = DpSgd()

    @model_validator(mode="after")
    def _shares_the_body(self) -> Self:
        if self.schedule != "joint" and self.share != "body":
            raise ValueError(f"schedule {self.schedule} with share {self.share}; allowed: share body")
        return self

    def leakiest_form(self) -> FedAvg:
        """The same method, with networks that memorize a few records."""
        return overfitted(self, self.local_epochs, self.learning_rate, self.rounds)

    def run(self, task: MethodInput, *, other: float = 0.0) -> Outcome:
        """All rounds: parameters down, training, parameters up.

        Args:
            task: The work.
            other: Gaussian-DP parameter mu of other releases about a record from the same budget.

        Raises:
            PlanError: Parameters that contradict each other.
            DataError: No client has a record, or training has diverged.
        """
        self._refuse(task)
        task.require_records("fedavg")
        steps = None
        if task.privacy.private:
            steps = self.dp_sgd.steps(
                task.privacy, epochs=self.local_epochs, rounds=self.rounds, batch=self.batch, other=other
            )
        release = exact() if steps is None else training_release(steps, task.privacy)
        sites = [self.site(index, client, task) for index, client in enumerate(task.clients)]
        current = sites[0].read()
        server = ServerSteps(self.server, current, sites[0].parameters)
        rounds = Rounds(self, task, [site.network.module for site in sites])
        start = public("random initialisation")
        messages = task.spool.keep_all(_broadcast(0, client, current, start) for client in task.clients)
        for number in rounds.numbers(self.rounds):
            sent = rounds.sent(number, partial(self._train, number, sites, current, steps, task))
            messages += task.spool.keep_all(_upload(number, client, sent, release) for client in task.clients)
            current = server.move(average(task.clients, sent))
            messages += task.spool.keep_all(_broadcast(number, each, current, derived()) for each in task.clients)
            rounds.end(number, sent, messages, partial(self._measure, sites, current, task))
        for site in sites:
            site.write(current)
        utility, remarks = rounds.summary(self.target)
        utility |= self._fine_tuned(sites, utility, task)
        exchanged = float(self.rounds * len(task.clients) * current.size)
        source = f"{training_words(task.privacy)} over {self.rounds} round(s), by privacy loss distributions"
        final = sites[:1] if self.share == "all" else [site for site in sites if len(site.network.labels)]
        return Outcome(
            Transcript("fedavg", task.classes, tuple(messages), task.privacy.claim(source)),
            MeanModel([scores_of(site.network.module) for site in final]),
            utility=utility,
            communication={"paper_parameters_up": exchanged, "paper_bytes_up": 4 * exchanged},
            networks=sent_networks(sites[0].network.module, messages) if self.share == "all" else {},
            mechanisms=update_experiments(steps, self.rounds),
            notes=remarks,
            stays=frozenset(utility) if self.share == "all" else frozenset({"model", *utility}),
        )

    def _refuse(self, task: MethodInput) -> None:
        """Parameters that contradict each other, or the task."""
        if len(self.bodies) > 1 and (self.share != "head" or self.head_layers > 1):
            raise PlanError(
                f"fedavg: {len(self.bodies)} bodies with share {self.share} and head_layers {self.head_layers}: "
                "bodies that are averaged must be alike; allowed: one body, or share head with head_layers 1"
            )
        if self.schedule == "alternating" and task.privacy.private:
            raise PlanError(
                "fedavg: schedule alternating (FedRep) has no private form: the body follows a head that was "
                "fitted to the records; allowed with a finite epsilon: joint or body"
            )

    def site(self, index: int, client: Records, task: MethodInput) -> Site:
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
        network = local_network(client.name, nn.Sequential(body, head), client, task.device, task.persons(client))
        return make_site(network, self.share, self.head_layers)

    def _train(
        self,
        number: int,
        sites: Sequence[Site],
        current: NDArray[np.float32],
        steps: NoisedTraining | None,
        task: MethodInput,
    ) -> Arrays:
        """Train every client from the current parameters; returns the arrays that they send."""
        training = LocalTraining(self.local_epochs, self.batch, self.learning_rate, steps)
        training = replace(training, optimizer=self.optimizer, pull=self.proximal)
        train = partial(self._train_site, training, number, task)
        return trained(sites, current, train, "fedavg", number, counted=steps is None)

    def _train_site(self, training: LocalTraining, number: int, task: MethodInput, site: Site) -> None:
        """A client's part of a round, in place; see `schedule`."""
        if self.schedule == "alternating":
            site.train_only("head")
            first = replace(training, epochs=self.head_epochs)
            first(site.network, head_loss, task, number, task.seeds.child("head"))
        if self.schedule != "joint":
            site.train_only("body")
        training(site.network, head_loss, task, number)
        if self.schedule != "joint":
            site.train_only("all")

    def _measure(self, sites: Sequence[Site], current: NDArray[np.float32], task: MethodInput) -> float | None:
        """Personalized accuracy with the averaged parameters in place."""
        for site in sites:
            site.write(current)
        models = [scores_of(site.network.module) for site in (sites[:1] if self.share == "all" else sites)]
        owner = [index % len(models) for index in range(len(sites))]
        return personalized(models, owner, task.clients, task.test).mean

    def _fine_tuned(
        self, sites: Sequence[Site], averaged: dict[str, float], task: MethodInput
    ) -> dict[str, float]:
        """Personalized accuracy of the clients' models after fine-tuning, which leaves the sites as they were."""
        if self.fine_tune is None or "personalized_accuracy" not in averaged:
            return {}
        tuned = self.fine_tune
        training = LocalTraining(tuned.epochs, self.batch, tuned.learning_rate, None, optimizer=tuned.optimizer)
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


def _upload(number: int, client: Records, sent: Arrays, release: Release) -> Message:
    parameters = MessageField(sent[f"{client.name}/parameters"], "parameters", release)
    return upload(number, client, sent, {"parameters": parameters})


def _broadcast(number: int, client: Records, values: NDArray[np.float32], release: Release) -> Message:
    return Message(number, SERVER, client.name, {"parameters": MessageField(values, "parameters", release)})
