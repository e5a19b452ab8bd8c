"""Messages: what one party sends another in one round, array by array, and how each was protected.

The kind of a field says what its array means (`fedassay.exchange.kinds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as save_tensors

from fedassay.exchange.kinds import FieldKind, facts_of
from fedassay.exchange.release import Release
from fedassay.exchange.stored import Stored, StoredArray, array_starts

SERVER = "server"
AGGREGATE = "aggregate"
COLLUDER = "colluder/"
"""Prefix of the names of clients that give the server their messages: these are subtracted from sums, and the
clients are no victims."""


@dataclass(frozen=True)
class MessageField:
    """One array of a message.

    Attributes:
        sent: The array as sent (its dtype is the transport's), or where it lies.
        kind: Kind of the array.
        release: Protection of the array.
        additive: Whether the sum over the senders of a round is what the server needs.
        secure: Whether it travels under secure aggregation: only that sum is visible.
        doubted: Whether noise was declared that attacks and rules do not believe: the claim's audit says why.
    """

    sent: NDArray[Any] | StoredArray
    kind: FieldKind
    release: Release
    additive: bool = False
    secure: bool = False
    doubted: bool = False

    def __post_init__(self) -> None:
        """Refuse an undeclared kind."""
        facts_of(self.kind)

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
    """Message from one party to another in one round.

    Attributes:
        round: The round, from 0.
        sender: `client/3`, `colluder/0`, `server`.
        receiver: The same.
        fields: The arrays by name.
        stored: File with the serialized message; None: only in memory.
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
            stored: Place of the stored message.
            serialized: The stored bytes.
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


def any_protected(messages: Iterable[Message]) -> bool:
    """Whether any field of any message says that a mechanism protects it."""
    return any(
        item.release.mechanism in {"gaussian", "pure", "dp_sgd"}
        for message in messages
        for item in message.fields.values()
    )


def kinds_in(messages: Iterable[Message]) -> frozenset[FieldKind]:
    """The kinds of all fields of the messages."""
    return frozenset(item.kind for message in messages for item in message.fields.values())
