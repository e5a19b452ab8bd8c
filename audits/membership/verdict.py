"""From how well members are told from strangers, in a release and in its controls, to a finding."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fedassay.audits.evidence import WORSE, Control, Explanation, Figures, Result, Subject
from fedassay.audits.membership.roc import (
    Allowed,
    Separation,
    baseline,
    metrics,
    roc_series,
    separate_many_releases,
)
from fedassay.audits.verdict import conclude
from fedassay.contracts.audit import AuditContext
from fedassay.records.record import Finding

Scores = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Scores of releases without the record in question, shape (n,), and with it, shape (m,)."""

_DOUBTED = 0.05
"""p-value of the negative control up to which it may explain what the result shows."""


@dataclass(frozen=True)
class Releases:
    """Many independent releases and what the informed adversary makes of them.

    Attributes:
        selection: How it attacked.
        about: What was released.
        audited: Its scores of the audited releases.
        positive: Those of releases that leak, and what they are.
        negative: Those of releases that cannot leak, and what they are.
        assumption: What it knows, and what scores rest on.
        gaussian: Scores that are normal, for the Gaussian-DP estimate of epsilon.
    """

    selection: str
    about: str
    audited: Scores
    positive: tuple[Scores, str]
    negative: tuple[Scores, str]
    assumption: str
    gaussian: Scores | None = None


def informed_finding(releases: Releases, allowed: Allowed | None, context: AuditContext) -> Finding:
    """What the informed adversary shows by many independent releases.

    Args:
        releases: Their scores.
        allowed: What a claim allows; None: nothing is claimed.
        context: The outcome that is audited.
    """
    delta = 0.0 if allowed is None else allowed.delta

    def separation(scores: Scores, what: str, normal: Scores | None = None) -> Separation:
        rng = context.seeds.numpy("membership", releases.selection, "halves", what)
        return separate_many_releases(*scores, rng, delta=delta, tests=context.bounds, gaussian=normal)

    (leaking, leaks), (silent, silence) = releases.positive, releases.negative
    neighbours = "for the claim's neighbours" if allowed is not None else REPLACED
    return finding(
        membership("informed", releases.selection),
        separation(releases.audited, "ours", releases.gaussian),
        allowed,
        positive=separation(leaking, "positive").control(leaks),
        silent=(separation(silent, "negative"), silence),
        observed_for=neighbours,
        assumptions=(releases.assumption,),
        about=releases.about,
    )


REPLACED = "for one replaced record of the same label"
"""The neighbours of a game without a claim."""


def membership(source: str | None, selection: str | None) -> Subject:
    """The subject of a finding of this audit."""
    return Subject("membership", "membership", source, selection)


def finding(
    subject: Subject,
    ours: Separation,
    allowed: Allowed | None,
    *,
    positive: Control,
    silent: tuple[Separation, str],
    observed_for: str,
    assumptions: tuple[str, ...],
    about: str = "",
) -> Finding:
    """What one test shows of one source.

    Args:
        subject: What was looked at, by which test.
        ours: The audited release.
        allowed: What a claim allows; None: nothing is claimed.
        positive: A release that leaks; not detected where the test does not apply to it.
        silent: A release that cannot leak, and what it is.
        observed_for: Which neighbours the observed epsilon is for, in words.
        assumptions: What it rests on.
        about: What was released, said before the reason.
    """
    negative, release = silent
    control = negative.control(release)
    return conclude(
        subject,
        result_of(ours, negative, allowed, about),
        Figures(metrics(ours, observed_for), baseline(allowed), assumptions, series={"roc": roc_series(ours)}),
        positive=positive,
        negative=replace(control, shown=f"{control.shown}: members and strangers differ without any release"),
    )


def result_of(ours: Separation, negative: Separation, allowed: Allowed | None, about: str = "") -> Result:
    """A release for the ladder.

    Args:
        ours: The audited release.
        negative: One that cannot leak.
        allowed: What a claim allows; None: nothing is claimed, and any better than chance is a leak.
        about: What was released.
    """
    worse = "chance" if ours.p_below <= WORSE else ""
    explained = _explanation(ours, negative)
    if allowed is None:
        return Result(
            test=ours.above_chance,
            shown=f"{ours.words}, p = {ours.p:.2g}",
            leak="members are told from strangers",
            clear="members are not told from strangers",
            about=about,
            worse=worse,
            explained=explained,
        )
    clear, undecided = "members are not told from strangers", ""
    if ours.above_chance.beats:
        clear = f"members are told from strangers, but no better than {allowed.words} allows"
        if ours.reach <= allowed.epsilon:
            undecided = (
                f"members are told from strangers, but so many trials cannot show more than epsilon "
                f"{ours.reach:.3g}, below what is claimed: {allowed.words}"
            )
    return Result(
        test=ours.exceeds(allowed),
        shown=f"{ours.words}, epsilon at least {ours.corrected.epsilon or 0.0:.3g} at the corrected level, and "
        f"{allowed.words} is claimed",
        leak="members are told better than the claim allows",
        clear=clear,
        about=about,
        worse=worse,
        explained=explained,
        undecided=undecided,
    )


def _explanation(ours: Separation, negative: Separation) -> Explanation | None:
    """Whether members may be told from strangers by the same that tells strangers from each other.

    The negative control is held against the corrected level; a lesser difference is doubted at 5 %, and as far as
    twice its reach in standard deviations, since it comes from half of the records under twice the noise.
    """
    if negative.p > _DOUBTED or negative.area.high is None:
        return None
    if ndtri(ours.value) > 2 * ndtri(negative.area.high):
        return None
    return Explanation(
        "members and strangers may differ without any release: the negative control shows AUC "
        f"{negative.value:.3f} (p = {negative.p:.2g}), and the result is no more than that explains"
    )
