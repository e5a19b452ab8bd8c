"""Which epsilon: of a method that was run at several, the largest that passes and the smallest that is of use."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedassay.records.record import Metric
from fedassay.reports.decision.decision import Decision, Option, points
from fedassay.reports.words.numbers import short


@dataclass(frozen=True)
class Sweep:
    """A method entry at several epsilons, as a policy sees them.

    Attributes:
        name: The method entry.
        largest: The largest epsilon that passes; None: none does.
        cost: Accuracy that privacy takes there, in points.
        useful: The smallest at which every rule on what a model can do is kept; None: none.
        allowed: The largest at which no rule on privacy is broken; None: none.
    """

    name: str
    largest: float | None
    cost: Metric | None
    useful: float | None
    allowed: float | None

    @property
    def clause(self) -> str:
        """What to choose, or that there is nothing to choose."""
        if self.largest is not None:
            costs = "" if self.cost is None or self.cost.value is None else f", which costs {points(self.cost)}"
            least = f"; the smallest useful one is {short(self.useful)}" if self.useful is not None else ""
            return f"{self.name}: the largest ε that passes is {short(self.largest)}{costs}{least}"
        if self.useful is None and self.allowed is None:
            return f"{self.name}: no ε that was run is useful, and none is within the privacy limits"
        if self.useful is None:
            return f"{self.name}: no ε that was run is useful"
        if self.allowed is None:
            return f"{self.name}: useful from ε = {short(self.useful)}, but none that was run is within the limits"
        if self.useful <= self.allowed:
            span = f"{short(self.useful)} to {short(self.allowed)}"
            return f"{self.name}: ε from {span} breaks nothing, but some rules are open"
        return (
            f"{self.name}: useful from ε = {short(self.useful)}, within the limits up to {short(self.allowed)}; "
            "they do not meet"
        )


def sweeps(decision: Decision) -> tuple[Sweep, ...]:
    """Every method entry that was judged at more than one epsilon."""
    labels = dict.fromkeys(option.group.label for option in decision.everything)
    found = []
    for label in labels:
        own = [
            option
            for option in decision.everything
            if option.group.label == label and option.state is not None and math.isfinite(option.group.epsilon)
        ]
        if len({option.group.epsilon for option in own}) > 1:
            found.append(_sweep(own))
    return tuple(found)


def _sweep(options: list[Option]) -> Sweep:
    passing = [option for option in options if option.state == "pass"]
    best = max(passing, key=lambda option: option.group.epsilon, default=None)
    useful = [option.group.epsilon for option in options if not _broken(option, use=True)]
    allowed = [option.group.epsilon for option in options if not _broken(option, use=False)]
    return Sweep(
        name=options[0].group.name,
        largest=None if best is None else best.group.epsilon,
        cost=None if best is None else best.cost,
        useful=min(useful, default=None),
        allowed=max(allowed, default=None),
    )


def _broken(option: Option, use: bool) -> bool:
    """Whether a rule on what a model can do is broken, or else one on privacy."""
    about = "use" if use else "privacy"
    return any(each.about == about and each.state == "broken" for each in option.judgements)
