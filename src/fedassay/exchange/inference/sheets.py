"""Fields of messages of one form, and properties of each by itself.

Clients' messages with fields of the same names are of one form; a field has one kind in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.message import MessageField
from fedassay.exchange.transcript import SERVER, Transcript
from fedassay.support.types import Matrix

MESSAGES = 12
"""Largest number of messages of one form that are examined."""

_TYPES = (np.dtype(np.float16), np.dtype(np.float32))

_LARGEST = 1 << 22
"""Number of entries above which only the shape of an array is examined."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """One field over all messages of a form.

    Attributes:
        name: Name of the field.
        items: The field in each message.
    """

    name: str
    items: tuple[MessageField, ...]

    @cached_property
    def arrays(self) -> tuple[Matrix, ...]:
        """Arrays in float64; empty for fields that are too large, or not of numbers."""
        first = self.items[0]
        if first.dtype.kind not in "iufb" or any(item.size > _LARGEST for item in self.items):
            return ()
        return tuple(item.values.astype(np.float64) for item in self.items)

    @property
    def sides(self) -> int:
        """Number of sides of each array; -1 where they differ."""
        found = {len(item.shape) for item in self.items}
        return found.pop() if len(found) == 1 else -1

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Coarsest type that holds every number exactly: rounded numbers may travel in a finer one.

        Whole numbers keep their type, which does not show how they were computed.
        """
        sent = self.items[0].dtype
        if sent.kind != "f" or all(np.array_equal(a, np.rint(a)) for a in self.arrays):
            return sent
        coarser = (kind for kind in _TYPES if kind.itemsize < sent.itemsize)
        return next((kind for kind in coarser if all(holds(kind, a) for a in self.arrays)), sent)

    @property
    def unit(self) -> float:
        """Unit roundoff of that type; 0 for integers."""
        return float(np.finfo(self.dtype).eps) / 2 if self.dtype.kind == "f" else 0.0

    @property
    def noised(self) -> bool:
        """Whether any message declares Gaussian noise on the field."""
        return any(item.release.mechanism == "gaussian" for item in self.items)

    @cached_property
    def whole(self) -> bool:
        """Whether the field is one row of whole numbers, none below 0, in every message.

        Floats that are 0 or 1 throughout do not count: they may be weights.
        """
        counted = self.items[0].dtype.kind != "f" or any((a > 1).any() for a in self.arrays)
        return (
            self.sides == 1
            and bool(self.arrays)
            and counted
            and all(np.array_equal(a, np.rint(a)) and (a >= 0).all() for a in self.arrays)
        )

    def lengths(self) -> tuple[int, ...]:
        """Length of the first side in each message."""
        return tuple(item.shape[0] for item in self.items)

    def has_lengths(self, wanted: Sequence[int]) -> bool:
        """Whether the first sides have the wanted lengths, message by message."""
        return self.sides > 0 and self.lengths() == tuple(wanted)


@dataclass(frozen=True, eq=False)
class Form:
    """Messages that hold fields of the same names.

    Attributes:
        sheets: The fields by name.
        messages: Number of all messages, examined or not.
    """

    sheets: dict[str, Sheet]
    messages: int


def holds(kind: np.dtype[Any], values: NDArray[Any]) -> bool:
    """Whether a type of floats holds numbers exactly."""
    with np.errstate(over="ignore", under="ignore"):
        return bool((values.astype(kind) == values).all())


def forms_of(transcript: Transcript) -> list[Form]:
    """Return the forms of the clients' messages, in the order in which they are first sent."""
    found: dict[tuple[str, ...], list[dict[str, MessageField]]] = {}
    for message in transcript.messages:
        if message.sender != SERVER and message.fields:
            found.setdefault(tuple(sorted(message.fields)), []).append(dict(message.fields))
    forms = []
    for held in found.values():
        seen = [fields for fields in held if _holds_something(fields)][:MESSAGES] or held[:1]
        # In the order of the first message: layers stand in that of the network.
        sheets = {name: Sheet(name, tuple(fields[name] for fields in seen)) for name in held[0]}
        forms.append(Form(sheets, len(held)))
    return forms


def _holds_something(fields: dict[str, MessageField]) -> bool:
    """Whether no field is empty, as those of clients without records are."""
    return all(item.size for item in fields.values())
