"""One registry for everything a plan can name.

A component registers itself where it is defined:

    @register("attack", "feature_diffusion")
    class FeatureDiffusion(Parameters): ...

There is no central list. Names are found by reading the source of the rooms and of the
corridor (an AST walk, no import), so that `fedassay list` and the validation of a plan's names
stay fast; the one module that defines a component is imported when the component is used.
Third parties register through the entry-point group `fedassay`; each entry point is named
`kind.name` and points at the module that holds the decorated object.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from fedassay.support.errors import PlanError

Kind = Literal["method", "attack", "audit", "dataset", "backbone"]
"""What can be registered."""

_PLACES: dict[Kind, str] = {
    "method": "methods",
    "attack": "attacks",
    "audit": "audits",
    "dataset": "data",
    "backbone": "backbones",
}

_T = TypeVar("_T")
_registered: dict[tuple[str, str], Any] = {}


@dataclass(frozen=True)
class Entry:
    """A registered name: where it is defined and the first line of its docstring."""

    kind: Kind
    name: str
    module: str
    summary: str


def register(kind: Kind, name: str) -> Callable[[_T], _T]:
    """Register the decorated class or function as `name` among the `kind`s.

    Args:
        kind: One of `method`, `attack`, `audit`, `dataset`, `backbone`.
        name: The name that plans use; a string literal, since it is found without importing.

    Raises:
        ValueError: The kind is unknown, or the name is taken by another object.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"register: kind {kind!r} is not one of {', '.join(get_args(Kind))}")

    def keep(component: _T) -> _T:
        taken = _registered.get((kind, name))
        if taken is not None and getattr(taken, "__qualname__", None) != getattr(component, "__qualname__", None):
            raise ValueError(f"register: {kind} {name!r} is already defined by {taken!r}")
        _registered[kind, name] = component
        return component

    return keep


def entries(kind: Kind) -> dict[str, Entry]:
    """Every registered name of a kind, in alphabetical order, without importing any of them."""
    found = {entry.name: entry for entry in _scan(kind)}
    for point in _third_parties(kind):
        name = point.name.partition(".")[2]
        found.setdefault(name, Entry(kind, name, point.module, f"from {point.module}"))
    for (other, name), component in _registered.items():
        if other == kind and name not in found:
            doc = (component.__doc__ or "").strip().partition("\n")[0]
            found[name] = Entry(kind, name, component.__module__, doc)
    return dict(sorted(found.items()))


def lookup(kind: Kind, name: str) -> Any:
    """Import and return the component registered as `name`.

    Raises:
        PlanError: No such name; the message lists the names there are.
    """
    if (kind, name) in _registered:
        return _registered[kind, name]
    known = entries(kind)
    if name not in known:
        raise PlanError(f"{kind} {name!r} is not known; allowed: {', '.join(known)}")
    importlib.import_module(known[name].module)
    return _registered[kind, name]


def _third_parties(kind: Kind) -> list[EntryPoint]:
    return [point for point in entry_points(group="fedassay") if point.name.startswith(f"{kind}.")]


@cache
def _scan(kind: Kind) -> tuple[Entry, ...]:
    """Read the decorators in a room's source files."""
    folder = Path(__file__).parents[1] / _PLACES[kind]
    package = f"fedassay.{_PLACES[kind]}"
    found = []
    for path in sorted(folder.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "@register(" not in source:
            continue
        parts = path.relative_to(folder).with_suffix("").parts
        module = ".".join([package, *(part for part in parts if part != "__init__")])
        for node in ast.parse(source).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                summary = (ast.get_docstring(node) or "").partition("\n")[0]
                found += [
                    Entry(kind, name, module, summary)
                    for name in (_name_of(item, kind) for item in node.decorator_list)
                    if name is not None
                ]
    return tuple(found)


def _name_of(decorator: ast.expr, kind: Kind) -> str | None:
    match decorator:
        case ast.Call(
            func=ast.Name(id="register"), args=[ast.Constant(value=given), ast.Constant(value=str(name))]
        ) if given == kind:
            return name
    return None
