"""Cost of another run of a cell with the parts that its plan lacks, and the keys of its plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast, get_args

from fedassay.contracts.facts import ATTACK_NEED_WORDS, AttackFacts, AuditFacts
from fedassay.contracts.registry import attack_facts, component, declared
from fedassay.contracts.sizes import Sizes
from fedassay.data.roles import Role
from fedassay.plan.estimate import method_seconds, shared
from fedassay.plan.measured import corrected
from fedassay.plan.schema import Cell, Scenario
from fedassay.plan.standard import meets
from fedassay.records.facts import Change, Obstacle, Remedy


@dataclass(frozen=True)
class Part:
    """An attack or an audit of another run.

    Attributes:
        kind: One of the two.
        name: As registered.
        changed: Parameters that are not those of the plan, or not the defaults where the plan has no such part.
    """

    kind: Literal["attack", "audit"]
    name: str
    changed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NextRun:
    """Another run of a cell of a plan.

    Attributes:
        scenario: The plan.
        cell: Of this plan.
        sizes: Of its records; None where they are not known.
    """

    scenario: Scenario
    cell: Cell
    sizes: Sizes | None

    def seconds(self, parts: Sequence[Part]) -> tuple[float, float] | None:
        """Seconds of a run of this cell with these parts alone, and its addition to the same run of another cell.

        From the rates of a dry run; what a process takes to start and features that the cache holds are not in
        it. None where a part or the method has no rate, or sizes are not known.
        """
        if self.sizes is None or not parts:
            return None
        method = method_seconds(self.cell, self.sizes, self.scenario.plan.name)
        if method is None:
            return None
        both = [self._of_cells(cells, method, parts, self.sizes) for cells in (1, 2)]
        if both[0] is None or both[1] is None:
            return None
        return both[0], both[1] - both[0]

    def _of_cells(self, cells: int, method: float, parts: Sequence[Part], sizes: Sizes) -> float | None:
        total = cells * method
        for part in parts:
            cost = cast("AttackFacts | AuditFacts", declared(part.kind, part.name).facts).cost
            if cost is None:
                return None
            own = partial(cost, {**self._parameters(part), **part.changed})
            stages = shared(part.name, own, [self.cell] * cells, sizes, self.scenario.plan.name)
            total += sum(map(corrected, stages))
        return float(total)

    def _parameters(self, part: Part) -> dict[str, Any]:
        """Parameters of the plan's first entry of this name, or the defaults."""
        named = self.scenario.attacks if part.kind == "attack" else self.scenario.audits
        own = [entry.params for entry in named if entry.name == part.name]
        return own[0] if own else component(part.kind, part.name)().model_dump(mode="json")

    def stronger(self, attack: str) -> Part | None:
        """A stronger form of an attack of the plan, where it declares one."""
        key = attack_facts(attack).stronger
        if not key:
            return None
        part = Part("attack", attack)
        names = get_args(component("attack", attack).model_fields[key].annotation)
        later = names[names.index(self._parameters(part)[key]) + 1 :]
        return Part("attack", attack, {key: later[0]}) if later else None

    def unmet(self, facts: AttackFacts) -> list[str]:
        """Return the needs of an attack that the plan does not meet, in words."""
        return [ATTACK_NEED_WORDS[need] for need in facts.needs if not meets(need, self.scenario.plan)]

    def key(self, role: Role | Literal["clients"]) -> str:
        """The key of a role's share, or of the number of clients, with its present value."""
        if role == "clients":
            return f"clients.count, now {self.scenario.plan.clients.count:,}"
        share = getattr(self.scenario.plan.data.split, role)
        count = "" if self.sizes is None else f", {getattr(self.sizes, role):,} records"
        return f"data.split.{role}, now {'a tenth of the other shares' if share is None else f'{share:g}'}{count}"

    def remedy(self, obstacle: Obstacle | None, attack: str | None = None) -> Remedy | None:
        """The change of the plan that removes an obstacle; None where none is known to.

        A parameter of the attack that is too small gets the value that would do. An audit gets the records that
        it lacks. Shares of roles are of one data set, so that as many records more take that much more of it. A
        tenth is added, since shares are rounded class by class. Where the other roles leave too little, they
        shrink alike.
        """
        if obstacle is None:
            return None
        held, needed = obstacle.held, obstacle.needed
        if obstacle.key and attack is not None and needed is not None:
            return Remedy(changes=(Change(key=f"attacks.{attack}.{obstacle.key}", before=held, after=needed),))
        if obstacle.kind != "records_missing" or self.sizes is None:
            return None
        if obstacle.role == "clients" and held is not None and needed is not None and needed > held:
            count = self.scenario.plan.clients.count
            return Remedy(changes=(Change(key="clients.count", before=count, after=count + needed - held),))
        split = self.scenario.plan.data.split
        given = {role: getattr(split, role) for role in ("private", "attacker", "public", "test", "control")}
        if obstacle.role not in given or held is None or needed is None or needed <= held:
            return None
        known = {role: share for role, share in given.items() if share and getattr(self.sizes, role)}
        if not known:
            return None
        # Where the control role has no share of its own, it takes a tenth of the others'.
        kept = 1.0 if given["control"] is not None else 0.9
        records = sum(getattr(self.sizes, role) for role in known) / sum(known.values()) / kept
        share = math.ceil(1.1 * needed / records * 1000) / 1000
        others = {role: part for role, part in given.items() if part and role != obstacle.role}
        before = given[obstacle.role]
        changes = [Change(key=f"data.split.{obstacle.role}", before=before, after=share)]
        if (over := sum(others.values()) + share) > 1:
            scale = (1 - share) / (over - share)
            if share >= 0.9 or scale < 0.5:
                return None
            changes += [
                Change(key=f"data.split.{role}", before=part, after=math.floor(part * scale * 1000) / 1000)
                for role, part in others.items()
            ]
        return Remedy(changes=tuple(changes))
