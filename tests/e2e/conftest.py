"""What the tests of whole runs share: a plan of three cells, and what two runs of it must have in common."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# The scripts of this folder are imported by name.
sys.path.insert(0, str(Path(__file__).resolve().parent))

_THREE_CELLS = """
name: three-cells
seeds: [3]
data: {name: digits, limit: 400, split: {private: 0.4, attacker: 0.3, public: 0.1, test: 0.2}}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
methods:
  - fedcgs: {}
  - fedcgs: {label: second, ridge: 0.5}
  - fedcgs: {label: third, epsilon: 5}
attacks: [label_distribution: {}]
audits: [message: {}]
"""


@pytest.fixture(scope="session")
def three_cells() -> str:
    """A plan of three cells, `fedcgs`, `second` and `third`, that takes seconds."""
    return _THREE_CELLS


@pytest.fixture(scope="session")
def comparable() -> Callable[[Path], dict[str, Any]]:
    """The record of a run folder without what differs between runs: the environment and the times."""

    def read(run: Path) -> dict[str, Any]:
        content = json.loads((run / "record.json").read_text())
        content.pop("environment")
        for cell in content["cells"]:
            cell.pop("seconds")
        assert isinstance(content, dict)
        return content

    return read
