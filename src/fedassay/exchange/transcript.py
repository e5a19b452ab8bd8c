"""Transcripts: everything that moved between the clients and the server, in order.

A transcript is the object of the audit. On disk it is a folder: `transcript.json` (what every field
is, how it was protected, what is claimed) and one safetensors file per message (the bytes that
were sent). The format needs no method backend, so that messages captured from a deployed system can
be audited as they are; see docs/transcript.md.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fedassay.exchange.declared import FieldRecord, Fields, Manifest, MessageRecord, Said
from fedassay.exchange.message import AGGREGATE, SERVER, Message, MessageField, kinds_in
from fedassay.exchange.release import Claim, NoClaim
from fedassay.exchange.shapes import declared_problem, shape_problem
from fedassay.exchange.stored import UNREADABLE, Stored, arrays_in, declared_arrays
from fedassay.support import limits
from fedassay.support.atomic import make_folder, open_atomic, write_part
from fedassay.support.errors import DataError
from fedassay.support.reading import each_once, read_json, read_regular
from fedassay.support.text import cut, shown
from fedassay.support.validation import explain

__all__ = [
    "AGGREGATE",
    "FORMAT",
    "MANIFEST",
    "SERVER",
    "Message",
    "MessageField",
    "Transcript",
    "kinds_in",
    "load_transcript",
    "shape_problem",
]

FORMAT = 1
"""Version of the transcript format on disk."""

MANIFEST = "transcript.json"
_HELD = 64 << 20
"""Bytes of arrays that a transcript which is read may take in memory; the rest is read when it is asked for."""


@dataclass(frozen=True)
class Transcript:
    """Every message of a run of a method, in order.

    Attributes:
        method: Name of what produced it; free text for captured transcripts.
        classes: Number of classes C.
        messages: In the order in which they were sent.
        claim: The claim about the client messages, or an explicit `NoClaim`.
        notes: Notes for a reader of the ledger (exclusions, fallbacks).
        most_records: The most records that one person has at one client, where somebody says.
        class_names: Names of the classes 0 to C - 1, where the messages say them.
        sources: Names of the files that the messages were read from, in their order; none where nothing was.
    """

    method: str
    classes: int
    messages: tuple[Message, ...]
    claim: Claim = field(default_factory=NoClaim)
    notes: tuple[str, ...] = ()
    most_records: int | None = field(default=None, kw_only=True)
    class_names: tuple[str, ...] = field(default=(), kw_only=True)
    sources: tuple[str, ...] = field(default=(), repr=False, compare=False)

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

    def files(self) -> Iterator[str]:
        """The names of the files that `save` writes."""
        yield MANIFEST
        yield from map(_file_name, range(len(self.messages)))

    def save(self, folder: Path) -> None:
        """Write the transcript into `folder`; the manifest comes last, so a partial write is no transcript.

        Raises:
            DataError: Messages are read from this very folder, under other names than they would be written to.
        """
        make_folder(folder)
        inside = folder.resolve()
        lies = [_name_in(inside, message) for message in self.messages]
        for number, name in enumerate(lies):
            if name not in {None, _file_name(number)}:
                raise DataError(
                    f"{folder}: the transcript is read from there, and writing it would overwrite a file that is "
                    "still to be read; allowed: another folder"
                )
        for number, message in enumerate(self.messages):
            if lies[number] is None:
                write_part(folder / _file_name(number), message.serialized)
        said = Said(self.messages)
        # One message a line, and one at a time: neither the messages nor what is said of them is held twice.
        with open_atomic(folder / MANIFEST) as stream:
            most = "" if self.most_records is None else f' "most_records": {self.most_records},\n'
            named = f' "class_names": {json.dumps(self.class_names)},\n' if self.class_names else ""
            stream.write(
                f'{{\n "format": {FORMAT},\n "method": {json.dumps(self.method)},\n "classes": {self.classes},\n'
                f' "claim": {self.claim.model_dump_json()},\n "notes": {json.dumps(self.notes)},\n'
                f'{most}{named}{said.shared} "messages": ['.encode()
            )
            for number, message in enumerate(self.messages):
                stream.write(f"{',' if number else ''}\n  {said.of(message, _file_name(number))}".encode())
            stream.write(b"\n ]\n}\n")


def _file_name(number: int) -> str:
    return f"{number:05d}.safetensors"


def _name_in(folder: Path, message: Message) -> str | None:
    """The name of the message's file, where that lies in the (resolved) folder; None elsewhere."""
    if message.stored is None or message.stored.file.resolve().parent != folder:
        return None
    return message.stored.file.name


