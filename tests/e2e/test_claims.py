"""Claims from a plan to the record, the tables and the page."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest

from fedassay.cli import cli
from fedassay.execution.apart import forget_runs
from fedassay.records.record import CellRecord, RunRecord, load_record

pytestmark = pytest.mark.long

PLAN = """
name: claims
data:
  name: digits
  limit: 400
  split: {private: 0.7, public: 0.1, test: 0.2}
clients: {count: 1, partition: iid}
backbone: {name: pixels}
privacy: {epsilon: [1, 50], delta: 1.0e-2}
methods:
  - fedpft: {label: paper, components: 1, covariance: full, mechanism: paper, delta: 1.0e-5}
  - fedcgs: {label: sound}
  - fedcgs: {label: exact, counts: exact, epsilon: 50}
  - fedcgs: {label: open, epsilon: .inf}
audits:
  - dp_claim: {mechanism_trials: 20000, replays: 8}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("claims")
    (folder / "plan.yaml").write_text(PLAN)
    for name in ("first", "second"):
        forget_runs()
        code: Any = cli.main(
            ["run", str(folder / "plan.yaml"), "-o", str(folder / name), "--quiet"], standalone_mode=False
        )
        assert code == 0
    return folder / "first", folder / "second"


def cell(record: RunRecord, label: str, epsilon: float) -> CellRecord:
    (found,) = (item for item in record.cells if item.label == label and item.epsilon == epsilon)
    return found


def test_three_numbers_and_a_verdict(runs: tuple[Path, Path]) -> None:
    record = load_record(runs[0])
    assert not record.errors
    sound = cell(record, "sound", 1.0).privacy
    assert (sound.claimed, sound.accounted) == (1.0, pytest.approx(1.0))
    assert sound.observed is not None
    assert 0.9 < sound.observed < 1.02
    assert sound.verdict == "sound"
    paper = cell(record, "paper", 50.0).privacy
    assert paper.accounted is not None
    assert 50 < paper.accounted < 53.1
    assert paper.accounted_stated == pytest.approx(89.607, abs=1e-3)
    assert paper.verdict == "unsupported", paper.reason
    exact = cell(record, "exact", 50.0).privacy
    assert (exact.accounted, exact.verdict, exact.exact_fields) == (math.inf, "unsound", ("N",))
    assert exact.observed is not None
    assert math.isfinite(exact.observed)
    nothing = cell(record, "open", math.inf).privacy
    assert (nothing.claimed, nothing.observed, nothing.verdict) == (None, None, "not_run")
    assert "no claim" in nothing.reason


def test_confidence_is_corrected_for_the_bounds_of_the_whole_run(runs: tuple[Path, Path]) -> None:
    record = load_record(runs[0])
    bounds = 2 * len(record.cells)
    finding = cell(record, "sound", 1.0).findings[0]
    assert any(f"0.05/{bounds}" in text for text in finding.assumptions)
    assert finding.series["bounds"].columns["confidence"][2] == pytest.approx(1 - 0.05 / bounds)


def test_a_delta_of_one_over_n_reaches_record_and_page(runs: tuple[Path, Path]) -> None:
    record = load_record(runs[0])
    (warning,) = cell(record, "sound", 1.0).privacy.warnings
    assert "delta = 0.01 is at least 1/n for the largest client (n = 252)" in warning
    assert cell(record, "paper", 1.0).privacy.warnings == ()
    assert "at least 1/n for the largest client" in (runs[0] / "report.html").read_text()


def test_tables_carry_the_numbers_and_the_controls(runs: tuple[Path, Path]) -> None:
    tables = runs[0] / "tables"
    with (tables / "claims.csv").open() as file:
        claims = {(row["label"], row["epsilon"]): row for row in csv.DictReader(file)}
    assert claims["exact", "50.0"]["exact_fields"] == "N"
    assert float(claims["paper", "50.0"]["accounted_stated"]) == pytest.approx(89.607, abs=1e-3)
    with (tables / "controls.csv").open() as file:
        controls = list(csv.DictReader(file))
    assert len(controls) == 5
    assert {row["positive"] for row in controls} == {"caught"}
    assert {row["negative"] for row in controls} == {"not flagged"}
    assert len(list(tables.glob("series_*bounds.csv"))) == 5


def test_the_same_plan_gives_the_same_record(runs: tuple[Path, Path]) -> None:
    first, second = (
        [item.model_copy(update={"seconds": {}}).model_dump_json() for item in load_record(run).cells]
        for run in runs
    )
    assert first == second


@pytest.mark.slow
def test_the_plan_of_fmf_as_published_ends_with_its_claim_refuted(tmp_path: Path) -> None:
    """Each coordinate has an epsilon, which the claim counts once: the ledger adds all up, an attack sees it."""
    code: Any = cli.main(
        ["run", "configs/fmf_published.yaml", "-o", str(tmp_path / "run"), "--quiet"], standalone_mode=False
    )
    assert code == 0
    record = load_record(tmp_path / "run")
    for claimed in (1.0, 10.0):
        published = cell(record, "published", claimed).privacy
        assert published.claimed == claimed
        assert published.accounted is not None
        assert published.accounted > 3072 * 0.05 * claimed
        assert published.observed is not None
        assert published.observed > 2 * claimed
        assert published.verdict == "unsound"
        composed = cell(record, "composed", claimed).privacy
        assert composed.accounted == pytest.approx(claimed, rel=0.01)
        assert composed.observed is not None
        assert composed.observed < claimed
        assert composed.verdict == "sound"
