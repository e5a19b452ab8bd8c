"""Store of the messages of a run until attacks and audits have read them.

The first ones stay in memory; beyond a limit they lie on the disk, one after the other in one file, and their
arrays are read on request. So memory does not grow with the number of clients, and small runs touch no disk.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from fedassay.exchange.message import Message
from fedassay.exchange.stored import Stored
from fedassay.privacy.tape import running_tape
from fedassay.support.atomic import make_folder, named_on_error

LIMIT = 16 << 20
"""Bytes of arrays that a run's messages may take in memory."""


class Spool:
    """The messages of one run of a method.

    Args:
        folder: Folder of the file; None: all messages stay in memory. The file is removed when neither
            this object nor a message in it is referred to any more.
        limit: Bytes of arrays that stay in memory.
    """

    def __init__(self, folder: Path | None = None, limit: int = LIMIT) -> None:
        self._folder = folder
        self._limit = limit
        self._held = 0
        self._stream: BinaryIO | None = None
        self._path = Path()
        self._last: tuple[Message, Stored | None, bytes] | None = None

    def keep(self, message: Message) -> Message:
        """The message, or an equal one with its arrays on the disk.

        Raises:
            OSError: The disk is full.
        """
        if self._last is None or not _same_arrays(message, self._last[0]):
            # Where all stays in memory, it is never read.
            serialized = b"" if self._folder is None else message.serialized
            self._last = (message, self._place(message, serialized), serialized)
        # Else it is a broadcast: many receivers, one set of arrays.
        _, stored, serialized = self._last
        kept = message if stored is None else message.left_in(stored, serialized)
        if (tape := running_tape()) is not None:
            tape.send(kept)
        return kept

    def keep_all(self, messages: Iterable[Message]) -> list[Message]:
        """`keep` for each of several messages, which need not exist all at once."""
        return [self.keep(message) for message in messages]

    def _place(self, message: Message, serialized: bytes) -> Stored | None:
        """Write the message to the file and return its place; None: it stays in memory."""
        size = sum(item.nbytes for item in message.fields.values())
        if self._folder is None or self._held + size <= self._limit:
            self._held += size
            return None
        stream = self._stream or self._open(self._folder)
        with named_on_error(self._path):
            offset = stream.tell()
            stream.write(serialized)
            stream.flush()
        return Stored(self._path, offset, len(serialized), self)

    def _open(self, folder: Path) -> BinaryIO:
        make_folder(folder)
        handle, name = tempfile.mkstemp(prefix="messages-", dir=folder)
        self._path, self._stream = Path(name), os.fdopen(handle, "wb")
        weakref.finalize(self, _remove, self._stream, self._path)
        return self._stream


def _remove(stream: BinaryIO, path: Path) -> None:
    with suppress(OSError):
        stream.close()
    path.unlink(missing_ok=True)


def _same_arrays(a: Message, b: Message) -> bool:
    """Whether two messages carry the very same objects."""
    return a.fields.keys() == b.fields.keys() and all(
        item.sent is b.fields[name].sent for name, item in a.fields.items()
    )
