"""JUnit XML: a test suite per cell, a test case per finding, for CI systems.

A leak, an unsound or unsupported claim and a broken policy rule are failures; what could not be
decided (inconclusive, a failed part of the run) is an error; what was not run is skipped. Held to a
policy, only its rules fail, so that the document says what the exit code says. The document
is valid under the two schemas in use, Apache Ant's (strict) and Jenkins's junit-10 (lax).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal
from xml.etree import ElementTree

from fedassay.contracts.registry import claim_audit, judges_the_claim
from fedassay.records.record import CellRecord, Finding, RunRecord, Verdict
from fedassay.reports.document.plan_notes import name_of
from fedassay.reports.gate.baseline import Difference
from fedassay.reports.gate.judgement import Judgement, Mark
from fedassay.reports.gate.judging import Outcome
from fedassay.reports.words.claims import claims
from fedassay.reports.words.groups import asked_words, cell_name, several_deltas, several_seeds
from fedassay.reports.words.numbers import interval, significant, with_kind
from fedassay.reports.words.verdicts import LOOKS
from fedassay.support.text import plain_lines

State = Literal["failure", "error", "skipped", "passed"]

_STATES: dict[Verdict, State] = {
    "unsound": "failure",
    "leak": "failure",
    "unsupported": "failure",
    "not_refuted": "error",
    "inconclusive": "error",
    "not_run": "skipped",
    "no_leak_found": "passed",
    "sound": "passed",
}

_OF_MARK: dict[Mark, State] = {
    "broken": "failure",
    "not tested": "error",
    "open": "error",
    "bounded by the claim": "passed",
    "kept": "passed",
    "does not apply": "skipped",
}


@dataclass(frozen=True)
class TestCase:
    """One test case.

    Attributes:
        name: Name of the test.
        state: State of the test.
        kind: The verdict or the policy state, as the `type` of a failure.
        message: The reason, in one sentence.
        detail: The measured figures, one a line.
    """

    name: str
    state: State
    kind: str
    message: str
    detail: str = ""


def junit(record: RunRecord, outcome: Outcome | None = None) -> str:
    """A run as JUnit XML.

    Args:
        record: The run.
        outcome: Outcome of a policy on it, if it was held against one.
    """
    deltas, seeds = several_deltas(record), several_seeds(record)
    root = ElementTree.Element("testsuites")
    common = {"package": _token(name_of(record)), "hostname": "localhost", "timestamp": _timestamp(record)}
    for cell in record.cells:
        cases = [
            _claim(cell),
            *(_case(finding) for finding in cell.findings if not judges_the_claim(finding.audit)),
        ]
        if outcome is not None:
            # The policy decides; what it lets pass must not fail the job that asks it, and is no pass either.
            cases = [case if case.state == "passed" else replace(case, state="skipped") for case in cases]
        about = {
            "method": cell.method,
            "epsilon": asked_words(cell.asked),
            "delta": f"{cell.delta:g}",
            "adjacency": cell.adjacency,
            "unit": cell.unit,
            "seed": str(cell.seed),
        }
        _suite(root, cell_name(cell, deltas, seeds), cases, common, about, sum(cell.seconds.values()))
    if record.errors:
        failed = [
            TestCase(f"{error.cell}: {error.stage}", "error", "run", error.message) for error in record.errors
        ]
        _suite(root, "run", failed, common)
    if outcome is not None:
        judged = [
            TestCase(f"{item.rule}: {item.cell or 'run'}", _judged(item), item.mark, f"{item.mark}: {item.why}")
            for item in outcome.judgements
        ]
        _suite(root, f"policy {outcome.policy}", judged, common)
        if outcome.changed is not None:
            held = [_difference(number, each) for number, each in enumerate(outcome.changed, 1)]
            _suite(root, "baseline", held or [TestCase("differences", "passed", "", "none")], common)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _judged(item: Judgement) -> State:
    """State of a rule in JUnit; one that the policy lets pass fails no job."""
    state = _OF_MARK[item.mark]
    return "skipped" if item.state == "pass" and state == "error" else state


def _suite(
    root: ElementTree.Element,
    name: str,
    cases: Sequence[TestCase],
    common: Mapping[str, str],
    about: Mapping[str, str] | None = None,
    seconds: float = 0.0,
) -> None:
    """Append a suite; Ant's schema wants its attributes and children all there, in this order."""
    suite = ElementTree.SubElement(root, "testsuite", {**common, "id": str(len(root)), "name": _token(name)})
    suite.set("tests", str(len(cases)))
    for key, state in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(sum(case.state == state for case in cases)))
    suite.set("time", f"{seconds:.3f}")
    properties = ElementTree.SubElement(suite, "properties")
    for key, value in (about or {}).items():
        ElementTree.SubElement(properties, "property", name=key, value=_clean(value))
    for case in cases:
        element = ElementTree.SubElement(
            suite, "testcase", classname=_token(name), name=_token(case.name), time="0"
        )
        if case.state == "skipped":
            ElementTree.SubElement(element, "skipped", message=_clean(case.message))
        elif case.state != "passed":
            problem = ElementTree.SubElement(element, case.state, message=_clean(case.message), type=case.kind)
            problem.text = _clean("\n".join(part for part in (case.message, case.detail) if part))
    written = [f"{case.name}\n{case.message}\n{case.detail}".rstrip() for case in cases]
    ElementTree.SubElement(suite, "system-out").text = _clean("\n\n".join(written))
    ElementTree.SubElement(suite, "system-err")


