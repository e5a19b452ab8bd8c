"""Nothing concluded is never a pass, and what was not conclusive is said wherever a release is judged."""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedassay.console import print_summary
from fedassay.records.record import Coverage, Finding, Limit, RunRecord
from fedassay.reports.document.content import contents
from fedassay.reports.document.markdown import markdown
from fedassay.reports.gate.check import check_record
from fedassay.reports.gate.policy import Policy, Scope, load_policy
from fedassay.reports.words.summary import strip
from fedassay.reports.words.untested import not_fully_tested

POLICIES = sorted(Path(str(files("fedassay.configs") / "policies")).glob("*.yaml"))
AUDITS = ("dp_claim", "ledger", "reconstruction", "membership", "message", "memorization", "inversion")
ATTACKS = ("membership", "message_algebra", "feature_diffusion", "gram_factorization")


def run_of(*cells: Any) -> RunRecord:
    return RunRecord(plan={"name": "p"}, environment={}, cells=cells)


def row(attack: str, status: Any) -> Coverage:
    return Coverage(attack=attack, status=status, reason="" if status == "conclusive" else "why")


def found(audit: str, verdict: Any, limit: float | None = None) -> Finding:
    held = None if limit is None else Limit(metric="share", value=limit, n=50)
    return Finding(audit=audit, verdict=verdict, reason="r", limit=held)


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
@pytest.mark.parametrize("seed", range(40))
def test_no_shipped_policy_passes_a_cell_without_a_conclusive_finding(
    build_cell: Any, path: Path, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    silent = ("inconclusive", "not_run")
    findings = [found(audit, str(rng.choice(silent))) for audit in AUDITS if rng.random() < 0.5]
    findings += [found("ledger", "sound")] if rng.random() < 0.5 else []
    rows = tuple(
        row(name, str(rng.choice(("conclusive", "inconclusive", "not_run"))))
        for name in ATTACKS
        if rng.random() < 0.5
    )
    epsilon = float(rng.choice([0.5, 1.0, math.inf]))
    bare = build_cell(None, "fedpft", "fedpft", epsilon, 0, verdict=str(rng.choice(silent)))
    cell = bare.model_copy(update={"findings": tuple(findings), "coverage": rows})
    passing = build_cell(None, "fedcgs", "fedcgs", 1.0, 0, findings=(found("message", "no_leak_found"),))
    policy = load_policy(path)
    assert check_record(run_of(cell), policy).exit_code != 0
    everywhere = policy.model_copy(update={"cells": Scope()})
    assert check_record(run_of(passing, cell), everywhere).exit_code != 0


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ((row("membership", "conclusive"),), 0),
        ((row("membership", "conclusive"), row("gram_factorization", "not_run")), 2),
        ((row("membership", "inconclusive"),), 2),
        ((), 2),
    ],
)
def test_complete_coverage_is_every_attack_that_applies(build_cell: Any, rows: Any, code: int) -> None:
    bare = build_cell(None, "fedpft", "fedpft", 1.0, 0, findings=(found("membership", "no_leak_found"),))
    cell = bare.model_copy(update={"coverage": rows})
    assert check_record(run_of(cell), Policy(name="p", coverage="complete")).exit_code == code


@pytest.mark.parametrize(
    ("finding", "code"),
    [
        (found("membership", "no_leak_found", 0.1), 0),
        (found("membership", "no_leak_found", 0.3), 2),
        (found("membership", "no_leak_found"), 2),
        (found("membership", "inconclusive"), 2),
        (found("membership", "leak"), 0),
        (found("message", "no_leak_found", 0.1), 2),
    ],
)
def test_above_the_limit_of_detection_a_policy_cannot_decide(build_cell: Any, finding: Finding, code: int) -> None:
    cell = build_cell(None, "fedpft", "fedpft", 1.0, 0, findings=(finding,), verdict="unsupported")
    outcome = check_record(run_of(cell), Policy(name="p", limit_of_detection={"membership": 0.2}))
    assert outcome.exit_code == code


