"""One registry for everything a plan can name.

A component registers itself where it is defined:

    @register("attack", "feature_diffusion")
    class FeatureDiffusion(Parameters): ...

There is no central list. Names are found by reading the source of the rooms and of the corridor (an AST walk, no
import), so that `fedassay list` and the validation of a plan's names stay fast. The module that defines a
component is imported when the component is used. Third parties register through the entry-point group `fedassay`;
each entry point is named `kind.name` and points at the module that holds the decorated object.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from fedassay.support.errors import PlanError

Kind = Literal["method", "attack", "audit", "dataset", "backbone", "metric", "field"]
"""The kinds of component that can be registered."""

_PLACES: dict[Kind, str] = {
    "method": "methods",
    "attack": "attacks",
    "audit": "audits",
    "dataset": "data",
    "backbone": "backbones",
    "metric": "similarity",
    "field": "exchange",
}

_GROUP = "fedassay"
"""The entry-point group of other packages' components."""

_T = TypeVar("_T")
_registered: dict[tuple[str, str], Any] = {}
_sizes: dict[tuple[str, str], object] = {}


@dataclass(frozen=True)
class RegistryEntry:
    """A registered name.

    Attributes:
        kind: Kind of the component.
        name: The name.
        module: Module that defines it.
        summary: First line of its docstring; of a component of another package, where it comes from.
        package: The package that brings it, for one of another package.
        facts: `module:NAME` of what the class declares, where that stands in a module of its own.
        source: The paper that it is from, as its file cites it; empty where it cites none, and of other packages.
    """

    kind: Kind
    name: str
    module: str
    summary: str
    package: str = ""
    facts: str = ""
    source: str = ""

    @property
    def origin(self) -> str:
        """The component and where it comes from, as an error names them."""
        return f"{self.kind} {self.name!r} of {self.package or self.module}"


