"""The decision: one recommendation or the reason for none, from a record and a policy alone."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import pytest

from fedassay.plan.changes import changed_plan
from fedassay.records.facts import Harm
from fedassay.records.record import (
    CellPrivacy,
    CellRecord,
    Controls,
    Coverage,
    Finding,
    Limit,
    NegativeControl,
    PositiveControl,
    RunRecord,
    Verdict,
)
from fedassay.reports.answer.answer import Answer, answer
from fedassay.reports.answer.text import lines
from fedassay.reports.decision.checklist import checklist
from fedassay.reports.decision.decision import Decision, decide
from fedassay.reports.decision.words import ALWAYS, grounds, in_words
from fedassay.reports.document.markdown import markdown
from fedassay.reports.document.rule_table import rule_table
from fedassay.reports.gate.judgement import Judgement, Mark, worst_mark
from fedassay.reports.gate.policy import Policy, load_policy
from fedassay.reports.words.claims import claim_clause

POLICY = Policy(name="test", claims="sound", forbidden_verdicts=("leak",), cells={"epsilon": "finite"})


def cell(label: str, epsilon: float, verdict: Any = "sound", accuracy: float = 0.8, **given: Any) -> CellRecord:
    finding = Finding(audit="dp_claim", verdict=verdict, reason="because")
    return CellRecord(
        **{
            "method": label,
            "label": label,
            "params": {},
            "params_given": {},
            "epsilon": epsilon,
            "delta": 1e-5,
            "adjacency": "add_remove",
            "seed": 0,
            "utility": {
                "accuracy": accuracy,
                "accuracy_low": accuracy - 0.03,
                "accuracy_high": accuracy + 0.03,
                "accuracy_n": 500.0,
            },
            "communication": {"bytes_up": 1000.0},
            "privacy": CellPrivacy(claimed=epsilon, accounted=epsilon, verdict=verdict, reason="because"),
            "findings": (finding,),
            **given,
        }
    )


def decided(*cells: CellRecord, policy: Policy = POLICY) -> Decision:
    record = RunRecord(plan={"name": "x"}, environment={}, cells=cells)
    return decide(record, policy)


MUST = Policy(name="x", must_conclude=("reconstruction",))


def answered(*cells: CellRecord, policy: Policy = POLICY) -> Answer:
    return answer(RunRecord(plan={"name": "x"}, environment={}, cells=cells), policy)


def test_the_most_accurate_of_what_passes_is_recommended() -> None:
    free, weak = cell("fedcgs", math.inf, accuracy=0.9), cell("fedcgs", 8.0, accuracy=0.85)
    cells = (free, weak, cell("fedcgs", 1.0, accuracy=0.6), cell("fedlog", 1.0, accuracy=0.7))
    found = decided(*cells)
    assert found.state == "pass"
    assert found.recommended is not None
    assert (found.recommended.group.label, found.recommended.group.asked.bare) == ("fedcgs", 8.0)
    cost = found.recommended.cost
    assert cost.value == pytest.approx(5.0)
    assert cost.low is not None
    assert cost.high is not None
    assert cost.low == pytest.approx(100 * (0.05 - math.hypot(0.03, 0.03)))
    said = answered(*cells)
    assert (
        said.headline
        == "Yes: fedcgs at ε = 8 (one record added or removed) may be deployed under the policy test."
    )
    assert said.accuracy.startswith("Accuracy 0.850 [0.820, 0.880]; 0.900 without privacy")
    assert [row.answer for row in said.rows] == ["yes", "yes"]


def test_a_cost_without_a_run_without_privacy_is_not_measured() -> None:
    found = decided(cell("fedcgs", 1.0))
    assert found.options[0].cost.value is None
    assert "no cell of this method without privacy" in str(found.options[0].cost.reason)
    assert "without privacy" not in answered(cell("fedcgs", 1.0)).accuracy


def test_options_under_unlike_neighbours_are_not_held_against_each_other() -> None:
    cells = (cell("fedcgs", 1.0), cell("fedpft", 1.0, adjacency="replace_one_same_label"))
    found = decided(*cells)
    assert found.recommended is None
    assert len(found.standings) == 2
    said = answered(*cells)
    assert said.answer == "yes"
    assert "fedcgs at ε = 1" in said.headline
    assert "fedpft at ε = 1" in said.headline
    assert "what they protect differs" in said.headline
    assert "The guarantee of fedcgs protects whether one record took part" in said.hides
    assert "The guarantee of fedpft protects which of the records" in said.hides
    assert said.next.command == "fedassay answer RUN --method fedcgs --policy POLICY"
    person = decided(cell("fedcgs", 1.0), cell("fedlog", 1.0, unit="person"))
    assert person.recommended is None


def test_where_nothing_passes_the_reason_is_the_answer() -> None:
    cells = (cell("fedcgs", 1.0, "unsound"), cell("fedlog", 1.0, "inconclusive"))
    broken = decided(*cells)
    assert broken.recommended is None
    assert broken.state == "broken"
    assert answered(*cells).headline.startswith("Not yet: no method passes the policy test, and fedlog at ε = 1")
    assert (
        answered(cells[0]).headline
        == "No: fedcgs claims ε = 1 (one record added or removed), but that is disproved."
    )
    outside = answered(cell("fedcgs", math.inf), cell("fedlog", math.inf, findings=()))
    assert outside.headline == "Not yet: no release of this run is in the scope of the policy test."


def test_why_something_is_open_is_said_in_one_clause_and_not_by_its_reason() -> None:
    words = "the control was not caught (+0.1 (p = 0.2)): too weak here; 0.8 against 0.9 (n = 4); more may decide"
    missed = PositiveControl(release="r", caught=False)
    finding = Finding(
        audit="reconstruction",
        source="raw",
        verdict="inconclusive",
        reason=words,
        controls=Controls(positive=missed, negative=NegativeControl(release="n", flagged=False)),
    )
    said = answered(
        cell("fedlog", 1.0, findings=(finding,)), policy=Policy(name="x", must_conclude=("reconstruction",))
    )
    assert said.headline == (
        "Not yet: we cannot say yet whether raw features give away rebuilt images: the attack was not shown to "
        "work even on messages that leak on purpose."
    )


def test_what_was_run_and_said_nothing_is_decided_before_what_the_plan_left_out() -> None:
    absent = Coverage(
        attack="membership", status="not_run", reason="it is not part of the plan", would_decide="add it"
    )
    silent = Coverage(
        attack="gram_factorization",
        status="inconclusive",
        reason="too weak (p = 0.2); SSIM 0.6",
        would_decide="a stronger one",
    )
    found = decided(cell("fedcgs", 1.0, coverage=(absent, silent)), cell("fedlog", 1.0, coverage=(absent,)))
    assert [step.what for step in found.steps] == ["gram_factorization needs a stronger one", "add it"]
    assert [step.why for step in found.steps] == [
        "gram_factorization was inconclusive",
        "membership was not run",
    ]


def test_one_seed_that_breaks_the_policy_breaks_the_option() -> None:
    found = decided(cell("fedcgs", 1.0), cell("fedcgs", 1.0, "unsound", seed=1))
    assert found.options[0].state == "broken"
    assert found.recommended is None


def test_the_cost_over_several_seeds_is_their_range() -> None:
    cells = [
        cell("fedcgs", epsilon, accuracy=accuracy, seed=seed)
        for epsilon, seed, accuracy in ((math.inf, 0, 0.9), (math.inf, 1, 0.9), (1.0, 0, 0.8), (1.0, 1, 0.7))
    ]
    cost = decided(*cells).options[0].cost
    assert (cost.value, cost.low, cost.high, cost.n) == (
        pytest.approx(15.0), pytest.approx(10.0), pytest.approx(20.0), 2,
    )  # fmt: skip


def test_what_was_not_tested_and_what_would_decide_it_are_said() -> None:
    open_ = Coverage(
        attack="membership", status="not_run", reason="not in the plan", would_decide="add membership"
    )
    found = decided(cell("fedcgs", 1.0, coverage=(open_,)), cell("fedlog", 1.0, coverage=(open_,)))
    assert found.options[0].untested == (("membership", "not in the plan"),)
    (step,) = found.steps
    assert step.what == "add membership"
    assert step.cells == (
        "fedcgs, ε = 1 (one record added or removed)",
        "fedlog, ε = 1 (one record added or removed)",
    )
    assert step.seconds is None
    timed = open_.model_copy(update={"seconds": 30.0, "further_seconds": 20.0})
    (step,) = decided(cell("fedcgs", 1.0, coverage=(timed,)), cell("fedlog", 1.0, coverage=(timed,))).steps
    assert step.seconds == pytest.approx(57.0), "starting, what is shared once, and each cell"


def test_the_largest_leak_of_the_same_method_without_privacy_is_said() -> None:
    def leak(share: float) -> Finding:
        count = round(400 * share)
        harm = Harm(kind="exact", of="record", count=count, total=400, share=share, mechanism=f"s{share}")
        return Finding(
            audit="message", verdict="leak", source=f"s{share}", reason=f"{share:.0%} recovered", harm=harm
        )

    free = cell("fedcgs", math.inf, accuracy=0.9, findings=(leak(0.01), leak(0.0), leak(0.93)))
    said = answered(free, cell("fedcgs", 1.0), cell("fedlog", 1.0))
    assert said.answer == "yes"
    assert said.sentences[1:] == (
        "Not tested: rebuilt images, exact features or records, persons named, signs of membership, labels and "
        "attributes and record counts.",
        "For comparison, in fedcgs without noise, the features of 372 of 400 records were recovered exactly "
        "from s0.93.",
    )


USEFUL = POLICY.model_copy(update={"maximum": {"accounted": 3.0}, "minimum": {"accuracy": 0.5}})


def test_where_nothing_but_use_is_missing_the_largest_epsilon_is_the_next_step() -> None:
    weak = cell("fedcgs", 1.0, accuracy=0.3, seconds={"method": 7.0})
    strong = cell("fedcgs", 8.0, accuracy=0.7)
    (step,) = decided(weak, strong, policy=USEFUL).steps
    assert step.what == (
        "also run fedcgs at an epsilon of 3 (put 3 into the list privacy.epsilon): the largest that the policy "
        "allows"
    )
    assert [(change.key, change.after) for change in step.changes] == [("privacy.epsilon", 3.0)]
    assert step.seconds == pytest.approx(14.0)


def test_where_everything_lies_above_the_bound_it_is_the_next_step() -> None:
    found = decided(cell("fedcgs", 8.0, accuracy=0.9), cell("fedcgs", 5.0, accuracy=0.9), policy=USEFUL)
    (step,) = found.steps
    assert step.what.startswith("also run fedcgs at an epsilon of 3 (put 3 into the list privacy.epsilon): ")
    assert step.cells == ("fedcgs, ε = 5 (one record added or removed)",)
    assert "larger" in step.why


def test_where_nothing_was_run_that_the_policy_judges_it_is_an_epsilon() -> None:
    """It said to add another attack, which says nothing of a release that no rule is put to."""
    policy = USEFUL.model_copy(update={"cells": POLICY.cells})
    cells = (cell("fedcgs", math.inf), cell("raw_features", math.inf), cell("fedpft", math.inf))
    found = answered(*cells, policy=policy)
    assert found.headline == "Not yet: no release of this run is in the scope of the policy test."
    assert found.next.what == (
        "Also run fedcgs and fedpft at an epsilon of 3 (put 3 into the list privacy.epsilon): the policy judges "
        "no release without noise."
    )
    assert [(change.key, change.after) for change in found.next.changes] == [("privacy.epsilon", 3.0)]
    # Features have no private form, and what is judged needs no epsilon first.
    assert not answered(cells[1], policy=policy).next.changes
    assert not decided(cells[0], cell("fedpft", 2.0), policy=policy).steps


def test_what_is_too_large_and_of_too_little_use_needs_something_else() -> None:
    """To methods of too little use at 1 and at 8 it said: run 3, the largest that the policy allows."""
    for cells in ([8.0], [1.0, 8.0]):
        found = answered(*(cell("fedcgs", epsilon, accuracy=0.3) for epsilon in cells), policy=USEFUL)
        assert found.answer == "no"
        assert found.next.what.startswith("Take more records, or another method: fedcgs at ε = 8 ")
        assert not found.next.changes
    below = [cell(label, 1.0, accuracy=0.3) for label in ("fedcgs", "fedlog")]
    above = [cell("fedcgs", 8.0, accuracy=0.3), cell("fedlog", 8.0, accuracy=0.9)]
    assert answered(*below, *above, policy=USEFUL).next.what.startswith("Also run fedlog at an epsilon of 3 ")


def test_what_comes_closest_is_said_before_a_second_leak_without_noise() -> None:
    """Of a run with two leaks without noise nobody learnt why the private release is refused."""
    leaks = [
        Finding(audit="m", verdict="leak", reason="x", harm=Harm(kind=kind, of="record", count=5, total=9))
        for kind in ("exact", "named")
    ]
    policy = USEFUL.model_copy(update={"cells": POLICY.cells})
    free = cell("fedcgs", math.inf, accuracy=0.9, findings=tuple(leaks))
    found = answered(free, cell("fedcgs", 8.0, accuracy=0.9), policy=policy)
    assert found.answer == "no"
    assert "9 records" in found.sentences[1]
    assert "Accounted ε 8.00 for one record added or removed is above the maximum of 3" in found.sentences[2]


def test_an_epsilon_of_the_entry_itself_is_what_changes() -> None:
    """The plan's own list said 3 afterwards, and the entry ran at 8 again."""
    plan = {"privacy": {"epsilon": [2]}, "methods": [{"fedcgs": {"label": "sums v1.2", "epsilon": 8}}, "fedcgs"]}
    alone = cell("sums v1.2", 8.0, accuracy=0.9)
    record = RunRecord(plan=plan, environment={}, cells=(alone,))
    (step,) = decide(record, USEFUL).steps
    (change,) = step.changes
    assert change.key == "methods.sums v1.2.epsilon"
    changed = changed_plan(plan, step.changes)
    assert changed["methods"] == [{"fedcgs": {"label": "sums v1.2", "epsilon": [8, 3]}}, "fedcgs"]
    assert changed["privacy"] == {"epsilon": [2]}


