"""JUnit XML: a test suite per cell, a test case per finding, for CI systems.

A leak, an unsound or unsupported claim and a broken policy rule are failures; what could not be
decided (inconclusive, a failed part of the run) is an error; what was not run is skipped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from fedassay.record import CellRecord, Finding, RunRecord, Verdict
from fedassay.reports.groups import cell_name, several_deltas, several_seeds
from fedassay.reports.judging import Outcome
from fedassay.reports.numbers import interval, short, significant
from fedassay.reports.plan_notes import name_of
from fedassay.reports.verdicts import LOOKS

State = Literal["failure", "error", "skipped", "passed"]

_STATES: dict[Verdict, State] = {
    "unsound": "failure",
    "leak": "failure",
    "unsupported": "failure",
    "inconclusive": "error",
    "not_run": "skipped",
    "no_leak_found": "passed",
    "sound": "passed",
}


@dataclass(frozen=True)
class Case:
    """One test case: its name, how it came out, and what to say about it."""

    name: str
    state: State
    kind: str
    message: str
    output: str = ""


def junit(record: RunRecord, outcome: Outcome | None = None) -> str:
    """A run as JUnit XML.

    Args:
        record: The run.
        outcome: What a policy said about it, if it was held against one.
    """
    deltas, seeds = several_deltas(record), several_seeds(record)
    root = ElementTree.Element("testsuites")
    for cell in record.cells:
        cases = [_claim(cell), *(_case(finding) for finding in cell.findings if finding.audit != "dp_claim")]
        _suite(root, f"{name_of(record)}: {cell_name(cell, deltas, seeds)}", cases, sum(cell.seconds.values()))
    if record.errors:
        failed = [Case(f"{error.cell}: {error.stage}", "error", "run", error.message) for error in record.errors]
        _suite(root, f"{name_of(record)}: run", failed, 0.0)
    if outcome is not None:
        states: dict[str, State] = {"pass": "passed", "broken": "failure", "undecided": "error"}
        judged = [
            Case(f"{item.rule}: {item.cell or 'run'}", states[item.state], item.state, item.why)
            for item in outcome.judgements
        ]
        _suite(root, f"policy {outcome.policy}", judged, 0.0)
    totals = {
        key: sum(int(suite.get(key, "0")) for suite in root) for key in ("tests", "failures", "errors", "skipped")
    }
    for key, value in totals.items():
        if key != "skipped":
            root.set(key, str(value))
    root.set("name", _clean(name_of(record)))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(root: ElementTree.Element, name: str, cases: Sequence[Case], seconds: float) -> None:
    suite = ElementTree.SubElement(
        root, "testsuite", name=_clean(name), tests=str(len(cases)), time=f"{seconds:.3f}"
    )
    for key, state in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(sum(case.state == state for case in cases)))
    for case in cases:
        element = ElementTree.SubElement(suite, "testcase", classname=_clean(name), name=_clean(case.name))
        if case.state in {"failure", "error"}:
            detail = ElementTree.SubElement(element, case.state, message=_clean(case.message), type=case.kind)
            detail.text = _clean(case.message)
        elif case.state == "skipped":
            ElementTree.SubElement(element, "skipped", message=_clean(case.message))
        if case.output:
            ElementTree.SubElement(element, "system-out").text = _clean(case.output)


def _claim(cell: CellRecord) -> Case:
    privacy = cell.privacy
    parts = [
        f"{name} {significant(value)}"
        for name, value in (
            ("claimed", None if privacy.claimed is None or math.isinf(privacy.claimed) else privacy.claimed),
            ("accounted", privacy.accounted),
            ("observed", privacy.observed),
        )
        if value is not None
    ]
    message = f"{LOOKS[privacy.verdict].word}: {', '.join(parts) or 'no number'}. {privacy.reason}".strip()
    return Case(f"dp_claim: ε = {short(cell.epsilon)}", _STATES[privacy.verdict], privacy.verdict, message)


def _case(finding: Finding) -> Case:
    name = ": ".join(
        part for part in (finding.audit, ", ".join(filter(None, (finding.source, finding.selection)))) if part
    )
    numbers = "\n".join(
        f"{key} = {significant(metric.value)} {interval(metric)}".strip()
        if metric.value is not None
        else f"{key}: not measured: {metric.reason}"
        for key, metric in finding.metrics.items()
    )
    message = f"{LOOKS[finding.verdict].word}: {finding.reason}"
    return Case(name, _STATES[finding.verdict], finding.verdict, message, numbers)


def _clean(words: str) -> str:
    """Text without the control characters that XML 1.0 cannot hold."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", words)
