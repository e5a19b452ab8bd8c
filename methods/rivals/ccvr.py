"""CCVR (Luo et al. 2021, NeurIPS): FedAvg, then a head retrained on virtual features of Gaussian classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from pydantic import Field, model_validator
from torch import nn

from fedassay.contracts.facts import EVERY_UNIT, Given, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Sizes
from fedassay.data.records import Records
from fedassay.exchange.counts import MAX_DRAWN, remark
from fedassay.exchange.release import exact, public
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.heads.linear import LinearHead
from fedassay.methods.baselines.fedavg import FedAvg, averaged_network
from fedassay.methods.rivals.class_statistics import (
    GROUP,
    ClassStatistics,
    StatisticsNoise,
    class_statistics,
    experiment_of,
    noised_statistics,
    pool,
    statistics_noise,
)
from fedassay.methods.shared.heads import HeadTraining, broadcast
from fedassay.methods.shared.local_heads import Ensemble
from fedassay.methods.shared.local_networks import outputs
from fedassay.mixtures.packed import pack_lower, unpack_lower
from fedassay.plan.work import head, networks
from fedassay.privacy.mechanisms import clip_features
from fedassay.privacy.symmetric import psd_root
from fedassay.support.types import Floats, Ints, Matrix, Parameters

_SOURCE = (
    "DP-SGD for FedAvg, Gaussian mechanism on class statistics, by privacy loss distributions; "
    "CCVR has no private form of its own"
)
"""The source of a private run's claim."""


def _seconds(given: Given, sizes: Sizes, private: bool) -> float:
    return networks(given["fedavg"], sizes, private) + head(sizes, sizes.private)


