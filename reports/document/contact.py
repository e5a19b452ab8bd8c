"""The contact sheet of a data set as pages show it: `fedassay look`, and a section of a run's report."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedassay.data.account import Account
from fedassay.data.sheet import TILE, Group, Pair, Sheet, in_line
from fedassay.records.pictures import FACTS, GRID, sheet_facts
from fedassay.records.record import Picture, RunRecord
from fedassay.reports.document.pictures import open_grid
from fedassay.reports.words.numbers import significant

_TITLES = {"part": "Parts", "class": "Classes", "site": "Sites", "client": "Clients"}
_ABOUT = {
    "part": "Roles: a share of the data set for each, or its official parts.",
    "class": "The labels.",
    "site": "Origins of the pictures.",
    "client": "Of the private part, as the plan shares it out.",
}
_ROLES = {
    "private": "what the clients hold, and what audits are about",
    "attacker": "what the adversary has of the same kind",
    "public": "what everybody knows; it may train the backbone",
    "test": "what accuracy is measured on",
    "control": "what the audits' controls are made of",
    "training": "what is dealt out to clients, adversary and public",
    "official test": "the data set's own test set",
}
_PLURALS = {"class": ("class", "classes"), "site": ("site", "sites")}


@dataclass(frozen=True)
class ShownGroup:
    """A group with its thumbnails.

    Attributes:
        group: Counts and brightness of the group.
        tiles: Data URIs.
        share: Of all pictures, 0 to 100.
        numbers: Counts in words.
        about: Purpose of a part; empty of others.
        bar: Ends of the bar of its brightness, 0 to 100, and its words; None without any.
    """

    group: Group
    tiles: tuple[str, ...]
    share: float
    numbers: str
    bar: dict[str, Any] | None
    about: str


@dataclass(frozen=True)
class ShownSheet:
    """A sheet as the page shows it.

    Attributes:
        sheet: The contact sheet's data.
        headline: Summary of the data that was read, in one sentence.
        kinds: Kind, title, a word on it, groups, and how many more there are.
        pairs: Pairs that are alike, with two thumbnails each.
        left_out: Lines with their thumbnails.
        account: Account of the reading, with its notes.
        pictures: Number of thumbnails.
    """

    sheet: Sheet
    headline: str
    kinds: tuple[tuple[str, str, str, tuple[ShownGroup, ...], int], ...]
    pairs: tuple[tuple[Pair, tuple[str, ...]], ...]
    left_out: tuple[tuple[str, tuple[str, ...]], ...]
    account: Account
    pictures: int


def sheet_of(run: Path, record: RunRecord) -> ShownSheet | None:
    """The sheet that a run kept; None where it kept none, or its pictures are not there.

    Args:
        run: The run folder.
        record: Its record.
    """
    if (found := sheet_facts(record.data)) is None:
        return None
    held, account = found
    try:
        sheet, grid = Sheet.model_validate(held.get(FACTS)), Picture.model_validate(held.get(GRID))
        pixels = np.asarray(open_grid(run, grid).convert("RGB"))
    # Pillow's readers raise whatever they run into; a picture that cannot be read must not cost the report.
    except Exception:  # noqa: BLE001
        return None
    rows, columns = len(grid.rows), len(grid.columns)
    if pixels.shape != (rows * TILE, columns * TILE, 3) or rows != _rows(sheet):
        return None
    return shown(sheet, pixels.reshape(rows, TILE, columns, TILE, 3).swapaxes(1, 2), Account.of(account))


def _rows(sheet: Sheet) -> int:
    """Rows of thumbnails that a sheet has."""
    return len(sheet.groups) + len(sheet.pairs) + len(sheet.left_out)


def shown(sheet: Sheet, tiles: NDArray[np.uint8], account: Account) -> ShownSheet:
    """A sheet with its thumbnails.

    Args:
        sheet: The contact sheet's data.
        tiles: As `Contact` has them.
        account: Of the data set.
    """
    rows = iter(tiles)
    groups = [_group(group, _uris(next(rows), group.thumbnails), sheet.records) for group in sheet.groups]
    kinds = tuple(
        (kind, title, _ABOUT[kind], of_kind, sheet.unshown.get(kind, 0))
        for kind, title in _TITLES.items()
        if (of_kind := tuple(each for each in groups if each.group.kind == kind))
    )
    pairs = tuple((pair, _uris(next(rows), 2)) for pair in sheet.pairs)
    left_out = tuple((line, _uris(next(rows), count)) for line, count in sheet.left_out)
    pictures = sum(len(each.tiles) for each in groups) + sum(len(held) for _, held in (*pairs, *left_out))
    return ShownSheet(sheet, _headline(sheet), kinds, pairs, left_out, account, pictures)


def _group(group: Group, tiles: tuple[str, ...], records: int) -> ShownGroup:
    about = _ROLES.get(group.name, "") if group.kind == "part" else ""
    share = 100 * group.records / max(1, records)
    return ShownGroup(group, tiles, share, ", ".join(_numbers(group)), _bar(group), about)


def _numbers(group: Group) -> Iterator[str]:
    yield f"{group.records:,} picture{'' if group.records == 1 else 's'}"
    if group.persons is not None:
        yield f"{group.persons:,} person{'' if group.persons == 1 else 's'}"


def _headline(sheet: Sheet) -> str:
    """Sentence on the records and files that were read."""
    counts = {
        kind: sum(group.kind == kind for group in sheet.groups) + sheet.unshown.get(kind, 0) for kind in _TITLES
    }
    parts = [f"{counts[kind]} {_PLURALS[kind][counts[kind] != 1]}" for kind in _PLURALS if counts[kind]]
    if sheet.persons is not None:
        parts.append(f"{sheet.persons:,} persons")
    left = sheet.files_left_out
    rest = "no file was left out" if not left else f"{left:,} file{' was' if left == 1 else 's were'} left out"
    return f"{sheet.records:,} pictures of {in_line(parts)}; {rest}."


def _bar(group: Group) -> dict[str, Any] | None:
    if group.brightness is None or group.spread is None:
        return None
    low, high = (max(0.0, min(255.0, group.brightness + sign * group.spread)) for sign in (-1, 1))
    return {
        "start": round(low / 2.55, 1),
        "width": round(max(1.0, (high - low) / 2.55), 1),
        "middle": round(group.brightness / 2.55, 1),
        "words": f"brightness {significant(group.brightness)} ± {significant(group.spread)}",
    }


def _uris(tiles: NDArray[np.uint8], count: int) -> tuple[str, ...]:
    return tuple(_uri(tile) for tile in tiles[:count])


def _uri(tile: NDArray[np.uint8]) -> str:
    grey = (tile == tile[..., :1]).all()
    stream = io.BytesIO()
    Image.fromarray(tile[..., 0] if grey else tile).save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
