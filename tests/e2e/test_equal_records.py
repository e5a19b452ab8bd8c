"""One plan, one record: under load, with clocks that are wrong, and killed; by the script that measures it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "equal_records.py"


@pytest.mark.slow
def test_no_load_clock_or_kill_changes_a_record() -> None:
    """The third run has clocks 100 times too fast, the fourth one that goes backwards, the fifth is killed."""
    command = [sys.executable, str(SCRIPT), "--runs", "5", "--nice", "19"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *rows, last = done.stdout.strip().splitlines()
    assert last == "5 runs, 1 records"
    assert [row.partition("local, ")[2] for row in rows] == [
        "true clock",
        "true clock",
        "fast clock",
        "backward clock",
        "true clock, killed and resumed",
    ]
