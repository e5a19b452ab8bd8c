"""What of all that applies to a release was not conclusive, in words; the same wherever it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedassay.records.record import CellRecord, Coverage

_WORDS = {"inconclusive": "inconclusive", "not_run": "not run"}


def gaps(cells: Iterable[CellRecord]) -> dict[str, str]:
    """Attacks that apply and were not conclusive in some of the cells, with their worst status."""
    found: dict[str, str] = {}
    for cell in cells:
        for row in cell.coverage:
            if row.status in _WORDS and found.get(row.attack) != "not run":
                found[row.attack] = _WORDS[row.status]
    return found


def not_fully_tested(cells: Iterable[CellRecord]) -> str:
    """One clause, such as `not fully tested: membership not run`; empty where nothing is missing."""
    found = gaps(cells)
    parts = [
        f"{', '.join(name.replace('_', ' ') for name, status in found.items() if status == words)} {words}"
        for words in _WORDS.values()
        if words in found.values()
    ]
    return f"not fully tested: {'; '.join(parts)}" if parts else ""


def together(rows: Sequence[Coverage]) -> float | None:
    """Seconds of one run in which all of these rows would be decided; None where some of it cannot be estimated.

    What several cells share, such as the training of an attack, is counted once.
    """
    if not rows or any(row.seconds is None or row.further_seconds is None for row in rows):
        return None
    once = [(row.seconds or 0.0) - (row.further_seconds or 0.0) for row in rows]
    return max(once) + sum(row.further_seconds or 0.0 for row in rows)
