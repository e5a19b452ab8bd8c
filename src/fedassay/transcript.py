"""Messages and transcripts: everything that moved between the clients and the server, in order.

A transcript is the object of the audit. On disk it is a folder: `transcript.json` (what every field
is, how it was protected, what is claimed) and one safetensors file per message (the bytes that
were sent). The format needs no method backend, so that messages captured from a deployed system can
be audited as they are; see docs/transcript.md.

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
| `head` | any | weights of the global classifier head |
| `parameters` | any | weights of a trained model |
| `magnitude_mean` | (H, W, C) | mean Fourier magnitude of the sender's images |
| `other` | any | anything else; only ledger and linter look at it |
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from fedassay.atomic import write_bytes, write_text
from fedassay.errors import DataError
from fedassay.release import Claim, NoClaim, Release
from fedassay.transcript_shapes import MAX_CLASSES, shape_problem
from fedassay.values import Frozen

FORMAT = 1
"""Version of the transcript format on disk."""

MANIFEST = "transcript.json"
_MAX_BYTES = 8 << 30
_MAX_MANIFEST = 64 << 20

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
    "head",
    "parameters",
    "magnitude_mean",
    "other",
]

SERVER = "server"
AGGREGATE = "aggregate"


@dataclass(frozen=True)
class MessageField:
    """One array of a message.

    Attributes:
        values: The array as sent (its dtype is the transport's).
        kind: What the array means.
        release: How it was protected.
        additive: Whether the sum over the senders of a round is what the server needs.
        secure: Whether it travels under secure aggregation: nobody sees more than that sum.
    """

    values: NDArray[Any]
    kind: FieldKind
    release: Release
    additive: bool = False
    secure: bool = False


@dataclass(frozen=True)
class Message:
    """What one party sends another in one round."""

    round: int
    sender: str
    receiver: str
    fields: Mapping[str, MessageField]

    @property
    def serialized(self) -> bytes:
        """The message as it goes over the wire (safetensors); made anew, for the arrays are held already."""
        arrays = {name: np.ascontiguousarray(item.values) for name, item in self.fields.items()}
        return save_tensors(arrays)

    @cached_property
    def nbytes(self) -> int:
        """Bytes as serialized, framing included."""
        return len(self.serialized)

    def of_kind(self, kind: FieldKind) -> NDArray[Any] | None:
        """The array of the first field of that kind, or None."""
        return next((item.values for item in self.fields.values() if item.kind == kind), None)


@dataclass(frozen=True)
class Transcript:
    """Every message of a run of a method, in order.

    Attributes:
        method: Name of what produced it; free text for captured transcripts.
        classes: Number of classes C.
        messages: In the order in which they were sent.
        claim: What is claimed about the client messages, or an explicit `NoClaim`.
        notes: What a reader of the ledger must know (exclusions, fallbacks).
    """

    method: str
    classes: int
    messages: tuple[Message, ...]
    claim: Claim = field(default_factory=NoClaim)
    notes: tuple[str, ...] = ()

    @property
    def bytes_up(self) -> int:
        """Bytes sent by clients (to the server or to the next client)."""
        return sum(message.nbytes for message in self.messages if message.sender != SERVER)

    @property
    def bytes_down(self) -> int:
        """Bytes sent by the server, once for every receiver."""
        return sum(message.nbytes for message in self.messages if message.sender == SERVER)

    def from_clients(self) -> Iterator[Message]:
        """The messages that leave a client."""
        return (message for message in self.messages if message.sender != SERVER)

    def save(self, folder: Path) -> None:
        """Write the transcript into `folder`; the manifest comes last, so a partial write is no transcript."""
        folder.mkdir(parents=True, exist_ok=True)
        records = []
        for number, message in enumerate(self.messages):
            name = f"{number:05d}.safetensors"
            write_bytes(folder / name, message.serialized)
            fields = {
                key: _FieldRecord(kind=item.kind, release=item.release, additive=item.additive, secure=item.secure)
                for key, item in message.fields.items()
            }
            records.append(
                _MessageRecord(
                    round=message.round,
                    sender=message.sender,
                    receiver=message.receiver,
                    file=name,
                    fields=fields,
                )
            )
        manifest = _Manifest(
            format=FORMAT,
            method=self.method,
            classes=self.classes,
            claim=self.claim,
            notes=self.notes,
            messages=tuple(records),
        )
        write_text(folder / MANIFEST, manifest.model_dump_json(indent=1, exclude_defaults=False) + "\n")


class _FieldRecord(Frozen):
    kind: FieldKind = "other"
    release: Release
    additive: bool = False
    secure: bool = False


class _MessageRecord(Frozen):
    round: int = Field(ge=0)
    sender: str = Field(min_length=1)
    receiver: str = SERVER
    file: str
    fields: dict[str, _FieldRecord]


class _Manifest(Frozen):
    format: Literal[1]
    method: str
    classes: int = Field(ge=1, le=MAX_CLASSES)
    claim: Claim = Field(default_factory=NoClaim, discriminator="kind")
    notes: tuple[str, ...] = ()
    messages: tuple[_MessageRecord, ...] = Field(min_length=1)


def load_transcript(folder: Path) -> Transcript:
    """Read a transcript from a folder that nobody vouches for.

    Nothing in it is executed; every file must lie inside the folder; sizes are checked before
    anything is read into memory.

    Raises:
        DataError: Anything is missing, malformed, outside the folder, or holds NaN or infinity.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(f"{folder}: no {MANIFEST} there; a transcript is a folder that holds one")
    if path.stat().st_size > _MAX_MANIFEST:
        raise DataError(f"{path}: {path.stat().st_size} bytes; more than {_MAX_MANIFEST} are refused")
    try:
        manifest = _Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise DataError(
            f"{path}: {where or 'top level'}: {problem['msg']} ({error.error_count()} problem(s) in all)"
        ) from None
    files = _files(folder, manifest)
    messages = tuple(
        _load_message(file, record, manifest.classes)
        for file, record in zip(files, manifest.messages, strict=True)
    )
    return Transcript(manifest.method, manifest.classes, messages, manifest.claim, manifest.notes)


def _files(folder: Path, manifest: _Manifest) -> list[Path]:
    """The file of every message: inside the folder, there, named once, and small enough to be read."""
    named: dict[Path, str] = {}
    total = 0
    for record in manifest.messages:
        path = folder / record.file
        if not path.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{folder / MANIFEST}: file {record.file!r} points outside the transcript's folder")
        if not path.is_file():
            raise DataError(f"{path}: named in {MANIFEST} but not there")
        if path.resolve() in named:
            # A few bytes of manifest could otherwise ask for the same gigabyte any number of times.
            raise DataError(f"{folder / MANIFEST}: file {record.file!r} is named twice; one file is one message")
        named[path.resolve()] = record.file
        total += path.stat().st_size
        if total > _MAX_BYTES:
            raise DataError(f"{folder}: messages of more than {_MAX_BYTES >> 30} GiB in all are refused")
    return [folder / record.file for record in manifest.messages]


def _load_message(path: Path, record: _MessageRecord, classes: int) -> Message:
    try:
        arrays = load_tensors(path.read_bytes())
    except (SafetensorError, KeyError, ValueError, TypeError, json.JSONDecodeError) as error:
        raise DataError(f"{path}: not a safetensors file of NumPy types ({error})") from None
    if set(arrays) != set(record.fields):
        raise DataError(
            f"{path}: holds the fields {sorted(arrays)}, but {MANIFEST} declares {sorted(record.fields)}"
        )
    fields = {}
    for name, about in record.fields.items():
        values = arrays[name]
        if values.dtype.kind in "fc" and not np.isfinite(values).all():
            raise DataError(f"{path}: field {name!r} holds NaN or infinite values; every value must be finite")
        fields[name] = MessageField(values, about.kind, about.release, about.additive, about.secure)
    message = Message(record.round, record.sender, record.receiver, fields)
    problem = shape_problem(message, classes)
    if problem:
        raise DataError(f"{path}: {problem}")
    return message
