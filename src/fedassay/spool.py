"""Where the messages of a run wait until attacks and audits have read them.

The first ones stay in memory; from a limit on they lie on the disk, one safetensors file each, and their arrays
are read when they are asked for. So memory does not grow with the number of clients, and small runs
touch no disk.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path

from fedassay.transcript import Message

LIMIT = 16 << 20
"""Bytes of arrays that a run's messages may take in memory."""


class Spool:
    """The messages of one run of a method.

    Args:
        parent: A folder in which a folder for messages may be made; None: all stay in memory. It is
            removed when neither this object nor a message in it is referred to any more.
        limit: Bytes of arrays that stay in memory.
    """

    def __init__(self, parent: Path | None = None, limit: int = LIMIT) -> None:
        self._parent = parent
        self._limit = limit
        self._held = 0
        self._files = 0
        self._folder: Path | None = None
        self._last: tuple[Message, Path | None] | None = None

    def keep(self, message: Message) -> Message:
        """The message, or one equal to it whose arrays lie on the disk.

        Raises:
            OSError: The disk is full.
        """
        if self._last is not None and _same_arrays(message, self._last[0]):
            # A broadcast: many receivers, one set of arrays.
            path = self._last[1]
        else:
            path = self._place(message)
            self._last = (message, path)
        return message if path is None else message.left_in(path, self)

    def _place(self, message: Message) -> Path | None:
        """The file that the message has been written to; None: it stays in memory."""
        size = sum(item.nbytes for item in message.fields.values())
        if self._parent is None or self._held + size <= self._limit:
            self._held += size
            return None
        path = self._next(self._parent)
        path.write_bytes(message.serialized)
        return path

    def keep_all(self, messages: Iterable[Message]) -> list[Message]:
        """`keep` for each of several messages, which need not exist all at once."""
        return [self.keep(message) for message in messages]

    def _next(self, parent: Path) -> Path:
        if self._folder is None:
            parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix="messages-", dir=parent))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._files += 1
        return self._folder / f"{self._files:06d}.safetensors"


def _same_arrays(a: Message, b: Message) -> bool:
    """Whether two messages carry the very same objects."""
    return a.fields.keys() == b.fields.keys() and all(
        item.sent is b.fields[name].sent for name, item in a.fields.items()
    )
