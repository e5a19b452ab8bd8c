"""The table for a paper: every figure of a run with its interval, and nothing that LaTeX would act on."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedassay.api.latex import latex
from fedassay.records.record import load_record

GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"


@pytest.mark.parametrize("name", ["photographs", "captured"])
def test_one_row_a_cell_with_intervals(name: str) -> None:
    record = load_record(GALLERY / name)
    lines = latex(record).splitlines()
    rows = [line for line in lines if line.endswith(r" \\")][1:]
    assert len(rows) == len(record.cells)
    assert {row.count(" & ") for row in rows} == {7}
    for cell, row in zip(record.cells, rows, strict=True):
        accuracy, low = cell.utility.get("accuracy"), cell.utility.get("accuracy_low")
        if accuracy is not None and low is not None:
            assert f"{accuracy:.3f} [{low:.3f}, " in row


def test_names_are_text_and_no_commands() -> None:
    record = load_record(GALLERY / "photographs")
    cell = record.cells[0].model_copy(update={"label": "50%_of {a}\\input & ~^$#"})
    table = latex(record.model_copy(update={"cells": (cell, *record.cells[1:])}))
    assert r"50\%\_of \{a\}\textbackslash{}input \& \textasciitilde{}\textasciicircum{}\$\#" in table