def register(kind: Kind, name: str, *, size: object = None) -> Callable[[_T], _T]:
    """Register the decorated class or function as `name` among the `kind`s.

    Args:
        kind: One of `method`, `attack`, `audit`, `dataset`, `backbone`, `metric`, `field`.
        name: The name that plans use; a string literal, since it is found without importing.
        size: A data set's `DataSize` or a backbone's `BackboneSize`, the basis of estimates in dry runs; for the
            user's own images, a function from a `DataRequest` to the `Outline` read from file headers. None: the
            size is not known beforehand.

    Raises:
        ValueError: The kind is unknown, or the name is taken by another object.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"register: kind {kind!r} is not one of {', '.join(get_args(Kind))}")

    def keep(component: _T) -> _T:
        own = next((entry for entry in _scan(kind) if entry.name == name), None)
        if own is not None and getattr(component, "__module__", "") != own.module:
            raise ValueError(f"register: {kind} {name!r} is fedassay's own; allowed: another name")
        taken = _registered.get((kind, name))
        if taken is not None and getattr(taken, "__qualname__", None) != getattr(component, "__qualname__", None):
            raise ValueError(f"register: {kind} {name!r} is already defined by {taken!r}")
        _registered[kind, name] = component
        _sizes[kind, name] = getattr(component, "size", size) if kind == "dataset" else size
        return component

    return keep


def entries(kind: Kind) -> dict[str, RegistryEntry]:
    """Every registered name of a kind, in alphabetical order, without importing any of them."""
    return dict(_listed(kind, tuple(_registered)))


@cache
def _listed(kind: Kind, registered: tuple[tuple[str, str], ...]) -> dict[str, RegistryEntry]:
    """The entries of a kind as long as no other names are registered; a report asks for them a thousand times."""
    found = {entry.name: entry for entry in _scan(kind)}
    for point in _points():
        own, _, name = point.name.partition(".")
        if own == kind:
            found.setdefault(
                name, RegistryEntry(kind, name, point.module, f"from {point.module}", _package(point))
            )
    for other, name in registered:
        if other == kind and name not in found:
            component = _registered[other, name]
            doc = (component.__doc__ or "").strip().partition("\n")[0]
            found[name] = RegistryEntry(kind, name, component.__module__, doc)
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
    entry = known[name]
    if not entry.package:
        importlib.import_module(entry.module)
        return _registered[kind, name]
    try:
        importlib.import_module(entry.module)
    except Exception as error:  # an error of another package must not take fedassay down with it
        raise PlanError(f"{entry.origin}: cannot be imported: {type(error).__name__}: {error}") from error
    if (kind, name) not in _registered:
        raise PlanError(f"{entry.origin}: the module {entry.module} registers no {kind} of this name")
    return _registered[kind, name]


def has_foreign() -> bool:
    """Whether a component of another package, or of a notebook, has been imported into this process."""
    return any(not component.__module__.startswith("fedassay.") for component in _registered.values())


def size_of(kind: Kind, name: str) -> object:
    """The size that a data set or a backbone was registered with; None where it declares none.

    Raises:
        PlanError: As `lookup`.
    """
    lookup(kind, name)
    return _sizes.get((kind, name))


def misnamed() -> Iterator[str]:
    """Yield a message for each foreign entry point that names no component, or a component with a taken name."""
    seen: dict[str, str] = {f"{kind}.{entry.name}": "fedassay" for kind in get_args(Kind) for entry in _scan(kind)}
    for point in _points():
        kind, _, name = point.name.partition(".")
        if kind not in get_args(Kind) or not name:
            yield (
                f"entry point {point.name!r} of {_package(point)}: allowed: KIND.NAME, with a KIND of "
                f"{', '.join(get_args(Kind))}"
            )
        elif point.name in seen:
            yield (
                f"{kind} {name!r} of {_package(point)}: the name is taken by {seen[point.name]}, whose {kind} is "
                f"used; allowed: another name"
            )
        seen.setdefault(point.name, _package(point))


@cache
def _points() -> tuple[EntryPoint, ...]:
    """The entry points of other packages, by package."""
    return tuple(sorted(entry_points(group=_GROUP), key=_package))


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name}" if point.dist is not None else f"module {point.module}"


@cache
def _scan(kind: Kind) -> tuple[RegistryEntry, ...]:
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
        tree = ast.parse(source)
        cited = _cited(ast.get_docstring(tree) or "")
        for node in tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                summary = (ast.get_docstring(node) or "").partition("\n")[0]
                found += [
                    RegistryEntry(kind, name, module, summary, facts=_facts_of(node, tree), source=cited)
                    for name in (_name_of(item, kind) for item in node.decorator_list)
                    if name is not None
                ]
    return tuple(found)


def _cited(docstring: str) -> str:
    r"""The paper that a file cites: its paragraph `Source: ...`, or the brackets with a year of its first line.

    Example:
        >>> _cited("AFL (He et al., CVPR 2025): ridge weights.")
        'He et al., CVPR 2025'
        >>> _cited("FedCGS: sums (all of them).\n\nSource: Guan, Zhou and Gu, AAAI\n2025.")
        'Guan, Zhou and Gu, AAAI 2025'
    """
    first, *paragraphs = docstring.split("\n\n")
    for paragraph in paragraphs:
        head, colon, words = paragraph.partition(": ")
        if colon and head in {"Source", "Sources"}:
            return " ".join(words.split()).rstrip(".")
    bracket = re.search(r"\(([^()]*\b(?:19|20)\d\d\b[^()]*)\)", first)
    return " ".join(bracket[1].split()) if bracket else ""


def _name_of(decorator: ast.expr, kind: Kind) -> str | None:
    match decorator:
        case ast.Call(
            func=ast.Name(id="register"), args=[ast.Constant(value=given), ast.Constant(value=str(name))]
        ) if given == kind:
            return name
    return None


def _facts_of(component: ast.ClassDef | ast.FunctionDef, module: ast.Module) -> str:
    """Return the import of a class's `facts` as `module:NAME`, if they are imported under a name."""
    names = [
        node.value.id
        for node in component.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "facts"
        and isinstance(node.value, ast.Name)
    ]
    for node in module.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if names and alias.name == names[0] and alias.asname is None:
                    return f"{node.module}:{alias.name}"
    return ""
