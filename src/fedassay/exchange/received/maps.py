"""Is a public map that a server sent drawn as it is said to be, and does it leave any two records alike?

- `law`: entries are not normal with the bandwidth that is stated, or with any; phases are not uniform (at .005).
- `sparse`: a column reads one coordinate more than a normal one does (at .005).
- `apart`: your records are no nearer to one another under the map than random vectors are, of 199 draws. An honest
  bandwidth, under which anything is alike, is not found.

Sums of random features are taken for their kernel. Where that is zero between any two records, they are no use to
learn from, and a sum holds every record apart from all others.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedassay.exchange.public_map import PublicMap
from fedassay.exchange.received.tested import DRAWS, LEVEL, Tested
from fedassay.support.types import Matrix

_ENTRIES = 50_000
_RECORDS = 300
"""Own records at most that are looked at."""
_FEWEST = 10
"""Own records at least, for their nearest to say anything."""


def check_map(
    name: str, known: PublicMap, own: Matrix, rng: np.random.Generator, bandwidth: float | None
) -> list[Tested]:
    """The tests of one map.

    Args:
        name: Of its matrix.
        known: The map.
        own: Features of the receiver's records, shape (n, w).
        rng: Source of randomness.
        bandwidth: As it is stated; None: not stated.
    """
    matrix = known.matrix.astype(np.float64)
    found = [_law(name, matrix, known.phases, rng, bandwidth), _sparse(name, matrix)]
    if known.phases is not None:
        rows = own if len(own) <= _RECORDS else own[np.sort(rng.permutation(len(own))[:_RECORDS])]
        found.append(_apart(name, known, rows, rng))
    return found


def _law(
    name: str,
    matrix: Matrix,
    phases: NDArray[np.float32] | None,
    rng: np.random.Generator,
    bandwidth: float | None,
) -> Tested:
    entries = matrix.ravel()
    scale = float(np.sqrt(np.mean(entries**2))) if bandwidth is None else 1 / bandwidth
    some = entries if len(entries) <= _ENTRIES else entries[rng.choice(len(entries), _ENTRIES, replace=False)]
    ps = [float(stats.kstest(some / max(scale, 1e-300), "norm").pvalue)]
    if bandwidth is not None:
        energy = float((entries**2).sum() * bandwidth**2)
        ps.append(2 * min(float(stats.chi2.cdf(energy, len(entries))), float(stats.chi2.sf(energy, len(entries)))))
    if phases is not None:
        ps.append(float(stats.kstest(phases.astype(np.float64), "uniform", (0, 2 * math.pi)).pvalue))
    p = min(1.0, len(ps) * min(ps))
    stated = "no bandwidth is stated" if bandwidth is None else f"a bandwidth of {bandwidth:g} is stated"
    seen = 1 / max(float(np.sqrt(np.mean(entries**2))), 1e-300)
    text = f"the map is {'not ' if p < LEVEL else ''}drawn as random features are: {stated}, it has {seen:.3g}"
    return Tested("law", name, p < LEVEL, p, text)


def _sparse(name: str, matrix: Matrix) -> Tested:
    width, count = matrix.shape
    energy = (matrix**2).sum(axis=0)
    share = float(np.max((matrix**2).max(axis=0) / np.maximum(energy, 1e-300)))
    # Of a normal column one coordinate's share is a Beta; all coordinates and columns are asked.
    p = min(1.0, width * count * float(stats.beta.sf(share, 0.5, (width - 1) / 2))) if width > 1 else 1.0
    text = f"a column reads one of {width} coordinates for {100 * share:.0f} % of what it reads"
    return Tested("sparse", name, p < LEVEL, p, text)


def _nearest(rows: Matrix) -> float:
    """Median over rows of the largest cosine to another one."""
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    products = units @ units.T
    np.fill_diagonal(products, -np.inf)
    return float(np.median(products.max(axis=1)))


def _apart(name: str, known: PublicMap, own: Matrix, rng: np.random.Generator) -> Tested:
    if len(own) < _FEWEST:
        text = f"{len(own)} records are too few to be compared; {_FEWEST} would do"
        return Tested("apart", name, False, None, text)
    value, size = _nearest(known(own)), known.matrix.shape[1]
    drawn = [_nearest(np.cos(rng.uniform(0, 2 * math.pi, (len(own), size)))) for _ in range(DRAWS)]
    text = (
        f"your records' nearest have a kernel of {value:.3f} under the map in the median, random vectors one of "
        f"{max(drawn):.3f} at most"
    )
    return Tested("apart", name, value <= max(drawn), None, text)
