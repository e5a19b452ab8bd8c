"""The table of docs/architecture.md: which folder imports which, from the import statements of every module.

    python docs/architecture.py            writes the table into the page
    python docs/architecture.py --check    exits 1 where the page shows another one

The four rooms stand at the top of the repository and are links inside the package. Tools that follow no link see
four islands; here `fedassay.methods` is the folder that it is.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "fedassay"
ROOMS = ("methods", "attacks", "audits", "reports")
PAGE = ROOT / "docs" / "architecture.md"
START, END = "<!-- made by docs/architecture.py -->\n", "<!-- end of what docs/architecture.py makes -->\n"


@cache
def modules() -> dict[str, Path]:
    """Every module below `fedassay`, the rooms included, by its dotted name."""
    places = [(PACKAGE, "")] + [(ROOT / room, f"{room}.") for room in ROOMS]
    names = {}
    for place, prefix in places:
        for path in place.rglob("*.py"):
            parts = path.relative_to(place).with_suffix("").parts
            if not prefix and parts[0] in (*ROOMS, "configs"):
                continue
            name = prefix + ".".join(parts)
            names[name.removesuffix(".__init__").removesuffix(".")] = path
    return names


@cache
def _statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path: Path) -> set[str]:
    """The modules of the package that a module imports, those for type checking included."""
    names, targets = modules(), set()
    for node in _statements(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedassay."):
            module = str(node.module).removeprefix("fedassay.")
            targets |= {full if (full := f"{module}.{alias.name}") in names else module for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "fedassay":
            targets |= {alias.name for alias in node.names if alias.name in names}
        elif isinstance(node, ast.Import):
            targets |= {alias.name.removeprefix("fedassay.") for alias in node.names if "fedassay." in alias.name}
    return targets & set(names)


def folders() -> dict[str, set[str]]:
    """For each folder, and each module that stands in none, the others that it imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in modules().items():
        own = name.partition(".")[0]
        found[own] |= {target.partition(".")[0] for target in imports(path)} - {own}
    return dict(found)


def picture() -> str:
    """The table of folders from the ground up, each below every folder that it imports, with their numbers."""
    graph = folders()
    order = list(TopologicalSorter({own: sorted(others) for own, others in sorted(graph.items())}).static_order())
    rows = ["| folder | imports |", "|---|---|"]
    for number, own in enumerate(order, 1):
        others = [str(place) for place, other in enumerate(order[: number - 1], 1) if other in graph[own]]
        rows.append(f"| {number} `{own}` | {', '.join(others)} |")
    return "\n".join(rows) + "\n"


def written(page: str) -> str:
    """The page with today's table between its marks."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{picture()}\n{END}{after}"


def main(arguments: list[str]) -> int:
    """The command line."""
    page = PAGE.read_text(encoding="utf-8")
    if "--check" in arguments:
        return int(written(page) != page)
    PAGE.write_text(written(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
