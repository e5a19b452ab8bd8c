"""What a sound claim leaves to any attack bounds what silent audits may have missed, and nothing else does."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.stats import norm

from fedassay.privacy.gaussian import mu_of, tpr_bound
from fedassay.records.facts import ControlFact, Obstacle, ObstacleKind
from fedassay.records.record import CellRecord, Coverage, Finding, Limit, Metric, RunRecord, Verdict
from fedassay.reports.answer.answer import answer
from fedassay.reports.decision.decision import decide
from fedassay.reports.evidence.page import markdown as evidence
from fedassay.reports.evidence.page import pages
from fedassay.reports.evidence.release import release_of
from fedassay.reports.gate.check import check_record
from fedassay.reports.gate.policy import Policy
from fedassay.reports.words.allowed import allowed, known, settled
from fedassay.reports.words.summary import lead
from fedassay.reports.words.untested import not_fully_tested

MU = 0.5
STRICT = Policy(name="p", coverage="complete", limit_of_detection={"membership": 0.25, "reconstruction": 0.25})
WIDE = Limit(metric="tpr_at_10pct", value=0.6, n=80, of="record")


OWN = ControlFact(role="end_to_end", release="own", detected=True)
MISSED = OWN.model_copy(update={"detected": False})
RAW = ControlFact(role="attack_only", release="raw", detected=False)


def silent(audit: str = "membership", limit: Limit | None = WIDE, **given: Any) -> Finding:
    return Finding(audit=audit, attack=audit, verdict="no_leak_found", reason="r", limit=limit, **given)


def unclear(kind: ObstacleKind, role: str = "", **given: Any) -> Finding:
    obstacle = Obstacle(kind=kind, role=role)
    return Finding(
        **{"audit": "membership", "attack": "membership"} | given,
        verdict="inconclusive",
        reason="r",
        obstacle=obstacle,
    )


def cell_of(build_cell: Any, *findings: Finding, **given: Any) -> CellRecord:
    built: CellRecord = build_cell(None, "fedcgs", "fedcgs", 2.0, 0, **({"mu": MU} | given))
    statuses: dict[str, Any] = {"inconclusive": "inconclusive", "not_run": "not_run"}
    rows = [
        Coverage(attack=each.attack or each.audit, status=statuses.get(each.verdict, "conclusive"), reason="r")
        for each in findings
    ]
    return built.model_copy(update={"findings": findings, "coverage": tuple(rows)})


@pytest.mark.parametrize("metric", ["tpr_at_10pct", "tpr_at_1pct"])
def test_a_gaussian_release_allows_the_power_of_its_trade_off_curve(build_cell: Any, metric: str) -> None:
    rate = {"tpr_at_10pct": 0.1, "tpr_at_1pct": 0.01}[metric]
    finding = silent(limit=Limit(metric=metric, value=0.6, n=80))
    found = allowed(cell_of(build_cell, finding), finding)
    assert found is not None
    assert found.value == pytest.approx(norm.cdf(norm.ppf(rate) + MU), rel=1e-9)
    assert (found.metric, found.of) == (metric, "record")


def test_without_a_gaussian_parameter_epsilon_and_delta_bound_it(build_cell: Any) -> None:
    finding = silent()
    found = allowed(cell_of(build_cell, finding, mu=None), finding)
    assert found is not None
    by_ratio, by_rest = math.e**2 * 0.1 + 1e-5, 1 - math.e**-2 * (1 - 1e-5 - 0.1)
    assert found.value == pytest.approx(min(by_ratio, by_rest), rel=1e-9)


@pytest.mark.parametrize("verdict", ["unsound", "unsupported", "inconclusive", "not_run"])
def test_only_a_sound_claim_bounds_anything(build_cell: Any, verdict: Verdict) -> None:
    finding = silent()
    cell = cell_of(build_cell, finding, verdict=verdict)
    assert allowed(cell, finding) is None
    assert known(cell, finding) == finding


def test_without_a_claim_nothing_is_bounded(build_cell: Any) -> None:
    finding = silent()
    cell = build_cell(None, "fedcgs", "fedcgs", math.inf, 0, verdict="sound", findings=(finding,))
    assert allowed(cell, finding) is None


def test_a_claim_bounds_those_whom_its_unit_covers_and_no_larger_ones(build_cell: Any) -> None:
    of_person = silent(limit=WIDE.model_copy(update={"of": "person"}))
    of_client = silent(metrics={"worst_client_told": Metric(value=0.5, n=12)})
    whole = silent("message", metrics={"total_variation": Metric(value=0.1, n=12)})
    for unit, bounded in (
        ("record", [True, False, False]),
        ("person", [True, True, False]),
        ("client", [True] * 3),
    ):
        cell = cell_of(build_cell).model_copy(update={"unit": unit})
        assert [allowed(cell, each) is not None for each in (silent(), of_person, of_client)] == bounded
        assert (allowed(cell, silent(limit=None, source="clients")) is not None) == (unit == "client")
        # Counts of labels are nobody's secret alone, and a guessed attribute is no recognition.
        assert allowed(cell, whole) is None
        assert allowed(cell, silent("attribute_inference", selection="sex")) is None


def test_the_smaller_of_what_was_missed_and_what_is_allowed_stands(build_cell: Any) -> None:
    narrow, cell = silent(limit=WIDE.model_copy(update={"value": 0.05})), cell_of(build_cell)
    assert known(cell, narrow) == narrow
    held = known(cell, silent()).limit
    assert held is not None
    assert (held.planted, held.metric) == ("claim", "tpr_at_10pct")
    in_epsilon = known(cell, silent(limit=Limit(metric="epsilon", value=6.9, n=4000))).limit
    assert in_epsilon is not None
    assert in_epsilon.value == 2.0
    leaking = silent().model_copy(update={"verdict": "leak"})
    assert known(cell, leaking) == leaking


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        (unclear("no_power"), False),
        (unclear("no_power", all_controls=(OWN,)), True),
        (unclear("records_missing", "control"), False),
        (unclear("records_missing", "private", all_controls=(OWN,)), True),
        (unclear("records_missing", "clients", all_controls=(OWN,)), False),
        (unclear("between_levels", all_controls=(OWN,)), True),
        (unclear("worse_than_baseline", all_controls=(OWN,)), True),
        (unclear("control_missed"), False),
        (unclear("control_flagged"), False),
        (unclear("control_missed", all_controls=(OWN, RAW)), True),
        (unclear("control_missed", all_controls=(OWN, MISSED)), False),
        (unclear("control_missed", all_controls=(RAW,)), False),
        (unclear("control_faint"), False),
        (unclear("control_flagged", all_controls=(OWN,)), False),
        (unclear("crashed"), False),
        (unclear("too_large"), False),
        (unclear("between_levels"), False),
        (unclear("worse_than_baseline"), False),
        (unclear("no_power", audit="message", metrics={"total_variation": Metric(value=0.1, n=5)}), False),
    ],
)
def test_want_of_numbers_is_settled_by_a_claim_and_a_weak_attack_is_not(
    build_cell: Any, finding: Finding, expected: bool
) -> None:
    cell = cell_of(build_cell, finding)
    assert settled(cell, finding) is expected
    assert (not_fully_tested([cell]) == "") is expected
    outcome = check_record(
        RunRecord(plan={}, environment={}, cells=(cell,)), Policy(name="p", coverage="complete")
    )
    assert outcome.exit_code == (0 if expected else 2)


def test_what_an_attack_shows_that_could_not_have_shown_a_leak_bounds_nothing(build_cell: Any) -> None:
    """The best images alone, of which twenty are few, beside all of them, by which the attack worked."""
    given: dict[str, Any] = {"audit": "reconstruction", "attack": "feature_diffusion", "source": "class_means"}
    gain = Metric(value=-0.16, low=-0.8, high=0.5, n=20)
    whole = unclear("no_power", all_controls=(OWN,), selection="oracle_all", **given)
    best = unclear(
        "control_missed", all_controls=(MISSED,), selection="oracle", metrics={"ssim_gain": gain}, **given
    )
    policy = Policy(name="p", maximum={"ssim_gain": 0.02}, must_conclude=("reconstruction",))
    for findings, expected in (((whole, best), 0), ((best,), 2)):
        record = RunRecord(plan={}, environment={}, cells=(cell_of(build_cell, *findings),))
        assert check_record(record, policy).exit_code == expected


def test_few_records_under_a_sound_claim_can_pass_and_the_answer_says_by_what(build_cell: Any) -> None:
    """A clinic of 700 records could show no limit below .3, whatever it did: undecided for ever."""
    cell = cell_of(
        build_cell, silent(), unclear("no_power", source="informed", selection="real_records", all_controls=(OWN,))
    )
    record = RunRecord(plan={}, environment={}, cells=(cell,))
    assert check_record(record, STRICT).exit_code == 0
    said = answer(record, STRICT)
    assert said.answer == "yes"
    assert (
        "By the accounting no attack on records has a true-positive rate above 21.7 %, at 10 % false alarms"
        in said.text.replace("by the accounting", "By the accounting")
    )
    alone = RunRecord(plan={}, environment={}, cells=(cell_of(build_cell, *cell.findings, verdict="not_run"),))
    assert check_record(alone, STRICT).exit_code == 2


def test_a_claim_that_allows_more_than_the_bound_leaves_it_open(build_cell: Any) -> None:
    record = RunRecord(plan={}, environment={}, cells=(cell_of(build_cell, silent(), mu=0.72),))
    outcome = check_record(record, STRICT)
    assert outcome.exit_code == 2
    assert "a smaller epsilon would lower it" in outcome.text()


def test_the_next_step_is_an_epsilon_at_which_the_claim_settles_it(build_cell: Any) -> None:
    cell = cell_of(build_cell, silent(), mu=mu_of(2.0, 1e-5) * 1.6)
    record = RunRecord(plan={}, environment={}, cells=(cell.model_copy(update={"epsilon": 3.3}),))
    (step, *_) = decide(record, STRICT).steps
    assert [(change.key, change.after) for change in step.changes] == [("privacy.epsilon", 2.4)]
    kept, broken = (tpr_bound(mu_of(epsilon, 1e-5), 0.1) for epsilon in (2.4, 2.5))
    assert kept <= 0.25 < broken
    open_ = cell_of(build_cell, silent(), unclear("control_missed"), mu=0.72)
    assert not decide(RunRecord(plan={}, environment={}, cells=(open_,)), STRICT).steps


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"all_controls": (OWN,)}, True),
        ({"all_controls": (OWN, MISSED)}, False),
        ({"all_controls": ()}, False),
        ({"all_controls": (OWN,), "attack": "feature_diffusion"}, False),
        ({"all_controls": (OWN,), "audit": "message", "metrics": {"rules_met": Metric(value=0.0, n=1)}}, False),
        ({"all_controls": (OWN,), "verdict": "inconclusive"}, False),
    ],
    ids=["works", "misses one", "was not tried", "is the same", "looks for something else", "says nothing"],
)
def test_an_attack_that_fails_on_a_release_is_stood_in_for_by_one_that_works(
    build_cell: Any, other: dict[str, Any], expected: bool
) -> None:
    """A hospital was told for ever that a generator of images is too weak, beside an inversion that works."""
    weak = unclear("control_missed", audit="reconstruction", attack="feature_diffusion", all_controls=(MISSED,))
    found = silent("inversion").model_copy(update={"attack": "feature_inversion", **other})
    cell = cell_of(build_cell, weak, found)
    assert settled(cell, weak) is expected
    record = RunRecord(plan={}, environment={}, cells=(cell,))
    said = answer(record, Policy(name="p", coverage="complete"))
    told = "The attack feature_diffusion failed even on messages that leak on purpose: other attacks looked for"
    assert (told in " ".join(said.beside)) is expected
    assert (
        told.replace("_", "\\_") in evidence(pages(release_of(record, Policy(name="p", coverage="complete"))))
    ) is expected
    refuted = cell.model_copy(update={"privacy": cell.privacy.model_copy(update={"verdict": "unsound"})})
    assert not settled(refuted, weak)


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (["no_power"], "1 could not be judged by attacks alone. Its claim bounds what attacks could not judge."),
        (["control_missed"], "1 could not be judged."),
        (
            ["no_power", "no_power"],
            "2 could not be judged by attacks alone. Their claims bound what attacks could not judge.",
        ),
        (
            ["no_power", "control_missed"],
            "2 could not be judged by attacks alone. "
            "Of these 2, the claim of 1 bounds what attacks could not judge.",
        ),
    ],
)
def test_the_verdicts_begin_with_what_a_claim_settles(
    build_cell: Any, kinds: list[ObstacleKind], said: str
) -> None:
    cells = [
        cell_of(build_cell, unclear(kind, all_controls=(MISSED if kind == "control_missed" else OWN,))).model_copy(
            update={"label": f"entry-{number}"}
        )
        for number, kind in enumerate(kinds)
    ]
    assert lead(RunRecord(plan={}, environment={}, cells=tuple(cells))).endswith(said)
