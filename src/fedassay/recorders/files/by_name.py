"""Kinds of fields of files by their names, where the arrays leave them possible.

Tables by class are turned where their sides say that they lie by columns; packed matrices are put in order.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedassay.exchange.inference.infer import infer_kinds, with_inferred
from fedassay.exchange.inference.populations import Populations
from fedassay.exchange.kinds import FieldKind, called, facts_of
from fedassay.exchange.message import SERVER, Message
from fedassay.exchange.shapes import shape_problem
from fedassay.exchange.transcript import Transcript
from fedassay.recorders.files.grouping import Array, Arrays
from fedassay.support.registry import entries

Sent = dict[tuple[int, str], Arrays]


def by_name(transcript: Transcript) -> Populations:
    """Give fields the kind of their name, if the arrays leave it possible or another package registers it."""
    found = infer_kinds(transcript)
    laid = [
        each for each in found if each.layout and each.field == each.source and each.read_as in called(each.field)
    ]
    transcript = with_inferred(transcript, tuple(laid))
    texts = [f"{each.field} holds {each.layout}" for each in laid]
    others = entries("field")
    told = {each.field: each for each in found if each.reading.kind is None and each.as_sent}
    said: dict[str, FieldKind] = {
        name: kind
        for name, each in told.items()
        for kind in called(name)[::-1]
        if kind in each.reading.kinds
        or kind in others
        or (kind == "class_counts" and transcript.class_names and not each.reading.kinds)
    }

    def changed(message: Message) -> Message:
        fields = {
            name: replace(item, kind=said[name]) if name in said and item.kind == "parameters" else item
            for name, item in message.fields.items()
        }
        made = replace(message, fields=fields)
        return message if message.sender == SERVER or shape_problem(made, transcript.classes) else made

    read = replace(transcript, messages=tuple(map(changed, transcript.messages)))
    return Populations(read, "; ".join(texts))


def turned(sent: Sent, classes: int) -> tuple[Sent, str]:
    """Turn tables with a column for each class; return sentences on these, and on those with equal sides.

    Args:
        sent: Arrays of messages, whose kinds nobody declared.
        classes: Number of classes.
    """
    shapes: dict[str, set[tuple[int, ...]]] = {}
    for (_, who), arrays in sent.items():
        for name in arrays if who != SERVER and classes > 1 else ():
            if is_by_class(name, arrays[name]):
                shapes.setdefault(name, set()).add(arrays[name].shape)
    wide = {name: own for name, own in shapes.items() if all(shape[1:] == (classes,) for shape in own)}
    columns = {name for name, own in wide.items() if (classes, classes) not in own}
    texts = [
        f"{name} has a column for each of {classes} classes."
        if name in columns
        else f"{name} is {classes} x {classes}: its rows are taken for the classes, not its columns."
        for name in wide
    ]
    made = {
        key: {name: array.T if name in columns else array for name, array in arrays.items()}
        for key, arrays in sent.items()
    }
    return made, " ".join(texts)


def is_by_class(name: str, array: Array) -> bool:
    """Whether an array is called like a table with a row for each class, and is no symmetric matrix."""
    facts = [facts_of(kind) for kind in called(name)[:1]]
    if array.ndim != 2 or not any(each.wide and each.first == "classes" and each.sides == 2 for each in facts):
        return False
    return array.shape[0] != array.shape[1] or not np.allclose(array, array.T)
