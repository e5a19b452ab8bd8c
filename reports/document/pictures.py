"""Picture grids: a run's PNG files cut into tiles for the page.

The files stay beside the record; the page gets copies of the tiles as data URIs, so that it needs
nothing else. A file that is missing or not what the record says is named, never guessed at.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from PIL import Image, UnidentifiedImageError

from fedassay.contracts import registry
from fedassay.records.record import CellRecord, Finding, Picture, RunRecord, Verdict
from fedassay.reports.document.finding_tables import found
from fedassay.reports.words.groups import cell_name, several_deltas, several_seeds
from fedassay.reports.words.harm_words import row_words
from fedassay.reports.words.harms import faint, leaks
from fedassay.reports.words.metrics import ordered, title
from fedassay.reports.words.numbers import DASH, significant
from fedassay.reports.words.sentences import at_epsilon
from fedassay.reports.words.summary import about
from fedassay.support import limits
from fedassay.support.reading import regular_size
from fedassay.support.text import cut

_FEW = 4
"""Columns of the picture on the first screen."""

LEADING = ("private image", "attacker's image", "reconstruction")
"""Rows of that picture."""


@dataclass(frozen=True)
class Tile:
    """One tile: a data URI, and what is in it for those who cannot see it."""

    source: str
    alternative: str


@dataclass(frozen=True)
class Strip:
    """One column of a grid: its tiles top to bottom, and the numbers under them."""

    caption: str
    tiles: tuple[Tile, ...]
    figures: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Gallery:
    """A grid on the page.

    Attributes:
        title: Title of the pictures.
        about: The cell and the finding it belongs to.
        verdict: That finding's verdict.
        rows: Names of the rows of tiles.
        strips: Its columns; empty where the file cannot be used.
        file: Path of the PNG, relative to the run folder.
        size: Width and height at which a tile is shown, in CSS pixels.
        problem: Reason why there are no pictures; empty where there are.
    """

    title: str
    about: str
    verdict: Verdict
    rows: tuple[str, ...]
    strips: tuple[Strip, ...]
    file: str
    size: tuple[int, int]
    problem: str = ""


def galleries(run: Path, record: RunRecord, audit: str) -> tuple[Gallery, ...]:
    """Every picture grid of an audit, leaks first, else in the record's order.

    Args:
        run: The run folder.
        record: Its record.
        audit: Name of the audit.
    """
    deltas, seeds = several_deltas(record), several_seeds(record)
    findings = sorted(found(record, [audit]), key=lambda item: item[1].verdict != "leak")
    return tuple(
        gallery(
            run,
            _untitled(picture, finding),
            ", ".join(part for part in (cell_name(cell, deltas, seeds), about(finding)) if part),
            finding.verdict,
        )
        for cell, finding in findings
        for picture in finding.pictures
    )


def headline_picture(run: Path, record: RunRecord) -> Gallery | None:
    """The pictures of the worst leak that a person recognises, a few columns that came closest; None without any.

    Args:
        run: The run folder.
        record: Its record.
    """
    for leak in leaks(record.cells):
        if faint(leak.harm):
            continue
        for picture in leak.finding.pictures:
            shown = gallery(run, picture, f"The worst leak: {_named(leak.cell)}", "leak")
            if shown.strips:
                order = sorted(range(len(shown.strips)), key=lambda at: -_nearness(picture.columns[at].metrics))
                return _leading(replace(shown, strips=tuple(shown.strips[at] for at in order[:_FEW])))
    return None


def _leading(shown: Gallery) -> Gallery:
    """The rows that a reader needs first; all of them where a grid names its rows otherwise."""
    kept = [at for at, row in enumerate(shown.rows) if row in LEADING]
    if len(kept) < 2:
        return shown
    strips = tuple(replace(strip, tiles=tuple(strip.tiles[at] for at in kept)) for strip in shown.strips)
    return replace(shown, rows=tuple(shown.rows[at] for at in kept), strips=strips)


def _named(cell: CellRecord) -> str:
    return f"{cell.label} {at_epsilon(cell.asked)}"


def _nearness(metrics: Mapping[str, float | None]) -> float:
    """Closeness of a picture, by the first figure of likeness that it has."""
    declared = registry.metrics()
    known = [
        (facts.likeness, value)
        for name, value in metrics.items()
        if value is not None and (facts := declared.get(name)) and facts.likeness and facts.worse == "higher"
    ]
    return min(known, default=(0, 0.0))[1]


def _untitled(picture: Picture, finding: Finding) -> Picture:
    """A picture without its title, where that says no more than the finding's source and selection."""
    repeats = all(part is None or part in picture.title for part in (finding.source, finding.selection))
    known = finding.source is not None or finding.selection is not None
    return picture.model_copy(update={"title": ""}) if known and repeats else picture


