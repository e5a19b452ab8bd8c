"""The mechanisms clip, compute the statistic they say, and add exactly the noise they say."""

import math

import numpy as np
import pytest

from fedassay.privacy import mechanisms as m
from fedassay.privacy import postprocess as post
from fedassay.privacy.symmetric import vech
from fedassay.privacy.tape import FreeNoise
from fedassay.support.errors import DataError

RNG = np.random.default_rng(0)
FREE = FreeNoise(RNG)


def free(seed, size=()):
    return FreeNoise(np.random.default_rng(seed), size)


FEATURES = RNG.standard_normal((40, 5))
LABELS = RNG.integers(0, 3, 40)


def test_clipping():
    clipped = m.clip_features(FEATURES * 10)
    np.testing.assert_allclose(np.linalg.norm(clipped, axis=1), 1)
    inside = FEATURES / 100
    np.testing.assert_array_equal(m.clip_features(inside), inside)
    orthant = m.clip_features(FEATURES, nonnegative=True)
    assert orthant.min() == 0
    assert np.linalg.norm(orthant, axis=1).max() <= 1 + 1e-12


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_refused(bad):
    features = FEATURES.copy()
    features[3, 2] = bad
    for call in (
        lambda: m.clip_features(features),
        lambda: m.release_fedlog_sums(features, LABELS, 3, clip=1.0, sigma=1.0, noise=FREE),
        lambda: m.release_magnitude_sum((features,), clip=1.0, sigma=1.0, noise=FREE),
    ):
        with pytest.raises(DataError, match="1 of 40 records are NaN or infinite"):
            call()


def test_exact_statistics_without_noise():
    clipped = m.clip_features(FEATURES)
    one_hot = np.eye(3)[LABELS]
    moments = m.release_mean_second_moment(FEATURES, sigmas=(0.0, 0.0), noise=FREE)
    np.testing.assert_allclose(moments.mean, clipped.mean(axis=0))
    np.testing.assert_allclose(moments.second, np.mean([np.outer(f, f) for f in clipped], axis=0))
    paper = m.release_mean_covariance(FEATURES, sigma=0.0, noise=FREE)
    np.testing.assert_allclose(paper.second, np.cov(clipped.T, bias=True))
    sums = m.release_class_sums(FEATURES, LABELS, 3, sigmas=(0.0, 0.0, 0.0), noise=FREE)
    np.testing.assert_array_equal(sums.counts, one_hot.sum(axis=0))
    np.testing.assert_allclose(sums.sums, one_hot.T @ clipped)
    np.testing.assert_allclose(sums.second[2], clipped[LABELS == 2].T @ clipped[LABELS == 2])
    for family, expected in (
        ("diag", np.einsum("cii->ci", sums.second)),
        ("spherical", np.einsum("cii->c", sums.second)),
    ):
        got = m.release_class_sums(FEATURES, LABELS, 3, sigmas=(0.0, 0.0, 0.0), noise=FREE, family=family)
        np.testing.assert_allclose(got.second, expected)
    shared = m.release_shared_sums(FEATURES, LABELS, 3, sigmas=(0.0, 0.0, 0.0), noise=FREE)
    np.testing.assert_allclose(shared.second, clipped.T @ clipped)
    np.testing.assert_allclose(shared.sums, sums.sums)
    fedlog = m.release_fedlog_sums(FEATURES, LABELS, 3, clip=0.5, sigma=0.0, noise=FREE)
    np.testing.assert_array_equal(fedlog[:, 0], one_hot.sum(axis=0))
    np.testing.assert_allclose(fedlog[:, 1:], one_hot.T @ np.clip(FEATURES, -0.5, 0.5))
    magnitudes = np.abs(FEATURES)
    total = m.release_magnitude_sum((magnitudes[:7], magnitudes[7:]), clip=1.5, sigma=0.0, noise=FREE)
    scale = np.maximum(np.linalg.norm(magnitudes, axis=1, keepdims=True) / 1.5, 1)
    np.testing.assert_allclose(total, (magnitudes / scale).sum(axis=0))
    np.testing.assert_array_equal(m.release_class_counts(LABELS, 3, sigma=0.0, noise=FREE), one_hot.sum(axis=0))


@pytest.mark.parametrize("family", ["full", "diag", "spherical"])
def test_noise_has_the_scale_asked_for(family):
    reruns = 20_000
    sigmas = (0.3, 0.7)
    exact = m.release_mean_second_moment(FEATURES, sigmas=(0.0, 0.0), noise=FREE, family=family)
    noised = m.release_mean_second_moment(FEATURES, sigmas=sigmas, noise=free(1, (reruns,)), family=family)
    embed = vech if family == "full" else lambda value: np.reshape(value, (*np.shape(value)[:1], -1))
    white = np.concatenate(
        [
            (noised.mean - exact.mean) / sigmas[0],
            (embed(noised.second - exact.second).reshape(reruns, -1)) / sigmas[1],
        ],
        axis=1,
    )
    covariance = white.T @ white / reruns
    # Entries deviate by about sqrt(2/reruns) on the diagonal; 6 standard deviations over some 300 entries.
    np.testing.assert_allclose(covariance, np.eye(white.shape[1]), atol=6 * math.sqrt(2 / reruns))
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=6 / math.sqrt(reruns))


