"""Progress of long steps: a bar with the time left on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedassay.support.text import plain

_T = TypeVar("_T")

Advance = Callable[[int, int], None]
"""Called with (done, total) as a step goes on."""


def no_progress(done: int, total: int) -> None:
    """An `Advance` that tells nobody."""


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
            yield no_progress
            return
        task = self.bars.add_task(plain(name), total=None)
        try:
            yield lambda done, total: self.bars.update(task, completed=done, total=total)
        finally:
            self.bars.remove_task(task)

    def each(self, name: str, items: Sequence[_T]) -> Iterator[_T]:
        """The items that a named step works on, one after the other."""
        with self.step(name) as advance:
            for done, item in enumerate(items):
                advance(done, len(items))
                yield item


SILENT = Progress()
"""Reports nowhere."""


@contextmanager
def console(quiet: bool) -> Iterator[Progress]:
    """Bars on standard error where it is a terminal and not `quiet`; a silent `Progress` otherwise."""
    if quiet or not sys.stderr.isatty():
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, TextColumn
    from rich.progress import Progress as Bars
    from rich.text import Text

    class Time(ProgressColumn):
        """The time left; the time gone by as long as nothing says how much is left."""

        def render(self, task: Any) -> Text:
            """One word or two for a task."""
            left = task.time_remaining
            if left is not None and task.total:
                return Text(f"{task.percentage:.0f} %, {_clock(left)} left", style="progress.remaining")
            return Text(f"{_clock(task.elapsed or 0)} so far", style="progress.elapsed")

    bars = Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        Time(),
        console=Console(stderr=True),
        transient=True,
    )
    with bars:
        yield Progress(bars)


def _clock(seconds: float) -> str:
    """`42 s`, `3:07`, `1:03:07`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = f"{whole // 60 % 60:02d}:{whole % 60:02d}"
    return f"{whole // 3600}:{minutes}" if whole >= 3600 else minutes.lstrip("0")
