"""What other repositories use of this one: the recipe, the action, the hooks and the container file.

The scripts are run as they stand, in a folder that is somebody else's, with `fedassay` on the path and with a
`pip` that installs nothing; what only a server or a daemon can do is checked by reading.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forked
import pytest
import yaml

from fedassay import __version__
from fedassay.cli import cli
from fedassay.plan.resolve import load_scenario

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "howto" / "gate-ci.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))

_PLAN = """\
name: theirs
data: {name: digits, limit: 300, split: {private: 0.5, test: 0.3, control: 0.2}}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
privacy: {epsilon: 2, delta: 1.0e-5}
methods: [{raw_features: {epsilon: .inf}}, {fedcgs: {}}]
attacks: [message_algebra]
audits: [{dp_claim: {}}, message]
"""
_CAPTURE = re.search(r'^```python title="capture.py"\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE)[1]  # type: ignore[index]
_POLICIES = {
    "kept": "name: kept\ncells: {epsilon: finite}\nmaximum: {accounted: 3.0}\n",
    "broken": "name: broken\ncells: {epsilon: finite}\nmaximum: {accounted: 1.0}\n",
    "undecided": "name: undecided\ncells: {epsilon: finite}\nmust_conclude: [reconstruction]\n",
}
_CODES = {"kept": 0, "broken": 1, "undecided": 2}


def _block(title: str) -> str:
    found = re.search(rf'^```yaml title="{re.escape(title)}"\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


RECIPE = yaml.safe_load(_block("privacy.yml"))


@dataclass(frozen=True)
class Repository:
    """Somebody else's repository, and the programs of a runner."""

    folder: Path
    bin: Path

    def bash(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a step as a runner does: in the repository, stopping at the first error."""
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.folder,
            env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    folder, programs = tmp_path / "theirs", tmp_path / "temp" / "fedassay" / "bin"
    for made in (folder, programs):
        made.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "theirs"\nversion = "1"\ndependencies = ["nowhere"]\n'
    )
    (folder / "plan.yaml").write_text(_PLAN)
    for name, text in _POLICIES.items():
        (folder / f"{name}.yaml").write_text(text)
    (tmp_path / "forked").mkdir()
    forked.programs(tmp_path / "forked")
    log = tmp_path / "installed"
    note = f'{{ printf "%q " "$@"; echo; }} >> "{log}"'
    scripts = {
        "fedassay": f'exec "{tmp_path}/forked/fedassay" "$@"',
        # `python -m venv` and `python -m pip` are written down; everything else is Python.
        "python": f'case "$2" in venv|pip) {note};; *) exec "{tmp_path}/forked/python" "$@";; esac',
    }
    for name, line in scripts.items():
        (programs / name).write_text(f"#!/bin/bash\n{line}\n")
        (programs / name).chmod(0o755)
    return Repository(folder, programs)


def _installed(repository: Repository) -> list[list[str]]:
    return [shlex.split(line) for line in (repository.folder.parent / "installed").read_text().splitlines()]


def _run_action(repository: Repository, **inputs: str) -> tuple[int, dict[str, str], str]:
    """Run the action's own steps; gives the exit code, the outputs and everything printed."""
    given = {name: value.get("default", "") for name, value in ACTION["inputs"].items()} | inputs
    output, summary = repository.folder.parent / "output", repository.folder.parent / "summary"
    environment = {
        "RUNNER_TEMP": str(repository.folder.parent / "temp"),
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    said = ""
    for step in ACTION["runs"]["steps"]:
        if "run" not in step:
            continue
        values = {
            name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], value)
            for name, value in step["env"].items()
        }
        done = repository.bash(step["run"], **environment, **values)
        said += done.stdout + done.stderr
        if done.returncode:
            break
    written = output.read_text().split() if output.exists() else []
    return done.returncode, dict(line.split("=", 1) for line in written), said


@pytest.mark.long
@pytest.mark.parametrize("policy", _CODES)
def test_the_action_ends_as_check_does(policy: str, repository: Repository) -> None:
    code, outputs, said = _run_action(repository, plan="plan.yaml", policy=f"{policy}.yaml")
    assert code == _CODES[policy], said
    assert outputs == {"code": str(code)}
    for name in ("assay/record.json", "assay/report.html", "assay.sarif", "assay.xml", "assay.zip"):
        assert (repository.folder / name).is_file()
    assert "fedcgs" in (repository.folder.parent / "summary").read_text()


