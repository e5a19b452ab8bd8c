"""Rules put to a run: every rule, every cell, one judgement.

A number decides only with its whole interval on one side of the bound: a run that cannot tell must
not pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from fedassay.contracts.registry import every_audit
from fedassay.records.record import CellRecord, Metric, RunRecord, Verdict, epsilon_metric
from fedassay.reports.gate.baseline import Difference, difference_lines
from fedassay.reports.gate.covered import (
    applies,
    as_tested,
    attacked,
    complete,
    conclusive,
    nothing_concluded,
    relevant,
    seen_small,
)
from fedassay.reports.gate.deltas import one_in_n
from fedassay.reports.gate.judgement import Basis, Judgement, Mark, State
from fedassay.reports.gate.policy import Policy, Scope
from fedassay.reports.gate.required import required
from fedassay.reports.gate.usefulness import above_majority
from fedassay.reports.words.allowed import settled
from fedassay.reports.words.claims import claim_clause, claims, fault_of, fields_in_words, ledger_stands, refuted
from fedassay.reports.words.groups import cell_name, part_in_words, several_deltas, several_seeds
from fedassay.reports.words.harm_words import harm_clause
from fedassay.reports.words.harms import leaks, obstacle_of
from fedassay.reports.words.metrics import COMMUNICATION, EPSILONS, PRIVACY, UTILITY, title, utility
from fedassay.reports.words.numbers import interval, short, significant
from fedassay.reports.words.sentences import listed, open_clause
from fedassay.reports.words.summary import attacks_on, search, verdicts_of
from fedassay.reports.words.verdicts import LOOKS
from fedassay.support.text import plain

BROKE_OFF = "run"
"""The rule that every part of a run must finish."""

_OTHERWISE = {
    "bounded by the claim": ("is bounded by the claim", "are bounded by the claim"),
    "does not apply": ("does not apply", "do not apply"),
}
"""Words for rules that pass other than by a measurement: for one of them, and for several."""

_ROUNDING = 1e-9
_MARKS: dict[State, str] = {"broken": "✖ broken", "undecided": "? undecided"}
"""Marks of judgements that do not pass."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a policy on a run."""

    policy: str
    judgements: tuple[Judgement, ...]
    provenance: str = ""
    """The evidence that vouches for the run, in one sentence; empty where this process made it."""
    changed: tuple[Difference, ...] | None = None
    """Differences from the run that it was held against; None where there was none."""

    @property
    def exit_code(self) -> int:
        """0 pass, 1 broken or worse than the earlier run, 2 could not decide."""
        states = {judgement.state for judgement in self.judgements}
        if self.worse or "broken" in states:
            return 1
        unlike = any(each.about == "nothing" for each in self.changed or ())
        return 2 if unlike or "undecided" in states else 0

    @property
    def worse(self) -> tuple[Difference, ...]:
        """Changes for the worse since the earlier run."""
        return tuple(each for each in self.changed or () if each.worse)

    def text(self, verbose: bool = True) -> str:
        """Number of rules passed, and with `verbose` the broken or undecided ones before it."""
        end = f"{self.headline} {self.provenance}" if self.provenance else self.headline.rstrip(".")
        return "\n".join(map(plain, [*(self.details() if verbose else ()), end]))

    @property
    def headline(self) -> str:
        """Whether the run passes, and how many rules of all releases did."""
        count = {state: sum(item.state == state for item in self.judgements) for state in get_args(State)}
        counts = (
            f"{count['pass']} passed{self._otherwise()}, {count['broken']} broken, {count['undecided']} undecided"
        )
        state = "broken" if count["broken"] else "undecided" if count["undecided"] else "pass"
        end = {"pass": "the run passes", "broken": "the run does not pass", "undecided": "it could not be decided"}
        words = end[state]
        if state == "broken" and (broken := self._broken_alone()):
            words += f", for {listed(broken)} break{'s' * (len(broken) == 1)} it"
        return f"policy {self.policy}: {words} ({counts})."

    def _otherwise(self) -> str:
        """Clause on the number of rules that passed without a measurement."""
        marks: tuple[Mark, ...] = ("bounded by the claim", "does not apply")
        many = {mark: sum(item.mark == mark for item in self.judgements) for mark in marks}
        said = [f"{number} {_OTHERWISE[mark][number > 1]}" for mark, number in many.items() if number]
        return f" ({', '.join(said)})" if said else ""

    def first_lines(self, most: int | None = None) -> Iterator[str]:
        """Lines that decide the exit code: changes for the worse, and then whether the policy is kept.

        Args:
            most: Differences that there is room for; None: all.
        """
        changed = list(() if self.changed is None else difference_lines(self.changed, most, "by --verbose"))
        yield from changed if self.changed else ()
        yield self.headline
        for judgement in self.judgements:
            # A fault of the whole run is in no release's answer.
            if judgement.state != "pass" and (not judgement.cell or judgement.rule == BROKE_OFF):
                yield f"{_MARKS[judgement.state]}: {judgement.sentence}"
        yield from () if self.changed else changed

    def details(self) -> Iterator[str]:
        """Lines on broken or undecided rules; equal reasons are said once."""
        for state, mark in _MARKS.items():
            alike: dict[str, list[str]] = {}
            for judgement in self.judgements:
                if judgement.state == state:
                    alike.setdefault(judgement.why, []).append(judgement.cell)
            for why, cells in alike.items():
                named = "; ".join(dict.fromkeys(cell for cell in cells if cell))
                yield from (f"{mark}: {why}", *([f"    {named}"] if named else ()))

    def _broken_alone(self) -> list[str]:
        """Releases that break the policy where another one keeps it; none where no release does."""
        states: dict[str, set[State]] = {}
        for item in self.judgements:
            if item.cell:
                states.setdefault(item.cell, set()).add(item.state)
        kept = any(found == {"pass"} for found in states.values())
        return [cell for cell, found in states.items() if "broken" in found] if kept else []

    def as_dict(self) -> dict[str, Any]:
        """The outcome for `--json`."""
        return {
            "policy": self.policy,
            "exit_code": self.exit_code,
            **({"provenance": self.provenance} if self.provenance else {}),
            **(
                {}
                if self.changed is None
                else {"baseline": [{"worse": each.worse, "words": each.words} for each in self.changed]}
            ),
            "judgements": [
                {**asdict(judgement), "mark": judgement.mark, "sentence": judgement.sentence}
                for judgement in self.judgements
            ],
        }


