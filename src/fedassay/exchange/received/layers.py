"""Is a layer that a server sent a trap for the records of whoever received it?

A gradient of a layer W x + b behind which a rectifier stands gives a record away that is alone: alone in switching
a unit on (Boenisch et al. 2021), or alone between the thresholds of two units that ask the same question (Fowl et
al. 2022). Whoever holds records and the layer can count how many of its own would be.

- `law`: entries are drawn as no initialisation by name draws them (`fedassay.exchange.received.initial`); asked
  where the layer is said to be fresh.
- `one question`: three or more rows are parallel. Random rows of 8 numbers or more never are.
- `alone`: more of the own records are alone than in any of 199 fresh layers. An honest fresh layer is found with a
  probability of .005; those that were trained leave fewer alone.

A layer that passes may still be a trap for other records, or of a kind that is not looked for.
"""

from __future__ import annotations

import numpy as np

from fedassay.exchange.received.initial import drawn_as
from fedassay.exchange.received.tested import DRAWS, LEVEL, Tested, p_of
from fedassay.support.types import Bools, Ints, Matrix

PARALLEL = 1e-4
"""Rows are parallel if the absolute cosine is within this of 1."""
FEWEST = 3
_NARROW = 8
"""Rows of fewer numbers may be parallel by chance."""
_ENTRIES = 50_000
"""Entries at most that a law is tested on, drawn at random."""
_RECORDS = 200
"""Own records at most that are looked at."""


def check_layer(
    name: str, weights: Matrix, bias: Matrix, own: Matrix, rng: np.random.Generator, *, fresh: bool
) -> list[Tested]:
    """The tests of one layer.

    Args:
        name: Of the layer.
        weights: W, shape (H, d).
        bias: b, shape (H,).
        own: Inputs that the layer has of the receiver's records, shape (n, d).
        rng: Source of randomness.
        fresh: Whether it is said to be freshly initialised.
    """
    found = [_law(name, weights, bias, rng)] if fresh else []
    rows = own if len(own) <= _RECORDS else own[np.sort(rng.permutation(len(own))[:_RECORDS])]
    return [*found, _one_question(name, weights), _alone(name, weights, bias, rows, rng)]


def _law(name: str, weights: Matrix, bias: Matrix, rng: np.random.Generator) -> Tested:
    if weights.size > _ENTRIES:
        # Whole rows, by which orthogonal ones are known.
        kept = rng.choice(len(weights), max(1, _ENTRIES // weights.shape[1]), replace=False)
    else:
        kept = np.arange(len(weights))
    p, words = drawn_as(weights, weights[kept].ravel()[:_ENTRIES], bias)
    if p < LEVEL:
        text = f"weights or biases are drawn as no initialisation by name draws them; the nearest: {words}"
    else:
        text = f"weights and biases are drawn as a fresh layer's: {words}"
    return Tested("law", name, p < LEVEL, p, text)


def parallel_rows(weights: Matrix) -> Ints:
    """Positions of the largest set of rows that are parallel to one of them, which is among them."""
    norms = np.linalg.norm(weights, axis=1)
    live = np.flatnonzero(norms > 1e-6 * norms.max(initial=0.0))
    if not len(live):
        return live.astype(np.int64)
    units = weights[live] / norms[live, None]
    alike = units @ units.T > 1 - PARALLEL
    return np.asarray(live[alike[int(alike.sum(axis=1).argmax())]], np.int64)


def _one_question(name: str, weights: Matrix) -> Tested:
    count = len(parallel_rows(weights))
    found = count >= FEWEST and weights.shape[1] >= _NARROW
    if found:
        text = f"{count} of {len(weights)} units ask one question at different thresholds"
    else:
        text = "no two units ask the same question" if count < 2 else f"{count} units ask the same question"
    return Tested("one question", name, found, None, text)


def alone(weights: Matrix, bias: Matrix, own: Matrix) -> Bools:
    """Whether each record alone activates a unit or lies between thresholds of parallel units, shape (n,)."""
    found = _alone_in_a_unit(own @ weights.T + bias > 0)
    rows = parallel_rows(weights)
    if len(rows) >= FEWEST:
        direction = weights[rows[0]] / np.linalg.norm(weights[rows[0]])
        sizes = weights[rows] @ direction
        place = np.searchsorted(np.sort(-bias[rows] / sizes), own @ direction)
        counts = np.bincount(place, minlength=len(rows) + 1)
        # Below the lowest threshold no unit is on.
        found |= (counts[place] == 1) & (place > 0)
    return found


def _alone_in_a_unit(on: Bools) -> Bools:
    return np.asarray(on[:, on.sum(axis=0) == 1].any(axis=1))


def _alone(name: str, weights: Matrix, bias: Matrix, own: Matrix, rng: np.random.Generator) -> Tested:
    count = int(alone(weights, bias, own).sum())
    size, bound = len(bias), 1 / np.sqrt(weights.shape[1])
    # Sums of many uniform entries are normal, with the covariance that the records have: no layer is drawn.
    values, vectors = np.linalg.eigh(own @ own.T / (3 * weights.shape[1]))
    root = vectors * np.sqrt(np.maximum(values, 0))
    drawn = [
        int(
            _alone_in_a_unit(
                root @ rng.standard_normal((len(own), size)) + rng.uniform(-bound, bound, size) > 0
            ).sum()
        )
        for _ in range(DRAWS)
    ]
    p = p_of(int(np.sum(np.array(drawn) >= count)))
    on = (own @ weights.T + bias > 0).mean(axis=0)
    live = on[on > 0]
    share = f"{100 * float(np.median(live)):.0f} %" if len(live) else "none"
    text = (
        f"{count} of {len(own)} of your records would be alone in a gradient, at most {max(drawn)} in {DRAWS} "
        f"fresh layers; half of the units are on for {share} of them or fewer"
    )
    return Tested("alone", name, p <= LEVEL, p, text)
