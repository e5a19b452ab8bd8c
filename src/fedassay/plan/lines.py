"""Lines of keys in a plan file, for tools that show results beside its lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from fedassay.support.text import encodable


def source_of(path: Path, labels: Sequence[str]) -> dict[str, Any]:
    """The plan file, and the line on which each method entry begins.

    Args:
        path: The plan as it was named. One below the current folder is named relative to it, any other by its
            file name alone: a record says nothing of a machine's folders.
        labels: Of the method entries, in the plan's order.

    Returns:
        `file`, and `lines`, which maps labels to lines counted from 1; without lines where the file has gone.
    """
    here, found = Path.cwd(), path.resolve()
    name = found.relative_to(here).as_posix() if found.is_relative_to(here) else path.name
    return {"file": encodable(name), "lines": dict(zip(labels, _entries(path), strict=False))}


def _entries(path: Path) -> list[int]:
    """The lines of the entries of `methods`."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return []
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value == "methods" and isinstance(value, yaml.SequenceNode):
            return [item.start_mark.line + 1 for item in value.value]
    return []
