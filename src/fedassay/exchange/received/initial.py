"""Whether a layer's entries are drawn as a fresh layer's are, by any initialisation that has a name.

| name | weights, of d inputs and H units | source |
|---|---|---|
| PyTorch's default | uniform on +-sqrt(1/d) | `torch.nn.Linear.reset_parameters` |
| He | uniform on +-sqrt(6/d), or normal, deviation sqrt(2/d) | He et al., "Delving Deep into Rectifiers" (2015) |
| Glorot | uniform on +-sqrt(6/(d+H)), or normal, deviation sqrt(2/(d+H)) | Glorot and Bengio (2010) |
| LeCun | uniform on +-sqrt(3/d), or normal, deviation sqrt(1/d) | LeCun et al., "Efficient BackProp" (1998) |
| orthogonal | rows, or columns, at right angles and of one length | Saxe et al. (2014) |

Normal ones may be cut at two deviations, as JAX and TensorFlow cut them. Any of them may be scaled by one number,
which the words say. Biases are all equal, or uniform on +-sqrt(1/d), scaled as the weights are or not at all.
Entries are held against a law by the test of Kolmogorov and Smirnov; where the scale is fitted, its p-values are
larger than they would be for the true scale, so that no honest layer is found for that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from fedassay.support.types import Matrix

_LIKE = 0.05
"""A scale is called by a name that it differs from by less; that of 1,000 entries varies by .02."""
_SQUARE = 1e-3
"""Rows are at right angles, and of one length, within this share."""
_ROWS = 512
"""Rows at most that are compared for being at right angles."""
_CUT = 2.0
"""Deviations at which normal entries may be cut."""


@dataclass(frozen=True)
class Law:
    """One law that entries may be drawn from.

    Attributes:
        words: It, with the initialisation that draws so.
        p: The p-value of the entries.
        bound: Of uniform entries; None for others.
    """

    words: str
    p: float
    bound: float | None = None


def drawn_as(weights: Matrix, entries: Matrix, bias: Matrix) -> tuple[float, str]:
    """The p-value of a layer under the initialisation that fits it best, and what that is in words.

    Args:
        weights: W, shape (H, d).
        entries: Some of its entries, drawn at random, shape (n,).
        bias: b, shape (H,).
    """
    fits = max(_laws(weights, entries), key=lambda law: law.p)
    default = 1 / math.sqrt(weights.shape[1])
    bounds = {default, default if fits.bound is None else fits.bound}
    of_bias = 1.0 if np.ptp(bias) == 0 else max(_uniform(bias, bound) for bound in bounds)
    return min(1.0, 2 * min(fits.p, of_bias)), fits.words


def _laws(weights: Matrix, entries: Matrix) -> Iterator[Law]:
    """Every law, at the scale that the entries have."""
    units, inputs = weights.shape
    if _orthogonal(weights):
        yield Law("orthogonal", 1.0)
    default = 1 / math.sqrt(inputs)
    both = 1 / math.sqrt(inputs + units)
    largest = float(abs(entries).max(initial=0.0)) * (len(entries) + 1) / len(entries)
    deviation = math.sqrt(float(np.mean(entries**2)))
    if not deviation:
        return
    bounds = {"PyTorch's default": default, "He's": 6**0.5 * default, "LeCun's": 3**0.5 * default}
    bounds["Glorot's"] = 6**0.5 * both
    words = f"uniform on +-{largest:.3g}, {_named(largest, bounds)}"
    yield Law(words, _uniform(entries, largest), largest)
    deviations = {"He's": 2**0.5 * default, "LeCun's": default, "Glorot's": 2**0.5 * both}
    words = f"normal of deviation {deviation:.3g}, {_named(deviation, deviations)}"
    yield Law(words, float(stats.kstest(entries, "norm", (0.0, deviation)).pvalue))
    uncut = deviation / float(stats.truncnorm.std(-_CUT, _CUT))
    cut = float(stats.kstest(entries, "truncnorm", (-_CUT, _CUT, 0.0, uncut)).pvalue)
    yield Law(f"{words}, cut at {_CUT:g} deviations", cut)


def _uniform(values: Matrix, bound: float) -> float:
    return float(stats.kstest(values, "uniform", (-bound, 2 * bound)).pvalue)


def _named(scale: float, names: Mapping[str, float]) -> str:
    """The initialisation of nearly that scale, or how far it is from the first of them."""
    name = min(names, key=lambda each: abs(math.log(scale / names[each])))
    if abs(scale / names[name] - 1) < _LIKE:
        return name
    first = next(iter(names))
    return f"{scale / names[first]:.3g} times {first}"


def _orthogonal(weights: Matrix) -> bool:
    """Whether rows, or columns where there are fewer of them, are at right angles and of one length."""
    rows = (weights if len(weights) <= weights.shape[1] else weights.T)[:_ROWS]
    products = rows @ rows.T
    length = float(np.trace(products)) / len(rows)
    return length > 0 and float(abs(products / length - np.eye(len(rows))).max()) < _SQUARE