def _claim(cell: CellRecord) -> TestCase:
    privacy = cell.privacy
    held = {
        "claimed": cell.claimed if claims(cell) else None,
        "accounted": cell.accounted,
        "observed": cell.observed,
    }
    lines = [f"{key} = {with_kind(found, significant)}" for key, found in held.items() if found is not None]
    if privacy.mu is not None:
        lines.append(f"mu = {significant(privacy.mu)}")
    detail = "\n".join(lines)
    message = f"{LOOKS[privacy.verdict].word}: {privacy.reason or detail.replace(chr(10), ', ')}"
    return TestCase(claim_audit(), _STATES[privacy.verdict], privacy.verdict, message, detail)


def _case(finding: Finding) -> TestCase:
    about = ", ".join(part for part in (finding.attack, finding.source, finding.selection) if part)
    detail = "\n".join(
        " ".join(filter(None, (f"{key} = {significant(metric.value)}", interval(metric), metric.unit)))
        if metric.value is not None
        else f"{key}: not measured: {metric.reason}"
        for key, metric in finding.metrics.items()
    )
    message = f"{LOOKS[finding.verdict].word}: {finding.reason}"
    name = f"{finding.audit}: {about}" if about else finding.audit
    return TestCase(name, _STATES[finding.verdict], finding.verdict, message, detail)


def _difference(number: int, each: Difference) -> TestCase:
    """A difference from the earlier run: it fails where something became worse, and says so where nothing did."""
    state: State = "failure" if each.worse else "error" if each.about == "nothing" else "passed"
    return TestCase(f"difference {number}", state, "worse" if each.worse else each.about, each.words)


def _timestamp(record: RunRecord) -> str:
    """Start time of the run without its time zone, as the schema requires."""
    try:
        started = datetime.fromisoformat(str(record.environment.get("started")))
    except ValueError:
        return "1970-01-01T00:00:00"
    return f"{started:%Y-%m-%dT%H:%M:%S}"


def _token(words: str) -> str:
    return " ".join(_clean(words).split()) or "unnamed"


def _clean(words: str) -> str:
    """Text without hidden characters, without those that XML 1.0 cannot hold, and without commands.

    Jenkins and GitLab attach the file that `[[ATTACHMENT|path]]` names.
    """
    kept = re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", words)
    return plain_lines(re.sub(r"\[(?=\[)", "[ ", kept))
