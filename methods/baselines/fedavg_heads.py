"""Federated averaging of heads over the frozen backbone, round after round.

The methods of several rounds that Beitollahi et al. 2024 compare with (figure 4): FedAvg (McMahan et al. 2017),
FedProx (Li et al., MLSys 2020) and FedYogi (Reddi et al., ICLR 2021), all of the classifier's head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from fedassay.contracts.facts import EVERY_UNIT, Given, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Sizes
from fedassay.data.records import Records
from fedassay.exchange.release import Release, exact
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.heads.linear import FeatureModel, LinearHead
from fedassay.methods.shared.dp_sgd import (
    DpSgd,
    NoisedTraining,
    training_release,
    training_words,
    update_experiments,
)
from fedassay.methods.shared.heads import broadcast, overfitted
from fedassay.methods.shared.local_heads import head_loss, sent_heads
from fedassay.methods.shared.local_networks import LocalNetwork, LocalTraining
from fedassay.methods.shared.personalized import personalized_accuracy
from fedassay.methods.shared.rounds import Arrays, Rounds
from fedassay.methods.shared.server_steps import ServerKey, ServerSteps
from fedassay.methods.shared.sites import Site, average, trained, upload
from fedassay.plan import rates as rate
from fedassay.support.optimisation import OptimizerKey
from fedassay.support.types import Parameters

_GROUP = "head"


def _seconds(given: Given, sizes: Sizes, private: bool) -> float:
    passes = given["rounds"] * given["local_epochs"]
    if private:
        steps = given["rounds"] * math.ceil(given["local_epochs"] / given["dp_sgd"]["sampling_rate"])
        return float(rate.CALIBRATION + steps * sizes.clients * rate.PRIVATE_STEP)
    operations = 6.0 * sizes.private * sizes.width * sizes.classes
    return float(passes * (operations / rate.DENSE_FLOPS + rate.STEP * sizes.private / given["batch"]))


@register("method", "fedavg_heads")
class FedAvgHeads(Parameters):
    """Clients train one head on their features, in rounds from the server's; the server averages.

    All start from a head of zeros. Private runs train by DP-SGD, of records or persons, over all rounds together,
    or send the change of a client's head, clipped and noised once a round. They average with equal weights, since
    the numbers of records would leave exactly. `fedavg` averages whole networks, `average` heads that are trained
    to convergence, once.

    Attributes:
        rounds: Rounds of training and averaging.
        local_epochs: Passes over a client's records in a round; the best of 50, 100 and 200 in the paper.
        batch: Minibatch size; the divisor of noised gradient sums in a private run.
        learning_rate: Learning rate of the optimiser; the best of 5e-2 and 1e-2 in the paper.
        optimizer: None: Adam.
        proximal: mu, the strength of the pull of a round's training towards its starting point (FedProx); 0.01 in
            the paper.
        server: None: the clients' mean is the next round's start. Given: FedYogi's step towards it.
        dp_sgd: Parameters of a private run.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(units=EVERY_UNIT, cost=_seconds)

    rounds: int = Field(default=10, ge=1)
    local_epochs: int = Field(default=5, ge=1)
    batch: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=1e-2, gt=0, allow_inf_nan=False)
    optimizer: OptimizerKey = None
    proximal: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    server: ServerKey = None
    dp_sgd: DpSgd = DpSgd()

    def leakiest_form(self) -> FedAvgHeads:
        """The same method, with heads that memorize a few records."""
        return overfitted(self, self.local_epochs, self.learning_rate, self.rounds)

    def run(self, task: MethodInput) -> Outcome:
        """All rounds: training, heads up, the head down.

        Raises:
            DataError: No client has a record, or training has diverged.
        """
        task.require_records("fedavg_heads")
        steps = None
        if task.privacy.private:
            steps = self.dp_sgd.steps(task.privacy, epochs=self.local_epochs, rounds=self.rounds, batch=self.batch)
        release = exact() if steps is None else training_release(steps, task.privacy, group=_GROUP)
        sites = [_site(client, task) for client in task.clients]
        current = sites[0].read()
        server = ServerSteps(self.server, current, current.size)
        rounds = Rounds(self, task, [])
        messages: list[Message] = []
        head = _head(current, task)
        for number in rounds.numbers(self.rounds):
            sent = rounds.sent(number, partial(self._train, number, sites, server.current, steps, task))
            up = task.spool.keep_all(_upload(number, client, sent, release, task) for client in task.clients)
            head = _head(server.move(average(task.clients, sent)), task)
            messages += up + task.spool.keep_all(broadcast(head, task.clients, number))
            rounds.end(number, sent, messages, partial(_measured, head, task))
        utility, remarks = rounds.summary(None)
        exchanged = float(self.rounds * len(task.clients) * current.size)
        source = f"{training_words(task.privacy)} over {self.rounds} round(s), by privacy loss distributions"
        return Outcome(
            Transcript("fedavg_heads", task.classes, tuple(messages), task.privacy.claim(source)),
            FeatureModel(head),
            utility=utility,
            communication={"paper_parameters_up": exchanged, "paper_bytes_up": 4 * exchanged},
            mechanisms=update_experiments(steps, self.rounds),
            networks=sent_heads([message for message in messages if message.sender != SERVER]),
            notes=remarks,
            stays=frozenset(utility),
        )

    def _train(
        self,
        number: int,
        sites: Sequence[Site],
        current: NDArray[np.float32],
        steps: NoisedTraining | None,
        task: MethodInput,
    ) -> Arrays:
        """Train every client's head from the current one; returns the arrays that they send."""
        training = LocalTraining(
            self.local_epochs, self.batch, self.learning_rate, steps, _GROUP, self.optimizer, self.proximal
        )
        return trained(
            sites,
            current,
            lambda site: training(site.network, head_loss, task, number),
            "fedavg_heads",
            number,
            counted=steps is None,
        )


def _site(client: Records, task: MethodInput) -> Site:
    """A client's head, as it starts, and its features."""
    module = nn.Linear(task.backbone.width, task.classes)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    features = torch.tensor(np.asarray(client.features, dtype=np.float32), device=task.device)
    labels = torch.tensor(client.labels, device=task.device)
    network = LocalNetwork(client.name, module.to(task.device), features, labels, task.persons(client))
    head = tuple(network.module.parameters())
    return Site(network, head, task.classes * (task.backbone.width + 1), head)


def _head(values: NDArray[np.float32], task: MethodInput) -> LinearHead:
    """The head that a vector holds, weights before bias."""
    weights = values[: -task.classes].reshape(task.classes, task.backbone.width)
    return LinearHead(np.arange(task.classes), weights, values[-task.classes :])


def _measured(head: LinearHead, task: MethodInput) -> float | None:
    """Personalized accuracy of the head that all clients have."""
    predicted = head.predict(task.test.features)
    return personalized_accuracy([predicted] * len(task.clients), task.clients, task.test).mean


def _upload(number: int, client: Records, sent: Arrays, release: Release, task: MethodInput) -> Message:
    head = _head(sent[f"{client.name}/parameters"], task)
    fields = {
        "head_weights": MessageField(head.weights, "head", release),
        "head_bias": MessageField(head.bias, "head", release),
    }
    return upload(number, client, sent, fields)
