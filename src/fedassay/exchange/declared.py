"""Manifest of a transcript: declarations of messages and their fields."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import FailFast, Field

from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import Claim, NoClaim, Release
from fedassay.support import limits
from fedassay.support.types import Frozen

_Name = Annotated[str, Field(min_length=1, max_length=limits.NAME_LENGTH)]


_Number = Annotated[int, Field(strict=True, ge=0)]
"""Index of a field's declaration in the manifest's `shared`."""


class FieldRecord(Frozen):
    """Declaration of a field."""

    kind: FieldKind = "other"
    release: Release
    additive: bool = False
    secure: bool = False


Fields = dict[str, FieldRecord]
"""Declarations of the fields of one message, by name."""


class MessageRecord(Frozen):
    """Declaration of a message: its fields one by one, or by indices into the shared ones."""

    round: int = Field(ge=0, le=limits.RECORDS)
    sender: _Name
    receiver: _Name = SERVER
    file: _Name
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    fields: dict[_Name, FieldRecord] = Field(default_factory=dict, max_length=limits.ARRAYS)
    shared: dict[_Name, _Number] = Field(default_factory=dict, max_length=limits.ARRAYS)


class Manifest(Frozen):
    """Content of `transcript.json`."""

    format: Literal[1]
    method: str = Field(max_length=limits.NAME_LENGTH)
    classes: int = Field(ge=1, le=limits.CLASSES)
    claim: Claim = Field(default_factory=NoClaim, discriminator="kind")
    notes: Annotated[tuple[str, ...], FailFast()] = Field(default=(), max_length=limits.MESSAGES)
    most_records: int | None = Field(default=None, ge=1, le=limits.RECORDS)
    class_names: Annotated[tuple[_Name, ...], FailFast()] = Field(default=(), max_length=limits.CLASSES)
    shared: Annotated[tuple[FieldRecord, ...], FailFast()] = Field(default=(), max_length=limits.RELEASES)
    messages: Annotated[tuple[MessageRecord, ...], FailFast()] = Field(min_length=1, max_length=limits.MESSAGES)


class Said:
    """Manifest entries of messages, as JSON.

    A field's declaration stands in its message. Where all declarations together would exceed the limit of reading,
    it stands once in `shared`, and the message holds its index.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._texts: dict[tuple[int, FieldKind, bool, bool], str] = {}
        texts = [self._text(item) for message in messages for item in message.fields.values()]
        containers = 2 * len(messages) + sum(text.count("{") + text.count("[") for text in texts)
        self._numbers: dict[str, int] = {}
        if containers > limits.JSON_CONTAINERS // 2:
            self._numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}

    @property
    def shared(self) -> str:
        """The line of what is said once, with its end; empty where nothing is."""
        return f' "shared": [{", ".join(self._numbers)}],\n' if self._numbers else ""

    def of(self, message: Message, file: str) -> str:
        """The entry of a message."""
        record = MessageRecord(
            round=message.round,
            sender=message.sender,
            receiver=message.receiver,
            file=file,
            sha256=hashlib.sha256(message.serialized).hexdigest(),
        )
        said = record.model_dump_json(exclude_defaults=True).removesuffix("}")
        texts = {name: self._text(item) for name, item in message.fields.items()}
        fields = ",".join(f"{json.dumps(name)}:{self._numbers.get(text, text)}" for name, text in texts.items())
        return f'{said},"{"shared" if self._numbers else "fields"}":{{{fields}}}}}'

    def _text(self, item: MessageField) -> str:
        # Releases are kept by the messages, so that an identity stays one's own.
        key = (id(item.release), item.kind, item.additive, item.secure)
        if key not in self._texts:
            said = FieldRecord(kind=item.kind, release=item.release, additive=item.additive, secure=item.secure)
            self._texts[key] = said.model_dump_json(exclude_defaults=True)
        return self._texts[key]
