"""Output and listings of the command line."""

from __future__ import annotations

import json
import math
import shutil
import textwrap
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedassay.contracts.registry import component, problems, summary, usable
from fedassay.plan.keys import Key, entry_keys, every_key
from fedassay.plan.schema import Scenario
from fedassay.records.record import RunRecord
from fedassay.support.errors import FedassayError, PlanError
from fedassay.support.registry import Kind
from fedassay.support.terminal import Styled, say, say_json, say_lines

if TYPE_CHECKING:
    from fedassay.reports.answer.answer import Answer
    from fedassay.reports.gate.policy import Policy

_KINDS: dict[str, Kind] = {
    "methods": "method",
    "attacks": "attack",
    "audits": "audit",
    "datasets": "dataset",
    "backbones": "backbone",
}
_COLOURS = {"yes": "green", "not yet": "yellow", "no": "red"}


def listing(what: str) -> list[tuple[str, str]]:
    """Names and one-line summaries of everything that a plan can name."""
    if what == "configs":
        return _configs()
    rows = [(entry.name, summary(entry)) for entry in usable(_KINDS[what])]
    if what == "backbones":
        rows.append(("<torchvision name>", "Any torchvision classification model, such as resnet50 or vit_b_16"))
    return rows


def print_problems() -> None:
    """Print problems of components of other packages on standard error; everything else works without them."""
    for problem in problems():
        say(f"fedassay: {problem}", err=True)


def json_schema(what: str) -> dict[str, Any]:
    """The JSON schema of `plan`, `policy` or `record`."""
    if what == "record":
        return RunRecord.model_json_schema(by_alias=True, mode="serialization")
    if what == "policy":
        from fedassay.reports.gate.policy import policy_schema

        return policy_schema()
    from fedassay.plan.json_schema import plan_schema

    return plan_schema()


def _configs() -> list[tuple[str, str]]:
    """Shipped plans, each with the first sentence of its leading comment."""
    root = resources.files("fedassay") / "configs"
    with resources.as_file(root) as folder:
        found = []
        for path in sorted(folder.rglob("*.yaml")):
            first = path.read_text(encoding="utf-8").partition("\n")[0]
            found.append((f"configs/{path.relative_to(folder)}", first.lstrip("# ") if first[:1] == "#" else ""))
    return found


def component_keys(what: str, name: str) -> list[Key]:
    """The plan keys of a registered method, attack or audit, those inside sections under their paths.

    Raises:
        PlanError: Nothing of this kind has keys, or there is no such name.
    """
    kind = _KINDS.get(what)
    if kind not in ("method", "attack", "audit"):
        raise PlanError(f"list {what} {name}: {what} have no keys of their own; allowed: methods, attacks, audits")
    return [*every_key(component(kind, name)), *(entry_keys() if kind == "method" else ())]


def print_keys(keys: list[Key], name: str, quiet: bool, as_json: bool) -> None:
    """Print the type and purpose of each key of a component, the purpose indented; the names alone if `quiet`."""
    if as_json:
        rows = [{"key": key.name, "type": key.allowed, "default": key.default, "about": key.about} for key in keys]
        say_json(json.dumps(rows, indent=1))
        return
    if quiet:
        say_lines("\n".join(key.name for key in keys))
        return
    if not keys:
        say(f"{name} has no keys: a plan gives its name alone.")
    width = min(shutil.get_terminal_size().columns, 100)
    for key in keys:
        default = "must be given" if key.default is None else f"default {key.default}"
        say(Styled(key.name, bold=True), f"  {key.allowed}; {default}")
        say_lines(textwrap.fill(key.about, width, initial_indent="    ", subsequent_indent="    "))


def print_cells(scenario: Scenario, as_json: bool, device: str, fetched: Sequence[str] = ()) -> None:
    """Print the cells that a plan would run, their time, and the files that the run would download."""
    from fedassay.plan.estimate import estimate
    from fedassay.plan.here import this_machine
    from fedassay.plan.own_images import outline_of, persons_in_words
    from fedassay.plan.rates import in_words
    from fedassay.plan.record_claims import most_of_a_person, record_claims

    # Headers of own images are read once for both.
    data = outline_of(scenario.plan, scenario.base)
    targets = ((cell.method.label, cell.privacy) for cell in scenario.cells)
    mistaken, persons = record_claims(targets, most_of_a_person(data)), persons_in_words(scenario.plan, data)
    found = estimate(scenario, device, this_machine(scenario.plan.resources.threads))
    rows = [
        {
            "cell": cell.key,
            "method": cell.method.name,
            "epsilon": "inf" if math.isinf(cell.privacy.epsilon) else cell.privacy.epsilon,
            "delta": cell.privacy.delta,
            "adjacency": cell.privacy.adjacency,
            "unit": cell.privacy.unit,
            "seed": cell.seed,
            "estimated_seconds": found.cells[cell.key],
        }
        for cell in scenario.cells
    ]
    if as_json:
        content = {
            "name": scenario.plan.name,
            "cells": rows,
            "estimated_seconds": found.seconds,
            "estimated_range": found.range,
            "estimated_bytes": found.memory,
            "rates": found.basis,
            "persons": persons,
            "record_claims": mistaken,
            "account": None if data is None else data.data.account.facts(),
            "remarks": found.remarks,
            "fetched": fetched,
            "first_table": _mission_json(scenario),
        }
        say_json(json.dumps(content, indent=1))
        return
    say(f"{scenario.plan.name}: {len(rows)} cell{'s' if len(rows) != 1 else ''}")
    for line in () if data is None else data.data.account.lines():
        say(line)
    say(f"persons: {persons}")
    if mistaken:
        say(f"warning: {mistaken}")
    for row, cell in zip(rows, scenario.cells, strict=True):
        seconds = found.cells[cell.key]
        about = "not estimated" if seconds is None else f"method alone about {in_words(seconds)}"
        say(f"  {row['cell']}  ({cell.privacy.guarantee.kind.words})  {about}")
    say_lines("\n".join(_mission(scenario)))
    attacks = ", ".join(attack.label for attack in scenario.attacks) or "none"
    audits = ", ".join(audit.label for audit in scenario.audits) or "none"
    say(f"attacks: {attacks}")
    say(f"audits: {audits}")
    if found.range is not None and found.memory is not None:
        say(
            f"estimate: {_range(*found.range)} with --jobs 1 where nothing else runs, attacks and audits "
            f"included; {found.memory / 2**30:.1f} GiB a job"
        )
        say(f"rates: {found.basis}")
    for remark in (*found.remarks, *fetched):
        say(remark)


