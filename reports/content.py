"""What a report says, before it is laid out: every table and every figure of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from fedassay.atomic import write_text
from fedassay.record import RunRecord
from fedassay.reports.figures.corridor import corridor
from fedassay.reports.figures.svg import Figure
from fedassay.reports.figures.tradeoff import accuracy_epsilon, bytes_up, privacy_utility
from fedassay.reports.finding_tables import controls_table, findings_table, found
from fedassay.reports.groups import cell_name
from fedassay.reports.privacy_tables import (
    claims_table,
    ledger_table,
    seconds_table,
    utility_table,
    verdicts_table,
)
from fedassay.reports.tables import Table, csv_text

AUDITS = {
    "inversion": "Inversion",
    "memorization": "Memorization",
    "membership": "Membership",
    "message": "Message algebra",
}
"""The audits of section 5, in its order; `reconstruction` has a section of its own."""


@dataclass(frozen=True)
class Contents:
    """Tables and figures by name, in the order of the report."""

    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    series: tuple[tuple[str, str], ...]

    def table(self, name: str) -> Table | None:
        """The table of that name, where the run has one."""
        return next((table for table in self.tables if table.name == name), None)

    def figure(self, name: str) -> Figure | None:
        """The figure of that name, where the run has one."""
        return next((figure for figure in self.figures if figure.name == name), None)

    def write_csv(self, folder: Path) -> list[Path]:
        """Write everything as CSV.

        Returns:
            The files written.
        """
        files = {f"{table.name}.csv": table.csv() for table in self.tables}
        files |= {f"figure_{figure.name}.csv": figure.csv() for figure in self.figures}
        files |= dict(self.series)
        for name, content in files.items():
            write_text(folder / name, content)
        return [folder / name for name in files]


def contents(record: RunRecord) -> Contents:
    """Everything that the report of a run says."""
    tables = [verdicts_table(record), claims_table(record), utility_table(record)]
    for audit, caption in (("reconstruction", "Reconstruction"), *section_five(record)):
        findings = found(record, [audit])
        if findings:
            always = ("psnr", "ssim", "lpips", "ssim_gain") if audit == "reconstruction" else ()
            tables.append(findings_table(record, slug(audit), caption, findings, always))
    tables += [ledger_table(record, record.cells)]
    ledger_findings = found(record, ["ledger"])
    if ledger_findings:
        tables.append(findings_table(record, "ledger_findings", "What the ledger says", ledger_findings))
    tables += [controls_table(record), seconds_table(record)]
    figures = [corridor(record), *privacy_utility(record), accuracy_epsilon(record), bytes_up(record)]
    return Contents(tuple(tables), tuple(f for f in figures if f is not None), _series(record))


def section_five(record: RunRecord) -> list[tuple[str, str]]:
    """The audits of section 5 with their titles: the four that are always there, then any other."""
    placed = {"dp_claim", "reconstruction", "ledger", *AUDITS}
    others = dict.fromkeys(finding.audit for _, finding in found(record) if finding.audit not in placed)
    return [*AUDITS.items(), *((name, name.replace("_", " ").capitalize()) for name in others)]


def _series(record: RunRecord) -> tuple[tuple[str, str], ...]:
    """Every series of every finding as a CSV file of its own."""
    out = []
    for cell, finding in found(record):
        for name, series in finding.series.items():
            parts = [
                cell_name(cell, delta=True, seed=True),
                finding.audit,
                finding.source,
                finding.selection,
                name,
            ]
            rows = list(zip(*series.columns.values(), strict=True))
            file = f"series_{slug('-'.join(part for part in parts if part))}.csv"
            out.append((file, csv_text(tuple(series.columns), rows)))
    return tuple(out)


def slug(words: str) -> str:
    """Words as a file name.

    Example:
        >>> slug("fedpft, ε = 10, δ = 10⁻⁵, seed 0")
        'fedpft-eps-10-delta-10-5-seed-0'
    """
    plain = words.replace("ε", "eps").replace("δ", "delta").replace("∞", "inf")
    plain = plain.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    return re.sub(r"[^A-Za-z0-9._]+", "-", plain).strip("-.").lower()
