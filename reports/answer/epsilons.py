"""Choice of epsilon for a method run at several: the largest that passes and the smallest that is of use."""

from __future__ import annotations

from dataclasses import dataclass

from fedassay.records.record import Metric
from fedassay.reports.decision.decision import Decision, Option, points
from fedassay.reports.words.numbers import beside, short, with_kind
from fedassay.support.epsilon import Epsilon, Kind, exceeds, largest, smallest


@dataclass(frozen=True)
class Sweep:
    """A method entry at several epsilons, as a policy sees them.

    Attributes:
        name: The method entry.
        largest: The largest epsilon that passes; None: none does.
        cost: Accuracy that privacy takes there, in points.
        useful: The smallest at which every rule on what a model can do is kept; None: none.
        allowed: The largest at which no rule on privacy is broken; None: none.
        highest: The largest that was run.
    """

    name: str
    largest: Epsilon | None
    cost: Metric | None
    useful: Epsilon | None
    allowed: Epsilon | None
    highest: Epsilon

    @property
    def clause(self) -> str:
        """Clause on the epsilon to choose, or on the reason why there is none."""
        if self.largest is not None:
            costs = "" if self.cost is None or self.cost.value is None else f", which costs {points(self.cost)}"
            useful = "" if self.useful is None else beside(self.useful, self.largest, short)
            least = f"; the smallest useful one is {useful}" if useful else ""
            return f"{self.name}: the largest ε that passes is {with_kind(self.largest)}{costs}{least}"
        if self.useful is None and self.allowed is None:
            return f"{self.name}: no ε that was run is useful, and none is within the privacy limits"
        if self.useful is None:
            return f"{self.name}: no ε that was run is useful"
        least = f"{self.name}: useful from ε = {with_kind(self.useful)}"
        if self.allowed is None:
            return f"{least}, but each breaks a limit on privacy"
        allowed = beside(self.allowed, self.useful, short)
        if not exceeds(self.useful, self.allowed):
            one = self.useful == self.allowed
            span = f"{'=' if one else 'from'} {with_kind(self.useful)}{'' if one else f' to {allowed}'}"
            larger = exceeds(self.highest, self.allowed)
            above = f"; {beside(self.highest, self.allowed, short)} breaks one" if larger else ""
            return f"{self.name}: ε {span} breaks no rule, but some are open{above}"
        return (
            f"{self.name}: useful from ε = {with_kind(self.useful)}, within the limits up to {allowed}; "
            "they do not meet"
        )


def sweeps(decision: Decision) -> tuple[Sweep, ...]:
    """Every method entry that was judged at more than one epsilon of a kind."""
    found: dict[tuple[str, Kind], list[Option]] = {}
    for option in decision.everything:
        if option.state is not None and option.group.asked.finite:
            found.setdefault((option.group.label, option.group.asked.kind), []).append(option)
    swept = {key: own for key, own in found.items() if len({option.group.asked for option in own}) > 1}
    return tuple(
        _sweep(own, several=sum(label == other for other, _ in swept) > 1) for (label, _), own in swept.items()
    )


def _sweep(options: list[Option], several: bool) -> Sweep:
    group = options[0].group
    best = largest(option.group.asked for option in options if option.state == "pass")
    return Sweep(
        name=f"{group.name}, δ = {short(group.asked.delta)}" if several else group.name,
        largest=best,
        cost=next((option.cost for option in options if option.group.asked == best), None),
        useful=smallest(option.group.asked for option in options if not _broken(option, use=True)),
        allowed=largest(option.group.asked for option in options if not _broken(option, use=False)),
        highest=largest(option.group.asked for option in options) or group.asked,
    )


def _broken(option: Option, use: bool) -> bool:
    """Whether a rule on what a model can do is broken, or else one on privacy."""
    about = "use" if use else "privacy"
    return any(each.about == about and each.state == "broken" for each in option.judgements)