@register("method", "ccvr")
class CCVR(Parameters):
    """After FedAvg, clients send class means and covariances of the averaged body's features.

    The server pools them exactly (Luo et al. 2021, equations 4 and 5), samples virtual features from one
    Gaussian per class and retrains the averaged model's head on these. Of the paper's variants this is
    the one without Tukey's transform, which needs features that are not negative.

    Private runs. The averaged body is public once FedAvg has sent it, so class statistics are a Gaussian mechanism
    on features clipped to norm 1: one joint release of the count, sum and second-moment sum of all classes. The
    client derives means and covariances from it. They share one budget with FedAvg's DP-SGD.

    Attributes:
        fedavg: The preceding FedAvg; `share` must be `all`, one body.
        head: Settings of the head's retraining.
        virtual: Virtual features in all, in the classes' proportions; None: as many as there were records, and
            200,000 at most where counts are noised.
        share: Share of the squared Gaussian-DP parameter that the statistics may spend in a private run.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(units=EVERY_UNIT, cost=_seconds)

    fedavg: FedAvg = FedAvg()
    head: HeadTraining = HeadTraining()
    virtual: int | None = Field(default=None, ge=1)
    share: float = Field(default=0.5, gt=0, lt=1)

    @model_validator(mode="after")
    def _whole_networks(self) -> CCVR:
        if self.fedavg.share != "all" or len(self.fedavg.bodies) > 1:
            raise ValueError("ccvr: fedavg must average whole networks of one kind; allowed: share all, one body")
        return self

    def leakiest_form(self) -> CCVR:
        """The same method, with networks and a head that memorize a few records."""
        return self.model_copy(update={"fedavg": self.fedavg.leakiest_form(), "head": self.head.leakiest_form()})

    def run(self, task: MethodInput) -> Outcome:
        """FedAvg's rounds, then one more: statistics up, the new head down.

        Raises:
            DataError: No client has a record, or training has diverged.
        """
        noise = statistics_noise(self.share, task)
        averaged = self.fedavg.run(task, other=0.0 if noise is None else noise.mu)
        network = averaged_network(self.fedavg, averaged, task)
        body = network[0]
        messages = task.spool.keep_all(self._message(client, body, noise, task) for client in task.clients)
        pooled = pool([_received(message) for message in messages])
        records = float(pooled.counts.sum())
        fewer = self.virtual is None and noise is not None and records > MAX_DRAWN
        features, labels = self._sample(pooled, MAX_DRAWN if fewer else self.virtual or records, task)
        head = self.head.fit(features, labels, task)
        transform = (lambda rows: rows) if noise is None else clip_features
        sent = sum(float(item.size) for message in messages for item in message.fields.values())
        before = float(np.mean(outputs(network, task.test.images).argmax(axis=1) == task.test.labels))
        return Outcome(
            Transcript(
                "ccvr",
                task.classes,
                (*averaged.transcript.messages, *messages, *broadcast(head, task.clients, self.fedavg.rounds)),
                task.privacy.claim(_SOURCE),
                () if noise is None else ("features are clipped to norm 1 before the statistics are taken",),
            ),
            Ensemble([_scores(body, head, transform, task.classes)], "logits"),
            utility={"accuracy_before_calibration": before},
            communication={
                "paper_parameters_up": averaged.communication["paper_parameters_up"] + sent,
                "paper_bytes_up": averaged.communication["paper_bytes_up"] + 4 * sent,
            },
            networks=averaged.networks,
            mechanisms={} if noise is None else {"class statistics": experiment_of(noise, task)},
            notes=(remark(records, MAX_DRAWN, "virtual features"),) if fewer else (),
        )

    def _message(
        self, client: Records, body: nn.Module, noise: StatisticsNoise | None, task: MethodInput
    ) -> Message:
        features = outputs(body, client.images)
        if noise is None:
            own = class_statistics(features, client.labels)
            of_labels, moved = exact("labels"), exact()
        else:
            own = noised_statistics(features, client, noise, self.fedavg.rounds, task)
            of_labels = public("all classes")
            moved = task.privacy.gaussian(
                noise.scale,
                noise.sensitivity,
                group=GROUP,
                note="means and covariances are derived from noised counts, sums and second-moment sums",
            )
        counts = own.counts.astype(np.int32 if noise is None else np.float32)
        return Message(
            self.fedavg.rounds,
            client.name,
            SERVER,
            {
                "class_ids": MessageField(own.classes.astype(np.int32), "class_ids", of_labels),
                "class_counts": MessageField(counts, "class_counts", of_labels if noise is None else moved),
                "means": MessageField(own.means.astype(np.float32), "class_means", moved),
                "covariances": MessageField(
                    pack_lower(own.covariances).astype(np.float32), "class_covariances", moved
                ),
            },
        )

    def _sample(self, pooled: ClassStatistics, size: float, task: MethodInput) -> tuple[Floats, Ints]:
        """Virtual features and their labels, in the classes' proportions, one of each class at least."""
        total = pooled.counts.sum()
        rng = task.seeds.numpy("virtual")
        features, labels = [], []
        for label, count, mean, covariance in zip(
            pooled.classes, pooled.counts, pooled.means, pooled.covariances, strict=True
        ):
            wanted = max(1, round(float(size * count / total)))
            features.append(mean + rng.standard_normal((wanted, len(mean))) @ psd_root(covariance).T)
            labels.append(np.full(wanted, label, dtype=np.int64))
        return np.concatenate(features), np.concatenate(labels)


def _received(message: Message) -> ClassStatistics:
    fields = message.fields
    return ClassStatistics(
        fields["class_ids"].values.astype(np.int64),
        fields["class_counts"].values.astype(np.float64),
        fields["means"].values.astype(np.float64),
        unpack_lower(fields["covariances"].values.astype(np.float64)),
    )


def _scores(
    body: nn.Module, head: LinearHead, transform: Callable[[Floats], Floats], classes: int
) -> Callable[[Records], Matrix]:
    """Class scores of the averaged body under the new head; a class that it does not know is never the answer."""

    def scores(records: Records) -> Matrix:
        found = np.full((len(records), classes), -np.inf)
        found[:, head.classes] = head.scores(transform(outputs(body, records.images)))
        return found

    return scores
