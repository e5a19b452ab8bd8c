"""All attacks on one release side by side: a table and, on one scale, a figure.

Attacks are measured in figures of their own: records computed exactly, the AUC of membership inference, similarity
of pictures, distance of histograms. Each figure has a value without an attack and one for a complete leak, so that
all fit on one axis: `taken` is 0 where an attack adds nothing, and 1 where nothing is left to take.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fedassay.api.frames import Row, frame, or_nan
from fedassay.contracts.registry import metrics
from fedassay.records.record import CellRecord, Finding, Metric, RunRecord
from fedassay.reports.document.escaping import latex_escaped
from fedassay.support.errors import PlanError
from fedassay.support.metrics import Scale

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

COLUMNS = (
    *("attack", "source", "selection", "audit", "metric", "value", "low", "high", "n"),
    *("without", "taken", "taken_low", "taken_high", "verdict", "caught", "reason"),
)
_COLOURS = {"leak": "C3", "no_leak_found": "C0", "inconclusive": "0.5", "not_run": "0.8"}


def cell_of(record: RunRecord, method: str | None, epsilon: float | None) -> CellRecord:
    """The cell of one release, at its first seed.

    Raises:
        PlanError: There is no such release, or several.
    """
    from fedassay.reports.decision.decision import asked_for
    from fedassay.reports.words.groups import groups
    from fedassay.reports.words.sentences import listed, who

    found = asked_for(record, method, epsilon)
    if len(found) != 1:
        held = listed((who(group) for group in groups(record)), limit=12)
        raise PlanError(f"attacks: {len(found)} releases are meant; allowed: method and epsilon of one of {held}")
    return found[0].cells[0]


def table(cell: CellRecord) -> pandas.DataFrame:
    """One row a finding of an attack on a cell."""
    return frame(_rows(cell), COLUMNS, "Run.attacks")


def _rows(cell: CellRecord) -> Iterator[Row]:
    for finding in cell.findings:
        if finding.attack is None:
            continue
        positive = finding.controls.positive
        yield {
            "attack": finding.attack,
            "source": finding.source,
            "selection": finding.selection,
            "audit": finding.audit,
            **_figure(finding),
            "verdict": finding.verdict,
            "caught": None if positive is None else positive.caught,
            "reason": finding.reason,
        }


def scales() -> list[tuple[str, Scale]]:
    """The declared metrics that fit on one axis, gains first: the first that a finding has stands for it."""
    found = [(name, metric.scale) for name, metric in metrics().items() if metric.scale is not None]
    return sorted(found, key=lambda pair: not pair[1].over)


def ends_of(finding: Finding, name: str, scale: Scale) -> tuple[float, float] | None:
    """The values of a metric where nothing and where all is taken; None where the baseline was not measured."""
    metric = finding.baseline.get(scale.over or name)
    base = None if metric is None else metric.value
    if scale.over:
        return None if base is None else (0.0, 1.0 - base)
    nothing = base if scale.nothing is None else scale.nothing
    return None if nothing is None or scale.everything is None else (nothing, scale.everything)


def _figure(finding: Finding) -> Row:
    """Return the main figure of a finding, as it is and on the common scale; missing where there is none."""
    nan = math.nan
    for name, scale in scales():
        metric, ends = finding.metrics.get(name), ends_of(finding, name, scale)
        if metric is None or metric.value is None or ends is None or ends[0] == ends[1]:
            continue
        taken = sorted(_on(ends, value) for value in (metric.low, metric.high) if value is not None)
        low, high = taken if len(taken) == 2 else (nan, nan)
        return {
            **{
                "metric": name,
                "value": metric.value,
                "low": or_nan(metric.low),
                "high": or_nan(metric.high),
            },
            **{"n": metric.n, "without": ends[0] if not scale.over else 0.0},
            **{"taken": _on(ends, metric.value), "taken_low": low, "taken_high": high},
        }
    return dict.fromkeys(("metric", "n"), None) | dict.fromkeys(
        ("value", "low", "high", "without", "taken", "taken_low", "taken_high"), nan
    )


def _on(ends: tuple[float, float], value: float) -> float:
    """A value on the axis from nothing (0) to everything (1); worse than nothing is 0."""
    return min(1.0, max(0.0, (value - ends[0]) / (ends[1] - ends[0])))


def draw(rows: pandas.DataFrame, title: str, ax: Axes) -> Axes:
    """Draw a line an attack: its figure with its interval; attacks not run or without an answer are grey."""
    titles = {name: scale.title for name, scale in scales()}
    for place, row in enumerate(rows.to_dict("records")):
        colour = _COLOURS.get(row["verdict"], "0.5")
        if math.isnan(row["taken"]):
            ax.text(
                0.0, place, f"  {row['verdict'].replace('_', ' ')}", va="center", color="0.5", fontsize="small"
            )
            continue
        if not math.isnan(row["taken_low"]):
            ax.hlines(place, row["taken_low"], row["taken_high"], color=colour, linewidth=2)
        ax.plot(row["taken"], place, "o", color=colour)
        words = f"{titles[row['metric']]}: {row['verdict'].replace('_', ' ')}"
        ax.text(
            1.03, place, words, va="center", color=colour, fontsize="small", transform=ax.get_yaxis_transform()
        )
    names = [_name(row) for row in rows.to_dict("records")]
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set(xlim=(-0.02, 1.02), xlabel="taken (0: no more than without the attack, 1: everything)", title=title)
    return ax


def _name(row: dict[str, Any]) -> str:
    parts = (row["attack"], row["source"], row["selection"])
    return ", ".join(dict.fromkeys(str(part) for part in parts if isinstance(part, str) and part != "all"))


def latex(rows: pandas.DataFrame) -> str:
    r"""A table as LaTeX (booktabs), for a paper: `value`, `low`, `high` and `n` become `0.88 [0.84, 0.90] (550)`.

    Args:
        rows: Any table of a run, with all columns or a choice of them.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    columns = [str(name) for name in rows.columns]
    joined = {"value", "low", "high"} <= set(columns)
    shown = [name for name in columns if not (joined and name in {"low", "high", "n"})]
    lines = [" & ".join(_cell(row, name, joined) for name in shown) + r" \\" for row in rows.to_dict("records")]
    heads = ["value [95\\,\\% interval]" if joined and name == "value" else latex_escaped(name) for name in shown]
    align = "".join("r" if name in {"value", "n", "epsilon", "accuracy", "taken"} else "l" for name in shown)
    head = [rf"\begin{{tabular}}{{{align}}}", r"\toprule", " & ".join(heads) + r" \\", r"\midrule"]
    return "\n".join([*head, *lines, r"\bottomrule", r"\end{tabular}", ""])


def _cell(row: dict[str, Any], name: str, joined: bool) -> str:
    if joined and name == "value":
        metric = Metric(value=_known(row["value"]), low=_known(row["low"]), high=_known(row["high"]))
        if metric.value is None:
            return "--"
        count = "" if _known(row.get("n")) is None else f" ({int(row['n']):,})"
        ends = "" if metric.low is None or metric.high is None else f" [{metric.low:.3g}, {metric.high:.3g}]"
        return f"{metric.value:.3g}{ends}{count}"
    value = row[name]
    if isinstance(value, float):
        return "--" if math.isnan(value) else r"$\infty$" if math.isinf(value) else f"{value:.3g}"
    return "--" if value is None else latex_escaped(str(value))


def _known(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not math.isnan(value) else None