def gallery(run: Path, picture: Picture, about: str, verdict: Verdict) -> Gallery:
    """Cut one grid into tiles."""
    tile_height, tile_width = picture.tile
    scale = max(1, round(72 / max(tile_width, 1)))
    size = (tile_width * scale, tile_height * scale)
    try:
        grid = open_grid(run, picture)
    # Pillow's readers raise whatever they run into; a picture that cannot be read must not cost the report.
    except Exception as error:  # noqa: BLE001
        return Gallery(picture.title, about, verdict, picture.rows, (), picture.file, size, _said(error))
    strips, rows = [], tuple(map(row_words, picture.rows))
    for at, column in enumerate(picture.columns):
        tiles = []
        for below, row in enumerate(rows):
            left, top = at * tile_width, below * tile_height
            part = grid.crop((left, top, left + tile_width, top + tile_height))
            words = f"{row}, column {at + 1}" + (f" ({column.caption})" if column.caption else "")
            tiles.append(Tile(data_uri(part), words))
        figures = tuple((title(key), _printed(column.metrics[key])) for key in ordered(column.metrics))
        strips.append(Strip(column.caption, tuple(tiles), figures))
    return Gallery(picture.title, about, verdict, rows, tuple(strips), picture.file, size)


def _printed(value: float | None) -> str:
    return DASH if value is None else significant(value)


def open_grid(run: Path, picture: Picture) -> Image.Image:
    """Open a grid after checking that it is what the record says.

    Raises:
        ValueError: It points outside the run folder or has another size than the record says.
        OSError: It is missing or unreadable.
    """
    path = run / picture.file
    if not path.resolve().is_relative_to(run.resolve()):
        raise ValueError("the record points outside the run folder")
    if path.resolve() != run.resolve() / PurePosixPath(picture.file):
        raise ValueError("the file is a link, or lies in one")
    if not path.exists():
        raise FileNotFoundError
    regular_size(path, limits.IMAGE_FILE_BYTES, follow=False)
    height = picture.tile[0] * len(picture.rows)
    width = picture.tile[1] * len(picture.columns)
    with Image.open(path, formats=["PNG"]) as image:
        # Checked on the header alone: nothing is decompressed before the size is known to be right.
        if image.size != (width, height):
            raise ValueError(
                f"the file is {image.width} x {image.height} pixels, the record says {width} x {height}"
            )
        if width * height > limits.IMAGE_PIXELS:
            raise ValueError(f"the file has more than {limits.IMAGE_PIXELS:,} pixels")
        return image.convert("L" if image.mode in {"1", "L", "I;16", "I"} else "RGB")


def _said(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "the file is not there"
    if isinstance(error, UnidentifiedImageError):
        return "the file is not a PNG"
    return cut(str(error), limits.NAME_LENGTH) or type(error).__name__


def data_uri(tile: Image.Image) -> str:
    """A picture as a page holds it without a file beside it."""
    stream = io.BytesIO()
    tile.save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
