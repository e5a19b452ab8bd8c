"""The little of SVG that the figures need: elements, scales, axes, markers.

Colours are never written into an element: classes take them from the page's style sheet, so that a
figure is right in light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from fedassay.reports.document.tables import csv_text
from fedassay.reports.words.numbers import short

Datum = str | float | int | None


@dataclass(frozen=True)
class Figure:
    """A figure with its text alternative and its data.

    Attributes:
        name: File name of its CSV, without the extension; also its anchor on the page.
        title: The question that it answers.
        description: Description of the figure, in words.
        svg: The drawing.
        columns: Header of its data.
        rows: Its data.
        narrow: The drawing for narrow screens, where it differs.
        note: Advice on reading it, printed below.
    """

    name: str
    title: str
    description: str
    svg: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Datum, ...], ...]
    narrow: str = ""
    note: str = ""

    def csv(self) -> str:
        """The data behind the figure."""
        return csv_text(self.columns, self.rows)


def tag(name: str, body: str = "", **attributes: str | float | None) -> str:
    """An element; underscores in attribute names become hyphens, None is left out.

    `body` must already be markup; attribute values are escaped here.

    Example:
        >>> tag("line", x1=0, y1=1.25, class_="axis")
        '<line x1="0" y1="1.25" class="axis"/>'
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None:
            continue
        shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
        parts.append(f'{key.rstrip("_").replace("_", "-")}="{escape(shown)}"')
    opening = " ".join(parts)
    return f"<{opening}>{body}</{name}>" if body else f"<{opening}/>"


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> str:
    """A line of text; `anchor` is start, middle or end."""
    return tag("text", escape(words), x=x, y=y, class_=class_ or None, text_anchor=anchor)


def hover(words: str, *shapes: str) -> str:
    """Shapes that say something under a resting pointer; the figure's description says it to everybody else."""
    return tag("g", tag("title", escape(words)) + "".join(shapes))


def hit(x: float, y: float, width: float, height: float) -> str:
    """An area that is not seen and belongs to what hovers with it: thin marks are hard to point at."""
    return tag("rect", x=x, y=y, width=width, height=height, class_="hit")


def drawing(name: str, width: float, height: float, title: str, description: str, body: Iterable[str]) -> str:
    """A whole SVG with its title and description for screen readers."""
    head = tag("title", escape(title), id=f"{name}-title") + tag("desc", escape(description), id=f"{name}-desc")
    return tag(
        "svg",
        head + "".join(body),
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        class_="figure",
    )


@dataclass(frozen=True)
class Scale:
    """Maps numbers to pixels, linearly or by logarithm.

    Attributes:
        low: Number at `start`.
        high: Number at `end`.
        start: First pixel.
        end: Last pixel.
        log: Whether the axis is logarithmic.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a number; on a logarithmic scale, of one that is not positive, where the scale begins."""
        if self.log and value <= 0:
            return self.start
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def ticks(self, about: int = 5) -> list[float]:
        """Round numbers inside the scale."""
        return log_ticks(self.low, self.high, about) if self.log else linear_ticks(self.low, self.high, about)


