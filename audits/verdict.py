"""The only place where result, baseline and controls become a verdict, and where findings are made.

A verdict is earned. `assay` takes a result together with the controls of the same run, so that a `leak` or a
`no_leak_found` without them cannot be written, and asks the rungs of the ladder in their order; the first one that
applies decides, for every audit alike. `conclude` does the same for an audit with two controls at hand. A result
without a conclusion goes through `inconclusive` or `not_run`. A claim of privacy has its own way in,
`conclude_claim`, because two of its grounds attack nothing: the ledger, and the questions to a run with its tape.

A new audit measures, and hands over numbers and sentences; it never names a verdict:

    return conclude(
        Subject("my_audit", attack=result.attack),
        Result(
            test=by_p_value(p, context.num_tests),
            shown=f"p = {p:.2g} over {n} records",
            leak="records come back",
            clear="no record comes back",
            limit=lambda: Limit(metric="share", value=smallest, n=n, of="record", planted="copied"),
        ),
        Figures(metrics={"share": Metric(value=share, n=n)}),
        positive=ControlResult("known records", detected=p_own <= level, shown=..., end_to_end=True),
        negative=ControlResult("records that nobody holds", detected=p_of_nobody <= level, shown=...),
    )
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fedassay.audits.evidence import (
    Arms,
    ControlResult,
    Figures,
    Ground,
    LedgerVerdict,
    Result,
    Subject,
    TapeVerdict,
    by_arithmetic,
)
from fedassay.audits.ladder import decide, missing, obstacle_at
from fedassay.records.facts import MEANS, ControlFact, ControlRole, Harm, Obstacle, TestFact
from fedassay.records.record import Controls, Finding, Limit, NegativeControl, PositiveControl, Verdict
from fedassay.support.errors import FedassayError


class MixedSetsError(FedassayError):
    """A harm counts one set, and the figure beside it is a mean over another."""


class MissingControlsError(FedassayError):
    """An audit concluded without a positive control that was caught and a negative one that was not flagged."""


def assay(subject: Subject, arms: Arms, figures: Figures) -> Finding:
    """The finding of an audit that attacks: the verdict of the first rung that applies.

    Args:
        subject: Subject of the finding.
        arms: The audited release and every control that was run.
        figures: Figures shown beside the verdict.

    Raises:
        MixedSetsError: The harm counts another set than its figure is a mean over.
    """
    rung, result = decide(arms), arms.result
    _of_one_set(subject, result.harm, figures)
    reason = rung.says(arms)
    finding = _make(
        subject,
        rung.verdict,
        f"{result.about}: {reason}" if result.about else reason,
        figures,
        _standing(arms.positives, leaks=rung.verdict == "leak"),
        arms.negative,
    )
    return finding.model_copy(
        update={
            "harm": result.harm if rung.verdict == "leak" else None,
            "test": _tested(result),
            "all_controls": _controls(arms),
            "rule": rung.name,
            "obstacle": obstacle_at(rung, arms),
            "limit": arms.limit if rung.verdict == "no_leak_found" else None,
        }
    )


def conclude(
    subject: Subject,
    result: Result,
    figures: Figures,
    *,
    positive: ControlResult,
    negative: ControlResult,
) -> Finding:
    """The finding of an audit with two controls at hand.

    Args:
        subject: Subject of the finding.
        result: The audited release.
        figures: Figures shown beside the verdict.
        positive: A release that must be caught; the end-to-end one, where there is one.
        negative: A release that must not be flagged.

    Raises:
        MissingControlsError: A control is missing (an audit without types).
    """
    if not (isinstance(positive, ControlResult) and isinstance(negative, ControlResult)):
        raise MissingControlsError(_missing(subject.audit, "a verdict"))
    if positive.end_to_end:
        return assay(subject, Arms(result, (positive,), negative), figures)
    return assay(subject, Arms(result, "the audit made none", negative, (positive,)), figures)


def _of_one_set(subject: Subject, harm: Harm | None, figures: Figures) -> None:
    """Refuse what counts a set and stands beside the mean of another: whoever reads both takes them for one."""
    figure = None if harm is None or harm.kind not in MEANS else figures.metrics.get(harm.metric)
    if harm is not None and figure is not None and figure.n is not None and figure.n != harm.total:
        raise MixedSetsError(
            f"audit {subject.audit}: its harm counts {harm.total}, and {harm.metric} is a mean over {figure.n}: "
            "give `total` as many as the mean is over, and `among` as many as they were selected from"
        )


def _standing(positives: Sequence[ControlResult], *, leaks: bool) -> ControlResult | None:
    """The positive control that a verdict stands on: of a leak one that was caught, else one that was missed."""
    return next((control for control in positives if control.detected == leaks), next(iter(positives), None))


def _tested(result: Result) -> TestFact:
    test = result.test
    return TestFact(
        statistic=test.statistic, p=test.p, level=test.level, rejects=test.rejects, rejects_alone=test.uncorrected
    )


def _controls(arms: Arms) -> tuple[ControlFact, ...]:
    """Every control that was run, by its role; what explains a result is no negative control and replaces none."""
    own = () if isinstance(arms.own, str) else arms.own
    roles: list[tuple[ControlRole, ControlResult, bool]] = [
        *(("end_to_end", control, control.detected) for control in own),
        *(("attack_only", control, control.detected) for control in arms.attack_only),
        ("negative", arms.negative, arms.negative.detected),
    ]
    if arms.confounder is not None and arms.confounder.control is not None:
        roles.append(("confounder", arms.confounder.control, arms.confounder.explains))
    return tuple(
        ControlFact(
            role=role,
            release=control.release,
            detected=detected,
            value=control.value,
            n=control.n,
            detail=control.detail,
        )
        for role, control, detected in roles
    )


def with_harm(finding: Finding, harm: Harm) -> Finding:
    """The finding with what was taken, where a leak was found."""
    return finding.model_copy(update={"harm": harm}) if finding.verdict == "leak" else finding


def inconclusive(
    subject: Subject,
    reason: str,
    figures: Figures | None = None,
    *,
    obstacle: Obstacle | None = None,
) -> Finding:
    """A finding that says nothing because something that a verdict needs could not be had; `obstacle`: what."""
    finding = _make(subject, "inconclusive", reason, figures or Figures(), None, None)
    return finding.model_copy(update={"obstacle": obstacle or missing(reason)})


def not_run(
    subject: Subject, reason: str, figures: Figures | None = None, obstacle: Obstacle | None = None
) -> Finding:
    """A finding that nothing was tried, and why."""
    finding = _make(subject, "not_run", reason, figures or Figures(), None, None)
    return finding.model_copy(update={"obstacle": obstacle or missing(reason, "not_possible")})


def conclude_claim(
    subject: Subject, ground: Ground, figures: Figures, limit: Callable[[], Limit | str] | None = None
) -> Finding:
    """The finding on a claim of privacy, on one of the three grounds that it may stand on.

    Args:
        subject: Subject of the finding.
        ground: Ground of the verdict.
        figures: Figures shown beside it.
        limit: Computes the smallest fault that would have been found, or says in words why there is none; asked
            where the claim is `sound`, or was not refuted.
    """
    finding = _of_ground(subject, ground, figures)
    if finding.verdict not in ("sound", "not_refuted"):
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
    arms = Arms(silent, (ground.positive,), ground.negative)
    rung = decide(arms)
    if rung.name in ("negative_control_flagged", "positive_control_missed"):
        return _make(subject, rung.verdict, rung.says(arms), figures, ground.positive, ground.negative)
    return _make(subject, ground.verdict, ground.reason, figures, ground.positive, ground.negative)


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
    positive: ControlResult | None,
    negative: ControlResult | None,
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
        tape=figures.tape,
    )
