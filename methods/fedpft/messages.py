"""Messages of FedPFT's clients, and the features that its server samples from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.exchange.counts import MAX_DRAWN, Draws, draws
from fedassay.exchange.feature_sources import message_mixtures
from fedassay.exchange.release import Release
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.mixtures import Family, Mixtures, pack_lower, sample_mixtures
from fedassay.mixtures.packed import at_limit, diagonal_index, to_transport
from fedassay.privacy.reruns import Experiment
from fedassay.support.errors import DataError
from fedassay.support.types import Floats, Ints, Matrix

MixtureTransport = Literal["float16", "float32"]


@dataclass(frozen=True, eq=False)
class United:
    """A client's own records and its samples from the mixtures that it received.

    Attributes:
        own: The client's records.
        features: Shape (n, d): first those of its own, then the samples.
        labels: Shape (n,).
    """

    own: Records
    features: Floats
    labels: Ints

    @property
    def name(self) -> str:
        """The client's name."""
        return self.own.name


FeatureSet = Records | United
"""The records that mixtures are fitted to."""


def weights_of(client: FeatureSet, task: MethodInput) -> Matrix | None:
    """Weight of each feature in the sums of a private run, shape (n,); see `MethodInput.weights`.

    Samples weigh 1 each. Given the received messages they are fixed, so that any weight would do, and a sample
    stands for one unit, as counts do. None: each feature counts as it is.

    Raises:
        DataError: Some person is at two clients.
    """
    if isinstance(client, Records):
        return task.weights(client)
    own = task.weights(client.own)
    return None if own is None else np.concatenate([own, np.ones(len(client.labels) - len(own))])


@dataclass(frozen=True)
class ClientMixtures:
    """One client's mixtures, ready to be sent.

    Attributes:
        classes: The class of each mixture, shape (P,).
        counts: Records per class as released: whole numbers, or noised ones.
        mixtures: One per class.
        releases: The releases of `class_ids`, `class_counts`, `component_counts`, `mixture_weights` and
            `mixture_moments` (means and covariances).
        experiment: The noised statistic on its worst-case neighbours, for reruns by an audit.
    """

    classes: Ints
    counts: Ints | Matrix
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


def mixture_message(
    sender: str, own: ClientMixtures, transport: MixtureTransport, *, number: int = 0, receiver: str = SERVER
) -> Message:
    """Return a client's message in round `number`, to the server or to another client.

    Noised moments beyond the range of the transport are clipped to it, which is post-processing; see `clipped`.

    Raises:
        DataError: Moments without noise are beyond it.
    """
    mixtures, releases = own.mixtures, own.releases
    whole = own.counts.dtype.kind == "i"
    counts = own.counts.astype(np.int32 if whole else np.float32)
    variances = diagonal_index(mixtures.family, mixtures.width)
    covariances = mixtures.covariances[:, None] if mixtures.family == "spherical" else mixtures.covariances
    noised = bool(releases["mixture_moments"].noise_scale)
    sent = to_transport(covariances, transport, "fedpft: covariances", positive=variances, clip=noised)
    return Message(
        number,
        sender,
        receiver,
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
                to_transport(mixtures.means, transport, "fedpft: means", clip=noised),
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


def clipped(messages: Sequence[Message]) -> tuple[str, ...]:
    """Says how many noised moments were clipped to the range of the transport, if any were."""
    moments = [
        message.fields[name].values
        for message in messages
        for name in ("means", "covariances")
        if message.fields[name].release.noise_scale
    ]
    beyond = sum(at_limit(values) for values in moments)
    if not beyond:
        return ()
    return (
        f"{beyond} of {sum(values.size for values in moments)} noised moments are beyond the range of "
        f"{moments[0].dtype} and were clipped to it",
    )


def synthesise(messages: Sequence[Message], task: MethodInput) -> tuple[Floats, Ints]:
    """Sample the mixtures of every message as often as `wanted` says, pooled.

    Returns:
        Synthetic features (n, d), float32, and their classes (n,).

    Raises:
        DataError: Nothing is left to sample.
    """
    asked = wanted(messages).counts
    total = sum(int(counts.sum()) for counts in asked)
    if not total:
        raise DataError("fedpft: no client has sent a class with a usable count; there is nothing to sample")
    features = np.empty((total, task.backbone.width), dtype=np.float32)
    labels = np.empty(total, dtype=np.int64)
    end = 0
    for message, counts in zip(messages, asked, strict=True):
        own, classes = _sampled(message, counts, task)
        start, end = end, end + len(own)
        features[start:end], labels[start:end] = own, classes
    return features, labels


def wanted(messages: Sequence[Message]) -> Draws:
    """Return the numbers of samples of every received mixture: the class's count, with an upper limit under noise.

    A class with a noised count of at most twice its noise is left out: its moments would be noise.
    """
    return draws([message.fields["class_counts"] for message in messages], MAX_DRAWN, "features", above=2.0)


def sample_message(message: Message, task: MethodInput) -> tuple[Floats, Ints]:
    """Sample every received mixture as often as `wanted` says.

    Args:
        message: A client's message.
        task: Source of the seeds, and the feature width.

    Returns:
        Synthetic features (n, d), float32, and their classes (n,); n may be 0.
    """
    return _sampled(message, wanted([message]).counts[0], task)


def _sampled(message: Message, counts: Ints, task: MethodInput) -> tuple[Floats, Ints]:
    received = message_mixtures(message)
    if received is None:
        return np.empty((0, task.backbone.width), dtype=np.float32), np.empty(0, dtype=np.int64)
    classes = message.fields["class_ids"].values.astype(np.int64)
    drawn, groups = sample_mixtures(received, counts, task.seeds.numpy("sample", message.sender))
    return drawn.astype(np.float32), classes[groups]
