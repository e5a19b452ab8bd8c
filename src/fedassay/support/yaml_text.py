"""YAML of bounded cost: plain values, no key twice, no aliases that stand for billions of values.

Only the types of JSON are understood: mappings, lists, texts, numbers, true, false and null. Dates stay texts, so
that a name may look like one; sets, ordered maps, binary data and Python objects are refused.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, ClassVar

import yaml
from yaml.constructor import ConstructorError

from fedassay.support import limits
from fedassay.support.errors import PlanError
from fedassay.support.reading import read_regular
from fedassay.support.text import shown

_TAG = "tag:yaml.org,2002:"
_UNDERSTOOD = {f"{_TAG}{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")}
_PLAIN = {
    "bool": ("true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    "float": (
        r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    "null": ("~|null|Null|NULL|", ["~", "n", "N", ""]),
    "merge": ("<<", "<"),
}
"""Texts of each type in YAML 1.2, and their first letters. In 1.1 `no` is false, `010` 8 and `1:30` 90."""

# The parser in C takes a tenth of the time, where PyYAML was built with it.
_Base: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class _Loader(_Base):  # type: ignore[misc]
    """SafeLoader of plain values, which refuses a key given twice."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}
    yaml_constructors = {  # noqa: RUF012
        tag: constructor
        for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
        if tag in _UNDERSTOOD or tag is None
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping, after a look at its keys."""
        seen: set[Any] = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key_node.tag == f"{_TAG}merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise ConstructorError(None, None, "a list or a mapping is no key", key_node.start_mark)
            if key in seen:
                raise ConstructorError(None, None, f"key {shown(key)} is given twice", key_node.start_mark)
            seen.add(key)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made

    def construct_scalar_value(self, node: yaml.ScalarNode) -> Any:
        """A number, true, false or null."""
        kind = node.tag.removeprefix(_TAG)
        text = self.construct_scalar(node)
        if len(text) > limits.NUMBER_LENGTH:
            what = f"a number of {len(text):,} characters; at most {limits.NUMBER_LENGTH} are read"
            raise ConstructorError(None, None, what, node.start_mark)
        try:
            return yaml.SafeLoader.yaml_constructors[node.tag](self, node)
        except (ValueError, KeyError, IndexError, OverflowError):
            raise ConstructorError(None, None, f"{shown(text)} is no {kind}", node.start_mark) from None


for _name, (_text, _first) in _PLAIN.items():
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(f"(?:{_text})$"), _first)
for _name in ("bool", "int", "float"):
    _Loader.add_constructor(f"{_TAG}{_name}", _Loader.construct_scalar_value)


def read_yaml(path: Path) -> Any:
    """The value that a YAML file holds.

    Raises:
        PlanError: The file is missing, too large or no regular file; or its text is refused by `parse_yaml`.
    """
    content = read_regular(path, limits.YAML_BYTES, error=PlanError)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: cannot be read ({error})") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, where: str) -> Any:
    """The value that a YAML text stands for.

    Args:
        text: One document.
        where: Description of the text, for the error.

    Raises:
        PlanError: It is not YAML; it nests, or holds, more than is read; or a value in it is not plain.
    """
    try:
        _check_cost(text, where)
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise PlanError(f"{where}: not valid YAML: {_problem(error)}") from None
    except (ValueError, OverflowError) as error:  # a code point that does not exist; texts that are not Unicode
        raise PlanError(f"{where}: not valid YAML: {error}") from None


def _problem(error: yaml.YAMLError) -> str:
    """Return the problem with its line and column, without the parser's names for its own parts."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark = error.problem_mark
    hint = "; a blank must follow each colon" if "':'" in (error.problem or "") else ""
    return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}{hint}"


def _check_cost(text: str, where: str) -> None:
    """Refuse a text with too many values or too deep ones, aliases unfolded, from its events alone."""
    total, sizes = 0, dict[str, int]()
    opened: list[tuple[str, int]] = []
    for event in yaml.parse(text, Loader=_Loader):
        anchor: str = getattr(event, "anchor", None) or ""
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == name for name, _ in opened):
                raise PlanError(f"{where}: not valid YAML: the alias *{anchor} stands for what it is in")
            total += sizes.get(anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            sizes[anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((anchor, total))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            name, before = opened.pop()
            if name:
                sizes[name] = total - before
        if total > limits.YAML_NODES:
            raise PlanError(f"{where}: more than {limits.YAML_NODES:,} values, aliases unfolded, are not read")
        if len(opened) > limits.YAML_DEPTH:
            raise PlanError(f"{where}: values nested more than {limits.YAML_DEPTH} deep are not read")
