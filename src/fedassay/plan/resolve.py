"""From a validated plan to a `Scenario`: components with their parameters, and the cells to run."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from pydantic import TypeAdapter, ValidationError

from fedassay.contracts.facts import MethodFacts, in_words
from fedassay.contracts.registry import ComponentKind, declared
from fedassay.exchange.release import PrivacyTarget
from fedassay.plan.cell_keys import with_keys
from fedassay.plan.lines import source_of
from fedassay.plan.scale import scaled, words_of_scale
from fedassay.plan.schema import (
    DELTA_WORDS,
    RESERVED,
    Cell,
    Component,
    Delta,
    Epsilon,
    Plan,
    Scenario,
    override,
    parse_plan,
    read_yaml,
)
from fedassay.plan.standard import attack_entries, audit_entries
from fedassay.plan.wiring import attacks_for, judged_by, unread
from fedassay.support import limits
from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.errors import PlanError
from fedassay.support.registry import Kind, entries
from fedassay.support.text import shown
from fedassay.support.validation import explain

if TYPE_CHECKING:
    from fedassay.contracts.attack import Attack
    from fedassay.contracts.audit import Audit
    from fedassay.contracts.method import Method

_EPSILONS: TypeAdapter[tuple[float, ...]] = TypeAdapter(tuple[Epsilon, ...])
_DELTAS: TypeAdapter[tuple[float, ...]] = TypeAdapter(tuple[Delta, ...])


def load_scenario(path: Path, assignments: Sequence[str] = (), scale: float = 1.0) -> Scenario:
    """Read, override, validate, scale (`fedassay.plan.scale`) and resolve a plan file.

    Raises:
        PlanError: The first thing that is wrong with it.
    """
    base = path.resolve().parent
    plan = scaled(load_plan(path, assignments), scale, base, str(path))
    scenario = resolve(plan, base, str(path))
    return replace(scenario, source=source_of(path, [method.label for method in scenario.methods]))


def load_plan(path: Path, assignments: Sequence[str] = ()) -> Plan:
    """Read, override and validate a plan file, without a look at its components.

    Raises:
        PlanError: The first thing that is wrong with it.
    """
    return parse_plan(override(read_yaml(path), assignments), str(path))


def resolve(plan: Plan, base: Path, where: str) -> Scenario:
    """Look up every component, check its parameters and lay out the cells.

    Raises:
        PlanError: An unknown name, a wrong parameter, a role that is needed and empty.
    """
    for kind, name, key in (
        ("dataset", plan.data.name, "data.name"),
        ("backbone", plan.backbone.name, "backbone.name"),
    ):
        _known(kind, name, f"{where}: {key}")  # type: ignore[arg-type]
    _check_weights(plan, base, where)
    if plan.threat.colluding >= plan.clients.count:
        raise PlanError(
            f"{where}: threat.colluding: {plan.threat.colluding} given with clients.count {plan.clients.count}; "
            f"allowed: 0 to {plan.clients.count - 1}, so that somebody is left who does not collude"
        )
    methods: tuple[Component[Method], ...] = _components("method", plan.methods, f"{where}: methods")
    _check_server(plan, methods, where)
    entries_of_attacks = attack_entries(plan, f"{where}: attacks")
    attacks: tuple[Component[Attack], ...] = _components("attack", entries_of_attacks, f"{where}: attacks")
    entries_of_audits = audit_entries(plan, entries_of_attacks, f"{where}: audits")
    audits: tuple[Component[Audit], ...] = _components("audit", entries_of_audits, f"{where}: audits")
    for audit in audits:
        facts = audit.build.facts
        if facts.judges and not judged_by(audit, attacks):
            raise PlanError(
                f"{where}: audits: {audit.name} judges {in_words(facts.judges)}, which none of the plan's attacks "
                f"gives; allowed: add {in_words(attacks_for(facts))} to attacks, or leave the audit out"
            )
    share = plan.data.split.attacker
    for attack in attacks:
        if "attacker_records" in attack.build.facts.needs and share == 0 and plan.data.attacker_from is None:
            raise PlanError(
                f"{where}: data.split.attacker: given {share:g}; {attack.name} needs attacker records, so more "
                f"than 0 is required"
            )
    _once([seed for seed in plan.seeds if seed is not None], f"{where}: seeds")
    cells: list[Cell] = []
    for index, seed in enumerate(plan.seeds):
        for method in methods:
            cells += _cells(method, plan, seed, index, where)
            if len(cells) > limits.CELLS:
                raise PlanError(
                    f"{where}: seeds, methods, epsilons and deltas make more than {limits.CELLS:,} cells, "
                    f"which is the most of one run"
                )
    warnings = (*words_of_scale(plan), *unread(attacks, audits))
    return Scenario(plan, base, methods, attacks, audits, with_keys(cells, where), warnings)


def _check_server(plan: Plan, methods: Sequence[Component[Method]], where: str) -> None:
    """Refuse a malicious server that has nothing to choose, or nothing to choose by."""
    if plan.threat.server == "honest":
        return
    at = f"{where}: threat.server: given malicious"
    able = [name for name in entries("method") if cast(MethodFacts, declared("method", name).facts).malicious]
    for method in methods:
        if method.name not in able:
            raise PlanError(f"{at}; {method.name} has no form for it; allowed: {', '.join(able)}")
    if plan.data.features is not None:
        raise PlanError(
            f"{at}; data.features stands in the place of a backbone that it could choose; allowed: images"
        )
    if plan.data.split.attacker == 0 and plan.data.attacker_from is None and not plan.threat.colluding:
        raise PlanError(f"{at}; it needs records of the attacker's own: data.split.attacker above 0")


def _known(kind: Kind, name: str, where: str) -> None:
    known = entries(kind)
    if kind == "backbone" and name not in known:
        from fedassay.backbones import is_torchvision_name

        if is_torchvision_name(name):
            return
    if name not in known:
        own = "a component of your own is known once its package is installed, or a program has imported it"
        mistyped = get_close_matches(name, known, n=1) if isinstance(name, str) else known
        words = f"{where}: given {shown(name)}; allowed: {', '.join(known)}"
        raise PlanError(words if mistyped else f"{words}; {own}")


def _check_weights(plan: Plan, base: Path, where: str) -> None:
    from fedassay.backbones.weights import check_preprocessing, check_weights, trained_on_public

    if plan.data.features is not None:
        if "backbone" in plan.model_fields_set:
            raise PlanError(
                f"{where}: backbone: given, but data.features stands in its place; allowed: one of the two"
            )
        return
    name, weights = plan.backbone.name, plan.backbone.weights
    check_weights(name, weights, base)
    check_preprocessing(name, plan.backbone.preprocessing())
    if plan.data.split.public == 0 and trained_on_public(name, weights):
        raise PlanError(
            f"{where}: data.split.public: given 0; {name} is trained on the public records, so more than 0 is "
            "required, or backbone.weights: random"
        )


def _components(
    kind: ComponentKind, given: Sequence[Mapping[str, Mapping[str, Any]]], where: str
) -> tuple[Component[Any], ...]:
    if len(given) > limits.ENTRIES:
        raise PlanError(f"{where}: given {len(given):,} entries; allowed: {limits.ENTRIES:,}")
    found: list[Component[Any]] = []
    for index, entry in enumerate(given):
        name, params = next(iter(entry.items()))
        at = f"{where}.{index}"
        _known(kind, name, at)
        factory = declared(kind, name).component
        own = {key: value for key, value in params.items() if kind != "method" or key not in RESERVED}
        if kind == "method" and params.get("delta") in DELTA_WORDS:
            own["delta"] = _word_of_delta(params["delta"], name, factory.model_fields, at)
        try:
            build = factory.model_validate(own)
        except ValidationError as error:
            raise PlanError(explain(error, factory, f"{at}.{name}")) from None
        label = _label(params.get("label") if kind == "method" else None, name, found, at)
        found.append(Component(name, label, build, dict(params)))
    return tuple(found)


def _word_of_delta(given: str, name: str, fields: Mapping[str, Any], where: str) -> str:
    """A delta that is a word, for the methods that take one."""
    if "delta" not in fields:
        raise PlanError(f"{where}.{name}.delta: given {shown(given)}; allowed: a number in (0, 1)")
    return given


def _label(given: Any, name: str, others: Sequence[Component[Any]], where: str) -> str:
    taken = {other.label for other in others}
    if given is not None:
        if not isinstance(given, str) or not given.strip() or len(given) > limits.NAME_LENGTH:
            raise PlanError(
                f"{where}.label: given {shown(given)}; a label is text, at most {limits.NAME_LENGTH:,} characters"
            )
        if given in taken:
            raise PlanError(f"{where}.label: given {shown(given)}; it is taken, labels are unique")
        return given
    if name not in taken:
        return name
    return next(label for number in itertools.count(2) if (label := f"{name}#{number}") not in taken)


def _cells(method: Component[Method], plan: Plan, seed: int | None, index: int, where: str) -> list[Cell]:
    at = f"{where}: methods.{method.label}"
    own = method.given
    epsilons = _numbers(own.get("epsilon", plan.privacy.epsilon), _EPSILONS, f"{at}.epsilon")
    worded = own.get("delta") in DELTA_WORDS
    asked = plan.privacy.delta if worded else own.get("delta", plan.privacy.delta)
    deltas = _numbers(asked, _DELTAS, f"{at}.delta")
    _once(epsilons, f"{at}.epsilon" if "epsilon" in own else f"{where}: privacy.epsilon")
    _once(deltas, f"{at}.delta" if "delta" in own and not worded else f"{where}: privacy.delta")
    if not method.build.facts.private_form:
        if "epsilon" in own and any(math.isfinite(value) for value in epsilons):
            raise PlanError(
                f"{at}.epsilon: given {shown(own['epsilon'])}; {method.name} has no private form, allowed: .inf"
            )
        epsilons = (math.inf,)
    adjacency = own.get("adjacency", plan.privacy.adjacency)
    if adjacency is None:
        adjacency = method.build.facts.adjacency
    if not isinstance(adjacency, str) or adjacency not in get_args(Adjacency):
        raise PlanError(f"{at}.adjacency: given {shown(adjacency)}; allowed: {', '.join(get_args(Adjacency))}")
    unit, most = _unit(method, plan, any(map(math.isfinite, epsilons)), where)
    return [
        Cell(
            "",
            method,
            PrivacyTarget(epsilon=epsilon, delta=delta, adjacency=adjacency, unit=unit, max_records=most),
            seed,
            index,
        )
        for epsilon in epsilons
        # Without noise delta has no effect: one cell, at the first delta.
        for delta in (deltas if math.isfinite(epsilon) else deltas[:1])
    ]


def _unit(method: Component[Method], plan: Plan, private: bool, where: str) -> tuple[Unit, int | None]:
    """Unit of privacy of an entry, and the bound on the records of one unit.

    Raises:
        PlanError: No unit, no bound, a bound on records, or a unit that the method cannot give.
    """
    own, spec = method.given, plan.privacy
    at = {
        key: f"{where}: methods.{method.label}.{key}" if key in own else f"{where}: privacy.{key}"
        for key in ("unit", "max_records")
    }
    unit, most = own.get("unit", spec.unit), own.get("max_records", spec.max_records)
    if not isinstance(unit, str) or unit not in get_args(Unit):
        raise PlanError(f"{at['unit']}: given {shown(unit)}; allowed: {', '.join(get_args(Unit))}")
    if most is not None and not (type(most) is int and 1 <= most <= limits.RECORDS):
        raise PlanError(f"{at['max_records']}: given {shown(most)}; allowed: null, or 1 to {limits.RECORDS:,}")
    if most is not None and unit == "record":
        raise PlanError(
            f"{at['max_records']}: given {most}; it bounds the records of a person or a client; allowed: null, or "
            "privacy.unit person or client"
        )
    given = method.build.facts.units
    if private and unit not in given:
        raise PlanError(
            f"{at['unit']}: given {unit}; {method.name} has no private form for it, allowed: {', '.join(given)}"
        )
    return cast(Unit, unit), most


def _once(values: Sequence[float], where: str) -> None:
    """Refuse a value that a list holds twice: its cells would be equal."""
    for value, times in Counter(values).items():
        if times > 1:
            raise PlanError(f"{where}: given {value!r} {times} times; allowed: each value once")


def _numbers(given: Any, adapter: TypeAdapter[tuple[float, ...]], where: str) -> tuple[float, ...]:
    values = given if isinstance(given, (list, tuple)) else (given,)
    if not values:
        raise PlanError(f"{where}: given an empty list; at least one value is needed")
    try:
        return adapter.validate_python(tuple(values))
    except ValidationError as error:
        problem = error.errors()[0]
        allowed = "a number above 0, or .inf" if adapter is _EPSILONS else "a number in (0, 1)"
        raise PlanError(f"{where}: given {shown(problem['input'])}; allowed: {allowed}") from None
