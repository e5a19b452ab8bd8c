"""First note of a page: the private images on it, or their absence."""

from __future__ import annotations

from collections.abc import Iterable

from fedassay.records.record import RunRecord
from fedassay.reports.document.pictures import Gallery

REDACTED = (
    "Redacted: private pictures, transcripts, class names and paths were left out (--redact). The numbers are "
    "those of the whole run."
)


def notice(records: Iterable[RunRecord], shown: Iterable[Gallery], more: int = 0) -> str:
    """The line at the top of a page; empty where it neither shows pictures nor lacks any.

    Args:
        records: Of the runs on the page.
        shown: The picture grids on it.
        more: Pictures of other kinds on it.
    """
    tiles = more + sum(len(strip.tiles) for gallery in shown for strip in gallery.strips)
    if tiles:
        return (
            f"This page contains private images: {tiles} pictures. Pass it on as you would these, or make it "
            "again with --redact."
        )
    return REDACTED if any(record.redacted for record in records) else ""
