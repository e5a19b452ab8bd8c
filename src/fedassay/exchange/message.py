"""Messages: what one party sends another in one round, array by array, and how each was protected.

The kind of a field says what its array means. All blocks are in the order of the message's
`class_ids` field where it has one, else class 0 to C - 1. d is the feature width, C the number of
classes, P the number of classes in `class_ids`, S the total number of mixture components.

| kind | shape | meaning |
|---|---|---|
| `features` | (n, d) | one feature vector a record, in the sender's record order |
| `labels` | (n,) | the labels of `features` |
| `class_ids` | (P,) | the classes that the other fields speak of |
| `class_counts` | (P,) | records per class |
| `component_counts` | (P,) | mixture components per class |
| `mixture_weights` | (S,) | component weights, summing to one in each class |
| `mixture_means` | (S, d) | component means |
| `mixture_covariances` | (S, d(d+1)/2), (S, d) or (S,) | packed lower triangles, diagonals or variances |
| `class_sums` | (P, d) | sum of the features of a class |
| `class_means` | (P, d) | mean of the features of a class |
| `second_moment` | (d, d) or (d(d+1)/2,) | sum of f f^T over all the sender's records |
| `class_covariances` | (P, d, d) or packed | covariance of a class's features |
| `class_second_moments` | (P, d, d), (P, d(d+1)/2) or (P, d) | sum of f f^T over a class, or its diagonal |
| `regularised_gram` | (d, d) or (d(d+1)/2,) | sum of f f^T plus gamma on the diagonal |
| `inverse_gram` | (d, d) or (d(d+1)/2,) | inverse of a `regularised_gram` |
| `ridge_weights` | (P, d) | class sums times the inverse of the `regularised_gram` beside them |
| `projection` | (w, d) | public matrix R, of the server: what clients send speaks of R^T f, f of width w |
| `phases` | (d,) | of the server, beside R: what clients send speaks of sqrt(2 / d) cos(R^T f + phases) |
| `head` | any | weights of the global classifier head |
| `parameters` | any | weights of a trained model |
| `gradient` | any | gradient of the loss by one array of a model, summed or averaged over the sender's records |
| `magnitude_mean` | (H, W, C) | mean Fourier magnitude of the sender's images |
| `other` | any | anything else; only ledger and linter look at it |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as save_tensors

from fedassay.exchange.release import Release
from fedassay.exchange.stored import Stored, StoredArray, array_starts

FieldKind = Literal[
    "features",
    "labels",
    "class_ids",
    "class_counts",
    "component_counts",
    "mixture_weights",
    "mixture_means",
    "mixture_covariances",
    "class_sums",
    "class_means",
    "second_moment",
    "class_covariances",
    "class_second_moments",
    "regularised_gram",
    "inverse_gram",
    "ridge_weights",
    "projection",
    "phases",
    "head",
    "parameters",
    "gradient",
    "magnitude_mean",
    "other",
]

SERVER = "server"
AGGREGATE = "aggregate"
COLLUDER = "colluder/"
"""How the names of clients begin that give the server what they sent: their sums are subtracted, and they are
nobody's victims."""


@dataclass(frozen=True)
class MessageField:
    """One array of a message.

    Attributes:
        sent: The array as sent (its dtype is the transport's), or where it lies.
        kind: What the array means.
        release: How it was protected.
        additive: Whether the sum over the senders of a round is what the server needs.
        secure: Whether it travels under secure aggregation: nobody sees more than that sum.
        doubted: Whether noise was declared that attacks and rules do not believe: the claim's audit says why.
    """

    sent: NDArray[Any] | StoredArray
    kind: FieldKind
    release: Release
    additive: bool = False
    secure: bool = False
    doubted: bool = False

    @property
    def values(self) -> NDArray[Any]:
        """The array; read anew each time where it lies in a file."""
        return self.sent.read() if isinstance(self.sent, StoredArray) else self.sent

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, for which nothing is read."""
        return self.sent.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type, for which nothing is read."""
        return self.sent.dtype

    @property
    def size(self) -> int:
        """Number of its entries, for which nothing is read."""
        return self.sent.size

    @property
    def nbytes(self) -> int:
        """Bytes of the array alone, for which nothing is read."""
        return self.sent.nbytes


@dataclass(frozen=True)
class Message:
    """What one party sends another in one round.

    Attributes:
        round: The round, from 0.
        sender: `client/3`, `colluder/0`, `server`.
        receiver: The same.
        fields: The arrays by name.
        stored: Where the message lies as serialized; None: only in memory.
    """

    round: int
    sender: str
    receiver: str
    fields: Mapping[str, MessageField]
    stored: Stored | None = field(default=None, repr=False, compare=False)

    @property
    def serialized(self) -> bytes:
        """The message as it goes over the wire (safetensors); made anew, for the arrays are held already."""
        if self.stored is not None:
            return self.stored.read()
        arrays = {name: np.ascontiguousarray(item.values) for name, item in self.fields.items()}
        return save_tensors(arrays)

    @cached_property
    def nbytes(self) -> int:
        """Bytes as serialized, framing included."""
        return len(self.serialized) if self.stored is None else self.stored.nbytes

    def left_in(self, stored: Stored, serialized: bytes) -> Message:
        """The same message, its arrays read when they are asked for.

        Args:
            stored: Where it lies.
            serialized: What lies there.
        """
        starts = array_starts(serialized)
        fields = {
            name: replace(item, sent=StoredArray(stored, name, starts[name], item.shape, item.dtype))
            for name, item in self.fields.items()
        }
        return replace(self, fields=fields, stored=stored)

    def of_kind(self, kind: FieldKind) -> NDArray[Any] | None:
        """The array of the first field of that kind, or None."""
        return next((item.values for item in self.fields.values() if item.kind == kind), None)
