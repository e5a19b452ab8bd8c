"""A run as a table for a paper, in LaTeX: the mission's where the run has images, else one row a cell."""

from __future__ import annotations

from fedassay.records.record import CellRecord, RunRecord
from fedassay.reports.document.escaping import latex_escaped
from fedassay.reports.document.mission.shown import shown
from fedassay.reports.document.mission.text import mission_latex
from fedassay.reports.document.plan_notes import name_of
from fedassay.reports.words.groups import kinds_of
from fedassay.reports.words.metrics import utility
from fedassay.reports.words.numbers import interval, short, significant
from fedassay.reports.words.summary import verdicts_of
from fedassay.reports.words.verdicts import LOOKS, worst
from fedassay.support.epsilon import Epsilon

_HEADER = ("method", "ε", "relation", "seed", "accuracy", "claimed", "accounted", "observed", "worst verdict")


def latex(record: RunRecord) -> str:
    r"""The table of a run; a document needs `\usepackage{booktabs}`."""
    mission = shown(record)
    return _cells(record) if mission is None else mission_latex(mission, name_of(record))


def _cells(record: RunRecord) -> str:
    """One row a cell: accuracy with its 95 % interval, three epsilons, the worst verdict.

    Observed epsilons are lower bounds and stand with a sign that says so; what was not measured is a dash.
    """
    body = [" & ".join(map(latex_escaped, cells)) + r" \\" for cells in (_HEADER, *map(_row, record.cells))]
    kinds = "; ".join(kinds_of((cell.label, cell.asked) for cell in record.cells))
    caption = latex_escaped(f"{name_of(record)}. {kinds}." if kinds else f"{name_of(record)}.")
    lines = [
        r"\begin{table*}",
        r"\centering\small",
        rf"\caption{{{caption}}}",
        rf"\begin{{tabular}}{{lrl{'r' * (len(_HEADER) - 4)}l}}",
        r"\toprule",
        body[0],
        r"\midrule",
        *body[1:],
    ]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}", ""])


def _row(cell: CellRecord) -> tuple[str, ...]:
    accuracy = utility(cell, "accuracy")
    own = cell.asked.kind
    observed = _bare(cell.observed, own == (cell.observed or cell.asked).kind)
    return (
        cell.label,
        short(cell.asked.bare),
        cell.asked.kind.words if cell.asked.finite else "–",
        "–" if cell.seed is None else str(cell.seed),
        f"{significant(accuracy.value)} {interval(accuracy, count=False)}".strip(),
        _bare(cell.claimed, own == (cell.claimed or cell.asked).kind),
        _bare(cell.accounted, own == (cell.accounted or cell.asked).kind),
        observed if observed == "–" else f"≥ {observed}",
        LOOKS[worst(verdicts_of(cell))].word,
    )


def _bare(found: Epsilon | None, of_the_row: bool) -> str:
    """An epsilon of the row's kind; one of another has no place in it."""
    return significant(found.bare) if found is not None and of_the_row else "–"
