"""What several kinds of hostile input are made of."""

from __future__ import annotations

import copy
import io
import json
import struct
import zipfile
import zlib
from typing import Any

from material import Special

FIFO, FOLDER = Special("fifo"), Special("folder")
ZERO = Special("link", "/dev/zero")
ESCAPE = "\x1b[2J\u202e"


def changed(tree: Any, path: str, value: Any) -> Any:
    """A copy of a tree with one value replaced."""
    out = copy.deepcopy(tree)
    *parents, last = path.split(".")
    place = out
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place[part]
    place[int(last) if isinstance(place, list) else last] = value
    return out


def header(head: Any, size: int = 0) -> Special | bytes:
    """A safetensors file of a header and so many zero bytes, which take no room."""
    text = head if isinstance(head, str) else json.dumps(head)
    start = struct.pack("<Q", len(text.encode())).decode("latin1")
    if not start.isascii():
        return struct.pack("<Q", len(text.encode())) + text.encode() + bytes(size)
    return Special("sparse", start + text, len(start) + len(text) + size)


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as made:
        for name, data in members.items():
            made.writestr(name, data)
    return stream.getvalue()


def bomb_png(side: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pressed = zlib.compressobj(9)
    row = bytes(side + 1)
    data = b"".join(pressed.compress(row) for _ in range(side)) + pressed.flush()
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
