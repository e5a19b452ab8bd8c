r"""Text that others wrote (labels, captured methods, senders, notes, error messages), made fit to be shown.

A terminal acts on control characters: they clear the screen, move the cursor and change earlier output. Marks of
writing direction change the visible order of a line, and a line end inside a name makes one line look like two.
Such characters are therefore shown as escapes (`\x1b`, `\u202e`) wherever text leaves for a terminal, a log or a
file.

The doors: `fedassay.support.terminal` for everything printed, the renderers of `fedassay.reports` for every page,
`file_name` for names of files.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from typing import Any

_KEPT = "\n\t"
# Controls, marks of direction and other invisible formats, lone surrogates, line and paragraph separators.
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = "\u200c\u200d"
"""Zero-width joiner and non-joiner: Persian, Indic scripts and many emoji are wrong without them."""


def plain(words: str, keep: str = "") -> str:
    r"""Return text on one line with every character visible: hidden ones are escaped.

    Args:
        words: Anything.
        keep: Characters that stay all the same.

    Example:
        >>> plain("a\x1b[2J\u202eb")
        'a\\x1b[2J\\u202eb'
    """
    if _all_seen(words, keep):
        return words
    return "".join(_escape(char) if _hidden(char) and char not in keep else char for char in words)


def _all_seen(words: str, keep: str) -> bool:
    """Whether all characters but `keep` are printable: Python calls none so that is of a hidden kind."""
    for char in keep:
        words = words.replace(char, "")
    return words.isprintable()


def plain_lines(words: str) -> str:
    """`plain`, with line ends and tabs kept: for whole pages and for text of our own that has several lines."""
    return plain(words, _KEPT)


def plain_tree(value: Any) -> Any:
    """A JSON-like value with `plain_lines` applied to every text in it, keys included."""
    if isinstance(value, str):
        return plain_lines(value)
    if isinstance(value, dict):
        return {plain_lines(key) if isinstance(key, str) else key: plain_tree(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_tree(item) for item in value]
    return value


def plain_json(document: str) -> str:
    """A JSON document that means the same, with JSON's own escapes where it held hidden characters raw.

    Serialisers escape only the controls below 32; a terminal acts on DEL and on those above 127, too.
    """
    # Outside its texts a document has no character that this touches.
    if (document.isascii() and "\x7f" not in document) or _all_seen(document, _KEPT):
        return document
    return "".join(_json_escape(char) if _hidden(char) and char not in _KEPT else char for char in document)


def shown(value: object, most: int = 80) -> str:
    """A value as an error shows it: as a plan would write it, cut where it is long.

    Args:
        value: Anything; of a container it is said which kind it is.
        most: Characters that are shown.

    Example:
        >>> shown("x" * 500, most=5)
        "'xxxx... (502 characters)"
        >>> [shown(value) for value in (None, True, {"a": 1}, [1, 2])]
        ['null', 'true', 'a mapping', 'a list']
    """
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple | set):
        return "a list"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"a number of {value.bit_length():,} bits"
    # The repr of a text is cut before it is made: that of 50 MB takes a second.
    text = repr(value[: most + 1]) if isinstance(value, str | bytes) else repr(value)
    length = len(value) + 2 if isinstance(value, str | bytes) else len(text)
    return text if length <= most else f"{text[:most]}... ({length:,} characters)"


def encodable(words: str) -> str:
    """A text that UTF-8 can hold: a file's name, or an argument, may be bytes of another encoding."""
    return words.encode("utf-8", "backslashreplace").decode("utf-8")


def cut(words: str, most: int) -> str:
    """Cut a message that is too long to read, and append its length."""
    return words if len(words) <= most else f"{words[:most]}... ({len(words):,} characters)"


def file_name(*parts: str, most: int = 80) -> str:
    """Texts as one name of a file: plain letters; no file system takes the names of different texts as one.

    Where letters were lost, or where the parts could have been split otherwise, a digest of the texts is added.

    Args:
        parts: Anything, such as an attack's label and the name of a source.
        most: Length above which the name is cut.

    Example:
        >>> file_name("reconstruction", "raw")
        'reconstruction-raw'
    """
    readable = "-".join(slug(part) for part in parts)
    # A name of plain parts has no dots of a digest, so the two kinds cannot collide.
    if len(readable) <= most and all(re.fullmatch("[a-z0-9_]+", part) for part in parts):
        return readable
    return f"{readable[:most]}.{digest(*parts)}"


def digest(*parts: str) -> str:
    """16 hexadecimal digits that stand for several texts."""
    whole = json.dumps(parts).encode()
    return hashlib.sha256(whole).hexdigest()[:16]


def slug(words: str) -> str:
    """Text with nothing but letters, digits, `.`, `_` and `-`, all of them ASCII; others become `_`."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", words)


def _hidden(char: str) -> bool:
    return unicodedata.category(char) in _HIDDEN and char not in _JOINERS


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(char: str) -> str:
    # JSON escapes units of UTF-16: two for characters beyond the first plane.
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
