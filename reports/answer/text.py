"""An answer as plain text: what the console and `check` print."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator

from fedassay.reports.answer.answer import Answer
from fedassay.reports.answer.rows import DOES_NOT_HOLD, AnswerRow
from fedassay.reports.words.groups import kinds_of
from fedassay.reports.words.numbers import DASH, significant
from fedassay.support.text import plain

WIDTH = 100
"""Columns of a line."""

_ROWS = 8
"""Methods that a screen has room for."""

_SWEEPS = 2


def lines(found: Answer, run: str = "RUN", policy: str = "POLICY") -> Iterator[str]:
    """An answer in at most 25 lines of at most 100 columns.

    Args:
        found: The answer.
        run: The run folder, in the command that comes next.
        policy: The policy file, likewise, where it is none that ships.
    """
    for number, words in enumerate(found.sentences):
        yield from _wrapped(words, f"{found.mark} " if number == 0 else "  ")
    for words in found.beside:
        yield from _wrapped(words, "  ")
    if len(found.decision.everything) == 1 and found.rows[0].claimed != "none":
        row = found.rows[0]
        shown = "no attack measured it" if row.observed == DASH else f"an attack shows at least {row.observed}"
        shown += ", which chance allows" if row.by_chance else ""
        accounted = "which does not hold" if row.accounted == DOES_NOT_HOLD else f"accounted {row.accounted}"
        yield from _wrapped(f"Claimed ε {row.claimed} ({row.of}), {accounted}; {shown}.", "  ")
    if len(found.decision.everything) > 1:
        yield from _table(found.rows)
    for sweep in found.sweeps[:_SWEEPS]:
        yield from _wrapped(sweep.clause, "  ", most=2)
    if len(found.sweeps) > _SWEEPS:
        yield f"  {len(found.sweeps) - _SWEEPS} more on epsilon, in the report"
    takes = f" ({found.next.takes})" if found.next.takes else ""
    yield from _wrapped(f"Next: {found.next.what.rstrip('.')}{takes}.", "")
    yield f"  {_typed(found.next.command, run, policy)}"


def _typed(command: str, run: str, policy: str) -> str:
    """A command with the run folder and the policy file in it, as a shell takes it."""
    command = re.sub(r"(?<= )RUN\b", lambda _: shlex.quote(plain(run)), plain(command), count=1)
    return re.sub(r"(?<= --policy )POLICY\b", lambda _: shlex.quote(plain(policy)), command, count=1)


def _table(rows: tuple[AnswerRow, ...]) -> Iterator[str]:
    """One line a method."""
    told = max(len("worst finding"), min(30, max(len(row.brief) for row in rows[:_ROWS])))
    widest = min(57 - told, max(len(row.name) for row in rows[:_ROWS]))
    known = any(row.majority != DASH for row in rows)
    yield (
        f"  {'method':<{widest + 2}}{'ε':<9}{'answer':<9}{'worst finding':<{told + 2}}accuracy"
        + (" (majority)" if known else "")
    )
    for row in rows[:_ROWS]:
        accuracy = significant(row.measured)
        beside = f" ({row.majority})" if known else ""
        line = (
            f"{row.mark} {_short(plain(row.name), widest):<{widest + 2}}{row.shown_epsilon:<9}{row.shown:<9}"
            f"{_short(row.brief, told):<{told + 2}}{accuracy}{beside}"
        )
        yield _short(plain(line), WIDTH)
    if len(rows) > _ROWS:
        yield f"  {len(rows) - _ROWS} more methods, in the report"
    for words in kinds_of((row.name, row.asked) for row in rows[:_ROWS]):
        yield _short(plain(f"  {words}"), WIDTH)


def _wrapped(words: str, before: str, most: int = 3) -> Iterator[str]:
    """Words on lines of `WIDTH`, those after the first indented."""
    found = textwrap.wrap(plain(words), WIDTH - max(2, len(before)), max_lines=most, placeholder=" …")
    for number, line in enumerate(found):
        yield f"{before if number == 0 else ' ' * max(2, len(before))}{line}"[: WIDTH + 2]


def _short(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"
