"""Where faults are put: changes of lines that a cell runs, drawn by seed, as edits of the package."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from catalogue import Edit
from operators import OPERATORS, Change, changes, compiles

RELEVANT = (
    r"noise|sigma|scale|clip|sensitiv|calibrat|mechanism|epsilon|delta|norm|root|\bmu\b|shape|grid|exact|upper|key"
)
"""Words of lines that noise and clip."""
RATHER = {
    "halve a scale": 4.0,
    "drop a term": 3.0,
    "off by one": 2.0,
    "constant for data": 2.0,
    "drop a call": 2.0,
    "flip a condition": 2.0,
    "drop an argument": 0.5,
    "swap arguments": 0.7,
}
"""How often kinds of changes are drawn, where not once: what is left out where it is needed only crashes."""

ASIDE = ("privacy/reruns.py", "privacy/paper_formulas.py")
"""What no message depends on: the audits' own experiments, and what the ledger says of a paper's formula."""

Lines = dict[str, list[int]]
"""Lines that ran, by file below the package's folder."""


@dataclass(frozen=True)
class Drawn:
    """One fault.

    Attributes:
        name: Unique.
        operator: The kind of change.
        file: Below the package's folder.
        line: Where it begins.
        case: The cell that runs this line.
        old: What stood there.
        new: What stands there instead.
        edit: The same as an edit, whose text occurs once in the file.
    """

    name: str
    operator: str
    file: str
    line: int
    case: str
    old: str
    new: str
    edit: Edit

    def applied(self, source: str) -> str:
        """The changed file."""
        return source.replace(self.edit.old, self.edit.new)


def traced(package: Path, work: Callable[[], Any]) -> Lines:
    """The lines of a package's functions that some work runs."""
    root, found = str(package.resolve()) + "/", {}

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            found.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
        return local

    def begun(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        return local if code.co_filename.startswith(root) and code.co_name != "<module>" else None

    sys.settrace(begun)
    try:
        work()
    finally:
        sys.settrace(None)
    return {name.removeprefix(root): sorted(lines) for name, lines in found.items()}


def drawn(
    package: Path, lines: dict[str, Lines], folders: Sequence[tuple[str, float]], seed: int, words: str
) -> Iterator[Drawn]:
    """Faults without end, or until none is left: an operator, a cell, and a change of a line that it runs.

    Args:
        package: The package's folder.
        lines: What each cell runs.
        folders: Beginnings of files' names, and how often each is asked for.
        seed: Of the draw.
        words: A regular expression on the changed lines.
    """
    rng = np.random.default_rng(seed)
    cells, seen, idle = sorted(lines), set(), 0
    sets = {case: [(file, frozenset(own)) for file, own in sorted(held.items())] for case, held in lines.items()}
    often = np.array([RATHER.get(operator, 1.0) for operator in OPERATORS])
    while idle < 2000:
        operator = OPERATORS[rng.choice(len(OPERATORS), p=often / often.sum())]
        case = cells[rng.integers(len(cells))]
        folder = folders[rng.choice(len(folders), p=[weight for _, weight in folders])][0]
        open_to = [
            (file, change)
            for file, own in sets[case]
            if file.startswith(folder) and file not in ASIDE
            for change in _relevant(package / file, words).get(operator, ())
            if change.line in own
        ]
        idle += 1
        if not open_to:
            continue
        file, change = open_to[rng.integers(len(open_to))]
        source = _source(package / file)
        key = (file, change.start, change.end, change.new)
        if key in seen or not compiles(change.applied(source)):
            continue
        seen.add(key)
        idle = 0
        old = source[change.start : change.end]
        name = f"{operator}: {file}:{change.line}:{change.start} {len(seen)}"
        edit = as_edit(file, source, change)
        yield Drawn(name, operator, file, change.line, case, old, change.new, edit)


def as_edit(file: str, source: str, change: Change) -> Edit:
    """A change as whole lines, as many as occur together only once."""
    start = source.rfind("\n", 0, change.start) + 1
    end = source.find("\n", change.end)
    end = len(source) if end < 0 else end
    while source.count(source[start:end]) != 1:
        start = source.rfind("\n", 0, max(start - 1, 0)) + 1
    new = source[start : change.start] + change.new + source[change.end : end]
    return Edit(file, source[start:end], new)


@cache
def changes_of(file: Path) -> tuple[Change, ...]:
    """All changes of a file."""
    return tuple(changes(_source(file)))


@cache
def _relevant(file: Path, words: str) -> dict[str, tuple[Change, ...]]:
    """The changes of a file's relevant lines, by operator."""
    source, found = _source(file), {}
    for change in changes_of(file):
        end = source.find("\n", change.end)
        if re.search(words, source[source.rfind("\n", 0, change.start) + 1 : end]):
            found.setdefault(change.operator, []).append(change)
    return {operator: tuple(held) for operator, held in found.items()}


@cache
def _source(file: Path) -> str:
    return file.read_text(encoding="utf-8")
