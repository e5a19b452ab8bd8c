"""The audit of claims, tested itself: broken mechanisms are caught, broken audits say nothing, sound ones pass."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.audits.claim import bounds as claim_bounds
from fedassay.audits.claim.audit import DpClaimAudit
from fedassay.audits.claim.bounds import observe_mechanism
from fedassay.audits.claim.tape.sensitivity import LEAST_REPLAYS
from fedassay.audits.stats.epsilon_bound import EpsilonBound
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import Method, MethodInput
from fedassay.methods.fedcgs import method as fedcgs
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedpft import private as fedpft_private
from fedassay.methods.fedpft.method import FedPFT
from fedassay.methods.shared.heads import HeadTraining
from fedassay.privacy import mechanisms, reruns, tape
from fedassay.privacy.gaussian import calibrate_sigma, delta_of, epsilon_of
from fedassay.privacy.paper_formulas import fedpft_theorem_4_1_sigma
from fedassay.privacy.sensitivities import WorstCase
from fedassay.records.record import Finding
from fedassay.support.seeds import Seeds

DELTA = 1e-5
SAME = "replace_one_same_label"
MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]

# No claim is about the head.
HEAD = HeadTraining(solver="adam", epochs=1)
METHODS: dict[str, tuple[Method, str]] = {
    "fedcgs": (FedCGS(), "add_remove"),
    "fedpft": (FedPFT(components=1, covariance="full", head=HEAD), SAME),
    "fedpft sums": (FedPFT(components=1, counts="noised", head=HEAD), "add_remove"),
}


@pytest.fixture(params=METHODS)
def judge(
    request: pytest.FixtureRequest, make_task: MakeTask, make_context: MakeContext
) -> Callable[..., Finding]:
    method, adjacency = METHODS[request.param]

    def assess(epsilon: float = 1.0, replays: int | None = LEAST_REPLAYS) -> Finding:
        context = make_context(make_task(epsilon=epsilon, adjacency=adjacency), method, bounds=200)
        (finding,) = DpClaimAudit(mechanism_trials=20_000, replays=replays).assess(None, context)
        return finding

    return assess


def controls_pass(finding: Finding) -> bool:
    positive, negative = finding.controls.positive, finding.controls.negative
    assert positive is not None
    assert negative is not None
    return positive.caught and not negative.flagged


def scale_noise(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Every mechanism draws `factor` times the noise it says it draws."""
    honest = tape.scaled_noise
    monkeypatch.setattr(
        tape, "scaled_noise", lambda shape, layout, scale, rng: honest(shape, layout, factor * scale, rng)
    )


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_whole_mechanisms_pass(judge: Callable[..., Finding], epsilon: float) -> None:
    found = judge(epsilon, replays=None)
    assert found.verdict == "sound", found.reason
    assert controls_pass(found)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1.0, 10.0])
@pytest.mark.parametrize("factor", [0.3, 0.8])
def test_too_little_noise_is_unsound_although_the_ledger_is_content(
    judge: Callable[..., Finding], monkeypatch: pytest.MonkeyPatch, epsilon: float, factor: float
) -> None:
    scale_noise(monkeypatch, factor)
    found = judge(epsilon)
    assert found.metrics["accounted"].value == pytest.approx(epsilon)
    assert found.verdict == "unsound", found.reason
    assert controls_pass(found)


@pytest.mark.long
def test_forgotten_noise_is_unsound(judge: Callable[..., Finding], monkeypatch: pytest.MonkeyPatch) -> None:
    scale_noise(monkeypatch, 0.0)
    found = judge(1.0)
    assert found.verdict == "unsound", found.reason
    assert controls_pass(found)


