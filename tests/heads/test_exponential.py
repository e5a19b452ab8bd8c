"""FedLog's head: the solver against naive optimisers, its optimality conditions, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.heads.exponential import map_head, objective
from fedassay.support.errors import DataError


def _statistics(seed: int, classes: int, width: int, scale: float) -> tuple[np.ndarray, float]:
    """T and n of Gaussian clusters, classes of very different sizes."""
    rng = np.random.default_rng(seed)
    counts = np.ceil(rng.exponential(40, classes) ** 1.5 + 1)
    means = scale * rng.normal(size=(classes, width - 1))
    return np.column_stack([counts, counts[:, None] * means]), float(counts.sum())


@pytest.mark.parametrize(("classes", "width"), [(2, 3), (10, 7)])
def test_the_gradient_is_that_of_autograd(classes: int, width: int) -> None:
    rng = np.random.default_rng(0)
    eta, g = rng.normal(size=(2, classes, width))
    point = torch.tensor(eta, requires_grad=True)
    value = torch.logsumexp(point.square().sum(dim=1) / 4, dim=0) - (point * torch.tensor(g)).sum()
    value.backward()
    found, slope = objective(eta, g)
    assert found == pytest.approx(value.item(), rel=1e-12)
    np.testing.assert_allclose(slope, point.grad.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("nu", [0.0, 1.0])
@pytest.mark.parametrize("scale", [0.3, 1.5])
def test_the_head_is_what_a_naive_optimiser_finds(nu: float, scale: float) -> None:
    """The posterior as equation 14 has it, maximised by torch's L-BFGS from a random start."""
    T, n = _statistics(1, 4, 5, scale)
    eta = torch.tensor(np.random.default_rng(2).normal(size=T.shape), requires_grad=True)
    descent = torch.optim.LBFGS(
        [eta], max_iter=2000, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        descent.zero_grad()
        posterior = (eta * torch.tensor(T)).sum() - (nu + n) * torch.logsumexp(eta.square().sum(1) / 4, 0)
        loss = -posterior / (nu + n)
        loss.backward()
        return loss

    descent.step(closure)
    solved = map_head(T, n, nu=nu)
    assert solved.converged
    np.testing.assert_allclose(solved.eta, eta.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_the_closed_form_holds_at_the_maximum() -> None:
    T, n = _statistics(3, 10, 32, 2.0)
    solved = map_head(T, n)
    exponents = np.sum(solved.eta**2, axis=1) / 4
    p = np.exp(exponents - exponents.max())
    p /= p.sum()
    np.testing.assert_allclose(solved.eta, 2 * T / (n + 1) / p[:, None], rtol=1e-6)


def test_one_class_has_a_closed_form() -> None:
    T = np.array([[10.0, 4.0, -6.0]])
    np.testing.assert_allclose(map_head(T, 9).eta, 2 * T / 10, rtol=1e-8)


def test_classes_without_records_have_no_weights() -> None:
    T, n = _statistics(4, 5, 4, 1.0)
    T[2] = 0
    solved = map_head(T, n)
    assert solved.converged
    assert not solved.eta[2].any()
    assert solved.eta[[0, 1, 3, 4]].any(axis=1).all()
    assert not map_head(np.zeros((3, 4)), 0).eta.any()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    classes=st.integers(1, 30),
    width=st.integers(1, 20),
    exponent=st.floats(-6, 6),
    n=st.floats(1e-3, 1e6),
)
def test_any_finite_statistic_has_a_finite_head(
    seed: int, classes: int, width: int, exponent: float, n: float
) -> None:
    """Noise may leave anything in T: no sums of any size give NaN, and the descent gets there."""
    rng = np.random.default_rng(seed)
    T = rng.normal(size=(classes, width)) * 10**exponent * rng.exponential(size=(classes, 1)) ** 3
    solved = map_head(T, n)
    assert np.isfinite(solved.eta).all()
    # Exponents of size s^2 are known to 1e-16 s^2: beyond that no solver gets the shares right.
    size = float(np.linalg.norm(T / (1 + n), axis=1).sum())
    assert solved.gradient <= max(solved.tolerance, 1e-14 * size**2)


def test_no_convergence_is_said_and_the_head_is_finite() -> None:
    T, n = _statistics(5, 10, 8, 3.0)
    short = map_head(T, n, steps=1)
    assert not short.converged
    assert short.gradient > short.tolerance
    assert np.isfinite(short.eta).all()
    out_of_reach = map_head(T, n, tolerance=1e-300)
    assert not out_of_reach.converged
    assert out_of_reach.gradient < 1e-12
    np.testing.assert_allclose(out_of_reach.eta, map_head(T, n).eta, rtol=1e-6)


@pytest.mark.parametrize("n", [-1.0, -5.0, np.nan, np.inf])
def test_no_weight_has_no_maximum(n: float) -> None:
    with pytest.raises(ValueError, match="no maximum"):
        map_head(np.ones((2, 2)), n)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_statistics_that_are_not_finite_are_refused(wrong: float) -> None:
    with pytest.raises(DataError, match="NaN or infinite"):
        map_head(np.array([[1.0, wrong]]), 1.0)
    with pytest.raises(ValueError, match="shape"):
        map_head(np.ones(3), 1.0)