@pytest.mark.parametrize(("missed", "proposed"), [(0.2, 3.0), (0.6, 2.4)])
def test_the_epsilon_is_one_at_which_the_claim_settles_what_was_missed(missed: float, proposed: float) -> None:
    limit = Limit(metric="tpr_at_10pct", value=missed, n=60, of="record")
    silent = Finding(audit="membership", attack="membership", verdict="no_leak_found", reason="r", limit=limit)
    asked = cell("fedcgs", 8.0, accuracy=0.9, findings=(silent,))
    held = asked.privacy.model_copy(update={"mu": 1.6})
    asked = asked.model_copy(update={"privacy": held})
    policy = USEFUL.model_copy(update={"limit_of_detection": {"membership": 0.25}})
    (step,) = (each for each in decided(asked, policy=policy).steps if each.changes)
    assert [change.after for change in step.changes] == [proposed]


def test_of_several_that_do_not_pass_the_one_with_the_fewest_reasons_is_named() -> None:
    worse = cell("fedpft", 8.0, accuracy=0.1)
    said = answered(worse, cell("fedcgs", 8.0, accuracy=0.9), policy=USEFUL)
    assert said.answer == "no"
    assert said.sentences[-1].startswith(
        "What comes closest is fedcgs at ε = 8 (one record added or removed): Accounted ε 8"
    )


