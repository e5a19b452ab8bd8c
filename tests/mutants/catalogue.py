"""Methods that leak, variations that do not, and broken attacks: each one edit, or a few, of the package.

They are written down in the `.toml` files beside this one; nothing of the package is imported here: a copy of it
is edited, and judged by what its command line writes. Entries are `[[mutant]]` tables, with a `[[mutant.edit]]`
table for each edit: `file` below the package's folder, `old` text that occurs there exactly once, and `new`.

Leaky and honest methods run on a plan of `plans.toml`; for their keys see `Mutant`.

Broken attacks (`kind = "attack"`) run on a plan of the same file, a `[plan.NAME]` table of plan keys that are
merged into `BASE`: mappings key by key, lists as a whole. Names of plans and of entries are unique over all files.

    [plan.digits-membership]
    methods = [{ fedcgs = {} }]
    attacks = [{ membership = { shadows = 0 } }]
    audits = [{ membership = {} }]
    privacy = { epsilon = [inf, 8.0] }

    [[mutant]]
    name = "membership: evidence of sums flipped"
    kind = "attack"
    fault = "flipped score"                      # class of the fault, for the table
    breaks = "The evidence of statistics has the wrong sign; that of raw features is intact."
    plan = "digits-membership"
    attack = "membership"                        # the findings that the fault concerns: registered name of the
    audit = "membership"                         # attack, of the audit, or both; where given, expressions
    source = "messages"                          # that match the whole source, selection, and label (of the
    selection = "likelihood_.*"                  # method entry) of a finding
    label = "fedcgs"
    [[mutant.edit]]
    file = "attacks/membership/tracing.py"
    old = "found['class_sum'] = class_sum_ratio("
    new = "found['class_sum'] = -class_sum_ratio("

The plan is also run once without an edit. Of the concerned findings at least one must be conclusive there, else
the entry is `no baseline`: a plan on which nothing concludes would hide every fault. A broken attack is `missed`
where a concerned finding reads `no_leak_found`, or where one that was conclusive is gone without a word;
`no effect` where all are what they were; else `found`. So narrow an entry down to what its fault touches, by
source, selection and label: an intact test beside it may be silent with good reason. A plan takes a few seconds
(120 at most, on one thread); all files are run together, within an hour on two cores.

    python tests/mutants/score.py RESULT.json --only 'REGEX on names' --jobs 1 [--keep FOLDER]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).resolve().parent
UNCHANGED = "unchanged"
GENERATED = "generated"
"""How names and faults of entries begin that nobody wrote: see `generated/generate.py`."""
Kind = Literal["leaky", "honest", "attack"]
BLIND = HERE / "blind"
"""Entries that were written down blind and were missed, or have not been judged: for `score.py --blind` alone."""
OTHERS = HERE / "generated" / "others.toml"
BASE: dict[str, Any] = {
    "name": "mutant",
    "seeds": [0],
    "data": {"name": "digits", "split": {"private": 0.1, "public": 0.1, "test": 0.1}},
    "clients": {"count": 3, "partition": "iid"},
    "backbone": {"name": "pixels"},
    "resources": {"threads": 1},
}
"""What all plans have in common."""
WHAT = {"leaky": "leaks", "honest": "does", "attack": "breaks"}
"""The key of an entry that says in words what is changed, by its kind."""
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
class Concern:
    """The findings that a broken attack concerns.

    Attributes:
        attack: Registered name; empty: of any attack, or of none.
        audit: Registered name; empty: of any audit.
        source: A regular expression that the whole source matches; empty: any.
        selection: The same for the selection.
        label: The same for the label of the method entry.
    """

    attack: str = ""
    audit: str = ""
    source: str = ""
    selection: str = ""
    label: str = ""


@dataclass(frozen=True)
class Mutant:
    """A method made to leak, an honest variation of one, or a broken attack.

    Attributes:
        name: Unique.
        kind: `leaky` methods must be found; `honest` ones must not be flagged; a broken `attack` must not read
            `no_leak_found`.
        fault: The class of the fault, or of the variation.
        what: What leaks, is done in another way, or is broken: in words, so that it can be written for other code.
        plan: The plan that it is run on: of broken attacks from any file, of others from `plans.toml`.
        edits: What is changed; none: the shipped method itself, as the plan has it.
        reason: A regular expression that one of the verdicts' reasons must match: the field that leaks, or what of
            the declaration is false. Only of leaky ones.
        scope: What the fault is confined to; `all`: nothing.
        blind: Whether it was written from the methods alone, by somebody who had not seen the audits.
        subset: Whether the fast tests run it.
    """

    name: str
    kind: Kind
    fault: str
    what: str
    plan: str
    edits: tuple[Edit, ...]
    reason: str
    scope: str
    blind: bool
    subset: bool
    concern: Concern = Concern()


def mutants(*, every: bool = False) -> list[Mutant]:
    """All entries, file by file, and every plan without an edit; honest unless an entry says no.

    Args:
        every: With all generated faults, of which there is a sample without that.
    """
    files = {**_files(), **({OTHERS.name: _others()} if every else {})}
    found = [_mutant(entry, file) for file, held in files.items() for entry in held.get("mutant", ())]
    leaking = {entry.plan for entry in found if not entry.edits}
    honest = [unchanged(plan, "honest") for plan in plans() if plan not in leaking]
    return found + honest + [unchanged(plan, "attack") for plan in attack_plans()]


def unjudged() -> list[Mutant]:
    """The entries of `BLIND`."""
    files = {file.name: tomllib.loads(file.read_text(encoding="utf-8")) for file in sorted(BLIND.glob("*.toml"))}
    return [_mutant(entry, f"blind/{name}") for name, held in files.items() for entry in held["mutant"]]


def unchanged(plan: str, kind: Kind) -> Mutant:
    """The code as it is, on a plan."""
    return Mutant(f"{plan}: unchanged", kind, UNCHANGED, "The code as it is.", plan, (), "", "all", False, False)


@cache
def _files() -> dict[str, dict[str, Any]]:
    """All files but `plans.toml`, by name."""
    files = sorted(file for file in HERE.glob("*.toml") if file.name != "plans.toml")
    return {file.name: tomllib.loads(file.read_text(encoding="utf-8")) for file in files}


@cache
def _others() -> dict[str, Any]:
    """The generated faults that are not in the sample, and their plans."""
    return tomllib.loads(OTHERS.read_text(encoding="utf-8"))


@cache
def plans() -> dict[str, dict[str, Any]]:
    """The plans of methods by name, as `plans.toml` has them."""
    return tomllib.loads((HERE / "plans.toml").read_text(encoding="utf-8"))


@cache
def attack_plans() -> dict[str, dict[str, Any]]:
    """The plans of attacks by name, as the files have them."""
    found: dict[str, dict[str, Any]] = {}
    for file, held in _files().items():
        for name, plan in held.get("plan", {}).items():
            if name in found or name in plans():
                raise ValueError(f"{file}: plan {name}: the name is taken")
            found[name] = plan
    return found


def plan_of(name: str) -> dict[str, Any]:
    """A whole plan, ready to be written as a file."""
    if name in attack_plans():
        return _merged(BASE, attack_plans()[name])
    if name not in plans():
        return _merged(BASE, _others()["plan"][name])
    own: Mapping[str, Any] = plans()[name]
    privacy: dict[str, Any] = {"epsilon": own.get("epsilon", [1.0]), "delta": 1e-5}
    if "adjacency" in own:
        privacy["adjacency"] = own["adjacency"]
    fragment = {
        "clients": {"count": own.get("clients", 3), "partition": own.get("partition", "iid")},
        "privacy": privacy,
        "methods": [{own["method"]: own.get("parameters", {})}],
        "audits": [{"dp_claim": {}}, {"ledger": {}}],
    }
    return _merged(BASE, fragment)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings key by key; of everything else what is in `over`."""

    def both(key: str, value: Any) -> Any:
        nested = isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
        return _merged(base[key], value) if nested else value

    return {**base, **{key: both(key, value) for key, value in over.items()}}


def _mutant(entry: dict[str, Any], file: str) -> Mutant:
    kind: Kind = entry.get("kind", "leaky")
    where = f"{file}: {entry.get('name')}"
    concerns = {field.name for field in fields(Concern)}
    known = {"name", "kind", "fault", WHAT[kind], "plan", "edit", "scope", "blind", "subset"}
    known |= concerns if kind == "attack" else {"reason"}
    if unknown := entry.keys() - known:
        raise ValueError(f"{where}: unknown keys {', '.join(sorted(unknown))}")
    if kind == "attack" and not entry.keys() & {"attack", "audit"}:
        raise ValueError(f"{where}: neither attack nor audit; at least one says which findings the fault concerns")
    return Mutant(
        name=entry["name"],
        kind=kind,
        fault=entry["fault"],
        what=entry[WHAT[kind]],
        plan=entry["plan"],
        edits=tuple(Edit(**edit) for edit in entry.get("edit", ())),
        reason=entry["reason"] if kind == "leaky" else "",
        scope=entry.get("scope", "all"),
        blind=entry.get("blind", False),
        subset=entry.get("subset", False),
        concern=Concern(**{key: entry[key] for key in concerns & entry.keys()}),
    )
