"""Figures and folded tables of findings, made from the series that audits leave behind."""

from __future__ import annotations

import math

from fedassay.records.record import CellRecord, Finding, RunRecord, Series
from fedassay.reports.document.audits import image_audit
from fedassay.reports.document.figures.curves import Named, roc, sweep
from fedassay.reports.document.figures.forest import ForestRow, forest
from fedassay.reports.document.figures.histogram import histogram
from fedassay.reports.document.figures.svg import Figure
from fedassay.reports.document.finding_tables import every, found
from fedassay.reports.document.series import DRAWN, ROC, SCORES, SWEEP
from fedassay.reports.document.series import rows as series_rows
from fedassay.reports.document.tables import Column, Row, Table
from fedassay.reports.words.groups import cell_name, groups, several_deltas
from fedassay.reports.words.naming import distinct, slug
from fedassay.reports.words.summary import about
from fedassay.reports.words.things import source_words


def first_seed(record: RunRecord, audit: str) -> list[tuple[CellRecord, Finding]]:
    """An audit's findings on the first seed of each group; figures show these, tables show all."""
    first = {id(group.cells[0]) for group in groups(record)}
    return [(cell, finding) for cell, finding in found(record, [audit]) if id(cell) in first]


def figures_of(record: RunRecord, audit: str) -> tuple[Figure, ...]:
    """Every figure that an audit's findings give."""
    findings = first_seed(record, audit)
    deltas = several_deltas(record)
    out: list[Figure | None] = []
    if audit == image_audit():
        entries = [
            ForestRow(cell_name(cell, deltas), about(finding) or source_words(None), finding)
            for cell, finding in findings
        ]
        out.append(forest(entries))
    curves = [
        Named(_about(cell, finding, deltas), finding.series[ROC])
        for cell, finding in findings
        if ROC in finding.series
    ]
    out += roc(slug(f"{audit}_roc"), "Who can be recognised as a member?", curves)
    for cell, finding in findings:
        title = _about(cell, finding, deltas)
        name = slug(f"{audit}-{title}")
        if SCORES in finding.series:
            out.append(histogram(f"{name}-scores", title, finding.series[SCORES]))
        if SWEEP in finding.series:
            out.append(sweep(f"{name}-sweep", title, finding.series[SWEEP]))
    return tuple(figure for figure in out if figure is not None)


def folded_of(record: RunRecord, audit: str) -> tuple[Table, ...]:
    """The series that are no figure, as tables of a few hundred rows; their CSV is whole."""
    names, deltas = series_files(record), several_deltas(record)
    return tuple(
        _table(names[id(finding), name], f"{series.title}: {_about(cell, finding, deltas)}", series)
        for cell, finding in first_seed(record, audit)
        for name, series in finding.series.items()
        if name not in DRAWN
    )


def series_files(record: RunRecord) -> dict[tuple[int, str], str]:
    """Names of the CSVs of all series, without the extension, by the finding's identity and the series' name."""
    held = [(cell, finding, name) for cell, finding in every(record) for name in finding.series]
    names = distinct([_series_file(cell, finding, name) for cell, finding, name in held])
    return {(id(finding), name): file for (_, finding, name), file in zip(held, names, strict=True)}


def _series_file(cell: CellRecord, finding: Finding, name: str) -> str:
    parts = [cell_name(cell, delta=True, seed=True), finding.audit, finding.source, finding.selection, name]
    return f"series_{slug('-'.join(part for part in parts if part))}"


def _about(cell: CellRecord, finding: Finding, deltas: bool) -> str:
    return ", ".join(part for part in (cell_name(cell, deltas), about(finding)) if part)


_MOST_ROWS = 200
"""Rows of a series that the page prints."""


def _table(name: str, title: str, series: Series) -> Table:
    text = {key for key, values in series.columns.items() if any(_is_text(value) for value in values)}
    columns = (
        Column(key, key.replace("_", " "), "text" if key in text else "parameter") for key in series.columns
    )
    cells = series_rows(series)
    rows = (Row(tuple(math.inf if value == "inf" else value for value in values)) for values in cells[:_MOST_ROWS])
    note = f"The first {_MOST_ROWS} of {len(cells)} rows; the CSV has all." if len(cells) > _MOST_ROWS else ""
    return Table(name, title, tuple(columns), tuple((row,) for row in rows), note=note)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != "inf"
