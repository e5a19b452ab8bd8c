"""What an attacker may say it knows, by rules that were fixed before any truth was seen.

- `whole`: every weight lies within a quarter of a whole number that it can be, no other weights reproduce the
  message, and what the rounded weights leave of it is less than half of one record, or than rounding in
  transport explains. A gallery that does not hold the members gives weights all over the line and leaves many
  records' worth.
- `in_part`: the same of a class, or of a component of a mixture, where each is a sum by itself.
- `named`: those with the largest weights, down to where the share of decoys among them says that one in a hundred
  may be wrong. Decoys are records that the attacker knows to be in no message; they are solved for like
  candidates, so that a candidate that is no member ranks like them (Barber and Candes 2015, with their one added
  to the count).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedassay.attacks.gallery.solving import Solved
from fedassay.attacks.gallery.system import System
from fedassay.support.types import Bools, Ints

Matrix = NDArray[np.float64]

TOLERANCE = 0.25
"""How far a weight may be from a whole one."""
RATE = 0.01
"""False discoveries among the named, at most."""
_HALF = 0.25
"""Squared length of what may be left, in records."""
_ROUNDED = 4.0
"""Squared length of what may be left, over what rounding alone leaves."""


def whole(system: System, solved: Solved, copies: Ints, *, changes: bool = False) -> bool:
    """Whether the weights certify themselves.

    Args:
        system: The equations.
        solved: Its weights.
        copies: How many equal candidates each weight stands for, shape (N,).
        changes: Whether weights are of who joined less who left, possibly nobody.
    """
    near = np.rint(solved.weights)
    if _undecided(solved, copies, changes).any() or not (changes or near.any()):
        return False
    left, rounded = system.left_by_sum(near)
    allowed = max(_HALF * float(np.median(system.lengths())), _ROUNDED * float(rounded.sum()))
    return float(left.sum()) <= allowed


def in_part(system: System, solved: Solved, copies: Ints) -> Bools:
    """Candidates of the classes, or components, that are explained by themselves, shape (N,); see `whole`."""
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
    """Weights that are no whole number that they can be, or not the only ones, shape (N,)."""
    near = np.rint(solved.weights)
    impossible = (near < (-copies if changes else 0)) | (near > copies)
    return np.asarray(~solved.unique | (np.abs(solved.weights - near) > TOLERANCE) | impossible)


def named(weights: Matrix, decoys: Bools) -> Bools:
    """Which candidates are named at a false-discovery rate of `RATE`, shape (N,); decoys never are.

    Args:
        weights: Of candidates and decoys, shape (N,).
        decoys: Which are decoys, shape (N,).
    """
    chosen = np.zeros(len(weights), np.bool_)
    absent = int(decoys.sum())
    if not absent or decoys.all():
        return chosen
    # All candidates may be no members: an estimate of how many are was wrong in 1.9 % of names where 1 % is said.
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
