"""A run's stages correct the estimates of further runs on this machine, and nothing that a record holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedassay.execution.kept_cells import ANEW
from fedassay.execution.runner import RunOptions, run_scenario
from fedassay.plan import here
from fedassay.plan.estimate import estimate, timed
from fedassay.plan.resolve import load_scenario
from fedassay.plan.resources import threads_limited
from fedassay.plan.schema import Scenario

PLAN = """
name: timed
seeds: [0]
data: {name: digits, limit: 200, split: {private: 0.4, test: 0.2, control: 0.4}}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
methods: [fedcgs: {}]
attacks: [message_algebra: {}]
audits: [message: {}]
resources: {threads: 1}
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(ANEW)
    monkeypatch.setattr(here, "measure", lambda: 1.0)
    (tmp_path / "plan.yaml").write_text(PLAN)
    return load_scenario(tmp_path / "plan.yaml")


@pytest.mark.parametrize("redact", [False, True])
def test_a_run_is_kept_as_timed_stages_but_for_a_redacted_one(
    scenario: Scenario, tmp_path: Path, redact: bool
) -> None:
    before = estimate(scenario, here=here.this_machine(1))
    assert (before.cells, before.seconds) == (estimate(scenario).cells, estimate(scenario).seconds)
    _, record = run_scenario(scenario, tmp_path / "run", RunOptions(redact=redact, quiet=True))
    machine = here.this_machine(1)
    if redact:
        assert machine.stages == ()
        return
    assert {stage.unit for stage in machine.stages} == {"method", "cell", "message_algebra", "message"}
    (cell,) = record.cells
    assert sum(stage.took for stage in machine.stages) == pytest.approx(
        sum(cell.seconds.values()), rel=0.01, abs=0.01
    )
    assert estimate(scenario, here=machine).cells != before.cells
    assert estimate(scenario).seconds == before.seconds
    # Cells that a further run takes from the cache were timed once.
    run_scenario(scenario, tmp_path / "again", RunOptions(quiet=True))
    assert here.this_machine(1).stages == machine.stages


def test_a_stage_that_took_ten_times_as_long_is_estimated_at_that(scenario: Scenario) -> None:
    """By plans of other sizes too, as the cost grows with them."""
    seconds = {"method": 3.0, "message_algebra": 20.0, "message:message_algebra": 10.0, "view": 1.0}
    with threads_limited(1):
        here.keep(timed(scenario, [("fedcgs", False, seconds)]))
    found = estimate(scenario, here=here.this_machine(1)).seconds
    without = estimate(scenario, here=here.Here(1.0, ())).seconds
    assert found is not None
    assert without is not None
    assert found - without == pytest.approx(34.0, abs=4.0)


def test_stages_are_found_whatever_variables_libraries_have_set(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    with threads_limited(1):
        here.keep([here.Stage("method", "fedcgs", False, 1.0, 2.0)])
    monkeypatch.setenv("KMP_INIT_AT_FORK", "FALSE")
    assert len(here.this_machine(1).stages) == 1
    assert here.this_machine(2).stages == ()


def test_the_latest_stages_are_kept(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "_MOST_KEPT", 5)
    with threads_limited(1):
        for number in range(4):
            here.keep([here.Stage("method", "fedcgs", False, 1.0, float(number))] * 2)
    assert [stage.took for stage in here.this_machine(1).stages] == [1.0, 2.0, 2.0, 3.0, 3.0]


def test_a_run_without_work_keeps_nothing(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "_keep", lambda *_: pytest.fail("written"))
    here.keep([])


def test_the_fastest_of_the_first_speeds_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work slows a measurement down and never speeds it up."""
    monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path))
    speeds = iter([0.7, 1.1, 0.8, 1.0, 0.9])
    monkeypatch.setattr(here, "measure", lambda: next(speeds))
    assert [here.this_machine(1).speed for _ in range(6)] == [0.7, 1.1, 1.1, 1.1, 1.1, 1.1]


def test_the_measured_speed_is_sane() -> None:
    assert 0.1 <= here.measure() <= 10.0


@pytest.mark.parametrize("own", [True, False])
def test_a_long_plan_prints_a_range_that_is_narrower_where_its_work_was_timed(
    scenario: Scenario, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedassay.plan.measured.shipped", dict)
    stages = [stage._replace(took=900.0) for stage in timed(scenario, [("fedcgs", False, {"method": 900.0})])]
    stages = [stage if own else stage._replace(plan="of another name") for stage in stages]
    found = estimate(scenario, here=here.Here(1.0, tuple(stages)))
    assert found.seconds is not None
    factor = 1.5 if own else 3.0
    assert found.range == (found.seconds / factor, found.seconds * factor)
