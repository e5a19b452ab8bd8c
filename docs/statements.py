"""Count the statements of the package by folder, docstrings left out, at one revision or two.

    python docs/statements.py [BEFORE]

BEFORE is a revision of this repository; without it, the working tree is counted alone.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("attacks", "audits", "methods", "reports")


def statements(source: str) -> int:
    """Statements of a module, docstrings and other constants by themselves left out."""
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt))
    return sum(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in nodes)


def folder(path: str) -> str:
    """The room of a module, or its folder of the corridor."""
    parts = Path(path).parts
    if parts[0] in ROOMS:
        return "/".join(parts[: 2 if parts[0] == "audits" and len(parts) > 2 else 1])
    return "/".join(parts[1:3]) if len(parts) > 3 else "fedassay"


def counted(revision: str | None) -> Counter[str]:
    """Statements by folder, at a revision or in the working tree."""
    found: Counter[str] = Counter()
    listed = ["git", "ls-files"] if revision is None else ["git", "ls-tree", "-r", "--name-only", revision]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    for name in names:
        if not name.endswith(".py") or not name.startswith((*(f"{room}/" for room in ROOMS), "src/fedassay/")):
            continue
        if revision is None:
            path = ROOT / name
            source = path.read_text(encoding="utf-8") if path.is_file() and not path.is_symlink() else ""
        else:
            shown = subprocess.run(
                ["git", "show", f"{revision}:{name}"], cwd=ROOT, check=True, capture_output=True
            )
            source = shown.stdout.decode()
        found[folder(name)] += statements(source)
    return found


def main() -> None:
    """Print the table."""
    after, before = counted(None), counted(sys.argv[1]) if len(sys.argv) > 1 else None
    for name in sorted(set(after) | set(before or ())):
        print(f"{name:28}" + (f"{before[name]:8}" if before is not None else "") + f"{after[name]:8}")
    total = sum(after.values())
    print(f"{'all':28}" + (f"{sum(before.values()):8}" if before is not None else "") + f"{total:8}")


if __name__ == "__main__":
    main()
