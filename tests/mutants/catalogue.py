"""Methods that leak and variations that do not: each one edit, or a few, of the package's source.

They are written down in the `.toml` files beside this one, by method; `plans.toml` has the plans they run on.
Nothing of the package is imported here: a copy of it is edited, and judged by what its command line writes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).resolve().parent
UNCHANGED = "unchanged"
SCOPES = ("all", "client", "class", "round", "record", "step", "field")


@dataclass(frozen=True)
class Edit:
    """One replacement in one file.

    Attributes:
        file: Below the package's folder, with `/`.
        old: What is replaced; it occurs there exactly once.
        new: What it is replaced by.
    """

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A method made to leak, or an honest variation of one.

    Attributes:
        name: Unique.
        kind: `leaky` methods must be found; `honest` ones must not be flagged.
        fault: The class of the fault, or of the variation.
        what: What leaks, or what is done in another way: in words, so that it can be written for other code.
        plan: The plan that it is run on, from `plans.toml`.
        edits: What is changed; none: the shipped method itself, as the plan has it.
        reason: A regular expression that one of the verdicts' reasons must match: the field that leaks, or what of
            the declaration is false. Empty for honest ones.
        scope: What the fault is confined to; `all`: nothing.
        blind: Whether it was written from the methods alone, by somebody who had not seen the audits.
        subset: Whether the fast tests run it.
    """

    name: str
    kind: Literal["leaky", "honest"]
    fault: str
    what: str
    plan: str
    edits: tuple[Edit, ...]
    reason: str
    scope: str
    blind: bool
    subset: bool


def mutants() -> list[Mutant]:
    """All entries, file by file, and every plan with the method as it is, honest unless an entry says no."""
    found = []
    for file in sorted(HERE.glob("*.toml")):
        if file.name != "plans.toml":
            held = tomllib.loads(file.read_text(encoding="utf-8"))
            found += [_mutant(entry, file.name) for entry in held["mutant"]]
    leaking = {entry.plan for entry in found if not entry.edits}
    return found + [_unchanged(plan) for plan in plans() if plan not in leaking]


def _unchanged(plan: str) -> Mutant:
    what = "The method as it is."
    return Mutant(f"{plan}: unchanged", "honest", UNCHANGED, what, plan, (), "", "all", False, False)


@cache
def plans() -> dict[str, dict[str, Any]]:
    """The plans by name, as `plans.toml` has them."""
    return tomllib.loads((HERE / "plans.toml").read_text(encoding="utf-8"))


def plan_of(name: str) -> dict[str, Any]:
    """A whole plan, ready to be written as a file."""
    own: Mapping[str, Any] = plans()[name]
    privacy: dict[str, Any] = {"epsilon": own.get("epsilon", [1.0]), "delta": 1e-5}
    if "adjacency" in own:
        privacy["adjacency"] = own["adjacency"]
    return {
        "name": "mutant",
        "seeds": [0],
        "data": {"name": "digits", "split": {"private": 0.1, "public": 0.1, "test": 0.1}},
        "clients": {"count": own.get("clients", 3), "partition": own.get("partition", "iid")},
        "backbone": {"name": "pixels"},
        "privacy": privacy,
        "methods": [{own["method"]: own.get("parameters", {})}],
        "audits": [{"dp_claim": {}}, {"ledger": {}}],
        "resources": {"threads": 1},
    }


def _mutant(entry: dict[str, Any], file: str) -> Mutant:
    known = {"name", "kind", "fault", "leaks", "does", "plan", "edit", "reason", "scope", "blind", "subset"}
    if unknown := entry.keys() - known:
        raise ValueError(f"{file}: {entry.get('name')}: unknown keys {', '.join(sorted(unknown))}")
    kind = entry.get("kind", "leaky")
    return Mutant(
        name=entry["name"],
        kind=kind,
        fault=entry["fault"],
        what=entry["leaks" if kind == "leaky" else "does"],
        plan=entry["plan"],
        edits=tuple(Edit(**edit) for edit in entry.get("edit", ())),
        reason=entry["reason"] if kind == "leaky" else "",
        scope=entry.get("scope", "all"),
        blind=entry.get("blind", False),
        subset=entry.get("subset", False),
    )
