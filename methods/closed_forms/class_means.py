"""Class means and counts, plain or noised jointly: the messages of FedNCM and FedCOF."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.methods.closed_forms.statistics import GROUP, JointNoise, Sent, joint_noise
from fedassay.mixtures.packed import to_transport
from fedassay.privacy import reruns
from fedassay.privacy.mechanisms import release_count_sums
from fedassay.privacy.sensitivities import count_sums as count_sums_sensitivity
from fedassay.support.errors import DataError
from fedassay.support.types import Matrix

Transport = Literal["float32", "float64"]

_SOURCE = "joint Gaussian mechanism on class counts and sums, analytic calibration; the paper has no private form"


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Class means of the clients, as the server reads them.

    Attributes:
        counts: Records of each class at each client, shape (K, C); 0 where noise left less than can be used.
        means: Shape (K, C, d); 0 where the count is.
    """

    counts: Matrix
    means: Matrix

    @property
    def pooled(self) -> tuple[Matrix, Matrix]:
        """Counts (C,) and means (C, d) of all clients together; means of 0 where there is no record."""
        total = self.counts.sum(axis=0)
        sums = np.einsum("kc,kcd->cd", self.counts, self.means)
        return total, sums / np.maximum(total, np.finfo(float).tiny)[:, None]


def send_class_means(name: str, transport: Transport, task: MethodInput) -> Sent:
    """The messages of all clients.

    Without privacy a client sends its classes, their counts and their means. In a private run a mean over a count
    that is noised would have no finite guarantee: the client sends counts and sums of all classes, noised jointly.

    Args:
        name: The method.
        transport: Type that means, or noised counts and sums, travel in.
        task: The run.
    """
    width, adjacency = task.backbone.width, task.privacy.adjacency
    sensitivity = count_sums_sensitivity(width, adjacency=adjacency, classes=task.classes).sensitivity
    noise = joint_noise(task, sensitivity)
    messages = task.spool.keep_all(
        _plain(client, transport) if noise is None else _noised(client, noise, transport, task)
        for client in task.clients
    )
    mechanisms = {}
    if noise is not None:
        mechanisms["statistics"] = reruns.count_sums(
            adjacency=adjacency, sigmas=(noise.scale, noise.scale), unit=noise.target.unit
        )
    sent = sum(item.size for message in messages for item in message.fields.values() if item.dtype.kind == "f")
    return Sent(
        name,
        messages,
        _SOURCE,
        float(sent),
        np.dtype(transport).itemsize,
        noise,
        mechanisms,
    )


def _plain(client: Records, transport: Transport) -> Message:
    features = client.features.astype(np.float64)
    classes, counts = np.unique(client.labels, return_counts=True)
    means = [features[client.labels == label].mean(axis=0) for label in classes]
    fields = {
        "class_ids": MessageField(classes.astype(np.int32), "class_ids", exact("labels")),
        "counts": MessageField(counts.astype(np.int32), "class_counts", exact("labels")),
        "means": MessageField(
            to_transport(np.reshape(means, (len(classes), features.shape[1])), transport, "class means"),
            "class_means",
            exact(),
        ),
    }
    return Message(0, client.name, SERVER, fields)


def _noised(client: Records, noise: JointNoise, transport: Transport, task: MethodInput) -> Message:
    counts, sums = release_count_sums(
        client.features,
        client.labels,
        task.classes,
        sigmas=(noise.scale, noise.scale),
        noise=task.mechanism(client.name, 0, GROUP),
        weights=task.weights(client),
    )
    release = noise.release()
    fields = {
        "counts": MessageField(
            to_transport(counts, transport, "noised counts", clip=True), "class_counts", release, additive=True
        ),
        "sums": MessageField(
            to_transport(sums, transport, "noised class sums", clip=True), "class_sums", release, additive=True
        ),
    }
    return Message(0, client.name, SERVER, fields)


def read_class_means(sent: Sent, classes: int) -> ClassMeans:
    """Means and counts of every client; of noised ones those above twice their noise, in the unit ball.

    Raises:
        DataError: No class has a usable count at any client.
    """
    width = max(
        item.shape[1] for message in sent.messages for item in message.fields.values() if len(item.shape) > 1
    )
    counts = np.zeros((len(sent.messages), classes))
    means = np.zeros((len(sent.messages), classes, width))
    for row, message in enumerate(sent.messages):
        held = {name: item.values.astype(np.float64) for name, item in message.fields.items()}
        if sent.noise is None:
            ids = message.fields["class_ids"].values
            counts[row, ids], means[row, ids] = held["counts"], held["means"]
            continue
        usable = held["counts"] > max(0.5, 2 * sent.noise.scale)
        found = held["sums"][usable] / held["counts"][usable, None]
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        counts[row, usable], means[row, usable] = held["counts"][usable], found / np.maximum(norms, 1.0)
    if not counts.any():
        raise DataError(f"{sent.method}: no class has a usable count at any client")
    return ClassMeans(counts, means)