@pytest.mark.long
def test_the_action_verifies_a_finished_run(repository: Repository) -> None:
    assert _run_action(repository, plan="plan.yaml", policy="kept.yaml")[0] == 0
    assert _run_action(repository, policy="kept.yaml")[0] == 0
    code, _, said = _run_action(repository, policy="kept.yaml", key="plan.yaml")
    assert (code, "the run is not signed" in said) == (1, True)
    page = repository.folder / "assay" / "report.html"
    page.write_text(page.read_text().replace("<h1>", "<h1>All is well: "))
    code, _, said = _run_action(repository, policy="kept.yaml")
    assert (code, "report.html does not follow from the record" in said) == (1, True)


@pytest.mark.long
def test_the_action_fails_where_something_became_worse(repository: Repository) -> None:
    assert _run_action(repository, plan="plan.yaml", policy="kept.yaml", output="accepted")[0] == 0
    weaker = _PLAN.replace("epsilon: 2,", "epsilon: 2.9,")
    (repository.folder / "plan.yaml").write_text(weaker)
    code, outputs, said = _run_action(repository, plan="plan.yaml", policy="kept.yaml", baseline="accepted")
    assert (code, outputs["code"]) == (1, "1"), said
    assert "✖ worse: fedcgs: ε went from 2 (one record added or removed) to 2.9" in said


@pytest.mark.long
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"plan": "nowhere.yaml", "policy": "kept.yaml"}, "nowhere.yaml: no such file"),
        ({"transcript": "nowhere", "policy": "kept.yaml"}, "nowhere: no such file or folder"),
        ({"plan": "plan.yaml", "policy": "none.yaml"}, "none.yaml: no such file"),
        ({"plan": "$(touch injected); `touch injected`", "policy": "kept.yaml"}, "no such file"),
    ],
)
def test_wrong_input_of_the_action_is_2_and_says_what_is_wrong(
    inputs: dict[str, str], message: str, repository: Repository
) -> None:
    code, outputs, said = _run_action(repository, **inputs)
    assert (code, outputs.get("code")) == (2, "2")
    assert message in said
    assert not (repository.folder / "injected").exists()


def test_the_action_installs_itself_and_nothing_of_the_caller(repository: Repository) -> None:
    _run_action(repository, plan="nowhere.yaml", policy="kept.yaml")
    _run_action(repository, plan="nowhere.yaml", policy="kept.yaml", **{"extra-index-url": "an index"})
    venv, plain, own, _, indexed, _ = _installed(repository)
    assert venv[:2] == ["-m", "venv"]
    for command, locked in ((plain, "locked-cuda.txt"), (indexed, "locked.txt")):
        assert "--require-hashes" in command
        assert command[-2:] == ["-r", str(ROOT / locked)]
    # What is installed without a hash is the action's own checkout, built with nothing but what has one.
    assert own[-3:] == ["--no-deps", "--no-build-isolation", str(ROOT)]
    assert "--extra-index-url" not in plain
    assert indexed[indexed.index("--extra-index-url") + 1] == "an index"


def test_the_action_uses_nothing_that_can_be_changed_under_its_name() -> None:
    for step in ACTION["runs"]["steps"]:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step.get("uses", f"own/step@{'0' * 40}"))


def test_the_action_is_a_composite_whose_scripts_take_no_expressions() -> None:
    assert ACTION["runs"]["using"] == "composite"
    for step in ACTION["runs"]["steps"]:
        if "run" in step:
            assert step["shell"] == "bash"
            assert "${{" not in step["run"]
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text()))
    assert used == set(ACTION["inputs"])


def _recipe_steps() -> list[dict[str, Any]]:
    (job,) = RECIPE["jobs"].values()
    steps: list[dict[str, Any]] = job["steps"]
    return steps


