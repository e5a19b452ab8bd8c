"""The figures of the report in matplotlib: the same data, to be changed and put into a paper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedassay.records.record import RunRecord
from fedassay.support.epsilon import Epsilon
from fedassay.support.errors import DataError
from fedassay.support.extras import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedassay.reports.document.figures.svg import Figure

_EDGE = 3.0
"""Factor on the largest finite epsilon at which unbounded ones are drawn."""


@dataclass(frozen=True)
class Plots:
    """Figures of a run; each is drawn on an Axes, which it returns.

    A figure of values that the run did not measure is an error that says so.

    Attributes:
        record: The run's record.
    """

    record: RunRecord

    def tradeoff(self, measure: str | None = None, ax: Axes | None = None) -> Axes:
        """Accuracy against observed leakage: one point a release, the Pareto front as a staircase.

        Args:
            measure: `ssim_gain`, `auc` or `observed`, with the kind behind it where epsilons of several were
                observed; None: the first that some release has.
            ax: Axes to draw on; None: a new figure.

        Raises:
            DataError: No release has both figures.
            MissingExtraError: matplotlib is not installed.
        """
        from fedassay.reports.document.figures.tradeoff import privacy_utility
        from fedassay.reports.document.leakage import MEASURES
        from fedassay.reports.words.groups import GROUP_KEYS

        drawn = {figure.name.removeprefix("accuracy_"): figure for figure in privacy_utility(self.record)}
        name = measure or next(iter(drawn), "")
        if name not in drawn:
            raise DataError(
                f"plot.tradeoff: no release has {name or 'measured leakage'} and an accuracy; "
                f"allowed: {', '.join(drawn) or 'a run whose attacks were conclusive'}"
            )
        rows, column = _rows(drawn[name]), drawn[name].columns[len(GROUP_KEYS)]
        ax = _axes(ax, "plot.tradeoff")
        for number, label in enumerate(dict.fromkeys(row["label"] for row in rows)):
            mine = [row for row in rows if row["label"] == label]
            ax.errorbar(
                [row[column] for row in mine],
                [row["accuracy"] for row in mine],
                xerr=_whiskers(mine, column),
                yerr=_whiskers(mine, "accuracy"),
                fmt="o",
                color=f"C{number % 10}",
                capsize=3,
                label=label,
            )
        for row in rows:
            place = (row[column], row["accuracy"])
            ax.annotate(_asked(row), place, (6, 5), textcoords="offset points", fontsize="small")
        front = sorted((row[column], row["accuracy"]) for row in rows if row["pareto"] == "yes")
        ax.step(*zip(*front, strict=True), where="post", color="0.6", zorder=0, label="Pareto front")
        axis = next(item.title for item in MEASURES if item.name == column)
        ax.set(xlabel=f"{axis} (more: leaks more)", ylabel="accuracy", title=drawn[name].title)
        ax.legend()
        return ax

    def epsilon(self, ax: Axes | None = None, of: str | None = None) -> Axes:
        """Claimed, accounted and observed epsilon, one row a release; unbounded ones beyond the dotted line.

        Args:
            ax: Axes to draw on; None: a new figure.
            of: The kind that is drawn, such as `one record added or removed`, for kinds share no axis; None: the
                only one.

        Raises:
            DataError: Nothing finite was claimed, accounted or observed, or there are several kinds.
            MissingExtraError: matplotlib is not installed.
        """
        from fedassay.reports.document.figures.epsilons import epsilons
        from fedassay.reports.words.groups import by_kind, groups

        every = groups(self.record)
        kinds = {kind.words: alike for kind, alike in by_kind(g for g in every if g.asked.finite).items()}
        if of not in {None, *kinds} or (of is None and len(kinds) > 1):
            given = "several kinds of epsilon share no axis" if of is None else f"of: given {of!r}"
            raise DataError(f"plot.epsilon: {given}; allowed for of: {'; '.join(kinds)}")
        figure = epsilons(self.record, kinds[of] if of is not None else every)
        if figure is None:
            raise DataError("plot.epsilon: no cell claims, accounts or observes a finite epsilon")
        rows, marks = _rows(figure), (("claimed", "|", 14), ("accounted", "<", 7), ("observed", ">", 7))
        values = [row[name] for row in rows for name, _, _ in marks]
        finite = [value for value in values if value is not None and 0 < value < math.inf]
        least, edge = min(finite) / _EDGE, max(finite) * _EDGE

        def at(value: float | None) -> float:
            return math.nan if value is None else min(max(value, least), edge)

        ax = _axes(ax, "plot.epsilon")
        for place, row in enumerate(rows):
            low = least if row["observed"] is None else at(row["observed"])
            high = edge if row["accounted"] is None else at(row["accounted"])
            ax.hlines(place, min(low, high), max(low, high), color="0.8", linewidth=6, zorder=0)
        for number, (name, mark, size) in enumerate(marks):
            ax.plot(
                [at(row[name]) for row in rows],
                range(len(rows)),
                mark,
                color=f"C{number}",
                markersize=size,
                markeredgewidth=2,
                label=name,
            )
        ax.axvline(max(finite) * _EDGE**0.5, color="0.7", linestyle=":")
        ax.text(edge, 1.01, "∞", transform=ax.get_xaxis_transform(), ha="center", va="bottom")
        names = [f"{row['label']}, {_asked(row)}" for row in rows]
        ax.set_yticks(range(len(rows)), names)
        ax.invert_yaxis()
        ax.set(xscale="log", xlabel=f"ε ({of or next(iter(kinds), 'nothing finite was asked for')})")
        ax.set_title(figure.title, pad=24)
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(marks), frameon=False)
        return ax

    def roc(self, audit: str | None = None, ax: Axes | None = None) -> Axes:
        """The ROC curve of every finding that has one, on log axes, with its band.

        Args:
            audit: Only those of one audit.
            ax: Axes to draw on; None: a new figure.

        Raises:
            DataError: No finding has one.
            MissingExtraError: matplotlib is not installed.
        """
        from fedassay.reports.document.series import ROC, finite, numbers
        from fedassay.reports.words.groups import asked_words

        held = [
            (cell, finding, finding.series[ROC])
            for cell in self.record.cells
            for finding in cell.findings
            if ROC in finding.series and audit in {None, finding.audit}
        ]
        if not held:
            raise DataError("plot.roc: no finding has a ROC curve; the audit membership gives one")
        ax = _axes(ax, "plot.roc")
        floor = 1e-3
        for number, (cell, finding, series) in enumerate(held):
            false, true = ([value or 0.0 for value in numbers(series, name)] for name in ("fpr", "tpr"))
            where = "" if finding.source is None else f", {finding.source}"
            seed = "" if cell.seed is None else f", seed {cell.seed}"
            name = f"{cell.label}, ε = {asked_words(cell.asked)}{where}{seed}"
            ax.plot(false, true, color=f"C{number % 10}", label=name)
            low, high = (finite(numbers(series, f"tpr_{side}")) for side in ("low", "high"))
            if len(low) == len(high) == len(false):
                ax.fill_between(false, low, high, color=f"C{number % 10}", alpha=0.15, linewidth=0)
            floor = min([floor, *(value for value in false if value > 0)])
        ax.plot([floor, 1], [floor, 1], color="0.7", linestyle=":", label="guessing")
        ax.set(
            xscale="log",
            yscale="log",
            xlim=(floor, 1),
            ylim=(floor, 1.05),
            xlabel="false positive rate",
            ylabel="true positive rate",
        )
        ax.legend(fontsize="small")
        return ax

    def attacks(self, method: str | None = None, epsilon: float | None = None, ax: Axes | None = None) -> Axes:
        """All attacks on one release, a line each, on one scale: 0 no more than without the attack, 1 everything.

        Args:
            method: The entry's label or registered name; None: the run has one release.
            epsilon: Epsilon of the release.
            ax: Axes to draw on; None: a new figure.

        Raises:
            PlanError: The run has no such release, or several.
            DataError: No attack was run on it.
            MissingExtraError: matplotlib or pandas is not installed.
        """
        from fedassay.api.attacks import cell_of, draw, table
        from fedassay.reports.words.groups import cell_name

        cell = cell_of(self.record, method, epsilon)
        rows = table(cell)
        if rows.empty:
            raise DataError(
                f"plot.attacks: no attack was run on {cell.label}; allowed: a plan with `attacks: standard`"
            )
        return draw(rows, f"Attacks on {cell_name(cell)}", _axes(ax, "plot.attacks"))


def _axes(ax: Axes | None, what: str) -> Axes:
    if ax is not None:
        return ax
    drawn: Axes = optional("matplotlib.pyplot", "notebook", what).subplots(layout="constrained")[1]
    return drawn


def _rows(figure: Figure) -> list[dict[str, Any]]:
    return [dict(zip(figure.columns, row, strict=True)) for row in figure.rows]


def _asked(row: dict[str, Any]) -> str:
    """Return the guarantee that a release was asked for, with its kind."""
    from fedassay.reports.words.groups import asked_words

    return f"ε = {asked_words(Epsilon(row['epsilon'], row['delta'], row['adjacency'], row['unit']))}"


def _whiskers(rows: list[dict[str, Any]], name: str) -> list[list[float]]:
    """Return distances of the interval's ends from the values; 0 where there is none."""
    ends = [(row[name], row[f"{name}_low"], row[f"{name}_high"]) for row in rows]
    return [
        [0.0 if low is None else max(0.0, value - low) for value, low, _ in ends],
        [0.0 if high is None else max(0.0, high - value) for value, _, high in ends],
    ]
