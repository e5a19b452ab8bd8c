"""CCVR (Luo et al. 2021, NeurIPS): FedAvg, then a head retrained on virtual features of Gaussian classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from fedassay.methods.shared.heads import HeadTraining, broadcast
from fedassay.methods.shared.local_heads import Ensemble
from fedassay.methods.shared.local_networks import outputs
from fedassay.mixtures.bounded import bounded_moments
from fedassay.mixtures.packed import pack_lower, unpack_lower
from fedassay.plan.work import head, networks
from fedassay.privacy import reruns
from fedassay.privacy.gaussian import mu_of
from fedassay.privacy.mechanisms import Moments, clip_features, release_class_sums
from fedassay.privacy.postprocess import covariance_from_moments, moments_from_sums
from fedassay.privacy.reruns import Experiment
from fedassay.privacy.sensitivities import class_sums
from fedassay.privacy.symmetric import project_psd, psd_root
from fedassay.support.errors import DataError
from fedassay.support.types import Floats, Ints, Matrix, Parameters

_GROUP = "statistics"

_SOURCE = (
    "DP-SGD for FedAvg, Gaussian mechanism on class statistics, by privacy loss distributions; "
    "CCVR has no private form of its own"
)
"""The source of a private run's claim."""


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """Counts, means and covariances of classes.

    Attributes:
        classes: Shape (P,).
        counts: Shape (P,); not whole where noised.
        means: Shape (P, d).
        covariances: Divided by n - 1 (0 for a single record), shape (P, d, d).
    """

    classes: Ints
    counts: Matrix
    means: Matrix
    covariances: Matrix


@dataclass(frozen=True)
class _Noise:
    """The joint Gaussian mechanism on (count, sum, second-moment sum) of every class."""

    scale: float
    sensitivity: float
    mu: float


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
        noise = self._noise(task)
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
            mechanisms={} if noise is None else {"class statistics": _experiment(noise, task)},
            notes=(remark(records, MAX_DRAWN, "virtual features"),) if fewer else (),
        )

    def _noise(self, task: MethodInput) -> _Noise | None:
        if not task.privacy.private:
            return None
        mu = math.sqrt(self.share) * mu_of(task.privacy.epsilon, task.privacy.delta)
        # The exact sensitivity depends on the width no more than on being above one.
        sensitivity = class_sums(2, adjacency=task.privacy.adjacency, classes=task.classes).sensitivity
        return _Noise(sensitivity / mu, sensitivity, mu)

    def _message(self, client: Records, body: nn.Module, noise: _Noise | None, task: MethodInput) -> Message:
        features = outputs(body, client.images)
        if noise is None:
            own = class_statistics(features, client.labels)
            of_labels, moved = exact("labels"), exact()
        else:
            own = _noised(features, client, noise, self.fedavg.rounds, task)
            of_labels = public("all classes")
            moved = task.privacy.gaussian(
                noise.scale,
                noise.sensitivity,
                group=_GROUP,
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


def class_statistics(features: Floats, labels: Ints) -> ClassStatistics:
    """Count, mean and covariance of every class present, of features (n, d)."""
    classes, counts = np.unique(labels, return_counts=True)
    width = features.shape[1]
    means, covariances = np.zeros((len(classes), width)), np.zeros((len(classes), width, width))
    for row, (label, count) in enumerate(zip(classes, counts, strict=True)):
        own = features[labels == label].astype(np.float64)
        means[row] = own.mean(axis=0)
        covariances[row] = (own - means[row]).T @ (own - means[row]) / max(count - 1, 1)
    return ClassStatistics(classes.astype(np.int64), counts.astype(np.float64), means, covariances)


def pool(parts: Sequence[ClassStatistics]) -> ClassStatistics:
    """Statistics of all clients' records of each class (Luo et al. 2021, equations 4 and 5).

    Counts below 1, which noise leaves, are left out.

    Raises:
        DataError: No class has a record.
    """
    classes = np.unique(np.concatenate([part.classes[part.counts >= 1] for part in parts]))
    if not len(classes):
        raise DataError("ccvr: no class has a usable count at any client")
    width = parts[0].means.shape[1]
    counts, sums = np.zeros(len(classes)), np.zeros((len(classes), width))
    second = np.zeros((len(classes), width, width))
    for part in parts:
        kept = part.counts >= 1
        rows, own, means = np.searchsorted(classes, part.classes[kept]), part.counts[kept], part.means[kept]
        counts[rows] += own
        sums[rows] += own[:, None] * means
        second[rows] += (own - 1)[:, None, None] * part.covariances[kept]
        second[rows] += own[:, None, None] * means[:, :, None] * means[:, None, :]
    means = sums / counts[:, None]
    scatter = second - counts[:, None, None] * means[:, :, None] * means[:, None, :]
    return ClassStatistics(classes, counts, means, scatter / np.maximum(counts - 1, 1)[:, None, None])


def _noised(features: Floats, client: Records, noise: _Noise, number: int, task: MethodInput) -> ClassStatistics:
    """Usable statistics of all classes from the noised release of a round (post-processing: see `postprocess`)."""
    released = release_class_sums(
        features,
        client.labels,
        task.classes,
        sigmas=(noise.scale,) * 3,
        noise=task.mechanism(client.name, number, _GROUP),
        weights=task.weights(client),
    )
    usable = moments_from_sums(*released)
    bounded = Moments(*bounded_moments(usable.means, usable.second, "full"))
    covariances = project_psd(covariance_from_moments(bounded, "full"))
    return ClassStatistics(np.arange(task.classes), released.counts, bounded.mean, covariances)


def _experiment(noise: _Noise, task: MethodInput) -> Experiment:
    asked = task.privacy
    return reruns.class_sums(adjacency=asked.adjacency, sigmas=(noise.scale,) * 3, unit=asked.unit)


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