def judged(record: RunRecord, policy: Policy) -> Outcome:
    """A run held to a policy."""
    return Outcome(policy.name, tuple(judge(record, policy)))


def judge(record: RunRecord, policy: Policy) -> Iterator[Judgement]:
    """Put every rule of a policy to every cell in its scope."""
    deltas, seeds = several_deltas(record), several_seeds(record)
    cells = [cell for cell in record.cells if _in_scope(cell, policy.cells)]
    for label in policy.cells.labels:
        if all(cell.label != label for cell in record.cells):
            yield Judgement("cells", "", "undecided", f"the run has no method entry labelled {label!r}")
    if not cells:
        yield Judgement("cells", "", "undecided", "no cell of the run is in the policy's scope")
    yield from required(record, policy.requires)
    names = {cell.key: cell_name(cell, deltas, seeds) for cell in record.cells if cell.key}
    yield from _unfinished(record, names)
    for cell in cells:
        name = cell_name(cell, deltas, seeds)
        yield from nothing_concluded(cell, name)
        yield from _bounds(cell, name, policy)
        yield from _statements(cell, name, policy, record)
        yield from _lookings(cell, name, policy)


def _unfinished(record: RunRecord, names: Mapping[str, str]) -> Iterator[Judgement]:
    """Judgements on missing parts of a run: cells of a stopped one, and parts that broke off."""
    if record.unfinished is not None:
        lacks = f"{len(record.unfinished.cells)} cells are missing, because {record.unfinished.why}"
        yield Judgement("finished", "", "undecided", f"the run is not finished: {lacks}")
    for error in record.errors:
        part = part_in_words(error.stage)
        where, why = names.get(error.cell, error.cell), f"{part} broke off"
        yield Judgement(BROKE_OFF, where, "undecided", f"{why}: {error.message}", why, "coverage")


def _bounds(cell: CellRecord, name: str, policy: Policy) -> Iterator[Judgement]:
    """The rules that bound a figure."""
    for metric, bound in policy.maximum.items():
        yield _of_kind(cell, name, metric, policy) or _bounded(cell, name, metric, bound, "maximum")
    for metric, bound in policy.minimum.items():
        yield _bounded(cell, name, metric, bound, "minimum")
    if policy.above_majority:
        yield above_majority(cell, name)


def _statements(cell: CellRecord, name: str, policy: Policy, record: RunRecord) -> Iterator[Judgement]:
    """The rules on what is sent and claimed."""
    if policy.exact_fields == "forbidden":
        yield _exact(cell, name)
    if policy.claims != "any":
        yield _claim(cell, name, policy.claims)
    if policy.delta != "any":
        yield one_in_n(cell, name, record)


