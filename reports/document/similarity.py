"""The page of reconstructions that are held against private images, whatever tool made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedassay.reports.document.html import render
from fedassay.reports.document.pictures import Tile
from fedassay.reports.document.tables import Table, printed


@dataclass(frozen=True)
class Row:
    """A pair as pictures, with what is printed under them."""

    tiles: tuple[Tile, ...]
    words: str


def similarity_page(sentences: Sequence[str], tables: Sequence[Table], rows: Sequence[Row]) -> str:
    """One page: what was read and tested, the tables, and the closest pairs as pictures."""
    tiles = sum(len(row.tiles) for row in rows)
    return render(
        "similarity.html.j2",
        sentences=sentences,
        tables=[printed(table) for table in tables],
        rows=rows,
        notice=f"This page contains private images: {tiles} pictures. Pass it on as you would these.",
    )
