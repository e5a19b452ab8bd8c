"""Progress of long steps: a bar with the time left on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Advance = Callable[[int, int], None]
"""Called with (done, total) as a step goes on."""


@dataclass(eq=False)
class Progress:
    """Where steps report.

    Attributes:
        bars: A `rich.progress.Progress`, or None to stay silent.
    """

    bars: Any = field(default=None, repr=False)

    @contextmanager
    def step(self, name: str) -> Iterator[Advance]:
        """A named step; yields the function to call with (done, total)."""
        if self.bars is None:
            yield lambda done, total: None
            return
        task = self.bars.add_task(name, total=None)
        try:
            yield lambda done, total: self.bars.update(task, completed=done, total=total)
        finally:
            self.bars.remove_task(task)


SILENT = Progress()
"""Reports nowhere."""


@contextmanager
def console(quiet: bool) -> Iterator[Progress]:
    """Bars on standard error where it is a terminal and not `quiet`; a silent `Progress` otherwise."""
    if quiet or not sys.stderr.isatty():
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    bars = Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bars:
        yield Progress(bars)
