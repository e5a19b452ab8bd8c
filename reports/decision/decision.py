"""May this be deployed, with which method, at which epsilon, at what cost, and what was not tested?

A pure function of a record and a policy. Every method entry becomes an option at the best epsilon that the policy
lets pass; options that speak of unlike neighbours or units are never held against each other; one is recommended,
or it is said why none is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fedassay.records.record import CellRecord, Metric, RunRecord
from fedassay.reports.decision.cost import accuracy_cost
from fedassay.reports.decision.settling import allowed_epsilon, first_epsilon, settling_epsilon
from fedassay.reports.decision.steps import Step, open_steps
from fedassay.reports.decision.words import Rule, in_words
from fedassay.reports.gate.judgement import Judgement, State
from fedassay.reports.gate.judging import judge
from fedassay.reports.gate.policy import Policy
from fedassay.reports.words.groups import (
    Group,
    asked_words,
    cell_name,
    groups,
    over_seeds,
    several_deltas,
    several_seeds,
)
from fedassay.reports.words.metrics import utility
from fedassay.reports.words.numbers import significant
from fedassay.reports.words.untested import open_rows
from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.epsilon import at_one_delta, numbers
from fedassay.support.errors import PlanError
from fedassay.support.text import shown

Standing = tuple[Adjacency, Unit]
"""Adjacency and unit of a guarantee; guarantees at different deltas all hold at the largest of them."""

_ORDER: dict[State, int] = {"pass": 0, "undecided": 1, "broken": 2}


@dataclass(frozen=True)
class Option:
    """A method entry at one epsilon, as the policy sees it.

    Attributes:
        group: The entry at this epsilon, over its seeds.
        state: The policy's answer on it; None where it is outside the policy's scope.
        judgements: Answers of every rule on it, over its seeds.
        accuracy: On test records, mean over seeds.
        cost: Accuracy that privacy takes, in points.
        bytes_up: Sent by all clients, or None.
        untested: Attacks that apply and that nothing was concluded from, with the reason.
        standing: Scope of its guarantee.
    """

    group: Group
    state: State | None
    judgements: tuple[Judgement, ...] = field(repr=False)
    accuracy: Metric
    cost: Metric
    bytes_up: float | None
    untested: tuple[tuple[str, str], ...]
    standing: Standing

    @property
    def why(self) -> tuple[str, ...]:
        """Clauses on the judgements that break the policy or leave it undecided."""
        if self.state in (None, "pass"):
            return ()
        return tuple(dict.fromkeys(each.short for each in self.judgements if each.state == self.state))


@dataclass(frozen=True)
class Decision:
    """The answer to a run.

    Attributes:
        policy: Name of the policy.
        rules: The policy in words.
        of_run: Answers of rules on the run itself, and on none of its releases.
        state: The policy's answer on the whole run.
        recommended: The option to deploy, or None.
        options: One for each method entry, at the best epsilon that passes, or else at the one nearest to it.
        everything: Every method entry at every epsilon, in the record's order.
        standings: Every way in which the options' guarantees differ in what they speak of; more than one: they
            cannot be compared.
        steps: Releases that could be recommended yet, and steps that would decide the rest: first what was
            run and said nothing, then what the plan left out.
        only_method: The label or the name that was asked for; None: all.
        only_epsilon: The number that was asked for, of whatever kind; None: all.
        deployment: Whether what passes may be deployed.
        deciding: Those of the steps that may change an answer; what is open of a release that breaks a rule, or
            that no rule is put to, does not.
    """

    # Only the recommendation is printed: the rest is a record's worth of text.
    policy: str
    rules: tuple[Rule, ...] = field(repr=False)
    of_run: tuple[Judgement, ...] = field(repr=False)
    state: State
    recommended: Option | None
    options: tuple[Option, ...] = field(repr=False)
    everything: tuple[Option, ...] = field(repr=False)
    standings: tuple[Standing, ...] = field(repr=False)
    steps: tuple[Step, ...] = field(repr=False)
    deciding: tuple[Step, ...] = field(repr=False)
    only_method: str | None = None
    only_epsilon: float | None = None
    deployment: bool = True

    @property
    def closest(self) -> Option | None:
        """The option that fails on the fewest rules of those that are judged; of such the most accurate."""
        judged = [option for option in self.options if option.state is not None]
        return min(judged, key=lambda option: (len(option.why), -(option.accuracy.value or 0.0)), default=None)


def decide(
    record: RunRecord,
    policy: Policy,
    method: str | None = None,
    epsilon: float | None = None,
    judgements: Sequence[Judgement] | None = None,
) -> Decision:
    """Decide on a run by a policy.

    Args:
        record: The run.
        policy: The policy.
        method: Only the entries of this label or registered name.
        epsilon: Only the releases that were asked for this number, of whatever kind.
        judgements: Judgements of its rules from more than the record; None: the rules are put to the record alone.

    Raises:
        PlanError: The run has no such release.
    """
    every = tuple(judge(record, policy) if judgements is None else judgements)
    asked = asked_for(record, method, epsilon)
    labels = tuple(dict.fromkeys(group.label for group in asked))
    everything = [_option(record, group, every) for group in asked]
    names = {cell_name(c, several_deltas(record), several_seeds(record)) for g in asked for c in g.cells}
    own = tuple(each for each in every if not each.cell or each.cell in names)
    options = tuple(_best([option for option in everything if option.group.label == label]) for label in labels)
    passing = [option for option in options if option.state == "pass"]
    standings = tuple(
        dict.fromkeys(option.standing for option in (passing or options) if option.state is not None)
    )
    recommended = _most_accurate(passing) if passing and len(standings) == 1 else None
    states = [judgement.state for judgement in own]
    open_cells = {each.cell for each in own} - {each.cell for each in own if each.state == "broken"}
    other = (
        *allowed_epsilon(record, policy, every, labels),
        *settling_epsilon(record, policy, every, labels),
        *first_epsilon(record, policy, every, labels),
    )
    opening = open_steps(record)
    return Decision(
        policy=policy.name,
        only_method=method,
        only_epsilon=epsilon,
        deployment=policy.deployment,
        rules=in_words(policy),
        of_run=tuple(each for each in own if not each.cell),
        state=max(states, key=_ORDER.__getitem__, default="undecided"),
        recommended=recommended,
        options=options,
        everything=tuple(everything),
        standings=standings,
        steps=(*other, *opening),
        deciding=(*other, *(step for step in opening if open_cells.intersection(step.cells))),
    )


def asked_for(record: RunRecord, method: str | None, epsilon: float | None) -> list[Group]:
    """The releases of a run that are asked for.

    Raises:
        PlanError: There is none.
    """
    every = list(groups(record))
    own = [group for group in every if method is None or method in (group.label, group.method)]
    if every and not own:
        allowed = ", ".join(dict.fromkeys(group.label for group in every))
        raise PlanError(f"method: given {shown(method)}; allowed: {allowed}")
    found = [group for group in own if epsilon is None or group.asked.bare == epsilon]
    if own and not found:
        allowed = "; ".join(dict.fromkeys(asked_words(group.asked) for group in own))
        raise PlanError(f"epsilon: given {epsilon!r}; allowed: {allowed}")
    return found


def _option(record: RunRecord, group: Group, judgements: Sequence[Judgement]) -> Option:
    deltas, seeds = several_deltas(record), several_seeds(record)
    names = {cell_name(cell, deltas, seeds) for cell in group.cells}
    mine = [judgement for judgement in judgements if judgement.cell in names]
    if mine:  # no release of a run that fails a rule on the whole of it passes
        mine += [each for each in judgements if not each.cell and each.state != "pass"]
    state = max((judgement.state for judgement in mine), key=_ORDER.__getitem__, default=None)
    first = group.cells[0]
    return Option(
        group=group,
        state=state,
        judgements=tuple(mine),
        accuracy=_accuracy(group.cells),
        cost=accuracy_cost(record, group.cells),
        bytes_up=first.communication.get("bytes_up"),
        untested=_untested(group.cells),
        standing=(first.adjacency, first.unit),
    )


def _accuracy(cells: Sequence[CellRecord]) -> Metric:
    if len(cells) == 1:
        return utility(cells[0], "accuracy")
    return over_seeds(cells, lambda cell: utility(cell, "accuracy").value, "no accuracy was measured")


def _untested(cells: Iterable[CellRecord]) -> tuple[tuple[str, str], ...]:
    """Attacks that apply and were not concluded from in some cell, with the first reason."""
    open_: dict[str, str] = {}
    for cell in cells:
        for entry in open_rows(cell):
            open_.setdefault(entry.attack, entry.reason)
    return tuple(open_.items())


def _best(options: Sequence[Option]) -> Option:
    """The setting of one method entry that passes and is most accurate, or else comes closest to passing."""
    passing = [option for option in options if option.state == "pass"]
    if passing:
        return _most_accurate(passing)
    judged = [option for option in options if option.state is not None]
    if not judged:
        return options[0]
    asked = _in_order(judged)
    first = min(
        range(len(judged)), key=lambda at: (_ORDER[judged[at].state or "broken"], len(judged[at].why), asked[at])
    )
    return judged[first]


def _in_order(options: Sequence[Option]) -> list[float]:
    """Epsilons asked for by options of one relation and unit, at one delta, so that they have an order."""
    return numbers(at_one_delta([option.group.asked for option in options]))


def _most_accurate(options: Sequence[Option]) -> Option:
    """The most accurate; of equally accurate ones the smallest epsilon, then the fewest bytes."""
    asked = _in_order(options)
    worth = [
        (-(option.accuracy.value or 0.0), epsilon, option.bytes_up or 0.0)
        for option, epsilon in zip(options, asked, strict=True)
    ]
    return options[worth.index(min(worth))]


def points(cost: Metric) -> str:
    """A difference of accuracies in words, with its interval."""
    if cost.value is None:
        return cost.reason or "not measured"
    words = f"{significant(cost.value)} points"
    if cost.low is None or cost.high is None:
        return words
    return f"{words} [{significant(cost.low)}, {significant(cost.high)}]"
