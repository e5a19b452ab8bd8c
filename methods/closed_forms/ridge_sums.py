"""Gram and label matrices, plain or noised jointly: the messages of one-shot ridge and Fed3R."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.heads.gaussian import statistics
from fedassay.methods.closed_forms.statistics import GROUP, FeatureMap, JointNoise, received, release_of
from fedassay.mixtures.packed import pack_lower, to_transport, unpack_lower
from fedassay.privacy.mechanisms import release_ridge_sums
from fedassay.support.types import Matrix

Transport = Literal["float32", "float64"]


def noised_ridge_sums(
    client: Records, features: FeatureMap, noise: JointNoise | None, task: MethodInput
) -> tuple[Matrix, Matrix]:
    """A client's Gram matrix (d, d) and label matrix (C, d), noised jointly where there is noise.

    Args:
        client: The client's records.
        features: The features that the statistics are computed from.
        noise: The joint noise on both, or None.
        task: The run.
    """
    rows = features(client.features)
    if noise is None:
        own = statistics(rows, client.labels, task.classes)
        return own.second, own.sums
    sums, gram = release_ridge_sums(
        rows,
        client.labels,
        task.classes,
        sigmas=(noise.scale, noise.scale),
        noise=task.mechanism(client.name, 0, GROUP),
        constant=features.constant,
        weights=task.weights(client),
    )
    return gram, sums


def ridge_sums_message(
    sender: str, gram: Matrix, sums: Matrix, noise: JointNoise | None, transport: Transport, *, secure: bool
) -> Message:
    """The message of a Gram matrix `G` (its lower triangle) and a label matrix `b`.

    Args:
        sender: The client.
        gram: Shape (d, d).
        sums: Shape (C, d).
        noise: On both, or None.
        transport: Type that both travel in.
        secure: Whether only their sums over the clients are seen.
    """
    release, clip = release_of(noise), noise is not None
    packed = to_transport(pack_lower(gram), transport, "Gram matrix", clip=clip)
    labels = to_transport(sums, transport, "label matrix", clip=clip)
    fields = {
        "G": MessageField(packed, "second_moment", release, additive=True, secure=secure),
        "b": MessageField(labels, "class_sums", release, additive=True, secure=secure),
    }
    return Message(0, sender, SERVER, fields)


def added(messages: Sequence[Message]) -> tuple[Matrix, Matrix]:
    """The clients' Gram matrices and label matrices, each summed."""
    gram = unpack_lower(np.sum(received(messages, "G"), axis=0))
    return gram, np.asarray(np.sum(received(messages, "b"), axis=0))
