"""SARIF, JUnit XML, Markdown and JSON: valid, complete, and saying the same as the record."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from fedassay.records.record import Finding, RunRecord, load_record
from fedassay.reports import render
from fedassay.reports.gate.judging import Outcome, judged
from fedassay.reports.gate.places import cell_places
from fedassay.reports.gate.policy import Policy

# The parts of SARIF 2.1.0 that a log like ours must have (sections 3.13, 3.14, 3.19, 3.27, 3.49).
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "$schema": {"type": "string", "format": "uri"},
        "runs": {
            "type": "array",
            "items": {
                "required": ["tool", "results"],
                "properties": {
                    "tool": {
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "required": ["name", "rules"],
                                "properties": {
                                    "rules": {
                                        "uniqueItems": True,
                                        "items": {
                                            "required": ["id", "shortDescription"],
                                            "properties": {"shortDescription": {"required": ["text"]}},
                                        },
                                    }
                                },
                            }
                        },
                    },
                    "invocations": {"items": {"required": ["executionSuccessful"]}},
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "results": {
                        "items": {
                            "required": ["message", "ruleId", "ruleIndex", "kind", "level", "locations"],
                            "properties": {
                                "message": {"required": ["text"], "properties": {"text": {"minLength": 1}}},
                                "kind": {
                                    "enum": ["pass", "open", "informational", "notApplicable", "review", "fail"]
                                },
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "locations": {"minItems": 1},
                            },
                        }
                    },
                },
            },
        },
    },
}


@pytest.fixture(scope="module")
def log(run: Path, record: RunRecord) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(render(run, record, "sarif"))
    return found


@pytest.fixture(scope="module")
def results(log: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = log["runs"][0]["results"]
    return found


def test_sarif_has_what_the_specification_requires(log: dict[str, Any]) -> None:
    jsonschema.validate(log, SARIF)


def test_sarif_is_valid_under_the_published_schema(log: dict[str, Any]) -> None:
    folder = os.environ.get("FEDASSAY_SCHEMAS")
    if not folder or not (Path(folder) / "sarif-schema-2.1.0.json").is_file():
        pytest.skip("FEDASSAY_SCHEMAS names no folder with OASIS's sarif-schema-2.1.0.json")
    schema = json.loads((Path(folder) / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
    jsonschema.validators.validator_for(schema)(schema).validate(log)


def test_sarif_levels_belong_to_failures_alone(results: list[dict[str, Any]]) -> None:
    for result in results:
        assert (result["level"] == "none") is (result["kind"] != "fail")


def test_sarif_rules_are_indexed(log: dict[str, Any], results: list[dict[str, Any]]) -> None:
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in results)
    assert {rule["id"] for rule in rules} == {result["ruleId"] for result in results}


def test_sarif_has_a_result_for_every_verdict(record: RunRecord, results: list[dict[str, Any]]) -> None:
    kinds = {
        "leak": ("fail", "error"),
        "no_leak_found": ("pass", "none"),
        "inconclusive": ("open", "none"),
        "not_run": ("notApplicable", "none"),
    }
    findings = [finding for cell in record.cells for finding in cell.findings if finding.audit != "dp_claim"]
    listed = [r for r in results if r["ruleId"] not in {"dp_claim", "exact_field", "run", "answer"}]
    assert [(r["ruleId"], r["kind"], r["level"]) for r in listed] == [
        (f.audit, *kinds[f.verdict]) for f in findings
    ]
    claims = [r for r in results if r["ruleId"] == "dp_claim"]
    assert len(claims) == len(record.cells)
    assert [r["message"]["text"] for r in results if r["ruleId"] == "run"] == [
        "feddiff, ε = 1: the method broke off: out of memory at step 12"
    ]


def test_sarif_exact_fields_are_errors_only_under_a_claim_that_they_void(
    record: RunRecord, results: list[dict[str, Any]]
) -> None:
    exact = [r for r in results if r["ruleId"] == "exact_field"]
    assert len(exact) == sum(len(cell.privacy.exact_fields) for cell in record.cells)
    errors = [r["message"]["text"] for r in exact if r["level"] == "error"]
    assert errors
    assert all(text.startswith(("fedlog", "feddiff, ε = 10")) for text in errors)


def test_sarif_lines_point_into_the_record_on_disk(run: Path, record: RunRecord) -> None:
    lines = (run / "record.json").read_text(encoding="utf-8").splitlines()
    for cell, (place, findings) in zip(record.cells, cell_places(record), strict=True):
        assert lines[place.line - 1] == "  {"
        assert lines[place.line] == f'   "method": "{cell.method}",'
        for finding, where in zip(cell.findings, findings, strict=True):
            assert lines[where.line] == f'     "audit": "{finding.audit}",'


def test_sarif_fingerprints_are_unique_and_stable(record: RunRecord, results: list[dict[str, Any]]) -> None:
    prints = [result["partialFingerprints"]["fedassay/v1"] for result in results]
    assert len(prints) == len(set(prints))
    worse = record.model_copy(
        update={"cells": tuple(cell.model_copy(update={"utility": {"accuracy": 0.1}}) for cell in record.cells)}
    )
    again = json.loads(render(Path(), worse, "sarif"))["runs"][0]["results"]
    assert [result["partialFingerprints"]["fedassay/v1"] for result in again] == prints


def test_an_audit_of_a_third_party_gets_a_rule(build_cell: Any) -> None:
    finding = Finding(audit="their_audit", verdict="leak", reason="r")
    cell = build_cell(None, "fedpft", "fedpft", math.inf, 0, findings=(finding,))
    log = json.loads(render(Path(), RunRecord(plan={}, environment={}, cells=(cell,)), "sarif"))
    assert "their_audit" in {rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]}


def test_junit_counts_what_it_holds(run: Path, record: RunRecord) -> None:
    root = ElementTree.fromstring(render(run, record, "junit"))
    assert root.tag == "testsuites"
    assert not root.attrib
    assert [suite.get("id") for suite in root] == [str(i) for i in range(len(root))]
    for suite in root:
        assert [child.tag for child in suite][:1] == ["properties"]
        assert [child.tag for child in suite][-2:] == ["system-out", "system-err"]
        assert {"package", "hostname", "timestamp", "tests", "failures", "errors", "time"} <= set(suite.attrib)
        cases = suite.findall("testcase")
        assert int(suite.get("tests", "")) == len(cases)
        for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(key, "")) == len(suite.findall(f"testcase/{tag}"))
        assert all(len(case) <= 1 and {"name", "classname", "time"} <= set(case.attrib) for case in cases)


def test_junit_states_follow_the_verdicts(run: Path, record: RunRecord) -> None:
    root = ElementTree.fromstring(render(run, record, "junit"))
    tags = {
        "leak": "failure",
        "unsound": "failure",
        "unsupported": "failure",
        "inconclusive": "error",
        "not_run": "skipped",
        "no_leak_found": None,
        "sound": None,
    }
    for cell, suite in zip(record.cells, root, strict=False):
        attacks = [finding.verdict for finding in cell.findings if finding.audit != "dp_claim"]
        verdicts = [cell.privacy.verdict, *attacks]
        states = [case[0].tag if len(case) else None for case in suite.findall("testcase")]
        assert states == [tags[verdict] for verdict in verdicts]
    assert root[len(record.cells)].get("name") == "run"


def test_junit_survives_control_characters(build_cell: Any) -> None:
    finding = Finding(audit="message", verdict="leak", reason="a\x00b\x1b[0m <&>")
    cell = build_cell(None, "fedpft", "fedpft", math.inf, 0, findings=(finding,))
    text = render(Path(), RunRecord(plan={}, environment={}, cells=(cell,)), "junit")
    failure = ElementTree.fromstring(text).find(".//failure")
    assert failure is not None
    assert failure.get("message") == "Leak: a\ufffdb\ufffd[0m <&>"


def test_markdown_is_one_table_of_verdicts_and_one_of_numbers(run: Path, record: RunRecord) -> None:
    text = render(run, record, "md")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    # The decision has a row a method, verdicts and numbers one a method and epsilon.
    assert len(rows) == (2 + 7) + (2 + 13) + 3 * (2 + 12)
    assert (
        "| ▲ **Claim exceeded** | fedlog | 1 (one record added or removed) | Claims ε = 1 (one record added or "
        "removed), but clients send the fields counts and statistics without noise" in text
    )
    assert "| dp | 10 (one record replaced, same label) | 0.906" in text
    assert "52 of 58 controls came out as they must." in text
    assert len(text) < 11000


def test_markdown_cannot_be_broken_out_of(build_cell: Any) -> None:
    finding = Finding(
        audit="message", verdict="leak", reason="r", source="a | b\n# head <img src=x> [x](http://e) @team"
    )
    cell = build_cell(None, "fedpft", "fedpft", math.inf, 0, findings=(finding,))
    text = render(Path(), RunRecord(plan={"name": "p"}, environment={}, cells=(cell,)), "md")
    (row,) = [line for line in text.splitlines() if "Leak" in line and line.startswith("|")]
    assert r"from a \| b \# head \<img src=x\> \[x\](`http://`e) `@`team" in row


def test_json_is_the_record(run: Path, record: RunRecord, tmp_path: Path) -> None:
    (tmp_path / "again.json").write_text(render(run, record, "json"), encoding="utf-8")
    assert load_record(tmp_path / "again.json") == record


def _held(record: RunRecord, **rules: Any) -> tuple[Outcome, dict[str, Any], ElementTree.Element]:
    policy = Policy(name="test", **rules)
    log = json.loads(render(Path(), record, "sarif", policy))["runs"][0]
    return judged(record, policy), log, ElementTree.fromstring(render(Path(), record, "junit", policy))


@pytest.mark.parametrize(
    "rules",
    [{"minimum": {"accuracy": 0.01}}, {"forbidden_verdicts": ("leak",)}, {"maximum": {"psnr": 1000.0}}],
    ids=["pass", "broken", "undecided"],
)
def test_sarif_and_junit_say_what_the_exit_code_says(record: RunRecord, rules: dict[str, Any]) -> None:
    calm = record.model_copy(update={"errors": ()})
    outcome, log, junit = _held(calm, **rules)
    errors = [result for result in log["results"] if result["level"] in {"error", "warning"}]
    failures = sum(int(suite.get("failures", 0)) for suite in junit.iter("testsuite"))
    undecided = sum(int(suite.get("errors", 0)) for suite in junit.iter("testsuite"))
    assert bool(errors) == (outcome.exit_code == 1)
    assert all(result["ruleId"] == "policy" for result in errors)
    assert bool(failures) == (outcome.exit_code == 1)
    assert bool(undecided) == any(judgement.state == "undecided" for judgement in outcome.judgements)
    open_ = [item for item in log["results"] if item["ruleId"] == "policy" and item["kind"] == "open"]
    assert bool(open_) == any(judgement.state == "undecided" for judgement in outcome.judgements)


def test_sarif_points_at_the_line_of_the_plan_that_named_the_method(record: RunRecord) -> None:
    source = {"file": "plans/my plan.yaml", "lines": {"fedcgs": 17}}
    placed = record.model_copy(update={"environment": {**record.environment, "plan": source}})
    results = json.loads(render(Path(), placed, "sarif"))["runs"][0]["results"]
    of_fedcgs = [result for result in results if result["message"]["text"].startswith("fedcgs, ")]
    assert of_fedcgs
    for result in of_fedcgs:
        place = result["locations"][0]["physicalLocation"]
        assert place == {"artifactLocation": {"uri": "plans/my%20plan.yaml"}, "region": {"startLine": 17}}
        related = result["relatedLocations"][0]["physicalLocation"]
        assert related["artifactLocation"]["uri"] == "record.json"


def test_sarif_rules_have_help_severity_and_known_taxa(log: dict[str, Any]) -> None:
    run = log["runs"][0]
    known = {taxon["id"]: taxonomy["name"] for taxonomy in run["taxonomies"] for taxon in taxonomy["taxa"]}
    assert {"CWE", "ATLAS", "OWASP-ML"} <= set(known.values())
    for rule in run["tool"]["driver"]["rules"]:
        assert rule["help"]["text"]
        assert 0 < float(rule["properties"]["security-severity"]) <= 10
        for relation in rule["relationships"]:
            target = relation["target"]
            assert known[target["id"]] == target["toolComponent"]["name"]
