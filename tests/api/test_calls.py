"""The functions of `import fedassay`: the work and the messages of the command line."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest
from click.testing import CliRunner

import fedassay
from fedassay import DataError, FedassayError, Plan, PlanError, Policy
from fedassay.cli import cli
from fedassay.support.progress import Lines, Progress

ROOT = Path(__file__).resolve().parents[2]
PLAN: dict[str, Any] = {
    "name": "small",
    "seeds": [3],
    "data": {"name": "digits", "limit": 300, "split": {"private": 0.5, "attacker": 0.2, "test": 0.3}},
    "clients": {"count": 2, "partition": "iid"},
    "backbone": {"name": "pixels"},
    "methods": ["fedcgs"],
    "attacks": ["label_distribution"],
    "audits": ["message"],
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> fedassay.Run:
    return fedassay.run(PLAN, tmp_path_factory.mktemp("api") / "out", progress=False)


def test_every_stable_name_is_there_and_documented() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for name in fedassay.__all__:
        assert getattr(fedassay, name) is not None
        assert name in dir(fedassay)
        if not name.startswith("_"):
            assert f"`{name}`" in page or f"fedassay.{name}" in page, f"{name} is not on the page"
            assert name == "record" or getattr(fedassay, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        fedassay.nonsense  # noqa: B018


def test_importing_it_imports_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import fedassay; dir(fedassay)\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names\n"
        "assert new == {'fedassay'}, new\n"
        "assert not any(name.startswith('fedassay.') for name in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_mapping_is_run_and_left_as_it_was(ran: fedassay.Run) -> None:
    assert PLAN["methods"] == ["fedcgs"]
    assert not ran.errors
    assert (ran.folder / "report.html").is_file()
    assert len(ran.record.cells) == 1
    assert fedassay.load(ran.folder).record == ran.record
    assert fedassay.load(ran.folder / "record.json").folder == ran.folder


@pytest.mark.long
def test_every_form_of_a_plan_gives_the_same_record(
    ran: fedassay.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import yaml

    monkeypatch.chdir(tmp_path)
    Path("plan.yaml").write_text(yaml.safe_dump({**PLAN, "name": "other"}))
    typed = fedassay.run(Plan.model_validate(PLAN), tmp_path / "typed", progress=False)
    file = fedassay.run("plan.yaml", tmp_path / "file", overrides=["name=small"], progress=False)
    for other in (typed, file):
        assert other.record.plan == ran.record.plan
        assert other.record.cells[0].findings == ran.record.cells[0].findings


BAD = {
    "unknown key": ({**PLAN, "methods": [{"fedcgs": {"ridgee": 1}}]}, []),
    "unknown method": ({**PLAN, "methods": ["fedcsg"]}, []),
    "wrong value": (PLAN, ["clients.count=0"]),
    "wrong override": (PLAN, ["clients"]),
    "missing images": ({**PLAN, "data": {"name": "npz", "path": "none.npz"}}, []),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_say_what_the_command_line_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    plan, overrides = BAD[name]
    monkeypatch.chdir(tmp_path)
    Path("plan.yaml").write_text(yaml.safe_dump(plan))
    options = [word for item in overrides for word in ("--set", item)]
    told = CliRunner().invoke(cli, ["run", "plan.yaml", "-o", "out", *options])
    assert isinstance(told.exception, FedassayError)
    with pytest.raises(type(told.exception)) as caught:
        fedassay.run("plan.yaml", "out", overrides=overrides)
    assert str(caught.value) == str(told.exception)
    with pytest.raises(type(told.exception)) as caught:
        fedassay.run(plan, "out", overrides=overrides)
    assert str(caught.value) == str(told.exception).replace("plan.yaml:", "a plan:")
    assert not Path("out").exists()


def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises(PlanError, match="allowed: a file, a mapping, or a Plan"):
        fedassay.run(3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="fedassay init"):
        fedassay.run("no-such-plan.yaml")
    with pytest.raises(DataError, match=r"no record\.json"):
        fedassay.load("no-such-run")
    with pytest.raises(DataError, match="no such file or folder"):
        fedassay.audit("no-such-transcript")
    with pytest.raises(PlanError, match="two or more"):
        fedassay.compare("one")


def test_a_folder_in_use_is_refused_unless_forced(ran: fedassay.Run) -> None:
    with pytest.raises(PlanError, match="force"):
        fedassay.run(PLAN, ran.folder, progress=False)
    again = fedassay.run(PLAN, ran.folder, resume=True, progress=False)
    assert again.record.cells == ran.record.cells


_TWICE = """
import os, subprocess, sys
import fedassay
plan = {plan!r}
for _ in range(2):
    run = fedassay.run(plan, sys.argv[1], force=True, progress=False)
    print(run.record.cells[0].privacy.verdict)
listed = subprocess.run(["ps", "-A", "-o", "ppid=,args="], capture_output=True, text=True).stdout
for line in listed.splitlines():
    parent, _, command = line.strip().partition(" ")
    if parent == str(os.getpid()) and "from multi" + "processing" not in command and command[:5] != "ps -A":
        print("left:", command[:60])
