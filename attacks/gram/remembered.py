"""Cache of factorizations by their inputs: audits' controls ask for the same client's statistics again.

Several audits compare one control client's records with its message, each in a release of its own, so that views
differ where this client's statistics do not. The result follows from the statistics, the number of vectors, the
random stream, the limits and the code. So it is computed once in a process, and where it is expensive, once for
all runs that share a cache. The entry there is private, since the vectors are records' features.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.attacks.gram.factorization import Factors
from fedassay.exchange.gram import Gram, Size
from fedassay.support.cache import cached_arrays
from fedassay.support.environment import code_digest
from fedassay.support.hashing import digest_arrays

Found = tuple[Size, Factors | None]

_DEAR = 32
"""Vectors from which on an answer is kept on disk; fewer are found anew in a tenth of a second or two."""

MOST_BYTES = 64 << 20
"""Bytes of vectors that are kept; those that were asked for longest ago go first."""

_kept: OrderedDict[str, Found] = OrderedDict()


def once(
    gram: Gram, size: Size, rng: np.random.Generator, limits: Mapping[str, int], make: Callable[[], Found]
) -> Found:
    """Return the result of `make`, or the one for equal arguments before.

    Args:
        gram: The statistics.
        size: Number of vectors.
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
        _kept[key] = make() if size.total < _DEAR else _of_all_runs(key, make)
        while len(_kept) > 1 and sum(map(_bytes, _kept.values())) > MOST_BYTES:
            _kept.popitem(last=False)
    counted, factors = _kept[key]
    return counted, None if factors is None else replace(factors, vectors=factors.vectors.copy())


def _of_all_runs(key: str, make: Callable[[], Found]) -> Found:
    """Return the result of `make`, or the one in an earlier run of the same code."""
    kept = cached_arrays(
        {"of": "gram factorization", "asked": key, "code": code_digest()}, lambda: _packed(make())
    )
    (size, factors), counts = json.loads(kept["facts"].tobytes()), kept["counts"]
    found = Size(counts=counts, **size)
    if factors is None:
        return found, None
    return found, Factors(kept["vectors"], kept["labels"], kept["agreement"], **factors)


def _packed(found: Found) -> dict[str, NDArray[Any]]:
    """An answer as arrays: those that it holds, and the rest as JSON."""
    size, factors = found
    facts: list[dict[str, Any] | None] = [
        {name: getattr(size, name) for name in ("rank", "total", "edge", "noise", "counted")},
        None if factors is None else {name: getattr(factors, name) for name in ("residual", "unit", "restarts")},
    ]
    arrays: dict[str, NDArray[Any]] = (
        {} if factors is None else {name: getattr(factors, name) for name in ("vectors", "labels", "agreement")}
    )
    text = np.frombuffer(json.dumps(facts, default=np.generic.item).encode(), np.uint8)
    return {**arrays, "counts": size.counts, "facts": text}


def forget() -> None:
    """Take this process for a new one: each test stands for a process of its own."""
    _kept.clear()


def _bytes(found: Found) -> int:
    _, factors = found
    return 0 if factors is None else factors.vectors.nbytes
