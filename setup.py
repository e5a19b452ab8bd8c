"""What pyproject.toml cannot say: the rooms must be in place, and every build starts from an empty folder.

setuptools reuses `build/lib` of an earlier build, with modules that have been deleted since. Where the links to
the rooms are missing or dangle, as in a checkout without symbolic links, it makes a package without them and says
nothing.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from setuptools import setup

ROOMS = ("methods", "attacks", "audits", "reports", "configs")


def missing_room(package: Path) -> str | None:
    """One sentence about the first room that the package lacks; None where it has them all."""
    for room in ROOMS:
        first = package / room / "__init__.py"
        held = [path for path in first.parent.rglob("*") if path.suffix in {".py", ".yaml"}]
        if first not in held or all(path.name == first.name for path in held):
            return (
                f"fedassay cannot be built: src/fedassay/{room} must link to the package {room}/, with more in it "
                f"than __init__.py; check out with symbolic links (git config core.symlinks true), or use an sdist"
            )
    return None


if __name__ == "__main__":
    if problem := missing_room(Path(__file__).resolve().parent / "src" / "fedassay"):
        sys.exit(problem)
    with tempfile.TemporaryDirectory() as fresh:
        setup(options={"build": {"build_base": fresh}})
