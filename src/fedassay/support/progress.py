"""Progress of long steps: bars on a terminal, a line in a notebook, a line a minute in a log."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any, TypeVar

from fedassay.support.terminal import say
from fedassay.support.text import plain

_T = TypeVar("_T")

Advance = Callable[[int, int], None]
"""A function called with (done, total) as a step proceeds."""


def no_progress(done: int, total: int) -> None:
    """Ignore progress: an `Advance` without output."""


@dataclass(eq=False)
class Progress:
    """The display that steps report their progress to.

    Attributes:
        bars: A `rich.progress.Progress`, or `Lines`; None to stay silent.
        tells: Takes lines that are printed at once where there are no bars; None to stay silent.
    """

    bars: Any = field(default=None, repr=False)
    tells: Callable[[str], None] | None = field(default=None, repr=False)

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

    def tell(self, line: str) -> None:
        """Print a line at once, above the steps under way."""
        if self.bars is not None:
            self.bars.print(plain(line))
        elif self.tells is not None:
            self.tells(plain(line))

    def each(self, name: str, items: Sequence[_T]) -> Iterator[_T]:
        """The items that a named step works on, one after the other."""
        with self.step(name) as advance:
            for done, item in enumerate(items):
                advance(done, len(items))
                yield item


SILENT = Progress()
"""Reports nowhere."""


_TELLING = 0.1
"""Share of a step that must be done before the remaining time is estimated: its start is no measure of it."""


def time_left(gone: float, done: int, total: int) -> float | None:
    """Estimated seconds that a step still takes at its present rate; None before a tenth of it is done."""
    if done <= 0 or done < _TELLING * total:
        return None
    return gone * (total - done) / done


@dataclass
class _Task:
    """A step that is going on."""

    description: str
    began: float
    completed: int = 0
    total: int | None = None


@dataclass(eq=False)
class Lines:
    """Progress as lines of text, at most one per interval; has the interface of rich's bars.

    Attributes:
        tell: Takes a line that names the steps under way and their progress.
        every: Seconds between two lines; the first comes after as many.
        aloud: Whether immediate lines are printed as well; off for a log that is not watched.
        clock: Gives the time in seconds.
    """

    tell: Callable[[str], None]
    every: float = 60.0
    aloud: bool = True
    clock: Callable[[], float] = field(default=lambda: time.monotonic(), repr=False)
    _tasks: dict[int, _Task] = field(default_factory=dict, repr=False)
    _told: float = field(default=0.0, repr=False)
    _made: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        self._told = self.clock()

    def add_task(self, description: str, total: int | None = None) -> int:
        """Begin a step; returns its number."""
        self._made += 1
        self._tasks[self._made] = _Task(description, self.clock(), total=total)
        return self._made

    def update(self, task: int, completed: int, total: int) -> None:
        """Say how far a step is."""
        self._tasks[task].completed, self._tasks[task].total = completed, total
        if self.clock() - self._told >= self.every:
            self._told = self.clock()
            self.tell("; ".join(map(self._words, self._tasks.values())))

    def remove_task(self, task: int) -> None:
        """End a step."""
        del self._tasks[task]

    def print(self, line: str) -> None:
        """Print a line at once."""
        if self.aloud:
            self.tell(line)

    def _words(self, task: _Task) -> str:
        """`cells 3 of 12, 2:10 left`; no time before a tenth is done."""
        if not task.total:
            return task.description
        words = f"{task.description} {task.completed} of {task.total}"
        left = time_left(self.clock() - task.began, task.completed, task.total)
        return words if left is None else f"{words}, {_clock(left)} left"


@contextmanager
def console(quiet: bool) -> Iterator[Progress]:
    """Bars on a terminal, a line that changes in a notebook, a line a minute on any other standard error.

    Args:
        quiet: Whether to print nothing.
    """
    with _shown(quiet) as progress:
        _current.append(progress)
        try:
            yield progress
        finally:
            _current.remove(progress)


@contextmanager
def current() -> Iterator[Progress]:
    """Yield the display that is open already, for steps deep in the call stack; else open bars of their own."""
    if _current:
        yield _current[-1]
    else:
        with console(quiet=False) as progress:
            yield progress


_current: list[Progress] = []
"""The open displays, the innermost last: one terminal cannot have two live displays."""


@contextmanager
def _shown(quiet: bool) -> Iterator[Progress]:
    if quiet:
        yield Progress()
    elif in_notebook():
        with _notebook_line() as tell:
            yield Progress(Lines(tell, every=0.5))
    elif sys.stderr.isatty():
        with _bars() as bars:
            yield Progress(bars)
    else:
        yield Progress(Lines(lambda line: say(f"fedassay: {line}", err=True), aloud=False))


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook, which can replace its earlier output."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


@contextmanager
def _notebook_line() -> Iterator[Callable[[str], None]]:
    """A line under the cell that runs, which is taken away at the end."""
    from IPython.display import HTML, display

    shown = display(HTML(""), display_id=True)
    try:
        with warnings.catch_warnings():
            # tqdm gives this warning; libraries import it, but no step of ours shows its bars.
            warnings.filterwarnings("ignore", message="IProgress not found")
            yield lambda line: shown.update(HTML(f"<small>{escape(line)}</small>"))
    finally:
        shown.update(HTML(""))


@contextmanager
def _bars() -> Iterator[Any]:
    """Bars of rich on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, TextColumn
    from rich.progress import Progress as Bars
    from rich.text import Text

    class Time(ProgressColumn):
        """The time left; the time gone by as long as nothing says how much is left."""

        def render(self, task: Any) -> Text:
            """One word or two for a task."""
            left = task.time_remaining
            if left is not None and task.total and task.completed >= _TELLING * task.total:
                return Text(f"{task.percentage:.0f} %, {_clock(left)} left", style="progress.remaining")
            return Text(f"{_clock(task.elapsed or 0)} so far", style="progress.elapsed")

    bars = Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        Time(),
        console=Console(stderr=True, markup=False, highlight=False),
        transient=True,
    )
    with bars:
        yield bars


def _clock(seconds: float) -> str:
    """`42 s`, `3:07`, `1:03:07`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = f"{whole // 60 % 60:02d}:{whole % 60:02d}"
    return f"{whole // 3600}:{minutes}" if whole >= 3600 else minutes.lstrip("0")
