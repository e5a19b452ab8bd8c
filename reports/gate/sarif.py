"""SARIF 2.1.0: findings as results, one rule per audit, for code-scanning tools.

A result is what somebody must act on: a leak, an unsound or unsupported claim, a field that leaves
exactly under a finite claim, an audit that could not conclude, a part of the run that failed, a
policy rule that is broken. Held to a policy, only its broken rules are errors, so that the log
says what the exit code says. What passed appears as a result of kind `pass`, so that a tool can tell a
clean audit from an audit that never ran.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0, 2020, section 3.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from fedassay.contracts.facts import SarifRule
from fedassay.contracts.registry import audit_facts, claim_audit, judges_the_claim
from fedassay.records.record import FILE, CellRecord, Finding, RunRecord, Verdict
from fedassay.reports.answer.answer import answer
from fedassay.reports.gate.judgement import Mark
from fedassay.reports.gate.judging import Outcome
from fedassay.reports.gate.places import Place, cell_places, errors_place
from fedassay.reports.gate.policy import Policy
from fedassay.reports.words.claims import claims
from fedassay.reports.words.groups import cell_name, part_in_words, several_deltas, several_seeds
from fedassay.reports.words.numbers import beside, interval, significant, with_kind
from fedassay.reports.words.verdicts import LOOKS
from fedassay.support.text import plain_tree
from fedassay.support.version import __version__

SCHEMA_URI = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

RULES: Mapping[str, SarifRule] = {
    "exact_field": SarifRule(
        "A field that leaves a client exactly voids any finite epsilon.",
        help="Noise the field, or name an adjacency that makes it public if it is.",
        severity=8.5,
    ),
    "run": SarifRule(
        "Every part of a run must finish.",
        taxa=(),
        help="Mend what failed, and continue with --resume.",
        severity=5.0,
    ),
    "answer": SarifRule(
        "Whether the release may be deployed.",
        taxa=(),
        help="Do what the message names next.",
        severity=8.5,
    ),
    "policy": SarifRule(
        "A run must keep the policy it is held against.",
        taxa=(),
        help="See the reason: what is broken must be mended, what is undecided needs another run.",
        severity=8.0,
    ),
    "baseline": SarifRule(
        "A run must not be worse than the earlier one that it is held against.",
        taxa=(),
        help="See what became worse: mend it, or make the newer run the baseline if it is meant.",
        severity=8.0,
    ),
}
"""Rules that are no audit's; those of audits stand with them."""

_TAXONOMIES: Mapping[str, tuple[str, str, str]] = {
    "CWE-": ("CWE", "MITRE", "The MITRE Common Weakness Enumeration"),
    "AML.": ("ATLAS", "MITRE", "Adversarial Threat Landscape for Artificial-Intelligence Systems"),
    "ML": ("OWASP-ML", "OWASP", "OWASP Machine Learning Security Top 10, 2023"),
}
"""Name, organization and description of each taxonomy, by how the names of its taxa begin."""

# SARIF: `level` is for results of kind `fail` and must be `none` for every other kind (3.27.10).
_KINDS: Mapping[Verdict, tuple[str, str]] = {
    "unsound": ("fail", "error"),
    "leak": ("fail", "error"),
    "unsupported": ("fail", "warning"),
    "not_refuted": ("open", "none"),
    "inconclusive": ("open", "none"),
    "not_run": ("notApplicable", "none"),
    "no_leak_found": ("pass", "none"),
    "sound": ("pass", "none"),
}

_OF_MARK: Mapping[Mark, tuple[str, str]] = {
    "broken": ("fail", "error"),
    "not tested": ("open", "none"),
    "open": ("open", "none"),
    "bounded by the claim": ("informational", "none"),
    "kept": ("pass", "none"),
    "does not apply": ("notApplicable", "none"),
}
"""Only what was measured passes."""


