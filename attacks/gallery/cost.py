"""Expected time and memory of the gallery's solves, before a run and while it goes on.

Candidates together take the smaller of two kernels, of the candidates or of their equations; where neither fits,
they take conjugate gradients. A plan does not say which equations the messages of its methods hold: those of class
sums and of a second moment are assumed.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedassay.attacks.gallery.iterating import COLUMNS, operations_of
from fedassay.attacks.gallery.iterating import operations as operations_of_steps
from fedassay.attacks.gallery.solving import DENSE
from fedassay.contracts.facts import Given
from fedassay.contracts.sizes import Load, Sizes
from fedassay.exchange.blocks import LinearBlock
from fedassay.plan import rates as rate

_LARGE = 2.0
"""Ratio of the speeds of products of thousands of candidates and of networks in training, in operations."""
_COPIES = 6
"""Copies of the candidates' features: as given, as summed, and weighted for two sums in two systems."""


def seconds(given: Given, sizes: Sizes, load: Load) -> float:
    """Estimate the time of an audit's questions over the cells of a seed."""
    # A kernel and its factor for every sender, in each of the audit's questions.
    size, equations = _sizes(sizes)
    if equations < size and equations <= DENSE:
        return float(load.cells * 2 * seconds_of(size * float(equations) ** 2))
    if size > DENSE:
        return load.cells * seconds_of(operations_of(size, 4.0 * sizes.width**2, 2.0 * sizes.width))
    return float(load.cells * size**2 * (sizes.width + size / 3) / rate.DENSE_FLOPS)


def held(given: Given, sizes: Sizes) -> float:
    """Estimate the bytes of the candidates' features and of a kernel, or of what steps without one take."""
    size, equations = _sizes(sizes)
    features = 8.0 * _COPIES * size * sizes.width
    if min(size, equations) <= DENSE:
        return features + 8.0 * min(size, equations) ** 2
    return features + 4.0 * size * COLUMNS + 16.0 * COLUMNS**2


def seconds_of(operations: float) -> float:
    """Return the time of operations on thousands of candidates."""
    return operations / (_LARGE * rate.DENSE_FLOPS)


def solves(size: int, blocks: Sequence[LinearBlock]) -> tuple[float, bool]:
    """Return the operations of the solves for candidates, and whether three times as many may follow.

    Returns:
        0 where candidates are few, or are solved for class by class.
    """
    if size <= DENSE or all(block.by_class for block in blocks):
        return 0.0, False
    equations = sum(block.equations for block in blocks)
    noised = any(bool((block.noise > 0).any()) for block in blocks)
    # With decoys and without, and exactly before them, which is usually enough where weights are determined.
    if equations < size:
        one = size * float(equations) ** 2 if equations <= DENSE else operations_of_steps(size, blocks)
        return (2 if noised else 3) * one, False
    return (2 if noised else 1) * operations_of_steps(size, blocks), not noised


def _sizes(sizes: Sizes) -> tuple[int, int]:
    """Return the numbers of candidates and of equations."""
    width = sizes.width
    return 2 * sizes.private, width * (width + 1) // 2 + sizes.classes * (width + 1)
