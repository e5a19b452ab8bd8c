"""A dry run says which entries of the report's first table will be empty, and why."""

from __future__ import annotations

from pathlib import Path

from fedassay.plan.resolve import load_scenario
from fedassay.reports.document.mission.beforehand import beforehand, columns

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def test_the_sweep_of_four_methods() -> None:
    rows = {(row.method, row.epsilon): row.entries for row in beforehand(load_scenario(CONFIGS / "sweep.yaml"))}
    assert columns() == ("Reconstruction", "Inversion", "Copies", "Members", "Claim")
    assert rows["fedpft", "10"] == ("measured", "measured", "no generator", "not run", "asked")
    assert rows["fedlog", "∞"] == ("own features", "own features", "no generator", "not run", "no claim")
    assert rows["feddiff", "1"] == ("nearest samples", "no vectors", "measured", "not run", "asked")


def test_what_the_plan_leaves_out_is_not_run() -> None:
    rows = beforehand(load_scenario(CONFIGS / "sweep.yaml", ("audits=[{reconstruction: {}}]",)))
    assert {row.entries[1:4] for row in rows} == {("not run",) * 3}


def test_a_plan_without_images_has_no_such_table() -> None:
    assert beforehand(load_scenario(CONFIGS / "claims.yaml")) == ()