def test_a_shift_of_all_records_bounds_no_share_of_them(build_cell: Any) -> None:
    """However small the shift: a policy speaks of leaks of a few."""
    limit = Limit(metric="shift", value=0.01, n=100, shift=0.01, shift_metric="SSIM", words="of all records")
    finding = found("reconstruction", "no_leak_found").model_copy(update={"limit": limit})
    cell = build_cell(None, "fedpft", "fedpft", 1.0, 0, findings=(finding,), verdict="unsupported")
    outcome = check_record(run_of(cell), Policy(name="p", limit_of_detection={"reconstruction": 0.2}))
    assert outcome.exit_code == 2


def test_an_audit_that_does_not_apply_is_not_demanded(build_cell: Any) -> None:
    bare = build_cell(None, "fedpft", "fedpft", 1.0, 0, findings=(found("membership", "no_leak_found"),))
    cell = bare.model_copy(update={"coverage": (row("membership", "conclusive"),)})
    policy = Policy(name="p", must_conclude=("reconstruction",), maximum={"ssim_gain": 0.1})
    assert check_record(run_of(cell), policy).exit_code == 0
    cell = bare.model_copy(update={"coverage": (*cell.coverage, row("feature_diffusion", "not_run"))})
    assert check_record(run_of(cell), policy).exit_code == 2


@pytest.mark.parametrize("wrong", [{"nothing": 0.1}, {"membership": 0.0}, {"membership": math.inf}])
def test_limits_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"allowed|finite number"):
        Policy(name="p", limit_of_detection=wrong)


def test_no_bare_tick_where_an_attack_that_applies_was_not_conclusive(
    build_cell: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    finding = found("message", "no_leak_found", 0.0625)
    bare = build_cell(None, "fedpft", "fedpft", math.inf, 0, findings=(finding,))
    rows = (row("membership", "not_run"), row("gram_factorization", "inconclusive"))
    record = run_of(bare.model_copy(update={"coverage": (*rows, row("message_algebra", "conclusive"))}))
    words = "not fully tested: gram_factorization inconclusive; membership not run"
    assert not_fully_tested(record.cells) == words
    (line,) = strip(record)
    assert words in line.text
    assert line.verdict == "inconclusive"
    assert words.replace("_", "\\_") in markdown(record)
    assert "inconclusive" in contents(record).csv_files()["coverage.csv"]
    assert any("0.0625" in table for table in contents(record).csv_files().values())
    print_summary(record, tmp_path)
    said = capsys.readouterr().out
    assert f"N{words[1:]}"[4:] in " ".join(said.split())
    assert "6.25 % of the records" in said
    assert "the policy judges no release without noise" in " ".join(said.split())
    whole = run_of(bare.model_copy(update={"coverage": (row("message_algebra", "conclusive"),)}))
    assert strip(whole)[0].verdict == "no_leak_found"
    assert not_fully_tested(whole.cells) == ""


@pytest.mark.parametrize(("bounds", "code"), [({}, 0), ({"epsilon": 4.0}, 0), ({"epsilon": 3.0}, 2)])
def test_a_limit_that_is_an_epsilon_is_not_held_to_a_share(
    build_cell: Any, bounds: dict[str, float], code: int
) -> None:
    """An informed adversary's limit of epsilon 3.35 was above a bound of 0.25 of the members, whatever it was."""
    limit = Limit(metric="epsilon", value=3.35, n=4000, words="epsilon 3.35")
    finding = found("membership", "no_leak_found").model_copy(update={"limit": limit})
    cell = build_cell(None, "fedpft", "fedpft", 1.0, 0, findings=(finding,), verdict="unsupported")
    outcome = check_record(run_of(cell), Policy(name="p", limit_of_detection={"membership": 0.25, **bounds}))
    assert outcome.exit_code == code
