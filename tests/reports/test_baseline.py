"""A run held against an earlier one: what became worse, in every format, and what is no way around it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from planted import HARMFUL

from fedassay.cli import cli
from fedassay.records.basis import Basis
from fedassay.records.record import Coverage, Finding, RunRecord
from fedassay.reports.gate.baseline import differences
from fedassay.reports.gate.judging import judged
from fedassay.reports.gate.junit import junit
from fedassay.reports.gate.policy import Policy
from fedassay.reports.gate.sarif import sarif

KIND = "(one record added or removed)"


def test_what_became_worse_since_a_baseline(build_cell: Any) -> None:
    def run(epsilon: float, *findings: Finding, **given: Any) -> RunRecord:
        cell = build_cell(None, "fedcgs", "fedcgs", epsilon, 0).model_copy(update={"findings": findings, **given})
        return RunRecord(plan={}, environment={"fedassay": "1"}, cells=(cell,))

    def said(new: RunRecord, old: RunRecord) -> list[tuple[bool, str]]:
        return [(each.worse, each.words) for each in differences(new, old)]

    assert said(run(2.0), run(2.0)) == []
    assert said(run(5.0), run(2.0))[0] == (
        True,
        "fedcgs: ε went from 2 (one record added or removed) to 5 (one record added or removed).",
    )
    assert said(run(2.0), run(5.0))[0] == (
        False,
        "fedcgs: ε went from 5 (one record added or removed) to 2 (one record added or removed).",
    )
    assert said(run(2.0, HARMFUL["exact"]), run(2.0, HARMFUL["counts"]))[0][0]
    assert said(run(2.0, HARMFUL["counts"]), run(2.0, HARMFUL["exact"])) == []
    lost, held = ((Coverage(attack="x_y", status=status),) for status in ("inconclusive", "conclusive"))
    assert said(run(2.0, coverage=lost), run(2.0, coverage=held)) == [
        (True, f"fedcgs at ε = 2 {KIND}: x_y was conclusive before, and now it was inconclusive.")
    ]
    gone = said(run(2.0, coverage=()), run(2.0, coverage=held))
    assert [worse for worse, _ in gone] == [True]
    assert gone[0][1].endswith("x_y was conclusive before, and now it does not apply any more.")
    newer = run(2.0).model_copy(update={"environment": {"fedassay": "2"}})
    assert said(newer, run(2.0)) == [(False, "fedassay 1 made the earlier run, 2 this one.")]


def test_check_with_a_baseline_is_1_where_something_became_worse(build_cell: Any, tmp_path: Path) -> None:
    for name, epsilon in (("old", 1.0), ("new", 2.0)):
        cell = build_cell(None, "fedcgs", "fedcgs", epsilon, 0)
        RunRecord(plan={"name": "n"}, environment={}, cells=(cell,)).save(tmp_path / name)
    (tmp_path / "p.yaml").write_text("name: p\nclaims: not_disproved\nmaximum: {accounted: 3}\n", encoding="utf-8")

    def check(new: str, old: str) -> tuple[int, str]:
        command = ["check", str(tmp_path / new), "--policy", str(tmp_path / "p.yaml")]
        done = CliRunner().invoke(cli, [*command, "--baseline", str(tmp_path / old)], standalone_mode=False)
        return done.return_value, done.output

    code, said = check("new", "old")
    assert (
        "✖ worse: fedcgs: ε went from 1 (one record added or removed) to 2 (one record added or removed)." in said
    )
    assert code == 1
    code, said = check("old", "new")
    assert (
        "– changed: fedcgs: ε went from 2 (one record added or removed) to 1 (one record added or removed)."
        in said
    )
    assert code != 1


def test_a_claim_that_is_not_tested_any_more_is_worse(build_cell: Any) -> None:
    def run(verdict: str, observed: float | None) -> RunRecord:
        cell = build_cell(None, "fedcgs", "fedcgs", 2.0, 0)
        privacy = cell.privacy.model_copy(update={"verdict": verdict, "claimed": 2.0, "observed": observed})
        return RunRecord(plan={}, environment={}, cells=(cell.model_copy(update={"privacy": privacy}),))

    def said(new: RunRecord, old: RunRecord) -> list[tuple[bool, str]]:
        return [(each.worse, each.words.partition("): ")[2]) for each in differences(new, old)]

    assert said(run("sound", 1.5), run("sound", 1.4)) == []
    assert said(run("not_run", None), run("sound", 1.5)) == [
        (True, "its claim was tested before, and now it was not.")
    ]
    assert said(run("sound", None), run("sound", 1.5)) == [
        (True, "an attack on its claim was measured before, and now none was.")
    ]
    assert said(run("sound", 1.5), run("not_run", None)) == []


def test_another_label_is_no_way_around_a_baseline(build_cell: Any) -> None:
    def run(*entries: tuple[str, str, float], **given: Any) -> RunRecord:
        cells = (
            build_cell(None, method, method, epsilon, 0).model_copy(update={"label": label, **given})
            for label, method, epsilon in entries
        )
        return RunRecord(plan={}, environment={}, cells=tuple(cells))

    old = run(("fedcgs", "fedcgs", 2.0), ("mixtures", "fedpft", 2.0))
    found = differences(run(("ours", "fedcgs", 5.0), ("mixtures", "fedpft", 2.0)), old)
    assert [(each.worse, each.words) for each in found[:2]] == [
        (True, "ours (fedcgs): ε went from 2 (one record added or removed) to 5 (one record added or removed)."),
        (False, "ours was called fedcgs in the earlier run."),
    ]
    # Settings that changed with the label: the only other entry of the method is the one that is meant.
    found = differences(run(("ours", "fedcgs", 5.0), params={"ridge": 3.0}), run(("fedcgs", "fedcgs", 2.0)))
    assert found[0].worse
    # Of one method only: the rest of the earlier run is not looked at.
    assert differences(run(("fedcgs", "fedcgs", 2.0)), old, "fedcgs") == []
    gone = differences(run(("fedcgs", "fedcgs", 2.0)), old, "mixtures")
    assert [each.about for each in gone] == ["nothing", "release"]


def test_the_baseline_of_another_plan_or_of_other_data_is_said(build_cell: Any) -> None:
    def run(method: str, data: dict[str, str]) -> RunRecord:
        cell = build_cell(None, method, method, 2.0, 0).model_copy(
            update={"basis": Basis(plan="0" * 64, cells="0" * 64, entry="0" * 64, data=data)}
        )
        return RunRecord(plan={}, environment={}, cells=(cell,))

    one, two = {"private": "1" * 64}, {"private": "2" * 64}
    assert differences(run("fedcgs", one), run("fedcgs", one)) == []
    assert [each.about for each in differences(run("fedcgs", one), run("fedcgs", two))] == ["data"]
    found = differences(run("fedcgs", one), run("fedpft", one))
    assert (found[0].about, found[0].line[:11]) == ("nothing", "? undecided")


def test_every_format_of_check_says_what_became_worse(build_cell: Any, tmp_path: Path) -> None:
    old = RunRecord(plan={"name": "n"}, environment={}, cells=(build_cell(None, "fedcgs", "fedcgs", 1.0, 0),))
    new, other = (
        RunRecord(plan={"name": "n"}, environment={}, cells=(build_cell(None, method, method, 2.0, 0),))
        for method in ("fedcgs", "fedpft")
    )
    policy = Policy(name="p", claims="any", maximum={"claimed": 30.0}, coverage="any")
    kept = judged(new, policy)
    outcome = replace(kept, changed=tuple(differences(new, old)))
    assert outcome.exit_code == 1
    assert next(outcome.first_lines()).startswith("✖ worse: fedcgs: ε went from 1")
    assert 'failures="1"' in junit(new, outcome)
    levels = {
        result["level"]
        for result in json.loads(sarif(new, outcome, policy))["runs"][0]["results"]
        if result["ruleId"] == "baseline"
    }
    assert "error" in levels
    assert outcome.as_dict()["baseline"][0]["worse"]
    # Nothing to compare is no pass either.
    assert replace(kept, judgements=(), changed=tuple(differences(new, other))).exit_code == 2
    assert replace(kept, judgements=(), changed=()).exit_code == 0


def test_compare_says_on_the_console_what_changed(build_cell: Any, tmp_path: Path) -> None:
    for name, epsilon in (("old", 1.0), ("new", 2.0)):
        cell = build_cell(None, "fedcgs", "fedcgs", epsilon, 0)
        RunRecord(plan={"name": "n"}, environment={}, cells=(cell,)).save(tmp_path / name)
    page = tmp_path / "page.html"
    command = ["compare", str(tmp_path / "old"), str(tmp_path / "new"), "-o", str(page)]
    said = CliRunner().invoke(cli, command, standalone_mode=False).output.splitlines()
    assert said[0] == f"✖ worse: fedcgs: ε went from 1 {KIND} to 2 {KIND}."
    assert said[-1] == str(page)
    alike = CliRunner().invoke(cli, [*command[:2], str(tmp_path / "old"), "-o", str(page)], standalone_mode=False)
    assert alike.output.splitlines()[0] == "Nothing became worse than in the earlier run."
