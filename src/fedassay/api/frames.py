"""The record of a run as tidy tables: one row an observation, one column a variable, in pandas.

`cell` numbers the cells of a run, `finding` the findings of a cell; together they join the tables. Infinite
epsilon is `inf`; a value that was not measured is missing, with its reason beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedassay.records.record import CellRecord, Finding, Metric, RunRecord
from fedassay.support.epsilon import Epsilon
from fedassay.support.extras import optional

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]

_CELL = ("cell", "label", "method", "epsilon", "delta")
_KEYS = (*_CELL, "adjacency", "unit", "seed")
CELLS = (
    *_KEYS,
    *("answer", "worst", "verdict", "claimed", "accounted", "observed", "mu", "exact_fields", "reason"),
    *("accuracy", "bytes_up", "bytes_down", "seconds", "params"),
)
FINDINGS = (
    *_KEYS,
    *("finding", "audit", "attack", "source", "selection", "verdict", "reason"),
    *("positive_control", "positive_caught", "negative_control", "negative_flagged", "limit", "limit_metric"),
)
METRICS = (
    *_KEYS,
    *("finding", "audit", "attack", "source", "selection", "verdict"),
    *("metric", "value", "low", "high", "n", "measured_in", "reason", "baseline", "baseline_low", "baseline_high"),
)
LEDGER = (
    *(*_CELL, "epsilon_adjacency", "epsilon_unit", "seed"),
    *("field", "kind", "direction", "messages", "shape", "dtype", "bytes", "mechanism", "exact", "secure"),
    *("adjacency", "unit", "group", "sensitivity_low", "sensitivity_high", "noise_low", "noise_high", "note"),
)
COVERAGE = (*_KEYS, "attack", "status", "reason", "would_decide")

RUNS = (
    *("run", "name", "date", "answer", "policy", "headline", "worst", "harm"),
    *("cells", "failed", "report", "problem"),
)


def frame(rows: Iterator[Row], columns: Sequence[str], what: str) -> pandas.DataFrame:
    """Rows as a DataFrame.

    Args:
        rows: Every row has all of `columns`, and may have more.
        columns: Those that are there even without a row, in their order.
        what: Caller, named where pandas is missing.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    pandas = optional("pandas", "notebook", what)
    held = list(rows)
    names = dict.fromkeys([*columns, *(name for row in held for name in row)])
    return pandas.DataFrame.from_records(held, columns=list(names))


def cell_rows(record: RunRecord) -> Iterator[Row]:
    """A row a cell; every measure of utility and communication is a column, such as `accuracy`.

    `answer` is that of the shipped policy which fits, `worst` the heaviest verdict of the cell's findings,
    `verdict` that on its claim alone.
    """
    from fedassay.reports.answer.rows import word_of
    from fedassay.reports.decision.decision import decide
    from fedassay.reports.decision.standard import standard_policy
    from fedassay.reports.words.summary import verdicts_of
    from fedassay.reports.words.verdicts import worst

    words = {
        id(cell): word_of(option)
        for option in decide(record, standard_policy(record)).everything
        for cell in option.group.cells
    }
    for number, cell in enumerate(record.cells):
        privacy, word = cell.privacy, words[id(cell)]
        yield {
            **_keys(number, cell),
            "answer": word,
            "worst": worst(verdicts_of(cell)),
            "verdict": privacy.verdict,
            **{name: _bare(found) for name, found in _epsilons(cell).items()},
            "mu": or_nan(privacy.mu),
            "exact_fields": privacy.exact_fields,
            "reason": privacy.reason,
            "accuracy": math.nan,
            "bytes_up": math.nan,
            "bytes_down": math.nan,
            **{name: or_nan(value) for name, value in {**cell.utility, **cell.communication}.items()},
            "seconds": sum(cell.seconds.values()),
            "params": cell.params,
        }


def finding_rows(record: RunRecord) -> Iterator[Row]:
    """A row a finding."""
    for keys, finding in _findings(record):
        positive, negative, limit = finding.controls.positive, finding.controls.negative, finding.limit
        yield {
            **keys,
            "verdict": finding.verdict,
            "reason": finding.reason,
            "positive_control": None if positive is None else positive.release,
            "positive_caught": None if positive is None else positive.caught,
            "negative_control": None if negative is None else negative.release,
            "negative_flagged": None if negative is None else negative.flagged,
            "limit": math.nan if limit is None else limit.value,
            "limit_metric": None if limit is None else limit.metric,
        }


