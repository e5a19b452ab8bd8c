"""The user's own names in a record, and texts without them: the search behind `--redact`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

from fedassay.records.record import RunRecord

_T = TypeVar("_T")

GONE = "(redacted)"
"""Stands where a path, or the name of a folder, a file or a class was."""

IN_DATA = (
    *("root", "path", "labels", "features", "groups"),
    *("file_column", "label_column", "classes", "domains", "test_domain", "attributes"),
    *("layout", "sites", "label"),
)
"""Keys of `data` and `data.attacker_from` that hold names of the user's own."""
FOLDER = "folder"
CLASS_NAMES = "class_names"
ATTRIBUTE = "attribute"
"""A parameter that names a column of the user's own."""
SENDERS = "senders"
"""Of captured messages: the senders that have names of the user's own."""
_PLACES = ("path", "root", "labels", "features", "gallery", FOLDER, "file", "trunk")
"""Keys under which any text is a path, of one part or more."""
_LIKE_A_PATH = re.compile(r"(?:^|[\s\"'(=:])[~.]{0,2}/[^\s/]|\w[/\\]\w+[/\\]\w")
_KIND = re.compile(r"[A-Z][A-Za-z]*Error: ")
"""The type of an error, at the start of its message."""
_SHORTEST = 2
"""Least number of letters in a name that is searched for in text: one letter identifies no person."""
_ANY_CASE = 4
"""Least number of letters in a name that is searched for without regard to case."""
_CUT = 80
"""Characters after which `fedassay.support.text.shown` cuts a name."""
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """
        data dataset datasets image images file files folder path name names label labels feature features class
        classes group groups site sites domain domains patient patients person persons client clients server record
        records message messages member members attribute attributes column public private attacker control gallery
        train test validation weights plan plans run runs output report cache home user users work root tmp mnt srv
        var usr opt
        """,
    )
)
"""Words that texts use of themselves; a name that is one of them says nothing, but for a sensitive attribute."""
_VOCABULARY = frozenset(
    (
        *("method", "label", "audit", "attack", "metric", "shift_metric", "mechanism", "kind", "dtype", "shape"),
        *("unit", "key", "field", "group", "exact_fields", "statistic", "role", "rule", "basis", "released"),
    )
)
"""Fields of a cell's record that hold words of the house, of its components and of messages."""


class PrivateNames:
    """The names of the user's own that a record holds, to be kept out of its texts."""

    def __init__(self, record: RunRecord) -> None:
        command = record.environment.get("command")
        given = command[1:] if isinstance(command, (list, tuple)) else ()
        paths = {
            *_paths(record.plan),
            *_paths(record.environment.get("plan"), at="file"),
            *(part for part in given if isinstance(part, str) and not part.startswith("-") and is_path(part)),
        }
        parts = {part for path in paths for part in re.split(r"[/\\]", path)}
        stems = {PurePath(part).stem for part in parts}
        every = {*paths, *parts, *stems, *_classes(record.data), *_of_plan(record.plan)}
        sensitive = set(_sensitive(record.plan))
        self._quoted = _pattern(every | sensitive)
        self._names = _pattern(sensitive | {name for name in every if name.lower() not in _COMMON})

    def without(self, value: _T) -> _T:
        """Return a part of a cell without private names in its texts; words that fedassay itself writes stay.

        Such words are the keys of mappings, the fields of `_VOCABULARY`, and fields that allow no other words.
        """
        if isinstance(value, str):
            return self._names.sub(GONE, value)  # type: ignore[return-value]
        if isinstance(value, BaseModel):
            fields = type(value).model_fields
            held = {
                name: getattr(value, name)
                for name, field in fields.items()
                if name not in _VOCABULARY and not _fixed(field.annotation)
            }
            return value.model_copy(update={name: self.without(each) for name, each in held.items()})
        if isinstance(value, tuple):
            return tuple(map(self.without, value))  # type: ignore[return-value]
        if isinstance(value, list):
            return [self.without(each) for each in value]  # type: ignore[return-value]
        if isinstance(value, dict):
            return {key: self.without(each) for key, each in value.items()}  # type: ignore[return-value]
        return value

    def unless_quoted(self, words: str) -> str:
        """Return the text, unless it quotes one of the names or may hold another path."""
        if not (self._quoted.search(words) or _LIKE_A_PATH.search(words)):
            return words
        kind = _KIND.match(words)
        return GONE if kind is None else f"{kind[0]}{GONE}"


