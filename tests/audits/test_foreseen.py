"""What a plan's size already decides is said before it runs, and is what the run then says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedassay.audits.foreseen import few_controls, few_images, few_releases
from fedassay.contracts.sizes import Planned, Sizes
from fedassay.execution.runner import RunOptions, run_scenario
from fedassay.plan.estimate import estimate, foreseen
from fedassay.plan.resolve import load_scenario, parse_plan, resolve

PLAN: dict[str, Any] = {
    "name": "small",
    "seeds": [0],
    "data": {
        "name": "digits",
        "split": {"private": 0.4, "attacker": 0.2, "public": 0.05, "test": 0.33, "control": 0.02},
    },
    "clients": {"count": 4, "partition": "iid"},
    "backbone": {"name": "pixels"},
    "privacy": {"epsilon": [1.0, 8.0], "delta": 1e-5},
    "methods": [{"fedcgs": {}}],
    "attacks": [{"membership": {"shadows": 0}}, {"feature_inversion": {"max_vectors": 5, "steps": 5}}],
    "audits": [{"membership": {"trials": 0, "releases": 200}}, {"inversion": {}}],
}
CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def planned(tests: int = 60, control: int = 200, claims: tuple[tuple[float, float], ...] = ()) -> Planned:
    sizes = Sizes(500, 300, 50, 300, control, 4, 10, (8, 8, 1), 64, 1e4)
    return Planned(sizes, tests, claims, (("feature_inversion", {"max_vectors": 5}), ("other", {})))


def test_words_say_what_is_too_small_and_what_would_do() -> None:
    assert few_controls(planned(control=8), 8) == ""
    assert few_controls(planned(control=7), 8).endswith("8 records or more, and data.split.control holds 7")
    assert "feature_inversion.max_vectors is 5, and 11 images" in few_images(planned())
    assert few_images(planned(tests=1)) == ""
    words = few_releases(planned(claims=((1.0, 1e-5),)), "releases", 200)
    assert "nothing up to twice epsilon 1; 1600 would do" in words
    assert few_releases(planned(claims=((1.0, 1e-5),)), "releases", 1600) == ""
    assert few_releases(planned(claims=((1.0, 1e-5),)), "releases", 0) == ""


@pytest.mark.long
def test_a_run_says_what_was_foreseen(tmp_path: Path) -> None:
    scenario = resolve(parse_plan(PLAN, "plan"), tmp_path, "plan")
    said = foreseen(scenario)
    assert [words.partition(":")[0] for words in said] == ["membership", "inversion"]
    assert set(said) <= set(estimate(scenario).remarks)
    record = run_scenario(scenario, tmp_path / "run", RunOptions(device="cpu", quiet=True))[1]
    silent = [f for cell in record.cells for f in cell.findings if f.verdict == "no_leak_found"]
    # Releases that are not even told from chance are silent about chance. Which ones, their draws decide.
    assert {f.source for f in silent} <= {"informed"}
    assert not [f for f in silent if f.limit is None or f.limit.metric == "epsilon"]
    assert any("more releases would decide" in f.reason for cell in record.cells for f in cell.findings)


@pytest.mark.parametrize(
    "name", ["quickstart", "demonstration", "clinic", "sweep", "persons", "attacks/membership"]
)
def test_shipped_plans_are_large_enough(name: str) -> None:
    assert foreseen(load_scenario(CONFIGS / f"{name}.yaml", (), 1.0)) == ()
