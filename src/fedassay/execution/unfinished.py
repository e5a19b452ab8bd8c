"""Files of a stopped run: the record of its finished cells, its page, and the command to continue.

The record is written after every cell, which takes a moment, so that it stands whatever ends the process. The page
is written when the run is stopped in order, and meanwhile where the last one is older than a minute. Nothing
vouches for either: `fedassay check` decides nothing on a run that is not finished.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedassay.execution.run_output import write_unfinished
from fedassay.execution.runfolder import FinishedCell
from fedassay.plan.schema import Scenario
from fedassay.records.record import RunRecord
from fedassay.records.unfinished import MissingCell, Unfinished
from fedassay.support.errors import first_line, is_out_of_memory
from fedassay.support.signals import Stopped
from fedassay.support.terminal import say
from fedassay.support.text import plain

_SECONDS = 60.0
"""Age of a page at which another finished cell makes it anew, in seconds."""

GOING_ON = "the run goes on, or its process was killed"


@dataclass
class Standing:
    """The finished cells of a run that goes on, and what is written of them.

    Attributes:
        scenario: The scenario that is run.
        folder: The run folder.
        record: Makes the record of some finished cells; the second says what is missing, None: nothing.
        command: As typed; empty where the run was started from Python.
        redact: Whether nothing private is kept, so that the run starts again.
        quiet: Whether nothing is said.
        done: Finished cells by key.
    """

    scenario: Scenario
    folder: Path
    record: Callable[[Mapping[str, FinishedCell], Unfinished | None], RunRecord]
    command: list[str]
    redact: bool
    quiet: bool
    done: dict[str, FinishedCell] = field(default_factory=dict)
    _written: float = field(default_factory=time.monotonic)

    def add(self, key: str, finished: FinishedCell) -> None:
        """Take a finished cell, and write what stands, unless it was the last one."""
        self.done[key] = finished
        if len(self.done) < len(self.scenario.cells):
            page = time.monotonic() - self._written > _SECONDS
            self._write(GOING_ON, page)
            self._written = time.monotonic() if page else self._written

    def stopped(self, error: BaseException) -> None:
        """Write the page of what is finished, where anything is, and say where it is."""
        total = len(self.scenario.cells)
        if not self.done or len(self.done) == total:
            return
        self._write(_why(error), page=True)
        if not self.quiet:
            missing = total - len(self.done)
            say(f"Report without {missing} of {total} cells: {self.folder / 'report.html'}", err=True)

    def _write(self, why: str, page: bool) -> None:
        missing = tuple(
            MissingCell(
                method=cell.method.name,
                label=cell.method.label,
                epsilon=cell.privacy.epsilon,
                delta=cell.privacy.delta,
                adjacency=cell.privacy.adjacency,
                unit=cell.privacy.unit,
                seed=cell.seed,
            )
            for cell in self.scenario.cells
            if cell.key not in self.done
        )
        lacks = Unfinished(why=why, command=self._goes_on(), cells=missing)
        write_unfinished(self.folder, self.record(self.done, lacks), page)

    def _goes_on(self) -> str:
        """The command that goes on, as it can be typed."""
        again = "--force" if self.redact else "--resume"
        given = self.command or ["fedassay", "run", f"{self.scenario.plan.name}.yaml"]
        words = [word for word in given if word not in ("--resume", "--force")]
        if "-o" not in words and not any(word.startswith("--output") for word in words):
            words += ["-o", str(self.folder)]
        return " ".join(shlex.quote(plain(word)) for word in (*words, again))


def _why(error: BaseException) -> str:
    """Return the reason why a run stopped, as a clause."""
    if isinstance(error, Stopped):
        return f"it was stopped by {error.name}"
    if isinstance(error, KeyboardInterrupt):
        return "it was stopped by Ctrl-C"
    if is_out_of_memory(error):
        return "it ran out of memory"
    return f"it broke off: {type(error).__name__}: {first_line(error)}"
