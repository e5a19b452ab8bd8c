"""The linear head, and the scaler before it, that a message carries, as whoever receives the message reads them.

This is where a head enters from anywhere, a file of somebody's model among others: one message of a client with

| field's kind | shape | scikit-learn |
|---|---|---|
| `head` | (C, d), or (1, d) of two classes | `coef_` |
| `head` | (C,), or (1,) | `intercept_` |
| `other`, named `head_classes` | (C,) | `classes_`; without it 0 to C - 1 |
| `scaler_mean` | (d,) | `mean_` |
| `scaler_variance` | (d,) | `var_` |
| `scaler_count` | (1,) | `n_samples_seen_`; may be missing |

The head stands without a scaler where features enter it as they are, and the scaler without a head where that is
all that is published. The attack `gallery` reads both, and finds out what a head solves that no method made.
"""

from __future__ import annotations

import numpy as np

from fedassay.exchange.message import Message
from fedassay.heads.linear import LinearHead
from fedassay.heads.penalised import head_of
from fedassay.heads.scaler import Scaler


def head_in(message: Message) -> LinearHead | None:
    """A matrix and a vector of kind `head` with one row and one number a class; None where there are none.

    A field of class numbers (`head_classes`) names the classes of the rows; without it, rows are all classes. One
    row is the second of two classes against the first, unless its one class is named.
    """
    fields = [item.values for item in message.fields.values() if item.kind == "head"]
    matrices, vectors = [each for each in fields if each.ndim == 2], [each for each in fields if each.ndim == 1]
    if len(matrices) != 1 or len(vectors) != 1 or len(vectors[0]) != len(matrices[0]):
        return None
    rows, named = len(matrices[0]), message.fields.get("head_classes")
    classes = np.arange(max(rows, 2)) if named is None else named.values.astype(np.int64)
    if classes.shape != vectors[0].shape and (rows, len(classes)) != (1, 2):
        return None
    return head_of(matrices[0], vectors[0], classes)


def scaler_in(message: Message) -> Scaler | None:
    """Read the scaler that standardises features from the message; None where it has none."""
    mean, variance = message.of_kind("scaler_mean"), message.of_kind("scaler_variance")
    if mean is None or variance is None or mean.ndim != 1 or mean.shape != variance.shape:
        return None
    count = message.of_kind("scaler_count")
    many = None if count is None or count.size != 1 else int(np.asarray(count).item())
    return Scaler(mean.astype(np.float64), variance.astype(np.float64), many)
