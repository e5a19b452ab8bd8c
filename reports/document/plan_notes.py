"""Notes beside the numbers: the plan, the assumptions of the verdicts, the command to rerun."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import yaml

from fedassay.records.pictures import SHEET
from fedassay.records.record import RunRecord
from fedassay.reports.words.groups import cell_name, several_deltas, several_seeds
from fedassay.reports.words.numbers import short
from fedassay.support.registry import entries
from fedassay.support.text import plain


def plan_of(record: RunRecord) -> dict[str, Any]:
    """The plan as a mapping; empty where the record holds something else."""
    return record.plan if isinstance(record.plan, dict) else {}


_MEASURED = {
    "own": "on the clients' own records, which they trained on",
    "held_out": "on records that were held out of the clients' own",
}
"""Records that accuracy is measured on, if not the test role."""


def name_of(record: RunRecord) -> str:
    """The run's name."""
    return str(plan_of(record).get("name", "unnamed run"))


def facts(record: RunRecord) -> list[tuple[str, str]]:
    """The head of the page: what was run, on what, against whom."""
    plan = plan_of(record)
    return [*_data(plan), *_clients(plan), *_backbone(plan), *_adversary(plan), *_of_the_run(record)]


def _data(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    data, captured = _part(plan, "data"), _part(plan, "transcript")
    if captured:
        yield "Captured", f"{captured.get('messages', '?')} messages of {captured.get('clients', '?')} clients"
    if data:
        limit = f", {data['limit']} records" if data.get("limit") else ""
        official = "; the clients hold its test set" if data.get("roles") == "official" else ""
        yield "Adversary's data" if captured else "Data", f"{data.get('name', '?')}{limit}{official}"
    if isinstance(plan.get("scaled"), int | float):
        yield "Scaled", f"to {short(plan['scaled'])} of the plan as it was written"


def _clients(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    clients = _part(plan, "clients")
    if not clients:
        return
    words = f"{clients.get('count', '?')}, {clients.get('partition', 'iid')}"
    if clients.get("partition") == "dirichlet":
        alpha = clients.get("alpha", "?")
        words += f" (α = {short(alpha) if isinstance(alpha, int | float) else alpha})"
    yield "Clients", words
    if clients.get("evaluate") in _MEASURED:
        yield "Accuracy", _MEASURED[clients["evaluate"]]


def _backbone(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    backbone = _part(plan, "backbone")
    if _part(plan, "data").get("features"):
        yield "Backbone", "none: features computed elsewhere"
    elif backbone:
        weights = backbone.get("weights")
        yield "Backbone", f"{backbone.get('name', '?')}{f', {weights} weights' if weights else ''}"


def _adversary(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    threat, captured = _part(plan, "threat"), _part(plan, "transcript")
    if not threat:
        return
    words = f"sees {str(threat.get('view', '?')).replace('_', ' ')} messages"
    if _part(plan, "backbone") or not captured:
        words += f", {str(threat.get('backbone', '?')).replace('_', ' ')} backbone"
    if colluding := threat.get("colluding"):
        of = _part(plan, "clients").get("count") or captured.get("clients")
        words += f"; {colluding} of {of or '?'} clients on its side, with what they sent and their records"
    if threat.get("server") == "malicious":
        words += "; as the server it chooses what it sends out so that records come apart"
    yield "Adversary", words


def _of_the_run(record: RunRecord) -> Iterator[tuple[str, str]]:
    deltas = sorted({cell.delta for cell in record.cells})
    if deltas:
        yield "δ", ", ".join(short(delta) for delta in deltas)
    seeds = dict.fromkeys(cell.seed for cell in record.cells)
    if seeds and not (_part(plan_of(record), "transcript") and set(seeds) == {None}):
        yield "Seeds", ", ".join("none" if seed is None else str(seed) for seed in seeds)
    environment = record.environment
    when = environment.get("finished") or environment.get("started")
    if when:
        yield "Run", _moment(str(when))
    if environment.get("fedassay"):
        yield "fedassay", str(environment["fedassay"])


def absent(record: RunRecord, audit: str) -> str:
    """Return the reason why the report has nothing to say about an audit."""
    if _part(plan_of(record), "transcript"):
        return "Not done on captured messages: it needs the clients' records, or a run of the method."
    asked = [name for entry in plan_of(record).get("audits") or () if isinstance(entry, dict) for name in entry]
    if audit in asked:
        return "In the plan, but no cell has a finding; see the errors at the top of the page."
    return f"Not part of this plan: it asks for no {audit} audit."


def assumptions(record: RunRecord) -> list[str]:
    """Assumptions of every verdict: the plan's own terms."""
    plan = plan_of(record)
    out = []
    weights = _part(plan, "backbone").get("weights")
    if _part(plan, "data").get("features"):
        out.append("The network that computed the features is taken to be public and to hold no private record.")
    elif weights == "public":
        out.append("The backbone is trained on the public split: those records are taken to be public.")
    elif weights not in {None, "random"}:
        out.append(f"The backbone's weights ({weights}) are taken to be public and to hold no private record.")
    out.append("The list of labels is public.")
    out += [plain(text) for text in _inferred(plan)]
    finite = [cell for cell in record.cells if cell.asked.finite]
    if finite:
        for adjacency, unit in sorted({(cell.adjacency, cell.unit) for cell in finite}):
            out.append(f"Neighbouring data sets, {adjacency}: {_neighbours(adjacency, unit)}.")
        deltas = ", ".join(short(delta) for delta in sorted({cell.delta for cell in finite}))
        out.append(f"δ = {deltas}: the probability that the guarantee fails; it should be far below 1/n.")
    out.append("The choice of hyper-parameters is not charged to any privacy budget.")
    return out


def papers(record: RunRecord) -> list[tuple[str, str]]:
    """The methods of a run with the papers that they are from, as their files cite them."""
    known = entries("method")
    methods = dict.fromkeys(cell.method for cell in record.cells)
    return [(name, known[name].source) for name in methods if name in known and known[name].source]


def _neighbours(adjacency: str, unit: str) -> str:
    """Difference between neighbouring data sets, in words."""
    if unit == "record":
        return {
            "add_remove": "one data set holds one record more",
            "replace_one": "one record differs, its label too",
            "replace_one_same_label": "one record differs and keeps its label: class counts are public",
        }[adjacency]
    whose = f"one {unit}, with all of its records,"
    return {
        "add_remove": f"one data set holds {whose} besides",
        "replace_one": f"{whose} differs, labels too",
        "replace_one_same_label": f"{whose} differs, and each of these keeps its label",
    }[adjacency]


def stated(record: RunRecord) -> list[str]:
    """Further assumptions of single findings, as their audits state them, once each."""
    return list(
        dict.fromkeys(text for cell in record.cells for finding in cell.findings for text in finding.assumptions)
    )


def _inferred(plan: dict[str, Any]) -> list[str]:
    """Notes on fields without a declared kind: the kinds inferred, and those that could not be."""
    said = _part(plan, "transcript").get("inferred")
    entries = [entry for entry in said if isinstance(entry, dict)] if isinstance(said, list) else []
    words = {
        "inferred": "Kind inferred",
        "ambiguous": "Kind not inferred",
        "unknown": "Kind not inferred",
        "contradicts": "Kind in doubt",
    }
    return [
        f"{words[str(entry.get('status'))]}: {entry.get('text')}."
        for entry in entries
        if str(entry.get("status")) in words
    ]


def warnings(record: RunRecord) -> list[tuple[str, str]]:
    """Warnings with the cells they are about; equal ones once."""
    gathered: dict[str, list[str]] = {}
    read = _part(plan_of(record), "transcript").get("read")
    deltas, seeds = several_deltas(record), several_seeds(record)
    for cell in record.cells:
        for text in (*cell.privacy.warnings, *cell.notes):
            gathered.setdefault(text, []).append(cell_name(cell, deltas, seeds))
    # The page says how files were read beside the answer.
    out = [(text, "; ".join(dict.fromkeys(cells))) for text, cells in gathered.items() if text != read]
    finite = [cell for cell in record.cells if cell.asked.finite]
    if finite:
        out.append(
            (
                "Noise here serves audits: floating-point Gaussians are not hardened against attacks on their "
                "low bits (Mironov 2012).",
                "every private cell",
            )
        )
        if any(cell.seed is not None for cell in finite):
            out.append(("A seeded run's noise is not secret: never deploy it.", "every seeded private cell"))
    return out


def plan_yaml(record: RunRecord) -> str:
    """The resolved plan as a plan file that runs."""
    return yaml.safe_dump(_finite_back(record.plan), sort_keys=False, allow_unicode=True, width=100)


def rerun(record: RunRecord) -> str:
    """The commands that make this run and this page again."""
    # Commands that are copied into a shell: no character of a name may be hidden, none may end the line.
    name, captured = shlex.quote(plain(name_of(record))), _part(plan_of(record), "transcript")
    if captured:
        given, candidates = str(captured.get("options") or ""), _part(plan_of(record), "candidates").get("folder")
        if _part(plan_of(record), "backbone"):
            given += " --plan PLAN.yaml"
        elif candidates:
            given += f" --gallery {shlex.quote(str(candidates))}"
        given = plain(f" {given.strip()}" if given else "")
        folder = shlex.quote(plain(str(captured.get("folder", name_of(record)))))
        again = f"fedassay audit {folder}{given} -o runs/{name}"
        return f"{again}\nfedassay report runs/{name} --format html"
    return f"fedassay run {name}.yaml -o runs/{name}\nfedassay report runs/{name} --format html"


def _finite_back(value: Any) -> Any:
    """The record's text "inf" as the number it stands for, which YAML can write."""
    if isinstance(value, dict):
        return {key: _finite_back(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite_back(item) for item in value]
    return math.inf if value == "inf" else value


def data_facts(record: RunRecord) -> dict[str, Any]:
    """Facts of the record about the data, with seeds named as such."""
    if not isinstance(record.data, dict):
        return {}
    seeds = {"null" if cell.seed is None else str(cell.seed) for cell in record.cells}
    return {
        f"seed {key}" if key in seeds else str(key): _without_sheet(value) for key, value in record.data.items()
    }


def _without_sheet(facts: Any) -> Any:
    """Facts about data without the contact sheet, which has a section of its own."""
    return {key: value for key, value in facts.items() if key != SHEET} if isinstance(facts, dict) else facts


def _moment(stamp: str) -> str:
    """An ISO time as `2026-01-02 10:41 UTC`; anything else as it is."""
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return stamp
    return f"{moment:%Y-%m-%d %H:%M} {moment.tzname() or ''}".strip()


def _part(plan: dict[str, Any], key: str) -> dict[str, Any]:
    part = plan.get(key)
    return part if isinstance(part, dict) else {}
