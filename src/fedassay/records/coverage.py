"""What of all that applies to a release was not conclusive, in words; the same wherever it is shown."""

from __future__ import annotations

from collections.abc import Iterable

from fedassay.records.record import CellRecord

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
