"""Limits of detection of audits of images: leaks at the limit are found, at a third of it clearly less often.

Whether pairs leak is asked of `audits.stats.decisions`, on other arrangements than those of the limit;
`tests/audits/test_decisions.py` holds it against the verdict's own test.
"""

from __future__ import annotations

import numpy as np
import pytest
from quick_similarity import QuickSimilarity

from fedassay.audits.reconstruction.detection_limit import PooledRuns
from fedassay.audits.reconstruction.selections import set_selections
from fedassay.audits.stats.decisions import PairedDecision
from fedassay.audits.stats.detection import detection_limit
from fedassay.audits.stats.paired import paired_test
from fedassay.audits.stats.permutation import gap
from fedassay.audits.trials import PairedRuns, Pairs
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images

_RUNS = 200
"""As many as hold a power of .95 to .90 or more."""
_TESTS = 6


def _trials(leaking: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """SSIM of reconstruction and baseline: skewed, and paired through the target."""
    target = 0.4 + 0.2 * rng.beta(2, 5, len(leaking))
    ours, theirs = 0.05 * rng.exponential(size=(2, len(leaking)))
    return np.where(leaking, 0.15, -0.02) + target + ours, target + theirs


def _scored(size: int, top: int, *, leaking: bool, rng: np.random.Generator) -> Pairs:
    return Pairs(*_trials(np.full(size, leaking), rng), top=top)


@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "top", "trials", "controls"),
    [(120, 120, 1000, 1), (200, 20, 1000, 1), (120, 120, 150, 20), (200, 20, 150, 20), (400, 400, 100, 20)],
)
def test_pairs(n: int, top: int, trials: int, controls: int) -> None:
    """Of large controls, which stand for their populations, and on average over many small ones."""
    rng = np.random.default_rng(n + trials)
    decision = PairedDecision(n, top, _TESTS)

    def found(planted: float) -> bool:
        ours, theirs = _trials(np.arange(n) < round(planted * n), rng)
        return decision.rejects(ours, theirs)

    at = third = asked = missing = 0
    for _ in range(controls):
        both = [_scored(trials, top, leaking=leaking, rng=rng) for leaking in (False, True)]
        runs = PairedRuns(_scored(n, top, leaking=False, rng=rng), *both, tests=_TESTS)
        share = detection_limit(*runs.sizes, runs.finds, rng).share
        # A small control may say that there is no limit: a finding is inconclusive then, and claims no power.
        missing += share is None
        for _ in range(0 if share is None else _RUNS // controls):
            asked += 1
            at += found(share or 0.0)
            third += found((share or 0.0) / 3)
    assert missing <= controls // 5
    assert at / asked >= 0.9
    assert third / asked < at / asked - 0.2


def _images(count: int, rng: np.random.Generator) -> Images:
    """Blobs at random places."""
    where = rng.uniform(1, 7, (count, 2, 1, 1))
    squares = (np.arange(8)[None, :, None] - where[:, 0]) ** 2 + (np.arange(8)[None, None] - where[:, 1]) ** 2
    texture = rng.normal(0, 12, (count, 8, 8))
    return (200 * np.exp(-squares / 4) + 30 + texture).clip(0, 255).astype(np.uint8)[..., None]


@pytest.mark.long
@pytest.mark.parametrize(("trials", "controls"), [(60, 1), (25, 6)])
def test_sets(trials: int, controls: int) -> None:
    """The pool is put together anew: found through the audit's own matching and its two tests."""
    rng = np.random.default_rng(3)
    at = third = 0
    for _ in range(controls):
        runs = _pooled(trials, rng)
        share = detection_limit(*runs.sizes, runs.finds, rng).share
        assert share is not None
        for _ in range(60 // controls):
            at += _found_in_set(share, runs, rng)
            third += _found_in_set(share / 3, runs, rng)
    assert at / 60 >= 0.9
    assert third / 60 < at / 60 - 0.2


def _pooled(trials: int, rng: np.random.Generator) -> PooledRuns:
    shown = _images(trials, rng)
    return PooledRuns(
        truth=_images(150, rng),
        fresh=_images(150, rng),
        silent=_images(60, rng),
        nonprivate=shown,
        shown=shown,
        attacker=_images(200, rng),
        top=20,
        tests=_TESTS,
        seeds=Seeds(0),
        device="cpu",
    )


def _found_in_set(planted: float, runs: PooledRuns, rng: np.random.Generator) -> bool:
    """Whether a set is found that holds so large a share of its targets."""
    n, similarity = len(runs.truth), QuickSimilarity(None, "not asked for")
    truth, silent = _images(n, rng), _images(len(runs.silent), rng)
    given = round(planted * n)
    silent[:given] = truth[:given]
    scored = set_selections(silent, truth, runs.fresh, runs.attacker, similarity, runs.top, rng)["oracle"]
    pair = scored.values["ssim"], scored.baseline_values["ssim"]
    if paired_test(*pair, rng, top=runs.top, tests=_TESTS, draws=600).p > 0.05 / _TESTS:
        return False
    assert scored.fresh is not None
    share = runs.top / n
    p = gap(pair[0], scored.fresh["ssim"], rng, share=share, tests=_TESTS, draws=600).p
    return bool(p <= 0.05 / _TESTS)
