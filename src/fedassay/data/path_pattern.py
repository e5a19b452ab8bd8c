"""Patterns of paths: which parts of the path of a file say something of it."""

from __future__ import annotations

import re
from collections.abc import Sequence


class PathPattern:
    """A pattern that is laid on the last parts of a path, as many as it has itself.

    `{word}` is what the word names, `*` any characters, `#` a number, none of them reaching over a `/`; all else
    stands for itself. From the left each takes as few characters as it can.

    Attributes:
        words: Words in braces, in the order of the pattern.
    """

    def __init__(self, text: str, ending: str = "") -> None:
        """Compile a pattern.

        Args:
            text: The pattern.
            ending: A regular expression that may follow the last part.
        """
        self.words: list[str] = re.findall(r"\{(\w+)\}", text)
        *folders, name = text.split("/")
        parts = [*map(_compiled, folders), _compiled(name, ending)]
        self._whole = re.compile(rf"(?:.*/)?{'/'.join(parts)}", re.DOTALL)

    def values(self, path: str) -> Sequence[str] | None:
        """Return the parts of a path at the pattern's words; None: it does not fit."""
        found = self._whole.fullmatch(path)
        return None if found is None else found.groups()


def _compiled(part: str, ending: str = "") -> str:
    """A regular expression for one part.

    Each wildcard is a group of its own with the literal behind it, which is never tried again: what a pattern of
    plain stars fits, it fits this way, and no pattern takes long.
    """
    pieces = re.split(r"(\{\w+\}|\*)", part)
    literals = [r"\d+".join(map(re.escape, piece.split("#"))) for piece in pieces[::2]]
    literals[-1] += rf"{ending}(?=/|\Z)"
    whole = literals[0]
    for wildcard, literal in zip(pieces[1::2], literals[1:], strict=True):
        whole += rf"(?>{'[^/]*?' if wildcard == '*' else '([^/]+?)'}{literal})"
    return whole