def _lookings(cell: CellRecord, name: str, policy: Policy) -> Iterator[Judgement]:
    """The rules on what was looked for and found."""
    for audit in policy.must_conclude:
        yield _concluded(cell, name, audit.removeprefix("other:"))
    if policy.forbidden_verdicts:
        yield _verdicts(cell, name, policy.forbidden_verdicts)
    if policy.coverage == "complete":
        yield from complete(cell, name)
    if policy.coverage == "attacked":
        yield from attacked(cell, name)
    yield from seen_small(cell, name, policy.limit_of_detection)


def _in_scope(cell: CellRecord, scope: Scope) -> bool:
    if scope.labels and cell.label not in scope.labels:
        return False
    return scope.epsilon == "all" or cell.asked.finite


def _exact(cell: CellRecord, name: str) -> Judgement:
    fields = cell.privacy.exact_fields
    if fields:
        brief = f"clients send {fields_in_words(fields)} without noise"
        return Judgement("exact_fields", name, "broken", f"{', '.join(fields)} leave the clients exactly", brief)
    if not cell.ledger:
        return Judgement("exact_fields", name, "undecided", "the record holds no ledger")
    fault = fault_of(cell)
    if fault is not None and fault.refuted and fault.kind in ("noise", "rest", "exact"):
        return Judgement("exact_fields", name, "undecided", claim_clause(cell))
    return Judgement("exact_fields", name, "pass", "no field leaves exactly")


def _claim(cell: CellRecord, name: str, wanted: str) -> Judgement:
    verdict, reason = cell.privacy.verdict, cell.privacy.reason
    words = LOOKS[verdict].word.lower() + (f": {reason}" if reason else "")
    brief = claim_clause(cell)
    if verdict in {"unsound", "unsupported"}:
        return Judgement("claims", name, "broken", words, brief)
    if not claims(cell):
        state: State = "broken" if wanted == "sound" else "pass"
        return Judgement("claims", name, state, "makes no claim", brief)
    held = verdict == "sound" or (verdict == "not_refuted" and wanted == "not_disproved")
    return Judgement("claims", name, "pass" if held else "undecided", words, brief)


def _concluded(cell: CellRecord, name: str, audit: str) -> Judgement:
    rule = f"must_conclude {audit}"
    if not applies(cell, audit):
        return Judgement(rule, name, "pass", f"{audit} does not apply to what is sent", basis="nothing")
    findings = relevant(cell, audit)
    if not findings:
        words = f"the audit {audit} was not part of the run"
        return Judgement(rule, name, "undecided", words, basis="untested")
    for verdict in ("inconclusive", "not_run", "not_refuted"):
        for finding in findings:
            if finding.verdict == verdict and not settled(cell, finding):
                words = f"{audit} is {LOOKS[finding.verdict].word.lower()}: {finding.reason}"
                obstacle = obstacle_of(finding)
                brief = claim_clause(cell) if verdict == "not_refuted" else ""
                brief = brief if obstacle is None else open_clause(finding, obstacle)
                return Judgement(rule, name, "undecided", words, brief, "coverage")
    if all(settled(cell, finding) for finding in findings if finding.verdict == "inconclusive") and not any(
        conclusive(finding) for finding in findings
    ):
        words = f"{audit} reached no verdict, and the claim bounds what it looks for"
        return as_tested(Judgement(rule, name, "pass", words, basis="claim"), cell, [audit])
    return as_tested(Judgement(rule, name, "pass", f"{audit} reached a verdict"), cell, [audit])


def _verdicts(cell: CellRecord, name: str, forbidden: tuple[Verdict, ...]) -> Judgement:
    found = [verdict for verdict in verdicts_of(cell) if verdict in forbidden]
    if not found:
        return as_tested(Judgement("forbidden_verdicts", name, "pass", "no forbidden verdict"), cell)
    reason = next((f.reason for f in attacks_on(cell) if f.verdict == found[0]), cell.privacy.reason)
    word = LOOKS[found[0]].word.lower()
    worst = next((harm_clause(leak) for leak in leaks([cell])), "") if found != ["unsound"] else ""
    return Judgement("forbidden_verdicts", name, "broken", f"{word}: {reason}", worst or claim_clause(cell))


def _of_kind(cell: CellRecord, name: str, metric: str, policy: Policy) -> Judgement | None:
    """Undecided where a bound is on epsilons of a kind that the cell's guarantee is not of; None where it is."""
    of, asked = policy.epsilon_of, cell.asked
    if metric not in EPSILONS or (of.adjacency or asked.adjacency, of.unit or asked.unit) == asked.standing:
        return None
    words = f"the policy bounds epsilon ({of.words}), and the cell's is of another kind ({asked.kind.words})"
    return Judgement(f"maximum {metric}", name, "undecided", words, words, "privacy", metric)


