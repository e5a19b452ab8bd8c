"""Makes docs/licences.md: the licence of every distribution that locked.txt installs, as its own metadata says.

python docs/licences.py            writes the page, from what is installed
python docs/licences.py --check    exits 1 where the page is not what is installed
"""

from __future__ import annotations

import re
import sys
from email.message import Message
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "licences.md"
_HEAD = """# Licences

What `pip install --require-hashes -r locked.txt` installs, with the licence that each distribution declares in its
own metadata. fedassay itself is under Apache-2.0. `locked-cuda.txt` adds NVIDIA's libraries, which come under
NVIDIA's own terms, and Triton (MIT). `docs/licences.py` makes this page from an installed environment.

| licence | distributions |
|---|---|
"""
_LONGEST = 60


def pinned() -> dict[str, str]:
    """Versions by name, from locked.txt."""
    text = (ROOT / "locked.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;+]+)", text, re.MULTILINE))


def licence(about: Message) -> str:
    """The licence in a distribution's metadata: the SPDX expression, else the classifiers, else the free text."""
    if expression := about.get("License-Expression"):
        return expression
    classified = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier") or []
        if line.startswith("License ::") and not line.endswith("OSI Approved")
    ]
    if classified:
        return ", ".join(classified)
    free = (about.get("License") or "").strip().partition("\n")[0].strip()
    return free if free and len(free) <= _LONGEST else "see its files"


def installed(name: str, version: str) -> str | None:
    """The licence of a distribution; None where it, or this version of it, is not installed."""
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return None
    # The CPU build of torch is 2.13.0+cpu.
    return licence(about) if about["Version"].partition("+")[0] == version else None  # type: ignore[arg-type]


def page(known: dict[str, str]) -> str:
    """The page.

    Args:
        known: Licences of what is not installed here, by `name==version`, from an earlier page.
    """
    held: dict[str, list[str]] = {}
    for name, version in pinned().items():
        words = installed(name, version) or known.get(f"{name}=={version}") or "–"
        held.setdefault(words.replace("|", "/"), []).append(f"{name}=={version}")
    return _HEAD + "".join(f"| {words} | {', '.join(held[words])} |\n" for words in sorted(held))


def known() -> dict[str, str]:
    """Licences that the page names now, by `name==version`."""
    if not PAGE.is_file():
        return {}
    rows = re.findall(r"^\| (.+) \| (\S+==.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {each: words for words, held in rows if words != "–" for each in held.split(", ")}


def main() -> int:
    """Write the page, or compare it."""
    made = page(known())
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == made else 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
