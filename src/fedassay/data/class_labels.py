"""Labels of candidates, matched with the classes of messages: by name, by number, or by the order of rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.support.errors import DataError
from fedassay.support.text import cut
from fedassay.support.types import Ints

WHOLE = re.compile(r"([+-]?\d{1,18})(?:\.0*)?")
"""A class label that is a whole number, as text."""
_LISTED = 200
"""Letters of the names of classes that an error quotes."""


@dataclass(frozen=True)
class Classes:
    """Classes of messages, as far as labels are matched with them.

    Attributes:
        count: Their number C.
        names: Their names, as the messages say them; empty where they say none.
        ordered: Whether C different labels are the classes in sorted order, as scikit-learn sorts rows.
        read: Whether labels are read at all; else all are 0.
    """

    count: int
    names: tuple[str, ...] = ()
    ordered: bool = False
    read: bool = True

    def numbers(self, labels: NDArray[Any], where: str) -> Ints:
        """Return the class 0 to C - 1 of every label (n,), given as numbers or as texts.

        Raises:
            DataError: A label is no class of the messages.
        """
        if not self.read:
            return np.zeros(len(labels), np.int64)
        if labels.dtype == np.bool_ and "True" not in self.names:
            labels = labels.astype(np.int64)
        told, places = np.unique(spelled(labels), return_inverse=True)
        whole = all(WHOLE.fullmatch(each) for each in told)
        values = [int(each) for each in told] if whole else []
        within = whole and min(values) >= 0 and max(values) < self.count
        numbered = [not WHOLE.fullmatch(name) for name in self.names]
        if self.names and set(told) <= set(self.names):
            values = [self.names.index(each) for each in told]
        elif self.names and not (within and all(numbered)):
            strange = ", ".join(each for each in told if each not in self.names)
            raise DataError(
                f"{where}: labels {cut(strange, _LISTED)}, which are no classes of the model; allowed: "
                f"{cut(', '.join(self.names), _LISTED)}"
            )
        elif not within:
            if not self.ordered or len(told) != self.count:
                said = f"from {min(values)} to {max(values)}" if whole else cut(", ".join(told), _LISTED)
                raise DataError(f"{where}: labels {said}; allowed: 0 to {self.count - 1}, as sent")
            values = np.argsort(np.argsort(values if whole else told)).tolist()
        return np.asarray(values, np.int64)[places]


def spelled(values: NDArray[Any] | Sequence[Any]) -> NDArray[np.str_]:
    """Return class labels or names as texts: 3, 3.0 and "3" are one class."""
    given = np.asarray(values).ravel()
    if given.dtype.kind == "S":
        given = np.char.decode(given, "utf-8", "replace")
    texts = [str(each).strip() for each in given.tolist()]
    return np.array([str(int(found[1])) if (found := WHOLE.fullmatch(each)) else each for each in texts], np.str_)
