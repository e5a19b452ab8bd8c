"""Words and tables in Markdown and LaTeX: nothing in a label or a reason becomes a command."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from fedassay.support.text import plain

# Texts that GitHub and others turn into links, mentions or references without any markup. They look at the text
# that is left when the markup is gone, so that a backslash does not stop them; a code span does.
_LINKS = r"(?:@|\#(?=\d)|GH-(?=\d)|www\.|\w{0,12}:?//|(?:mailto|xmpp):)+"
_MARKUP = r"[\\`*_{}\[\]<>|\#~$&] | ^[-+=] | (?<=\d)[.)](?=\s|$)"
_SPECIAL = re.compile(f"(?P<links>{_LINKS}) | {_MARKUP}", re.VERBOSE | re.IGNORECASE)


def escaped(words: str) -> str:
    """Text that Markdown prints as it is, on one line, also inside a table; nothing in it becomes a link."""
    return _SPECIAL.sub(lambda m: f"`{m[0]}`" if m["links"] else f"\\{m[0]}", " ".join(words.split()))


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> str:
    """A table in Markdown of words that are escaped already; the columns at the places `right` are flush right."""
    under = "|".join("---:" if place in right else "---" for place in range(len(heads)))
    head, *body = (f"| {' | '.join(row)} |" for row in (heads, *rows))
    return "\n".join([head, f"|{under}|", *body])


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "μ": r"$\mu$",
    "∞": r"$\infty$",
    "≥": r"$\geq$",
    "×": r"$\times$",
    "–": "--",
    "−": "$-$",
    **{sign: f"$^{{{raised}}}$" for sign, raised in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", ["-", *"0123456789"], strict=True)},
}
"""Characters that LaTeX reads as commands or that its fonts may lack, and how they are written."""

_LATEX_CHARACTERS = re.compile("[" + re.escape("".join(_LATEX)) + "]")


def latex_escaped(words: str) -> str:
    """Words as LaTeX prints them: line ends as spaces, hidden characters as escapes, what no font has as `?`."""
    made = _LATEX_CHARACTERS.sub(lambda found: _LATEX[found[0]], plain(" ".join(words.split())))
    return made.encode("latin-1", "replace").decode("latin-1")
