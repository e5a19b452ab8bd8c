"""The stages of a piece of work: timed, and what fails in one does not stop the others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fedassay.records.record import ErrorRecord
from fedassay.support.errors import (
    OF_THE_DISK,
    FedassayError,
    first_line,
    is_of_a_library,
    is_out_of_memory,
    unexpected,
)
from fedassay.support.progress import Progress
from fedassay.support.text import cut, encodable

_LONGEST = 4_000
"""Characters of an error that are kept; what it quotes may be of any length."""


@dataclass(frozen=True)
class Stages:
    """The stages of one cell: `with stages("ledger"):` times a stage and records what fails in it.

    Attributes:
        cell: Key of the cell, for the record of an error.
        label: Name of the cell in the progress line.
        progress: Display of the stages.
        seconds: Wall seconds by stage.
        errors: The failures.
        out_of_memory: Names of the stages that memory did not suffice for.
    """

    cell: str
    label: str
    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)
    errors: list[ErrorRecord] = field(default_factory=list)
    out_of_memory: list[str] = field(default_factory=list)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """One stage.

        Raises:
            OSError: The disk is full or read-only: the next write would fail as well, and a resumed run must do
                this again.
        """
        started = time.perf_counter()
        try:
            with self.progress.step(f"{self.label}: {name}"):
                yield
        except BaseException as error:
            if not (isinstance(error, Exception) or is_of_a_library(error)):
                raise
            if isinstance(error, OSError) and error.errno in OF_THE_DISK:
                raise
            if is_out_of_memory(error):
                self.out_of_memory.append(name)
            self.errors.append(
                ErrorRecord(cell=self.cell, stage=name, message=cut(encodable(_message(error)), _LONGEST))
            )
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


def _message(error: BaseException) -> str:
    if isinstance(error, FedassayError):
        return str(error)
    if is_out_of_memory(error):
        return f"out of memory; --resume tries the cell again ({first_line(error)})"
    return unexpected(error)
