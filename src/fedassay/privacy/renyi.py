"""Rényi differential privacy: an upper bound on epsilon where privacy loss distributions do not compose.

It serves two kinds of steps: DP-SGD with too many steps for a privacy loss distribution, and batches of a fixed
size drawn without replacement, for which no tight accountant is known. Both are dp-accounting's: Mironov, Talwar
and Zhang, "Rényi Differential Privacy of the Sampled Gaussian Mechanism" (2019), and Wang, Balle and
Kasiviswanathan, "Subsampled Rényi Differential Privacy and Analytical Moments Accountant" (2019), theorem 27.

Two things dp-accounting does not do. Under replacement a sum moves by twice the clipping norm, so that its noise
multiplier is halved for batches without replacement. For Poisson sampling under replacement it has no bound: with
R the data set that lacks the record, and p = 2 in proposition 11 of Mironov, "Rényi Differential Privacy" (2017),

    D_a(P, Q) <= (a - 1/2) / (a - 1) D_2a(P, R) + D_2a-1(R, Q),

where both terms are the divergences of adding or removing the record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedassay.support.types import Matrix

if TYPE_CHECKING:
    from fedassay.privacy.events import SubsampledGaussianEvent


METHOD = "Rényi differential privacy, an upper bound"
"""The name of this accountant in words."""

_ORDERS: Matrix = np.concatenate(
    [np.arange(11, 110) / 10, np.arange(11.0, 65.0), [80.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0, 1024.0]]
)
_PARTS = 1_000_000_000
"""Records of the made-up data set that a share of it is taken of: the accountant asks for whole numbers."""


def epsilon_by_renyi(
    mu: float, pure: Sequence[float], sampled: Sequence[SubsampledGaussianEvent], delta: float
) -> float:
    """Epsilon at `delta` of Gaussians, pure events and steps of DP-SGD.

    Args:
        mu: Parameter mu of all Gaussians together.
        pure: Epsilons of the pure events; each is epsilon^2 / 2-zCDP (Bun and Steinke 2016, proposition 3.3).
        sampled: Steps of DP-SGD, of one member each.
        delta: Strictly between 0 and 1.

    Returns:
        An upper bound, the least over the orders.
    """
    from dp_accounting import rdp

    total = _ORDERS * mu**2 / 2
    for epsilon in pure:
        total = total + np.minimum(epsilon, _ORDERS * epsilon**2 / 2)
    for event in sampled:
        total = total + event.steps * _of_step(event)
    return max(0.0, float(rdp.compute_epsilon(_ORDERS, total, delta)[0]))


def _of_step(event: SubsampledGaussianEvent) -> Matrix:
    """The Rényi divergence of one step at every order; infinite where none is known."""
    noise, rate = event.noise_multiplier, event.sampling_rate
    if event.members > 1:
        # Records that are sampled one by one, as if all of them were in every batch.
        reach = event.members * (1.0 if event.adjacency == "add_remove" else 2.0) / noise
        return np.asarray(_ORDERS * reach**2 / 2)
    if event.sampling == "fixed_size":
        return _without_replacement(noise / 2, rate)
    if event.adjacency == "add_remove":
        return _poisson(noise, rate, _ORDERS)
    one, two = _poisson(noise, rate, 2 * _ORDERS), _poisson(noise, rate, 2 * _ORDERS - 1)
    return np.asarray((_ORDERS - 0.5) / (_ORDERS - 1) * one + two)


def _poisson(noise: float, rate: float, orders: Matrix) -> Matrix:
    import dp_accounting as dp

    event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise))
    return _of(event, dp.NeighboringRelation.ADD_OR_REMOVE_ONE, orders)


def _without_replacement(noise: float, rate: float) -> Matrix:
    import dp_accounting as dp

    size = max(1, math.ceil(rate * _PARTS))
    event = dp.SampledWithoutReplacementDpEvent(_PARTS, size, dp.GaussianDpEvent(noise))
    return _of(event, dp.NeighboringRelation.REPLACE_ONE, _ORDERS)


def _of(event: object, relation: object, orders: Matrix) -> Matrix:
    from dp_accounting import rdp

    accountant = rdp.RdpAccountant(orders.tolist(), relation)
    accountant.compose(event)
    return np.asarray(accountant._rdp, dtype=np.float64)
