"""Destination of a page: a file, or standard output where `-` is asked for."""

from __future__ import annotations

from pathlib import Path

from fedassay.support.atomic import chosen_by_user, write_text
from fedassay.support.terminal import is_stream, stream_page

ANOTHER = "name another with -o"
"""Advice where nothing can be written."""


def write_page(text: str, output: Path) -> None:
    """Write a page to a file, whole or not at all; or to standard output, where the path is `-` or `/dev/stdout`.

    Raises:
        PlanError: The file cannot be written, or something stands there that is no file.
        OSError: The disk is full or broken.
    """
    if is_stream(output):
        stream_page(text)
        return
    with chosen_by_user(output, ANOTHER):
        write_text(output, text)
