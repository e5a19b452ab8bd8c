"""Noise that only a securely aggregated sum carries: fixed-point shares, and the cost of their rounding.

Each of I clients adds noise of scale sigma / sqrt(I) to its statistic, and the server sees only the sum of these
shares. A share that is rounded after its noise was added (float16, float32, even the last bits of float64) breaks
the analysis of the sum. In float16 with 100 clients and a count of 4,099 at a claimed epsilon of 1, the true delta
is .13. Shares are therefore fixed-point numbers. Statistic and noise are each rounded to multiples of one public
grid g before they are added; sums of such numbers are exact in float64 below 2^53 g, in any order, like integers.

The cost: rounding moves each of D coordinates of the statistic by at most g / 2. Neighbours at a distance of at
most Delta then differ by at most Delta + g sqrt(D), and the noise is calibrated to that. The noise is a sum of
rounded normals. By Poisson summation its probability at a multiple of g is that of the rounded sum of one normal
of scale sigma and I - 1 independent uniforms on [-g/2, g/2], up to terms of the order of exp(-(pi s / g)^2) for
shares of scale s; s / g is 2^8 or more, so that these are far below 10^-1000. Adding uniforms and rounding to the
grid of the statistic is post-processing of the Gaussian mechanism of scale sigma.

Shares are clipped to 2^52 g / I before the noise, which moves neighbours no further apart. No sum can therefore
leave the range of exact arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedassay.privacy.tape import Layout, NoiseSource
from fedassay.support.types import Matrix

_ROOM = 22
"""Shares may be as large as 2 to this power times the scale of the sum's noise before they are clipped."""

_LEAST = 8
"""Binary digits of a share's noise that the grid keeps, however many clients there are."""


@dataclass(frozen=True)
class SecureSum:
    """The division of a noise over the clients of a secure sum.

    Attributes:
        scale: Standard deviation on the sum.
        clients: I.
        grid: g, a power of two.
        sensitivity: Sensitivity of the rounded statistic, an upper bound.
    """

    scale: float
    clients: int
    grid: float
    sensitivity: float

    @property
    def note(self) -> str:
        """A remark for readers of the ledger."""
        return (
            "noise scale of the sum; each client adds a share of it: where g of I clients fail to add theirs, or "
            "tell it, mu grows by the root of I / (I - g); shares are rounded before the noise to multiples of "
            f"2^{int(math.log2(self.grid))}, which the sensitivity includes"
        )

    def shares(self, mechanism: NoiseSource) -> NoiseSource:
        """Return a source of a client's noise: a request for `scale` gets the client's share of it."""
        return _Shares(self, mechanism)


@dataclass(frozen=True)
class _Shares:
    """A `NoiseSource` that makes one client's shares of noised sums."""

    of: SecureSum
    mechanism: NoiseSource

    def add(
        self,
        part: str,
        exact: Matrix,
        scale: float,
        *,
        layout: Layout = "entries",
        grid: float = 0.0,
    ) -> Matrix:
        """See `NoiseSource`; a statistic without noise (scale 0) is returned as it is."""
        if not scale:
            return self.mechanism.add(part, exact, scale, layout=layout, grid=grid)
        limit = 2.0**52 * self.of.grid / self.of.clients
        share = scale / math.sqrt(self.of.clients)
        return self.mechanism.add(part, np.clip(exact, -limit, limit), share, layout=layout, grid=self.of.grid)


def secure_sum(
    sensitivity: float, coordinates: int, clients: int, scale_of: Callable[[float], float]
) -> SecureSum:
    """Divide a noise over the clients of a secure sum.

    Args:
        sensitivity: L2 sensitivity Delta of one client's statistic before rounding.
        coordinates: D, its entries, symmetric ones counted twice.
        clients: I.
        scale_of: From a sensitivity to the noise scale that it needs; not decreasing.
    """
    share = scale_of(sensitivity) / math.sqrt(clients)
    bits = max(_LEAST, math.floor(52 - _ROOM - 1.5 * math.log2(clients)))
    grid = 2.0 ** (math.floor(math.log2(share)) - bits)
    charged = sensitivity + grid * math.sqrt(coordinates)
    scale = scale_of(charged)
    return SecureSum(scale, clients, grid, charged)
