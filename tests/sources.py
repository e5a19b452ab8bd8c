"""The sources as syntax trees, of those files alone in which what a test looks for can stand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path


def parsed(words: str, *folders: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Parse the files below folders, which takes seconds for all of them.

    Args:
        words: A regular expression that is found in every file that can hold what is looked for.
        folders: Where the files lie, at any depth.
    """
    sought = re.compile(words)
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if sought.search(text := _text(path)):
                yield path, ast.parse(text)


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
