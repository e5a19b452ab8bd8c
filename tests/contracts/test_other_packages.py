"""A package of somebody else, examples/plugin: installed by its entry points alone, with no other file touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TOY = ROOT / "examples" / "plugin"
PLAN = {
    "name": "toy",
    "data": {"name": "digits", "limit": 300, "split": {"private": 0.5, "attacker": 0.2, "test": 0.3}},
    "clients": {"count": 4},
    "backbone": {"name": "pixels"},
    "methods": [{"toy_sums": {"scale": 2.0}}],
    "attacks": ["toy_alone"],
    "audits": ["message", "toy_small_classes"],
}

Command = Callable[..., subprocess.CompletedProcess[str]]


def install(site: Path, name: str, points: str, modules: dict[str, str]) -> None:
    """What pip leaves of a package: its modules, and the metadata that names its entry points."""
    for path, text in modules.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text, encoding="utf-8")
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(points, encoding="utf-8")


def install_toy(site: Path) -> None:
    """Install the example package, with the entry points that its own metadata will name."""
    declared = tomllib.loads((TOY / "pyproject.toml").read_text())["project"]["entry-points"]["fedassay"]
    points = "\n".join(["[fedassay]", *(f"{name} = {module}" for name, module in declared.items())])
    modules = {f"toy_assay/{path.name}": path.read_text() for path in (TOY / "toy_assay").glob("*.py")}
    install(site, "toy_assay", points, modules)


def _command(site: Path, cwd: Path) -> Command:
    def run(*args: str, module: str = "fedassay") -> subprocess.CompletedProcess[str]:
        return forked.python("-m", module, *args, cwd=cwd, environment=_environment(site))

    return run


def _environment(site: Path) -> dict[str, str]:
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Command, Path]:
    """Commands with the toy package installed, and the folder of a run of its plan."""
    folder = tmp_path_factory.mktemp("toy")
    install_toy(folder / "site")
    (folder / "plan.yaml").write_text(yaml.safe_dump(PLAN))
    # Forked, as all commands are: it imports fedassay and what is installed anew.
    command = _command(folder / "site", folder)
    done = command("run", "plan.yaml", "-o", "out", "--quiet")
    assert done.returncode == 0, done.stderr
    return command, folder


def _json(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "name", "summary"),
    [
        ("methods", "toy_sums", "Sends class counts and class sums"),
        ("attacks", "toy_alone", "Takes the sum of a class of one record"),
        ("audits", "toy_small_classes", "Whether classes of one record"),
    ],
)
def test_it_is_listed_with_its_own_words(what: str, name: str, summary: str, toy: tuple[Command, Path]) -> None:
    done = toy[0]("list", what)
    assert done.returncode == 0
    assert not done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith(name))
    assert summary in line
    keys = _json(toy[0]("list", what, name, "--json"))
    assert keys[0]["about"]


def test_it_is_estimated(toy: tuple[Command, Path]) -> None:
    found = _json(toy[0]("run", "plan.yaml", "--dry-run", "--json"))
    assert found["cells"][0]["estimated_seconds"] > 0
    assert found["remarks"] == []


@pytest.mark.long
def test_it_is_in_the_schema_of_plans(toy: tuple[Command, Path]) -> None:
    validator = jsonschema.Draft202012Validator(_json(toy[0]("schema", "plan")))
    validator.validate(PLAN)
    assert not validator.is_valid({**PLAN, "methods": [{"toy_sums": {"scale": -1}}]})
    assert not validator.is_valid({**PLAN, "attacks": [{"toy_alone": {"least": 1}}]})


def test_it_runs_and_its_attack_is_judged_by_the_audits_of_its_kind(toy: tuple[Command, Path]) -> None:
    record = json.loads((toy[1] / "out" / "record.json").read_text())
    assert record["errors"] == []
    cell = record["cells"][0]
    assert cell["utility"]["accuracy"] > 0.5
    found = {(finding["audit"], finding["attack"]): finding for finding in cell["findings"]}
    assert set(found) == {("message", "toy_alone"), ("toy_small_classes", "toy_alone")}
    judged = found["message", "toy_alone"]
    # The sums are scaled: the vectors are no record's feature, not even where every record is alone in its class.
    # So the end-to-end control is missed. They are nearest to records of their senders all the same, which is
    # a leak, but names no record: nobody knows from them which one it is.
    roles = {control["role"]: control["detected"] for control in judged["all_controls"]}
    assert roles == {"end_to_end": False, "attack_only": True, "negative": False}
    assert judged["verdict"] == "leak"
    assert (judged["harm"]["kind"], judged["harm"]["metric"]) == ("members", "identified")
    assert not judged["controls"]["negative"]["flagged"]
    assert judged["source"] == "toy_alone"
    assert found["toy_small_classes", "toy_alone"]["verdict"] == "leak"


@pytest.mark.long
def test_its_vectors_are_a_leak_where_they_are_records(toy: tuple[Command, Path]) -> None:
    command, folder = toy
    done = command("run", "plan.yaml", "-o", "exact", "--quiet", "--set", "methods.0.toy_sums.scale=1")
    assert done.returncode == 0, done.stderr
    findings = json.loads((folder / "exact" / "record.json").read_text())["cells"][0]["findings"]
    judged = next(finding for finding in findings if finding["audit"] == "message")
    assert judged["verdict"] == "leak", judged["reason"]


@pytest.mark.long
@pytest.mark.parametrize("scale", [1, 3])
def test_its_claim_is_sound_under_noise(scale: float, toy: tuple[Command, Path]) -> None:
    command, folder = toy
    options = [f"methods.0.toy_sums.scale={scale}", "privacy.epsilon=8", "attacks=[]"]
    settings = [word for option in options for word in ("--set", option)]
    claim = ("--set", "audits=[dp_claim: {mechanism_trials: 2000, replays: 8}]")
    done = command("run", "plan.yaml", "-o", f"private{scale}", "--quiet", *settings, *claim)
    assert done.returncode == 0, done.stderr
    (cell,) = json.loads((folder / f"private{scale}" / "record.json").read_text())["cells"]
    (judged,) = cell["findings"]
    assert judged["verdict"] == "sound", judged["reason"]
    assert 6.5 < judged["metrics"]["observed"]["value"] <= 8


def test_the_page_on_methods_builds_this_one() -> None:
    """The page's first block is the file, so that neither can change without the other."""
    page = (ROOT / "docs" / "howto" / "add-method.md").read_text(encoding="utf-8")
    block = page.partition('```python title="toy_sums.py"\n')[2].partition("```\n")[0]
    assert block == (TOY / "toy_assay" / "method.py").read_text(encoding="utf-8")


