"""Cold start of `fedassay --help`, against importing the packages that a user would otherwise start.

    python benchmarks/cold_start.py

Each is a fresh interpreter; medians of alternating starts, after one that fills the file cache. Peers (breaching,
privacy_meter) are optional, and one that cannot be imported here is named as such; `import torch`, which both
of them need, is always measured. The row is met where the least disturbed start took under 0.5 s.
"""

from __future__ import annotations

import subprocess
import sys
from statistics import median

import measure

TARGET_SECONDS = 0.5
OURS = [sys.executable, "-m", "fedassay", "--help"]
PEERS = ("breaching", "privacy_meter", "torch")


def check() -> None:
    """Asserts that the help is printed, and that torch is not loaded for it."""
    done = subprocess.run(OURS, capture_output=True, text=True, check=True)
    assert "Commands:" in done.stdout
    loaded = "import sys; from fedassay import cli; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", f"the command line imports {done.stdout.strip()} before it needs to"


def run(full: bool = False, repeats: int = 3) -> measure.Row:
    """The row; `full` starts each of them ten times."""
    check()
    commands = {"ours": OURS} | {name: [sys.executable, "-c", f"import {name}"] for name in PEERS}
    first = {name: measure.run_process(command) for name, command in commands.items()}
    usable = {name: command for name, command in commands.items() if first[name].code == 0}
    starts: dict[str, list[measure.Finished]] = {name: [] for name in usable}
    for _ in range(10 if full else max(repeats, 5)):
        for name, command in usable.items():
            starts[name].append(measure.run_process(command))
    elapsed = {name: median(start.timing.elapsed for start in runs) for name, runs in starts.items()}
    cpu = {name: median(start.timing.cpu for start in runs) for name, runs in starts.items()}
    least = min(start.timing.elapsed for start in starts["ours"])
    peers = {name: seconds for name, seconds in elapsed.items() if name != "ours"}
    return {
        "row": "cold start of `fedassay --help`",
        "ratio": round(TARGET_SECONDS / least, 2),
        "target": f"under {TARGET_SECONDS} s",
        "met": least < TARGET_SECONDS,
        "peer": "none: allowed over taken, of the least disturbed start",
        "seconds": round(least, 3),
        "median_seconds": round(elapsed["ours"], 3),
        "cpu_seconds": round(cpu["ours"], 3),
        "peer_seconds": {name: round(seconds, 2) for name, seconds in peers.items()},
        "not_importable": [name for name in PEERS if name not in usable],
        "peak_mib": starts["ours"][0].peak_mib,
    }


if __name__ == "__main__":
    measure.main(run, __doc__)
