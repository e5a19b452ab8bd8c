"""All attacks on one release side by side: a table and, on one scale, a figure.

Attacks are measured in figures of their own: records computed exactly, the AUC of telling members, likeness of
pictures, distance of histograms. Each has a value that needs no attack and one that gives everything away, so that
all fit on one axis: `taken` is 0 where an attack adds nothing, and 1 where nothing is left to take.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedassay.api.frames import Row, frame
from fedassay.records.record import CellRecord, Finding, Metric, RunRecord
from fedassay.reports.document.escaping import latex_escaped
from fedassay.support.errors import PlanError

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

COLUMNS = (
    *("attack", "source", "selection", "audit", "metric", "value", "low", "high", "n"),
    *("without", "taken", "taken_low", "taken_high", "verdict", "caught", "reason"),
)
_COLOURS = {"leak": "C3", "no_leak_found": "C0", "inconclusive": "0.5", "not_run": "0.8"}


@dataclass(frozen=True)
class Scale:
    """How a metric fits on the common axis.

    Attributes:
        name: Of the metric.
        title: In the figure.
        nothing: Its value without an attack; None: what the finding has as its baseline.
        everything: Its value where all is taken; None: it is a gain over `over`, of which 1 is the most.
        over: The metric whose baseline a gain is over.
    """

    name: str
    title: str
    nothing: float | None
    everything: float | None
    over: str = ""

    def ends(self, finding: Finding) -> tuple[float, float] | None:
        """The metric's values at 0 and 1; None where the baseline was not measured."""
        if self.over:
            base = finding.baseline.get(self.over)
            return None if base is None or base.value is None else (0.0, 1.0 - base.value)
        if self.nothing is not None and self.everything is not None:
            return self.nothing, self.everything
        base = finding.baseline.get(self.name)
        return (
            None
            if base is None or base.value is None or self.everything is None
            else (base.value, self.everything)
        )


SCALES = (
    Scale("fraction_recovered", "records computed", 0.0, 1.0),
    Scale("auc", "members told (AUC)", 0.5, 1.0),
    Scale("ssim_gain", "pictures (SSIM gain)", 0.0, None, over="ssim"),
    Scale("ssim", "pictures (SSIM)", None, 1.0),
    Scale("total_variation", "label histogram", None, 0.0),
    Scale("counts_right", "counts read", 0.0, 1.0),
)
"""The figure that stands for a finding is the first of these that it has."""


def cell_of(record: RunRecord, method: str | None, epsilon: float | None) -> CellRecord:
    """The cell of one release, at its first seed.

    Raises:
        PlanError: There is none, or several.
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


def _figure(finding: Finding) -> Row:
    """The figure that stands for a finding, as it is and on the common scale; missing where there is none."""
    nan = math.nan
    for scale in SCALES:
        metric, ends = finding.metrics.get(scale.name), scale.ends(finding)
        if metric is None or metric.value is None or ends is None or ends[0] == ends[1]:
            continue
        taken = sorted(_on(ends, value) for value in (metric.low, metric.high) if value is not None)
        low, high = taken if len(taken) == 2 else (nan, nan)
        return {
            **{
                "metric": scale.name,
                "value": metric.value,
                "low": _number(metric.low),
                "high": _number(metric.high),
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


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def draw(rows: pandas.DataFrame, title: str, ax: Axes) -> Axes:
    """A line an attack: how much it took, with its interval; what was not tried or cannot be told is grey."""
    titles = {scale.name: scale.title for scale in SCALES}
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
