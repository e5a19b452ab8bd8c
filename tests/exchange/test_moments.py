"""What a vector and a matrix beside a count are, by ranks and by the bounds of features that are not negative."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.exchange.inference.moments import Block, meanings_of


def _features(seed: int, shift: float, width: int = 20) -> np.ndarray:
    return np.maximum(np.random.default_rng(seed).normal(size=(9, width)) + shift, 0)


def _matrix(features: np.ndarray, what: str) -> np.ndarray:
    centred = features - features.mean(axis=0)
    return {
        "second moment": features.T @ features,
        "mean second moment": features.T @ features / len(features),
        "scatter": centred.T @ centred,
        "covariance": np.cov(features.T),
    }[what]


@pytest.mark.parametrize("row", ["sum", "mean"])
@pytest.mark.parametrize("what", ["second moment", "mean second moment"])
def test_ranks_tell_sums_and_means_beside_second_moments(row: str, what: str) -> None:
    for seed in range(5):
        own = _features(seed, 0.2)
        vector = own.sum(axis=0) if row == "sum" else own.mean(axis=0)
        (found,) = meanings_of([Block(9, vector, _matrix(own, what))], 1e-16)
        assert (found.row, found.matrix) == (row, what)


def test_sparse_features_tell_a_covariance_from_a_scatter() -> None:
    """A feature that one record alone has reaches the bound, so that a scatter is no covariance of that mean."""
    for seed in range(5):
        own = _features(seed, -0.5, 60)
        blocks = [Block(9, own.mean(axis=0), _matrix(own, what)) for what in ("covariance", "scatter")]
        readings = [{(each.row, each.matrix) for each in meanings_of([block], 1e-16)} for block in blocks]
        assert ("mean", "covariance") in readings[0]
        assert ("sum", "scatter") not in readings[0]
        assert ("mean", "covariance") not in readings[1]
        assert ("mean", "scatter") in readings[1]


def test_other_records_and_too_few_give_no_reading() -> None:
    own, other = _features(0, 0.2), _features(1, 0.2)
    assert meanings_of([Block(9, other.mean(axis=0), _matrix(own, "second moment"))], 1e-16) == ()
    assert meanings_of([Block(7, own.mean(axis=0), _matrix(own, "covariance"))], 1e-16) == ()
    assert meanings_of([Block(1, own[0], np.outer(own[0], own[0]))], 1e-16) == ()
