"""Rules for the attacker's statements, fixed before any truth was seen.

- `whole`: every weight lies within a quarter of a possible whole number, and no other weights reproduce the
  message. The residual of the rounded weights is less than half of one record, or than rounding in transport
  explains. A gallery without the members gives weights anywhere and a residual of many records.
- `in_part`: the same for a class, or for a component of a mixture, where each is a sum by itself.
- `named`: the candidates with the largest weights, down to where the share of decoys among them shows that one in
  a hundred may be wrong. Decoys are records that the attacker knows to be in no message. They are solved for like
  candidates, so that a candidate that is no member ranks like them (Barber and Candes 2015, with their one added
  to the count).
"""

from __future__ import annotations

import numpy as np

from fedassay.attacks.gallery.solving import Solved
from fedassay.attacks.gallery.system import System
from fedassay.support.types import Bools, Ints, Matrix

TOLERANCE = 0.25
"""Largest distance of a weight from a whole number."""
RATE = 0.01
"""Largest share of false discoveries among the named."""
_HALF = 0.25
"""Largest squared length of the residual, in records."""
_ROUNDED = 4.0
"""Largest squared length of the residual, relative to that of rounding alone."""


def whole(system: System, solved: Solved, copies: Ints, *, changes: bool = False) -> bool:
    """Whether the weights certify themselves: whole, unique, and with a residual below half a record.

    Args:
        system: The equations.
        solved: Their exact solution.
        copies: Number of equal candidates behind each weight, shape (N,).
        changes: Whether weights are of records that joined less those that left, possibly none.
    """
    near = np.rint(solved.weights)
    if _undecided(solved, copies, changes).any() or not (changes or near.any()):
        return False
    left, rounded = system.left_by_sum(near)
    allowed = max(_HALF * float(np.median(system.lengths())), _ROUNDED * float(rounded.sum()))
    return float(left.sum()) <= allowed


def in_part(system: System, solved: Solved, copies: Ints) -> Bools:
    """Whether each candidate is in a class, or component, that is explained by itself, shape (N,); see `whole`."""
    found = ~_undecided(solved, copies, changes=False)
    if not system.separate:
        return np.zeros(system.size, np.bool_)
    left, rounded = system.left_by_sum(np.rint(solved.weights))
    lengths = system.lengths()
    for place in np.unique(system.labels):
        own = system.labels == place
        allowed = max(_HALF * float(np.median(lengths[own])), _ROUNDED * float(rounded[place]))
        found[own] = found[own].all() and float(left[place]) <= allowed
    return found


def _undecided(solved: Solved, copies: Ints, changes: bool) -> Bools:
    """Whether each weight is not unique or not near a possible whole number, shape (N,)."""
    near = np.rint(solved.weights)
    impossible = (near < (-copies if changes else 0)) | (near > copies)
    return np.asarray(~solved.unique | (np.abs(solved.weights - near) > TOLERANCE) | impossible)


def named(weights: Matrix, decoys: Bools) -> Bools:
    """Select the candidates to name at a false-discovery rate of `RATE`, shape (N,); decoys are never named.

    Args:
        weights: Weights of candidates and decoys, shape (N,).
        decoys: Whether each is a decoy, shape (N,).
    """
    chosen = np.zeros(len(weights), np.bool_)
    absent = int(decoys.sum())
    if not absent or decoys.all():
        return chosen
    # It is assumed that no candidate may be a member: with an estimated share 1.9 % of names were wrong, not 1 %.
    others = int((~decoys).sum())
    # Where weights are equal, the decoy counts first.
    order = np.lexsort((~decoys, -weights))
    wrong, right = np.cumsum(decoys[order]), np.cumsum(~decoys[order])
    rate = (1 + wrong) / np.maximum(right, 1) * max(1.0, others / absent)
    below = np.flatnonzero(rate <= RATE)
    if below.size:
        top = order[: below[-1] + 1]
        chosen[top[~decoys[top]]] = True
    return chosen
