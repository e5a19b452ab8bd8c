"""The noise of private training: a shadow has the law of what is published."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.privacy.tape import Key
from fedassay.support.seeds import Seeds

PUBLISHED = TrainingMechanism(Seeds(0).child("noise"), Seeds(0).child("coins"), Key("client/0", 0, "weights"))
SHADOW = replace(PUBLISHED, shadow=True)


def _zeros() -> dict[str, Tensor]:
    return {"weight": torch.zeros(200, 30), "bias": torch.zeros(30)}


def _noise(mechanism: TrainingMechanism, steps: int = 8, deviation: float = 0.7) -> np.ndarray:
    drawn = (mechanism.noised(step, _zeros(), deviation) for step in range(steps))
    return np.stack([np.concatenate([each.double().numpy().ravel() for each in own.values()]) for own in drawn])


@pytest.mark.long
@pytest.mark.parametrize("mechanism", [PUBLISHED, SHADOW], ids=["published", "shadow"])
def test_noise_is_normal_and_new_in_every_step(mechanism: TrainingMechanism) -> None:
    noise = _noise(mechanism) / 0.7
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-3
    correlations = np.corrcoef(noise)[np.triu_indices(len(noise), 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(noise.shape[1])
    # Nor do entries follow each other within a step.
    assert abs(np.corrcoef(noise[:, :-1].ravel(), noise[:, 1:].ravel())[0, 1]) < 4.5 / np.sqrt(noise.size)


@pytest.mark.parametrize("mechanism", [PUBLISHED, SHADOW], ids=["published", "shadow"])
def test_noise_is_of_its_key_alone_and_is_added(mechanism: TrainingMechanism) -> None:
    sums = {name: torch.full_like(each, 5.0) for name, each in _zeros().items()}
    first, moved = mechanism.noised(3, _zeros(), 1.0), mechanism.noised(3, sums, 1.0)
    for name, each in first.items():
        torch.testing.assert_close(moved[name], each + 5.0, rtol=0, atol=1e-5)
        assert not sums[name].sub(5.0).any(), "what went in was changed"
    others = (
        replace(mechanism, key=replace(mechanism.key, sender="client/1")).noised(3, _zeros(), 1.0),
        replace(mechanism, noise=Seeds(1)).noised(3, _zeros(), 1.0),
        mechanism.noised(4, _zeros(), 1.0),
    )
    assert all(not torch.equal(first["weight"], other["weight"]) for other in others)


def test_only_a_shadow_is_float32() -> None:
    assert {each.dtype for each in PUBLISHED.noised(0, _zeros(), 1.0).values()} == {torch.float64}
    assert {each.dtype for each in SHADOW.noised(0, _zeros(), 1.0).values()} == {torch.float32}


def test_parameters_of_one_step_do_not_share_noise() -> None:
    alike = {"a": torch.zeros(40, 40), "b": torch.zeros(40, 40)}
    noised = SHADOW.noised(0, alike, 1.0)
    assert abs(np.corrcoef(noised["a"].ravel(), noised["b"].ravel())[0, 1]) < 4.5 / 40
