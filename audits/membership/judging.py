"""Turn the separation of members from strangers, in a release and in its controls, into a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from scipy.special import ndtri

from fedassay.audits.evidence import WORSE, Arms, Confounder, ControlResult, Figures, Result, Subject
from fedassay.audits.membership.detection_limit import Size, detectable
from fedassay.audits.membership.separation import (
    Allowed,
    Separation,
    baseline,
    metrics,
    roc_series,
    separate_many_releases,
)
from fedassay.audits.stats.gdp_bound import LEAST
from fedassay.audits.stats.refuted import refuted_epsilon
from fedassay.audits.stats.resampling import level_of
from fedassay.audits.verdict import assay, with_harm
from fedassay.contracts.audit import AuditContext
from fedassay.records.facts import Harm
from fedassay.records.record import Finding, Limit, Metric
from fedassay.support.errors import Why
from fedassay.support.types import Matrix

Scores = tuple[Matrix, Matrix]
"""Scores of releases without the record in question, shape (n,), and with it, shape (m,)."""


@dataclass(frozen=True)
class Releases:
    """Many independent releases and what the informed adversary makes of them.

    Attributes:
        selection: Selection of the findings, which names the way of the attack.
        about: The release.
        audited: Its scores of the audited releases.
        own: Those of releases in the same shape that leak, and what they are; None where `missing` says why.
        negative: Those of releases that cannot leak, and what they are.
        assumption: Its knowledge, and the assumptions of the scores.
        gaussian: Scores that are normal, for the Gaussian-DP estimate of epsilon.
        attack_only: Other releases that leak; None: there are none.
        missing: Reason why there are none in the same shape, and a remedy.
    """

    selection: str
    about: str
    audited: Scores
    own: tuple[Scores, str] | None
    negative: tuple[Scores, str]
    assumption: str
    gaussian: Scores | None = None
    attack_only: tuple[Scores, str] | None = None
    missing: str = ""


def informed_finding(releases: Releases, allowed: Allowed | None, context: AuditContext) -> Finding:
    """Finding of the informed adversary from many independent releases.

    Args:
        releases: Their scores.
        allowed: The allowance of a claim; None: nothing is claimed.
        context: The outcome that is audited.
    """
    delta = 0.0 if allowed is None else allowed.delta
    theirs = f"for the claim's neighbours ({context.privacy.guarantee.kind.words})"

    def separation(scores: Scores, what: str, normal: Scores | None = None) -> Separation:
        rng = context.seeds.numpy("membership", releases.selection, "halves", what)
        return separate_many_releases(*scores, rng, delta=delta, tests=context.num_tests, gaussian=normal)

    def controls(given: tuple[Scores, str] | None, what: str) -> tuple[ControlResult, ...]:
        own = what == "own"
        return () if given is None else (separation(given[0], what).control(given[1], end_to_end=own),)

    (silent, silence), ours = releases.negative, separation(releases.audited, "ours", releases.gaussian)
    found = finding(
        membership("informed", releases.selection),
        ours,
        allowed,
        positives=Positives(
            controls(releases.own, "own") or releases.missing, controls(releases.attack_only, "positive")
        ),
        silent=(separation(silent, "negative"), silence),
        basis=Basis(
            theirs if allowed is not None else REPLACED,
            (releases.assumption,),
            releases.about,
        ),
        limit=lambda against: _limit_of(releases, against, context),
    )
    if releases.selection != "worst_case" or found.harm is None:
        return found
    return with_harm(found, found.harm.model_copy(update={"of": "worst_neighbours"}))


def _limit_of(releases: Releases, against: Allowed | None, context: AuditContext) -> Limit | str:
    """Against a claim the smallest epsilon that would have been refuted; against chance the smallest leak."""
    outside, inside = releases.audited
    if against is not None:
        n, confidence = min(len(outside), len(inside)), 1 - level_of(context.num_tests)
        normal = 0 if releases.gaussian is None else min(len(side) for side in releases.gaussian)
        if normal >= LEAST:
            n = normal
        refuted = refuted_epsilon(
            against.epsilon, delta=against.delta, n=n, confidence=confidence, gaussian=normal >= LEAST
        )
        if refuted.smallest is None:
            return f"no epsilon is refuted by {n} releases a side: more releases would decide"
        if refuted.smallest > 2 * against.epsilon:
            return (
                f"{n} releases a side would have refuted no epsilon below {refuted.smallest:.3g}, more than twice "
                "what is claimed: more releases would decide"
            )
        return Limit(
            metric="epsilon",
            value=refuted.smallest,
            n=2 * n,
            words=refuted.words,
            of="release",
            planted="no_noise",
        )
    if releases.own is None:
        return releases.missing
    rng = context.seeds.numpy("membership", releases.selection, "limit")
    size = Size(len(outside), len(inside), context.num_tests)
    return detectable(size, releases.negative[0], (releases.own[0],), rng)


REPLACED = "for one replaced record of the same label"
"""The neighbours of a game without a claim."""
REPLACED_PERSON = "for one replaced person, with all of its records"
"""The neighbours of a game with persons as candidates and no claim: one person with all of its records."""


def membership(source: str | None, selection: str | None, attack: str = "membership") -> Subject:
    """The subject of a finding of this audit."""
    return Subject("membership", attack, source, selection)


@dataclass(frozen=True)
class Positives:
    """Releases that must be caught.

    Attributes:
        own: End-to-end controls; or why there is none, and what would give one.
        attack_only: Others, of the attack alone.
    """

    own: tuple[ControlResult, ...] | str
    attack_only: tuple[ControlResult, ...]

    def arms(self, result: Result, negative: ControlResult, confounder: Confounder | None = None) -> Arms:
        """With the result and what it is held against."""
        own = self.own if isinstance(self.own, str) else tuple(with_remedy(control) for control in self.own)
        return Arms(result, own, negative, self.attack_only, confounder)


def with_remedy(control: ControlResult) -> ControlResult:
    """An end-to-end control; one that was missed says what it is, and what would decide."""
    if control.caught:
        return control
    return replace(control, shown=f"{control.release}: {control.shown}; an attack that tells these would decide")


LimitOf = Callable[[Allowed | None], Limit | str]
"""The limit of detection against what a claim allows; None: against chance."""


@dataclass(frozen=True)
class Basis:
    """Statements that a finding rests on.

    Attributes:
        observed_for: The neighbours that the observed epsilon is for, in words.
        assumptions: Stated beside the verdict.
        about: The release, named before the reason.
        also: Metrics beside those of the test.
    """

    observed_for: str
    assumptions: tuple[str, ...]
    about: str = ""
    also: Mapping[str, Metric] = field(default_factory=dict)


def finding(
    subject: Subject,
    ours: Separation,
    allowed: Allowed | None,
    *,
    positives: Positives,
    silent: tuple[Separation, str],
    basis: Basis,
    limit: LimitOf,
) -> Finding:
    """Judge one test on one source with its controls.

    Args:
        subject: The source and the test.
        ours: The audited release.
        allowed: The allowance of a claim; None: nothing is claimed.
        positives: Releases that leak; not detected where the test does not apply to them.
        silent: A release that cannot leak, and what it is.
        basis: Its assumptions.
        limit: Computes the limit of detection.
    """
    negative, release = silent
    control = negative.control(release)
    result = result_of(ours, allowed, basis.about)
    # A result above chance has a limit of detection above the claim; any other result has one above chance.
    against = allowed if ours.test.rejects else None
    arms = positives.arms(
        replace(result, limit=lambda: limit(against)),
        replace(control, shown=f"{control.shown}: {_DIFFER}"),
        _confounder(ours, negative),
    )
    figures = Figures(
        {**metrics(ours, basis.observed_for), **basis.also},
        baseline(allowed),
        basis.assumptions,
        series={"roc": roc_series(ours)},
    )
    return assay(subject, arms, figures)


_DIFFER = (
    "members and strangers differ without any release; strangers of the clients' own distribution would decide"
)


def result_of(ours: Separation, allowed: Allowed | None, about: str = "") -> Result:
    """A release for the ladder.

    Args:
        ours: The audited release.
        allowed: Bound that a claim allows; None: nothing is claimed, and any better than chance is a leak.
        about: The release.
    """
    worse = ""
    if ours.p_below <= WORSE:
        worse = f"chance (p = {ours.p_below:.2g}; other candidates, or an attack that is not misled, would decide)"
    harm = Harm(kind="members", of="record", total=None, metric="auc", value=ours.value, mechanism="membership")
    clear, undecided = "members are not told from strangers", ""
    if allowed is None:
        return Result(
            test=ours.test,
            harm=harm,
            shown=f"{ours.words}, p = {ours.p:.2g}",
            leak="members are told from strangers",
            clear=clear,
            about=about,
            below_baseline=worse,
        )
    if ours.test.rejects:
        clear = f"members are told from strangers, but no better than {allowed.words} allows"
        if ours.reach <= allowed.epsilon:
            undecided = Why(
                f"members are told from strangers, but so many trials cannot show more than epsilon "
                f"{ours.reach:.3g}, below what is claimed: {allowed.words}; more candidates would decide",
                kind="no_power",
            )
    return Result(
        test=ours.exceeds(allowed),
        shown=f"{ours.words}, epsilon at least {ours.corrected.epsilon or 0.0:.3g} at the corrected level, and "
        f"{allowed.words} is claimed",
        leak="members are told better than the claim allows",
        harm=harm,
        clear=clear,
        about=about,
        below_baseline=worse,
        undecided=undecided,
    )


def _confounder(ours: Separation, negative: Separation) -> Confounder | None:
    """Differences between strangers in the negative control, which may also separate members from strangers.

    The control itself is held against the corrected level. Gain and reach are in standard deviations: the control
    comes from half of the records under twice the noise.
    """
    if negative.area.high is None:
        return None
    return Confounder(
        negative.p,
        float(ndtri(ours.value)),
        float(ndtri(negative.area.high)),
        "members and strangers may differ without any release: the negative control shows AUC "
        f"{negative.value:.3f} (p = {negative.p:.2g}), and the result is no more than that explains; strangers "
        "of the clients' own distribution would decide",
    )
