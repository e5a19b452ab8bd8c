"""Possible contents of a table's columns, by their names and values: labels, persons, sites, parts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas

from fedassay.data.account import LeftOut
from fedassay.data.spellings import are_dates, are_numbers, as_mark, is_missing, listed, one_form, partition
from fedassay.data.table_words import (
    PARTS_COLUMNS,
    PERSONS_ELSE,
    is_about,
    is_person,
    is_site,
    label_rank,
    part_of,
    plain_name,
)
from fedassay.support.errors import DataError

_MOST_CLASSES = 20
"""Of numbers with more values than this it is asked whether they are classes."""
_FEWEST_PERSONS = 10
_NAMED = 12
"""Columns that have a line of their own where they are not used."""


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table: its name, and its texts."""

    name: str
    texts: pandas.Series

    @cached_property
    def values(self) -> list[str]:
        """Every text once, without those that say that there is no value."""
        return [value for value in self.texts.unique() if not is_missing(value)]

    @cached_property
    def forms(self) -> set[str]:
        """Values in one spelling each."""
        return set(map(one_form, self.values))

    @cached_property
    def full(self) -> int:
        """Number of rows with a value."""
        return len(self.texts) - sum(map(is_missing, self.texts)) if "" in self.texts.array else len(self.texts)

    @property
    def groups(self) -> bool:
        """Whether its name says that it holds what belongs together."""
        return is_person(self.name) or plain_name(self.name) in PERSONS_ELSE

    def are_marks(self, *allowed: str) -> bool:
        """Whether it holds nothing but some values."""
        return {as_mark(value) for value in self.texts.unique()} <= set(allowed)

    def no_class(self) -> str | None:
        """Return the reason why its values are no classes, as a clause; None: they may be."""
        if are_dates(self.values):
            return "holds dates"
        many = len(self.forms)
        if many > _MOST_CLASSES and (are_numbers(self.values) or 2 * many > self.full):
            return f"holds {many:,} values in {self.full:,} rows, which are no classes"
        return None

    def may_be_labels(self) -> bool:
        """Whether it may hold labels, whatever its name is."""
        known = self.groups or is_site(self.name) or plain_name(self.name) in PARTS_COLUMNS
        return not known and len(self.forms) > 1 and self.no_class() is None

    def tells_parts(self) -> bool:
        """Whether it says the official part of each row."""
        texts = self.texts.unique()
        return plain_name(self.name) in PARTS_COLUMNS and len(texts) > 1 and all(map(part_of, texts))

    def several(self, fewest: int) -> bool:
        """Whether it has so many values, and one of them in several rows."""
        return fewest <= len(self.forms) < len(self.texts)

    def in_words(self) -> str:
        """Possible uses of the column, in words."""
        many = f"{len(self.forms):,} value{'' if len(self.forms) == 1 else 's'}"
        if is_site(self.name) and len(self.forms) > 1:
            return f"{many}; use it as clients with data.sites: {self.name}"
        if self.groups and len(self.forms) > 1:
            return f"{many}; use it as persons with data.groups: {self.name}"
        if are_dates(self.values):
            return f"{many}, dates"
        if len(self.forms) > _MOST_CLASSES and are_numbers(self.values):
            return f"{many}, numbers"
        likely = 1 < len(self.forms) <= self.full / 2
        return f"{many}; as labels: data.label_column: {self.name}" if likely else many


@dataclass(frozen=True, eq=False)
class OtherColumns:
    """The columns of a table but that of the files."""

    columns: Sequence[Column]

    @cached_property
    def _named(self) -> list[Column]:
        """Columns with a name as those of labels have."""
        # A y beside an x is where something lies in the image.
        places = {"y"} if any(column.name == "x" for column in self.columns) else set()
        ranked = [(label_rank(each.name), each) for each in self.columns if each.name not in places]
        best = min((rank for rank, _ in ranked if rank is not None), default=None)
        return [] if best is None else [each for rank, each in ranked if rank == best]

    @cached_property
    def _marks(self) -> tuple[str, ...]:
        """Columns of one label each, exactly one of them set in every row; empty where there are none such."""
        marks = [each for each in self.columns if each.are_marks("0", "1")]
        rows = zip(*(each.texts for each in marks), strict=True)
        one = len(marks) > 1 and all(sum(as_mark(value) == "1" for value in row) == 1 for row in rows)
        return tuple(each.name for each in marks) if one else ()

    @cached_property
    def _may_be(self) -> list[Column]:
        return [each for each in self.columns if each.may_be_labels()]

    @cached_property
    def _likely(self) -> list[Column]:
        """Columns that may hold labels and are not called so; one of ages or sexes may not, unless it is alone."""
        return self._may_be if len(self.columns) == 1 else [c for c in self._may_be if not is_about(c.name)]

    @property
    def may_be_labels(self) -> bool:
        """Whether any column may hold labels."""
        return bool(self._named or self._marks or self._likely)

    def say(self, classes: Sequence[str]) -> bool:
        """Whether one of several columns that may hold labels parts the rows as these classes do."""
        wanted = partition(classes)
        return not self._named and any(partition(each.texts) == wanted for each in self._likely)

    def labels(self, where: str) -> str | tuple[str, ...]:
        """The column of labels, or the columns of one label each with exactly one set in every row.

        Raises:
            DataError: Several could be it, or none.
        """
        named = self._named
        if named and (len(named) == 1 or len({partition(each.texts) for each in named}) == 1):
            return self._classes(named[0], where)
        if not named and self._marks:
            return self._marks
        # Beside one that says the age or the sex in a few values, that one may be meant as well.
        if not named and len(self._likely) == len(self._may_be) == 1:
            return self._likely[0].name
        if not self.columns:
            raise DataError(f"{where}: has one column; allowed: two columns or more, of files and labels")
        raise DataError(f"{where}: it is not clear which column holds the labels; {self._choices()}")

    def _classes(self, column: Column, where: str) -> str:
        if (why := column.no_class()) is not None:
            raise DataError(f"{where}: column {column.name} {why}; {self._choices()}")
        return column.name

    def _choices(self) -> str:
        several_values = [each for each in self.columns if len(each.forms) > 1] or self.columns
        counts = listed((f"{each.name} ({len(each.forms):,} values)" for each in several_values), 30)
        marks = [each.name for each in self.columns if each.values and each.are_marks("0", "1", "-1", "")]
        several = f"; or data.label, where a record may have several of {listed(marks, 30)}"
        return (
            f"data.label_column allows {counts}{several if len(marks) > 1 else ''}; or data.layout, where folders "
            "are the classes"
        )

    def unused(self, used: Collection[str], where: str) -> Iterator[LeftOut]:
        """Every column that was not used, with what it may be."""
        free = [each for each in self.columns if each.name not in used]
        for each in free[:_NAMED]:
            yield LeftOut("column", 1, f"{each.name} of {where}, {each.in_words()}")
        if more := [each.name for each in free[_NAMED:]]:
            yield LeftOut("column", len(more), f"{listed(more, _NAMED)} of {where}")

    def proposals(self, used: Collection[str]) -> dict[str, Any]:
        """Keys of the plan that names of unused columns give away."""
        free = [each for each in self.columns if each.name not in used]
        sites = [each.name for each in free if is_site(each.name) and each.several(2)]
        persons = [each.name for each in free if is_person(each.name) and each.several(2)]
        persons += [
            each.name for each in free if plain_name(each.name) in PERSONS_ELSE and each.several(_FEWEST_PERSONS)
        ]
        found = {"sites": sites, "groups": persons}
        return {key: names[0] for key, names in found.items() if names}
