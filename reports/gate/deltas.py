"""The rule on delta: how likely a claim lets a whole unit be published outright.

A mechanism that publishes one unit of n, drawn at random, as it is keeps (0, 1 / n)-differential privacy. So a
delta above 1 / n allows that somebody is given away for certain (Dwork and Roth, "The Algorithmic Foundations of
Differential Privacy", 2014, section 2.3). The n is that of the unit which the claim protects. A claim holds at
every client, so the client with the most units bounds delta: at a delta of 1 / 7, a client of 84 records may
publish twelve of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedassay.records.record import CellRecord, RunRecord
from fedassay.reports.gate.judgement import Judgement
from fedassay.reports.words.numbers import short

RULE = "delta"
"""The name of the rule."""

_PLAN = "plan"
"""Key of a captured record's data for the facts stated by the plan beside the messages."""


def one_in_n(cell: CellRecord, name: str, record: RunRecord) -> Judgement:
    """Whether a cell's delta is at most 1 / n.

    Args:
        cell: The cell; one that claims nothing passes.
        name: Of the cell, in words.
        record: Of the run: how many units there are stands under `data`.
    """
    if cell.claimed is None:
        return Judgement(RULE, name, "pass", "makes no claim, and so none at any delta", basis="nothing")
    units = _units(cell, record)
    if units is None:
        words = (
            f"the record does not say how many {cell.unit}s there are to hold delta {short(cell.delta)} against"
        )
        return Judgement(RULE, name, "undecided", words)
    number, of = units
    within = cell.delta * number <= 1
    words = (
        f"delta {short(cell.delta)} is {'at most' if within else 'above'} 1 / {number:,}, of {number:,} {of}"
        + ("" if within else f": such a claim lets one {cell.unit} be published outright")
    )
    return Judgement(RULE, name, "pass" if within else "broken", words)


def _units(cell: CellRecord, record: RunRecord) -> tuple[int, str] | None:
    """Number of units that delta is held against, and their kind in words; None where the record does not say."""
    key = "null" if cell.seed is None else str(cell.seed)
    facts = record.data.get(key, record.data.get(_PLAN)) if isinstance(record.data, Mapping) else None
    if not isinstance(facts, Mapping):
        return None
    records = _counts(facts.get("client_records"))
    if cell.unit == "client":
        return (len(records), "clients in the run") if records else None
    if cell.unit == "person":
        persons = facts.get("persons")
        records = _counts(persons.get("client_persons")) if isinstance(persons, Mapping) else []
    return (max(records), f"{cell.unit}s of the largest client") if records else None


def _counts(held: Any) -> list[int]:
    """The counts above 0 of a list that a record may hold."""
    if not isinstance(held, Sequence) or isinstance(held, str):
        return []
    return [count for count in held if isinstance(count, int) and count > 0]
