"""Policies pass, break or cannot decide, and never guess."""

from __future__ import annotations

import json
import math
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fedassay.records.record import Coverage, ErrorRecord, Finding, Limit, Metric, RunRecord, unmeasured
from fedassay.reports.decision.words import in_words
from fedassay.reports.document.output import write_page
from fedassay.reports.gate.check import check_record
from fedassay.reports.gate.judging import Judgement, Outcome
from fedassay.reports.gate.junit import junit
from fedassay.reports.gate.policy import Policy, Scope, bounded_metrics, load_policy, parse_policy
from fedassay.reports.gate.sarif import sarif
from fedassay.support.errors import PlanError


def run_of(*cells: Any, errors: tuple[ErrorRecord, ...] = ()) -> RunRecord:
    return RunRecord(plan={"name": "p"}, environment={}, cells=cells, errors=errors)


def states(outcome: Outcome) -> list[str]:
    return [judgement.state for judgement in outcome.judgements]


def gain(value: float | None, half: float = 0.01, verdict: str = "no_leak_found", reason: str = "r") -> Finding:
    metric = (
        unmeasured("no weights") if value is None else Metric(value=value, low=value - half, high=value + half)
    )
    return Finding(audit="reconstruction", verdict=verdict, reason=reason, metrics={"ssim_gain": metric})


@pytest.mark.parametrize(
    ("findings", "state"),
    [
        ((gain(0.02),), "pass"),
        ((gain(0.08),), "broken"),
        ((gain(0.045),), "undecided"),
        ((gain(None),), "undecided"),
        ((), "undecided"),
        ((gain(0.02), gain(0.08)), "broken"),
        ((gain(0.02), gain(0.02, verdict="inconclusive")), "undecided"),
        ((gain(0.08), gain(0.02, verdict="inconclusive")), "broken"),
        ((gain(0.08, verdict="inconclusive"),), "undecided"),
    ],
)
def test_a_number_decides_only_with_its_whole_interval(
    build_cell: Any, findings: tuple[Finding, ...], state: str
) -> None:
    cell = build_cell(None, "fedpft", "fedpft", 1.0, 0, findings=findings)
    outcome = check_record(run_of(cell), Policy(name="p", maximum={"ssim_gain": 0.05}))
    assert states(outcome) == [state]
    assert outcome.exit_code == {"pass": 0, "broken": 1, "undecided": 2}[state]


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        (Policy(name="p", maximum={"observed": 1.0}), "pass"),
        (Policy(name="p", maximum={"observed": 0.5}), "broken"),
        (Policy(name="p", maximum={"accounted": 2.0}), "pass"),
        (Policy(name="p", maximum={"accounted": 0.9}), "broken"),
        (Policy(name="p", maximum={"mu": 1.0}), "undecided"),
        (Policy(name="p", maximum={"bytes_up": 1e9}), "pass"),
        (Policy(name="p", minimum={"accuracy": 0.5}), "pass"),
        (Policy(name="p", minimum={"accuracy": 0.99}), "broken"),
        (Policy(name="p", minimum={"accuracy": 0.87}), "undecided"),
        (Policy(name="p", exact_fields="forbidden"), "pass"),
        (Policy(name="p", claims="sound"), "pass"),
        (Policy(name="p", must_conclude=("dp_claim",)), "undecided"),
        (Policy(name="p", forbidden_verdicts=("leak",)), "pass"),
        (Policy(name="p", forbidden_verdicts=("sound",)), "broken"),
    ],
)
def test_each_rule(build_cell: Any, policy: Policy, state: str) -> None:
    cell = build_cell(None, "fedpft", "fedpft", 1.0, 0, observed=0.8)
    assert states(check_record(run_of(cell), policy)) == [state]


@pytest.mark.parametrize(("accounted", "state"), [(3.0000000000000004, "pass"), (3.0001, "broken")])
def test_rounding_breaks_no_maximum(build_cell: Any, accounted: float, state: str) -> None:
    """Noise that is calibrated to 3 may add up to 3 and an ulp."""
    cell = build_cell(None, "fedcgs", "fedcgs", 3.0, 0, accounted=accounted)
    assert states(check_record(run_of(cell), Policy(name="p", maximum={"accounted": 3.0}))) == [state]


