import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.privacy.symmetric import project_psd, symmetric_noise, vech, vech_size


def random_symmetric(rng, *shape):
    a = rng.standard_normal((*shape, shape[-1]))
    return a + np.swapaxes(a, -1, -2)


@settings(max_examples=50, deadline=None)
@given(dim=st.integers(1, 9), batch=st.integers(0, 3), seed=st.integers(0, 2**32 - 1))
def test_vech_is_an_isometry(dim, batch, seed):
    rng = np.random.default_rng(seed)
    matrix = random_symmetric(rng, *([batch] if batch else []), dim)
    embedded = vech(matrix)
    assert embedded.shape == (*matrix.shape[:-2], vech_size(dim))
    np.testing.assert_allclose(np.sum(embedded**2, -1), np.sum(matrix**2, (-1, -2)), rtol=1e-12)
    row, column = np.triu_indices(dim)
    factor = np.where(row == column, 1, math.sqrt(2))
    np.testing.assert_allclose(embedded, matrix[..., row, column] * factor, rtol=1e-14)


def test_vech_refuses_other_shapes():
    with pytest.raises(ValueError, match="square"):
        vech(np.zeros((3, 4)))


def test_noise_is_white_in_the_embedding():
    noise = symmetric_noise(3, 2.0, np.random.default_rng(0), size=(200_000,))
    assert np.array_equal(noise, np.swapaxes(noise, -1, -2))
    covariance = np.cov(vech(noise).T)
    np.testing.assert_allclose(covariance, 4 * np.eye(6), atol=0.06)
    assert np.std(noise[:, 0, 1]) == pytest.approx(2 / math.sqrt(2), rel=0.01)


def test_papers_noise_has_the_same_scale_on_every_entry():
    noise = symmetric_noise(3, 2.0, np.random.default_rng(0), size=(200_000,), isometric=False)
    np.testing.assert_allclose(noise.std(axis=0), np.full((3, 3), 2.0), rtol=0.01)
    assert np.array_equal(noise, np.swapaxes(noise, -1, -2))


def test_same_generator_same_bits_and_batches_continue_the_stream():
    a = symmetric_noise(4, 1.0, np.random.default_rng(3), size=(5,))
    rng = np.random.default_rng(3)
    b = np.stack([symmetric_noise(4, 1.0, rng) for _ in range(5)])
    assert np.array_equal(a, b)


def test_projection_is_psd_nearest_and_idempotent():
    rng = np.random.default_rng(1)
    matrix = random_symmetric(rng, 7, 5)
    projected = project_psd(matrix)
    assert np.linalg.eigvalsh(projected).min() > -1e-12
    np.testing.assert_allclose(project_psd(projected), projected, atol=1e-12)
    # Nearest: the residual is orthogonal to the projection and negative semidefinite (Moreau).
    residual = matrix - projected
    np.testing.assert_allclose(np.sum(residual * projected, (-1, -2)), 0, atol=1e-10)
    assert np.linalg.eigvalsh(residual).max() < 1e-12
    assert np.linalg.eigvalsh(project_psd(matrix, floor=0.1)).min() == pytest.approx(0.1)
    with pytest.raises(ValueError, match="floor"):
        project_psd(matrix, floor=-1)