@pytest.mark.long
def test_more_noise_than_declared_is_not_what_was_declared(
    judge: Callable[..., Finding], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No attack shows more than is claimed, but whoever reads the ledger reads of another mechanism."""
    scale_noise(monkeypatch, 2.0)
    found = judge(1.0)
    assert found.verdict == "unsound"
    assert "noise" in found.reason
    observed = found.metrics["observed"].value
    assert observed is not None
    assert observed < 0.6


@pytest.mark.long
@pytest.mark.parametrize("name", ["fedcgs", "fedpft"])
def test_a_sensitivity_of_half_the_truth_is_unsound(
    make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The ledger believes the method; the neighbours do not."""
    place, attribute = (
        (fedcgs, "shared_sums_sensitivity") if name == "fedcgs" else (fedpft_private, "mean_second_moment")
    )
    honest = getattr(place, attribute)

    def halved(*args: object, **kwargs: object) -> WorstCase:
        worst = honest(*args, **kwargs)
        return WorstCase(worst.sensitivity / 2, worst.record0, 0, worst.record1, 0, worst.background)

    monkeypatch.setattr(place, attribute, halved)
    method, adjacency = METHODS[name]
    context = make_context(make_task(epsilon=1.0, adjacency=adjacency), method, bounds=200)
    (found,) = DpClaimAudit(mechanism_trials=20_000).assess(None, context)
    assert found.metrics["accounted"].value == pytest.approx(1.0)
    assert found.verdict == "unsound", found.reason
    assert controls_pass(found)


def test_longer_records_are_no_better_canaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mechanism clips: three times as long, the worst pair shows no more. Without clipping it would."""
    sigma = calibrate_sigma(1.0, DELTA, math.sqrt(3))
    sound = reruns.shared_sums(adjacency="add_remove", sigmas=(sigma,) * 3)
    far = sound.neighbours
    long = type(far)(3 * far.features0, far.labels0, 3 * far.features1, far.labels1)
    kept = type(sound)(long, sound.mu, sound.sigmas, sound.release, sound.flatten)
    assert _observe(kept).bounds.judged <= 1.0
    monkeypatch.setattr(mechanisms, "clip_features", lambda features, nonnegative: features)
    assert _observe(kept).bounds.judged > 3.0


def _observe(experiment: reruns.Experiment, claimed: float = 1.0) -> claim_bounds.Observation:
    return observe_mechanism(
        "statistic",
        experiment,
        claimed=claimed,
        delta=DELTA,
        tests=2,
        reruns=20_000,
        estimators=("gaussian", "threshold"),
        seeds=Seeds(0),
    )


@pytest.mark.long
def test_an_audit_that_cries_wolf_is_inconclusive(
    judge: Callable[..., Finding], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wolf(zero: NDArray[np.float64], one: NDArray[np.float64], **_: object) -> EpsilonBound:
        return EpsilonBound(99.0, 0.95, "Gaussian DP", mu=9.0)

    monkeypatch.setattr(claim_bounds, "gdp_bound", wolf)
    found = judge(1.0)
    assert found.verdict == "inconclusive"
    assert "negative control was flagged" in found.reason
    assert found.controls.negative is not None
    assert found.controls.negative.flagged


@pytest.mark.long
def test_an_audit_that_sees_nothing_is_inconclusive(
    judge: Callable[..., Finding], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores that say nothing about the data set: no verdict on the claim, not `sound`."""
    honest = claim_bounds.llr_scores

    def blind(*args: object, **kwargs: object) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        zero, one = honest(*args, **kwargs)  # type: ignore[arg-type]
        return zero, one[::-1] - one.mean() + zero.mean()

    monkeypatch.setattr(claim_bounds, "llr_scores", blind)
    found = judge(1.0)
    assert found.verdict == "inconclusive"
    assert "positive control was not caught" in found.reason
    assert found.controls.positive is not None
    assert not found.controls.positive.caught


@pytest.mark.long
def test_a_mechanism_exactly_at_its_claim_is_rarely_called_unsound() -> None:
    """Corrected bounds of 200 audits: above the claim in at most 5 % of runs of 2 bounds, hardly ever of 40."""
    epsilon = 1.0
    sigma = calibrate_sigma(epsilon, DELTA, math.sqrt(3))
    experiment = reruns.shared_sums(adjacency="add_remove", sigmas=(sigma,) * 3)
    above: dict[int, list[bool]] = {2: [], 40: []}
    for seed in range(200):
        zero, one = reruns.llr_scores(experiment, reruns=500, rng=np.random.default_rng(seed))
        for tests, found in above.items():
            bounds = claim_bounds.bounds_of(
                zero,
                one,
                delta=DELTA,
                tests=tests,
                estimators=("gaussian", "threshold"),
                rng=np.random.default_rng(seed),
            )
            found.append(bounds.judged > epsilon)
    assert np.mean(above[2]) <= 0.08  # 5 % of 200, plus 2 standard deviations
    assert np.mean(above[40]) <= 0.01


def test_the_positive_control_is_far_above_and_the_negative_far_below_the_claim() -> None:
    """Ten and half times the claim's mu, whatever noise the audited mechanism has."""
    for claimed in (0.5, 1.0, 10.0, 50.0):
        needed = calibrate_sigma(claimed, DELTA, math.sqrt(3))
        for factor in (0.01, 1.0, 100.0):
            seen = _observe(reruns.shared_sums(adjacency="add_remove", sigmas=(factor * needed,) * 3), claimed)
            mu = math.sqrt(3) / needed
            positive, negative = (control.bounds.observed.epsilon for control in (seen.positive, seen.negative))
            assert positive == pytest.approx(epsilon_of(10 * mu, DELTA), rel=0.15)
            assert negative is not None
            assert negative <= 1.1 * epsilon_of(mu / 2, DELTA)
            assert seen.positive.above
            assert not seen.negative.above


def test_the_reruns_of_theorem_4_1_have_its_true_delta() -> None:
    """At nominal (50, 1e-2): 0.545 on the exact sensitivity, as FedPFT's facts have it."""
    n = 10_000
    experiment = reruns.mean_covariance(n, sigma=fedpft_theorem_4_1_sigma(50.0, 1e-2, n))
    assert delta_of(experiment.mu, 50.0) == pytest.approx(0.545, abs=1e-3)
