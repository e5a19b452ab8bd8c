"""Does a backbone that a server sent hold the records of whoever received it apart?

Features are sent in sums, by class. A backbone that is of use makes records of one class alike. Under one that
puts each into a cell of its own (`fedassay.nets.cells`), or gives most of them no features at all, sums are lists.

- `held apart`: one in ten of the own records, or more, has features at right angles (cosine below .1) to those of
  every other own record of its class, or has none.

No layer is looked at, so that it does not matter what the network is made of. A server that adds such cells to
what an honest backbone gives is not found by this test.
"""

from __future__ import annotations

import numpy as np

from fedassay.exchange.received.tested import Tested
from fedassay.support.types import Ints, Matrix

_SHARE = 0.1
_ANGLE = 0.1
_FEWEST = 10
"""Own records at least that have others of their class."""


def check_features(features: Matrix, labels: Ints) -> Tested:
    """The test.

    Args:
        features: Of the own records under what was received, shape (n, d).
        labels: Of these records, shape (n,).
    """
    norms = np.linalg.norm(features, axis=1)
    units = features / np.maximum(norms, 1e-300)[:, None]
    cosines = np.where(labels[:, None] == labels[None], np.abs(units @ units.T), -1.0)
    np.fill_diagonal(cosines, -1.0)
    nearest = cosines.max(axis=1)
    asked = nearest >= 0
    count, of = int((nearest[asked] < _ANGLE).sum()), int(asked.sum())
    if of < _FEWEST:
        text = f"{of} of your records have others of their class; {_FEWEST} would do"
        return Tested("held apart", "features", False, None, text)
    text = (
        f"{count} of {of} of your records have features at right angles to all others of their class, "
        f"{int((norms[asked] == 0).sum())} have none"
    )
    return Tested("held apart", "features", count >= _SHARE * of, None, text)
