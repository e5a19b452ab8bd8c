"""One answer in every format: the worst harm first, at most three short sentences, and nothing else."""

from __future__ import annotations

import itertools
import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import HARMFUL

import fedassay
from fedassay.api.run import Run
from fedassay.console import policy_file
from fedassay.plan.changes import changed_plan
from fedassay.records.facts import HARMS, Change, HarmKind
from fedassay.records.record import (
    CellRecord,
    ErrorRecord,
    Finding,
    Limit,
    Metric,
    RunRecord,
    load_record,
)
from fedassay.records.unfinished import MissingCell, Unfinished
from fedassay.reports import render, write_report
from fedassay.reports.answer.answer import answer
from fedassay.reports.answer.next_plan import next_plan
from fedassay.reports.answer.text import WIDTH, lines
from fedassay.reports.gate.judgement import Judgement
from fedassay.reports.gate.judging import judged
from fedassay.reports.gate.policy import Policy, Requires, load_policy
from fedassay.reports.words.harm_words import harm_clause
from fedassay.reports.words.harms import leaks
from fedassay.support.errors import PlanError

ROOT = Path(__file__).resolve().parents[2]
KIND = " (one record added or removed)"
GALLERY = ("photographs", "captured", "wrong", "closed_forms", "sweep", "claims")
LEAKS = Policy(name="leaks", forbidden_verdicts=("leak", "unsound"))


def captured(build_cell: Any, *findings: Finding, **given: Any) -> RunRecord:
    """A run of captured messages with these findings."""
    cell = build_cell(None, "fedcgs", "fedcgs", math.inf, None).model_copy(
        update={"findings": findings, "utility": {}, **given}
    )
    return RunRecord(plan={"name": "t", "transcript": {"folder": "t"}}, environment={}, cells=(cell,))


def rendered(record: RunRecord, folder: Path) -> dict[str, str]:
    """The answer as every format prints it."""
    record.save(folder)
    texts = {name: render(folder, record, name) for name in ("html", "md", "sarif")}
    written = write_report(record, folder, "evidence", folder / "evidence")
    texts["evidence"] = (written / "crosswalk.md").read_text(encoding="utf-8")
    texts["console"] = " ".join(" ".join(lines(answer(record))).split())
    texts["python"] = Run(record, folder).answer().text
    texts["notebook"] = Run(record, folder)._repr_html_()
    return texts


@pytest.mark.parametrize(("worse", "lesser"), list(itertools.combinations(HARMS, 2)))
def test_the_headline_names_the_worse_of_two_leaks_in_every_format(
    build_cell: Any, tmp_path: Path, worse: HarmKind, lesser: HarmKind
) -> None:
    for number, pair in enumerate(itertools.permutations((HARMFUL[worse], HARMFUL[lesser]))):
        record = captured(build_cell, *pair)
        first, second = (harm_clause(leak) for leak in leaks(record.cells))
        assert answer(record).headline == f"No: {first}."
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in rendered(record, folder).items():
            plain = " ".join(text.replace("\\_", "_").split())
            assert first in plain, name
            assert second not in plain or plain.index(first) < plain.index(second), name


def test_of_two_releases_the_worse_leak_is_first_wherever_it_stands(build_cell: Any) -> None:
    for worse, lesser in itertools.combinations(HARMS, 2):
        for order in itertools.permutations((HARMFUL[worse], HARMFUL[lesser])):
            cells = [
                build_cell(None, "fedcgs", "fedcgs", epsilon, 0).model_copy(update={"findings": (finding,)})
                for epsilon, finding in zip((2.0, 1.0), order, strict=True)
            ]
            said = answer(RunRecord(plan={}, environment={}, cells=tuple(cells)), LEAKS).text
            clauses = [harm_clause(leak) for leak in leaks(cells)]
            assert said.index(clauses[0]) < (said.index(clauses[1]) if clauses[1] in said else len(said))


def test_a_system_that_claims_nothing_is_not_headlined_by_an_infinite_epsilon(build_cell: Any) -> None:
    harm = HARMFUL["exact"].harm
    assert harm is not None
    every = harm.model_copy(update={"count": 100, "share": 1.0, "value": 1.0})
    whole = HARMFUL["exact"].model_copy(update={"harm": every})
    record = captured(build_cell, HARMFUL["counts"], whole)
    said = answer(record)
    assert (
        said.headline
        == "No: the features of all 100 records were recovered exactly from what is sent, by gram factorization."
    )
    assert "infin" not in said.text.lower()
    assert "Accounted" not in said.text


