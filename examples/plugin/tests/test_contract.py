"""What fedassay asks of a package with components, from outside: run it where the package is installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import fedassay
from fedassay.cli import cli

PLAN = Path(__file__).resolve().parents[1] / "plan.yaml"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedassay.Run:
    """The package's plan, run once."""
    return fedassay.run(PLAN, tmp_path_factory.mktemp("toy") / "out", progress=False)


@pytest.mark.parametrize(
    ("what", "name"), [("methods", "toy_sums"), ("attacks", "toy_alone"), ("audits", "toy_small_classes")]
)
def test_it_is_listed_and_every_key_is_explained(what: str, name: str) -> None:
    done = CliRunner().invoke(cli, ["list", what, name, "--json"])
    assert done.exit_code == 0, done.output
    assert all(key["about"] for key in json.loads(done.stdout))


def test_nothing_fails_and_every_audit_concludes(run: fedassay.Run) -> None:
    assert not run.errors
    found = {finding.audit: finding.verdict for finding in run.record.cells[0].findings}
    assert found == {"message": "leak", "toy_small_classes": "leak", "dp_claim": "not_run"}


def test_its_claim_is_sound(run: fedassay.Run) -> None:
    claim = next(finding for finding in run.record.cells[1].findings if finding.audit == "dp_claim")
    assert claim.verdict == "sound", claim.reason


def test_the_method_is_of_use(run: fedassay.Run) -> None:
    assert run.record.cells[0].utility["accuracy"] > 0.5


def test_a_field_without_a_mechanism_is_exact(run: fedassay.Run) -> None:
    rows = run.record.cells[0].ledger
    assert {row.field for row in rows} == {"counts", "sums"}
    assert all(row.exact and row.mechanism == "exact" for row in rows)


def test_the_same_seed_gives_the_same_record(run: fedassay.Run, tmp_path: Path) -> None:
    again = fedassay.run(PLAN, tmp_path / "again", progress=False).record.cells[0]
    assert again.findings == run.record.cells[0].findings
    assert again.utility == run.record.cells[0].utility


def test_controls_decide_whether_the_audit_may_speak(tmp_path: Path) -> None:
    """An attack that takes classes of two records for classes of one flags its negative control."""
    other = ["attacks.0.toy_alone.most=2", "privacy.epsilon=.inf"]
    run = fedassay.run(PLAN, tmp_path / "out", overrides=other, progress=False)
    finding = next(item for item in run.record.cells[0].findings if item.audit == "toy_small_classes")
    assert finding.controls.negative is not None
    assert finding.controls.negative.flagged
    assert finding.verdict == "inconclusive"