def load_transcript(folder: Path) -> Transcript:
    """Read a transcript from an untrusted folder.

    Nothing in it is executed, and nothing is opened that the manifest does not name. Every file must lie inside
    the folder and be a regular one; what it declares is held against the manifest before it is read.

    Raises:
        DataError: Anything is missing, malformed, outside the folder, or holds NaN or infinity.
    """
    path = folder / MANIFEST
    if not os.path.lexists(path):
        raise DataError(f"{folder}: no {MANIFEST} there; a transcript is a folder that holds one")
    try:
        content = read_json(path, follow=False)
        manifest = Manifest.model_validate_json(content)
        if len(content) < limits.MIB:
            # What a person edits is small, and the library takes the last of two values in silence.
            json.loads(content, object_pairs_hook=each_once)
    except ValidationError as error:
        count = error.error_count()
        more = f" ({count} problems in all)" if count > 1 else ""
        raise DataError(f"{explain(error, Manifest, str(path))}{more}") from None
    except ValueError as error:
        raise DataError(f"{path}: {error}") from None
    said = _said(path, manifest)
    files = _files(folder, manifest, said)
    messages, held = [], 0
    for file, record, fields in zip(files, manifest.messages, said, strict=True):
        serialized = read_regular(file, limits.MESSAGE_BYTES, follow=False)
        arrays = _load_arrays(file, serialized, fields)
        if record.sha256 is not None and hashlib.sha256(serialized).hexdigest() != record.sha256:
            raise DataError(f"{file}: is not the file that {MANIFEST} describes (its SHA-256 is another)")
        held += sum(array.nbytes for array in arrays.values())
        message = _message(file, record, fields, arrays, manifest.classes)
        lies = Stored(file, 0, len(serialized))
        messages.append(message if held <= _HELD else message.left_in(lies, serialized))
    names = tuple(record.file for record in manifest.messages)
    return Transcript(
        manifest.method,
        manifest.classes,
        tuple(messages),
        manifest.claim,
        manifest.notes,
        names,
        most_records=manifest.most_records,
        class_names=manifest.class_names,
    )


def _said(path: Path, manifest: Manifest) -> list[Fields]:
    """Declarations of the fields of every message; no more releases are declared than a ledger adds up.

    Raises:
        DataError: A field refers to no declaration, or is declared twice; or more releases are declared.
    """
    found: list[Fields] = []
    kept: dict[FieldRecord, FieldRecord] = {}
    blocks = 0
    for number, record in enumerate(manifest.messages):
        fields: Fields = {}
        for name, own in record.fields.items():
            if own not in kept:
                kept[own] = own
                blocks += len(own.release.cells)
            fields[name] = kept[own]
        for name, place in record.shared.items():
            if place >= len(manifest.shared) or name in fields:
                why = "`fields` says as well" if name in fields else f"{len(manifest.shared):,} are shared"
                raise DataError(f"{path}: messages.{number}.shared: {shown(name)} is {place}, and {why}")
            fields[name] = manifest.shared[place]
        if not fields:
            raise DataError(f"{path}: messages.{number}: says of no field what it is; allowed: one or more")
        found.append(fields)
    blocks += sum(len(each.release.cells) for each in manifest.shared)
    if (unlike := len(kept) + len(manifest.shared)) > limits.UNLIKE:
        raise DataError(f"{path}: declares fields in {unlike:,} ways that differ; allowed: {limits.UNLIKE:,}")
    if blocks > limits.RELEASES:
        raise DataError(
            f"{path}: declares releases of {blocks:,} blocks that differ; allowed: {limits.RELEASES:,}"
        )
    return found


def _files(folder: Path, manifest: Manifest, said: list[Fields]) -> list[Path]:
    """The file of every message: inside the folder, there, named once, and small enough to be read."""
    inside = folder.resolve()
    named: set[Path] = set()
    for record, fields in zip(manifest.messages, said, strict=True):
        try:
            path = (folder / record.file).resolve()
        except (OSError, ValueError, RuntimeError):  # a name that is too long, with a null byte; a circle of links
            raise DataError(f"{folder / MANIFEST}: file {shown(record.file)} is no name of a file") from None
        if not path.is_relative_to(inside):
            raise DataError(
                f"{folder / MANIFEST}: file {shown(record.file)} points outside the transcript's folder"
            )
        if not os.path.lexists(path):
            raise DataError(f"{folder / MANIFEST}: names the file {shown(record.file)}, which is not there")
        if path != inside / PurePosixPath(record.file):
            raise DataError(f"{folder / record.file}: it is a link, or lies in one; allowed: a regular file")
        if path in named:
            # A few bytes of manifest could otherwise ask for the same gigabyte any number of times.
            raise DataError(
                f"{folder / MANIFEST}: file {shown(record.file)} is named twice; one file is one message"
            )
        named.add(path)
        _check_declared(folder / record.file, fields)
    return [folder / record.file for record in manifest.messages]


def _check_declared(path: Path, fields: Fields) -> None:
    """Hold what a file says it holds against the manifest, before any of it is read."""
    held = declared_arrays(path)
    if set(held) != set(fields):
        raise DataError(
            f"{path}: holds the fields {cut(str(sorted(held)), 200)}, but {MANIFEST} declares "
            f"{cut(str(sorted(fields)), 200)}"
        )
    for name, array in held.items():
        kind = fields[name].kind
        problem = declared_problem(f"field {shown(name)} ({kind})", kind, array.shape, array.dtype)
        if problem is not None:
            raise DataError(f"{path}: {problem}")


def _load_arrays(path: Path, serialized: bytes, fields: Fields) -> dict[str, NDArray[Any]]:
    try:
        arrays = arrays_in(serialized)
    except UNREADABLE as error:
        raise DataError(f"{path}: not a safetensors file of NumPy types ({error})") from None
    for name in fields:
        values = arrays[name]
        if values.dtype.kind in "fc" and not np.isfinite(values).all():
            raise DataError(
                f"{path}: field {shown(name)} holds NaN or infinite values; every value must be finite"
            )
    return arrays


def _message(
    path: Path, record: MessageRecord, said: Fields, arrays: dict[str, NDArray[Any]], classes: int
) -> Message:
    fields = {
        name: MessageField(arrays[name], about.kind, about.release, about.additive, about.secure)
        for name, about in said.items()
    }
    message = Message(record.round, record.sender, record.receiver, fields)
    problem = shape_problem(message, classes)
    if problem:
        raise DataError(f"{path}: {problem}")
    return message
