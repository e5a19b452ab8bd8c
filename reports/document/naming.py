"""File names made from words."""

from __future__ import annotations

import re

_SMALL = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def slug(words: str) -> str:
    """Words as a file name of plain letters.

    Example:
        >>> slug("fedpft, ε = 10, δ = 10⁻⁵, seed 0")
        'fedpft-eps-10-delta-10-5-seed-0'
    """
    plain = words.replace("ε", "eps").replace("δ", "delta").replace("∞", "inf").translate(_SMALL)
    return re.sub(r"[^A-Za-z0-9._]+", "-", plain).strip("-.").lower()
