"""Picture grids of a run in matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedassay.records.record import RunRecord
from fedassay.reports.document.pictures import open_grid
from fedassay.reports.words.groups import cell_name, several_deltas, several_seeds
from fedassay.reports.words.numbers import significant
from fedassay.reports.words.summary import about
from fedassay.support.errors import DataError
from fedassay.support.extras import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(record: RunRecord, folder: Path, audit: str | None, label: str | None) -> list[Axes]:
    """Every picture grid, each on an Axes of one figure, with its rows named and its numbers below.

    Args:
        record: The run's record.
        folder: Its folder.
        audit: Only those of one audit.
        label: Only those of one method entry.

    Raises:
        MissingExtraError: matplotlib is not installed.
        DataError: A picture is missing, or differs from the record.
    """
    pyplot = optional("matplotlib.pyplot", "notebook", "Run.pictures")
    deltas, seeds = several_deltas(record), several_seeds(record)
    held = [
        (", ".join(part for part in (cell_name(cell, deltas, seeds), about(finding)) if part), picture)
        for cell in record.cells
        for finding in cell.findings
        for picture in finding.pictures
        if audit in {None, finding.audit} and label in {None, cell.label}
    ]
    if not held:
        return []
    tall = sum(0.9 * len(picture.rows) + 0.9 for _, picture in held)
    wide = max(len(picture.columns) for _, picture in held)
    _, grid = pyplot.subplots(len(held), 1, figsize=(1.6 + 0.9 * wide, tall), squeeze=False, layout="constrained")
    axes: list[Axes] = list(grid[:, 0])
    for ax, (name, picture) in zip(axes, held, strict=True):
        try:
            image = open_grid(folder, picture)
        except (OSError, ValueError) as error:
            raise DataError(f"{folder / picture.file}: {error or 'it is not there'}") from None
        height, width = picture.tile
        ax.imshow(image, cmap="gray", interpolation="nearest")
        # A gap between the tiles.
        ax.vlines(
            [width * column - 0.5 for column in range(1, len(picture.columns))], *ax.get_ylim(), "white", lw=4
        )
        ax.hlines([height * row - 0.5 for row in range(1, len(picture.rows))], *ax.get_xlim(), "white", lw=4)
        ax.set_frame_on(False)
        ax.set_title(name or picture.title, fontsize="small", loc="left")
        ax.set_yticks([height * (row + 0.5) for row in range(len(picture.rows))], picture.rows, fontsize="small")
        below = [
            "\n".join(
                [
                    *([column.caption] if column.caption else ()),
                    *(f"{key} {significant(value)}" for key, value in column.metrics.items() if value is not None),
                ]
            )
            for column in picture.columns
        ]
        places = [width * (column + 0.5) for column in range(len(picture.columns))]
        ax.set_xticks(places, below, fontsize="x-small")
        ax.tick_params(length=0)
    return axes
