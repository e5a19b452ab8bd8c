"""Picture grids: equal tiles in one PNG file, described in the record."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedassay.records.manifest import note
from fedassay.records.record import Picture, PictureColumn
from fedassay.support.atomic import write_bytes
from fedassay.support.text import file_name
from fedassay.support.types import Images


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
        name: The cell's key, then what tells the picture from others of the cell: any text.
        title: What the grid shows.
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