@pytest.mark.parametrize(
    ("unit", "delta", "data", "state", "words"),
    [
        (
            "record",
            0.9,
            {"0": {"client_records": [40, 25]}},
            "broken",
            "above 1 / 40, of 40 records of the largest client",
        ),
        ("record", 0.025, {"0": {"client_records": [40, 25]}}, "pass", "at most 1 / 40, of 40 records"),
        ("record", 0.04, {"0": {"client_records": [40, 25]}}, "broken", "published outright"),
        ("record", 0.14, {"0": {"client_records": [7, 84, 23]}}, "broken", "above 1 / 84"),
        ("record", 0.04, {"plan": {"client_records": [25]}}, "pass", "at most 1 / 25"),
        ("record", 1e-5, {}, "undecided", "how many records"),
        ("record", 1e-5, {"0": {"client_records": "many"}}, "undecided", "how many records"),
        ("record", 1e-5, {"1": {"client_records": [40]}}, "undecided", "how many records"),
        (
            "person",
            0.125,
            {"0": {"client_records": [40], "persons": {"client_persons": [5, 8]}}},
            "pass",
            "8 persons of the largest client",
        ),
        (
            "person",
            0.2,
            {"0": {"client_records": [40], "persons": {"client_persons": [5, 8]}}},
            "broken",
            "lets one person be published outright",
        ),
        ("person", 0.2, {"0": {"client_records": [40], "persons": {"groups": None}}}, "undecided", "many persons"),
        ("client", 0.3, {"0": {"client_records": [40, 40, 40, 40]}}, "broken", "4 clients in the run"),
        ("client", 0.25, {"0": {"client_records": [40, 40, 40, 40]}}, "pass", "4 clients in the run"),
    ],
)
def test_delta_is_held_against_the_units_that_the_claim_protects(
    build_cell: Any, unit: str, delta: float, data: dict[str, Any], state: str, words: str
) -> None:
    """A claim of (1, .9) gives nine of ten records away; nothing but a warning said so."""
    cell = build_cell(None, "fedpft", "fedpft", 1.0, 0).model_copy(update={"unit": unit, "delta": delta})
    record = run_of(cell).model_copy(update={"data": data})
    outcome = check_record(record, Policy(name="p", delta="one_in_n"))
    assert states(outcome) == [state]
    assert words in outcome.judgements[0].why


def test_what_claims_nothing_has_no_delta(build_cell: Any) -> None:
    cell = build_cell(None, "fedpft", "fedpft", math.inf, 0)
    claimless = cell.model_copy(update={"privacy": cell.privacy.model_copy(update={"claimed": None})})
    outcome = check_record(run_of(claimless), Policy(name="p", delta="one_in_n"))
    assert [judgement.state for judgement in outcome.judgements if judgement.rule == "delta"] == ["pass"]


def test_the_strict_policy_bounds_delta() -> None:
    strict = load_policy(Path(str(files("fedassay") / "configs" / "policies" / "strict.yaml")))
    assert strict.delta == "one_in_n"


def test_what_is_unbounded_breaks_any_maximum(build_cell: Any) -> None:
    cell = build_cell(
        None, "fedlog", "fedlog", 1.0, 0, accounted=math.inf, exact=("counts",), verdict="unsupported"
    )
    rules = Policy(name="p", maximum={"accounted": 1e9}, exact_fields="forbidden", claims="not_disproved")
    outcome = check_record(run_of(cell), rules)
    assert states(outcome) == ["broken"] * 3
    assert "Accounted ε ∞ for one record added or removed is above the maximum" in outcome.text()
    assert "counts leave the clients exactly" in outcome.text()


@pytest.mark.parametrize(
    ("rule", "verdict", "epsilon", "state"),
    [
        ("sound", "sound", 1.0, "pass"),
        ("sound", "unsound", 1.0, "broken"),
        ("sound", "inconclusive", 1.0, "undecided"),
        ("sound", "not_run", math.inf, "broken"),
        ("not_disproved", "not_run", math.inf, "pass"),
        ("not_disproved", "unsupported", 1.0, "broken"),
        ("not_disproved", "inconclusive", 1.0, "undecided"),
    ],
)
def test_claims(build_cell: Any, rule: Any, verdict: str, epsilon: float, state: str) -> None:
    cell = build_cell(None, "fedpft", "fedpft", epsilon, 0, verdict=verdict, findings=(gain(0.02),))
    assert states(check_record(run_of(cell), Policy(name="p", claims=rule))) == [state]


