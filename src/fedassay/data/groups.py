"""Persons of records, as numbers, from names and from the paths of files.

A person may have many records. Nothing that is measured on one record of a person holds for a stranger, so roles,
clients and limits keep the records of a person together (`fedassay.data.roles`, `fedassay.data.partition`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.path_pattern import PathPattern
from fedassay.support.errors import DataError, PlanError
from fedassay.support.text import cut
from fedassay.support.types import Ints

PERSON = "{person}"
"""Placeholder for the name of a person in a pattern of paths."""

OBVIOUS = ("person", "patient", "pat", "pt", "subject", "subj", "sub", "participant", "individual", "writer")
_ENDINGS = ("", "s", "id", "ids", "number", "no", "key", "name")
_KNOWN = frozenset(name + ending for name in OBVIOUS for ending in _ENDINGS)


def is_obvious(name: str) -> bool:
    """Whether an array or column of this name holds persons: `patient`, `Subject_ID`, `personNumber`."""
    return re.sub(r"[^a-z]", "", name.lower()) in _KNOWN


def likely_patterns(path: str) -> list[str]:
    """Patterns of paths for what looks like a person in one: `person{person}_*` for `ill/person12_2.png`."""
    parts, found = path.split("/"), []
    for place, part in enumerate(parts):
        hit = re.match(rf"(?:{'|'.join(OBVIOUS)})[-_ ]?(?=[0-9])", part, re.IGNORECASE)
        if hit is None:
            continue
        below = "/*" * (len(parts) - place - 1)
        found += [f"{hit[0]}{PERSON}{end}{below}" for end in (("",) if below else ("_*", "-*", " *", ".*"))]
    return found


def numbered(*names: Sequence[Any] | NDArray[Any]) -> list[Ints]:
    """Persons by number, from 0 in the order of their names; equal names are one person in all of the lists."""
    sizes = [len(part) for part in names]
    whole = np.concatenate([np.asarray(part) for part in names if len(part)] or [np.zeros(0, np.int64)])
    _, positions = np.unique(whole, return_inverse=True)
    return [part.astype(np.int64) for part in np.split(positions, np.cumsum(sizes)[:-1])]


def check_several(groups: Ints | None, where: str) -> None:
    """Refuse records of one person only.

    Raises:
        DataError: All records are of one person.
    """
    if groups is not None and len(groups) and (groups == groups[0]).all():
        raise DataError(
            f"data.groups: all {len(groups)} records of {where} are of one person; allowed: two persons or more"
        )


def typical(values: Ints, groups: Ints) -> Ints:
    """The most frequent value of each person's records, the lowest of several; persons in ascending order."""
    _, person = np.unique(groups, return_inverse=True)
    kinds, value = np.unique(values, return_inverse=True)
    table = np.zeros((int(person.max(initial=-1)) + 1, len(kinds)), np.int64)
    np.add.at(table, (person, value), 1)
    return np.asarray(kinds[table.argmax(axis=1)] if len(kinds) else kinds, np.int64)


@dataclass(frozen=True, eq=False)
class Units:
    """Units that are drawn whole: persons, or records where each is of a person of its own.

    Attributes:
        of: The unit of each record, from 0, shape (n,).
        labels: Each unit's most frequent label, shape (u,).
    """

    of: Ints
    labels: Ints

    def rows(self, units: Ints) -> Ints:
        """Records of these units, unit by unit in the order given."""
        if len(self.of) == len(self.labels):
            return np.asarray(np.argsort(self.of)[units], np.int64)
        order = np.argsort(self.of, kind="stable")
        ends = np.cumsum(np.bincount(self.of, minlength=len(self.labels)))
        starts = np.concatenate([[0], ends[:-1]])
        parts = [order[starts[unit] : ends[unit]] for unit in units]
        return np.concatenate([*parts, np.zeros(0, np.int64)]).astype(np.int64)


def units_of(labels: Ints, groups: Ints | None) -> Units:
    """The units of records with these labels (n,) and persons (n,)."""
    if groups is None:
        return Units(np.arange(len(labels)), np.asarray(labels, np.int64))
    _, of = np.unique(groups, return_inverse=True)
    return Units(of.astype(np.int64), typical(labels, groups))


def persons_of(pattern: str, paths: Sequence[str], where: str) -> list[str]:
    """The person of each file, by a pattern of paths.

    Several `{person}` are put together: `{person}/{person}_*` separates equal numbers at two sites.

    Args:
        pattern: As the plan gives it; see `PathPattern`.
        paths: Below the folder, with `/`.
        where: The folder, for errors.

    Raises:
        PlanError: It is no pattern of persons.
        DataError: A path that the pattern does not fit.
    """
    found = PathPattern(pattern.strip("/"))
    if not found.words or set(found.words) != {"person"} or "//" in pattern:
        raise PlanError(
            f"data.groups: {cut(pattern, 100)} given; allowed for an image_folder: a pattern of the path with "
            f"{PERSON} in it, such as {PERSON}_* for p12_left.png, or columns of a table"
        )
    names = [found.values(path) for path in paths]
    missed = [path for path, name in zip(paths, names, strict=True) if name is None]
    if missed:
        raise DataError(
            f"data.groups: {pattern} given; {len(missed)} of {len(paths)} images of {where} do not fit it "
            f"({missed[0]}); allowed: a pattern that fits every path, laid on its end"
        )
    return ["/".join(name) for name in names if name is not None]