def metric_rows(record: RunRecord) -> Iterator[Row]:
    """A row a metric of a finding."""
    for keys, finding in _findings(record):
        for name in dict.fromkeys([*finding.metrics, *finding.baseline]):
            metric = finding.metrics.get(name, _NOTHING)
            base = finding.baseline.get(name, _NOTHING)
            yield {
                **keys,
                "verdict": finding.verdict,
                "metric": name,
                "value": or_nan(metric.value),
                "low": or_nan(metric.low),
                "high": or_nan(metric.high),
                "n": metric.n,
                "measured_in": metric.unit,
                "reason": metric.reason,
                "baseline": or_nan(base.value),
                "baseline_low": or_nan(base.low),
                "baseline_high": or_nan(base.high),
            }


def ledger_rows(record: RunRecord) -> Iterator[Row]:
    """A row a field of a cell's ledger."""
    for number, cell in enumerate(record.cells):
        for field in cell.ledger:
            sensitivity, noise = field.sensitivity or (math.nan,) * 2, field.noise_scale or (math.nan,) * 2
            yield {
                **_keys(number, cell, "epsilon_"),
                "field": field.field,
                "kind": field.kind,
                "direction": field.direction,
                "messages": field.messages,
                "shape": field.shape,
                "dtype": field.dtype,
                "bytes": field.nbytes,
                "mechanism": field.mechanism,
                "exact": field.exact,
                "secure": field.secure,
                "adjacency": field.adjacency,
                "unit": field.unit,
                "group": field.group,
                "sensitivity_low": sensitivity[0],
                "sensitivity_high": sensitivity[1],
                "noise_low": noise[0],
                "noise_high": noise[1],
                "note": field.note,
            }


def coverage_rows(record: RunRecord) -> Iterator[Row]:
    """Return a row for each attack that applies to a cell's messages."""
    for number, cell in enumerate(record.cells):
        for entry in cell.coverage:
            yield {**_keys(number, cell), **entry.model_dump()}


def run_rows(folder: Path) -> Iterator[Row]:
    """A row a run below a folder."""
    from fedassay.reports.document.index import entries

    for entry in entries(folder):
        found = entry.answer
        yield {
            "run": folder / entry.folder,
            "name": entry.name,
            "date": entry.date,
            "answer": None if found is None else found.answer,
            "policy": None if found is None else found.policy,
            "headline": None if found is None else found.headline,
            "worst": entry.worst,
            "harm": None if found is None or found.leak is None else found.leak.harm.kind,
            "cells": entry.cells,
            "failed": entry.failed,
            "report": next((folder / link for words, link in entry.links if words == "report"), None),
            "problem": entry.problem,
        }


_NOTHING = Metric(value=None)


def _keys(number: int, cell: CellRecord, before: str = "") -> Row:
    """Return the columns that identify a cell; `before` is a prefix: fields of a ledger have their own."""
    return {
        "cell": number,
        "label": cell.label,
        "method": cell.method,
        "epsilon": cell.asked.bare,
        "delta": cell.delta,
        f"{before}adjacency": cell.adjacency,
        f"{before}unit": cell.unit,
        "seed": cell.seed,
    }


def _epsilons(cell: CellRecord) -> dict[str, Epsilon | None]:
    """The three epsilons of a cell; one that is not of the row's kind has no place in it."""
    held = {"claimed": cell.claimed, "accounted": cell.accounted, "observed": cell.observed}
    own = cell.asked.kind
    return {name: found if found is not None and found.kind == own else None for name, found in held.items()}


def _bare(found: Epsilon | None) -> float:
    return math.nan if found is None else found.bare


def _findings(record: RunRecord) -> Iterator[tuple[Row, Finding]]:
    for number, cell in enumerate(record.cells):
        for place, finding in enumerate(cell.findings):
            keys = _keys(number, cell) | {
                "finding": place,
                "audit": finding.audit,
                "attack": finding.attack,
                "source": finding.source,
                "selection": finding.selection,
            }
            yield keys, finding


def or_nan(value: float | None) -> float:
    """A number for a table; NaN where there is none."""
    return math.nan if value is None else float(value)
