"""What FedPFT's clients send and what its server makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import DataError
from fedassay.mixtures import Family, Mixtures, pack_lower, sample_mixtures
from fedassay.mixtures.packed import diagonal_index, to_transport
from fedassay.privacy.reruns import Experiment
from fedassay.release import Release
from fedassay.task import Records, Task
from fedassay.transcript import SERVER, Message, MessageField
from fedassay.values import Floats, Ints
from fedassay.vectors import message_mixtures

MixtureTransport = Literal["float16", "float32"]


@dataclass(frozen=True)
class ClientMixtures:
    """One client's mixtures, ready to be sent.

    Attributes:
        classes: The class of each mixture, shape (P,).
        counts: Records per class as released: whole numbers, or noised ones.
        mixtures: One per class.
        releases: How `class_ids`, `class_counts`, `component_counts`, `mixture_weights` and
            `mixture_moments` (means and covariances) are protected.
        experiment: The noised statistic on the neighbours that are worst for it, for reruns by an audit.
    """

    classes: Ints
    counts: NDArray[np.int64] | NDArray[np.float64]
    mixtures: Mixtures
    releases: Mapping[str, Release]
    experiment: Experiment | None = None


def single_components(family: Family, means: Floats, covariances: Floats, width: int) -> Mixtures:
    """Mixtures of one component each, from means (P, d) and unpacked covariances; counts travel beside them."""
    flat = np.asarray(means, dtype=np.float64).reshape(-1, width)
    if family == "full":
        covariances = pack_lower(np.asarray(covariances).reshape(len(flat), width, width))
    elif family == "diag":
        covariances = np.asarray(covariances).reshape(len(flat), width)
    size = len(flat)
    return Mixtures(
        family,
        np.ones(size, dtype=np.int64),
        np.zeros(size, dtype=np.int64),
        np.ones(size),
        flat,
        np.asarray(covariances, dtype=np.float64),
    )


def mixture_message(client: Records, own: ClientMixtures, transport: MixtureTransport) -> Message:
    """What a client sends the server."""
    mixtures, releases = own.mixtures, own.releases
    whole = own.counts.dtype.kind == "i"
    counts = own.counts.astype(np.int32 if whole else np.float32)
    variances = diagonal_index(mixtures.family, mixtures.width)
    covariances = mixtures.covariances[:, None] if mixtures.family == "spherical" else mixtures.covariances
    sent = to_transport(covariances, transport, "fedpft: covariances", positive=variances)
    return Message(
        0,
        client.name,
        SERVER,
        {
            "class_ids": MessageField(own.classes.astype(np.int32), "class_ids", releases["class_ids"]),
            "class_counts": MessageField(counts, "class_counts", releases["class_counts"]),
            "component_counts": MessageField(
                mixtures.components.astype(np.int32), "component_counts", releases["component_counts"]
            ),
            "weights": MessageField(
                to_transport(mixtures.weights, transport, "fedpft: weights"),
                "mixture_weights",
                releases["mixture_weights"],
            ),
            "means": MessageField(
                to_transport(mixtures.means, transport, "fedpft: means"),
                "mixture_means",
                releases["mixture_moments"],
            ),
            "covariances": MessageField(
                sent[:, 0] if mixtures.family == "spherical" else sent,
                "mixture_covariances",
                releases["mixture_moments"],
            ),
        },
    )


def synthesise(messages: Sequence[Message], task: Task) -> tuple[Floats, Ints]:
    """Sample every received mixture as often as its class has records.

    A class whose noised count is not above twice its noise is left out: its moments would be noise.

    Args:
        messages: What the clients have sent.
        task: Its seeds.

    Returns:
        Synthetic features (n, d), float32, and their classes (n,).

    Raises:
        DataError: Nothing is left to sample.
    """
    features, labels = [], []
    for message in messages:
        received = message_mixtures(message)
        if received is None:
            continue
        sent, classes = message.fields["class_counts"], message.fields["class_ids"].values.astype(np.int64)
        noise = max(sent.release.noise_scale or (0.0,))
        counts = np.where(sent.values > 2 * noise, received.counts, 0)
        drawn, groups = sample_mixtures(received, counts, task.seeds.numpy("sample", message.sender))
        features.append(drawn)
        labels.append(classes[groups])
    if not sum(len(part) for part in labels):
        raise DataError("fedpft: no client has sent a class with a usable count; there is nothing to sample")
    return np.concatenate(features).astype(np.float32), np.concatenate(labels)