def test_the_policy_in_words_keeps_acronyms() -> None:
    rules = in_words(Policy(name="x", maximum={"ssim_gain": 0.02, "accounted": 3.0}, coverage="any"))
    assert [rule.words for rule in rules] == [
        "SSIM gain at most 0.02",
        "accounted ε at most 3 (of each release's own unit and relation)",
    ]


@pytest.mark.parametrize(
    ("cells", "policy"),
    [
        ((cell("fedcgs", 1.0, accuracy=0.9),), USEFUL),
        ((cell("fedcgs", 1.0, accuracy=0.3), cell("fedcgs", 3.0, accuracy=0.3)), USEFUL),
        ((cell("fedcgs", 1.0, "unsound", accuracy=0.3),), USEFUL),
        ((cell("fedcgs", 8.0, accuracy=0.3),), USEFUL),
        ((cell("fedcgs", 8.0, "unsound", accuracy=0.9),), USEFUL),
        ((cell("fedcgs", 1.0, accuracy=0.3),), POLICY),
    ],
    ids=["passes", "was tried", "is broken otherwise", "nothing below", "is broken above", "no bound"],
)
def test_a_larger_epsilon_is_not_advised_where_it_would_not_help(cells: Any, policy: Policy) -> None:
    assert decided(*cells, policy=policy).steps == ()


