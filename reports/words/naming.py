"""File names made from words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedassay.support.text import digest

_LONGEST = 150

_SMALL = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def slug(words: str) -> str:
    """Words as a file name of plain letters.

    Example:
        >>> slug("fedpft, ε = 10, δ = 10⁻⁵, seed 0")
        'fedpft-eps-10-delta-10-5-seed-0'
    """
    plain = words.replace("ε", "eps").replace("δ", "delta").replace("∞", "inf").translate(_SMALL)
    return re.sub(r"[^A-Za-z0-9._]+", "-", plain).strip("-.").lower()


def distinct(names: Sequence[str]) -> list[str]:
    """The names in their order, with a number behind those that a file system could take for an earlier one.

    Args:
        names: Slugs; long ones are cut, with a digest of what was cut.

    Example:
        >>> distinct(["a", "b", "a", "a-2"])
        ['a', 'b', 'a-3', 'a-2']
    """
    cut = [name if len(name) <= _LONGEST else f"{name[:_LONGEST]}-{digest(name)}" for name in names]
    taken, seen = {name.casefold() for name in cut}, set[str]()
    out = []
    for name in cut:
        chosen, number = name, 2
        while chosen.casefold() in seen or (chosen != name and chosen.casefold() in taken):
            chosen, number = f"{name}-{number}", number + 1
        seen.add(chosen.casefold())
        out.append(chosen)
    return out
