"""The linear head that a message carries, as whoever receives the message reads it."""

from __future__ import annotations

import numpy as np

from fedassay.exchange.message import Message
from fedassay.heads.linear import LinearHead


def head_in(message: Message) -> LinearHead | None:
    """A matrix and a vector of kind `head` with one row and one number a class; None where there are none.

    A field of class numbers (`head_classes`) names the classes of the rows; without it, rows are all classes.
    """
    fields = [item.values for item in message.fields.values() if item.kind == "head"]
    matrices, vectors = [each for each in fields if each.ndim == 2], [each for each in fields if each.ndim == 1]
    if len(matrices) != 1 or len(vectors) != 1 or len(vectors[0]) != len(matrices[0]):
        return None
    named = message.fields.get("head_classes")
    classes = np.arange(len(matrices[0])) if named is None else named.values.astype(np.int64)
    if classes.shape != vectors[0].shape:
        return None
    return LinearHead(classes, matrices[0].astype(np.float64), vectors[0].astype(np.float64))
