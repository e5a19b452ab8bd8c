"""The one thing to do next: what stops a leak or mends a claim, what decides the rest, or where rules stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedassay.contracts.registry import attack_facts, audit_facts, claim_audit
from fedassay.plan.rates import in_words
from fedassay.records.facts import Change
from fedassay.records.record import CellRecord, RunRecord
from fedassay.reports.answer.captured import is_captured
from fedassay.reports.answer.rows import worst_fault, worst_leak
from fedassay.reports.decision.decision import Decision, Option
from fedassay.reports.decision.standard import asking, check_command
from fedassay.reports.decision.steps import Step
from fedassay.reports.gate.judging import BROKE_OFF
from fedassay.reports.words.claims import Fault, noise_not_measured
from fedassay.reports.words.groups import cell_name, several_deltas, several_seeds
from fedassay.reports.words.sentences import listed, sentence, who
from fedassay.support.registry import entries

_MEND: dict[Fault, str] = {
    "noise": "Find out why less noise is added than is declared, mend it, and run or capture again.",
    "sensitivity": "Clip each record to the declared sensitivity, or add the noise that what is sent needs.",
    "rest": "Add noise to everything that depends on records, or do not send it.",
    "exact": "Add noise to the fields that are named, or claim an adjacency that makes them public.",
}
"""Next step after a disproved claim, by the fault found in it."""


@dataclass(frozen=True)
class NextStep:
    """Next step: one sentence, a command, and the time that it takes.

    Attributes:
        what: The step, in one sentence.
        command: To be typed, with RUN for the run folder, and POLICY for a policy of one's own.
        takes: Estimated time; empty where there is no estimate.
        changes: The keys of the plan that do it; empty where none do.
    """

    what: str
    command: str
    takes: str = ""
    changes: tuple[Change, ...] = ()


def next_step(record: RunRecord, decision: Decision, subject: Option | None, everywhere: Decision) -> NextStep:
    """Choose the next step.

    Args:
        record: The run.
        decision: The policy's decision on it.
        subject: The release that the answer is about; None: it is about all.
        everywhere: The decision on every epsilon, where the answer is about one of them.
    """
    if decision.recommended is not None and not decision.deployment:
        return NextStep("Write a plan for images of your own.", "fedassay init mine.yaml --data FOLDER")
    if decision.recommended is not None:
        return NextStep("Keep the evidence for whoever signs.", "fedassay report RUN --format evidence")
    passing = [option for option in decision.options if option.state == "pass"]
    if passing and subject is None:
        what = "Choose by what must be protected, and read the answer to one of them alone."
        best = max(passing, key=_accuracy).group.label
        return NextStep(what, f"fedassay answer RUN{asking(record, decision.policy, best, None)}")
    every = check_command(decision.policy)
    if _broke_off(decision):
        what = "Mend what broke off, and run the same plan again: what was finished is kept."
        return NextStep(what, "fedassay run PLAN -o RUN --resume")
    # Where rules are broken, and none is open, what is open elsewhere changes no answer.
    states = {option.state for option in decision.options}
    fails = "broken" in states and not states & {"pass", "undecided"}
    better = _better(record, everywhere, subject) if fails else None
    if better is not None:
        return better
    mended = "" if subject is None else _mended(subject)
    if mended:
        return NextStep(mended, every)
    again = _captured_again(record, subject) if is_captured(record) else None
    if again is not None:
        return again
    step = next(iter(decision.deciding), None) if fails else _deciding(record, decision)
    if step is None:
        closest = decision.closest
        advice = "" if closest is None else _mended(closest) or _too_little(closest, everywhere)
        return NextStep(advice or "See every rule of the policy.", every)
    return _by_running(record, decision, step, every)


def _by_running(record: RunRecord, decision: Decision, step: Step, every: str) -> NextStep:
    """A step of the decision as a command: another run, or another audit of captured messages."""
    takes = "" if step.seconds is None else f"about {in_words(step.seconds)}"
    if is_captured(record):
        return NextStep(sentence(step.what), "fedassay audit TRANSCRIPT --plan PLAN", takes)
    options = asking(record, decision.policy, decision.only_method, decision.only_epsilon)
    command = f"fedassay next RUN{options} > next.yaml && fedassay run next.yaml" if step.changes else every
    return NextStep(sentence(step.what), command, takes, step.changes)


def _lacks_candidates(cell: CellRecord) -> bool:
    """Whether an attack that needs nothing but candidates was not run."""
    tried = {finding.attack for finding in cell.findings}
    apart = {row.attack for row in cell.coverage if row.status == "not_run"} - tried
    return any(attack_facts(name).takes_gallery for name in apart & set(entries("attack")))


def _broke_off(decision: Decision) -> bool:
    """Whether a part of a release's cells ended with an error."""
    judgements = (each for option in decision.options for each in option.judgements)
    return any(each.rule == BROKE_OFF and each.state != "pass" for each in judgements)


