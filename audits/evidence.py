"""Input of an audit to the ladder of verdicts: the subject, the arms of its assay, and its figures.

An assay has five arms: the audited release; known leaks that went its whole way; known leaks that meet the attack
alone; a release that cannot leak; and other data of the same clients, which may show as much without any release.
Each arm is a set of trials that the audit's own test judges. No verdict stands here and none can be
written with these types; `fedassay.audits.verdict` makes it from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from fedassay.audits.stats.resampling import ALONE, level_of
from fedassay.records.facts import Harm, Obstacle
from fedassay.records.record import Limit, Metric, Picture, Series, TapeAnswer

WORSE = 0.025
"""Level, not corrected, at which a result is worse than its baseline: the tail of a two-sided 95 % interval."""

FAINT = 0.1
"""Share of what the attack gains on raw features that it must gain end to end."""

DOUBTED = 0.05
"""p-value of other data of the same clients up to which they may explain what a result shows."""

OWN_RELEASE = "the method's own release of control records, without privacy"
"""The end-to-end control of audits that attack features."""

NO_CLIENTS_RECORDS = "the same method on records that no client holds"
"""The negative control of audits that attack features."""

REACH = 2.0
"""So many times what other data of the same clients show at most is explained by them, and no more."""

NEAR_COPY = 40.0
"""PSNR in dB above which an image is a near copy of a record."""


@dataclass(frozen=True)
class Subject:
    """Subject of a finding: the audit, the attack, and the source and targets that were judged.

    Attributes:
        audit: Registered name of the audit.
        attack: Registered name of the attack with the result that was read, or None.
        source: The attacked vectors or fields, or None.
        selection: The scored targets, or None.
    """

    audit: str
    attack: str | None = None
    source: str | None = None
    selection: str | None = None


@dataclass(frozen=True)
class Figures:
    """Figures shown beside a finding's verdict; see `Finding` for each.

    Attributes:
        metrics: Measured figures by name.
        baseline: The same for what needs no attack.
        assumptions: Assumptions of the verdict.
        pictures: Picture grids.
        series: Data behind figures.
        tape: The answers to the questions about what left.
    """

    metrics: Mapping[str, Metric] = field(default_factory=dict)
    baseline: Mapping[str, Metric] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    series: Mapping[str, Series] = field(default_factory=dict)
    tape: tuple[TapeAnswer, ...] = ()


@dataclass(frozen=True)
class ControlResult:
    """Result of the audit's own test on a release that is known to leak, or known not to.

    Attributes:
        release: The release, in words.
        detected: Whether the test found a leak in it, at the level of the result's own test.
        alone: Whether it does at `ALONE`, as if it were the only test: enough for a release that leaks on purpose.
            Levels are corrected against false leaks; whether so few trials would show one is the limit's question.
        shown: The figures behind that, for the reason.
        value: The figure that is recorded.
        n: Number of observations behind it.
        detail: Description of the figure.
        end_to_end: Whether it went the whole way of the result: the method's own messages, view and source.
        gain: The attack's gain over none, where controls of one finding have that in one unit.
        possible: Whether so many trials can be caught at the level of the run, whatever the attack is.
    """

    release: str
    detected: bool
    shown: str
    value: float | None = None
    n: int | None = None
    detail: str = ""
    end_to_end: bool = False
    gain: float | None = None
    possible: bool = True
    alone: bool = False

    @property
    def caught(self) -> bool:
        """Whether a release that leaks on purpose was found to."""
        return self.detected or self.alone


@dataclass(frozen=True)
class LeakTest:
    """A one-sided test of "no more than the baseline shows", at two levels.

    Attributes:
        rejects: Whether it rejects at the level corrected for the tests of the run.
        uncorrected: Whether it rejects at `ALONE`, as if it were the only test.
        words: Its p-value or bound, for the reason.
        p: Its p-value; None where nothing is left to chance, or a bound is used.
        level: The corrected level; None likewise.
        statistic: Declared metric that it is about; empty in a test of no finding.
    """

    rejects: bool
    uncorrected: bool
    words: str = ""
    p: float | None = None
    level: float | None = None
    statistic: str = ""


def by_p_value(p: float, tests: int, statistic: str = "") -> LeakTest:
    """A test of a declared metric by its p-value, in a run of so many tests."""
    level = level_of(tests)
    return LeakTest(p <= level, p <= ALONE, f"p = {p:.2g}", p, level, statistic)


def by_arithmetic(leaks: bool, statistic: str = "") -> LeakTest:
    """A leak that is read off, or is not: nothing in it is left to chance, and no level corrects it."""
    return LeakTest(leaks, leaks, statistic=statistic)


@dataclass(frozen=True)
class Confounder:
    """Other data of the same clients in the place of what the attack made: they know no record of the release.

    Attributes:
        p: p-value of "no more than the baseline shows" of these.
        gain: The result's gain over the baseline.
        reach: Largest gain of these, in the same unit.
        reason: Said where they explain the result.
        control: The control that they make; None where they are the negative control, which stands as such.
    """

    p: float
    gain: float
    reach: float
    reason: str
    control: ControlResult | None = None

    @property
    def explains(self) -> bool:
        """Whether the result may be all theirs: they are seen at 5 %, and it is within twice their reach."""
        return self.p <= DOUBTED and self.gain <= REACH * self.reach


@dataclass(frozen=True)
class Result:
    """A result beside its baseline, in numbers that a rule can read and words that a person can.

    Attributes:
        test: Of whether more is shown than the baseline.
        shown: The figures; they stand in every reason.
        leak: Meaning of a leak here, as a clause; empty: the figures say it.
        clear: Meaning of no leak here; empty: the figures say it.
        about: The release, named before every reason.
        below_baseline: The baseline that the result is significantly below; empty where it is not.
        ruin_expected: The release is noised, so that images, vectors or counts that the noise ruins are what an
            end-to-end control lets one expect. Never for an AUC.
        near_copies: Reconstructions so close to records (40 dB, an exact vector) that nothing explains them away.
        undecided: Reason why the absence of a leak cannot be concluded; empty where it can.
        decided_by: Remedy where a control failed or nothing can be concluded, as a clause.
        limit: Computes the smallest leak that this run would have found, or says in words why there is none. It is
            asked only where nothing else stands in the way of `no_leak_found`, for it takes time.
        harm: Harm of a leak here; None where the audit cannot say.
        obstacle: Reason why the absence of a leak cannot be concluded, as data; None where it can, or where no
            reason was recorded.
        public: Whether all that could be found is public under the claim's adjacency, so that nothing found is a
            leak: silence then needs no power.
    """

    test: LeakTest
    shown: str
    leak: str = ""
    clear: str = ""
    about: str = ""
    below_baseline: str = ""
    ruin_expected: bool = False
    near_copies: int = 0
    undecided: str = ""
    decided_by: str = ""
    limit: Callable[[], Limit | str] | None = None
    harm: Harm | None = None
    obstacle: Obstacle | None = None
    public: bool = False


@dataclass(frozen=True)
class Arms:
    """A result with its controls: all that the rules of the ladder read.

    Attributes:
        result: The audited release.
        own: End-to-end controls, which went the whole way of the result, at least one; or why there is none. The
            method cannot be run on captured messages: messages of the captured form stand in for its own.
        attack_only: Controls of the attack alone, which a known leak meets by a shorter way.
        negative: A release that must not be flagged.
        confounder: Other data of the same clients; None where the audit has none or need not ask them.
    """

    result: Result
    own: tuple[ControlResult, ...] | str
    negative: ControlResult
    attack_only: tuple[ControlResult, ...] = ()
    confounder: Confounder | None = None

    def __post_init__(self) -> None:
        """Hold releases that leak on purpose to the level of one test, in every audit."""
        if not isinstance(self.own, str):
            object.__setattr__(self, "own", _caught(self.own))
        object.__setattr__(self, "attack_only", _caught(self.attack_only))

    @property
    def positives(self) -> tuple[ControlResult, ...]:
        """Every release that should be caught, the end-to-end ones first."""
        return (*(() if isinstance(self.own, str) else self.own), *self.attack_only)

    @property
    def silent(self) -> bool:
        """Whether the test rejects at neither level."""
        return not (self.result.test.rejects or self.result.test.uncorrected)

    @cached_property
    def limit(self) -> Limit | str | None:
        """The smallest leak that would have been found, or why there is none; None where none is needed."""
        if self.result.limit is not None:
            return self.result.limit()
        return None if self.result.public else "the audit states no limit of detection"


def _caught(controls: Sequence[ControlResult]) -> tuple[ControlResult, ...]:
    return tuple(replace(control, detected=control.caught, alone=False) for control in controls)


@dataclass(frozen=True)
class LedgerVerdict:
    """Verdict of the ledger alone on a claim. It adds up declared releases and attacks nothing: no controls."""

    verdict: Literal["sound", "not_refuted", "unsupported"]
    reason: str


@dataclass(frozen=True)
class TapeVerdict:
    """Verdict of the questions to a run with its tape (`fedassay.audits.claim.tape`), which attack nothing.

    The released values differ from the declared ones, which disproves the claim; or the question was not asked, or
    could not be decided.

    Attributes:
        verdict: Of the claim.
        reason: The reason.
        positive: Of an attack that was run beside it, or None.
        negative: Of the same.
    """

    verdict: Literal["unsound", "unsupported", "inconclusive"]
    reason: str
    positive: ControlResult | None = None
    negative: ControlResult | None = None


@dataclass(frozen=True)
class RunsVerdict:
    """Verdict of measured runs on neighbouring data sets on a claim, with the controls of the same attack.

    Attributes:
        verdict: The verdict where both controls hold.
        reason: The reason.
        ledger: Finding of the ledger, where a control failed.
        positive: Releases that must be caught.
        negative: Releases that must not be flagged.
    """

    verdict: Literal["sound", "not_refuted", "unsupported", "unsound"]
    reason: str
    ledger: str
    positive: ControlResult
    negative: ControlResult


Ground = LedgerVerdict | TapeVerdict | RunsVerdict
"""The grounds of a verdict on a claim."""
