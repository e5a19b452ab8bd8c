"""Infer the classes of messages: their number from arrays and shapes, and their names where a head has some."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedassay.data.class_labels import WHOLE, spelled
from fedassay.exchange.kinds import FieldKind, called, facts_of
from fedassay.recorders.files.by_name import is_by_class
from fedassay.recorders.files.grouping import Array, Arrays
from fedassay.recorders.files.models import is_head, is_scaler
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.text import cut


def texts_of(sent: Mapping[tuple[int, str], Arrays]) -> dict[tuple[int, str], Array]:
    """Take texts out of messages of arrays, and return each message's names of classes."""
    found = {}
    for key, arrays in sent.items():
        for name in [name for name, array in arrays.items() if array.dtype.kind == "U"]:
            found[key] = arrays.pop(name)
    return found


def named(sent: Mapping[tuple[int, str], Arrays], texts: Mapping[tuple[int, str], Array]) -> tuple[str, ...]:
    """Number the classes of heads by their place among all that heads name, and return these names.

    Args:
        sent: The messages; the class numbers beside heads are replaced.
        texts: Names of their classes, where these are texts.

    Raises:
        DataError: A head names another number of classes than it has rows, or one class twice.
    """
    own: dict[tuple[int, str], list[str]] = {}
    for key, arrays in sent.items():
        if is_head(arrays) and ("head_classes" in arrays or key in texts):
            rows, given = len(arrays["bias"]), spelled(texts.get(key, arrays.get("head_classes", ()))).tolist()
            if len(set(given)) != len(given) or (rows, len(given)) not in {(len(given),) * 2, (1, 2)}:
                raise DataError(
                    f"the model has {rows} rows and names {len(given)} classes, {cut(', '.join(given), 100)}; "
                    "allowed: a class of its own for each row, or two for one row"
                )
            own[key] = given
    # Names are those of two classes at least: one of one row is that of the second class, or of the only one.
    if not own or min(map(len, own.values())) < 2:
        return ()
    first, *others = own.values()
    every = {name for names in own.values() for name in names}
    whole = all(WHOLE.fullmatch(name) for name in every)
    names = first if all(each == first for each in others) else sorted(every, key=int if whole else str)
    for key, given in own.items():
        sent[key]["head_classes"] = np.array([names.index(name) for name in given])
    return tuple(names)


def classes_of(sent: Mapping[tuple[int, str], Arrays], kinds: Mapping[str, FieldKind]) -> int:
    """Return the number of classes in messages; 1 where no array is by class.

    It is the first side of an array of a declared kind by class. Else it follows from class numbers and labels,
    from whole numbers beside a table of as many rows in every message, from a table beside a square matrix, or
    from the last row of a network.
    """
    messages = list(sent.values())
    declared = [
        array.shape[0]
        for arrays in messages
        for name, array in arrays.items()
        if array.ndim and name in kinds and facts_of(kinds[name]).first == "classes"
    ]
    if declared:
        return _bounded(max(declared))
    if messages and is_head(messages[0]):
        return _bounded(max(2, len(messages[0]["bias"])))
    if messages and is_scaler(messages[0]):
        return 1
    found = [_by_numbers(messages), _by_tables(messages), _by_network(messages, kinds)]
    return _bounded(next((number for number in found if number), 1))


def _bounded(number: int) -> int:
    return max(1, min(number, limits.CLASSES))


def _by_numbers(messages: list[Arrays]) -> int:
    """Infer the number of classes from whole numbers beside a table with as many rows; 0: undecided."""
    found, lengths, largest = 0, set(), 0
    labels = 0
    for arrays in messages:
        tables = {array.shape[0] for array in arrays.values() if array.ndim > 1}
        columns = {array.shape[1] for array in arrays.values() if array.ndim == 2}
        for name, array in arrays.items():
            whole = array.ndim == 1 and array.size and bool((array >= 0).all() and (array == np.rint(array)).all())
            if not whole or (array.dtype.kind == "f" and bool((array <= 1).all())):
                continue
            ids = (
                len(np.unique(array)) == array.size
                and bool((np.diff(array) > 0).all())
                and "id" in name.casefold()
            )
            if ids or "labels" in called(name):
                labels = max(labels, int(array.max()) + 1)
            elif array.shape[0] in tables or ("class_counts" in called(name) and array.shape[0] in columns):
                lengths.add(array.shape[0])
                largest = max(largest, int(array.max()) + 1)
                found = array.shape[0]
    if labels:
        return labels
    # As many in every message: counts of classes. Otherwise they are labels of records.
    return found if len(lengths) == 1 else largest if lengths else 0


def _by_tables(messages: list[Arrays]) -> int:
    """Infer it from a table, by rows or by columns, as wide as a square matrix beside it; 0: undecided."""
    for arrays in messages:
        sides = {
            array.shape[-1] for array in arrays.values() if array.ndim > 1 and array.shape[-1] == array.shape[-2]
        }
        for name, array in arrays.items():
            table = array.ndim == 2 and (array.shape[0] != array.shape[1] or is_by_class(name, array))
            if table and sides & set(array.shape):
                return int(array.shape[0] if array.shape[1] in sides else array.shape[1])
    return 0


def _by_network(messages: list[Arrays], kinds: Mapping[str, FieldKind]) -> int:
    """Infer it from the last table or row of a network, or from the rows of an only array; 0: undecided."""
    if not messages:
        return 0
    arrays = [array for name, array in messages[0].items() if array.ndim and kinds.get(name) != "features"]
    rows = [len(array) for array in arrays if array.ndim == 1]
    tables = [array for array in arrays if array.ndim >= 2]
    matching = [table.shape[0] for table in tables if table.shape[0] in rows]
    if matching:
        return int(matching[-1])
    if len(tables) == 1 and tables[0].ndim == 2 and tables[0].shape[0] != tables[0].shape[1]:
        return int(tables[0].shape[0])
    return 0
