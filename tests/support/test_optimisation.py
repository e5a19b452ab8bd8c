"""Optimisers as plans name them: what each one does, the pull to the start, and what is refused."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from fedassay.nets.dp_sgd.updates import Updates
from fedassay.support.optimisation import Optimizer, chosen, pulled, take_step


def _after(optimizer: Optimizer | None, steps: int = 3, pull: float = 0.0, rate: float = 0.1) -> torch.Tensor:
    """Weights after some steps down half of their squared distance to 1, from (0, 3)."""
    weights = torch.nn.Parameter(torch.tensor([0.0, 3.0], dtype=torch.float64))
    own = chosen(optimizer).build([weights], rate, pull=pull)
    for _ in range(steps):
        take_step(own, (weights - 1).square().sum() / 2)
    return weights.detach()


def test_sgd_is_what_it_says() -> None:
    weights, speed = torch.tensor([0.0, 3.0], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for _ in range(3):
        speed = 0.9 * speed + (weights - 1) + 0.01 * weights
        weights = weights - 0.05 * speed
    given = Optimizer(name="sgd", learning_rate=0.05, momentum=0.9, weight_decay=0.01)
    torch.testing.assert_close(_after(given), weights)


def test_adamw_decays_the_weights_and_adam_does_not() -> None:
    torch.testing.assert_close(_after(None), _after(Optimizer()))
    torch.testing.assert_close(_after(Optimizer(name="adamw", weight_decay=0.0)), _after(None))
    first = Optimizer(name="adamw")
    assert (first.decay, Optimizer().decay, Optimizer(name="sgd").decay) == (0.01, 0, 0)
    # The first step of Adam has the length of the learning rate in every weight.
    torch.testing.assert_close(
        _after(first, 1), torch.tensor([0.1, 3 * (1 - 0.1 * 0.01) - 0.1], dtype=torch.float64), rtol=1e-6, atol=0
    )


def test_the_rate_beside_applies_where_none_is_given() -> None:
    torch.testing.assert_close(_after(Optimizer(name="sgd"), 1, rate=0.5), torch.tensor([0.5, 2.0]).double())
    assert Optimizer(name="sgd", learning_rate=0.2).rate(0.5) == 0.2


def test_the_pull_is_the_gradient_of_the_distance_to_the_start() -> None:
    found = _after(Optimizer(name="sgd"), 400, pull=1.0)
    # The minimum of (w - 1)^2 / 2 + (w - start)^2 / 2.
    torch.testing.assert_close(found, torch.tensor([0.5, 2.0]).double())
    weights = torch.nn.Parameter(torch.ones(1))
    own = torch.optim.SGD([weights], lr=0.1)
    assert pulled(own, 0.0) is own
    assert not own._optimizer_step_pre_hooks


@pytest.mark.parametrize("given", [None, *(Optimizer(name=name) for name in ("adam", "adamw", "sgd"))])
def test_noised_sums_are_followed_by_the_same_optimiser(given: Optimizer | None) -> None:
    updates = Updates.by(given, 0.1, 0.5)
    weights = torch.nn.Parameter(torch.tensor([0.0, 3.0], dtype=torch.float64))
    own = updates.optimizer([weights])
    for _ in range(3):
        take_step(own, (weights - 1).square().sum() / 2)
    # Without a choice it is AdamW without decay, which is Adam.
    torch.testing.assert_close(weights.detach(), _after(given, pull=0.5))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "adagrad"}, "'adam', 'adamw' or 'sgd'"),
        ({"name": "adam", "momentum": 0.9}, "momentum 0.9 given with adam; allowed: with sgd"),
        ({"name": "sgd", "learning_rate": -0.1}, "greater than 0"),
        ({"name": "sgd", "momentum": 1.0}, "less than 1"),
        ({"weight_decay": -1e-4}, "greater than or equal to 0"),
        ({"name": "sgd", "nesterov": True}, "not permitted"),
    ],
)
def test_what_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Optimizer.model_validate(given)