def _range(least: float, most: float) -> str:
    """Return seconds in words: their middle of a short plan, a range of a long one."""
    from fedassay.plan.rates import in_words

    middle = math.sqrt(least * most)
    return in_words(middle) if middle < 600 else f"{in_words(least)} to {in_words(most)}"


def _mission_json(scenario: Scenario) -> list[dict[str, str]]:
    """Return the same for programs: the planned entries, by method and epsilon."""
    from fedassay.reports.document.mission.beforehand import beforehand, columns

    heads = ("method", "epsilon", *map(str.lower, columns()))
    return [dict(zip(heads, (row.method, row.epsilon, *row.entries), strict=True)) for row in beforehand(scenario)]


def _mission(scenario: Scenario) -> list[str]:
    """The table that the report will open with, as far as it is known before the run."""
    from fedassay.reports.document.mission.beforehand import beforehand, columns

    rows = [(row.method, row.epsilon, *row.entries) for row in beforehand(scenario)]
    if not rows:
        return []
    table = [("method", "ε", *map(str.lower, columns())), *rows]
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    said = ["  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in table]
    return ["what the report's first table will hold:", *(line.rstrip() for line in said)]


def time_of(plan: Path) -> str:
    """Return the time of a run of a plan on one core, as a clause."""
    from fedassay.plan.estimate import estimate
    from fedassay.plan.here import this_machine
    from fedassay.plan.resolve import load_scenario

    scenario = load_scenario(plan)
    found = estimate(scenario, "cpu", this_machine(scenario.plan.resources.threads)).range
    return (
        "how long a run takes is not known"
        if found is None
        else f"a run takes about {_range(*found)} where nothing else runs"
    )


def print_summary(record: RunRecord, folder: Path) -> None:
    """Print the answer of a run, its failures, and the path of the report."""
    from fedassay.reports.answer.answer import answer
    from fedassay.reports.decision.words import account_of
    from fedassay.reports.words.groups import part_in_words

    found = answer(record)
    print_answer(found, folder)
    for line in account_of(record).lines():
        say(line)
    for error in record.errors:
        words = f"error in {error.cell}: {part_in_words(error.stage)} broke off: {error.message}"
        say(Styled(words, "red"), err=True)
    say(f"Report: {folder / 'report.html'}")


def print_outcome(record: RunRecord, folder: Path, quiet: bool, as_json: bool) -> int:
    """Print what a run or an audit found; returns the exit code of the command."""
    if as_json:
        say_json(record.to_json())
    elif not quiet:
        print_summary(record, folder)
    return 1 if record.errors else 0


def print_answer(found: Answer, folder: Path, policy: Path | None = None, err: bool = False) -> None:
    """Print an answer, its first line in the colour of the answer, and the next step ready to be typed."""
    from fedassay.reports.answer.text import lines

    for number, line in enumerate(lines(found, str(folder), str(policy or "POLICY"))):
        say(Styled(line, _COLOURS[found.answer], bold=True) if number == 0 else line, err=err)


def plan_file(path: Path) -> Path:
    """The plan at `path`, or the one of that name that ships with fedassay.

    Raises:
        PlanError: There is no such file.
    """
    return _file(path, "write a plan with `fedassay init`, or take one of `fedassay list configs`")


def policy_file(path: Path) -> Path:
    """The policy at `path`, or the one of that name that ships with fedassay, such as `strict`.

    Raises:
        PlanError: There is no such file.
    """
    named = Path(str(resources.files("fedassay"))) / "configs" / "policies" / f"{path.name}.yaml"
    if not path.exists() and len(path.parts) == 1 and not path.suffix and named.is_file():
        return named
    return _file(path, "these ship: strict, demonstration, research and messages (configs/policies/)")


def load_named(path: Path) -> Policy:
    """Read the policy at `path`, or the one of that name that ships with fedassay.

    Raises:
        PlanError: There is no such file, or it holds no policy.
    """
    from fedassay.reports.gate.policy import load_policy

    return load_policy(policy_file(path))


def _file(path: Path, instead: str) -> Path:
    if path.is_file():
        return path
    if path.is_dir():
        raise PlanError(f"{path}: it is a folder, a YAML file is needed; {instead}")
    # An installed fedassay has its configs inside the package.
    if not path.exists() and not path.is_absolute() and path.parts[:1] == ("configs",) and ".." not in path.parts:
        shipped = Path(str(resources.files("fedassay"))) / path
        if shipped.is_file():
            return shipped
    if path.exists():
        return path
    raise PlanError(f"{path}: no such file; {instead}")


def problem_in(what: str, file: Path) -> str | None:
    """Return the problem of a plan or a policy, in one message; None where there is none."""
    try:
        if what == "plan":
            from fedassay.plan.resolve import load_scenario

            load_scenario(plan_file(file))
        else:
            load_named(file)
    except FedassayError as error:
        return str(error)
    return None
