"""Tables of findings: names as the CSV has them, with words beneath on the page."""

from __future__ import annotations

import csv
import io

import pytest

from fedassay.records.record import RunRecord
from fedassay.reports.document.finding_tables import controls_table, every, findings_table
from fedassay.reports.document.tables import Table, printed
from fedassay.reports.words.summary import selection_words
from fedassay.reports.words.things import source_words


@pytest.fixture(params=["findings", "controls"])
def table(record: RunRecord, request: pytest.FixtureRequest) -> Table:
    if request.param == "controls":
        return controls_table(record)
    return findings_table(record, "findings", "Findings", every(record))


def test_sources_and_selections_stand_with_words_beneath(table: Table) -> None:
    words = {"source": source_words, "selection": selection_words}
    shown = {
        (column.key, value.text, value.detail)
        for group in printed(table).groups
        for _, cells in group
        for column, value, _ in cells
        if column.key in words and value.text
    }
    assert {"oracle_all", "mixture_samples"} <= {name for _, name, _ in shown}
    for key, name, beneath in shown:
        assert (beneath or name.replace("_", " ")) == words[key](name)
        assert "_" not in beneath


def test_a_csv_has_the_names_alone(table: Table, record: RunRecord) -> None:
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert {row["source"] for row in rows} <= {finding.source or "" for _, finding in every(record)}
    assert "oracle_all" in {row["selection"] for row in rows}