def _is_due(said: str | None, folder: Path, outcomes: dict[str, str], failed: bool) -> bool:
    """Whether a runner would come to a step, by what its condition says of files, steps and failures."""
    if said is None:
        return not failed
    words = re.sub(r"hashFiles\('([^']+)'\) != ''", lambda m: str(any(folder.glob(m[1]))), said)
    words = re.sub(r"steps\.(\w+)\.outcome == '(\w+)'", lambda m: str(outcomes.get(m[1]) == m[2]), words)
    words = words.replace("!cancelled()", "True")
    parts = words.split(" && ")
    assert set(parts) <= {"True", "False"}, said
    return "False" not in parts


@pytest.mark.long
@pytest.mark.parametrize("policy", ["kept", "broken"])
def test_the_recipe_runs_in_somebody_elses_repository(policy: str, repository: Repository) -> None:
    (job,) = RECIPE["jobs"].values()
    summary = repository.folder.parent / "summary"
    environment = job["env"] | {"GITHUB_STEP_SUMMARY": str(summary), "POLICY": f"{policy}.yaml"}
    (repository.folder / "capture.py").write_text(_CAPTURE)
    codes: list[int] = []
    outcomes: dict[str, str] = {}
    uploaded: list[str] = []
    for step in _recipe_steps():
        if not _is_due(step.get("if"), repository.folder, outcomes, failed=any(codes)):
            continue
        if "run" in step:
            codes.append(repository.bash(step["run"], **environment).returncode)
            outcomes[step.get("id", "")] = "failure" if codes[-1] else "success"
        elif "upload" in step["uses"]:
            uploaded += step["with"].get("sarif_file", step["with"].get("path", "")).split()
    # Sums without noise are captured; their cell claims nothing, and these policies hold private cells alone.
    assert codes == [0, 0, _CODES[policy], 0, 0, _CODES["undecided"], 0]
    assert uploaded == ["assay.sarif", "audited.sarif", "assay.zip", "audited.zip"]
    assert all((repository.folder / name).is_file() for name in uploaded)
    verified = repository.bash("fedassay verify assay.zip && fedassay verify audited.zip")
    assert verified.returncode == 0, verified.stdout
    kept = repository.bash(f"fedassay check assay.zip --policy {policy}.yaml")
    assert kept.returncode == _CODES[policy], kept.stdout
    assert "fedcgs" in summary.read_text()
    (install,) = _installed(repository)
    assert install[2:] == ["install", *job["env"]["TORCH"].split(), job["env"]["FEDASSAY"]]


def test_the_recipe_names_this_version_and_the_tested_torch() -> None:
    (job,) = RECIPE["jobs"].values()
    assert job["env"]["FEDASSAY"] == f"fedassay=={__version__}"
    tested = (ROOT / "constraints.txt").read_text().split()
    assert set(job["env"]["TORCH"].split()) <= set(tested)
    assert job["permissions"]["security-events"] == "write"
    text = _block("privacy.yml")
    for mentioned in re.findall(r"assay[./]\w+(?:\.\w+)?", text):
        assert mentioned in {"assay.sarif", "assay.xml", "assay.zip"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("attacks", "waived", "code"), [("[message_algebra]", "", 0), ("[]", "", 2), ("[]", "coverage: any", 0)]
)
def test_a_run_without_an_attack_fails_unless_the_policy_says_otherwise(
    attacks: str, waived: str, code: int, repository: Repository
) -> None:
    (repository.folder / "mine.yaml").write_text(f"{_POLICIES['kept']}{waived}\n")
    audits = (
        "[dp_claim: {mechanism_trials: 500, replays: 8}, message]"
        if attacks != "[]"
        else "[dp_claim: {mechanism_trials: 500, replays: 8}]"
    )
    ran = repository.bash(
        f"fedassay run plan.yaml -o out --quiet --set 'attacks={attacks}' --set 'audits={audits}'"
    )
    assert ran.returncode == 0, ran.stderr
    checked = repository.bash("fedassay check out --policy mine.yaml")
    assert checked.returncode == code, checked.stdout
    assert code != 2 or "no attack was run" in checked.stdout


def test_versions_of_the_page_are_those_of_the_package() -> None:
    for name in ("docs/howto/gate-ci.md", "action.yml"):
        versions = re.findall(r"@v([\d.]+)\b|rev: v([\d.]+)", (ROOT / name).read_text())
        own = {first or second for first, second in versions if (first or second).count(".") == 2}
        assert own == {__version__}, name


