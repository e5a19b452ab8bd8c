"""Content of a report before its layout: every table and every figure of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fedassay.contracts.metrics import SSIM_GAIN, likeness_metrics
from fedassay.records.record import RunRecord
from fedassay.reports.document.audits import image_audit, own_sections, place_of, title_of
from fedassay.reports.document.coverage_tables import coverage_table, matrix_table
from fedassay.reports.document.figures.epsilon import accuracy_epsilon
from fedassay.reports.document.figures.epsilons import epsilons
from fedassay.reports.document.figures.svg import Figure
from fedassay.reports.document.figures.tradeoff import privacy_utility
from fedassay.reports.document.figures.utility import bytes_up
from fedassay.reports.document.finding_figures import figures_of, series_files
from fedassay.reports.document.finding_tables import (
    controls_table,
    every,
    findings_table,
    found,
)
from fedassay.reports.document.mission.figure import mission_figures
from fedassay.reports.document.mission.lines import has_images
from fedassay.reports.document.mission.table import mission_table
from fedassay.reports.document.privacy_tables import (
    claims_table,
    ledger_table,
    seconds_table,
    tape_table,
    utility_table,
    verdicts_table,
)
from fedassay.reports.document.series import rows
from fedassay.reports.document.tables import Table, csv_text
from fedassay.reports.words.naming import distinct, slug
from fedassay.support.atomic import write_text


@dataclass(frozen=True)
class Contents:
    """Everything a report says, in its order.

    Attributes:
        tables: Every table.
        mission: The mission's figure, one for every axis of epsilon.
        epsilons: The epsilon plot, where there is anything to draw.
        utility: The figures of section 3.
        attacks: The figures of each audit, by its name.
        series: File name and CSV of every series.
    """

    tables: tuple[Table, ...]
    mission: tuple[Figure, ...]
    epsilons: Figure | None
    utility: tuple[Figure, ...]
    attacks: Mapping[str, tuple[Figure, ...]]
    series: tuple[tuple[str, str], ...]

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every figure."""
        head = () if self.epsilons is None else (self.epsilons,)
        return (
            *self.mission,
            *head,
            *self.utility,
            *(figure for figures in self.attacks.values() for figure in figures),
        )

    def table(self, name: str) -> Table | None:
        """The table of that name, where the run has one."""
        return next((table for table in self.tables if table.name == name), None)

    def write_csv(self, folder: Path) -> list[Path]:
        """Write everything as CSV.

        Returns:
            The files written.
        """
        files = self.csv_files()
        for name, content in files.items():
            write_text(folder / name, content)
        return [folder / name for name in files]

    def csv_files(self) -> dict[str, str]:
        """Everything as CSV, by file name."""
        files = {f"{table.name}.csv": table.csv() for table in self.tables}
        files |= {f"figure_{figure.name}.csv": figure.csv() for figure in self.figures}
        return files | dict(self.series)


def contents(record: RunRecord) -> Contents:
    """Everything that the report of a run says."""
    tables = [
        *([mission_table(record)] if has_images(record) else []),
        verdicts_table(record),
        matrix_table(record),
        claims_table(record),
        utility_table(record),
    ]
    images = image_audit()
    for audit, caption in ((images, title_of(images)), *section_five(record)):
        findings = found(record, [audit])
        if findings:
            always = [metric.name for metric in (*likeness_metrics(), SSIM_GAIN)] if audit == images else ()
            tables.append(findings_table(record, slug(audit), caption, findings, always))
    asked = tape_table(record)
    tables += [ledger_table(record, record.cells), *([] if asked is None else [asked])]
    accounts = {finding.audit for _, finding in found(record) if place_of(finding.audit).section == "accounts"}
    ledger_findings = found(record, accounts)
    if ledger_findings:
        tables.append(findings_table(record, "ledger_findings", "What the ledger says", ledger_findings))
    tables += [
        *([] if (tried := coverage_table(record)) is None else [tried]),
        controls_table(record),
        seconds_table(record),
    ]
    mission = mission_figures(record)
    # The mission's figure holds accuracy as well.
    drawn = [*privacy_utility(record), *(() if mission else accuracy_epsilon(record)), bytes_up(record)]
    attacked = {
        audit: figures_of(record, audit) for audit in (images, *(name for name, _ in section_five(record)))
    }
    names = iter(distinct([figure.name for figures in attacked.values() for figure in figures]))
    return Contents(
        tables=tuple(
            replace(t, name=name) for t, name in zip(tables, distinct([t.name for t in tables]), strict=True)
        ),
        mission=mission,
        epsilons=epsilons(record),
        utility=tuple(figure for figure in drawn if figure is not None),
        attacks={
            audit: tuple(replace(figure, name=next(names)) for figure in figures)
            for audit, figures in attacked.items()
        },
        series=_series(record),
    )


def section_five(record: RunRecord) -> list[tuple[str, str]]:
    """The audits of section 5 with their titles: those that are always there, then any other."""
    always, images = own_sections(), image_audit()
    others = dict.fromkeys(
        finding.audit
        for _, finding in found(record)
        if finding.audit not in {*always, images} and place_of(finding.audit).section in {"attacks", "images"}
    )
    return [(name, title_of(name)) for name in (*always, *others)]


def _series(record: RunRecord) -> tuple[tuple[str, str], ...]:
    """Every series of every finding as a CSV file of its own."""
    names = series_files(record)
    return tuple(
        (f"{names[id(finding), name]}.csv", csv_text(tuple(series.columns), rows(series)))
        for _, finding in every(record)
        for name, series in finding.series.items()
    )