@pytest.mark.parametrize(
    ("verdict", "state"),
    [("leak", "pass"), ("no_leak_found", "pass"), ("inconclusive", "undecided"), ("not_run", "undecided")],
)
def test_audits_that_must_conclude(build_cell: Any, verdict: str, state: str) -> None:
    cell = build_cell(None, "fedpft", "fedpft", 1.0, 0, findings=(gain(0.0, verdict=verdict, reason="too weak"),))
    outcome = check_record(run_of(cell), Policy(name="p", must_conclude=("reconstruction",)))
    assert states(outcome) == [state]
    assert state == "pass" or "too weak" in outcome.text()


def test_scope_picks_cells_and_an_empty_scope_cannot_decide(build_cell: Any) -> None:
    cells = [build_cell(None, "fedpft", "fedpft", epsilon, 0) for epsilon in (1.0, math.inf)]
    rule: dict[str, Any] = {"name": "p", "claims": "sound"}
    finite = check_record(run_of(*cells), Policy(**rule, cells=Scope(epsilon="finite")))
    assert [judgement.cell for judgement in finite.judgements] == [
        "fedpft, ε = 1 (one record replaced, same label)"
    ]
    assert check_record(run_of(), Policy(**rule)).exit_code == 2
    unknown = check_record(run_of(*cells), Policy(**rule, cells=Scope(labels=("fedcgs",))))
    assert unknown.exit_code == 2
    assert "no method entry labelled 'fedcgs'" in unknown.text()


def test_a_failed_part_of_the_run_cannot_pass(build_cell: Any) -> None:
    cell = build_cell(None, "fedpft", "fedpft", 1.0, 0)
    error = ErrorRecord(cell="fedpft, ε = 10", stage="method", message="killed")
    outcome = check_record(run_of(cell, errors=(error,)), Policy(name="p", claims="sound"))
    assert outcome.exit_code == 2
    assert "killed" in outcome.text()


def test_broken_outweighs_undecided() -> None:
    judgements = tuple(Judgement("r", "c", state, "w") for state in ("undecided", "broken", "pass"))  # type: ignore[arg-type]
    assert Outcome("p", judgements).exit_code == 1


def test_equal_reasons_are_said_once() -> None:
    outcome = Outcome("p", (Judgement("r", "a", "broken", "too much"), Judgement("r", "b", "broken", "too much")))
    assert outcome.text().count("too much") == 1
    assert "a; b" in outcome.text()


BAD = {
    "maximum: {psn: 1}": r"maximum: given the metric 'psn'; allowed: psnr, ssim",
    "maximum: {ssim: high}": r"maximum\.ssim: given 'high'; allowed: a number",
    "maximum: {ssim: .nan}": r"finite number",
    "limits: {ssim: 1}": r"limits: unknown key; allowed: name, description, cells",
    "cells: {method: x}\nclaims: sound": r"cells\.method: unknown key; allowed: labels, epsilon",
    "must_conclude: [recon]": r"given the audit 'recon'; allowed: reconstruction",
    "forbidden_verdicts: [bad]": r"forbidden_verdicts\.0",
    "claims: maybe": r"claims: given 'maybe'; allowed: sound, not_disproved, any",
    "description: nothing": r"the policy has no rule",
}