def _better(record: RunRecord, everywhere: Decision, subject: Option | None) -> NextStep | None:
    """Another epsilon of the run, at which what fails at the one that was asked about passes or is open."""
    kept = [each for each in everywhere.options if each.state in ("pass", "undecided")]
    own = [each for each in kept if subject is not None and each.group.label == subject.group.label] or kept
    best = next((each for each in own if each.state == "pass"), own[0] if own else None)
    if best is None:
        return None
    how = "it passes" if best.state == "pass" else "no rule is broken there, though some are open"
    what = f"Read the answer to {who(best.group)}: {how}."
    options = asking(record, everywhere.policy, best.group.label, best.group.asked.bare)
    return NextStep(what, f"fedassay answer RUN{options}")


def _accuracy(option: Option) -> float:
    return option.accuracy.value or 0.0


def _mended(subject: Option) -> str:
    """Sentence on the remedy of the worst leak of a release, or of its claim; empty where none is known."""
    leak, fault = worst_leak(subject), worst_fault(subject)
    told = leak is not None and leak.harm.of != "worst_neighbours"
    if not told and fault is not None and fault.refuted and fault.kind in _MEND:
        return _MEND[fault.kind]
    if leak is not None and (told or fault is None):
        audit = leak.finding.audit
    else:
        audit = claim_audit() if fault is not None else ""
    facts = audit_facts(audit) if audit else None
    if facts is None or facts.rule is None:
        return ""
    exact = list(dict.fromkeys(name for cell in subject.group.cells for name in _exact(cell)))
    sent = f" Sent without noise: {listed(exact)}." if leak is not None and exact else ""
    return facts.rule.help + sent


def _too_little(subject: Option, everywhere: Decision) -> str:
    """Advice where a method is of too little use even above the policy's limits on epsilon; empty otherwise."""
    for option in everywhere.everything:
        broken = [each for each in option.judgements if each.state == "broken"]
        above = {each.metric for each in broken if each.about == "privacy"} & {"accounted", "observed"}
        if option.group.label == subject.group.label and above and any(each.about == "use" for each in broken):
            return f"Take more records, or another method: {who(option.group)} is of too little use already."
    return ""


def _exact(cell: CellRecord) -> Iterator[str]:
    """The fields that are sent without noise, each with what it is where its name does not say so."""
    kinds = {row.field: row.kind.replace("_", " ") for row in cell.ledger}
    for name in cell.privacy.exact_fields:
        kind = kinds.get(name, "")
        yield name if kind in ("", "other", name.replace("_", " ")) else f"{name} ({kind})"


def _captured_again(record: RunRecord, subject: Option | None) -> NextStep | None:
    """Next capture, or input of one, that would decide something; None where there is none."""
    if subject is not None and any(noise_not_measured(cell) for cell in subject.group.cells):
        what = "Capture the same records a second time: only that measures the noise."
        return NextStep(what, "fedassay audit TRANSCRIPT --again SECOND")
    if any(map(_lacks_candidates, record.cells)):
        what = "Give candidates who may be among the records: whether they are can be tested."
        return NextStep(what, "fedassay audit TRANSCRIPT --gallery FILE")
    if subject is None:
        return None
    if "read" in record.plan.get("transcript", {}):
        return _of_files(subject.group.cells)
    if not any(cell.coverage for cell in subject.group.cells):
        what = "Say what each field is (kinds), record the model that the server sent, or give candidates."
        return NextStep(what, "fedassay audit TRANSCRIPT --gallery FOLDER")
    return None


def _of_files(cells: Sequence[CellRecord]) -> NextStep | None:
    """Option that lets an attack read the files of a system; None where one has, or none is known."""
    if any(row.status != "not_run" for cell in cells for row in cell.coverage):
        return None
    kinds = {row.kind for cell in cells for row in cell.ledger if row.direction == "up"}
    if "gradient" in kinds or any(row.direction == "down" for cell in cells for row in cell.ledger):
        return None
    if "parameters" in kinds:
        what = "Give the model that the server had sent: weights are read as what has changed since."
        return NextStep(what, "fedassay audit FILES --downlink MODEL")
    return NextStep("Say what each array is.", "fedassay audit FILES --kinds NAME=KIND")


def _deciding(record: RunRecord, decision: Decision) -> Step | None:
    """Step that decides the release named as open by the answer; one stated as plan keys before any other."""
    open_ = next((option for option in decision.options if option.state == "undecided"), None)
    steps = decision.steps
    if open_ is not None:
        deltas, seeds = several_deltas(record), several_seeds(record)
        names = {cell_name(cell, deltas, seeds) for cell in open_.group.cells}
        steps = tuple(step for step in steps if names & set(step.cells)) or steps
    stated = [step for step in steps if step.changes and not step.needs_clients]
    return next(iter((*stated, *steps)), None)
