"""The words of this house: each is explained in one place, and that place is reachable from where it is read."""

import re
from pathlib import Path

from click.testing import CliRunner

from fedassay.cli import cli
from fedassay.records.record import load_record
from fedassay.reports.document.finding_tables import controls_table, findings_table

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
TERMS = re.findall(r"^\| ([^|]+?) \| ", GLOSSARY, re.MULTILINE)
RECORD = ROOT / "docs" / "gallery" / "photographs"


def test_every_term_is_explained_once() -> None:
    terms = [term for term in TERMS if term not in ("term", "word", "---")]
    assert len(terms) > 50
    assert len(set(terms)) == len(terms)


def test_each_table_is_in_order() -> None:
    for table in re.split(r"^#+ ", GLOSSARY, flags=re.MULTILINE)[1:]:
        rows = re.findall(r"^\| ([^|]+?) \| ", table, re.MULTILINE)[1:]
        assert rows == sorted(rows, key=str.casefold)


def test_words_that_columns_name_are_explained() -> None:
    assert {"source", "selection", "verdict", "control, positive", "control, negative", "limit of detection"} <= {
        *TERMS
    }
    record = load_record(RECORD)
    found = [(cell, finding) for cell in record.cells for finding in cell.findings]
    for table in (controls_table(record), findings_table(record, "findings", "Findings", found)):
        hints = {column.key: column.hint for column in table.columns}
        assert hints["source"], table.name
        assert hints["selection"], table.name


def test_the_command_line_and_the_page_on_reports_say_where_words_are_explained() -> None:
    assert "docs/glossary.md" in CliRunner().invoke(cli, ["--help"]).output
    assert "(glossary.md)" in (ROOT / "docs" / "reading-a-report.md").read_text(encoding="utf-8")