@pytest.mark.parametrize(("text", "words"), BAD.items(), ids=list(BAD))
def test_a_wrong_policy_is_one_message_that_names_the_key(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(f"name: p\n{text}\n", encoding="utf-8")
    with pytest.raises(PlanError, match=words) as caught:
        load_policy(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["", "- 1", "a: [", "name: p\nname: q\nclaims: sound"])
def test_a_file_that_is_no_policy(tmp_path: Path, text: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PlanError, match=r"policy\.yaml"):
        load_policy(path)
    with pytest.raises(PlanError):
        load_policy(tmp_path / "none.yaml")


def test_noise_that_was_measured_and_personalized_accuracy_can_be_bounded(build_cell: Any) -> None:
    share = Metric(value=0.52, low=0.5, high=0.54, n=4000)
    finding = Finding(audit="dp_claim", verdict="sound", reason="r", metrics={"noise_share": share})
    cell = build_cell(None, "fedcgs", "fedcgs", 1.0, 0).model_copy(
        update={"findings": (finding,), "utility": {"accuracy": 0.3, "personalized_accuracy": 0.7}}
    )
    for name, kept, broken in (("noise_share", 0.4, 0.95), ("personalized_accuracy", 0.6, 0.8)):
        assert check_record(run_of(cell), Policy(name="x", minimum={name: kept})).exit_code == 0
        assert check_record(run_of(cell), Policy(name="x", minimum={name: broken})).exit_code == 1


def test_what_an_audit_measures_of_messages_can_be_bounded(build_cell: Any) -> None:
    """The share of records that algebra gives away is a number that a policy may limit."""
    share = Metric(value=20 / 414, low=0.03, high=0.07, n=414)
    found = Finding(audit="message", verdict="leak", reason="r", metrics={"fraction_recovered": share})
    cell = build_cell(None, "fedcgs", "fedcgs", math.inf, 0, findings=(found,))
    assert states(check_record(run_of(cell), Policy(name="p", maximum={"fraction_recovered": 0.0}))) == ["broken"]
    assert states(check_record(run_of(cell), Policy(name="p", maximum={"fraction_recovered": 0.1}))) == ["pass"]


@pytest.mark.parametrize("code", [0, 1, 2])
def test_sarif_and_junit_say_what_the_exit_code_says(build_cell: Any, code: int) -> None:
    """Whatever verdicts stand in the record: only the policy makes errors of a job."""
    bound = {0: 0.5, 1: 0.05, 2: 0.3}[code]
    cell = build_cell(
        None, "fedpft", "fedpft", 1.0, 0, findings=(gain(0.3, half=0.1, verdict="leak"),), verdict="unsound"
    )
    record, policy = run_of(cell), Policy(name="p", maximum={"ssim_gain": bound})
    outcome = check_record(record, policy)
    assert outcome.exit_code == code
    results = json.loads(sarif(record, outcome, policy))["runs"][0]["results"]
    assert any(result["level"] in {"error", "warning"} for result in results) == (code == 1)
    assert any(result["kind"] == "open" for result in results) == (code == 2)
    suites = list(ElementTree.fromstring(junit(record, outcome)))
    assert (sum(int(suite.get("failures", 0)) for suite in suites) > 0) == (code == 1)
    assert (sum(int(suite.get("errors", 0)) for suite in suites) > 0) == (code == 2)


def test_every_rule_of_sarif_says_what_it_is_of_and_what_to_do(record: RunRecord) -> None:
    policy = Policy(name="p", claims="sound")
    log = json.loads(sarif(record, check_record(record, policy), policy))
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    for rule in rules:
        assert rule["help"]["text"]
        assert 0 < float(rule["properties"]["security-severity"]) <= 10
        taxa = [each["target"]["id"] for each in rule["relationships"]]
        assert bool(taxa) == (rule["id"] not in {"run", "policy", "answer"}), rule["id"]
        if "CWE-359" in taxa:
            assert rule["helpUri"] == "https://cwe.mitre.org/data/definitions/359.html"


def test_the_policies_that_ship(record: RunRecord, build_cell: Any) -> None:
    folder = Path(str(files("fedassay.configs") / "policies"))
    strict, research = (load_policy(folder / f"{name}.yaml") for name in ("strict", "research"))
    assert check_record(record, strict).exit_code == 1
    assert check_record(record, research).exit_code == 1
    plain = run_of(build_cell(None, "fedpft", "fedpft", math.inf, 0, findings=(gain(0.02),)))
    assert check_record(plain, research).exit_code == 0
    # Nothing asks for a finite epsilon: strict cannot decide.
    assert check_record(plain, strict).exit_code == 2
    claim = Finding(audit="dp_claim", verdict="sound", reason="tight", metrics={"observed": Metric(value=0.8)})
    images = gain(-0.02).model_copy(update={"limit": Limit(metric="share", value=0.1, n=100)})
    bare = build_cell(None, "fedcgs", "fedcgs", 1.0, 0, observed=0.8, findings=(claim, images))
    worth = {**bare.utility, "majority_share": 0.2}
    covered = (Coverage(attack="feature_diffusion", status="conclusive"),)
    good = bare.model_copy(update={"coverage": covered, "utility": worth})
    held = {"data": {"0": {"client_records": [500, 400]}}}
    many = run_of(good).model_copy(update=held)
    assert check_record(many, strict).exit_code == 0
    # Accuracy that always naming the largest class reaches, too, is none; of an old record nobody knows.
    idle = good.model_copy(update={"utility": {**worth, "majority_share": 0.99}})
    assert check_record(run_of(idle).model_copy(update=held), strict).exit_code == 1
    unknown = good.model_copy(update={"utility": bare.utility})
    assert check_record(run_of(unknown).model_copy(update=held), strict).exit_code == 2
    # Whether 1e-5 is little, a record that holds no number of records does not say.
    assert check_record(run_of(good), strict).exit_code == 2


def test_the_policy_in_the_documentation_is_one(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "policy.md"
    text = page.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    (tmp_path / "policy.yaml").write_text(text, encoding="utf-8")
    assert load_policy(tmp_path / "policy.yaml").name == "clinic"
    words = page.read_text(encoding="utf-8")
    assert all(f"`{key}" in words for key in Policy.model_fields)
    assert " ".join(bounded_metrics()) in " ".join(words.split())


def test_fields_are_named_in_words(build_cell: Any) -> None:
    cell = build_cell(None, "fedpft", "fedpft", 1.0, 0, accounted=math.inf, exact=("class_counts",))
    outcome = check_record(run_of(cell), Policy(name="p", exact_fields="forbidden"))
    assert [each.brief for each in outcome.judgements] == ["clients send the field class counts without noise"]


def test_sarif_and_junit_hold_the_judgements(record: RunRecord) -> None:
    policy = Policy(name="gate", exact_fields="forbidden")
    outcome = check_record(record, policy)
    log = json.loads(sarif(record, outcome, policy))
    judged = [result for result in log["runs"][0]["results"] if result["ruleId"] == "policy"]
    assert len(judged) == len(outcome.judgements)
    broken = [result for result in judged if result["level"] == "error"]
    assert len(broken) == states(outcome).count("broken")
    assert all(result["locations"][0]["physicalLocation"]["region"]["startLine"] > 1 for result in judged)
    suites = ElementTree.fromstring(junit(record, outcome))
    assert suites[-1].get("name") == "policy gate"
    assert suites[-1].get("failures") == str(states(outcome).count("broken"))
    assert json.dumps(outcome.as_dict())


def test_a_file_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanError, match="cannot be written"):
        write_page("{}", tmp_path / "file" / "o.sarif")


def test_the_demonstration_moves_limits_alone() -> None:
    """Claims, coverage and verdicts are those of `strict`: data that are too small excuse nothing else."""
    folder = Path(str(files("fedassay") / "configs" / "policies"))
    strict, shown = (
        load_policy(folder / f"{name}.yaml").model_dump(exclude={"name", "description"})
        for name in ("strict", "demonstration")
    )
    assert (strict.pop("deployment"), shown.pop("deployment")) == (True, False)
    assert {key for key in strict if strict[key] != shown[key]} == {"limit_of_detection"}
    assert shown["limit_of_detection"].keys() == strict["limit_of_detection"].keys()
    assert all(
        shown["limit_of_detection"][audit] >= limit for audit, limit in strict["limit_of_detection"].items()
    )


@pytest.mark.parametrize("bound", [math.inf, -math.inf, math.nan, True, "inf", ".inf", "nan", "1e999", 10**400])
@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("maximum", "accounted"),
        ("minimum", "accuracy"),
        ("limit_of_detection", "membership"),
        ("requires", "days"),
    ],
)
def test_what_bounds_nothing_is_no_rule(key: str, name: str, bound: Any) -> None:
    """`maximum: {accounted: .inf}` counted as a rule, and every run passed."""
    with pytest.raises(PlanError, match=rf"p: {key}(\.{name})?: .*(finite|number|above 0|days)"):
        parse_policy({"name": "p", key: {name: bound}}, "p")


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"coverage": "complete"}, "every attack that applies was conclusive"),
        ({"coverage": "attacked", "claims": "sound"}, "at least one attack was run where any applies"),
        (
            {"limit_of_detection": {"membership": 0.25, "epsilon": 6.0}},
            "membership may have missed at most 25 %, or ε = 6",
        ),
        ({"delta": "one_in_n"}, "a δ of at most one over those"),
        ({"requires": {"days": 30}}, "the run is the one that the policy asks for"),
        ({"above_majority": True}, "accuracy above that of always naming the largest class"),
        ({"exact_fields": "forbidden"}, "nothing is sent without noise"),
    ],
)
def test_no_rule_is_left_out_of_what_a_page_says_it_was_held_to(rules: dict[str, Any], said: str) -> None:
    """The pages left out exactly the rules that shipped plans could not keep."""
    assert said in "; ".join(rule.words for rule in in_words(Policy.model_validate({"name": "p", **rules})))