def _fixed(annotation: Any) -> bool:
    """Whether a field allows nothing but some words of the house."""
    parts = get_args(annotation)
    if get_origin(annotation) is Literal:
        return True
    return get_origin(annotation) in (Union, UnionType) and all(p is NoneType or _fixed(p) for p in parts)


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for these names, verbatim and as errors quote them, but for the mark; the longest first.

    An underscore separates words: it joins the name of a column to that of an attack. Short names are sought as
    they are written, longer ones in any case.
    """
    kept = {name for name in names if len(name) >= _SHORTEST and not name.isdecimal() and GONE not in name}
    forms = {form for name in kept for form in (name, repr(name)[1:-1], json.dumps(name)[1:-1], *_cut(name))}
    long = _any_of([form.lower() for form in forms if len(form) >= _ANY_CASE])
    short = _any_of([form for form in forms if len(form) < _ANY_CASE])
    words = "|".join([*([f"(?i:{long})"] if long else []), *([short] if short else [])])
    return re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])" if words else "(?!)")


def _any_of(words: Iterable[str]) -> str:
    """A pattern of some words, the longest that stands there first; words share their beginnings.

    Of thousands of names, such as those of senders, each place of a text is compared with few.
    """
    tails: dict[str, list[str]] = {}
    for word in sorted(set(words)):
        tails.setdefault(word[:1], []).append(word[1:])
    ends = bool(tails.pop("", []))
    parts = []
    for head, each in tails.items():
        # They are sorted, so a prefix that the first and the last share is shared by all.
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(each[0], each[-1], strict=False))
        shared = "".join(letter for letter, _ in alike)
        parts.append(re.escape(head + shared) + _any_of([tail[len(shared) :] for tail in each]))
    if not parts:
        return ""
    return f"(?:{'|'.join(parts)})" + ("?" if ends else "")


def _cut(name: str) -> Iterator[str]:
    """A long name as errors cut it."""
    if len(name) > _CUT:
        yield f"{repr(name)[1:_CUT]}..."


def _of_plan(plan: Any) -> Iterator[str]:
    """Names that a plan holds where they are no paths: columns, classes, domains, patterns, senders."""
    if not isinstance(plan, dict):
        return
    data, about = plan.get("data"), plan.get("transcript")
    sections = [data, data.get("attacker_from")] if isinstance(data, dict) else []
    sections += [{SENDERS: about.get(SENDERS)}] if isinstance(about, dict) else []
    for section in sections:
        for key, value in section.items() if isinstance(section, dict) else ():
            if key in IN_DATA or key == SENDERS:
                yield from _texts(value)


def _leaves(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """The texts in nested mappings and lists, each with the nearest key above it."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, str(key))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item, at)
    elif isinstance(value, str):
        yield at, value


def _sensitive(plan: Any) -> Iterator[str]:
    """The sensitive attributes of a plan, in its data and in its audits; `label` is the class itself."""
    return (words for at, words in _leaves(plan) if at in (ATTRIBUTE, f"{ATTRIBUTE}s") and words != "label")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str) and value != GONE:
        yield value
        yield from re.split(r"[^\w -]+", value)


def is_path(words: str) -> bool:
    """Whether a text of a plan names a file or a folder."""
    return any(mark in words for mark in "/\\~") or bool(re.fullmatch(r"\.[A-Za-z]\w*", PurePath(words).suffix))


def _paths(value: Any, at: str = "") -> Iterator[str]:
    """The texts that redaction takes out of a plan, or those at one key."""
    held = _leaves(value, at)
    return (words for key, words in held if key != "label" and (key in _PLACES or is_path(words)))


def _classes(data: Any) -> Iterator[str]:
    """The names of classes, wherever facts about data hold them."""
    return (words for at, words in _leaves(data) if at == CLASS_NAMES)