def sarif(record: RunRecord, outcome: Outcome | None = None, policy: Policy | None = None) -> str:
    """A run as a SARIF log.

    Args:
        record: The run.
        outcome: Outcome of a policy on it, if it was held against one.
        policy: That policy; None: the answer is that of the shipped one that fits.
    """
    results: list[dict[str, Any]] = [_answer(record, policy, outcome)]
    deltas, seeds = several_deltas(record), several_seeds(record)
    cells: dict[str, Place] = {}
    for cell, (place, findings) in zip(record.cells, cell_places(record), strict=True):
        name = cell_name(cell, deltas, seeds)
        cells[name] = place
        results.append(_claim(cell, name, place))
        results += _exact(cell, name, place)
        for finding, where in zip(cell.findings, findings, strict=True):
            if not judges_the_claim(finding.audit):
                results.append(_finding(finding, name, where))
    whole = errors_place(record)
    for error in record.errors:
        text = f"{error.cell}: {part_in_words(error.stage)} broke off: {error.message}"
        results.append(_result("run", "fail", "error", text, whole, f"{error.cell}/{error.stage}"))
    if outcome is not None:
        # The policy decides what is an error; what it lets pass must not fail the job that asks it.
        for result in results:
            if result["ruleId"] != "answer":
                result["level"] = "note" if result["kind"] == "fail" else result["level"]
        results += _of_policy(outcome, cells, whole)
    used = list(dict.fromkeys(result["ruleId"] for result in results))
    for result in results:
        result["ruleIndex"] = used.index(result["ruleId"])
    log = {
        "$schema": SCHEMA_URI,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "fedassay",
                        "version": __version__,
                        "rules": [_rule(name) for name in used],
                    }
                },
                "invocations": [{"executionSuccessful": not record.errors}],
                "taxonomies": _taxonomies(used),
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }
    # A viewer may print what the escapes of JSON stand for.
    return json.dumps(plain_tree(log), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _of_policy(outcome: Outcome, cells: Mapping[str, Place], whole: Place) -> Iterator[dict[str, Any]]:
    """The judgements of a policy, and what changed since a baseline."""
    for judgement in outcome.judgements:
        kind, level = _OF_MARK[judgement.mark]
        text = f"{judgement.mark.capitalize()}: {judgement.sentence}"
        identity = f"{judgement.rule}/{judgement.cell}"
        yield _result("policy", kind, level, text, cells.get(judgement.cell, whole), identity)
    for number, each in enumerate(outcome.changed or ()):
        kind, level = ("fail", "error") if each.worse else ("informational", "none")
        yield _result("baseline", kind, level, each.words, whole, str(number))


def _answer(record: RunRecord, policy: Policy | None, outcome: Outcome | None) -> dict[str, Any]:
    """The answer, as every other format gives it: an error where it is no and somebody asked by a policy."""
    found = answer(record, policy, judgements=None if outcome is None else outcome.judgements)
    kind = {"yes": "pass", "no": "fail", "not yet": "open"}[found.answer]
    level = "none" if kind != "fail" else "warning" if policy is None else "error"
    place = errors_place(record)
    return _result("answer", kind, level, f"{found.text} Next: {found.next.what}", place, "answer")


def _rule(name: str) -> dict[str, Any]:
    rule = _declared(name)
    return {
        "id": name,
        "name": "".join(part.capitalize() for part in name.split("_")),
        "shortDescription": {"text": _message(rule.text)},
        "defaultConfiguration": {"level": "error"},
        "relationships": [
            {"target": {"id": taxon, "toolComponent": {"name": _taxonomy_of(taxon)}}, "kinds": ["superset"]}
            for taxon in rule.taxa
        ],
        "help": {"text": _message(rule.help)},
        **({"helpUri": uri} if (uri := _help_uri(rule)) else {}),
        "properties": {
            "tags": [
                "security",
                "privacy",
                *(f"external/cwe/{taxon.lower()}" for taxon in rule.taxa if "CWE" in taxon),
            ],
            "security-severity": f"{rule.severity:.1f}",
        },
    }


def _help_uri(rule: SarifRule) -> str:
    """The page on the weakness that a rule speaks of; empty where it speaks of none."""
    numbers = (taxon.removeprefix("CWE-") for taxon in rule.taxa if taxon.startswith("CWE-"))
    return next((f"https://cwe.mitre.org/data/definitions/{number}.html" for number in numbers), "")


def _declared(name: str) -> SarifRule:
    """A rule of the run's own, what an audit declares, or one made of the name of an audit that is not here."""
    facts = None if name in RULES else audit_facts(name)
    declared = RULES.get(name) if facts is None else facts.rule
    return declared or SarifRule(f"The audit {name} must find no leak.")


def _taxonomies(rules: Iterable[str]) -> list[dict[str, Any]]:
    """Threats that the rules speak of, by taxonomy."""
    taxa = sorted({taxon for name in rules for taxon in _declared(name).taxa})
    return [
        {
            "name": name,
            "organization": organization,
            "shortDescription": {"text": about},
            "taxa": [{"id": taxon} for taxon in taxa if _taxonomy_of(taxon) == name],
        }
        for name, organization, about in _TAXONOMIES.values()
        if any(_taxonomy_of(taxon) == name for taxon in taxa)
    ]


def _taxonomy_of(taxon: str) -> str:
    """The name of the taxonomy that a taxon is of; of one that is not known, its own beginning."""
    known = next((names for start, names in _TAXONOMIES.items() if taxon.startswith(start)), None)
    return taxon.split("-", maxsplit=1)[0] if known is None else known[0]


def _claim(cell: CellRecord, name: str, place: Place) -> dict[str, Any]:
    privacy = cell.privacy
    kind, level = _KINDS[privacy.verdict]
    claimed = f"claimed {with_kind(cell.claimed)}" if claims(cell) and cell.claimed is not None else "no claim"
    accounted = "not accounted" if cell.accounted is None else f"accounted {beside(cell.accounted, cell.asked)}"
    observed = (
        "nothing observed" if cell.observed is None else f"observed at least {beside(cell.observed, cell.asked)}"
    )
    text = f"{name}: {LOOKS[privacy.verdict].word.lower()}: {claimed}, {accounted}, {observed}."
    if privacy.reason:
        text += f" {privacy.reason}"
    return _result(claim_audit(), kind, level, text, place, f"{name}/claim")


def _exact(cell: CellRecord, name: str, place: Place) -> list[dict[str, Any]]:
    """Fields that leave exactly: errors where a finite epsilon is claimed, notes elsewhere."""
    unbounded = cell.accounted is not None and not cell.accounted.finite
    level = "error" if claims(cell) and unbounded else "note"
    return [
        _result(
            "exact_field",
            "fail",
            level,
            f"{name}: field {field!r} leaves the clients exactly.",
            place,
            f"{name}/{field}",
        )
        for field in cell.privacy.exact_fields
    ]


def _finding(finding: Finding, name: str, place: Place) -> dict[str, Any]:
    kind, level = _KINDS[finding.verdict]
    about = ", ".join(part for part in (name, finding.source, finding.selection) if part)
    text = f"{about}: {LOOKS[finding.verdict].word.lower()}: {finding.reason}"
    identity = "/".join(
        str(part) for part in (name, finding.audit, finding.attack, finding.source, finding.selection)
    )
    result = _result(finding.audit, kind, level, text, place, identity)
    result["properties"] = {
        key: " ".join(filter(None, (significant(metric.value), interval(metric), metric.unit)))
        for key, metric in finding.metrics.items()
        if metric.value is not None
    }
    return result


def _result(rule: str, kind: str, level: str, text: str, place: Place, identity: str) -> dict[str, Any]:
    record_location = _physical(FILE, place.line)
    return {
        "ruleId": rule,
        "kind": kind,
        "level": level,
        "message": {"text": _message(text)},
        "locations": [
            {
                "physicalLocation": _physical(place.plan, place.plan_line) if place.plan else record_location,
                "logicalLocations": [{"fullyQualifiedName": place.path, "kind": "member"}],
            }
        ],
        **({"relatedLocations": [{"id": 1, "physicalLocation": record_location}]} if place.plan else {}),
        "partialFingerprints": {
            "fedassay/v1": hashlib.sha256(f"{rule}/{identity}".encode()).hexdigest(),
        },
    }


def _message(text: str) -> str:
    """A message's plain text: no placeholder (3.11.5) and no embedded link (3.11.6), whatever it holds."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "] (")


def _physical(file: str, line: int) -> dict[str, Any]:
    return {"artifactLocation": {"uri": quote(file)}, "region": {"startLine": line}}