def refuted_cell(build_cell: Any, *findings: Finding) -> CellRecord:
    cell: CellRecord = build_cell(None, "fedcgs", "fedcgs", 2.0, 0, verdict="unsound", accounted=0.926, mu=0.3)
    noise = Finding(audit="dp_claim", verdict="unsound", reason="r", metrics={"noise_p": Metric(value=1e-300)})
    return cell.model_copy(update={"findings": (noise, *findings)})


def test_a_refuted_claim_comforts_nobody_in_any_format(build_cell: Any, tmp_path: Path) -> None:
    silent = HARMFUL["exact"].model_copy(
        update={"verdict": "no_leak_found", "limit": Limit(metric="share", value=0.01, n=100)}
    )
    record = RunRecord(plan={"name": "x"}, environment={}, cells=(refuted_cell(build_cell, silent),))
    found = answer(record)
    assert (
        found.headline
        == "No: fedcgs claims ε = 2 (one record added or removed) with noise of scale 0.0791, but the messages "
        "hold no such noise."
    )
    assert (found.missed, found.hides) == ("", "")
    assert found.rows[0].accounted == "does not hold"
    for name, text in rendered(record, tmp_path).items():
        for comfort in ("no leak was found", "No leak was found", "protects whether", "Protects whether"):
            assert comfort not in text, name
    figure = next(line for line in render(tmp_path, record, "html").split("<figure") if 'class="claims"' in line)
    assert "accounted 0.926" not in figure


def test_a_refuted_claim_stands_where_its_harm_stands(build_cell: Any) -> None:
    """First the leak of the other release where it is the worse one, and before every claim without a leak."""
    leak = build_cell(None, "fedpft", "fedpft", 1.0, 0).model_copy(update={"findings": (HARMFUL["exact"],)})
    bare = refuted_cell(build_cell)
    both = refuted_cell(build_cell, HARMFUL["pictures"])
    said = answer(RunRecord(plan={}, environment={}, cells=(bare, leak)), LEAKS).sentences
    assert [("features of 60" in words, "no such noise" in words) for words in said[1:]] == [
        (True, False),
        (False, True),
    ]
    said = answer(RunRecord(plan={}, environment={}, cells=(leak, both)), LEAKS).sentences
    assert "images were rebuilt" in said[1]
    assert "no such noise" in said[2]


@pytest.mark.parametrize("name", [*GALLERY, "demonstration"])
def test_an_answer_says_nothing_twice(name: str) -> None:
    """No leak of one release was found: that was said with its name, and again of the whole run without it."""
    said = " ".join(" ".join(lines(answer(load_record(ROOT / "docs" / "gallery" / name)))).split())
    sentences = said.split(". ")
    assert len(sentences) == len(set(sentences))
    assert said.count("No leak was found") <= 1


@pytest.mark.parametrize("name", [*GALLERY, "demonstration"])
def test_an_answer_fits_one_screen_and_its_sentences_are_short(name: str) -> None:
    record = load_record(ROOT / "docs" / "gallery" / name)
    found = answer(record)
    assert 1 <= len(found.sentences) <= 3
    for words in found.sentences:
        assert len(words.split()) <= 30, words
        assert words.endswith(".")
    shown = list(lines(found, "runs/demonstration"))
    assert len(shown) <= 25
    assert max(map(len, shown)) <= WIDTH
    # A name was cut where the findings beside it left room.
    assert name != "demonstration" or any("fedlog as released (fedlog) " in line for line in shown)


def test_the_word_follows_the_policy_and_the_record(build_cell: Any) -> None:
    good = build_cell(None, "fedcgs", "fedcgs", 1.0, 0)
    claims = Policy(name="p", claims="sound")
    record = RunRecord(plan={}, environment={}, cells=(good,))
    assert answer(record, claims).answer == "yes"
    assert answer(record, Policy(name="p", minimum={"accuracy": 1.0})).answer == "no"
    assert answer(record, Policy(name="p", must_conclude=("membership",))).answer == "not yet"


def test_a_method_and_an_epsilon_can_be_asked_for_and_what_is_not_there_is_refused() -> None:
    record = load_record(ROOT / "docs" / "gallery" / "photographs")
    found = answer(record, method="fedpft", epsilon=8.0)
    assert [(row.name, row.asked.bare, row.of) for row in found.rows] == [
        ("fedpft", 8.0, "one record replaced, same label")
    ]
    assert found.answer == "no"
    assert "Accounted ε 8.00 for one record replaced, same label is above the maximum of 3" in found.headline
    with pytest.raises(PlanError, match="method: given 'fedsdg'; allowed: raw_features, fedpft"):
        answer(record, method="fedsdg")
    with pytest.raises(
        PlanError, match=r"epsilon: given 5.0; allowed: ∞; 8 \(one record replaced, same label\); 1 "
    ):
        answer(record, method="fedpft", epsilon=5.0)