def _bounded(
    cell: CellRecord, name: str, metric: str, bound: float, side: Literal["maximum", "minimum"]
) -> Judgement:
    """Put a bound to every place of a cell that holds the metric; the worst state counts."""
    rule = f"{side} {metric}"
    if metric == "accounted" and not ledger_stands(cell):
        return Judgement(rule, name, "broken", claim_clause(cell), "", "privacy", metric)
    about: Literal["privacy", "use"] = "use" if metric in UTILITY else "privacy"
    brief = claim_clause(cell) if metric in PRIVACY and (refuted(cell) or not claims(cell)) else ""
    measured, doubts = _measured(cell, metric)
    states = [(*_state(value, bound, side), where) for where, value in measured]
    order: dict[State, int] = {"broken": 0, "undecided": 1, "pass": 2}
    limit = f"the {side} of {short(bound)}"
    judges = [
        audit for audit, facts in every_audit().items() if any(item.name == metric for item in facts.metrics)
    ]
    tried = () if metric in (*EPSILONS, *UTILITY, *COMMUNICATION) else judges
    if states:
        state, words, where = min(states, key=lambda item: order[item[0]])
        if state == "broken" or not doubts:
            words = f"{where}{title(metric)} {words} {limit}"
            return as_tested(Judgement(rule, name, state, words, brief, about, metric), cell, tried)
    if not doubts and judges and not any(applies(cell, audit) for audit in judges):
        words = f"{' and '.join(judges)} do not apply to what is sent"
        return Judgement(rule, name, "pass", words, about=about, metric=metric, basis="nothing")
    if not doubts and any(metric in each.metrics and settled(cell, each) for each in cell.findings):
        words = f"the claim bounds what {title(metric)} is a measure of"
        held = Judgement(rule, name, "pass", words, about=about, metric=metric, basis="claim")
        return as_tested(held, cell, tried)
    reason = doubts[0] if doubts else "no audit in this cell measures it"
    where = "above" if side == "maximum" else "below"
    of = f" ({cell.asked.kind.words})" if metric in EPSILONS else ""
    may = f"{title(metric)} may be {where} {short(bound)}{of}"
    if not doubts:
        may = f"whether {title(metric)} is {where} {short(bound)}{of} was not measured"
    basis: Basis = "measured" if doubts else "untested"
    return Judgement(rule, name, "undecided", f"{may}, for {reason}", brief or may, about, metric, basis=basis)


def _state(metric: Metric, bound: float, side: str) -> tuple[State, str]:
    assert metric.value is not None
    low = metric.value if metric.low is None else metric.low
    high = metric.value if metric.high is None else metric.high
    count = "" if metric.n is None else f"(n = {metric.n:,})"
    shown = " ".join(filter(None, (significant(metric.value), interval(metric, count=False), metric.unit, count)))
    if side == "maximum":
        inside, outside = _no_more(high, bound), not _no_more(low, bound)
    else:
        inside, outside = _no_more(bound, low), not _no_more(bound, high)
    if inside:
        return "pass", f"{shown} is within"
    beyond = "above" if side == "maximum" else "below"
    return ("broken", f"{shown} is {beyond}") if outside else ("undecided", f"{shown}: the interval lies across")


def _no_more(first: float, second: float) -> bool:
    """Whether a number is at most another, but for rounding: noise calibrated to 3 may add up to an ulp more."""
    return first <= second or math.isclose(first, second, rel_tol=_ROUNDING)


def _measured(cell: CellRecord, metric: str) -> tuple[list[tuple[str, Metric]], list[str]]:
    """Values of a metric in a cell with their places, and reasons to doubt that they are complete."""
    readers: dict[str, Callable[[], Metric]] = {
        **{key: lambda key=key: utility(cell, key) for key in UTILITY},  # type: ignore[misc]
        **{key: lambda key=key: Metric(value=cell.communication.get(key)) for key in COMMUNICATION},  # type: ignore[misc]
        **{key: lambda key=key: epsilon_metric(getattr(cell, key)) for key in EPSILONS},  # type: ignore[misc]
        "mu": lambda: Metric(value=cell.privacy.mu),
    }
    if metric in readers:
        value = readers[metric]()
        if value.value is not None:
            return [("", value)], []
        return [], [value.reason or cell.privacy.reason or "it was not measured"]
    found, doubts = [], []
    for finding in cell.findings:
        held = finding.metrics.get(metric)
        if settled(cell, finding):
            # A figure of an attack that could not have shown a leak is no figure of the release.
            continue
        open_ = finding.verdict == "inconclusive"
        if open_ and (held is not None or not finding.metrics):
            doubts.append(f"{finding.audit} is inconclusive: {finding.reason}")
        elif held is not None and held.value is not None:
            found.append((f"{search(finding)}: ", held))
        elif held is not None:
            doubts.append(held.reason or f"{finding.audit} did not measure it")
    return found, doubts
