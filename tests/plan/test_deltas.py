"""Deltas of the plans that ship: where one allows a record to be published outright, the plan's head says so."""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from fedassay.data.partition import dirichlet
from fedassay.plan.resolve import load_scenario
from fedassay.plan.schema import Plan
from fedassay.plan.sizes import sizes_of

CONFIGS = Path(str(files("fedassay") / "configs"))
PLANS = sorted(path for path in CONFIGS.rglob("*.yaml") if "policies" not in path.parts)


def _largest(plan: Plan) -> int:
    """Records of the largest client: a typical draw of Dirichlet shares, else those of equal clients."""
    sizes = sizes_of(plan, CONFIGS)
    if isinstance(sizes, str):
        return 0
    if plan.clients.partition != "dirichlet":
        return math.ceil(sizes.private / plan.clients.count)
    labels = np.arange(sizes.private) % sizes.classes
    rng = np.random.default_rng(0)
    alpha, count = plan.clients.alpha, plan.clients.count
    drawn = [dirichlet(labels, count, alpha, plan.clients.min_records, rng) for _ in range(5)]
    return int(np.median([max(map(len, parts)) for parts in drawn]))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_a_delta_above_one_in_n_is_explained_in_the_head_of_its_plan(path: Path) -> None:
    """Heads compared delta with the records of the smallest client, beside which any delta looks small."""
    scenario = load_scenario(path)
    claimed = [cell.privacy.delta for cell in scenario.cells if math.isfinite(cell.privacy.epsilon)]
    if not claimed or max(claimed) * _largest(scenario.plan) <= 1:
        return
    head = path.read_text().partition("\nname: ")[0].replace("\n# ", " ")
    assert "delta: one_in_n" in head
    assert "largest client" in head
