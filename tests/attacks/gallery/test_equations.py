"""More candidates than equations are solved in the space of the equations, and no weights of them are certain."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.attacks.gallery import equations, solving
from fedassay.attacks.gallery.equations import ByEquations, columns, design
from fedassay.attacks.gallery.population import Population, known_of
from fedassay.attacks.gallery.solving import exact_weights, posterior_weights
from fedassay.attacks.gallery.system import System, system_of
from fedassay.exchange.blocks import LinearBlock

Matrix = NDArray[np.float64]
CLASSES, WIDTH, COUNT = 3, 5, 150
NONE = np.zeros((0, 1, 1, 1), np.uint8)
EQUATIONS = CLASSES * (1 + WIDTH + WIDTH * (WIDTH + 1) // 2) + WIDTH * (WIDTH + 1) // 2


def made(*, ridge: bool = False, missing: float = 0.0, noise: float = 0.0) -> System:
    """Counts, sums and products of each class, and products of all, of a half of the candidates."""
    rng = np.random.default_rng(0)
    features, labels = 1 + rng.normal(size=(COUNT, WIDTH)), rng.integers(0, CLASSES, COUNT)
    own, inside = features[::2], np.eye(CLASSES)[labels[::2]]
    zero, none = np.zeros(1), np.full(CLASSES, noise)
    second = own.T @ own + 5.0 * ridge * np.eye(WIDTH)
    blocks = [
        LinearBlock("counts", "ones", 1, True, inside.sum(axis=0)[:, None], none, none),
        LinearBlock("sums", "features", 1, True, inside.T @ own, none, none),
        LinearBlock("second", "features", 2, False, second, zero + noise, zero, free_ridge=ridge),
        LinearBlock("products", "features", 2, True, np.einsum("nc,na,nb->cab", inside, own, own), none, none),
    ]
    people = Population(features, NONE, labels)
    known = [known_of(block, blocks, people) for block in blocks] if missing else None
    found = system_of(blocks, features, NONE, labels, missing=missing, known=known)
    assert found is not None
    return found


@pytest.mark.parametrize("ridge", [False, True])
@pytest.mark.parametrize("missing", [0.0, 5.0])
def test_a_design_has_the_products_of_the_kernel(ridge: bool, missing: float) -> None:
    system = made(ridge=ridge, missing=missing)
    assert columns(system) == EQUATIONS
    rows = np.concatenate([design(system, slice(0, 64)), design(system, slice(64, COUNT))])
    kernel = system.kernel(np.arange(COUNT))
    np.testing.assert_allclose(rows @ rows.T, kernel, atol=1e-9 * np.abs(kernel).max())


@pytest.mark.parametrize("ridge", [False, True])
@pytest.mark.parametrize("missing", [0.0, 5.0])
def test_posterior_weights_are_those_of_a_kernel_of_the_candidates(
    ridge: bool, missing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = made(ridge=ridge, missing=missing, noise=0.5)
    share = np.random.default_rng(1).uniform(0.2, 0.8, COUNT)
    factored, found = equations.factored, []

    def followed(kernel: Matrix) -> Matrix:
        found.append(kernel.shape)
        return factored(kernel)

    monkeypatch.setattr(equations, "factored", followed)
    weights = posterior_weights(system, share)
    assert found == [(EQUATIONS, EQUATIONS)]
    monkeypatch.setattr(solving, "_by_equations", lambda _: False)
    np.testing.assert_allclose(weights, posterior_weights(system, share), atol=1e-8)


def test_too_few_equations_are_explained_by_weights_that_are_not_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of candidates would be formed for nothing, and conjugate gradients take steps without end."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("neither is needed")

    monkeypatch.setattr(solving, "BOXED", 100)
    monkeypatch.setattr(solving, "conjugate_gradients", refused)
    monkeypatch.setattr(System, "kernel", refused)
    system = made(ridge=True)
    solved = exact_weights(system)
    assert not solved.unique.any()
    assert system.left(solved.weights) < 1e-12 * system.left(np.zeros(COUNT))


def test_candidates_are_never_held_with_all_their_equations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block is formed once to a kernel; what explains a residual needs none of them."""
    sizes, formed = list[int](), equations.design

    def followed(system: System, rows: slice) -> Matrix:
        sizes.append(rows.stop - rows.start)
        return formed(system, rows)

    monkeypatch.setattr(equations, "design", followed)
    monkeypatch.setattr("fedassay.attacks.gallery.precision._TOGETHER", 40)
    system = made()
    sums = ByEquations.of(system, np.ones(COUNT))
    for _ in range(3):
        sums.beyond(np.zeros(COUNT))
    assert sizes == [40, 40, 40, 30]


def test_steps_on_fewer_equations_than_candidates_certify_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solving, "DENSE", EQUATIONS - 1)
    monkeypatch.setattr(solving, "BOXED", 0)
    assert not exact_weights(made()).unique.any()