def test_sums_noise_has_the_scale_asked_for():
    reruns = 5_000
    sigmas = (0.2, 0.5, 1.5)
    for release in (m.release_class_sums, m.release_shared_sums):
        exact = release(FEATURES, LABELS, 3, sigmas=(0.0, 0.0, 0.0), noise=FREE)
        noised = release(FEATURES, LABELS, 3, sigmas=sigmas, noise=free(1, (reruns,)))
        for value, centre, sigma in zip(noised[:2], exact[:2], sigmas[:2], strict=True):
            np.testing.assert_allclose((value - centre).std(axis=0), sigma, rtol=6 / math.sqrt(2 * reruns))
        white = vech(noised.second - exact.second) / sigmas[2]
        np.testing.assert_allclose(white.std(axis=0), 1, rtol=6 / math.sqrt(2 * reruns))


def test_paper_mechanism_puts_the_same_scale_on_every_entry():
    noised = m.release_mean_covariance(FEATURES, sigma=0.4, noise=free(2, (20_000,)))
    np.testing.assert_allclose(noised.second.std(axis=0), 0.4, rtol=0.04)
    np.testing.assert_allclose(noised.mean.std(axis=0), 0.4, rtol=0.04)
    assert np.array_equal(noised.second, np.swapaxes(noised.second, -1, -2))


def test_same_generator_same_bits():
    def release(seed):
        return m.release_shared_sums(FEATURES, LABELS, 3, sigmas=(1.0, 1.0, 1.0), noise=free(seed))

    assert all(np.array_equal(a, b) for a, b in zip(release(4), release(4), strict=True))
    assert not np.array_equal(release(4).second, release(5).second)


def test_aggregate_then_noise_once_is_the_central_mechanism():
    clipped = m.clip_features(FEATURES)
    parts = [m.shared_sums(clipped[i::4], LABELS[i::4], 3) for i in range(4)]
    total = m.Sums(*(np.sum(field, axis=0) for field in zip(*parts, strict=True)))
    central = m.noised_sums(total, (1.0, 2.0, 3.0), free(0), full=True)
    pooled = m.release_shared_sums(FEATURES, LABELS, 3, sigmas=(1.0, 2.0, 3.0), noise=free(0))
    for a, b in zip(central, pooled, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_empty_and_malformed_inputs():
    empty = np.empty((0, 5))
    with pytest.raises(DataError, match="0 records"):
        m.release_mean_second_moment(empty, sigmas=(1.0, 1.0), noise=FREE)
    sums = m.release_class_sums(empty, np.empty(0, dtype=np.int64), 2, sigmas=(0.0, 0.0, 0.0), noise=FREE)
    assert not sums.counts.any()
    with pytest.raises(ValueError, match="labels must lie in"):
        m.class_sums(FEATURES, LABELS, 2)
    with pytest.raises(ValueError, match="labels must have shape"):
        m.shared_sums(FEATURES, LABELS[:-1], 3)
    with pytest.raises(ValueError, match=r"\(n, d\)"):
        m.clip_features(FEATURES[0])
    for sigma in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="noise scale"):
            FREE.add("value", np.zeros(2), sigma)


@pytest.mark.parametrize("family", ["full", "diag", "spherical"])
def test_reconstruction_without_noise_returns_the_covariance(family):
    clipped = m.clip_features(FEATURES)
    truth = m.centred_moments(clipped, family).second
    if family == "spherical":
        truth = truth / clipped.shape[1]
    raw = m.moments(clipped, family)
    np.testing.assert_allclose(post.covariance_from_moments(raw, family), truth, atol=1e-14)
    np.testing.assert_allclose(
        post.covariance_from_release(m.centred_moments(clipped, family), family), truth, atol=1e-14
    )
    sums = m.class_sums(clipped, np.zeros(40, dtype=np.int64), 1, family)
    repaired = post.moments_from_sums(*sums, family)
    np.testing.assert_allclose(repaired.means[0], raw.mean)
    np.testing.assert_allclose(repaired.second[0], raw.second)


def test_reruns_of_fedlogs_sums_are_independent():
    features, labels = np.random.default_rng(4).uniform(-1, 1, (6, 3)), np.array([0, 1, 1, 0, 2, 2])
    found = m.release_fedlog_sums(features, labels, 3, clip=1.0, sigma=0.5, noise=free(3, (4000,)))
    assert found.shape == (4000, 3, 4)
    exact = m.fedlog_sums(features, labels, 3)
    np.testing.assert_allclose(found.mean(axis=0), exact, atol=5 * 0.5 / np.sqrt(4000))
    np.testing.assert_allclose(found.std(axis=0), 0.5, rtol=0.06)


def test_repairs_are_psd_and_counts_are_raised():
    rng = np.random.default_rng(6)
    noised = m.release_mean_second_moment(FEATURES, sigmas=(1.0, 1.0), noise=FreeNoise(rng, (60,)))
    covariance = post.covariance_from_moments(noised, floor=1e-3)
    assert np.linalg.eigvalsh(covariance).min() == pytest.approx(1e-3)
    for family in ("diag", "spherical"):
        noised = m.release_mean_covariance(FEATURES, sigma=1.0, noise=FreeNoise(rng, (60,)), family=family)
        assert post.covariance_from_release(noised, family, floor=1e-3).min() == 1e-3
    counts = np.array([-2.0, 0.3, 5.0])
    repaired = post.moments_from_sums(counts, np.ones((3, 2)), np.ones((3, 2, 2)))
    assert repaired.counts.tolist() == [1.0, 1.0, 5.0]
    np.testing.assert_allclose(repaired.second[2], 0.2)
    with pytest.raises(ValueError, match="least"):
        post.moments_from_sums(counts, np.ones((3, 2)), np.ones((3, 2, 2)), least=0)
