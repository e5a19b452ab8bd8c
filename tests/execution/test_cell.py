"""The one runner of cells: what an audit is given, for messages of our own and for captured ones alike."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import fedassay
from fedassay.contracts.attack import AttackResult
from fedassay.contracts.audit import AttackedContext, AuditContext, Rerun
from fedassay.contracts.facts import AuditFacts
from fedassay.exchange import ledger
from fedassay.exchange.transcript import load_transcript
from fedassay.execution import cell as cell_module
from fedassay.execution.captured_source import job_of_transcript
from fedassay.execution.cell import Work
from fedassay.execution.cell_job import AttackAuditEntry, CellJob, Place, RunAuditEntry
from fedassay.execution.prepare import prepare
from fedassay.execution.simulated_source import job_of_plan
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import Plan, Scenario, parse_plan
from fedassay.privacy.tape import Tape
from fedassay.records.record import Finding, RunRecord
from fedassay.reports.words.summary import strip
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

PLAN = """
name: small
seeds: [0]
data: {name: digits, limit: 120, split: {private: 0.4, attacker: 0.3, public: 0.1, test: 0.2}}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
methods: [fedcgs: {}]
attacks: [label_distribution: {}, membership: {shadows: 0, tests: [likelihood_ratio]}]
audits: [message: {}, membership: {trials: 0}, dp_claim: {}]
"""

Watch = Callable[[Any, AuditContext], list[Finding]]


def _plan() -> Plan:
    return parse_plan(yaml.safe_load(PLAN), "plan")


def _simulated(folder: Path) -> CellJob:
    scenario = resolve(_plan(), folder, "plan")
    prepared = prepare(scenario.plan, folder, 0, "cpu", SILENT)
    return job_of_plan(scenario, scenario.cells[0], prepared, {}, Place(folder, "cpu", SILENT))


def _captured(folder: Path, planned: bool) -> CellJob:
    """The messages of the simulated case, as if they came from elsewhere."""
    Work(_simulated(folder)).run()
    (transcript,) = (folder / "transcripts").iterdir()
    scenario: Scenario | None = resolve(_plan(), folder, "plan") if planned else None
    prepared = None if scenario is None else prepare(scenario.plan, folder, 0, "cpu", SILENT)
    return job_of_transcript(load_transcript(transcript), scenario, prepared, Place(folder, "cpu", SILENT))


CASES: dict[str, Callable[[Path], CellJob]] = {
    "simulated": _simulated,
    "captured": lambda folder: _captured(folder, planned=False),
    "captured with a plan": lambda folder: _captured(folder, planned=True),
}


def _watched(job: CellJob, watch: Watch) -> CellJob:
    """The case with one audit of each kind, that only watches."""
    kinds = tuple(kind for attack in job.attacks for kind in attack.build.facts.gives)
    return dataclasses.replace(
        job,
        audits=(
            RunAuditEntry("memorization", "watch", lambda context: watch(None, context)),
            AttackAuditEntry("message", "watch", AuditFacts(judges=kinds), watch, "no attack"),
        ),
    )


@pytest.fixture(scope="module", params=CASES)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, Any]]:
    """Results and contexts that audits of a case get."""
    kept: list[tuple[Any, AuditContext]] = []

    def watch(result: Any, context: AuditContext) -> list[Finding]:
        kept.append((result, context))
        return []

    done = Work(_watched(CASES[request.param](tmp_path_factory.mktemp("run")), watch)).run()
    assert not done.errors
    return kept


def test_nothing_in_a_context_is_missing(seen: list[tuple[Any, AuditContext]]) -> None:
    """What does not exist is empty: no audit has to ask whether a field is there."""
    assert len(seen) > 1
    for _, context in seen:
        for field in dataclasses.fields(context):
            assert getattr(context, field.name) is not None, field.name
        assert len(context.data.fresh) > 0
        assert context.data.classes == context.view.classes


def test_only_audits_of_attacks_can_attack(seen: list[tuple[Any, AuditContext]]) -> None:
    (_, plain), *others = sorted(seen, key=lambda pair: isinstance(pair[1], AttackedContext))
    assert not isinstance(plain, AttackedContext)
    assert not hasattr(plain, "attack")
    for result, context in others:
        assert isinstance(context, AttackedContext)
        assert context.attack_key.startswith(result.attack)
        again = context.attack(context.view)
        assert isinstance(again, AttackResult)
        assert again.scores.keys() == result.scores.keys()
        for name, values in result.scores.items():
            np.testing.assert_array_equal(again.scores[name], values)


def test_pictures_of_different_audits_have_different_names(seen: list[tuple[Any, AuditContext]]) -> None:
    names = [context.io.prefix for _, context in seen]
    assert len(set(names)) == len(names)
    assert len({cell for cell, *_ in names}) == 1


def test_the_method_is_run_again_where_there_is_one(seen: list[tuple[Any, AuditContext]]) -> None:
    context = seen[0][1]
    if not context.data.clients:
        with pytest.raises(NotRunError, match="cannot be drawn again"):
            context.method.run_on((), Seeds(3))
        return
    again = context.method.run_on(context.data.clients, context.seeds)
    fewer = context.method.run_on([client.take(np.arange(5)) for client in context.data.clients], Seeds(3))
    counts = [
        sum(int(message.of_kind("class_counts").sum()) for message in outcome.transcript.from_clients())
        for outcome in (context.outcome, again, fewer)
    ]
    assert counts == [counts[0], counts[0], 5 * len(context.data.clients)]


def test_without_a_plan_images_have_no_features(tmp_path: Path) -> None:
    """No stand-in of width 0 encodes anything."""

    def encode(_: Any, context: AuditContext) -> list[Finding]:
        context.data.encode(context.data.test.images)
        raise AssertionError

    job = _captured(tmp_path, planned=False)
    assert job.known.backbone is None
    (finding, *_) = Work(_watched(job, encode)).run().cell.findings
    assert (finding.verdict, "no backbone" in finding.reason) == ("not_run", True)


@pytest.mark.parametrize("name", CASES)
def test_the_ledger_is_added_up_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CASES[name](tmp_path)
    calls = []

    def counted(*arguments: Any) -> ledger.Accounted:
        calls.append(arguments)
        return ledger.account(*arguments)

    monkeypatch.setattr(cell_module, "account", counted)
    done = Work(job).run()
    assert len(calls) == 1
    assert math.isinf(done.cell.privacy.accounted or 0.0)


@pytest.mark.parametrize("name", CASES)
def test_a_ledger_that_fails_leaves_reasons(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CASES[name](tmp_path)

    def broken(*arguments: Any) -> ledger.Accounted:
        raise ZeroDivisionError("a test")

    monkeypatch.setattr(cell_module, "account", broken)
    done = Work(job).run()
    assert [error.stage for error in done.errors] == ["accounting"]
    assert [finding.audit for finding in done.cell.findings] == [audit.name for audit in job.audits]
    assert {finding.verdict for finding in done.cell.findings} == {"not_run"}
    assert all("accounting" in finding.reason for finding in done.cell.findings)
    assert done.cell.privacy.accounted is None
    assert done.cell.ledger


@pytest.mark.parametrize("name", CASES)
def test_an_audit_that_fails_or_does_not_apply_stops_no_other(name: str, tmp_path: Path) -> None:
    def fail(result: Any, context: AuditContext) -> list[Finding]:
        if result is None:
            raise NotRunError("a reason")
        raise ZeroDivisionError("a test")

    job = _watched(CASES[name](tmp_path), fail)
    done = Work(job).run()
    reasons = [finding.reason for finding in done.cell.findings]
    attacks = len(reasons) - 1
    assert reasons[0] == "a reason"
    assert attacks == len(job.attacks)
    assert len(done.errors) == reasons.count("the audit failed; see errors") >= 1


def test_equal_plans_are_one_key_and_others_are_not() -> None:
    """A plan is a key by itself: it is hashed and compared, not written out."""
    content = yaml.safe_load(PLAN)
    one, two = (parse_plan(yaml.safe_load(PLAN), "plan") for _ in range(2))
    assert one is not two
    assert len({one, two}) == 1
    others = [
        parse_plan({**content, "methods": [{"fedcgs": {"covariance": "within"}}]}, "plan"),
        parse_plan({**content, "audits": []}, "plan"),
        parse_plan({**content, "seeds": [1]}, "plan"),
        parse_plan({**content, "threat": {"view": "aggregate"}}, "plan"),
    ]
    assert len({one, *others}) == 1 + len(others)


@dataclasses.dataclass(frozen=True)
class _Broken:
    """A source whose method crashes, as where its data set does."""

    def first(self, stages: Any) -> None:
        with stages("method"):
            raise RuntimeError("the data set broke")


@pytest.mark.parametrize("how", ["crashed", "lost"])
@pytest.mark.parametrize(("epsilon", "claimed"), [(1.0, 1.0), (math.inf, None)])
def test_a_cell_that_crashed_says_what_it_claimed(
    how: str, epsilon: float, claimed: float | None, tmp_path: Path
) -> None:
    """Nobody judged the claim: it was not withdrawn."""
    job = _simulated(tmp_path)
    entry = dataclasses.replace(job.entry, privacy=job.entry.privacy.model_copy(update={"epsilon": epsilon}))
    work = Work(dataclasses.replace(job, entry=entry, source=_Broken()))  # type: ignore[arg-type]
    cell = (work.run() if how == "crashed" else work.lost("its worker died")).cell
    assert (cell.privacy.claimed, cell.privacy.verdict) == (claimed, "not_run")
    assert ("the claim of epsilon 1 (one record added or removed) was not judged" in cell.privacy.reason) == (
        claimed is not None
    )
    (line,) = strip(RunRecord(plan={}, environment={}, cells=(cell,)))
    assert ("no privacy is claimed" in line.text) == (claimed is None)


def test_an_attack_that_chooses_among_vectors_has_the_same_to_choose_from_when_it_is_asked_again(
    tmp_path: Path,
) -> None:
    plan = yaml.safe_load(PLAN) | {
        "methods": [{"fedpft": {"components": 2, "covariance": "diag"}}],
        "attacks": [
            {"few_records": {"starts": 2, "sweeps": 1, "own_components": 1, "max_components": 3}},
            {"partial_reconstruction": {"share": 1.0}},
        ],
        "audits": [{"message": {}}],
    }
    scenario = resolve(parse_plan(plan, "plan"), tmp_path, "plan")
    prepared = prepare(scenario.plan, tmp_path, 0, "cpu", SILENT)
    job = job_of_plan(scenario, scenario.cells[0], prepared, {}, Place(tmp_path, "cpu", SILENT))
    told: list[tuple[str, str]] = []

    def watch(result: Any, context: AuditContext) -> list[Finding]:
        if isinstance(context, AttackedContext) and result.attack == "partial_reconstruction":
            told.append((result.notes[0], context.attack(context.view).notes[0]))
        return []

    Work(_watched(job, watch)).run()
    ((first, again),) = told
    assert "few_records" in first
    assert first == again


@pytest.mark.parametrize(
    ("method", "attack", "key", "audit"),
    [
        (
            {"fedsgd": {"batch": 8, "body": {"name": "mlp"}}},
            {"gradient_inversion": {"algebra": False, "most": 4}},
            "most",
            "inversion",
        ),
        ({"fedcgs": {}}, {"gram_factorization": {"max_records": 4}}, "max_records", "message"),
        (
            {"fedpft": {"components": 1, "covariance": "diag"}},
            {"few_records": {"starts": 2, "sweeps": 1, "own_components": 1, "max_components": 1}},
            "max_components",
            "message",
        ),
    ],
    ids=["gradients", "gram", "components"],
)
def test_what_a_parameter_kept_from_an_attack_is_not_tested_and_the_next_plan_raises_it(
    method: dict[str, Any], attack: dict[str, Any], key: str, audit: str, tmp_path: Path
) -> None:
    """A batch above the attack's limit once left the row out, as if there were nothing to read."""
    changed = {"methods": [method], "attacks": [attack], "audits": [{audit: {}}]}
    plan = yaml.safe_load(PLAN) | changed
    run = fedassay.run(plan, tmp_path / "run", progress=False)
    (name,) = attack
    (row,) = [row for row in run.record.cells[0].coverage if row.attack == name]
    assert row.status != "conclusive", row
    assert f"attacks: {name}: {key}: " in row.would_decide
    remedies = [
        row.remedy,
        *(finding.remedy for finding in run.record.cells[0].findings if finding.attack == name),
    ]
    changes = [change for remedy in remedies if remedy is not None for change in remedy.changes]
    assert changes
    assert {change.key for change in changes} == {f"attacks.{name}.{key}"}
    assert all(change.after > change.before for change in changes)