def test_it_is_reported_in_its_own_words(toy: tuple[Command, Path]) -> None:
    page = (toy[1] / "out" / "report.html").read_text()
    assert '<h3 id="h-5-toy_small_classes">Small classes</h3>' in page
    assert "Share alone" in page
    assert "Classes of one record, of all classes." in page


@pytest.mark.long
@pytest.mark.parametrize(("bound", "code"), [(0.0, 1), (1.0, 0)])
def test_a_policy_bounds_its_metric(bound: float, code: int, toy: tuple[Command, Path]) -> None:
    policy = {"name": "p", "maximum": {"toy_share": bound}, "must_conclude": ["toy_small_classes"]}
    (toy[1] / "policy.yaml").write_text(yaml.safe_dump(policy))
    done = toy[0]("check", "out", "--policy", "policy.yaml")
    assert done.returncode == code, done.stdout + done.stderr
    jsonschema.Draft202012Validator(_json(toy[0]("schema", "policy"))).validate(policy)


def test_its_rule_is_in_sarif(toy: tuple[Command, Path]) -> None:
    assert toy[0]("report", "out", "--format", "sarif", "-o", "o.sarif").returncode == 0
    run = json.loads((toy[1] / "o.sarif").read_text())["runs"][0]
    rule = next(item for item in run["tool"]["driver"]["rules"] if item["id"] == "toy_small_classes")
    assert rule["shortDescription"]["text"] == "No class may be so small that its sum is a record."
    assert rule["relationships"][0]["target"]["id"] == "CWE-203"
    assert {"id": "CWE-203"} in run["taxonomies"][0]["taxa"]
    assert {"id": "CWE-359"} in run["taxonomies"][0]["taxa"]


@pytest.mark.long
def test_a_report_of_its_run_needs_it_no_more(toy: tuple[Command, Path], tmp_path: Path) -> None:
    """The record names an audit that nobody here has installed: it still renders."""
    shutil.copytree(toy[1] / "out", tmp_path / "out")
    without = _command(tmp_path, tmp_path)
    for kind in ("html", "md", "csv", "sarif", "junit"):
        done = without("report", "out", "--format", kind)
        assert done.returncode == 0, done.stderr
    assert "Toy small classes" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.long
