"""Where a page goes: to a file, or to standard output where `-` is asked for."""

from __future__ import annotations

from pathlib import Path

from fedassay.support.atomic import write_text
from fedassay.support.errors import PlanError
from fedassay.support.terminal import is_stream, stream_page


def write_page(text: str, output: Path) -> None:
    """Write a page to a file, whole or not at all; or to standard output, where the path is `-` or `/dev/stdout`.

    Raises:
        PlanError: The file cannot be written, or something stands there that is no file.
    """
    if is_stream(output):
        stream_page(text)
        return
    try:
        write_text(output, text)
    except OSError as error:
        raise PlanError(f"{output}: cannot be written ({error.strerror}); name another with -o") from None