def test_records_that_an_audit_lacks_are_counted_and_the_next_plan_has_them(tmp_path: Path) -> None:
    """The number stood at the error and was lost on the way to the finding."""
    changed = {
        "attacks": [{"feature_inversion": {"preset": "tiny", "max_vectors": 4}}],
        "audits": [{"inversion": {}}],
        "methods": [{"raw_features": {}}],
    }
    run = fedassay.run(yaml.safe_load(PLAN) | changed, tmp_path / "run", progress=False)
    (row,) = [row for row in run.record.cells[0].coverage if row.attack == "feature_inversion"]
    (finding,) = run.record.cells[0].findings
    assert finding.obstacle is not None
    assert (finding.obstacle.kind, finding.obstacle.role, finding.obstacle.needed) == (
        "records_missing",
        "test",
        52,
    )
    assert "more records of the test role (data.split.test" in row.would_decide, row
    assert row.remedy is not None


def test_only_the_shadows_of_an_attack_may_draw_noise_in_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, tasks = _simulated(tmp_path), []
    method = type(job.source.cell.method.build)  # type: ignore[attr-defined]
    run = method.run
    monkeypatch.setattr(method, "run", lambda own, task: (tasks.append(task), run(own, task))[1])
    clients = job.known.clients
    job.source.run_on(clients, Seeds(1))
    job.source.run_nonprivate(clients, Seeds(1))
    job.source.rerun(Rerun(clients, Tape(), None, Seeds(1), brief=True))
    assert not any(task.shadow for task in tasks)
    Work(job).game.shadows("online", 1, lambda done, of: None)
    assert tasks[-1].shadow
    assert tasks[-1].simulated
