"""Warnings about captured messages: fields that contradict their declaration, or that no attack read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fedassay.records.record import RunRecord

Entries = Sequence[dict[str, Any]]
"""Entries of a run's plan on captured fields, one each: its declaration, and the inferred kind of its arrays."""


def is_captured(record: RunRecord) -> bool:
    """Whether a run is of captured messages."""
    return isinstance(record.plan, dict) and "transcript" in record.plan


def doubts(record: RunRecord) -> Iterator[str]:
    """Sentences on captured fields that contradict their declaration, or that no attack read without a kind."""
    about = record.plan.get("transcript") if isinstance(record.plan, dict) else None
    said = about.get("inferred") if isinstance(about, dict) else None
    entries = [each for each in said or () if isinstance(each, dict)]
    yield from _contradicted(entries)
    yield from _untold(entries)
    if not any(f.attack and f.verdict != "not_run" for cell in record.cells for f in cell.findings):
        yield from _weights(entries)


def _contradicted(entries: Entries) -> Iterator[str]:
    wrong = [each for each in entries if each.get("status") == "contradicts"]
    if wrong:
        first, more = wrong[0], f", and {len(wrong) - 1} more fields" if len(wrong) > 1 else ""
        yield (
            f"Warning: {first['field']} declares {first['declared']}, but its arrays are {first['read_as']}{more}"
            "; the attacks read what the arrays are."
        )


def _untold(entries: Entries) -> Iterator[str]:
    untold = [each for each in entries if _is_untold(each)]
    if untold:
        first = min(untold, key=lambda each: not each["candidates"])
        may_be = " or ".join(map(str, first["candidates"]))
        what = f"may be {may_be}" if may_be else "is no kind that its numbers tell"
        more = "" if len(untold) == 1 else f", and {len(untold) - 1} more fields are as unclear"
        kind = first["candidates"][0] if first["candidates"] else "class_sums"
        yield (
            f"Not attacked: {first['field']} {what}{more}. Say what it is, in transcript.json or with "
            f"kinds={{'{first['field']}': '{kind}'}}, and the attacks on that kind run."
        )


def _is_untold(entry: dict[str, object]) -> bool:
    """Whether a captured field was read as nothing because its arrays leave several kinds, or none."""
    unread = entry.get("status") in ("ambiguous", "unknown") and entry.get("read_as") == entry.get("declared")
    return unread and entry.get("candidates") != ["other"]


def _weights(entries: Entries) -> Iterator[str]:
    weights = [each for each in entries if each.get("kind") == "parameters"]
    if weights:
        yield (
            f"Not attacked: {weights[0]['field']} is read as weights of a network, which attacks read beside the "
            "model that the server sent: record that with recorder.sent('server', model, receiver=client)."
        )
