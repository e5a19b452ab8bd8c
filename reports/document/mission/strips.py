"""One strip of pictures a method: a private image, its look-alike, and its rebuilt image at each epsilon.

A strip shows the private image that appears in pictures of the most epsilons, and of those the one rebuilt most
closely at the largest epsilon. Grids of one run may show different images, which only their pixels identify.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from fedassay.contracts.metrics import SSIM
from fedassay.records.record import CellRecord, Finding, Picture, RunRecord
from fedassay.reports.document.mission.lines import Line, Strongest, has_images, image_audits, lines
from fedassay.reports.document.pictures import LEADING, Tile, data_uri, open_grid
from fedassay.reports.words.numbers import short, significant
from fedassay.similarity.reported import reported_ssim

PRIVATE, LOOKALIKE, _RECONSTRUCTION = LEADING
"""Rows of a grid that a strip begins with."""
_REBUILT = (_RECONSTRUCTION, "nearest sample")
"""Rows with what the adversary has of a record: its own image, or a generator's."""

_SIDE = 72
"""Pixels at which a picture is shown, about."""


@dataclass(frozen=True)
class Shot:
    """One place of a strip.

    Attributes:
        head: Heading: a private image, a look-alike, or an epsilon.
        tile: The picture; None where there is none.
        below: Its SSIM to the private image, or why there is no picture, in two words.
        open: Whether the finding that it is of decided nothing.
    """

    head: str
    tile: Tile | None
    below: str = ""
    open: bool = False


@dataclass(frozen=True)
class MethodStrip:
    """The strip of a method: its pictures from left to right, shown at `size` CSS pixels."""

    method: str
    shots: tuple[Shot, ...]
    size: tuple[int, int]


@dataclass(frozen=True)
class _Seen:
    """A private image in a grid of one cell, with what was rebuilt of it."""

    private: Image.Image
    lookalike: Image.Image | None
    rebuilt: Image.Image
    ssim: float | None
    finding: Finding


def strips(run: Path, record: RunRecord) -> tuple[MethodStrip, ...]:
    """The strips of a run; none for a method without a picture of a rebuilt image.

    Args:
        run: The run folder with the pictures.
        record: Its record.
    """
    if record.redacted or not has_images(record):
        return ()
    by_method: dict[str, list[Line]] = {}
    for line in lines(record):
        by_method.setdefault(line.group.name, []).append(line)
    found = (_strip(run, name, own) for name, own in by_method.items())
    return tuple(strip for strip in found if strip is not None)


def _strip(run: Path, name: str, own: Sequence[Line]) -> MethodStrip | None:
    ordered = sorted(own, key=lambda line: -line.group.asked.bare)
    held = [_seen_at(run, line) for line in ordered]
    chosen = _chosen(held)
    if chosen is None:
        return None
    first = next(seen[chosen] for seen in held if chosen in seen)
    shots = [Shot(PRIVATE, _tile(first.private, f"{name}: {PRIVATE}"))]
    if first.lookalike is not None:
        tile = _tile(first.lookalike, f"{name}: look-alike, an image of the attacker's own")
        shots.append(Shot("look-alike", tile, _likeness(first.private, first.lookalike)))
    for line, seen in zip(ordered, held, strict=True):
        head = f"ε = {short(line.group.asked.bare)}"
        if chosen not in seen:
            shots.append(Shot(head, None, _why_none(line)))
            continue
        one = seen[chosen]
        below = "" if one.ssim is None else f"{SSIM.title} {significant(one.ssim)}"
        undecided = one.finding.verdict not in {"leak", "no_leak_found"}
        shots.append(Shot(head, _tile(one.rebuilt, f"{name}: rebuilt at {head}"), below, undecided))
    width, height = first.private.size
    scale = max(1, round(_SIDE / max(width, 1)))
    return MethodStrip(name, tuple(shots), (width * scale, height * scale))


def _likeness(private: Image.Image, other: Image.Image) -> str:
    """SSIM of two pictures; empty where they are too small for a window."""
    try:
        (value,) = reported_ssim(np.asarray(private)[None], np.asarray(other)[None])
    except ValueError:
        return ""
    return f"{SSIM.title} {significant(float(value))}"


def _why_none(line: Line) -> str:
    """Return the reason, in two words, why no picture of an epsilon shows the image."""
    return next((found.why for found in line.images if found.why and not found.metrics), "not pictured")


def _chosen(held: Sequence[Mapping[bytes, _Seen]]) -> bytes | None:
    """The private image that most epsilons show, of those the one that comes closest at the largest epsilon."""
    scores: dict[bytes, list[float]] = {}
    for seen in held:
        for pixels, one in seen.items():
            scores.setdefault(pixels, []).append(-1.0 if one.ssim is None else one.ssim)
    return max(scores, key=lambda pixels: (len(scores[pixels]), scores[pixels][0]), default=None)


def _seen_at(run: Path, line: Line) -> dict[bytes, _Seen]:
    """Pictured images of an epsilon, by private image; the strongest finding's grid before others."""
    found: dict[bytes, _Seen] = {}
    for finding in _findings(line.group.cells[:1], line.images):
        for picture in finding.pictures:
            for pixels, one in _of_grid(run, picture, finding):
                found.setdefault(pixels, one)
    return found


def _findings(cells: Iterable[CellRecord], strongest: Sequence[Strongest]) -> Iterator[Finding]:
    first = [found.finding for found in strongest if found.finding is not None]
    yield from first
    audits = image_audits()
    for cell in cells:
        yield from (each for each in cell.findings if each.audit in audits and each not in first)


def _of_grid(run: Path, picture: Picture, finding: Finding) -> Iterator[tuple[bytes, _Seen]]:
    rows = {row: at for at, row in enumerate(picture.rows)}
    rebuilt = next((row for row in _REBUILT if row in rows), None)
    if PRIVATE not in rows or rebuilt is None:
        return
    try:
        grid = open_grid(run, picture)
    # Pillow's readers raise whatever they run into; a picture that cannot be read must not cost the report.
    except Exception:  # noqa: BLE001
        return
    height, width = picture.tile

    def tile(row: str, column: int) -> Image.Image:
        left, top = column * width, rows[row] * height
        return grid.crop((left, top, left + width, top + height))

    for at, column in enumerate(picture.columns):
        private = tile(PRIVATE, at)
        lookalike = tile(LOOKALIKE, at) if LOOKALIKE in rows else None
        ssim = column.metrics.get(SSIM.name)
        yield private.tobytes(), _Seen(private, lookalike, tile(rebuilt, at), ssim, finding)


def _tile(image: Image.Image, alternative: str) -> Tile:
    return Tile(data_uri(image), alternative)
