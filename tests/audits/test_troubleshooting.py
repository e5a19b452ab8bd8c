"""docs/howto/troubleshooting.md has an entry for everything that stands between an audit and an answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from fedassay.records.facts import ObstacleKind

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "howto" / "troubleshooting.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", sorted(get_args(ObstacleKind)))
def test_every_obstacle_has_its_entry(kind: str) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and f"(`{kind}`)" in line]
    assert len(rows) == 1, f"no entry, or two, for {kind}"
    assert all(cell.strip() for cell in rows[0].strip("|").split("|"))


def _quoted() -> list[str]:
    """The sentences of the entries on claims."""
    entries = PAGE.partition("## `unsupported`")[2].partition("## Comparing")[0].splitlines()
    return [found[1] for line in entries if (found := re.match(r'\| "([^"]+)"', line))]


@pytest.mark.parametrize("sentence", _quoted())
def test_what_is_quoted_is_what_is_said(sentence: str) -> None:
    """Some three words of it stand in the code as they do here, where values are left out."""
    said = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "audits" / "claim").rglob("*.py"))
    said = re.sub(r"\s+", " ", re.sub(r"\{[^{}]*\}", "", re.sub(r'"\s*\n\s*f?"', "", said)))
    words = sentence.split()
    assert any(" ".join(words[start : start + 3]) in said for start in range(len(words) - 2)), sentence
