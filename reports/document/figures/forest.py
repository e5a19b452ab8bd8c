"""Reconstructions against their baselines at a glance: one row per finding, SSIM with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedassay.records.record import Finding, Metric
from fedassay.reports.document.figures.svg import (
    Datum,
    Figure,
    Scale,
    drawing,
    hit,
    hover,
    linear_scale,
    polygon,
    tag,
    text,
)
from fedassay.reports.document.series import TARGETS, finite, numbers
from fedassay.reports.words.numbers import significant
from fedassay.reports.words.verdicts import LOOKS

_TOP = 26.0
_MOST = 10
"""Rows that are drawn; a figure with more is taller than a sheet of paper."""


@dataclass(frozen=True)
class ForestRow:
    """One finding with the words that name it."""

    who: str
    what: str
    finding: Finding


def forest(entries: Sequence[ForestRow]) -> Figure | None:
    """SSIM of every finding beside its baseline; None where none was measured."""
    rows = [entry for entry in entries if _value(entry.finding.metrics.get("ssim")) is not None]
    if not rows:
        return None
    shown = _foremost(rows)
    title = "Do reconstructions come closer than what the adversary had anyway?"
    description = ". ".join(map(_words, rows)) + "."
    drawn = [
        drawing(key, width, _TOP + _height(width) * len(shown) + 48, title, description, _body(shown, width))
        for key, width in (("reconstruction_ssim", 860.0), ("reconstruction_ssim-narrow", 350.0))
    ]
    spread = any(TARGETS in entry.finding.series for entry in rows)
    note = (
        "Filled: reconstruction, with its 95 % interval. Hollow: the baseline of the same row. Right of the "
        "hollow mark is leakage."
    )
    if spread:
        note += " Pale bar: the middle 90 % of targets."
    if len(shown) < len(rows):
        note += f" Drawn are leaks, then those furthest above their baseline: {len(shown)} of {len(rows)} rows."
    data: tuple[tuple[Datum, ...], ...] = tuple(
        (
            entry.who,
            entry.what,
            *_ends(entry.finding.metrics.get("ssim")),
            *_ends(entry.finding.baseline.get("ssim")),
            *_middle(entry.finding),
            entry.finding.verdict,
        )
        for entry in rows
    )
    columns = (
        "cell",
        "finding",
        "ssim",
        "ssim_low",
        "ssim_high",
        "baseline",
        "baseline_low",
        "baseline_high",
        "targets_5pct",
        "targets_95pct",
        "verdict",
    )
    return Figure("reconstruction_ssim", title, description, drawn[0], columns, data, narrow=drawn[1], note=note)


def _words(entry: ForestRow) -> str:
    finding = entry.finding
    return (
        f"{entry.who}, {entry.what}: SSIM {significant(_value(finding.metrics.get('ssim')))}, baseline "
        f"{significant(_value(finding.baseline.get('ssim')))}; {LOOKS[finding.verdict].word.lower()}"
    )


def _foremost(rows: Sequence[ForestRow]) -> list[ForestRow]:
    """The rows to draw, in their order: leaks first, then the largest distance above the baseline."""

    def weight(entry: ForestRow) -> tuple[bool, float]:
        over = (_value(entry.finding.metrics.get("ssim")) or 0.0) - (
            _value(entry.finding.baseline.get("ssim")) or 0.0
        )
        return entry.finding.verdict == "leak", over

    kept = {id(entry) for entry in sorted(rows, key=weight, reverse=True)[:_MOST]}
    return [entry for entry in rows if id(entry) in kept]


def _value(metric: Metric | None) -> float | None:
    return None if metric is None else metric.value


def _ends(metric: Metric | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if metric is None else (metric.value, metric.low, metric.high)


def _middle(finding: Finding) -> tuple[float | None, float | None]:
    """The 5th and 95th percentile of a finding's targets."""
    series = finding.series.get(TARGETS)
    values = sorted(finite(numbers(series, "ssim"))) if series is not None else []
    if len(values) < 20:
        return None, None
    return values[round(0.05 * (len(values) - 1))], values[round(0.95 * (len(values) - 1))]


def _height(width: float) -> float:
    """Height of a row; a narrow one has its words above its marks."""
    return 34.0 if width > 500 else 56.0


def _body(rows: Sequence[ForestRow], width: float) -> list[str]:
    wide = width > 500
    left, right = (_words_end(rows), width - 20) if wide else (8.0, width - 8)
    everything = [
        value
        for entry in rows
        for value in (
            *_ends(entry.finding.metrics.get("ssim")),
            *_ends(entry.finding.baseline.get("ssim")),
            *_middle(entry.finding),
        )
        if value is not None
    ]
    x = linear_scale(everything, left, right)
    bottom = _TOP + _height(width) * len(rows)
    out = []
    for tick in x.ticks(6 if wide else 4):
        out += [
            tag("line", x1=x(tick), x2=x(tick), y1=_TOP, y2=bottom, class_="grid"),
            text(x(tick), bottom + 16, f"{tick:g}", "tick", "middle"),
        ]
    return [
        *out,
        tag("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis"),
        text(right, bottom + 32, "SSIM →  closer to the private image", "axis-title", "end"),
        *(_row(entry, x, _TOP + _height(width) * index, width, left) for index, entry in enumerate(rows)),
    ]


def _words_end(rows: Sequence[ForestRow]) -> float:
    """Right end of the words beside the marks, in pixels: the longest one's, half of the figure at most."""
    longest = max(max(7.2 * len(entry.who), 5.9 * len(entry.what)) for entry in rows)
    return min(max(300.0, longest + 44), 440.0)


def _row(entry: ForestRow, x: Scale, top: float, width: float, left: float) -> str:
    look = LOOKS[entry.finding.verdict]
    wide = width > 500
    y = top + (17 if wide else 44)
    if wide:
        out = [
            text(0, y - 3, entry.who, "row-label"),
            text(0, y + 12, entry.what, "tick"),
            text(left - 14, y + 4, look.mark, f"row-verdict tone-{look.tone}", "end"),
        ]
    else:
        out = [
            text(0, top + 14, entry.who, "row-label"),
            text(width, top + 14, f"{look.mark} {look.word}", f"row-verdict tone-{look.tone}", "end"),
            text(0, top + 29, entry.what, "tick"),
        ]
    low, high = _middle(entry.finding)
    if low is not None and high is not None:
        out.append(
            tag("rect", x=x(low), y=y - 5, width=x(high) - x(low), height=10, class_=f"bar open tone-{look.tone}")
        )
    for metric, class_ in (
        (entry.finding.baseline.get("ssim"), "baseline"),
        (entry.finding.metrics.get("ssim"), "measured"),
    ):
        value, low, high = _ends(metric)
        if value is None:
            continue
        if low is not None and high is not None:
            out.append(tag("line", x1=x(low), x2=x(high), y1=y, y2=y, class_=f"span {class_} tone-{look.tone}"))
        at = x(value)
        out.append(
            polygon([(at, y - 6), (at + 6, y), (at, y + 6), (at - 6, y)], f"diamond {class_} tone-{look.tone}")
        )
    out.append(tag("line", x1=0, x2=width, y1=top + _height(width), y2=top + _height(width), class_="rule"))
    return hover(_words(entry), hit(0, top, width, _height(width)), *out)
