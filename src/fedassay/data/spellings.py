"""Values of tables and names of folders as people write them: several spellings of one, or no value at all."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

_MISSING = frozenset(
    {"", "nan", "<na>", "na", "n/a", "n.a.", "#n/a", "#na", "null", "none", "nat", "-", "--", "?", "."}
    | {"#value!", "#ref!", "#div/0!", "#name?", "#num!", "#null!"}
)
"""Entries of spreadsheets and programs for a missing value."""

# Three zeros behind a comma may be a thousand.
_WHOLE = re.compile(r"([+-]?)0*(\d+)(?:\.0*|,(?!000$)0*)?")
_MARKS = {"true": "1", "false": "0"}
_DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})|"
    r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01]))([ T].*)?"
)
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")
_LIST = 4


def is_missing(value: str) -> bool:
    """Whether a cell holds no value: blank, `nan`, `NA`, `null` and their like."""
    return value.strip().casefold() in _MISSING


def one_form(value: str) -> str:
    """The same text for all spellings of a value: other blanks, letter case, leading zeros, or `3.0` for `3`."""
    text = " ".join(unicodedata.normalize("NFC", value).split())
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        return text.casefold()
    return f"{'-' if whole[1] == '-' else ''}{whole[2]}"


def unlabelled(labels: Iterable[str]) -> list[str]:
    """Return a note where the label -1 stands beside classes from 0: such numbers often mark missing labels."""
    counts = Counter(labels)
    if not (counts["-1"] and counts["0"]):
        return []
    return [f"-1 is read as a class, of {counts['-1']:,} records; where it means no label, take them out"]


def as_mark(value: str) -> str:
    """As `one_form`, and 1 and 0 for true and false."""
    form = one_form(value)
    return _MARKS.get(form, form)


def as_one(values: Sequence[str], what: str) -> tuple[list[str], list[str]]:
    """Values with one spelling each, and what is to be said of it.

    The spelling that is kept of a text is its most frequent one; of a whole number written in several ways, or
    with decimals, it is the number.

    Args:
        values: As they are written.
        what: Names them in the note, such as `label`.

    Returns:
        The values in their order, and a note for all that were written in several ways.
    """
    spelled: dict[str, Counter[str]] = {}
    forms = {value: one_form(value) for value in dict.fromkeys(values)}
    if {"0", "1"} & set(forms.values()) and {"true", "false"} & set(forms.values()) <= set(forms.values()) <= {
        *("true", "false", "0", "1")
    }:
        forms = {value: as_mark(value) for value in forms}
    for value, count in Counter(values).items():
        spelled.setdefault(forms[value], Counter())[value.strip()] += count
    kept = {form: _kept(form, counts) for form, counts in spelled.items()}
    several = [
        f"{kept[form]!r} for {listed(sorted(repr(value) for value in {v for v in forms if forms[v] == form}), 3)}"
        for form in spelled
        if sum(forms[value] == form for value in forms) > 1
    ]
    notes = [f"one {what} each: {listed(several)}"] if several else []
    return [kept[forms[value]] for value in values], notes


def _kept(form: str, counts: Counter[str]) -> str:
    if _WHOLE.fullmatch(form) and (len(counts) > 1 or not next(iter(counts)).isdecimal()):
        return form
    return min(counts, key=lambda value: (-counts[value], value))


def listed(words: Iterable[str], most: int = _LIST) -> str:
    """Words with commas; how many more there are where they are many."""
    whole = list(words)
    more = f" and {len(whole) - most:,} more" if len(whole) > most else ""
    return ", ".join(whole[:most]) + more


def are_dates(values: Iterable[str]) -> bool:
    """Whether nearly all values are dates."""
    whole = [value.strip() for value in values]
    return bool(whole) and sum(_DATE.fullmatch(value) is not None for value in whole) > 0.9 * len(whole)


def are_numbers(values: Iterable[str]) -> bool:
    """Whether all values are numbers, with a decimal point or comma."""
    return all(_NUMBER.fullmatch(value.strip()) for value in values)


def partition(texts: Iterable[str]) -> tuple[int, ...]:
    """Partition rows by equal values, as numbers that do not depend on the values."""
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(one_form(text), len(numbers)) for text in texts)