def test_which_epsilon(build_cell: Any) -> None:
    policy = Policy(name="p", maximum={"accounted": 3.0}, minimum={"accuracy": 0.85}, cells={"epsilon": "finite"})
    worth = {8.0: 0.95, 2.0: 0.9, 1.0: 0.86, 0.5: 0.5}

    def cells(*epsilons: float) -> RunRecord:
        made = [
            build_cell(None, "fedcgs", "fedcgs", epsilon, 0, verdict="sound", accounted=epsilon).model_copy(
                update={"utility": {"accuracy": worth[epsilon]}}
            )
            for epsilon in epsilons
        ]
        return RunRecord(plan={}, environment={}, cells=tuple(made))

    (meets,) = answer(cells(8.0, 2.0, 1.0, 0.5), policy).sweeps
    found = (meets.largest, meets.useful, meets.allowed)
    assert [each and each.bare for each in found] == [2.0, 1.0, 2.0]
    assert "the largest ε that passes is 2 (one record added or removed)" in meets.clause
    assert "the smallest useful one is 1" in meets.clause
    (parts,) = answer(cells(8.0, 0.5), policy).sweeps
    assert (
        parts.clause
        == "fedcgs: useful from ε = 8 (one record added or removed), within the limits up to 0.5; they do not meet"
    )


def test_an_epsilon_that_is_too_large_stands_beside_those_that_are_open(build_cell: Any) -> None:
    """Of a release at 10 that a policy allows 3 there was a tick for its claim, and no word."""
    policy = Policy(name="p", maximum={"accounted": 3.0}, must_conclude=("membership",))
    for asked, said in {
        (1.0, 10.0): f"ε = 1{KIND} breaks no rule, but some are open; 10 breaks one",
        (1.0, 2.0, 8.0): f"ε from 1{KIND} to 2 breaks no rule, but some are open; 8 breaks one",
        (1.0, 2.0): f"ε from 1{KIND} to 2 breaks no rule, but some are open",
    }.items():
        cells = (build_cell(None, "fedcgs", "fedcgs", each, 0, verdict="sound", accounted=each) for each in asked)
        (sweep,) = answer(RunRecord(plan={}, environment={}, cells=tuple(cells)), policy).sweeps
        assert sweep.clause == f"fedcgs: {said}"


def test_the_largest_class_stands_beside_the_accuracy(build_cell: Any) -> None:
    cell = build_cell(None, "fedcgs", "fedcgs", 1.0, 0)
    cell = cell.model_copy(update={"utility": {**cell.utility, "majority_share": 0.625}})
    found = answer(RunRecord(plan={}, environment={}, cells=(cell,)), Policy(name="p", claims="sound"))
    assert "0.625 by always naming the largest class" in found.accuracy
    assert found.rows[0].majority == "0.625"


def test_the_record_most_at_risk_is_said_where_an_audit_knows_it(build_cell: Any) -> None:
    one = Finding(
        audit="membership", verdict="leak", reason="r", metrics={"worst_record": Metric(value=0.93, n=200)}
    )
    found = answer(captured(build_cell, one))
    assert found.at_risk == "The record most at risk is told to be in or out in 93 % of runs; 50 % is guessing."


def test_the_next_plan_is_the_plan_with_the_change_and_can_be_run(tmp_path: Path) -> None:
    from fedassay.plan.resolve import load_scenario

    run = ROOT / "docs" / "gallery" / "photographs"
    found = answer(load_record(run))
    assert found.next.command == "fedassay next RUN > next.yaml && fedassay run next.yaml"
    plan = tmp_path / "next.yaml"
    plan.write_text(next_plan(run, None), encoding="utf-8")
    before = {cell.privacy.epsilon for cell in load_scenario(ROOT / "configs" / "photographs.yaml").cells}
    after = {cell.privacy.epsilon for cell in load_scenario(plan).cells}
    assert after - before == {3.0}
    with pytest.raises(PlanError, match="captured messages, which have no plan"):
        next_plan(ROOT / "docs" / "gallery" / "captured", None)


