"""Whether a plan gives one record: ten runs at loads of 0 to 10, jobs 1 and 2, fast and backward clocks, kills.

    python benchmarks/equal_records.py [--runs 10] [--ray] [--nice 0]

Each run is a process of its own. While it works, as many busy processes as its number keep the machine from it.
Every third run has clocks that go 100 times too fast, every fourth a clock that goes backwards. Every fifth is
killed (SIGKILL) after its first finished cell and resumed. Compared is every cell of the record, without seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fedassay.support.terminal import say

PLAN = """
name: equal
seeds: [0]
data: {name: digits, limit: 160}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
privacy: {epsilon: [.inf, 4.0]}
methods: [raw_features, fedcgs, fedpft: {components: 2}]
attacks: [message_algebra, gram_factorization]
audits: [message, dp_claim]
resources: {threads: 1}
"""
_CLOCKS = """
import time
def _changed(name, change):
    real, start = getattr(time, name), getattr(time, name)()
    setattr(time, name, lambda: change(start, real() - start))
for name in {names}:
    _changed(name, lambda start, passed: start + {factor} * passed)
"""
_FAST = _CLOCKS.format(names=("time", "perf_counter", "monotonic", "process_time"), factor=100)
_BACKWARDS = _CLOCKS.format(names=("time",), factor=-1)


def main() -> None:
    """Print a row a run, and end with 1 where records differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--ray", action="store_true", help="one more run, by Ray")
    parser.add_argument("--nice", type=int, default=0, help="niceness of the busy processes, on a shared machine")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "plan.yaml").write_text(PLAN)
        found = [_row(home, number, "local", given.nice) for number in range(given.runs)]
        found += [_row(home, given.runs, "ray", given.nice)] if given.ray else []
    say(f"{len(found)} runs, {len(set(found))} records")
    sys.exit(len(set(found)) != 1)


def _row(home: Path, number: int, engine: str, nice: int) -> str:
    load = number % 11
    jobs = 1 + number % 2
    clock = _FAST if number % 3 == 2 else _BACKWARDS if number % 4 == 3 else ""
    killed = number % 5 == 4 and engine == "local"
    spinning = f"import os; os.nice({nice})\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", spinning]) for _ in range(load)]
    started = time.monotonic()
    try:
        digest = _record(home, f"run{number}", clock, jobs, killed, engine)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    about = "fast clock" if clock == _FAST else "backward clock" if clock else "true clock"
    words = f"load {load:>2}, jobs {jobs}, {engine}, {about}{', killed and resumed' if killed else ''}"
    say(f"{digest[:16]}  {time.monotonic() - started:5.0f} s  {words}")
    return digest


def _record(home: Path, name: str, clock: str, jobs: int, killed: bool, engine: str) -> str:
    """SHA-256 of the cells of one run."""
    hooks = home / f"{name}-hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(clock)
    paths = [str(hooks), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "FEDASSAY_CACHE": str(home / f"{name}-cache"),
        "OMP_NUM_THREADS": "1",
    }
    out = home / name
    command = [sys.executable, "-m", "fedassay", "run", str(home / "plan.yaml"), "-o", str(out), "--quiet"]
    command += ["--jobs", str(jobs), "--engine", engine]
    if killed:
        _killed_after_a_cell(command, out, environment)
        command.append("--resume")
    subprocess.run(command, env=environment, check=True)
    cells: list[dict[str, Any]] = json.loads((out / "record.json").read_text())["cells"]
    for cell in cells:
        del cell["seconds"]
        for row in cell["coverage"]:
            row.pop("seconds", None)
            row.pop("further_seconds", None)
    return hashlib.sha256(json.dumps(cells, sort_keys=True).encode()).hexdigest()


def _killed_after_a_cell(command: list[str], out: Path, environment: dict[str, str]) -> None:
    process = subprocess.Popen(command, env=environment)
    while process.poll() is None and not list(out.glob(".cells/*.json")):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    main()
