"""The stages of a piece of work: timed, and what fails in one does not stop the others."""

from __future__ import annotations

import errno
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedassay.records.record import ErrorRecord
from fedassay.support.errors import FedassayError
from fedassay.support.progress import Progress


@contextmanager
def stage(
    name: str, cell: str, shown: str, progress: Progress, seconds: dict[str, float], errors: list[ErrorRecord]
) -> Iterator[None]:
    """Time a stage, and record what fails in it.

    Args:
        name: Of the stage.
        cell: Whose stage it is, for the record of an error.
        shown: What the progress line calls it.
        progress: Where it is shown.
        seconds: Wall seconds by stage, added to.
        errors: Added to.

    Raises:
        OSError: The disk is full: the next write would fail as well, and a resumed run must do this again.
    """
    started = time.perf_counter()
    try:
        with progress.step(shown):
            yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        errors.append(ErrorRecord(cell=cell, stage=name, message=_message(error)))
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - started


def _message(error: Exception) -> str:
    if isinstance(error, FedassayError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