"""


@pytest.mark.long
def test_no_process_outlives_a_run_and_its_folder_can_be_used_again(tmp_path: Path) -> None:
    """The process that a claim's questions are forked from held the folder's lock, and a copy of all data."""
    private = {**PLAN, "privacy": {"epsilon": 2}, "audits": ["dp_claim"], "attacks": []}
    done = forked.python("-c", _TWICE.format(plan=private), tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == ["sound", "sound"]


def test_check_takes_every_form_of_a_policy(ran: fedassay.Run, tmp_path: Path) -> None:
    import yaml

    rules = {"name": "mine", "exact_fields": "forbidden"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(rules))
    outcomes = [
        fedassay.check(run, policy)
        for run in (ran, ran.folder, ran.folder / "record.json")
        for policy in (rules, tmp_path / "mine.yaml", Policy.model_validate(rules))
    ]
    assert {outcome.exit_code for outcome in outcomes} == {1}
    assert len({outcome.judgements for outcome in outcomes}) == 1
    # What this process made needs nobody who vouches for it.
    unsigned = [
        outcome.text().endswith("whoever can edit this folder could have written it.") for outcome in outcomes
    ]
    assert unsigned == [False] * 3 + [True] * 6
    assert ran.recommend("strict").policy == "strict"
    # What a console shows of it is an answer, and not the whole record.
    found = ran.answer(policy="strict")
    assert found.headline in repr(found)
    assert len(repr(ran.recommend("strict"))) < 500
    assert len(repr(found)) < 1500
    with pytest.raises(PlanError, match=r"a policy: exact_field: unknown key; allowed: .*exact_fields"):
        ran.check({"name": "x", "exact_field": "forbidden"})
    with pytest.raises(PlanError, match="no such file"):
        ran.check("stricct")


def test_a_run_that_was_altered_is_refused(tmp_path: Path) -> None:
    run = fedassay.run(PLAN, tmp_path / "out", progress=False)
    record = run.folder / "record.json"
    record.write_text(record.read_text().replace('"small"', '"tall"'))
    with pytest.raises(DataError, match="fedassay verify"):
        fedassay.check(run.folder, "research")


def test_recorded_messages_are_audited(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with fedassay.record(
        tmp_path / "captured", classes=10, kinds={"sums": "class_sums", "moment": "second_moment"}
    ) as recorder:
        for client in range(2):
            features = np.maximum(rng.normal(size=(8, 32)), 0)
            member = np.eye(10)[rng.integers(0, 10, 8)]
            recorder.sent(client, {"sums": member.T @ features, "moment": features.T @ features})
    run = fedassay.audit(tmp_path / "captured", tmp_path / "audited", progress=False)
    assert not run.errors
    leaks = {finding.attack for cell in run.record.cells for finding in cell.findings if finding.verdict == "leak"}
    assert "message_algebra" in leaks
    assert run.recommend().policy == "messages"


def test_kinds_that_nobody_declared_are_inferred_unless_declarations_are_trusted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with fedassay.record(tmp_path / "captured", classes=10, undeclared="other") as recorder:
        for client in range(2):
            features = np.maximum(rng.normal(size=(8, 32)), 0)
            recorder.sent(client, {"m": features.T @ features})
    looked, trusted = (
        fedassay.audit(tmp_path / "captured", tmp_path / str(trust), trust_declared=trust, progress=False)
        for trust in (False, True)
    )
    kinds = [{row.kind for row in run.record.cells[0].ledger} for run in (looked, trusted)]
    assert kinds == [{"second_moment"}, {"other"}]


def test_a_plan_of_an_adversary_may_be_a_mapping(tmp_path: Path) -> None:
    recorder = fedassay.record(tmp_path / "captured", classes=7)
    recorder.sent(0, np.ones((7, 64)))
    with pytest.raises(PlanError, match=r"data\.name: digits has 10 classes, the transcript declares 7"):
        fedassay.audit(
            recorder.save(),
            tmp_path / "out",
            plan={"name": "adversary", "data": {"name": "digits"}, "backbone": {"name": "pixels"}},
            progress=False,
        )


def test_progress_in_a_log_is_a_line_now_and_then() -> None:
    now, lines = [0.0], []
    progress = Progress(Lines(lines.append, every=60, clock=lambda: now[0]))
    with progress.step("cells") as outer:
        outer(0, 4)
        for done in range(4):
            with progress.step("training") as inner:
                for step in range(100):
                    now[0] += 1
                    inner(step, 100)
            outer(done + 1, 4)
    assert len(lines) == 400 // 60
    assert lines[0] == "cells 0 of 4; training 59 of 100, 42 s left"
    assert lines[-1].startswith("cells 3 of 4, 2:0")


def test_a_run_into_a_log_says_how_far_it_is(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from fedassay.support import progress\n"
        "ticks = iter(range(0, 10**6, 61))\n"
        "progress.time.monotonic = lambda: float(next(ticks))\n"
        "with progress.console(False) as shown, shown.step('training') as advance:\n"
        "    advance(1, 4)\n"
        "with progress.console(True) as shown, shown.step('quiet') as advance:\n"
        "    advance(1, 4)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("fedassay: training 1 of 4")
    assert "quiet" not in done.stderr
    assert done.stdout == ""


def test_the_type_checker_and_the_program_know_the_same_names() -> None:
    """What is imported for type checkers alone is what `__getattr__` finds, from the same place."""
    tree = ast.parse((ROOT / "src" / "fedassay" / "__init__.py").read_text())
    typed = {
        alias.name: str(node.module).removeprefix("fedassay.")
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == fedassay._PLACES
    assert {*typed, "__version__"} == set(fedassay.__all__)


def test_nothing_is_written_but_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = fedassay.run(PLAN, progress=False)
    assert os.listdir(tmp_path) == ["runs"]
    assert run.folder.parent == Path("runs")
