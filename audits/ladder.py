"""The ladder: every situation that an audit can be in, in the order in which they are asked, and what follows.

`fedassay.audits.verdict` makes findings of it; the table in docs/assay.md is made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedassay.audits.evidence import FAINT, Arms, Result
from fedassay.audits.stats.resampling import ALONE
from fedassay.records.facts import Obstacle, ObstacleKind
from fedassay.records.record import Verdict
from fedassay.support.errors import Why


@dataclass(frozen=True)
class Rung:
    """One situation of an assay, and what follows from it.

    Attributes:
        name: Recorded with the finding.
        when: The situation, as the documentation says it.
        applies: Whether an assay is in it.
        verdict: The verdict that follows.
        says: The reason, in words.
        obstacle: The obstacle where nothing follows; `unstated`: the result names it.
    """

    name: str
    when: str
    applies: Callable[[Arms], bool]
    verdict: Verdict
    says: Callable[[Arms], str]
    obstacle: ObstacleKind | None = None


def _missed(arms: Arms) -> bool:
    """Whether the attack missed its controls; with a leak found here, one caught control is enough."""
    caught = [control.detected for control in arms.positives]
    if arms.result.test.rejects:
        return not any(caught)
    return not all(caught)


def _unmade(arms: Arms) -> bool:
    made = arms.own and not isinstance(arms.own, str)
    return not made and (arms.silent or not arms.attack_only) and not arms.result.public


def _worse(arms: Arms) -> bool:
    """An attack that does worse than no attack was broken or misled; its silence is no answer."""
    result, own = arms.result, () if isinstance(arms.own, str) else arms.own
    ruined = result.ruin_expected and any(control.detected for control in own)
    return bool(result.below_baseline) and not result.test.rejects and not ruined


def _explained(arms: Arms) -> bool:
    """Whether other data without the release explains the result; a near copy is of one record all the same."""
    other = arms.confounder
    return other is not None and other.explains and not arms.silent and not arms.result.near_copies


def _faint(arms: Arms) -> bool:
    """An attack that does well on raw features and hardly anything end to end says nothing of it."""
    own, attack_only = _gains(arms)
    return not arms.result.public and bool(own and attack_only) and min(own) < FAINT * max(attack_only)


def _gains(arms: Arms) -> tuple[list[float], list[float]]:
    own = () if isinstance(arms.own, str) else arms.own
    sides = (own, arms.attack_only)
    first, second = ([each.gain for each in side if each.gain is not None] for side in sides)
    return first, second


def _says_missed(arms: Arms) -> str:
    if not arms.positives:
        return f"no positive control could be made ({arms.own}); {_ending(arms.result)}"
    missed = next(control for control in arms.positives if not control.detected)
    why = "so the attack is too weak here"
    if _kept_from(arms):
        why = f"for the plan kept the attack from it: {arms.result.undecided}"
    elif _impossible(arms):
        why = "for it has too few trials for this level"
    reason = f"the positive control was not caught ({missed.shown}), {why}"
    return f"{reason}; {_ending(arms.result)}"


def _says_faint(arms: Arms) -> str:
    own, attack_only = _gains(arms)
    gains = f"gains {min(own):.3g} {arms.positives[0].detail}, against {max(attack_only):.3g}"
    return (
        f"on known records, end to end, the attack {gains} on the positive control of the attack "
        f"alone: it is too weak here; {_ending(arms.result)}"
    )


def _says_suspected(arms: Arms) -> str:
    return (
        f"suspected: {arms.result.test.words or 'the test'} rejects at {ALONE:g} by itself, but not at the level "
        f"corrected for the tests of the run; a run of this release alone, or more records, would decide; "
        f"{arms.result.shown}"
    )


def _says_near_copy(arms: Arms) -> str:
    result = arms.result
    return _said(result.leak and f"{result.leak}, {result.near_copies} as near copies", result.shown)


def _says_silence(arms: Arms) -> str:
    clear = _said(arms.result.clear, arms.result.shown)
    return f"{clear}; the positive control was caught ({arms.positives[0].shown})"


def _ending(result: Result) -> str:
    """The figures, and what would decide where they do not."""
    return f"{result.shown}; {result.decided_by}" if result.decided_by else result.shown


def _said(clause: str, figures: str) -> str:
    return f"{clause}: {figures}" if clause else figures


LADDER: tuple[Rung, ...] = (
    Rung(
        "negative_control_flagged",
        "The negative control is flagged: a test that fires where nothing leaks says nothing where it fires.",
        lambda arms: arms.negative.detected,
        "inconclusive",
        lambda arms: f"the negative control was flagged ({arms.negative.shown}); {_ending(arms.result)}",
        "control_flagged",
    ),
    Rung(
        "own_control_missing",
        "There is no end-to-end control, and the test is silent or nothing else shows that the attack works.",
        _unmade,
        "inconclusive",
        lambda arms: f"no end-to-end positive control: {arms.own}; {_ending(arms.result)}",
        "not_possible",
    ),
    Rung(
        "positive_control_missed",
        "The test rejects and no positive control is caught; or it does not, and one of them is missed.",
        _missed,
        "inconclusive",
        _says_missed,
        "control_missed",
    ),
    Rung(
        "worse_than_baseline",
        "The result is worse than its baseline, and not as noise ruins what the own control shows to be readable.",
        _worse,
        "inconclusive",
        lambda arms: (
            f"the result is worse than {arms.result.below_baseline}, so the attack says nothing here; "
            f"{_ending(arms.result)}"
        ),
        "worse_than_baseline",
    ),
    Rung(
        "near_copy",
        "The test rejects, and near copies of records are there: nothing explains these away.",
        lambda arms: arms.result.test.rejects and arms.result.near_copies > 0,
        "leak",
        _says_near_copy,
    ),
    Rung(
        "explained_by_others",
        "Other data of the same clients show half as much or more, at 5 %: the result may be no more than that.",
        _explained,
        "inconclusive",
        lambda arms: f"{arms.confounder and arms.confounder.reason}; {_ending(arms.result)}",
        "confounded",
    ),
    Rung(
        "leak_found",
        "The test rejects at the level corrected for the tests of the run.",
        lambda arms: arms.result.test.rejects,
        "leak",
        lambda arms: _said(arms.result.leak, arms.result.shown),
    ),
    Rung(
        "suspected",
        "The test rejects by itself but not at the corrected level: more tests must not make a leak a clean bill.",
        lambda arms: arms.result.test.uncorrected,
        "inconclusive",
        _says_suspected,
        "between_levels",
    ),
    Rung(
        "positive_control_faint",
        "The end-to-end control gains less than a tenth of what the attack alone does.",
        _faint,
        "inconclusive",
        _says_faint,
        "control_faint",
    ),
    Rung(
        "undecidable",
        "The audit knows why silence is no answer here: something was not tried, or could not have shown.",
        lambda arms: bool(arms.result.undecided),
        "inconclusive",
        lambda arms: f"{arms.result.undecided}; {_ending(arms.result)}",
        "unstated",
    ),
    Rung(
        "no_power",
        "No limit of detection: a total leak would not have been found for certain.",
        lambda arms: isinstance(arms.limit, str),
        "inconclusive",
        lambda arms: f"{arms.limit}; {_ending(arms.result)}",
        "no_power",
    ),
    Rung(
        "no_leak",
        "Every control held, the end-to-end one among them, and the test is silent at both levels.",
        lambda arms: True,
        "no_leak_found",
        _says_silence,
    ),
)
"""The situations in the order in which they are asked, of every audit alike; the last one always applies."""


def decide(arms: Arms) -> Rung:
    """The first rung of the ladder that applies."""
    return next(rung for rung in LADDER if rung.applies(arms))


def obstacle_at(rung: Rung, arms: Arms) -> Obstacle | None:
    """Return the obstacle to a conclusion in a situation; None where a conclusion follows."""
    if rung.obstacle is None:
        return None
    if rung.obstacle == "unstated":
        return arms.result.obstacle or missing(arms.result.undecided)
    # A limit is asked for by the rung before silence alone: it takes time.
    if rung.name == "positive_control_missed":
        if _kept_from(arms):
            return missing(arms.result.undecided)
        if _impossible(arms):
            return Obstacle(kind="no_power")
    told = arms.own if rung.name == "own_control_missing" else arms.limit if rung.name == "no_power" else None
    return missing(told, rung.obstacle) if isinstance(told, str) else Obstacle(kind=rung.obstacle)


def _kept_from(arms: Arms) -> bool:
    """Whether a parameter of the plan keeps the attack from messages, and so from controls that are as large."""
    undecided = arms.result.undecided
    return isinstance(undecided, Why) and bool(undecided.key)


def _impossible(arms: Arms) -> bool:
    """Whether the controls that were missed had too few trials to be caught: they say nothing of the attack."""
    missed = [control for control in arms.positives if not control.detected]
    return bool(missed) and not any(control.possible for control in missed)


def missing(why: str, otherwise: ObstacleKind = "unstated") -> Obstacle:
    """Return the obstacle that a reason names (missing records, a parameter, its kind), or else another kind."""
    if isinstance(why, Why) and why.role:
        return Obstacle(kind="records_missing", role=why.role, held=why.held, needed=why.needed)
    if isinstance(why, Why) and why.key:
        return Obstacle(kind="too_large", held=why.held, needed=why.needed, key=why.key)
    return Obstacle.model_validate({"kind": (why.kind if isinstance(why, Why) else "") or otherwise})
