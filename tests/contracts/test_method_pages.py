"""Every page of a method begins with what a client sends, what leaks, and which settings to deploy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEADS = ("Sent", "Leaks", "Deploy")
"""The three sentences, by the word in bold that each begins with."""
MOST = 30
"""Words of a sentence."""


def _pages() -> list[Path]:
    """Pages that are named after a folder of methods: a new folder's page is held to this, too."""
    names = {path.name for path in (ROOT / "methods").iterdir() if path.is_dir()}
    return sorted(page for page in (ROOT / "docs").glob("*.md") if page.stem in names)


def test_there_are_pages_of_methods() -> None:
    assert {"fedcgs", "fedpft", "fedlog", "feddiff", "closed_forms"} <= {page.stem for page in _pages()}


@pytest.mark.parametrize("page", _pages(), ids=lambda page: page.stem)
def test_a_method_page_begins_with_three_plain_sentences(page: Path) -> None:
    title, _, rest = page.read_text(encoding="utf-8").partition("\n\n")
    assert title.startswith("# ")
    first = rest.partition("\n\n")[0]
    items = [re.sub(r"\s+", " ", item).strip() for item in re.split(r"^- ", first, flags=re.MULTILINE) if item]
    assert len(items) == len(LEADS), first
    for lead, item in zip(LEADS, items, strict=True):
        assert item.startswith(f"**{lead}:** "), item
        words = re.sub(r"\]\([^)]*\)", "]", item.removeprefix(f"**{lead}:** "))
        assert len(words.split()) <= MOST, item
        assert words.endswith("."), item
        assert not re.search(r"[.?!] [A-Z]", words), f"one sentence: {item}"
