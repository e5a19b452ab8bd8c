"""The matrix of methods against audits."""

from __future__ import annotations

import math
from typing import Any

from fedassay.records.record import Finding, Metric, RunRecord
from fedassay.reports.document.coverage_tables import matrix_table
from fedassay.reports.document.tables import Ruling, printed


def _record(build_cell: Any) -> RunRecord:
    def made(selection: str, source: str, ssim: float, verdict: Any) -> Finding:
        metrics = {
            "ssim": Metric(value=ssim, low=ssim - 0.1, high=ssim + 0.1, n=9),
            "psnr": Metric(value=20 * ssim),
        }
        return Finding(
            audit="reconstruction",
            source=source,
            selection=selection,
            verdict=verdict,
            metrics=metrics,
            reason="r",
        )

    cells = []
    for epsilon, ssim in ((math.inf, 0.8), (10.0, 0.5), (1.0, 0.3)):
        findings = (
            made("all", "raw", ssim, "leak" if epsilon > 10 else "no_leak_found"),
            made("all", "means", ssim - 0.2, "no_leak_found"),
            made("oracle", "raw", 0.99, "inconclusive"),
            Finding(audit="memorization", verdict="not_run", reason="the method sends no generator"),
        )
        cells.append(build_cell(None, "fedcgs", "fedcgs", epsilon, 0, findings=findings))
    return RunRecord(plan={}, environment={}, cells=tuple(cells))


def test_a_row_a_method_and_epsilon_a_column_an_audit_the_worst_verdict(build_cell: Any) -> None:
    table = matrix_table(_record(build_cell))
    assert [column.key for column in table.columns[-2:]] == ["reconstruction", "memorization"]
    rulings = [row.values[-2:] for row in table.rows]
    assert [pair[0].verdict for pair in rulings if isinstance(pair[0], Ruling)] == [
        "leak",
        "inconclusive",
        "inconclusive",
    ]
    assert all(isinstance(pair[1], Ruling) and pair[1].verdict == "not_run" for pair in rulings)
    assert "the method sends no generator" in dict(printed(table).footnotes).values()


def test_one_audit_needs_no_matrix(build_cell: Any) -> None:
    finding = Finding(audit="message", verdict="leak", reason="r")
    cell = build_cell(None, "fedcgs", "fedcgs", 1.0, 0, findings=(finding,))
    assert matrix_table(RunRecord(plan={}, environment={}, cells=(cell,))).rows == ()
