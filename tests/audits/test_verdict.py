"""The ladder: which rule decides, on results and controls made up for it."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest

from fedassay.audits.evidence import (
    Arms,
    Confounder,
    ControlResult,
    Figures,
    LeakTest,
    LedgerVerdict,
    Result,
    RunsVerdict,
    Subject,
    TapeVerdict,
    by_arithmetic,
    by_p_value,
)
from fedassay.audits.inversion.truth import ImageMatch
from fedassay.audits.ladder import LADDER, decide
from fedassay.audits.membership import canaries
from fedassay.audits.membership.separation import Separation
from fedassay.audits.membership.swaps import Guesses
from fedassay.audits.memorization.judging import Memory
from fedassay.audits.message.histogram_gain import Gain
from fedassay.audits.message.truth import Recovery
from fedassay.audits.reconstruction.judging import Closeness
from fedassay.audits.trials import Paired, Pairs
from fedassay.audits.verdict import (
    MissingControlsError,
    MixedSetsError,
    admitted,
    assay,
    conclude,
    conclude_claim,
    inconclusive,
    not_run,
)
from fedassay.records.facts import Harm, HarmKind
from fedassay.records.record import Controls, Finding, Limit, Metric, NegativeControl, PositiveControl
from fedassay.support.errors import Why
from fedassay.support.seeds import Seeds

SUBJECT = Subject("toy", "toy_attack", "raw", "all")
CAUGHT = ControlResult("the records themselves", True, "p = 1e-9", 0.9, 30, "share", end_to_end=True)
SILENT = ControlResult("records that nobody holds", False, "p = .6", 0.1, 30, "share")
SURE, NONE, BETWEEN = LeakTest(True, True, "p = 1e-6"), LeakTest(False, False), LeakTest(False, True, "p = .0002")
LIMIT = Limit(metric="share", value=0.1, n=30, of="record", planted="copied")
QUIET = Result(NONE, "share .1 against .1", "records come back", "no record comes back", limit=lambda: LIMIT)
OTHERS = Confounder(
    0.01, 1.0, 0.8, "other records come back as well", ControlResult("other records", True, "p = 1e-4", 0.8, 12)
)


def _verdict(
    result: Result,
    positive: ControlResult = CAUGHT,
    negative: ControlResult = SILENT,
    confounder: Confounder | None = None,
) -> tuple[str, str]:
    finding = assay(SUBJECT, Arms(result, (positive,), negative, confounder=confounder), Figures())
    return finding.verdict, finding.reason


def test_a_quiet_result_with_both_controls_is_no_leak() -> None:
    verdict, reason = _verdict(QUIET)
    assert verdict == "no_leak_found"
    assert "the positive control was caught (p = 1e-9)" in reason
    assert QUIET.shown in reason


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        ({"test": SURE}, "leak", "records come back: share"),
        ({"test": BETWEEN}, "inconclusive", "suspected: p = .0002 rejects at 0.01 by itself"),
        ({"below_baseline": "chance"}, "inconclusive", "worse than chance"),
        ({"below_baseline": "chance", "test": BETWEEN}, "inconclusive", "worse than chance"),
        ({"test": SURE, "explained": OTHERS}, "inconclusive", "other records come back as well"),
        ({"test": BETWEEN, "explained": OTHERS}, "inconclusive", "other records come back as well"),
        ({"explained": OTHERS}, "no_leak_found", "no record comes back"),
        ({"test": SURE, "explained": OTHERS, "near_copies": 2}, "leak", "2 as near copies"),
        ({"test": BETWEEN, "explained": OTHERS, "near_copies": 2}, "inconclusive", "suspected"),
        ({"undecided": "half was not tried"}, "inconclusive", "half was not tried"),
        ({"test": SURE, "undecided": "half was not tried"}, "leak", "records come back"),
    ],
)
def test_the_first_rule_that_applies_decides(change: dict[str, object], verdict: str, words: str) -> None:
    other = change.pop("explained", None)
    result = replace(QUIET, **change)  # type: ignore[arg-type]
    found, reason = _verdict(result, confounder=other)  # type: ignore[arg-type]
    assert found == verdict, reason
    assert words in reason
    assert result.shown in reason


@pytest.mark.parametrize("test", [SURE, BETWEEN, NONE])
def test_a_failed_control_decides_before_everything_else(test: LeakTest) -> None:
    result = replace(QUIET, test=test, near_copies=3, below_baseline="chance")
    verdict, reason = _verdict(result, negative=replace(SILENT, detected=True))
    assert verdict == "inconclusive"
    assert "the negative control was flagged (p = .6)" in reason
    verdict, reason = _verdict(result, positive=replace(CAUGHT, detected=False))
    assert verdict == "inconclusive"
    assert "the positive control was not caught" in reason


def test_silence_takes_every_positive_control() -> None:
    features = ControlResult("raw features", False, "p = .4", 0.2, 10)
    finding = assay(SUBJECT, Arms(QUIET, (CAUGHT,), SILENT, (features,)), Figures())
    assert finding.verdict == "inconclusive"
    assert finding.controls.positive is not None
    assert finding.controls.positive.release == "raw features"
    assert not finding.controls.positive.caught


@pytest.mark.parametrize("ruin_expected", [True, False])
def test_ruined_images_are_no_leak_only_where_a_control_in_the_same_shape_was_caught(ruin_expected: bool) -> None:
    result = replace(QUIET, below_baseline="what needs no generator", ruin_expected=ruin_expected)
    assert _verdict(result)[0] == ("no_leak_found" if ruin_expected else "inconclusive")
    assert _verdict(result, replace(CAUGHT, detected=False))[0] == "inconclusive"


def test_a_control_of_too_few_trials_says_nothing_of_the_attack() -> None:
    """Ten images cannot be told from their baseline at the level of sixty tests, however good the attack is."""
    small = replace(CAUGHT, detected=False, possible=False, n=10)
    for control, kind, words in (
        (small, "no_power", "too few trials for this level"),
        (replace(small, possible=True), "control_missed", "the attack is too weak here"),
    ):
        finding = assay(SUBJECT, Arms(QUIET, (control,), SILENT), Figures())
        assert finding.verdict == "inconclusive"
        assert finding.obstacle is not None
        assert finding.obstacle.kind == kind
        assert words in finding.reason


def test_pairs_of_a_few_targets_are_no_weak_attack() -> None:
    """Of four targets that all leak p is 1/16: an audit of another package read "the attack is too weak here"."""

    def judged(count: int, gain: float) -> Paired:
        return Paired(Pairs(np.full(count, gain), np.zeros(count)), "gain", 5, Seeds(0))

    for count, gain, kind in ((4, 0.3, "no_power"), (20, 0.0, "control_missed")):
        control = judged(count, gain).control("the method's own release", end_to_end=True)
        finding = assay(SUBJECT, Arms(QUIET, (control,), SILENT), Figures())
        assert finding.obstacle is not None
        assert finding.obstacle.kind == kind
    assert judged(7, 0.3).control("own", end_to_end=True).caught


def test_a_faint_control_is_no_obstacle_where_all_that_could_be_found_is_public() -> None:
    own, alone = replace(CAUGHT, gain=0.01), ControlResult("raw features", True, "p = 1e-9", 0.9, 30, gain=0.9)
    for public, verdict in ((True, "no_leak_found"), (False, "inconclusive")):
        arms = Arms(replace(QUIET, public=public, limit=None), (own,), SILENT, (alone,))
        assert assay(SUBJECT, arms, Figures()).verdict == verdict


def test_what_explains_a_result_is_a_control_of_its_own_and_replaces_none() -> None:
    finding = assay(SUBJECT, Arms(replace(QUIET, test=SURE), (CAUGHT,), SILENT, (), OTHERS), Figures())
    assert finding.controls.negative is not None
    assert finding.controls.negative.release == SILENT.release
    assert not finding.controls.negative.flagged
    other = next(control for control in finding.all_controls if control.role == "confounder")
    assert (other.release, other.detected, other.value, other.n) == ("other records", True, 0.8, 12)
    assert {control.role for control in finding.all_controls} >= {"negative", "confounder"}
    assert finding.obstacle is not None
    assert finding.obstacle.kind == "confounded"
    assert finding.rule == "explained_by_others"
    quiet = assay(SUBJECT, Arms(QUIET, (CAUGHT,), SILENT, (), replace(OTHERS, p=0.4)), Figures())
    assert [control.detected for control in quiet.all_controls if control.role == "confounder"] == [False]
    assert quiet.controls.negative is not None
    assert quiet.controls.negative.release == SILENT.release


def test_more_tests_never_turn_a_leak_into_no_leak() -> None:
    """The same p-value in runs of more and more tests: leak, then suspected, never a clean bill."""
    verdicts = [_verdict(replace(QUIET, test=by_p_value(0.0002, tests)))[0] for tests in (1, 10, 249, 251, 10_000)]
    assert verdicts == ["leak", "leak", "leak", "inconclusive", "inconclusive"]
    assert _verdict(replace(QUIET, test=by_p_value(0.02, 10_000)))[0] == "no_leak_found"


def test_the_last_rule_always_applies() -> None:
    assert (LADDER[-1].name, LADDER[-1].verdict) == ("no_leak", "no_leak_found")
    assert len({rung.name for rung in LADDER}) == len(LADDER)
    for test in (SURE, BETWEEN, NONE):
        assert decide(Arms(replace(QUIET, test=test), (CAUGHT,), SILENT)).verdict in {
            "leak",
            "inconclusive",
            "no_leak_found",
        }
    for rung in LADDER:
        assert (rung.obstacle is None) == (rung.verdict != "inconclusive"), rung.name


@pytest.mark.parametrize(
    ("own", "result", "verdict"),
    [(0.9, QUIET, "no_leak_found"), (0.1, QUIET, "inconclusive"), (0.1, replace(QUIET, test=SURE), "leak")],
)
def test_silence_takes_more_than_a_trace_in_the_own_shape(own: float, result: Result, verdict: str) -> None:
    """Caught is not enough for silence where the attack does far better on raw features."""
    features = ControlResult("raw features", True, "p = 1e-9", 2.0, 10, gain=2.0)
    positive = replace(CAUGHT, gain=own)
    finding = assay(SUBJECT, Arms(result, (positive,), SILENT, (features,)), Figures())
    assert finding.verdict == verdict
    assert ("0.1 share, against 2" in finding.reason) == (verdict == "inconclusive")


@pytest.mark.parametrize("missing", ["positive", "negative"])
@pytest.mark.parametrize("nothing", [None, Controls(), PositiveControl(release="x", caught=True)])
def test_no_verdict_without_both_controls(missing: str, nothing: object) -> None:
    controls = {"positive": CAUGHT, "negative": SILENT} | {missing: nothing}
    with pytest.raises(MissingControlsError, match="audit toy: a verdict without a positive control"):
        conclude(SUBJECT, QUIET, Figures(), **controls)  # type: ignore[arg-type]


@pytest.mark.parametrize("verdict", ["leak", "no_leak_found"])
@pytest.mark.parametrize(
    "controls",
    [
        Controls(),
        Controls(positive=PositiveControl(release="x", caught=True)),
        Controls(negative=NegativeControl(release="x", flagged=False)),
        Controls(
            positive=PositiveControl(release="x", caught=False),
            negative=NegativeControl(release="x", flagged=False),
        ),
        Controls(
            positive=PositiveControl(release="x", caught=True), negative=NegativeControl(release="x", flagged=True)
        ),
    ],
)
def test_a_finding_from_elsewhere_is_not_admitted_without_controls_that_held(
    verdict: str, controls: Controls
) -> None:
    finding = Finding(audit="theirs", verdict=verdict, reason="so", controls=controls)  # type: ignore[arg-type]
    with pytest.raises(MissingControlsError, match=f"audit theirs: the verdict {verdict} without"):
        admitted("theirs", [finding])


def test_what_says_nothing_needs_no_controls() -> None:
    findings = [inconclusive(SUBJECT, "too few records"), not_run(SUBJECT, "no message")]
    assert admitted("toy", findings) == findings
    assert [finding.verdict for finding in findings] == ["inconclusive", "not_run"]
    assert all(finding.controls == Controls() for finding in findings)


def test_arithmetic_has_no_level_in_between() -> None:
    assert by_arithmetic(True) == LeakTest(True, True)
    assert by_arithmetic(False) == LeakTest(False, False)


def test_a_claim_stands_on_the_ledger_a_training_or_runs() -> None:
    subject = Subject("dp_claim")
    ledger = conclude_claim(subject, LedgerVerdict("sound", "it adds up"), Figures())
    assert (ledger.verdict, ledger.controls) == ("sound", Controls())
    asked = conclude_claim(subject, TapeVerdict("unsound", "half the noise"), Figures())
    assert (asked.verdict, asked.controls) == ("unsound", Controls())
    runs = RunsVerdict("unsound", "an attack shows more", "it adds up", CAUGHT, SILENT)
    finding = conclude_claim(subject, runs, Figures())
    assert finding.verdict == "unsound"
    assert finding.controls.positive is not None
    for control in ("positive", "negative"):
        failed = replace(getattr(runs, control), detected=control == "negative")
        finding = conclude_claim(subject, replace(runs, **{control: failed}), Figures())
        assert finding.verdict == "inconclusive"
        assert f"the {control} control was" in finding.reason
        assert "it adds up" in finding.reason


def test_silence_takes_an_end_to_end_control_and_a_limit_and_a_leak_does_not() -> None:
    attack_only = replace(CAUGHT, end_to_end=False)
    missing = Why("8 control records are needed, there are 3", "control", 3, 8)
    for test, verdict in ((NONE, "inconclusive"), (BETWEEN, "inconclusive"), (SURE, "leak")):
        finding = assay(SUBJECT, Arms(replace(QUIET, test=test), missing, SILENT, (attack_only,)), Figures())
        assert finding.verdict == verdict, finding.reason
        if test is NONE:
            assert finding.rule == "own_control_missing"
            assert finding.obstacle is not None
            assert (finding.obstacle.kind, finding.obstacle.held, finding.obstacle.needed) == (
                "records_missing",
                3,
                8,
            )
        by_two = conclude(SUBJECT, replace(QUIET, test=test), Figures(), positive=attack_only, negative=SILENT)
        assert by_two.verdict == verdict
    unknown = assay(SUBJECT, Arms(replace(QUIET, limit=None), (CAUGHT,), SILENT), Figures())
    assert (unknown.verdict, unknown.rule) == ("inconclusive", "no_power")
    public = replace(QUIET, limit=None, public=True)
    assert assay(SUBJECT, Arms(public, missing, SILENT, (attack_only,)), Figures()).verdict == "no_leak_found"


def test_a_finding_with_no_positive_control_at_all_says_what_is_missing() -> None:
    missing = Why("8 control records are needed, there are 3", "control", 3, 8)
    finding = assay(SUBJECT, Arms(replace(QUIET, test=SURE, near_copies=2), missing, SILENT), Figures())
    assert (finding.verdict, finding.rule) == ("inconclusive", "own_control_missing")
    assert finding.obstacle is not None
    assert finding.obstacle.needed == 8


def test_a_leak_stands_on_the_control_that_was_caught_and_keeps_those_that_were_not() -> None:
    missed, features = replace(CAUGHT, detected=False), ControlResult("raw features", True, "p = 1e-9", 0.9, 10)
    finding = assay(SUBJECT, Arms(replace(QUIET, test=SURE), (missed,), SILENT, (features,)), Figures())
    assert finding.verdict == "leak"
    assert finding.controls.positive is not None
    assert (finding.controls.positive.release, finding.controls.positive.caught) == ("raw features", True)
    assert [(control.role, control.detected) for control in finding.all_controls] == [
        ("end_to_end", False),
        ("attack_only", True),
        ("negative", False),
    ]
    assert admitted("toy", [finding]) == [finding]


@pytest.mark.parametrize(
    ("p", "gain", "copies", "verdict"),
    [
        (0.05, 1.6, 0, "inconclusive"),
        (0.05, 1.61, 0, "leak"),
        (0.06, 0.1, 0, "leak"),
        (1e-9, 0.1, 1, "leak"),
        (1e-9, -1.0, 0, "inconclusive"),
    ],
)
def test_other_data_explain_what_is_within_twice_their_reach_and_never_a_near_copy(
    p: float, gain: float, copies: int, verdict: str
) -> None:
    result = replace(QUIET, test=SURE, near_copies=copies)
    assert _verdict(result, confounder=replace(OTHERS, p=p, gain=gain))[0] == verdict


@pytest.mark.parametrize(
    "kind", [Closeness, ImageMatch, Memory, Recovery, Gain, Separation, Guesses, canaries._Bounds, Paired]
)
def test_every_judgement_is_of_one_type(kind: type) -> None:
    """What an audit judges is a result in one arm and a control in another, by the same two members."""
    assert isinstance(inspect.getattr_static(kind, "test"), property | cached_property)
    asked = inspect.signature(kind.control).parameters  # type: ignore[attr-defined]
    assert list(asked) == ["self", "release", "end_to_end"]
    assert asked["end_to_end"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize(("kind", "metric"), [("pictures", "ssim"), ("exact", "fraction_recovered")])
def test_a_harm_counts_the_set_that_its_figure_is_a_mean_over(kind: HarmKind, metric: str) -> None:
    """The mean of 20 images beside a count of 181 reads as if 181 images were so much like the private ones."""
    figures = Figures({metric: Metric(value=0.65, n=20)})
    mixed = Harm(kind=kind, of="record", total=181, metric=metric, value=0.65)
    with pytest.raises(MixedSetsError, match=f"its harm counts 181, and {metric} is a mean over 20"):
        assay(SUBJECT, Arms(replace(QUIET, test=SURE, harm=mixed), (CAUGHT,), SILENT), figures)
    selected = mixed.model_copy(update={"total": 20, "among": 181})
    found = assay(SUBJECT, Arms(replace(QUIET, test=SURE, harm=selected), (CAUGHT,), SILENT), figures)
    assert found.harm == selected


def test_no_harm_counts_more_than_there_are() -> None:
    with pytest.raises(ValueError, match="a harm counts 3 of 20 of 19"):
        Harm(kind="pictures", of="record", count=3, total=20, among=19)
