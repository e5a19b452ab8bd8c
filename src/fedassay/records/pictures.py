"""Picture grids: equal tiles in one PNG file, described in the record."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedassay.records.record import Picture, PictureColumn
from fedassay.support.atomic import write_bytes
from fedassay.support.types import Images


def write_grid(
    folder: Path,
    name: str,
    title: str,
    rows: Mapping[str, Images],
    columns: Sequence[PictureColumn],
) -> Picture:
    """Write artifacts/<name>.png into a run folder.

    Args:
        folder: The run folder.
        name: File name without ending, unique in the run.
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
    file = f"artifacts/{name}.png"
    write_bytes(folder / file, buffer.getvalue())
    height, width = next(iter(rows.values())).shape[1:3]
    return Picture(file=file, title=title, tile=(height, width), rows=tuple(rows), columns=tuple(columns))
