"""Records that version 0.1 wrote under schema 1: every later version loads, renders, compares and checks them.

`schema1/run` is a run of every audit on scikit-learn's digits (`schema1/plan.yaml`), `schema1/captured` the audit
of the transcript of one of its cells. They are kept as they were written, but for the machine's name, and are
never made anew.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fedassay.cli import cli
from fedassay.records.record import load_record

KEPT = Path(__file__).with_name("schema1")
WRITTEN = {
    "run": "0682ead4e2ce692a6cdea0dd232b26ac8f21db17da3c398d1ae5f09b035461dc",
    "captured": "f20c2aa67b2389a5de69ce8e866cb8cb449375db01c4a7ee976b035945ed72ab",
}


@pytest.fixture(params=sorted(WRITTEN))
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of one of the run folders."""
    return Path(shutil.copytree(KEPT / request.param, tmp_path / request.param))


def _raw(run: Path) -> dict[str, Any]:
    """The document as it stands there, read without the package."""
    content: dict[str, Any] = json.loads((run / "record.json").read_text(encoding="utf-8"))
    return content


def _findings(run: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(cell, finding) for cell in _raw(run)["cells"] for finding in cell["findings"]]


def _number(value: object) -> float | None:
    return None if value is None else {"inf": math.inf, "-inf": -math.inf}.get(str(value)) or float(str(value))


def _fedassay(*arguments: str | Path) -> int:
    code = cli.main([str(argument) for argument in arguments], standalone_mode=False)
    return code if isinstance(code, int) else 0


def _report(run: Path, format: str) -> Path:
    out = run.parent / f"report-{format}"
    assert _fedassay("report", run, "--format", format, "-o", out, "--quiet") == 0
    return out


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_the_records_are_those_that_were_written(name: str) -> None:
    assert _raw(KEPT / name)["schema"] == 1
    assert hashlib.sha256((KEPT / name / "record.json").read_bytes()).hexdigest() == WRITTEN[name]


def test_the_run_holds_every_verdict_and_pictures() -> None:
    verdicts = {finding["verdict"] for _, finding in _findings(KEPT / "run")}
    assert verdicts == {"leak", "no_leak_found", "inconclusive", "not_run", "sound", "unsound"}
    pictures = [picture["file"] for _, finding in _findings(KEPT / "run") for picture in finding["pictures"]]
    assert len(pictures) > 5
    assert all((KEPT / "run" / file).is_file() for file in pictures)


def test_every_verdict_and_number_is_loaded(kept: Path) -> None:
    record = load_record(kept)
    raw = _raw(kept)
    assert len(record.cells) == len(raw["cells"]) > 0
    for cell, written in zip(record.cells, raw["cells"], strict=True):
        assert (cell.label, cell.epsilon, cell.seed) == (
            written["label"],
            _number(written["epsilon"]),
            written["seed"],
        )
        for key in ("claimed", "accounted", "observed"):
            assert getattr(cell.privacy, key) == _number(written["privacy"][key])
        for finding, said in zip(cell.findings, written["findings"], strict=True):
            assert (finding.audit, finding.source, finding.verdict, finding.reason) == (
                said["audit"],
                said["source"],
                said["verdict"],
                said["reason"],
            )
            values = {name: _number(metric["value"]) for name, metric in said["metrics"].items()}
            assert {name: metric.value for name, metric in finding.metrics.items()} == values


@pytest.mark.parametrize("format", ["html", "md"])
def test_it_renders_as_a_page(kept: Path, format: str) -> None:
    # Markdown has underscores escaped.
    page = _report(kept, format).read_text(encoding="utf-8").replace("\\_", "_")
    for cell in _raw(kept)["cells"]:
        assert cell["label"] in page
    if format == "html":
        assert page.rstrip().endswith("</html>")
        files = {picture["file"] for _, finding in _findings(kept) for picture in finding["pictures"]}
        assert page.count("data:image/png;base64,") >= len(files)


def test_it_renders_as_json(kept: Path) -> None:
    out = _report(kept, "json")
    assert load_record(out) == load_record(kept)


def test_it_renders_as_tables(kept: Path) -> None:
    out = _report(kept, "csv")
    with (out / "verdicts.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))
    assert len(rows) > 1
    assert len(list(out.glob("series_*.csv"))) == sum(len(finding["series"]) for _, finding in _findings(kept))


def test_it_renders_as_sarif(kept: Path) -> None:
    results = json.loads(_report(kept, "sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
    bad = {"leak": "fail", "no_leak_found": "pass", "inconclusive": "open", "not_run": "notApplicable"}
    for audit in {finding["audit"] for _, finding in _findings(kept)} - {"dp_claim"}:
        kinds = [bad[finding["verdict"]] for _, finding in _findings(kept) if finding["audit"] == audit]
        assert [result["kind"] for result in results if result["ruleId"] == audit] == kinds


def test_it_renders_as_junit(kept: Path) -> None:
    suites = ElementTree.fromstring(_report(kept, "junit").read_text(encoding="utf-8"))
    assert len(list(suites.iter("testcase"))) > 0


def test_it_compares(tmp_path: Path) -> None:
    page = tmp_path / "compare.html"
    assert _fedassay("compare", KEPT / "run", KEPT / "captured", "-o", page, "--quiet") == 0
    text = page.read_text(encoding="utf-8")
    for run in ("run", "captured"):
        for cell in _raw(KEPT / run)["cells"]:
            assert cell["label"] in text


@pytest.mark.parametrize(
    ("name", "policy", "code"),
    [
        ("run", "strict", 1),
        ("run", "research", 1),
        ("run", "messages", 1),
        # The strict policy speaks of releases with a claim, and there is none.
        ("captured", "strict", 2),
        # The research policy asks only that no claim is disproved.
        ("captured", "research", 0),
        ("captured", "messages", 1),
    ],
)
def test_it_is_held_against_policies(name: str, policy: str, code: int) -> None:
    check = ("check", KEPT / name, "--policy", f"configs/policies/{policy}.yaml", "--quiet")
    assert _fedassay(*check, "--unverified") == code
    # It has no statement, and does not hold what its epsilon was added up from.
    assert _fedassay(*check) == (code or 2)