def test_a_policy_is_printed_in_words() -> None:
    policy = Policy(
        name="x",
        maximum={"accounted": 3.0},
        minimum={"accuracy": 0.5},
        exact_fields="forbidden",
        claims="sound",
        must_conclude=("dp_claim", "reconstruction"),
        forbidden_verdicts=("leak", "unsound"),
        coverage="any",
    )
    words = [rule.words for rule in in_words(policy)]
    assert len(words) == 7
    assert words[-3:-1] == ["a result of the audit dp claim", "a result of the audit reconstruction"]
    assert words[-1] == "no attack finds a leak; no claim of privacy is disproved"
    for name in get_args(Verdict):
        (said,) = in_words(Policy(name="x", forbidden_verdicts=(name,), coverage="any"))
        assert name not in said.words.split() or name == "leak"
    assert "at most 3" in words[0]


def test_what_a_decision_rests_on_names_public_data_and_the_noise() -> None:
    plan = {"name": "x", "backbone": {"name": "small_cnn", "weights": "public"}}
    data = {"0": {"records": {"private": 60, "attacker": 25, "public": 15, "test": 0}}}
    seeded = RunRecord(plan=plan, environment={}, data=data, cells=(cell("fedcgs", 1.0),))
    words = grounds(seeded)
    assert (
        words[0]
        == "15 records, 15% of the data set, are taken to be public, and the backbone was trained on them."
    )
    assert "is not secret" in words[-1]
    for persons, sentence in (
        ({"groups": None, "assumed": "..."}, "Each record is taken to be of a person of its own"),
        (
            {"persons": {"private": 12}, "most_records": 5},
            "of 12 persons (data.groups), with up to 5 records each.",
        ),
    ):
        whose = seeded.model_copy(update={"data": {"0": {**data["0"], "persons": persons}}})
        assert any(sentence in line for line in grounds(whose))
    secret = seeded.model_copy(update={"cells": (cell("fedcgs", 1.0, seed=None),)})
    assert "system's generator" in grounds(secret)[-1]
    assert all(
        "noise" not in line for line in grounds(seeded.model_copy(update={"cells": (cell("a", math.inf),)}))
    )


