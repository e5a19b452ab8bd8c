"""`fedassay run` on the shipped quickstart plan with an empty cache: seconds and memory.

    python benchmarks/quickstart.py

One run in a process of its own, cache and run folder in a temporary folder. There is no peer: the ratio is that of
the 120 s allowed to the seconds taken.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import measure

SECONDS, MIB = 120, 2048
CONCLUDED = 6
"""Cells of FedPFT and FedCGS, of eight, whose images an audit must conclude on."""


def check(record_folder: Path) -> None:
    """Asserts that every claim holds, and how many cells of FedPFT and FedCGS have concluded images."""
    from fedassay.records.record import load_record

    record = load_record(record_folder)
    assert {cell.method for cell in record.cells} == {"fedpft", "fedcgs", "fedlog", "feddiff"}
    assert not record.errors
    assert all(cell.privacy.verdict == "sound" for cell in record.cells if cell.privacy.claimed is not None)
    features = [cell for cell in record.cells if cell.method in ("fedpft", "fedcgs")]
    for audit in ("reconstruction", "inversion"):
        found = [{each.verdict for each in cell.findings if each.audit == audit} for cell in features]
        assert sum(bool(each & {"leak", "no_leak_found"}) for each in found) >= CONCLUDED, audit


def run(full: bool = False, repeats: int = 1) -> measure.Row:
    """The row; neither argument changes anything, one run says enough."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        plan = ["configs/quickstart.yaml", "--jobs", "2", "-o", str(out), "--quiet"]
        command = [sys.executable, "-m", "fedassay", "run", *plan]
        done = measure.run_process(command, {"FEDASSAY_CACHE": str(Path(folder) / "cache")})
        assert done.code == 0, f"fedassay run ended with exit code {done.code}"
        check(out)
    return {
        "row": "`fedassay run configs/quickstart.yaml --jobs 2`",
        "ratio": round(SECONDS / done.timing.elapsed, 2),
        "target": f"under {SECONDS} s and {MIB} MiB",
        "met": done.timing.elapsed < SECONDS and done.peak_mib < MIB,
        "peer": "none: allowed over taken",
        "seconds": round(done.timing.elapsed, 1),
        "cpu_seconds": round(done.timing.cpu, 1),
        "peak_mib": done.peak_mib,
    }


if __name__ == "__main__":
    measure.main(run, __doc__)