def test_what_is_open_of_a_release_that_breaks_a_rule_is_not_what_comes_next() -> None:
    """Of a refuted claim it said "add membership", which changes no answer."""
    record = load_record(ROOT / "docs" / "gallery" / "claims")
    refuted = answer(record, method="fedcgs exact counts")
    assert refuted.answer == "no"
    assert refuted.next.what.startswith("Add noise to the fields that are named")
    assert sum("ε = 1 " in words for words in refuted.sentences) == 1
    above = answer(record, method="fedcgs central", epsilon=10.0)
    assert above.answer == "no"
    assert "at ε = 1 " in above.next.what
    assert above.next.command == "fedassay answer RUN --method 'fedcgs central' --epsilon 1"
    within = answer(record, method="fedcgs central", epsilon=1.0)
    assert within.answer == "not yet"
    assert "membership" in within.next.what


@pytest.mark.long
@pytest.mark.parametrize("name", ["photographs", "closed_forms", "sweep", "clinic", "demonstration"])
def test_the_command_that_comes_next_does_what_the_answer_says(name: str) -> None:
    """The plan had the first change of the whole run, whichever release and policy had been asked about."""
    run = ROOT / "docs" / "gallery" / name
    record = load_record(run)
    asked = {(None, None), *((cell.label, cell.asked.bare) for cell in record.cells)}
    for policy, (method, epsilon) in itertools.product((None, policy_file(Path("demonstration"))), asked):
        held = None if policy is None else load_policy(policy)
        found = answer(record, held, method, epsilon)
        if found.next.changes:
            made = next_plan(run, held, method, epsilon)
            assert made.startswith(f"# {found.next.what}\n"), (method, epsilon)
            typed = shlex.split(found.next.command.partition(" >")[0])[3:]
            options = dict(zip(typed[::2], typed[1::2], strict=True))
            assert options.get("--method") == method
            assert float(options.get("--epsilon", "nan")) == pytest.approx(epsilon or math.nan, nan_ok=True)
            assert ("--policy" in options) == (held is not None and held.name != record.plan.get("policy"))


def test_a_command_that_comes_next_can_be_typed_as_it_stands(build_cell: Any, tmp_path: Path) -> None:
    """A folder or a label with a space was two arguments, and a label RUN became the folder."""
    made = (
        build_cell(None, "fedcgs", "fedcgs", asked, 0, verdict="sound", accounted=asked) for asked in (1.0, 8.0)
    )
    cells = [cell.model_copy(update={"label": "sums RUN"}) for cell in made]
    policy = Policy(name="my own", maximum={"accounted": 3.0}, claims="sound")
    found = answer(RunRecord(plan={}, environment={}, cells=tuple(cells)), policy, epsilon=8.0)
    assert found.answer == "no"
    typed = shlex.split([*lines(found, "my run", "my policy.yaml")][-1])
    assert typed == [
        *("fedassay", "answer", "my run", "--method", "sums RUN"),
        *("--epsilon", "1", "--policy", "my policy.yaml"),
    ]


def test_changes_of_a_plan() -> None:
    plan: dict[str, Any] = {"attacks": [{"one": {"a": 1}}, "two"], "privacy": {"epsilon": [8, 1]}, "data": {}}
    changes = (
        Change(key="attacks.one.a", before=1.0, after=2.0),
        Change(key="attacks.two.b", after="large"),
        Change(key="privacy.epsilon", after=3.0),
        Change(key="data.split.control", after=0.2),
    )
    assert changed_plan(plan, changes) == {
        "attacks": [{"one": {"a": 2}}, {"two": {"b": "large"}}],
        "privacy": {"epsilon": [8, 1, 3]},
        "data": {"split": {"control": 0.2}},
    }
    assert plan["attacks"][1] == "two"
    with pytest.raises(PlanError, match="the plan has no attack three; allowed: one, two"):
        changed_plan(plan, (Change(key="attacks.three.a", after=1.0),))


