"""A run as a table for a paper: one row a cell, every figure with its interval."""

from __future__ import annotations

import math
import re

from fedassay.api import frames
from fedassay.records.record import RunRecord

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
"""Characters that LaTeX reads as commands, and how they are written."""

_HEADER = ("method", r"$\varepsilon$", "seed", "accuracy", "claimed", "accounted", "observed", "worst verdict")


def latex(record: RunRecord) -> str:
    """A `tabular` in the style of `booktabs`: accuracy with its 95 % interval, three epsilons, worst verdict.

    Observed epsilons are lower bounds and stand with a sign that says so; what was not measured is a dash.
    """
    rows = [_row(row) for row in frames.cell_rows(record)]
    body = [" & ".join(cells) + r" \\" for cells in (_HEADER, *rows)]
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(_HEADER) - 2)}l}}", r"\toprule", body[0], r"\midrule", *body[1:]]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _row(row: frames.Row) -> list[str]:
    observed = _number(row["observed"])
    return [
        _escaped(str(row["label"])),
        _number(row["epsilon"]),
        "--" if row["seed"] is None else str(row["seed"]),
        _interval(row["accuracy"], row.get("accuracy_low", math.nan), row.get("accuracy_high", math.nan)),
        _number(row["claimed"]),
        _number(row["accounted"]),
        observed if observed == "--" else rf"$\geq$ {observed}",
        _escaped(str(row["worst"]).replace("_", " ")),
    ]


def _interval(value: float, low: float, high: float) -> str:
    if math.isnan(value):
        return "--"
    return f"{value:.3f}" + ("" if math.isnan(low) or math.isnan(high) else f" [{low:.3f}, {high:.3f}]")


def _number(value: float) -> str:
    if math.isnan(value):
        return "--"
    return r"$\infty$" if math.isinf(value) else f"{value:.3g}"


def _escaped(words: str) -> str:
    """Words as LaTeX prints them; line ends become spaces."""
    return re.sub(r"[\\~^&%$#_{}]", lambda found: _SPECIAL[found[0]], " ".join(words.split()))
