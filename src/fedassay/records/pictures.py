"""Picture grids: equal tiles in one PNG file, described in the record."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.records.manifest import note
from fedassay.records.record import Picture, PictureColumn
from fedassay.support.atomic import write_bytes
from fedassay.support.text import file_name
from fedassay.support.types import Images

SHEET, FACTS, GRID = "contact_sheet", "sheet", "grid"
"""Names in a record's facts about data: of a contact sheet, of its numbers, and of the file of its thumbnails."""


def write_sheet(folder: Path, facts: dict[str, Any], tiles: NDArray[np.uint8]) -> dict[str, Any]:
    """Write the thumbnails of a contact sheet into a run folder.

    Args:
        folder: The run folder.
        facts: The facts that the sheet shows.
        tiles: Its thumbnails, shape (rows, columns, side, side, 3).

    Returns:
        The sheet for the record, under `SHEET`.
    """
    rows = {str(number): row for number, row in enumerate(tiles)}
    columns = [PictureColumn() for _ in range(tiles.shape[1])]
    grid = write_grid(folder, (SHEET, "thumbnails"), "What was read", rows, columns)
    return {FACTS: facts, GRID: grid.model_dump(mode="json")}


def sheet_facts(data: Any) -> tuple[dict[str, Any], Any] | None:
    """Return the contact sheet in facts about data, and the account beside it; None without any."""
    for facts in data.values() if isinstance(data, dict) else ():
        if isinstance(facts, dict) and isinstance(facts.get(SHEET), dict):
            return facts[SHEET], facts.get("account")
    return None


def sheet_file(data: Any) -> str | None:
    """The file of a contact sheet's thumbnails; None without any."""
    found = sheet_facts(data)
    grid = None if found is None else found[0].get(GRID)
    return str(grid.get("file")) if isinstance(grid, dict) else None


def write_grid(
    folder: Path,
    name: Sequence[str],
    title: str,
    rows: Mapping[str, Images],
    columns: Sequence[PictureColumn],
) -> Picture:
    """Write a grid into a run folder, as artifacts/<cell>/<name>.png.

    Args:
        folder: The run folder.
        name: The cell's key, then a name that is unique within the cell: any text.
        title: Title of the grid.
        rows: Images of each row, shape (columns, H, W, C), uint8, C 1 or 3, all of one size.
        columns: Caption and numbers under each column.

    Returns:
        The entry for the record.
    """
    from PIL import Image

    tiles = [np.concatenate(list(images), axis=1) for images in rows.values()]
    sheet = np.concatenate(tiles, axis=0)
    image = Image.fromarray(sheet[..., 0] if sheet.shape[-1] == 1 else sheet)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    cell, *parts = name
    file = f"artifacts/{cell}/{file_name(*parts)}.png"
    note(folder, cell, (file,))
    write_bytes(folder / file, buffer.getvalue())
    height, width = next(iter(rows.values())).shape[1:3]
    return Picture(file=file, title=title, tile=(height, width), rows=tuple(rows), columns=tuple(columns))
