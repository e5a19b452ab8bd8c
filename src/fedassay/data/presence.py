"""One label of several that a record may have: it is present, absent or unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedassay.data.spellings import is_missing, one_form
from fedassay.support.errors import DataError

Uncertain = Literal["drop", "positive", "negative"]
"""Treatment of records without a statement on whether they have a label."""

_YES = frozenset({"1", "true", "yes", "y", "positive", "pos", "present", "t"})
_NO = frozenset({"0", "false", "no", "n", "negative", "neg", "absent", "f"})
_MAYBE = frozenset({"-1", "uncertain", "u", "unknown", "maybe"})
_SEPARATORS = "|;"


@dataclass(frozen=True)
class Presence:
    """Label that makes the class, and the treatment of records without a statement on it.

    Attributes:
        label: Its name.
        uncertain: None: there must be none such.
    """

    label: str
    uncertain: Uncertain | None = None

    def named(self, present: bool) -> str:
        """The name of the class of records that have the label, or of those that have it not."""
        return self.label if present else f"no {self.label}"


def of_one_column(values: Sequence[str], asked: Presence, where: str) -> list[str]:
    """The class of each row of a column of its own; empty where it is dropped.

    Raises:
        DataError: A value says neither yes nor no and what becomes of it is not said, or it says something else.
    """
    forms = {value: one_form(value) for value in set(values)}
    odd = sorted(v for v, form in forms.items() if form not in _YES | _NO | _MAYBE and not is_missing(v))
    if odd:
        raise DataError(
            f"data.label: {asked.label} given; its column in {where} holds {odd[0]!r}; allowed: 0, 1, -1 and "
            f"blanks, or data.label_column: {asked.label}, where each value is a class"
        )
    if set(forms.values()) == {"1", "-1"}:
        # Where no 0 stands beside it, -1 is the opposite of 1.
        forms = {value: form.replace("-1", "0") for value, form in forms.items()}
    open_ = Counter(value for value in values if forms[value] not in _YES | _NO)
    if open_ and asked.uncertain is None:
        many = ", ".join(f"{count:,} of {value!r}" for value, count in sorted(open_.items()))
        raise DataError(
            f"data.uncertain: not given, but column {asked.label} of {where} has {many}; allowed: drop, positive, "
            "negative"
        )
    settled = "" if asked.uncertain in {None, "drop"} else asked.named(asked.uncertain == "positive")
    return [asked.named(forms[value] in _YES) if forms[value] in _YES | _NO else settled for value in values]


def of_several(values: Sequence[str], asked: Presence, where: str) -> list[str]:
    """The class of each row of a column in which labels are joined; empty where it has none.

    Raises:
        DataError: No row has the label.
    """
    marks = _separators(values)
    held = [frozenset(map(one_form, _parts_of(value, marks))) for value in values]
    if not any(one_form(asked.label) in parts for parts in held):
        known = sorted({part.strip() for value in values for part in _parts_of(value, marks)})
        raise DataError(f"data.label: {asked.label} given; {where} has {', '.join(known)}")
    return [
        "" if is_missing(value) else asked.named(one_form(asked.label) in parts)
        for value, parts in zip(values, held, strict=True)
    ]


def joined_labels(values: Sequence[str]) -> Counter[str]:
    """Count the labels in a column with joined cells; empty where no cells are joined."""
    marks = _separators(values)
    joined = {value for value in values if len(_parts_of(value, marks)) > 1}
    counts = Counter(part.strip() for value in values for part in _parts_of(value, marks))
    inside = Counter(part.strip() for value in joined for part in _parts_of(value, marks))
    # Labels that are joined come in several combinations, or by themselves as well.
    again = any(counts[part] > inside[part] for part in inside) or len(inside) < sum(
        len(_parts_of(value, marks)) for value in joined
    )
    return counts if joined and again else Counter()


def _separators(values: Sequence[str]) -> str:
    """The separators of a column; a comma is one where all that it parts are values by themselves as well."""
    alone = {value.strip() for value in values}
    parted = [value.split(",") for value in alone if "," in value]
    return f"{_SEPARATORS}," if all(part.strip() in alone for parts in parted for part in parts) else _SEPARATORS


def _parts_of(value: str, separators: str) -> list[str]:
    """The labels of a cell."""
    separator = next((mark for mark in separators if mark in value), None)
    return [value] if separator is None else [part for part in value.split(separator) if part.strip()]
