"""The ladder: the only place where result, baseline and controls become a verdict, and where findings are made.

A verdict is earned. `conclude` takes a result together with both controls of the same run, so that a `leak` or a
`no_leak_found` without them cannot be written, and asks the rules of `LADDER` in their order; the first one that
applies decides. What says nothing goes through `inconclusive` or `not_run`. A claim of privacy has its own door,
`conclude_claim`, because two of its grounds attack nothing: the ledger, and the questions to a run with its tape.

A new audit measures, and hands over numbers and sentences; it never names a verdict:

    return conclude(
        Subject("my_audit", attack=result.attack),
        Result(
            test=by_p_value(p, context.bounds),
            shown=f"p = {p:.2g} over {n} records",
            leak="records come back",
            clear="no record comes back",
        ),
        Figures(metrics={"share": Metric(value=share, n=n)}),
        positive=Control("the records themselves", detected=p_of_records <= level, shown=...),
        negative=Control("records that nobody holds", detected=p_of_nobody <= level, shown=...),
    )
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedassay.audits.evidence import (
    FAINT,
    Control,
    Figures,
    Ground,
    LedgerVerdict,
    Result,
    Subject,
    TapeVerdict,
    by_arithmetic,
)
from fedassay.audits.stats.resampling import ALONE
from fedassay.records.facts import ControlFact, ControlRole, Harm, Obstacle, ObstacleKind, TestFact
from fedassay.records.record import Controls, Finding, Limit, NegativeControl, PositiveControl, Verdict
from fedassay.support.errors import FedassayError, Why


class MissingControlsError(FedassayError):
    """An audit concluded without a positive control that was caught and a negative one that was not flagged."""


@dataclass(frozen=True)
class Case:
    """A result with its controls: what the rules of the ladder read.

    Attributes:
        result: The audited release.
        positives: Releases that must be caught, at least one.
        negative: One that must not be flagged.
    """

    result: Result
    positives: tuple[Control, ...]
    negative: Control


Decision = tuple[Verdict, str]
"""A verdict and its reason."""

Rule = Callable[[Case], Decision | None]
"""A rung of the ladder: a verdict where it applies, None where the next one is asked."""


def negative_control_flagged(case: Case) -> Decision | None:
    """A test that fires where nothing leaks says nothing where it fires."""
    if not case.negative.detected:
        return None
    return "inconclusive", f"the negative control was flagged ({case.negative.shown}); {_ending(case.result)}"


def positive_control_missed(case: Case) -> Decision | None:
    """A test that misses a known leak says nothing where it is silent."""
    missed = next((control for control in case.positives if not control.detected), None)
    if missed is None:
        return None
    reason = f"the positive control was not caught ({missed.shown}), so the attack is too weak here"
    return "inconclusive", f"{reason}; {_ending(case.result)}"


def worse_than_baseline(case: Case) -> Decision | None:
    """An attack that does worse than no attack was broken or misled; its silence is no answer."""
    result = case.result
    caught = any(control.own_shape and control.detected for control in case.positives)
    if not result.worse or result.test.beats or (result.ruin_expected and caught):
        return None
    return (
        "inconclusive",
        f"the result is worse than {result.worse}, so the attack says nothing here; {_ending(result)}",
    )


def near_copy(case: Case) -> Decision | None:
    """A near copy of a record is a leak, whatever else comes close to it."""
    result = case.result
    if not (result.test.beats and result.near_copies):
        return None
    return "leak", _said(result.leak and f"{result.leak}, {result.near_copies} as near copies", result.shown)


def explained_by_others(case: Case) -> Decision | None:
    """What shows as well without the release need not come from it."""
    result = case.result
    if result.explained is None or result.near_copies or not (result.test.beats or result.test.alone):
        return None
    return "inconclusive", f"{result.explained.reason}; {_ending(result)}"


def leak_found(case: Case) -> Decision | None:
    """The test rejects at the corrected level, and nothing above stands in the way."""
    result = case.result
    return ("leak", _said(result.leak, result.shown)) if result.test.beats else None


def suspected(case: Case) -> Decision | None:
    """More tests in a run must not turn a leak into a clean bill: between the levels nothing is decided."""
    result = case.result
    if not result.test.alone:
        return None
    return "inconclusive", (
        f"suspected: {result.test.words or 'the test'} rejects at {ALONE:g} by itself, but not at the level "
        f"corrected for the tests of the run; a run of this release alone, or more records, would decide; "
        f"{result.shown}"
    )


def positive_control_faint(case: Case) -> Decision | None:
    """An attack that does well on raw features and hardly anything in the own shape says nothing of it."""
    own = [control.gain for control in case.positives if control.own_shape and control.gain is not None]
    alone = [control.gain for control in case.positives if not control.own_shape and control.gain is not None]
    if not own or not alone or min(own) >= FAINT * max(alone):
        return None
    gains = f"gains {min(own):.3g} {case.positives[0].detail}, against {max(alone):.3g}"
    return "inconclusive", (
        f"on known records in the release's own shape the attack {gains} on the positive control of the attack "
        f"alone: it is too weak here; {_ending(case.result)}"
    )


def undecidable(case: Case) -> Decision | None:
    """What was not tried, or could not have shown more, is not absent."""
    result = case.result
    return ("inconclusive", f"{result.undecided}; {_ending(result)}") if result.undecided else None


def no_leak(case: Case) -> Decision | None:
    """Every control held, and the test is silent at both levels."""
    result = case.result
    clear = _said(result.clear, result.shown)
    return "no_leak_found", f"{clear}; the positive control was caught ({case.positives[0].shown})"


def _ending(result: Result) -> str:
    """The figures, and what would decide where they do not."""
    return f"{result.shown}; {result.decided_by}" if result.decided_by else result.shown


def _said(clause: str, figures: str) -> str:
    return f"{clause}: {figures}" if clause else figures


OBSTACLES: Mapping[Rule, ObstacleKind] = {
    negative_control_flagged: "control_flagged",
    positive_control_missed: "control_missed",
    worse_than_baseline: "worse_than_baseline",
    explained_by_others: "confounded",
    suspected: "between_levels",
    positive_control_faint: "control_faint",
    undecidable: "unstated",
}
"""What each rule that says nothing met with; `Result.obstacle` says more where an audit knows it."""

LADDER: tuple[Rule, ...] = (
    negative_control_flagged,
    positive_control_missed,
    worse_than_baseline,
    near_copy,
    explained_by_others,
    leak_found,
    suspected,
    positive_control_faint,
    undecidable,
    no_leak,
)
"""The rules in the order in which they are asked; the last one always applies."""


def conclude(
    subject: Subject,
    result: Result,
    figures: Figures,
    *,
    positive: Control,
    negative: Control,
    also: Sequence[Control] = (),
) -> Finding:
    """The finding of an audit that attacks: the verdict of the first rule that applies.

    Args:
        subject: What it speaks of.
        result: The audited release.
        figures: What is shown beside the verdict.
        positive: A release that must be caught; the one in the release's own shape, where there is one.
        negative: A release that must not be flagged.
        also: Further releases that must be caught, such as raw features for the attack alone.

    Raises:
        MissingControlsError: A control is missing (an audit without types).
    """
    if not (isinstance(positive, Control) and isinstance(negative, Control)):
        raise MissingControlsError(_missing(subject.audit, "a verdict"))
    case = Case(result, (positive, *also), negative)
    rule, (verdict, reason) = _first(case)
    obstacle = _obstacle(rule, result)
    limit = result.limit() if verdict == "no_leak_found" and result.limit is not None else None
    if isinstance(limit, str):
        obstacle = missing(limit, "no_power")
        verdict, reason, limit = "inconclusive", f"{limit}; {_ending(result)}", None
    missed = next((control for control in case.positives if not control.detected), positive)
    reason = f"{result.about}: {reason}" if result.about else reason
    finding = _make(subject, verdict, reason, figures, missed, negative, limit)
    other = result.explained.control if result.explained is not None else None
    return finding.model_copy(
        update={
            "harm": result.harm if verdict == "leak" else None,
            "test": _tested(result),
            "all_controls": _controls(case.positives, negative, other),
            "rule": rule.__name__,
            "obstacle": obstacle,
        }
    )


def decide(case: Case) -> Decision:
    """The verdict and the reason of the first rule of the ladder that applies."""
    return _first(case)[1]


def _first(case: Case) -> tuple[Rule, Decision]:
    """The first rule that applies, and what it says."""
    return next((rule, decision) for rule in LADDER if (decision := rule(case)) is not None)


def _obstacle(rule: Rule, result: Result) -> Obstacle | None:
    kind = OBSTACLES.get(rule)
    if kind is None:
        return None
    if kind != "unstated":
        return Obstacle(kind=kind)
    return result.obstacle or missing(result.undecided)


def _tested(result: Result) -> TestFact:
    test = result.test
    return TestFact(
        statistic=test.statistic, p=test.p, level=test.level, rejects=test.beats, rejects_alone=test.alone
    )


def _controls(positives: Sequence[Control], negative: Control, other: Control | None) -> tuple[ControlFact, ...]:
    """Every control that was run, by its role; what explains a result is no negative control and replaces none."""
    roles: list[tuple[ControlRole, Control]] = [
        ("end_to_end" if control.own_shape else "attack_only", control) for control in positives
    ]
    roles.append(("negative", negative))
    if other is not None:
        roles.append(("confounder", other))
    return tuple(
        ControlFact(
            role=role,
            release=control.release,
            detected=control.detected,
            value=control.value,
            n=control.n,
            detail=control.detail,
        )
        for role, control in roles
    )


def with_harm(finding: Finding, harm: Harm) -> Finding:
    """The finding with what was taken, where a leak was found."""
    return finding.model_copy(update={"harm": harm}) if finding.verdict == "leak" else finding


def inconclusive(
    subject: Subject,
    reason: str,
    figures: Figures | None = None,
    *,
    positive: Control | None = None,
    negative: Control | None = None,
    obstacle: Obstacle | None = None,
) -> Finding:
    """A finding that says nothing because something that a verdict needs could not be had; `obstacle`: what."""
    finding = _make(subject, "inconclusive", reason, figures or Figures(), positive, negative)
    return finding.model_copy(update={"obstacle": obstacle or missing(reason)})


def not_run(
    subject: Subject, reason: str, figures: Figures | None = None, obstacle: Obstacle | None = None
) -> Finding:
    """A finding that nothing was tried, and why."""
    finding = _make(subject, "not_run", reason, figures or Figures(), None, None)
    return finding.model_copy(update={"obstacle": obstacle or missing(reason, "not_possible")})


def missing(why: str, otherwise: ObstacleKind = "unstated") -> Obstacle:
    """What stood in the way: the records that a reason says are missing, or else a kind."""
    if isinstance(why, Why) and why.role:
        return Obstacle(kind="records_missing", role=why.role, held=why.held, needed=why.needed)
    return Obstacle(kind=otherwise)


def conclude_claim(
    subject: Subject, ground: Ground, figures: Figures, limit: Callable[[], Limit | str] | None = None
) -> Finding:
    """The finding on a claim of privacy, on one of the three grounds that it may stand on.

    Args:
        subject: What it speaks of.
        ground: What the verdict stands on.
        figures: What is shown beside it.
        limit: Computes the smallest fault that would have been found, or says in words why there is none; asked
            where the claim is `sound`.
    """
    finding = _of_ground(subject, ground, figures)
    if finding.verdict != "sound":
        return finding
    found = "no limit of detection is known here" if limit is None else limit()
    if isinstance(found, str):
        return finding.model_copy(update={"reason": f"{finding.reason}; {found}"})
    return finding.model_copy(update={"limit": found})


def _of_ground(subject: Subject, ground: Ground, figures: Figures) -> Finding:
    if isinstance(ground, LedgerVerdict):
        return _make(subject, ground.verdict, ground.reason, figures, None, None)
    if isinstance(ground, TapeVerdict):
        return _make(subject, ground.verdict, ground.reason, figures, ground.positive, ground.negative)
    silent = Result(by_arithmetic(False), ground.ledger)
    case = Case(silent, (ground.positive,), ground.negative)
    failed = negative_control_flagged(case) or positive_control_missed(case)
    verdict, reason = failed or (ground.verdict, ground.reason)
    return _make(subject, verdict, reason, figures, ground.positive, ground.negative)


def admitted(audit: str, findings: Iterable[Finding]) -> list[Finding]:
    """The findings of an audit, which may be a third party's and may not have been made here.

    Raises:
        MissingControlsError: One concludes without both controls, or although one of them failed.
    """
    kept = list(findings)
    for finding in kept:
        positive, negative = finding.controls.positive, finding.controls.negative
        held = positive is not None and positive.caught and negative is not None and not negative.flagged
        if finding.verdict in ("leak", "no_leak_found") and not held:
            raise MissingControlsError(_missing(audit, f"the verdict {finding.verdict}"))
    return kept


def _missing(audit: str, what: str) -> str:
    return (
        f"audit {audit}: {what} without a positive control that was caught and a negative control that was not "
        "flagged; make findings with fedassay.audits.verdict.conclude, which asks for both, or with inconclusive "
        "or not_run"
    )


def _make(
    subject: Subject,
    verdict: Verdict,
    reason: str,
    figures: Figures,
    positive: Control | None,
    negative: Control | None,
    limit: Limit | None = None,
) -> Finding:
    return Finding(
        audit=subject.audit,
        attack=subject.attack,
        source=subject.source,
        selection=subject.selection,
        metrics=dict(figures.metrics),
        baseline=dict(figures.baseline),
        controls=Controls(
            positive=positive
            and PositiveControl(
                release=positive.release,
                caught=positive.detected,
                value=positive.value,
                n=positive.n,
                detail=positive.detail,
            ),
            negative=negative
            and NegativeControl(
                release=negative.release,
                flagged=negative.detected,
                value=negative.value,
                n=negative.n,
                detail=negative.detail,
            ),
        ),
        verdict=verdict,
        reason=reason,
        assumptions=figures.assumptions,
        pictures=figures.pictures,
        series=dict(figures.series),
        limit=limit,
        tape=figures.tape,
    )
