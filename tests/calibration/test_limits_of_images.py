"""Limits of detection of audits of images: leaks at the limit are found, at a third of it clearly less often."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.audits.reconstruction.limits import PairedRuns, PooledRuns
from fedassay.audits.reconstruction.selections import Scored, set_selections
from fedassay.audits.stats.detection import detection_limit
from fedassay.audits.stats.paired import paired_test
from fedassay.audits.stats.permutation import gap
from fedassay.similarity.metrics import Similarity
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images

_RUNS = 200
"""As many as hold a power of .95 to .90 or more; controls are large, so that they stand for their populations."""
_TESTS = 6


def _trials(leaking: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """SSIM of reconstruction and baseline: skewed, and paired through the target."""
    target = 0.4 + 0.2 * rng.beta(2, 5, len(leaking))
    ours, theirs = 0.05 * rng.exponential(size=(2, len(leaking)))
    return np.where(leaking, 0.15, -0.02) + target + ours, target + theirs


def _scored(size: int, top: int, *, leaking: bool, rng: np.random.Generator) -> Scored:
    ours, theirs = _trials(np.full(size, leaking), rng)
    images = np.zeros((size, 1, 1, 1), np.uint8)
    return Scored(images, images, images, {"ssim": ours}, {"ssim": theirs}, ours, theirs, top)


@pytest.mark.parametrize(("n", "top"), [(120, 120), (200, 20)])
def test_pairs(n: int, top: int) -> None:
    rng = np.random.default_rng(n)
    result = _scored(n, top, leaking=False, rng=rng)
    controls = [_scored(1000, top, leaking=leaking, rng=rng) for leaking in (False, True)]
    runs = PairedRuns(result, *controls, tests=_TESTS, seed=1)
    share = detection_limit(*runs.sizes, runs.finds, rng).share
    assert share is not None
    assert share < 1

    def power(planted: float) -> float:
        found = 0
        for _ in range(_RUNS):
            ours, theirs = _trials(np.arange(n) < round(planted * n), rng)
            found += paired_test(ours, theirs, rng, top=top, tests=_TESTS).p <= 0.05 / _TESTS
        return found / _RUNS

    at, third = power(share), power(share / 3)
    assert at >= 0.9
    assert third < at - 0.2


def _images(count: int, rng: np.random.Generator) -> Images:
    """Blobs at random places."""
    where = rng.uniform(1, 7, (count, 2, 1, 1))
    squares = (np.arange(8)[None, :, None] - where[:, 0]) ** 2 + (np.arange(8)[None, None] - where[:, 1]) ** 2
    texture = rng.normal(0, 12, (count, 8, 8))
    return (200 * np.exp(-squares / 4) + 30 + texture).clip(0, 255).astype(np.uint8)[..., None]


def test_sets() -> None:
    """The pool is put together anew: found through the audit's own matching and its two tests."""
    rng = np.random.default_rng(3)
    n, pool, top = 150, 60, 20
    shown = _images(60, rng)
    runs = PooledRuns(
        truth=_images(n, rng),
        fresh=_images(150, rng),
        silent=_images(pool, rng),
        exposed=shown,
        shown=shown,
        attacker=_images(200, rng),
        top=top,
        tests=_TESTS,
        seeds=Seeds(0),
        device="cpu",
    )
    share = detection_limit(*runs.sizes, runs.finds, rng).share
    assert share is not None
    similarity = Similarity(None, "not asked for")

    def power(planted: float) -> float:
        found = 0
        for _ in range(60):
            truth, silent = _images(n, rng), _images(pool, rng)
            given = round(planted * n)
            silent[:given] = truth[:given]
            scored = set_selections(silent, truth, runs.fresh, runs.attacker, similarity, top, rng)["oracle"]
            pair = scored.values["ssim"], scored.baseline_values["ssim"]
            p = paired_test(*pair, rng, top=top, tests=_TESTS, draws=600).p
            if p <= 0.05 / _TESTS:
                assert scored.fresh is not None
                p = gap(pair[0], scored.fresh["ssim"], rng, share=top / n, tests=_TESTS, draws=600).p
            found += p <= 0.05 / _TESTS
        return found / 60

    at, third = power(share), power(share / 3)
    assert at >= 0.9
    assert third < at - 0.2
