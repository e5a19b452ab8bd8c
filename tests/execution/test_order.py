"""Audits of a cell are worked on in the order in which they decide, and the order changes nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from fedassay.audits.evidence import Subject
from fedassay.audits.verdict import not_run
from fedassay.execution import cell as cell_module
from fedassay.execution import engines, runner
from fedassay.execution.apart import Apart
from fedassay.execution.cell import Work
from fedassay.execution.cell_job import CellJob, Place
from fedassay.execution.order import Step, Teller, decisive_first, soonest_first, steps_of
from fedassay.execution.prepare import prepare
from fedassay.execution.runner import RunOptions
from fedassay.execution.simulated_source import SimulatedSource, job_of_plan
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import Scenario, parse_plan
from fedassay.records.facts import Harm
from fedassay.records.record import CellRecord
from fedassay.support.errors import PlanError
from fedassay.support.progress import SILENT, Progress

PLAN = """
name: small
seeds: [0]
data: {name: digits, limit: 120, split: {private: 0.4, attacker: 0.3, public: 0.1, test: 0.2}}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
privacy: {epsilon: 2}
methods: [fedcgs: {}]
attacks: [feature_inversion: {max_vectors: 2}, message_algebra: {}, gram_factorization: {}]
audits: [inversion: {}, message: {}, dp_claim: {}]
"""


TWO_CELLS = """
name: two
seeds: [0]
data: {name: digits, limit: 120, split: {private: 0.4, attacker: 0.3, public: 0.1, test: 0.2}}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
privacy: {epsilon: [inf, 2]}
methods: [fedcgs: {}]
attacks: [message_algebra: {}, membership: {tests: [likelihood_ratio]}]
audits: [dp_claim: {mechanism_trials: 2000}, message: {}, membership: {}]
"""


def _scenario(folder: Path, plan: str = PLAN, order: str = "decisive", **given: object) -> Scenario:
    raw = {**yaml.safe_load(plan), "resources": {"order": order}, **given}
    return resolve(parse_plan(raw, "plan"), folder, "plan")


def _case(folder: Path, progress: Progress = SILENT, order: str = "decisive") -> CellJob:
    scenario = _scenario(folder, order=order)
    prepared = prepare(scenario.plan, folder, 0, "cpu", SILENT)
    own = (scenario, scenario.cells[0], prepared, {}, Place(folder, "cpu", progress))
    source = job_of_plan(*own).source
    assert isinstance(source, SimulatedSource)
    return job_of_plan(*own, apart=Apart(lambda _cell: source.work))


def test_claims_and_algebra_come_before_what_trains_or_searches(tmp_path: Path) -> None:
    job = _case(tmp_path)
    steps = steps_of(job.audits, job.attacks)
    names = [step.audit.name for step in decisive_first(steps, job.another)]
    assert names.index("inversion") == len(names) - 1
    assert [step.place for step in steps] == list(range(len(steps)))
    assert sorted(names) == sorted(step.audit.name for step in steps)
    # Where nobody can estimate anything, kinds decide and the plan's order is kept among those that are alike.
    unknown = [step.place for step in decisive_first(steps, None)]
    early = [step.place for step in steps if step.audit.name != "inversion"]
    assert unknown == [*early, *(set(range(len(steps))) - set(early))]


def test_a_plan_may_say_that_its_own_order_is_worked_on(tmp_path: Path) -> None:
    job = _case(tmp_path, order="plan")
    steps = steps_of(job.audits, job.attacks)
    assert decisive_first(steps, job.another) == steps != decisive_first(steps, None)
    scenario = _scenario(tmp_path, TWO_CELLS, "plan")
    assert (
        soonest_first(scenario, "cpu")
        == list(scenario.cells)
        != soonest_first(_scenario(tmp_path, TWO_CELLS), "cpu")
    )
    with pytest.raises(PlanError, match=r"resources\.order: given .random.; allowed: decisive, plan"):
        _scenario(tmp_path, order="random")


def test_releases_with_a_claim_come_first_the_fast_ones_before_the_slow_ones(tmp_path: Path) -> None:
    own = {"methods": [{"feddiff": {}}, {"fedlog": {}}, {"fedcgs": {}}], "seeds": [4, 0]}
    keys = [(cell.method.name, cell.seed) for cell in soonest_first(_scenario(tmp_path, **own), "cpu")]
    fast_first = ["fedcgs", "fedlog", "feddiff"]
    # Cells of one seed share records and features, so that seeds stay together as the plan names them.
    assert keys == [(name, seed) for seed in (4, 0) for name in fast_first]
    both = {**own, "seeds": [0], "privacy": {"epsilon": ["inf", 2.0]}}
    private = [cell.privacy.private for cell in soonest_first(_scenario(tmp_path, **both), "cpu")]
    assert private == [True] * 3 + [False] * 3
    # Where no audit judges claims, they decide nothing sooner.
    unjudged = _scenario(tmp_path, **{**both, "audits": [{"message": {}}]})
    order = soonest_first(unjudged, "cpu")
    assert {cell.privacy.private for cell in order[:4]} == {True, False}
    # Methods take turns: the cells of one share work, which two workers on them at once would both do.
    assert [cell.method.name for cell in order] == 2 * fast_first


def _untimed(cell: CellRecord) -> str:
    """A cell without what was timed, and what was estimated from it: a run keeps times for the next one."""
    rows = tuple(row.model_copy(update={"seconds": None, "further_seconds": None}) for row in cell.coverage)
    return cell.model_copy(update={"seconds": {}, "coverage": rows}).model_dump_json()


@pytest.mark.long
def test_the_order_of_cells_changes_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name, order in (("soonest", soonest_first), ("latest", lambda *given: soonest_first(*given)[::-1])):
        monkeypatch.setattr(runner, "soonest_first", order)
        _, record = runner.run_scenario(_scenario(tmp_path, TWO_CELLS), tmp_path / name, RunOptions(quiet=True))
        assert [cell.epsilon for cell in record.cells] == [math.inf, 2.0]
        found.append([_untimed(cell) for cell in record.cells])
    assert found[0] == found[1]


@pytest.mark.long
def test_the_order_of_work_changes_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def backwards(steps: Sequence[Step], _another: object) -> list[Step]:
        return list(steps)[::-1]

    for name, order in (("decisive", decisive_first), ("backwards", backwards)):
        monkeypatch.setattr(cell_module, "decisive_first", order)
        done = Work(_case(tmp_path / name)).run()
        assert not done.errors
        found.append(_untimed(done.cell))
    assert found[0] == found[1]


@pytest.mark.long
def test_what_is_settled_is_said_before_the_cell_is_done(tmp_path: Path) -> None:
    said: list[str] = []
    Work(_case(tmp_path, Progress(tells=said.append))).run()
    assert any("claim holds" in line for line in said), said
    assert all(line.startswith("fedcgs at ε = 2 (one record added or removed)") for line in said)


def test_a_verdict_is_said_once_an_audit_and_silence_never() -> None:
    said: list[str] = []
    teller = Teller("cell", said.append)
    silent = not_run(Subject("message", "a"), "x")
    counts, exact = (
        silent.model_copy(update={"verdict": "leak", "harm": Harm(kind=kind, of=of, count=3, total=9)})
        for kind, of in (("counts", "client"), ("exact", "record"))
    )
    teller.hear([silent, counts, exact])
    teller.hear([counts])
    # The worst of a step is said, as a reader names it.
    assert said == ["cell leaks: the features of 3 of 9 records were recovered exactly from what is sent"]


def _speaks(key: str) -> object:
    engines.TO_PARENT.tell(f"from {key}")
    return key


def test_workers_are_heard_in_the_process_that_started_them() -> None:
    said: list[str] = []
    done = dict(engines.run_local(["a", "b"], _speaks, 1, 1, said.append))  # type: ignore[arg-type]
    assert done == {"a": "a", "b": "b"}
    assert sorted(said) == ["from a", "from b"]
