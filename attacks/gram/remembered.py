"""What factorizations found, by what they were asked: audits' controls ask of the same client's statistics again.

Several audits hold one control client's records against what its message gives away, each in a release of its own,
so that views differ where this client's statistics do not. What comes out follows from the statistics, how many
vectors there are, the random stream and the limits; so it is computed once in a process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from fedassay.attacks.gram.factorization import Factors
from fedassay.exchange.gram import Gram, Size
from fedassay.support.hashing import digest_arrays

Found = tuple[Size, Factors | None]

MOST_BYTES = 64 << 20
"""Bytes of vectors that are kept; those that were asked for longest ago go first."""

_kept: OrderedDict[str, Found] = OrderedDict()


def once(
    gram: Gram, size: Size, rng: np.random.Generator, limits: Mapping[str, int], make: Callable[[], Found]
) -> Found:
    """What `make` returns, or returned for equal arguments before.

    Args:
        gram: The statistics.
        size: How many vectors there are.
        rng: A stream from which nothing was drawn for other purposes; where the answer is kept, nothing is drawn.
        limits: Everything else that the answer depends on.
        make: Computes it.
    """
    arrays = {"second": gram.second, "sums": gram.sums, "counts": gram.counts, "sizes": size.counts}
    known = {name: array for name, array in arrays.items() if array is not None}
    asked = (gram.unit, gram.noise, replace(size, counts=np.zeros(0, np.int64)), sorted(limits.items()))
    key = f"{digest_arrays(known | {'labels': gram.labels})}/{asked}/{rng.bit_generator.state}"
    if key in _kept:
        _kept.move_to_end(key)
    else:
        _kept[key] = make()
        while len(_kept) > 1 and sum(map(_bytes, _kept.values())) > MOST_BYTES:
            _kept.popitem(last=False)
    counted, factors = _kept[key]
    return counted, None if factors is None else replace(factors, vectors=factors.vectors.copy())


def forget() -> None:
    """Take this process for a new one: for tests, each of which stands for a process of its own."""
    _kept.clear()


def _bytes(found: Found) -> int:
    _, factors = found
    return 0 if factors is None else factors.vectors.nbytes