def test_the_suite_of_the_pretended_gpu_takes_it_in(toy: tuple[Command, Path]) -> None:
    suite = str(ROOT / "tests" / "contracts" / "test_on_gpu.py")
    options = ("-p", "no:cacheprovider", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"))
    chosen = ("-m", "not slow", "-k", "toy_sums or attacks_and_audits_of_messages")
    done = toy[0](*options, suite, *chosen, module="pytest")
    assert done.returncode == 0, done.stdout[-3000:]
    # The method, its private form, and the run of its attack and audit.
    assert done.stdout.startswith("... "), done.stdout


BROKEN = {
    "absent": ("attack.broken_import = absent_package.attack", "cannot be imported: ModuleNotFoundError"),
    "silent": ("attack.broken_silent = silent.parts", "registers no attack of this name"),
    "bare": ("attack.broken_bare = bare.parts", "declares nothing as `facts`"),
    "wrong": ("audit.broken_type = wrong.parts", "declares a AttackFacts as `facts`"),
    "function": ("method.broken_function = function.parts", "no class derived from"),
    "still": ("attack.broken_still = still.parts", "has no method `run`"),
    "taken": ("attack.membership = taken.parts", "the name is taken by fedassay"),
    "double": ("audit.broken_metric = double.parts", "the metric 'ssim', which the audit"),
    "nameless": ("attak.thing = nameless.parts", "allowed: KIND.NAME"),
}
HEAD = """
from typing import ClassVar
from fedassay.contracts.facts import AttackFacts, AuditFacts
from fedassay.support.metrics import MetricFacts
from fedassay.support.registry import register
from fedassay.support.types import Parameters
"""
SOURCES = {
    "silent": "",
    "bare": '@register("attack", "broken_bare")\nclass A(Parameters):\n    def run(self, view, knowledge): ...\n',
    "wrong": '@register("audit", "broken_type")\nclass A(Parameters):\n'
    '    facts: ClassVar[AttackFacts] = AttackFacts(gives=("vectors",))\n    def assess(self, a, b): ...\n',
    "function": '@register("method", "broken_function")\ndef method(task): ...\n',
    "still": '@register("attack", "broken_still")\nclass A(Parameters):\n'
    '    facts: ClassVar[AttackFacts] = AttackFacts(gives=("vectors",))\n',
    "taken": '@register("attack", "membership")\nclass A(Parameters):\n    def run(self, view, knowledge): ...\n',
    "double": '@register("audit", "broken_metric")\nclass A(Parameters):\n'
    '    facts: ClassVar[AuditFacts] = AuditFacts(metrics=(MetricFacts("ssim", "S", "Mine."),))\n'
    "    def assess(self, a, b): ...\n",
    "nameless": "",
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Command, Path]:
    """Commands where packages that are wrong in every way are installed beside a good one."""
    folder = tmp_path_factory.mktemp("broken")
    install_toy(folder / "site")
    for name, (point, _) in BROKEN.items():
        own = {f"{name}/__init__.py": "", f"{name}/parts.py": HEAD + SOURCES[name]} if name in SOURCES else {}
        install(folder / "site", f"{name}-package", f"[fedassay]\n{point}\n", own)
    return _command(folder / "site", folder), folder


@pytest.mark.long
@pytest.mark.parametrize("what", ["methods", "attacks", "audits", "datasets"])
def test_a_list_names_every_broken_package_once_and_lists_the_others(
    what: str, broken: tuple[Command, Path]
) -> None:
    done = broken[0]("list", what)
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert len(said) == len(BROKEN)
    for name, (_, words) in BROKEN.items():
        line = next(line for line in said if f"{name}-package" in line)
        assert words in line
    assert "broken" not in done.stdout
    assert {"methods": "toy_sums", "attacks": "membership ", "audits": "toy_small", "datasets": "digits"}[
        what
    ] in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("attacks", "broken_import"),
        ("attacks", "broken_bare"),
        ("audits", "broken_type"),
        ("methods", "broken_function"),
        ("attacks", "broken_still"),
        ("audits", "broken_metric"),
    ],
)
def test_a_plan_that_names_one_ends_in_one_message(key: str, name: str, broken: tuple[Command, Path]) -> None:
    command, folder = broken
    (folder / "bad.yaml").write_text(yaml.safe_dump({**PLAN, key: [name]}))
    done = command("run", "bad.yaml", "--dry-run")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "-package" in done.stderr
    assert name in done.stderr


@pytest.mark.long
def test_everything_else_works_beside_them(broken: tuple[Command, Path]) -> None:
    command, folder = broken
    plan = {
        **PLAN,
        "attacks": ["toy_alone", "membership"],
        "audits": ["message", "toy_small_classes", "membership"],
    }
    (folder / "good.yaml").write_text(yaml.safe_dump(plan))
    assert command("run", "good.yaml", "--dry-run").returncode == 0
    (folder / "policy.yaml").write_text(yaml.safe_dump({"name": "p", "maximum": {"ssim": 0.5, "toy_share": 1}}))
    done = command("schema", "policy")
    names = json.loads(done.stdout)["properties"]["maximum"]["propertyNames"]["enum"]
    assert {"ssim", "toy_share"} <= set(names)
