"""One line of evidence: a question that is asked, what the record answers, and where that stands in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fedassay.records.record import CellRecord, RunRecord

PERSON = "for a person to fill in"
"""What stands where no record can answer."""


@dataclass(frozen=True)
class Line:
    """A question and its answer.

    Attributes:
        question: What is asked.
        answer: From the record, or `PERSON`.
        pointers: JSON pointers (RFC 6901) to the places in record.json that the answer is made of; empty where a
            person has to answer.
    """

    question: str
    answer: str
    pointers: tuple[str, ...] = ()


def by_person(question: str) -> Line:
    """A question that no record answers."""
    return Line(question, PERSON)


def from_cells(
    record: RunRecord, question: str, field: str, say: Callable[[CellRecord], str], unless: str = ""
) -> Line:
    """A question that every cell answers: equal answers are said once.

    Args:
        record: The run.
        question: What is asked.
        field: Where in a cell the answer stands, as the end of a JSON pointer such as `/privacy/accounted`.
        say: The answer of one cell; empty where it has none.
        unless: What is said where no cell has one; empty: a person has to answer.
    """
    said: dict[str, None] = {}
    pointers = []
    for number, cell in enumerate(record.cells):
        if words := say(cell):
            said.setdefault(words)
            pointers.append(f"/cells/{number}{field}")
    if said:
        return Line(question, "; ".join(said), tuple(pointers))
    if not unless or not record.cells:
        return by_person(question)
    return Line(question, unless, ("/cells",))


def from_plan(record: RunRecord, question: str, *path: str) -> Line:
    """A question that a key of the plan answers; a person has to where the plan has no such key."""
    value: Any = record.plan
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if value is None:
        return by_person(question)
    return Line(question, _flat(value), ("/plan/" + "/".join(path),))


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_flat(item)}" for key, item in value.items() if item is not None)
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def resolved(document: Any, pointer: str) -> Any:
    """What a JSON pointer points at.

    Raises:
        KeyError: Nothing stands there.
    """
    for part in _parts(pointer):
        if isinstance(document, list):
            if not part.isdigit() or int(part) >= len(document):
                raise KeyError(pointer)
            document = document[int(part)]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        else:
            raise KeyError(pointer)
    return document


def _parts(pointer: str) -> Iterator[str]:
    for part in pointer.split("/")[1:]:
        yield part.replace("~1", "/").replace("~0", "~")
