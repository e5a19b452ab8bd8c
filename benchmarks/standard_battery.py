"""The standard battery on the plan photographs: `attacks: standard, audits: standard`, empty cache, two jobs.

    python benchmarks/standard_battery.py            methods and epsilons of configs/photographs.yaml, two jobs
    python benchmarks/standard_battery.py --full     with one job as well: what two jobs compute twice

Elapsed seconds say something on two free cores alone. Beside them stand the processor seconds of both processes
together, the seconds of every stage over all cells, and, of `--full`, how many times faster two jobs are where
each has a core of its own: processor seconds of one job over those of the busier of two workers, its cells taken
in the order in which the engine hands them out.
"""

from __future__ import annotations

import heapq
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import measure
import yaml

from fedassay.records.record import RunRecord, load_record

SECONDS, MIB, TWO_JOBS = 900, 2048, 1.8
PLAN = Path(__file__).resolve().parents[1] / "configs" / "photographs.yaml"


def plan() -> str:
    """The plan photographs with every attack and every audit."""
    shipped = yaml.safe_load(PLAN.read_text(encoding="utf-8"))
    return yaml.safe_dump(
        {**shipped, "attacks": [{"standard": {}}], "audits": [{"standard": {}}]}, sort_keys=False
    )


def check(record: RunRecord) -> None:
    """Asserts that the run is the one meant: every audit there, nothing failed, raw features leak."""
    audits = {finding.audit for cell in record.cells for finding in cell.findings}
    assert {"reconstruction", "inversion", "memorization", "membership", "message", "dp_claim"} <= audits, audits
    assert not record.errors, record.errors
    assert any(finding.verdict == "leak" for finding in record.cells[0].findings)


def stages(record: RunRecord) -> dict[str, float]:
    """Seconds of every stage over all cells, the dearest first."""
    total: Counter[str] = Counter()
    for cell in record.cells:
        total.update(cell.seconds)
    return {name: round(seconds, 1) for name, seconds in total.most_common()}


def busier(cells: Sequence[float], jobs: int = 2) -> float:
    """Seconds of the worker that ends last, where each takes the next cell when it is done with one."""
    workers = [0.0] * jobs
    for seconds in cells:
        heapq.heapreplace(workers, workers[0] + seconds)
    return max(workers)


def battery(folder: Path, jobs: int) -> tuple[measure.Finished, RunRecord]:
    """Runs the plan in a process of its own with an empty cache."""
    out = folder / f"jobs{jobs}"
    (folder / "plan.yaml").write_text(plan())
    command = [sys.executable, "-m", "fedassay", "run", str(folder / "plan.yaml"), "--jobs", str(jobs)]
    done = measure.run_process(
        [*command, "-o", str(out), "--quiet"], {"FEDASSAY_CACHE": str(folder / f"cache{jobs}")}
    )
    assert done.code == 0, f"fedassay run ended with exit code {done.code}"
    record = load_record(out)
    check(record)
    return done, record


def run(full: bool = False, repeats: int = 1) -> measure.Row:
    """The row; one run says enough."""
    with tempfile.TemporaryDirectory() as name:
        two, record = battery(Path(name), 2)
        row: measure.Row = {
            "row": "`attacks: standard, audits: standard` on the plan photographs, `--jobs 2`",
            "ratio": round(SECONDS / two.timing.elapsed, 2),
            "target": f"under {SECONDS} s and {MIB} MiB",
            "met": two.timing.elapsed < SECONDS and two.peak_mib < MIB,
            "peer": "none: allowed over taken",
            "seconds": round(two.timing.elapsed, 1),
            "cpu_seconds": round(two.timing.cpu, 1),
            "stages": stages(record),
            "peak_mib": two.peak_mib,
        }
        if full:
            one, alone = battery(Path(name), 1)
            row |= _compared(one, alone, two, record)
    return row


def _compared(
    one: measure.Finished, alone: RunRecord, two: measure.Finished, record: RunRecord
) -> dict[str, float | str | bool]:
    """Two jobs beside one: what both compute, and how much faster two free cores would be."""
    verdicts = [[finding.verdict for cell in each.cells for finding in cell.findings] for each in (alone, record)]
    assert verdicts[0] == verdicts[1]
    cells = [sum(cell.seconds.values()) for cell in record.cells]
    share = busier(cells) / sum(cells)
    # What is no cell's: imports, preparation, the report.
    outside = max(0.0, one.timing.cpu - sum(sum(cell.seconds.values()) for cell in alone.cells))
    faster = one.timing.cpu / (outside + (two.timing.cpu - outside) * share)
    return {
        "cpu_seconds_one_job": round(one.timing.cpu, 1),
        "cpu_of_two_over_one": round(two.timing.cpu / one.timing.cpu, 3),
        "busier_worker_share": round(share, 3),
        "two_free_cores": round(faster, 2),
        "two_free_cores_target": TWO_JOBS,
    }


if __name__ == "__main__":
    measure.main(run, __doc__)
