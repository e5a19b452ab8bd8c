"""A sweep of 24 cells, against the same cells one by one without sharing.

    python benchmarks/sweep_sharing.py            24 cells; the peer on 3 of them, 8 cells apart
    python benchmarks/sweep_sharing.py --full     the peer on all 24
    python benchmarks/sweep_sharing.py --own-level

Three method entries at eight epsilons each, on scikit-learn's digits with a small network trained on public
records, attacked by feature diffusion and audited. Cells share records, backbone, features, the attacker's model
and the results of controls. The peer runs every cell as a plan of its own with an empty cache, in the same
process: what importing costs counts on neither side. One worker on both sides.

Levels are corrected for the tests of a run, and a stricter level takes more permutations. So that the peer does
the same work, its cells are judged at the level of the whole sweep, and must give the sweep's own findings.
`--own-level` judges them as runs of one cell, which tests less and takes fewer permutations.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import measure
import torch
import yaml

from fedassay.execution import runner, simulated_source
from fedassay.execution.runner import RunOptions, run_scenario
from fedassay.plan.resolve import load_scenario
from fedassay.records.record import CellRecord, RunRecord

TARGET = 3
EPSILONS = [".inf", 50, 20, 10, 5, 2, 1, 0.5]
METHODS = (
    "fedpft: {{label: full, components: 1, covariance: full, epsilon: {epsilon}}}",
    "fedpft: {{label: spherical, components: 1, covariance: spherical, epsilon: {epsilon}}}",
    "fedcgs: {{epsilon: {epsilon}}}",
)
PLAN = """
name: sweep
seeds: [0]
data: {{name: digits, limit: 800, split: {{private: 0.3, attacker: 0.5, public: 0.1, test: 0.1}}}}
clients: {{count: 5, partition: dirichlet, alpha: 0.5, min_records: 10}}
backbone: {{name: small_cnn, weights: public}}
methods: [{methods}]
attacks: [feature_diffusion: {{preset: tiny, samples: 1}}]
audits: [reconstruction: {{control_records: 60, permutations: 200}}]
"""


def plan(epsilons: list[object], methods: tuple[str, ...] = METHODS) -> str:
    listed = ", ".join(str(epsilon) for epsilon in epsilons)
    return PLAN.format(methods=", ".join("{" + method.format(epsilon=f"[{listed}]") + "}" for method in methods))


@contextmanager
def tests_in_run(tests: int | None) -> Iterator[None]:
    """Within the block, plans are judged at a level that is corrected for so many tests; None: for their own."""
    own = simulated_source.bounds_in
    if tests is not None:
        simulated_source.bounds_in = lambda _: tests
    try:
        yield
    finally:
        simulated_source.bounds_in = own


def tests_of(text: str, folder: Path) -> int:
    """How many tests a plan's run holds."""
    (folder / "tests.yaml").write_text(text)
    return simulated_source.bounds_in(load_scenario(folder / "tests.yaml", ()))


def run_alone(text: str, folder: Path, name: str) -> RunRecord:
    """Runs a plan with an empty cache and nothing left in this process from earlier plans."""
    os.environ["FEDASSAY_CACHE"] = str(folder / f"{name}.cache")
    for shared in (runner._prepared, runner._shared, simulated_source.similarity_of):
        shared.cache_clear()
    (folder / f"{name}.yaml").write_text(text)
    assert isinstance(yaml.safe_load(text), dict)
    scenario = load_scenario(folder / f"{name}.yaml", ())
    _, record = run_scenario(scenario, folder / name, RunOptions(device="cpu", quiet=True))
    assert not record.errors, record.errors
    return record


def check(one: CellRecord, other: CellRecord, *, same_level: bool = True) -> None:
    """Asserts that a cell alone and the same cell of the sweep measured the same, and found the same."""
    assert (one.label, one.epsilon, one.utility, one.communication) == (
        other.label, other.epsilon, other.utility, other.communication,
    )  # fmt: skip
    for a, b in zip(one.findings, other.findings, strict=True):
        assert {name: metric.value for name, metric in a.metrics.items()} == {
            name: metric.value for name, metric in b.metrics.items()
        }
        assert not same_level or (a.verdict, a.reason, a.limit) == (b.verdict, b.reason, b.limit)


def run(
    full: bool = False, repeats: int = 1, epsilons: list[object] | None = None, same_level: bool = True
) -> measure.Row:
    """Times both, once each, and returns the row of the performance table."""
    epsilons = epsilons or EPSILONS
    cells = [(epsilon, method) for method in METHODS for epsilon in epsilons]
    # One cell of every method entry, at another epsilon each.
    few = cells if full else [cells[(i * (len(epsilons) + 1)) % len(cells)] for i in range(len(METHODS))]
    before = os.environ.get("FEDASSAY_CACHE")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tests = tests_of(plan(epsilons), folder) if same_level else None
        run_alone(plan([".inf"], METHODS[2:]), folder, "warm")
        found: dict[str, RunRecord] = {}
        sweep = measure.seconds(lambda: found.update(sweep=run_alone(plan(epsilons), folder, "sweep")))
        peak = measure.peak_mib()
        alone = []
        for number, (epsilon, method) in enumerate(few):
            text, key = plan([epsilon], (method,)), f"cell{number}"
            with tests_in_run(tests):
                alone.append(measure.seconds(lambda t=text, k=key: found.update({k: run_alone(t, folder, k)})))
            mine = found["sweep"].cells[cells.index((epsilon, method))]
            check(found[key].cells[0], mine, same_level=same_level)
    os.environ.pop("FEDASSAY_CACHE")
    if before is not None:
        os.environ["FEDASSAY_CACHE"] = before
    ratio = sum(each.elapsed for each in alone) / len(few) * len(cells) / sweep.elapsed
    of_cpu = sum(each.cpu for each in alone) / len(few) * len(cells) / sweep.cpu
    level = "the sweep's level" if same_level else "the level of one cell"
    return {
        "row": f"a sweep of {len(cells)} cells",
        "ratio": round(ratio, 2),
        "target": TARGET,
        "met": min(ratio, of_cpu) >= TARGET,
        "ratio_of_cpu": round(of_cpu, 2),
        "peer": f"the cells one by one, each with an empty cache, at {level}",
        "sweep_seconds": round(sweep.elapsed, 1),
        "sweep_cpu_seconds": round(sweep.cpu, 1),
        "peer_seconds_per_cell": round(sum(each.elapsed for each in alone) / len(few), 1),
        "peer_cpu_seconds_per_cell": round(sum(each.cpu for each in alone) / len(few), 1),
        "peer_cells": len(few),
        "peak_mib": peak,
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    own_level = "--own-level" in sys.argv
    sys.argv = [each for each in sys.argv if each != "--own-level"]
    measure.main(partial(run, same_level=not own_level), __doc__)
