"""Account of the user's own data, read and left out: nothing is left out without a word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from fedassay.support.text import cut, plain

Kind = Literal["file", "image", "row", "column", "table", "array", "record"]
"""Things left out: a file that is no picture, a picture, a row or a column of a table, and so on."""

SAID = ("read:", "note:", "left out:")
"""Beginnings of the lines of an account."""
_LONGEST = 200


@dataclass(frozen=True)
class LeftOut:
    """Things of one kind that are left out for one reason.

    Attributes:
        kind: Kind of the left-out entries.
        count: Their number.
        why: In words that go on from "3 images", such as `masks beside the images they are of`.
        paths: The files among them, below the folder, with `/`; a contact sheet shows them, no record holds them.
    """

    kind: Kind
    count: int
    why: str
    paths: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """Number and reason, in one line."""
        many = f"{self.count:,} {self.kind}{'' if self.count == 1 else 's'}"
        return cut(plain(f"{many}: {self.why}"), _LONGEST)


@dataclass(frozen=True)
class Account:
    """Data that were read, how, and those left out.

    Attributes:
        read: A sentence without its full stop each: files, classes, persons, sites, official parts, sizes.
        notes: Ambiguous readings: encodings, spellings that were taken for one.
        left_out: Data that were not read.
        root: The folder that paths of `left_out` start from; None where there are none.
    """

    read: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    root: Path | None = None

    def __bool__(self) -> bool:
        """Whether anything was said at all; data sets that are known by name say nothing."""
        return bool(self.read or self.notes or self.left_out)

    def adding(self, *left_out: LeftOut, notes: Iterable[str] = ()) -> Account:
        """The same account with more in it."""
        return replace(
            self,
            notes=(*self.notes, *notes),
            left_out=(*self.left_out, *left_out),
        )

    def lines(self) -> Iterator[str]:
        """One line each: what was read, how, and what was left out."""
        texts = (iter(self.read), iter(self.notes), (each.line for each in self.left_out))
        for word, group in zip(SAID, texts, strict=True):
            yield from (f"{word} {cut(plain(text), _LONGEST)}" for text in group)

    @classmethod
    def of(cls, facts: object) -> Account:
        """The account that a record holds, as far as it is one."""
        try:
            return TypeAdapter(cls).validate_python({} if facts is None else facts)
        except ValidationError:
            return cls()

    def facts(self) -> dict[str, Any]:
        """The account for a record: no path is in it."""
        return {
            "read": list(self.read),
            "notes": list(self.notes),
            "left_out": [{"kind": each.kind, "count": each.count, "why": each.why} for each in self.left_out],
        }


NOTHING_SAID = Account()
"""The account of data sets that are known by name."""