def test_every_hook_is_a_command_that_there_is() -> None:
    for hook in HOOKS:
        program, command, *arguments = shlex.split(hook["entry"])
        assert program in PROJECT["scripts"]
        assert command in cli.commands
        assert arguments[0] in {"plan", "policy"}
        assert hook["language"] == "python"
        assert hook["language_version"].removeprefix("python") in PROJECT["requires-python"]
    told = yaml.safe_load(_block(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    assert {hook["id"] for hook in told} == {hook["id"] for hook in HOOKS}


def test_ci_runs_what_contributing_says() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    run = [line for line in lines if line.startswith("make ")]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert run == ["make check", "make test", "make test-long"]
    assert all(f"`{line}`" in contributing.partition("Before a release")[0] for line in run)
    assert {name for name in re.findall(r"`make ([\w-]+)`", contributing)} <= set(targets)


@pytest.mark.long
def test_own_hooks_run_what_the_environment_has() -> None:
    own = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    known = {"ruff", "mypy", *PROJECT["scripts"]}
    assert {Path(shlex.split(hook["entry"])[0]).name for hook in own} <= known
    assert {hook["language"] for hook in own} == {"system"}
    (plans,) = [hook for hook in own if "validate" in hook["entry"]]
    taken = [str(path.relative_to(ROOT)) for path in (ROOT / "configs").rglob("*.yaml")]
    taken = [path for path in taken if re.search(plans["files"], path) and not re.search(plans["exclude"], path)]
    assert len(taken) > 20
    assert all(load_scenario(ROOT / path) for path in taken)


def test_issue_templates_name_commands_that_there_are() -> None:
    folder = ROOT / ".github" / "ISSUE_TEMPLATE"
    forms = [
        yaml.safe_load(path.read_text(encoding="utf-8")) for path in folder.glob("*.yml") if path.stem != "config"
    ]
    assert len(forms) == 3
    for form in forms:
        assert form["name"]
        assert form["description"]
        assert any(part.get("validations", {}).get("required") for part in form["body"])
        for command in re.findall(r"`fedassay (\w+)", yaml.safe_dump(form)):
            assert command in cli.commands


@pytest.mark.parametrize(
    ("hook", "path", "taken"),
    [
        ("fedassay-plan", "plans/release.yaml", True),
        ("fedassay-plan", "ml/assays/deep/a.yml", True),
        ("fedassay-plan", "plans.yaml", False),
        ("fedassay-plan", ".github/workflows/privacy.yml", False),
        ("fedassay-policy", "policy.yaml", True),
        ("fedassay-policy", "ci/policies/strict.yml", True),
        ("fedassay-policy", "my-policy.yaml", False),
    ],
)
def test_which_files_a_hook_takes(hook: str, path: str, taken: bool) -> None:
    (pattern,) = [found["files"] for found in HOOKS if found["id"] == hook]
    assert bool(re.search(pattern, path)) == taken


def test_hooks_refuse_what_fedassay_would_refuse(repository: Repository) -> None:
    (repository.folder / "wrong plan.yaml").write_text(_PLAN.replace("fedcgs", "fedcsg"))
    (repository.folder / "wrong.yaml").write_text("name: x\nmaximum: {acounted: 3}\n")
    # Data that is nowhere in the repository is no reason to refuse a plan.
    own = _PLAN.replace("name: digits, limit: 300", "name: npz, path: nowhere.npz")
    (repository.folder / "own.yaml").write_text(own)
    entry = {hook["id"]: hook["entry"] for hook in HOOKS}
    plan, policy = entry["fedassay-plan"], entry["fedassay-policy"]
    good = repository.bash(f"{plan} plan.yaml own.yaml && {policy} kept.yaml broken.yaml")
    assert good.returncode == 0, good.stderr
    bad = repository.bash(f"{plan} plan.yaml 'wrong plan.yaml' nowhere.yaml")
    assert bad.returncode == 2
    assert "'fedcsg'; allowed:" in bad.stderr
    assert "nowhere.yaml: no such file" in bad.stderr
    assert "plan.yaml: a plan that can be run" in bad.stdout
    bad = repository.bash(f"{policy} --json kept.yaml wrong.yaml")
    assert bad.returncode == 2
    assert '"kept.yaml": null' in bad.stdout
    assert "acounted" in bad.stderr


def _instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def test_the_container_is_small_and_not_root() -> None:
    steps = _instructions()
    starts = [number for number, (word, _) in enumerate(steps) if word == "FROM"]
    last = steps[starts[-1] :]
    # What builds stays behind: the last stage copies the environment from the one before, and nothing else.
    assert [steps[number][1] for number in starts[1:]] == ["base AS build", "base"]
    assert [rest for word, rest in last if word == "COPY"] == ["--from=build /fedassay /fedassay"]
    assert re.match(r"python:3\.11-slim\b", steps[starts[0]][1])
    users = [rest for word, rest in last if word == "USER"]
    assert users
    assert users[-1].isdigit()
    assert int(users[-1]) > 0
    words = [word for word, _ in last]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert dict(last)["ENTRYPOINT"] == '["fedassay"]'


def test_the_container_is_made_of_nothing_that_can_be_changed_under_its_name() -> None:
    steps = _instructions()
    stages: set[str] = set()
    for word, rest in steps:
        if word == "FROM":
            image, _, stage = rest.partition(" AS ")
            assert image in stages or re.fullmatch(r"[\w./:-]+@sha256:[0-9a-f]{64}", image), image
            stages.add(stage)
        # Files come from the context or from an earlier stage, never from an address.
        assert word != "ADD"
        copied = re.match(r"--from=(\S+)", rest) if word == "COPY" else None
        assert copied is None or copied[1] in stages
    asked = [line for word, rest in steps if word == "RUN" for line in rest.split("&&")]
    got = [line for line in asked if re.search(r"\b(pip|curl|wget|apt|apt-get)\b", line)]
    fetched, installed = (shlex.split(line) for line in got)
    assert fetched[1:4] == ["-m", "pip", "download"]
    assert "--require-hashes" in fetched
    assert fetched[fetched.index("-r") + 1] == "/source/$locked"
    # What was compared is all that there is to install from.
    assert installed[1:4] == ["-m", "pip", "install"]
    assert "--no-index" in installed
    assert installed[installed.index("--find-links") + 1] == fetched[fetched.index("--dest") + 1]
    chosen = set(re.findall(r"locked=(\S+?)[;\s]", " ".join(asked)))
    assert chosen == {"locked.txt", "locked-cuda.txt"}
    assert chosen <= _context()


@pytest.mark.parametrize(("index", "locked"), [("", "locked-cuda.txt"), ("an index", "locked.txt")])
def test_the_container_takes_the_lock_of_its_index(index: str, locked: str, tmp_path: Path) -> None:
    (line,) = [rest for word, rest in _instructions() if word == "RUN" and "pip" in rest]
    stub = tmp_path / "python"
    stub.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$*\" >> '{tmp_path}/said'\n")
    stub.chmod(0o755)
    line = line.replace("/fedassay/bin/python", str(stub)).replace("&& python", f"&& {stub}")
    subprocess.run(["sh", "-c", line], check=True, env={**os.environ, "EXTRA_INDEX": index})
    _, fetched, installed = (tmp_path / "said").read_text().splitlines()
    assert f"-r /source/{locked} " in fetched
    assert (f"--extra-index-url {index}" in fetched) == bool(index)
    assert installed.endswith("--no-index --find-links /files /source[sign]")


def test_the_containers_shell_lines_parse() -> None:
    for word, rest in _instructions():
        if word == "RUN":
            assert subprocess.run(["bash", "-n", "-c", rest], check=False).returncode == 0


def _context() -> set[str]:
    """Names at the top of the checkout that are sent to the build."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*"
    return {pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")}


def test_the_containers_context_has_everything_that_it_builds_from() -> None:
    context = _context()
    for name in context:
        assert (ROOT / name).exists(), name
    needed = {PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml", "setup.py", "src"}
    rooms = {link.name for link in (ROOT / "src" / "fedassay").iterdir() if link.is_symlink()}
    assert needed | rooms <= context


@pytest.mark.long
@pytest.mark.wheel
def test_the_containers_context_builds(tmp_path: Path) -> None:
    for name in _context():
        subprocess.run(["cp", "-a", str(ROOT / name), str(tmp_path / name)], check=True)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [wheel.name for wheel in (tmp_path / "out").iterdir()] == [f"fedassay-{__version__}-py3-none-any.whl"]