NO_CLAIM = CellPrivacy(claimed=None, accounted=math.inf, verdict="not_run", reason="no claim")

RULES = Policy(
    name="held",
    claims="sound",
    forbidden_verdicts=("leak", "unsound"),
    maximum={"accounted": 3.0, "ssim_gain": 0.02},
    minimum={"accuracy": 0.75},
    must_conclude=("dp_claim",),
    delta="one_in_n",
    coverage="attacked",
    limit_of_detection={"membership": 0.25, "epsilon": 6.0},
    above_majority=True,
)


def test_every_judgement_of_a_release_stands_in_a_line_with_the_worst_state_of_its_rule() -> None:
    decision = decided(cell("good", 2.0), cell("worse", 8.0, accuracy=0.4), policy=RULES)
    listed = checklist(decision)
    for at, option in enumerate(decision.options):
        for judgement in option.judgements:
            rules = [rule for rule in (*decision.rules, *ALWAYS) if rule.has(judgement)]
            assert len(rules) == 1, judgement.rule
            line = next(each for each in listed.lines if each.rule == rules[0].words)
            order = get_args(Mark)
            assert order.index(line.found[at]) <= order.index(judgement.mark)
        worst = worst_mark(mark for line in listed.lines if (mark := line.found[at]) is not None)
        of_state = {"pass": ("kept", "not tested"), "broken": ("broken",), "undecided": ("open", "not tested")}
        assert worst in of_state[option.state or ""]


@pytest.mark.parametrize("policy", ["strict", "demonstration", "messages"])
def test_every_rule_of_a_shipped_policy_is_judged_and_said_once(policy: str) -> None:
    held = load_policy(Path(str(resources.files("fedassay"))) / "configs" / "policies" / f"{policy}.yaml")
    rules = in_words(held)
    assert len({rule.words for rule in rules}) == len(rules)
    decision = decided(cell("good", 2.0), policy=held)
    judged = {each.rule for option in decision.options for each in option.judgements}
    every = (*rules, *ALWAYS)
    assert all(sum(rule.has(Judgement(name, "", "pass", "")) for rule in every) == 1 for name in judged)


