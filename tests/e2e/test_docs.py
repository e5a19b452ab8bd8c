"""Every Python block of the documentation runs as it stands, and every JSON block parses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    for block in _blocks(page, "python"):
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_json_blocks_parse(page: Path) -> None:
    for block in _blocks(page, "json"):
        json.loads(block)


def test_the_documented_manifest_is_accepted(tmp_path: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    from fedassay.transcript import load_transcript

    manifest = _blocks(ROOT / "docs" / "transcript.md", "json")[0]
    (tmp_path / "transcript.json").write_text(manifest)
    arrays = {"counts": np.arange(10), "sums": np.zeros((10, 4))}
    save_file(arrays, tmp_path / "00000.safetensors")
    assert load_transcript(tmp_path).classes == 10
