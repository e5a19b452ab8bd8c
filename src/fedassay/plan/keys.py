"""The keys of a plan: what each may be, what it is when left out, and what it does.

Every table of keys, on the command line and in the documentation, is made here. Types and defaults are read
from the models that check a plan. The words are those of the source: `Attributes:` in a model's docstring, or the
string below a field.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator, PlainSerializer
from pydantic.fields import FieldInfo

from fedassay.plan.schema import PrivacySpec

SECTION = "section"
"""Word in a type for a mapping with the keys of another model."""

_SIMPLE = {bool: "true or false", int: "whole number", float: "number", str: "text"}


@dataclass(frozen=True)
class Key:
    """One key of a plan.

    Attributes:
        name: Its name in a plan, without the section.
        allowed: Allowed values, in words: `number in (0, 1]`, `one of a | b`, `section, or null`.
        default: Its default, as YAML or as the key that it is read from; None: it must be given.
        about: Its effect; empty where it is not described.
        sections: Models of the sections that it may hold.
        listed: Whether it holds a list of them.
    """

    name: str
    allowed: str
    default: str | None
    about: str
    sections: tuple[type[BaseModel], ...] = ()
    listed: bool = False


def keys(model: type[BaseModel]) -> tuple[Key, ...]:
    """The keys of a section or of a registered component, inherited ones too, in the order of its fields."""
    texts = described(model)
    found = []
    for name, field in model.model_fields.items():
        kind = _type(field.annotation, field.metadata)
        default = None if field.is_required() else _yaml(field.get_default(call_default_factory=True))
        sections = tuple(_models(field.annotation))
        listed = bool(sections) and "list of" in kind
        found.append(Key(field.alias or name, kind, default, texts.get(name, ""), sections, listed))
    return tuple(found)


def entry_keys() -> tuple[Key, ...]:
    """The keys that every entry of `methods` takes beside the method's own."""
    label = "Names the entry in the report, where no other may have the name; `null`: the method's name."
    return (
        Key("label", "text, or null", "null", label),
        *(
            Key(key.name, key.allowed, f"privacy.{key.name}", f"In place of `privacy.{key.name}`, for this entry.")
            for key in keys(PrivacySpec)
        ),
    )


def every_key(model: type[BaseModel], prefix: str = "") -> Iterator[Key]:
    """The same with what stands inside sections, each under its path: `head.solver`, `bodies[].name`."""
    for key in keys(model):
        path = prefix + key.name
        yield Key(path, key.allowed, key.default, key.about, key.sections, key.listed)
        for section in key.sections:
            yield from every_key(section, f"{path}[]." if key.listed else f"{path}.")


def described(model: type[BaseModel]) -> dict[str, str]:
    """Descriptions of each key; a class's own words go before those of the class it inherits from."""
    found: dict[str, str] = {}
    # Pydantic's own base class has an `Attributes:` section too, which is not about keys.
    for owner in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        found |= _attributes(inspect.cleandoc(owner.__dict__.get("__doc__") or ""))
    found |= {name: field.description for name, field in model.model_fields.items() if field.description}
    # Python's None is what a plan writes as null.
    return {name: re.sub(r"`?\bNone\b`?", "`null`", " ".join(text.split())) for name, text in found.items()}


def _attributes(docstring: str) -> dict[str, str]:
    """Name and text of every entry under `Attributes:`."""
    listed = re.search(r"^Attributes:\n(.*?)(?=^\S|\Z)", docstring, re.DOTALL | re.MULTILINE)
    entries = re.finditer(
        r"^    (\w+): (.*?)(?=^    \w|\Z)", listed[1] if listed else "", re.DOTALL | re.MULTILINE
    )
    return {entry[1]: entry[2] for entry in entries}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _type(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """A type as somebody who writes a plan needs it."""
    parts = get_args(annotation)
    match get_origin(annotation):
        case kind if kind is Annotated:
            # A `Field` among the annotations keeps its bounds to itself.
            inner = [item.metadata if isinstance(item, FieldInfo) else [item] for item in parts[1:]]
            return _type(parts[0], [bound for bounds in inner for bound in bounds])
        case kind if kind is Literal:
            return "one of " + " | ".join(map(str, parts)) if len(parts) > 1 else str(parts[0])
        case kind if kind in (Union, UnionType):
            return _union([part for part in parts if part is not NoneType], metadata, NoneType in parts)
        case kind if kind is tuple:
            element = _type(parts[0]).replace(", or ", " or ")
            # Where something reads the value before it is checked, one stands for a list of one.
            alone = any(isinstance(item, BeforeValidator) for item in metadata)
            return f"{element}, or a list of these" if alone else f"list of: {element}"
        case kind if kind is dict:
            return "entry"
    if issubclass(annotation, BaseModel):
        return SECTION
    infinite = ", or .inf" if any(isinstance(item, PlainSerializer) for item in metadata) else ""
    return _SIMPLE[annotation] + _limits(metadata) + infinite


def _union(parts: list[Any], metadata: Sequence[Any], null: bool) -> str:
    texts = [_type(part, metadata) for part in parts if get_origin(part) is not tuple]
    for part in parts:
        if get_origin(part) is tuple:
            alone = _type(get_args(part)[0]) in texts
            texts.append("a list of these" if alone else _type(part, metadata))
    return ", or ".join([*texts, *(["null"] if null else [])])


def _limits(metadata: Sequence[Any]) -> str:
    """Bounds: one alone as it is, two as an interval."""
    bounds = {
        name: value
        for item in metadata
        for name in ("gt", "ge", "lt", "le")
        if (value := getattr(item, name, None)) is not None
    }
    low, high = bounds.keys() & {"gt", "ge"}, bounds.keys() & {"lt", "le"}
    if low and high:
        (at, to) = (*low, *high)
        return f" in {'(' if at == 'gt' else '['}{bounds[at]:g}, {bounds[to]:g}{')' if to == 'lt' else ']'}"
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    return "".join(f" {signs[name]} {value:g}" for name, value in bounds.items())


def _yaml(value: Any) -> str:
    """A default as a plan would write it; a section shows what differs from its own defaults."""
    text: str = yaml.safe_dump(_plain(value), default_flow_style=True, width=math.inf, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        given = value.model_fields_set
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields if name in given}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