def test_what_broke_off_or_is_not_vouched_for_is_no_yes(build_cell: Any, tmp_path: Path) -> None:
    cell = build_cell(None, "fedcgs", "fedcgs", 2.0, 0).model_copy(update={"key": "fedcgs-eps2"})
    whole = RunRecord(plan={"name": "n"}, environment={}, cells=(cell,))
    policy = Policy(name="mine", maximum={"claimed": 30.0}, coverage="any")
    assert answer(whole, policy).answer == "yes"
    broken = whole.model_copy(
        update={"errors": (ErrorRecord(cell="fedcgs-eps2", stage="my_audit:gallery", message="KeyError: 'a'"),)}
    )
    found = answer(broken, policy)
    assert found.answer == "not yet"
    assert found.headline == "Not yet: the audit my audit of gallery broke off."
    assert found.next.command == "fedassay run PLAN -o RUN --resume"
    assert "fedcgs, ε = 2 (one record added or removed)" in list(judged(broken, policy).first_lines())[1]
    # The same of what is asked of the run as a whole, which only `check` can look at.
    asked = policy.model_copy(update={"requires": Requires(versions=("9.9",))})
    assert answer(whole, asked).answer == "not yet"
    made = whole.model_copy(update={"environment": {"fedassay": "1.0"}})
    assert answer(made, asked).answer == "no"
    unvouched = Judgement("verified", "", "undecided", "statement.json is not there")
    assert answer(whole, policy, judgements=(*judged(whole, policy).judgements, unvouched)).answer == "not yet"


@pytest.mark.parametrize("given", [{"verdict": "unsound", "observed": 9.0}, {}])
def test_an_answer_to_a_stopped_run_says_how_much_is_missing(build_cell: Any, given: dict[str, Any]) -> None:
    cell = build_cell(None, "fedcgs", "fedcgs", 2.0, 0, **given)
    asked = {"method": "fedcgs", "label": "fedcgs", "epsilon": 1.0, "delta": 1e-5, "seed": 0}
    missing = MissingCell.model_validate({**asked, "adjacency": "add_remove", "unit": "record"})
    stopped = Unfinished(why="it was stopped", command="fedassay run PLAN --resume", cells=(missing,))
    record = RunRecord(plan={"name": "n"}, environment={}, cells=(cell,), unfinished=stopped)
    assert "This run is not finished: 1 of 2 cells are missing." in answer(record).text
    assert "not finished" not in answer(record.model_copy(update={"unfinished": None})).text


def test_the_command_that_comes_next_names_the_policy_that_was_given(build_cell: Any, tmp_path: Path) -> None:
    record = captured(build_cell, HARMFUL["exact"])
    policy = Policy(name="release", forbidden_verdicts=("leak",))
    found = answer(record, policy)
    assert found.next.command == "fedassay check RUN --policy POLICY --verbose"
    said = list(lines(found, "runs/one", "ci/policy.yaml"))
    assert said[-1] == "  fedassay check runs/one --policy ci/policy.yaml --verbose"
    assert answer(record, load_policy(policy_file(Path("strict")))).next.command.count("--policy strict") == 1


def test_the_answer_is_in_the_json_and_in_the_data_frame(build_cell: Any, tmp_path: Path) -> None:
    record = captured(build_cell, HARMFUL["exact"])
    written = write_report(record, tmp_path, "evidence", None) / "answer.json"
    content = json.loads(written.read_text(encoding="utf-8"))
    assert content["answer"] == "no"
    assert content["harm"]["kind"] == "exact"
    pytest.importorskip("pandas")
    cells = Run(record, tmp_path).cells
    assert list(cells["answer"]) == ["no"]
    assert list(cells["worst"]) == ["leak"]


def test_a_policy_goes_by_its_name() -> None:
    assert load_policy(policy_file(Path("strict"))).above_majority
    with pytest.raises(PlanError, match="no such file; these ship: strict, demonstration, research and messages"):
        policy_file(Path("lax"))


@pytest.mark.parametrize(
    ("undeclared", "arrays", "said"),
    [
        ("other", {"w": (7, 5)}, "Not attacked: w "),
        ("parameters", {"w": (700,)}, "Not attacked: w is read as weights of a network"),
    ],
)
def test_captured_fields_that_no_attack_read_are_said_with_what_would_let_one(
    tmp_path: Path, undeclared: str, arrays: dict[str, tuple[int, ...]], said: str
) -> None:
    rng = np.random.default_rng(0)
    with fedassay.record(tmp_path / "sent", classes=6, undeclared=undeclared) as recorder:
        for client in range(2):
            recorder.sent(client, {name: rng.normal(size=shape) for name, shape in arrays.items()} | {"loss": 0.3})
    run = fedassay.audit(tmp_path / "sent", tmp_path / "run", device="cpu", progress=False)
    sentences = [each for each in answer(run.record).sentences if each.startswith("Not attacked")]
    assert len(sentences) == 1
    assert sentences[0].startswith(said)
    assert "kinds={'w'" in sentences[0] or "recorder.sent('server'" in sentences[0]
