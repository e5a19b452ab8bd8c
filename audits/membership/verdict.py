"""From how well members are told, in a release and in its controls, to a verdict, its reason and a finding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fedassay.audits.membership.roc import (
    Allowed,
    Told,
    baseline,
    metrics,
    roc_series,
    told_in_many_releases,
)
from fedassay.contracts.audit import AuditContext
from fedassay.records.record import Controls, Finding, NegativeControl, PositiveControl, Verdict

Scores = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Scores of releases without the record in question, shape (n,), and with it, shape (m,)."""


def informed_finding(
    selection: str,
    about: str,
    context: AuditContext,
    audited: Scores,
    positive: tuple[Scores, str],
    negative: tuple[Scores, str],
    allowed: Allowed | None,
    assumption: str,
    gaussian: Scores | None = None,
) -> Finding:
    """What the informed adversary found by many independent releases.

    Args:
        selection: How it attacked.
        about: What was released.
        context: The outcome that is audited.
        audited: Its scores of the audited releases.
        positive: Those of releases that leak, and what they are.
        negative: Those of releases that cannot leak, and what they are.
        allowed: What a claim allows; None: nothing is claimed.
        assumption: What it knows, and what scores rest on.
        gaussian: Scores that are normal, for the Gaussian-DP estimate of epsilon.
    """
    delta = 0.0 if allowed is None else allowed.delta

    def told(scores: Scores, what: str, normal: Scores | None = None) -> Told:
        rng = context.seeds.numpy("membership", selection, "halves", what)
        return told_in_many_releases(*scores, rng, delta=delta, tests=context.bounds, gaussian=normal)

    return finding(
        "informed",
        selection,
        told(audited, "ours", gaussian),
        (told(positive[0], "positive"), positive[1]),
        (told(negative[0], "negative"), negative[1]),
        allowed,
        adjacency=(
            "for the claim's neighbours" if allowed is not None else "for one replaced record of the same label"
        ),
        assumptions=(assumption,),
        about=about,
    )


def finding(
    source: str,
    selection: str,
    ours: Told,
    positive: tuple[Told | None, str],
    negative: tuple[Told, str],
    allowed: Allowed | None,
    *,
    adjacency: str,
    assumptions: tuple[str, ...],
    about: str = "",
) -> Finding:
    """What is found about one source by one test.

    Args:
        source: What was looked at.
        selection: The test.
        ours: The audited release.
        positive: A release that leaks, and what it is; None where the test does not apply to it.
        negative: One that cannot leak, and what it is.
        allowed: What a claim allows; None: nothing is claimed.
        adjacency: Which neighbours the observed epsilon is for, in words.
        assumptions: What it rests on.
        about: What was released, said before the reason.
    """
    (leaks, leaking), (silent, silence) = positive, negative
    verdict, reason = judge(ours, leaks, silent, allowed)
    return Finding(
        audit="membership",
        attack="membership",
        source=source,
        selection=selection,
        metrics=metrics(ours, adjacency),
        baseline=baseline(allowed),
        controls=Controls(
            positive=PositiveControl(
                release=leaking,
                caught=leaks is not None and leaks.beats,
                value=None if leaks is None else leaks.value,
                n=None if leaks is None else _size(leaks),
                detail="AUC",
            ),
            negative=NegativeControl(
                release=silence, flagged=silent.beats, value=silent.value, n=_size(silent), detail="AUC"
            ),
        ),
        verdict=verdict,
        reason=f"{about}: {reason}" if about else reason,
        assumptions=assumptions,
        series={"roc": roc_series(ours)},
    )


def not_run(source: str | None, selection: str | None, reason: str) -> Finding:
    """That a source could not be looked at by a test, and why."""
    return Finding(
        audit="membership",
        attack="membership",
        source=source,
        selection=selection,
        verdict="not_run",
        reason=reason,
    )


def judge(ours: Told, positive: Told | None, negative: Told, allowed: Allowed | None) -> tuple[Verdict, str]:
    """A verdict and its reason.

    Args:
        ours: The audited release.
        positive: A release that leaks; None where the test does not apply to it.
        negative: One that cannot.
        allowed: What a claim allows; None: nothing is claimed, and any better than chance is a leak.
    """
    shown = f"AUC {ours.value:.3f} [{ours.area.low:.3f}, {ours.area.high:.3f}]"
    if negative.beats:
        return "inconclusive", (
            f"the negative control was flagged (AUC {negative.value:.3f}): members and strangers differ "
            f"without any release; {shown}"
        )
    if positive is None or not positive.beats:
        seen = "it could not be attacked" if positive is None else f"AUC {positive.value:.3f}"
        return "inconclusive", f"the positive control was not caught ({seen}): the attack is too weak; {shown}"
    power = f"the positive control was caught at AUC {positive.value:.3f}"
    corrected = ours.corrected.epsilon or 0.0
    leaks = ours.beats if allowed is None else corrected > allowed.epsilon
    if leaks and _explained(ours, negative):
        return "inconclusive", (
            f"members and strangers may differ without any release: the negative control shows AUC "
            f"{negative.value:.3f} (p = {negative.p:.2g}), and {shown} is no more than that explains"
        )
    if allowed is None:
        if leaks:
            return "leak", f"members are told from strangers: {shown}, p = {ours.p:.2g}"
        return "no_leak_found", f"members are not told from strangers: {shown}; {power}"
    if leaks:
        return "leak", (
            f"members are told better than the claim allows: {shown}, epsilon at least {corrected:.3g} at the "
            f"corrected level, and {allowed.words} is claimed"
        )
    if not ours.beats:
        return "no_leak_found", f"members are not told from strangers: {shown}; {power}"
    if ours.reach <= allowed.epsilon:
        return "inconclusive", (
            f"members are told from strangers ({shown}), but so many trials cannot show more than epsilon "
            f"{ours.reach:.3g}, below what is claimed: {allowed.words}"
        )
    return "no_leak_found", (
        f"members are told from strangers, but no better than {allowed.words} allows: {shown}, epsilon at least "
        f"{corrected:.3g}; {power}"
    )


def _explained(ours: Told, negative: Told) -> bool:
    """Whether what tells strangers from strangers may be all that tells members from strangers.

    The negative control is held against the corrected level; a lesser difference is doubted at 5 %, and as far as
    twice its reach in standard deviations, since it comes from half of the records under twice the noise.
    """
    if negative.p > 0.05 or negative.area.high is None:
        return False
    return bool(ndtri(ours.value) <= 2 * ndtri(negative.area.high))


def _size(told: Told) -> int:
    return len(told.inside) + len(told.outside)
