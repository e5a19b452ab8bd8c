"""Methods, attacks and audits by name, with the facts that they declare.

    @register("attack", "my_attack")
    class MyAttack(Parameters):
        facts: ClassVar[AttackFacts] = AttackFacts(gives=("vectors",))

The type checker holds the class against the contract of its kind; a component of a foreign package is checked when
it is first used. A faulty package causes one message that names it, and no other failure.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args, overload

from fedassay.contracts.facts import AttackFacts, AuditFacts, Facts, MethodFacts
from fedassay.support import registry
from fedassay.support.errors import PlanError
from fedassay.support.metrics import MetricFacts
from fedassay.support.registry import Kind, RegistryEntry, entries
from fedassay.support.types import Parameters

if TYPE_CHECKING:
    from fedassay.contracts.attack import Attack
    from fedassay.contracts.audit import Audit
    from fedassay.contracts.method import Method

ComponentKind = Literal["method", "attack", "audit"]

_M = TypeVar("_M", bound="type[Method]")
_A = TypeVar("_A", bound="type[Attack]")
_U = TypeVar("_U", bound="type[Audit]")

_OWED: dict[Kind, tuple[type[Facts], str]] = {
    "method": (MethodFacts, "run"),
    "attack": (AttackFacts, "run"),
    "audit": (AuditFacts, "assess"),
}


@overload
def register(kind: Literal["method"], name: str) -> Callable[[_M], _M]: ...


@overload
def register(kind: Literal["attack"], name: str) -> Callable[[_A], _A]: ...


@overload
def register(kind: Literal["audit"], name: str) -> Callable[[_U], _U]: ...


def register(kind: ComponentKind, name: str) -> Callable[[Any], Any]:
    """Register the decorated class as `name`, a string literal, since it is found without importing.

    Raises:
        ValueError: The name is taken by another object.
    """
    return registry.register(kind, name)


@dataclass(frozen=True)
class Declared:
    """A component that was found: its class, and the facts that it declares."""

    entry: RegistryEntry
    component: type[Parameters]
    facts: Facts


def declared(kind: ComponentKind, name: str) -> Declared:
    """Import a component, and hold it against its contract.

    Raises:
        PlanError: There is no such name, it cannot be imported, or its declaration is incomplete.
    """
    component = registry.lookup(kind, name)
    entry = entries(kind)[name]
    owed, method = _OWED[kind]
    facts = getattr(component, "facts", None)
    problem = ""
    if not (isinstance(component, type) and issubclass(component, Parameters)):
        problem = "it is no class derived from fedassay.support.types.Parameters"
    elif not isinstance(facts, owed):
        given = "nothing" if facts is None else f"a {type(facts).__name__}"
        problem = f"it declares {given} as `facts`; a fedassay.contracts.facts.{owed.__name__} is needed"
    elif not callable(getattr(component, method, None)):
        problem = f"it has no method `{method}`"
    elif entry.package and isinstance(facts, AuditFacts):
        problem = _taken(name, facts)
    if problem:
        raise PlanError(f"{entry.origin}: {problem}")
    return Declared(entry, cast("type[Parameters]", component), cast("Facts", facts))


def component(kind: ComponentKind, name: str) -> type[Parameters]:
    """The class of a component.

    Raises:
        PlanError: As `declared`.
    """
    return declared(kind, name).component


def attack_facts(name: str) -> AttackFacts:
    """Return the facts that an attack declares."""
    return cast("AttackFacts", declared("attack", name).facts)


def has_private_form(method: str) -> bool:
    """Whether a method can be asked for a finite epsilon; False where none of this name is of use here."""
    if method not in entries("method"):
        return False
    try:
        return cast("MethodFacts", declared("method", method).facts).private_form
    except PlanError:
        return False


def audit_facts(name: str) -> AuditFacts | None:
    """Return the facts that an audit declares; None where it is not installed, or cannot be used.

    Reports read old records, and records of packages that were removed: they do without these facts.
    """
    if name not in entries("audit"):
        return None
    try:
        return _audit_facts(name)
    except PlanError:
        return None


def every_audit() -> dict[str, AuditFacts]:
    """Return the facts of every usable audit, by name, in the order of a report."""
    known = {name: facts for name in entries("audit") if (facts := audit_facts(name)) is not None}
    return dict(sorted(known.items(), key=lambda item: (item[1].place.order, item[0])))


def judges_the_claim(name: str) -> bool:
    """Whether an audit's verdict is the cell's verdict on the claim of privacy."""
    facts = audit_facts(name)
    return facts is not None and facts.place.section == "claim"


def claim_audit() -> str:
    """Return the audit that decides the cell's verdict on the claim, the first where there are several."""
    return next((name for name, facts in every_audit().items() if facts.place.section == "claim"), "claim")


def metrics() -> dict[str, MetricFacts]:
    """Every metric that some audit declares, by name, in the order of a report."""
    return {metric.name: metric for facts in every_audit().values() for metric in facts.metrics}


def problems() -> Iterator[str]:
    """Yield one message for each faulty component of another package."""
    yield from registry.misnamed()
    for kind in get_args(Kind):
        for entry in entries(kind).values():
            problem = _problem(entry) if entry.package else ""
            if problem:
                yield problem


def usable(kind: Kind) -> list[RegistryEntry]:
    """Every component of a kind but those of other packages that cannot be used; see `problems`."""
    return [entry for entry in entries(kind).values() if not entry.package or not _problem(entry)]


def summary(entry: RegistryEntry) -> str:
    """One line on a component: of its own source, or of another package's docstring, which is imported for it."""
    if not entry.package:
        return entry.summary
    doc = inspect.getdoc(registry.lookup(entry.kind, entry.name)) or ""
    return doc.partition("\n")[0] or entry.summary


def _problem(entry: RegistryEntry) -> str:
    """Return the fault of a component of another package, or an empty text."""
    try:
        if entry.kind == "method" or entry.kind == "attack" or entry.kind == "audit":  # noqa: PLR1714 - for mypy
            declared(entry.kind, entry.name)
        else:
            registry.lookup(entry.kind, entry.name)
    except PlanError as error:
        return str(error)
    return ""


def _audit_facts(name: str) -> AuditFacts:
    entry = entries("audit")[name]
    if not entry.facts:
        return cast("AuditFacts", declared("audit", name).facts)
    module, _, attribute = entry.facts.partition(":")
    return cast("AuditFacts", getattr(importlib.import_module(module), attribute))


def _taken(name: str, facts: AuditFacts) -> str:
    """Return, as a sentence, a metric of a foreign audit that already has another meaning; or an empty text."""
    for other, entry in entries("audit").items():
        if other == name or (entry.package and other > name):
            continue
        theirs = audit_facts(other)
        for metric in facts.metrics:
            for known in () if theirs is None else theirs.metrics:
                if known.name == metric.name and known != metric:
                    return (
                        f"it declares the metric {metric.name!r}, which the audit {other} gives another meaning; "
                        f"allowed: another name, or the same MetricFacts"
                    )
    return ""