def test_what_is_broken_or_open_says_why_where_there_is_one_method() -> None:
    lines = checklist(decided(cell("worse", 8.0, accuracy=0.4), policy=RULES)).lines
    assert all(line.why for line in lines if line.found[0] in ("broken", "open", "not tested"))
    broken = next(line for line in lines if line.rule.startswith("accuracy at least"))
    assert broken.marks == ("✖ broken",)
    assert "0.4" in broken.why


def test_a_policy_that_judges_nothing_of_a_run_has_no_lines() -> None:
    decision = decided(
        cell("bare", float("inf")),
        policy=RULES.model_copy(update={"cells": RULES.cells.model_copy(update={"epsilon": "finite"})}),
    )
    assert checklist(decision).lines == ()


def test_methods_beyond_the_room_are_counted() -> None:
    decision = decided(*(cell(f"m{n}", 2.0) for n in range(8)), policy=RULES)
    listed = checklist(decision)
    assert len(listed.names) == 5
    assert listed.further == 3
    assert checklist(replace(decision, options=decision.options[:5])).further == 0


def test_markdown_lists_the_policy_rule_by_rule() -> None:
    record = RunRecord(plan={"name": "x"}, environment={}, cells=(cell("worse", 8.0, accuracy=0.4),))
    words = markdown(record, RULES)
    assert "rule by rule" in words
    assert "0.75: Accuracy 0.4" in words
    assert "| ✖ |" in words
    assert answer(record, RULES).policy in words


@pytest.mark.parametrize(
    ("name", "lead"), [("research", "Yes, but not for deployment"), ("own", "Yes, under a policy")]
)
def test_nobody_is_told_to_deploy_what_leaks(name: str, lead: str) -> None:
    leaking = Finding(
        audit="message", verdict="leak", reason="r", harm=Harm(kind="exact", of="record", count=3, total=9)
    )
    bare = cell(
        "raw",
        math.inf,
        findings=(leaking,),
        privacy=NO_CLAIM,
    )
    shipped = Path(str(resources.files("fedassay"))) / "configs" / "policies" / "research.yaml"
    policy = (
        load_policy(shipped) if name == "research" else Policy(name="own", claims="not_disproved", coverage="any")
    )
    said = answered(bare, policy=policy)
    assert said.answer == "yes"
    assert said.headline.startswith(lead)
    assert "may be deployed" not in said.text
    assert "3 of 9 records" in said.text


def test_a_release_that_is_named_beside_others_is_named_by_its_worst_harm() -> None:
    def leaky(label: str, exact: int) -> CellRecord:
        harms = (Harm(kind="exact", of="record", count=exact, total=9), Harm(kind="members", of="record"))
        found = tuple(Finding(audit="message", verdict="leak", reason="r", harm=harm) for harm in harms)
        return cell(label, math.inf, findings=found, privacy=NO_CLAIM)

    said = answered(leaky("first", 8), leaky("second", 5), policy=POLICY)
    assert said.answer == "no"
    assert any("first" in words and "8 of 9 records" in words for words in said.sentences)
    assert any("second" in words and "5 of 9 records" in words for words in said.sentences)


def test_a_bound_above_a_claim_that_holds_is_said_to_be_within_chance() -> None:
    above, below = (
        cell(
            "m", 2.0, privacy=CellPrivacy(claimed=2.0, accounted=2.0, observed=shown, verdict="sound", reason="r")
        )
        for shown in (2.01, 1.9)
    )
    assert claim_clause(above).endswith("an attack shows at least 2.01 (95 % bound), which chance allows")
    assert "chance" not in claim_clause(below)
    assert "within chance" in answered(above, policy=POLICY).notes
    assert "chance" not in answered(below, policy=POLICY).notes
    assert "which chance allows" in " ".join(" ".join(lines(answered(above, policy=POLICY))).split())


def test_a_rule_that_does_not_apply_to_a_method_has_a_dash_beside_one_that_it_does() -> None:
    # Of the second nothing was concluded; of the first nothing says so.
    silent = Finding(audit="message", verdict="inconclusive", reason="r")
    privacy = CellPrivacy(claimed=2.0, accounted=2.0, verdict="inconclusive", reason="r")
    cells = (cell("first", 2.0), cell("second", 2.0, findings=(silent,), privacy=privacy))
    table = rule_table(decided(*cells, policy=RULES), short=True)
    (row,) = [line for line in table.splitlines() if line.startswith("| An audit reached a verdict")]
    assert row == "| An audit reached a verdict. | – | ? |"
