"""Reconstructions of persons: images of one person are no trials of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.audits.reconstruction.judging import judge
from fedassay.audits.reconstruction.selections import Scored, _far_ones, _too_near
from fedassay.data.records import Records
from fedassay.similarity.metrics import make_similarity

SIMILARITY = make_similarity(None, None, "cpu")  # type: ignore[arg-type]
PERSONS, IMAGES = 5, 12
OF = np.repeat(np.arange(PERSONS), IMAGES)


def _scored(gains: NDArray[np.float64], top: int | None = None) -> Scored:
    n = len(gains)
    images = np.zeros((n, 8, 8, 1), np.uint8)
    images[:, 0, 0, 0] = np.arange(n)
    flat = np.zeros(n)
    values = {"ssim": 0.5 + gains, "psnr": np.full(n, 15.0)}
    baseline = {"ssim": np.full(n, 0.5), "psnr": np.full(n, 15.0)}
    return Scored(images, images, images, values, baseline, flat, flat, n if top is None else top, persons=OF)


def _gains(rng: np.random.Generator) -> NDArray[np.float64]:
    """Persons who gain .1 each, and whose images hardly differ."""
    return np.asarray(0.1 + 0.01 * rng.standard_normal(PERSONS)[OF])


def test_five_persons_are_five_pairs() -> None:
    rng = np.random.default_rng(0)
    scored = _scored(_gains(rng))
    by_person = judge(scored, SIMILARITY, rng, tests=1, draws=200)
    by_image = judge(replace(scored, persons=None), SIMILARITY, rng, tests=1, draws=200)
    assert by_image.test.rejects
    assert by_image.test.uncorrected
    # The smallest p of five pairs is 1 in 32: enough at .05, not at .01.
    assert by_person.exchanged.p == pytest.approx(1 / 32)
    assert by_person.test.rejects
    assert not by_person.test.uncorrected
    assert judge(scored, SIMILARITY, rng, tests=2, draws=200).undecided.startswith("5 pairs")
    assert by_person.metrics["ssim_gain"].n == PERSONS
    low, high = (by_person.metrics["ssim_gain"].low, by_image.metrics["ssim_gain"].low)
    assert low is not None
    assert high is not None
    assert low < high
    assert "5 persons" in by_person.persons_in_words[0]
    assert by_image.persons_in_words == ()
    assert "worst_person" not in by_image.metrics


def test_means_and_pictures_of_persons() -> None:
    gains = np.zeros(PERSONS * IMAGES)
    gains[3] = 0.6
    gains[IMAGES:] -= 0.1
    trials = _scored(gains, top=20).by_person()
    assert trials.values["ssim"] == pytest.approx([0.55, *[0.4] * 4])
    assert trials.top == PERSONS
    # A person is shown by the image that came closest.
    assert trials.truth[0, 0, 0, 0] == 3
    judged = judge(_scored(gains), SIMILARITY, np.random.default_rng(0), tests=1, draws=200)
    assert judged.metrics["worst_person"].value == pytest.approx(0.05)
    assert "median is -0.100" in judged.metrics["worst_person"].reason


def test_a_near_copy_of_one_image_counts_whatever_the_person_s_mean() -> None:
    scored = _scored(np.zeros(PERSONS * IMAGES))
    scored.values["psnr"][7] = 45.0
    judged = judge(scored, SIMILARITY, np.random.default_rng(0), tests=1, draws=200)
    assert judged.near_copies == 1


def test_near_duplicates_are_dropped_person_by_person() -> None:
    similar = np.linspace(0, 1, PERSONS * IMAGES)
    similar[0] = 2.0
    assert np.flatnonzero(_too_near(similar, 0.25, None)).tolist() == [0, *range(46, 60)]
    dropped = _too_near(similar, 0.25, OF)
    assert set(OF[dropped]) == {0}
    assert dropped.sum() == IMAGES
    assert not _too_near(similar, 0.1, OF).any()
    test = Records(
        "test", np.zeros((4, 8, 8, 1), np.uint8), np.zeros(4, np.int64), lambda x: x, np.array([1, 1, 2, 2])
    )
    far = _far_ones(np.array([0.1, 0.9, 0.2, 0.3]), 0.5, test, np.arange(4), True)
    assert far.tolist() == [False, False, True, True]
