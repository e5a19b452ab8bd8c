"""Federated SGD (McMahan et al. 2017, section 2, FedSGD): every client sends the gradient on its batch.

It has a single round, the subject of gradient attacks. Clients send sums over their records, so that the server
needs no more than the sum of their messages, and the total number of records.

The private form is the sum of clipped gradients through one Gaussian mechanism.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field
from torch import nn

from fedassay.backbones.base import initialised
from fedassay.contracts.facts import Given, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Sizes
from fedassay.data.records import Records
from fedassay.exchange.release import Release, exact, public
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.methods.fedsgd.gradients import (
    GROUP,
    GradientNoise,
    calibrated,
    clipped_sum,
    experiment,
    noised,
    summed_gradient,
)
from fedassay.methods.shared.classifiers import read
from fedassay.methods.shared.local_networks import LocalNetwork, local_network, to_inputs
from fedassay.methods.shared.sent_networks import sent_networks
from fedassay.nets.bodies import BodySpec, build_body
from fedassay.nets.traps import set_trap
from fedassay.plan import rates as rate
from fedassay.plan import work
from fedassay.support.errors import PlanError
from fedassay.support.types import Ints, Parameters


def _named(given: object) -> object:
    """A body may be written as its name alone."""
    return {"name": given} if isinstance(given, str) else given


def _seconds(given: Given, sizes: Sizes, private: bool) -> float:
    if given["body"] is None:
        return 4.0 * sizes.private * sizes.width * sizes.classes / rate.DENSE_FLOPS
    operations, parameters, speed = work.body(given["body"], sizes)
    noise = sizes.clients * parameters * rate.PRIVATE_PARAMETER if private else 0.0
    return 3 * operations * sizes.private * (rate.PRIVATE_RECORD if private else 1.0) / speed + noise


@register("method", "fedsgd")
class FedSGD(Parameters):
    """Clients send the gradient of one classifier on a batch of their records (FedSGD), for one round.

    The classifier is a linear head over the frozen backbone, from weights of 0, or a whole network with a `body`,
    from random ones that the server sends. One step makes no useful classifier, so no accuracy is measured: the
    method serves to show the leakage of its messages.

    A malicious server (`threat.server`) sends weights that are a trap; see `fedassay.nets.traps`.

    Private runs take all records of a client, clip each record's gradient over all parameters together, and noise
    the sum; the number of records is not sent.

    Attributes:
        body: The network under the head; None: the frozen backbone.
        width: Number of features m under the head of a network, its bias counted as one.
        batch: Records of a client that a plain gradient is of, drawn at random; all of them where it has fewer.
        clip: L2 norm that each record's gradient is clipped to in a private run.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(cost=_seconds, malicious="broadcast", sends=("gradient",))

    body: Annotated[BodySpec | None, BeforeValidator(_named)] = None
    width: int = Field(default=32, ge=2)
    batch: int = Field(default=32, ge=1)
    clip: float = Field(default=1.0, gt=0, allow_inf_nan=False)

    def run(self, task: MethodInput) -> Outcome:
        """One round: the classifier down, gradients up.

        Raises:
            DataError: No client has a record.
        """
        task.require_records("fedsgd")
        noise = calibrated(self.clip, task.privacy)
        networks = [self._network(client, task) for client in task.clients]
        start = read(networks[0].module)
        messages = list(task.spool.keep_all(self._start(start, task)))
        for client, network in task.progress.each("gradients", list(zip(task.clients, networks, strict=True))):
            messages.append(task.spool.keep(self._upload(client, network, noise, task)))
        sent = float(len(task.clients) * start.size)
        return Outcome(
            Transcript("fedsgd", task.classes, tuple(messages), task.privacy.claim(SOURCE)),
            None,
            communication={"paper_parameters_up": sent, "paper_bytes_up": 4 * sent},
            mechanisms={} if noise is None else {"gradient": experiment(noise)},
            networks={} if self.body is None else sent_networks(networks[0].module, messages),
        )

    def _network(self, client: Records, task: MethodInput) -> LocalNetwork:
        """A client's records before the classifier as all start from it: images, or features under a head."""
        if self.body is None:
            if task.adversary is not None:
                raise PlanError(
                    "fedsgd: threat.server malicious without a body: a head of weights of 0 leaves the server no "
                    "choice; allowed: a body, such as mlp"
                )
            head = nn.Linear(task.backbone.width, task.classes)
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)
            rows = torch.tensor(np.asarray(client.features, np.float32), device=task.device)
            labels = torch.tensor(client.labels, device=task.device)
            whole = nn.Sequential(OrderedDict(head=head)).to(task.device)
            return LocalNetwork(client.name, whole, rows, labels)
        body = build_body(self.body, client.image_shape, self.width - 1, task.seeds.integer("body"))
        head = initialised(lambda: nn.Linear(self.width - 1, task.classes), task.seeds.integer("head"))
        whole = nn.Sequential(OrderedDict(body=body, head=head))
        if task.adversary is not None:
            set_trap(whole, to_inputs(task.adversary.images, "cpu"), task.seeds)
        return local_network(client.name, whole, client, task.device)

    def _batch(self, client: Records, task: MethodInput) -> Ints:
        """Positions of the records that a plain gradient is of."""
        if len(client) <= self.batch:
            return np.arange(len(client))
        return np.sort(task.hidden_randomness.numpy("batch", client.name).permutation(len(client))[: self.batch])

    def _start(self, values: NDArray[np.float32], task: MethodInput) -> Sequence[Message]:
        """The server's messages that carry the classifier as it starts."""
        if self.body is None:
            release = public("zeros")
            fields = {
                f"head.{name}": MessageField(values, "head", release)
                for name, values in (
                    ("weight", np.zeros((task.classes, task.backbone.width), np.float32)),
                    ("bias", np.zeros(task.classes, np.float32)),
                )
            }
        else:
            fields = {"parameters": MessageField(values, "parameters", public("random initialisation"))}
        return [Message(0, SERVER, client.name, fields) for client in task.clients]

    def _upload(
        self, client: Records, network: LocalNetwork, noise: GradientNoise | None, task: MethodInput
    ) -> Message:
        """A client's gradient, array by array."""
        if noise is not None:
            total = noised(clipped_sum(network, self.clip), noise, task.mechanism(client.name, 1, GROUP))
            return Message(1, client.name, SERVER, self._fields(network.module, total, noise.release()))
        chosen = self._batch(client, task)
        fields = self._fields(network.module, summed_gradient(network, chosen), exact())
        count = np.array([len(chosen)], np.int32)
        fields["records"] = MessageField(count, "other", exact("size"), additive=True)
        return Message(1, client.name, SERVER, fields)

    def _fields(self, module: nn.Module, values: NDArray[np.float64], release: Release) -> dict[str, MessageField]:
        """A vector as long as all parameters, array by array under their names."""
        fields, at = {}, 0
        for name, parameter in module.named_parameters():
            part = values[at : at + parameter.numel()].reshape(tuple(parameter.shape))
            fields[name] = MessageField(part.astype(np.float32), "gradient", release, additive=True)
            at += parameter.numel()
        return fields


SOURCE = "Gaussian mechanism on the sum of clipped gradients, analytic calibration"