def linear_scale(
    values: Sequence[float], start: float, end: float, include: Sequence[float] = (), pad: float = 0.06
) -> Scale:
    """A linear scale over values, padded; `include` lists numbers that must be on it."""
    everything = [value for value in (*values, *include) if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(everything), max(everything)
    span = (high - low) or max(abs(high), 1.0)
    low, high = low - pad * span, high + pad * span
    return Scale(low, high, start, end)


def log_scale(values: Sequence[float], start: float, end: float) -> Scale:
    """A logarithmic scale over positive values, from a whole decade or half decade to another."""
    positive = [value for value in values if 0 < value < math.inf] or [0.1, 10.0]
    low, high = math.log10(min(positive)), math.log10(max(positive))
    low, high = math.floor(low * 2 - 0.3) / 2, math.ceil(high * 2 + 0.3) / 2
    if high - low < 1:
        low, high = low - 0.5, high + 0.5
    low, high = max(low, -307.0), min(high, 308.0)  # decades that a float can hold
    return Scale(10**low, 10**high, start, end, log=True)


def linear_ticks(low: float, high: float, about: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten between low and high.

    Example:
        >>> linear_ticks(0.03, 0.97, 5)
        [0.2, 0.4, 0.6, 0.8]
    """
    raw = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def log_ticks(low: float, high: float, about: int) -> list[float]:
    """Powers of ten between low and high, thinned or filled with 2 and 5 to be about as many as asked.

    Example:
        >>> log_ticks(0.5, 20, 5)
        [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
    """
    first, last = math.floor(math.log10(low) - 1e-9), math.ceil(math.log10(high) + 1e-9)
    inside = (low * (1 - 1e-9), high * (1 + 1e-9))
    decades = [float(f"1e{power}") for power in range(first, last + 1)]
    decades = [tick for tick in decades if inside[0] <= tick <= inside[1]]
    if len(decades) > about:
        every = math.ceil(len(decades) / about)
        return decades[::every]
    if len(decades) < 3:
        fine = [float(f"{digit}e{power}") for power in range(first, last + 1) for digit in (1, 2, 5)]
        return [tick for tick in fine if inside[0] <= tick <= inside[1]]
    return decades


def axis_break(left: float, right: float, middle: float, y: float) -> str:
    """A horizontal axis with a break at `middle`, beyond which infinity stands."""
    return "".join(
        [
            tag("line", x1=left, x2=middle - 4, y1=y, y2=y, class_="axis"),
            tag("line", x1=middle + 4, x2=right, y1=y, y2=y, class_="axis"),
            tag("line", x1=middle - 6, x2=middle - 2, y1=y + 5, y2=y - 5, class_="axis"),
            tag("line", x1=middle + 2, x2=middle + 6, y1=y + 5, y2=y - 5, class_="axis"),
        ]
    )


@dataclass(frozen=True)
class Frame:
    """The plotting area of a panel, with its two scales.

    Attributes:
        x: The horizontal scale.
        y: The vertical one.
        left: Left end of the plotting area; None: that of `x`.
        right: Right end of it.
        infinity: Pixel of infinity, beyond a break of the horizontal axis; None: no infinity.
    """

    x: Scale
    y: Scale
    left: float | None = None
    right: float | None = None
    infinity: float | None = None

    def across(self, value: float) -> float:
        """The horizontal pixel of a number that may be infinite."""
        return self.infinity if self.infinity is not None and math.isinf(value) else self.x(value)

    def axes(self, x_title: str, y_title: str) -> str:
        """Grid lines, tick labels and axis titles."""
        left = self.x.start if self.left is None else self.left
        right = self.x.end if self.right is None else self.right
        top, bottom = self.y.end, self.y.start
        out = []
        for tick in self.y.ticks():
            out += [
                tag("line", x1=left, x2=right, y1=self.y(tick), y2=self.y(tick), class_="grid"),
                text(left - 6, self.y(tick) + 3.5, short(tick), "tick", "end"),
            ]
        for tick in self.x.ticks():
            out += [
                tag("line", x1=self.x(tick), x2=self.x(tick), y1=bottom, y2=bottom + 4, class_="axis"),
                text(self.x(tick), bottom + 16, short(tick), "tick", "middle"),
            ]
        if self.infinity is None:
            out.append(tag("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis"))
        else:
            out += [
                axis_break(left, right, (self.x.end + self.infinity) / 2, bottom),
                text(self.infinity, bottom + 17, "∞", "tick infinity", "middle"),
            ]
        out += [
            text(right, bottom + 32, x_title, "axis-title", "end"),
            text(left - 34, top - 10, y_title, "axis-title"),
        ]
        return "".join(out)


WIDTH, HEIGHT = 420.0, 300.0
"""Size of a panel."""
LEFT, RIGHT, TOP, BOTTOM = 46.0, 404.0, 34.0, 246.0
"""The plotting area within a panel."""

SHAPES = 6
_LINE = 16.0
"""Height of a line of a legend."""
_KEY, _LETTER = 22.0, 6.2
"""Widths of a marker in a legend, with what parts it from others, and of a letter."""


def marker(index: int, x: float, y: float, size: float = 4.5, hollow: bool = False) -> str:
    """The marker of a series: colour and shape differ, so that either alone identifies the series."""
    class_ = f"mark s{index % 8}" + (" hollow" if hollow else "")
    r = size
    match index % SHAPES:
        case 0:
            return tag("circle", cx=x, cy=y, r=r, class_=class_)
        case 1:
            return tag("rect", x=x - r * 0.9, y=y - r * 0.9, width=r * 1.8, height=r * 1.8, class_=class_)
        case 2:
            return polygon([(x, y - r * 1.2), (x + r * 1.1, y + r * 0.8), (x - r * 1.1, y + r * 0.8)], class_)
        case 3:
            return polygon([(x, y - r * 1.3), (x + r * 1.3, y), (x, y + r * 1.3), (x - r * 1.3, y)], class_)
        case 4:
            return polygon([(x, y + r * 1.2), (x + r * 1.1, y - r * 0.8), (x - r * 1.1, y - r * 0.8)], class_)
        case _:
            arm = r * 0.45
            points = [(-arm, -r), (arm, -r), (arm, -arm), (r, -arm), (r, arm), (arm, arm)]
            points += [(-px, -py) for px, py in points]
            return polygon([(x + px, y + py) for px, py in points], class_)


def polygon(points: Iterable[tuple[float, float]], class_: str) -> str:
    """A closed shape."""
    return tag("polygon", points=" ".join(f"{x:.2f},{y:.2f}" for x, y in points), class_=class_)


def polyline(points: Iterable[tuple[float, float]], class_: str) -> str:
    """An open line."""
    return tag("polyline", points=" ".join(f"{x:.2f},{y:.2f}" for x, y in points), class_=class_)


def legend(entries: Sequence[tuple[str, int]], left: float, y: float, width: float) -> list[str]:
    """Markers with names, in as many lines as they need."""
    out = []
    for (_, index), (parts, x, line) in zip(entries, _places(entries, left, width), strict=True):
        below = y + _LINE * line
        out.append(marker(index, x + 5, below - 4))
        out += [text(x + 14, below + _LINE * place, part, "tick") for place, part in enumerate(parts)]
    return out


def extra_height(entries: Sequence[tuple[str, int]], width: float) -> float:
    """Height of a legend's lines."""
    places = _places(entries, LEFT, width)
    return _LINE * (1 + max((line + len(parts) - 1 for parts, _, line in places), default=0))


def _places(
    entries: Sequence[tuple[str, int]], left: float, width: float
) -> Iterator[tuple[list[str], float, int]]:
    """The lines of each entry of a legend, where they begin, and in which line of the whole."""
    x, line, letters = left, 0, int((width - left - _KEY) / _LETTER)
    for words, _ in entries:
        parts = wrap(words, letters) or [""]
        step = _KEY + max(map(len, parts)) * _LETTER
        if x > left and (x + step > width or len(parts) > 1):
            x, line = left, line + 1
        yield parts, x, line
        # A text of several lines has these lines for itself.
        line += len(parts) - 1
        x = x + step if len(parts) == 1 else width
