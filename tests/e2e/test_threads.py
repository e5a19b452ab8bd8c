"""A run with more than one thread ends: what was forked from it has none of its threads, and waits for none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fedassay.records.record import load_record

pytestmark = pytest.mark.long

PLAN = {
    "name": "threads",
    "seeds": [0],
    "data": {
        "name": "digits",
        "limit": 500,
        "split": {"private": 0.3, "attacker": 0.2, "public": 0.2, "test": 0.2, "control": 0.1},
    },
    "clients": {"count": 3, "partition": "iid"},
    # Trained before the first cell, in parallel where there are threads.
    "backbone": {"name": "small_cnn_rectified", "weights": "public"},
    "privacy": {"epsilon": 2, "delta": 1e-5},
    "methods": [{"fedcgs": {}}, {"fedncm": {}}],
    "attacks": [],
    "audits": [{"dp_claim": {}}],
}
_LONGEST = 300
"""Seconds after which a run of some ten hangs."""

TWICE = """
import sys
import fedassay
for name in ("first", "second"):
    run = fedassay.run("plan.yaml", name, progress=False)
    assert {cell.privacy.verdict for cell in run.record.cells} == {"sound"}
"""


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_claim_is_tested_where_the_backbone_was_trained_by_several_threads(jobs: str, tmp_path: Path) -> None:
    plan = PLAN if jobs == "1" else PLAN | {"methods": [{"fedcgs": {}}]}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    command = [sys.executable, "-m", "fedassay", "run", "plan.yaml", "-o", "run", "--jobs", jobs, "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "FEDASSAY_CACHE": str(tmp_path / "cache")}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=_LONGEST)
    verdicts = {cell.privacy.verdict for cell in load_record(tmp_path / "run").cells}
    assert verdicts == {"sound"}


def test_a_second_run_of_a_process_whose_threads_computed_ends_too(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(PLAN | {"methods": [{"fedcgs": {}}]}))
    (tmp_path / "twice.py").write_text(TWICE)
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "FEDASSAY_CACHE": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "twice.py"], cwd=tmp_path, env=environment, check=True, timeout=_LONGEST)
