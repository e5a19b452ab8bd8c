"""File of a folder that a row of a table means, however the table writes its path."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from fedassay.data.spellings import one_form

_SEARCHED = 2_000


@dataclass(frozen=True, eq=False)
class Matches:
    """Files named by the values of a column.

    Attributes:
        files: The file of each value; None: it names none, or several.
        notes: Differences of paths from the files', where there are any.
    """

    files: list[str | None]
    notes: tuple[str, ...] = ()

    @cached_property
    def named(self) -> frozenset[str]:
        """The files that are named."""
        return frozenset(file for file in self.files if file is not None)

    @property
    def hits(self) -> int:
        """Number of files that are named."""
        return len(self.named)


class NamedFiles:
    r"""The files of a folder by all names that a table may have for them.

    A row may give the path below the folder or any end of it, with or without the ending of the name. `\` for
    `/`, `./`, another letter case or Unicode form, and one folder more in front of all paths are read as well,
    where each then means one file.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self.files = list(files)
        self._exact = _by_name((path, path) for path in self.files)
        self._folded = _by_name((fold(path), path) for path in self.files)

    def named(self, values: Sequence[str], folder: str = "") -> Matches:
        """The files that values mean.

        Args:
            values: Of one column.
            folder: Folder of the table, with `/` at its end; paths may start there.
        """
        found = [self._exact.get(folder + value) or self._exact.get(value) for value in values]
        notes: list[str] = []
        if None not in found:
            return Matches(found)
        for number, value in enumerate(values):
            if found[number] is None and value and value not in self._exact:
                found[number] = self._folded.get(fold(folder + value)) or self._folded.get(fold(value))
        taken = [value for number, value in enumerate(values) if found[number] and value not in self._exact]
        if taken:
            first = next(value for value in taken)
            notes.append(
                f"{len(taken):,} paths are written otherwise than the files (such as {first}), each meaning one"
            )
        left = [number for number, file in enumerate(found) if file is None and values[number]]
        prefix = self._prefix([values[number] for number in left])
        if prefix:
            for number in left:
                value = fold(values[number])
                if value.startswith(prefix):
                    found[number] = self._folded.get(value[len(prefix) :])
            notes.append(f"paths start with {prefix}, which is not in the folder and is passed over")
        if not any(found) and all(re.search(r"\d", value) for value in values):
            by_number = self.by_numbers(values)
            return by_number if by_number.hits else Matches(found, tuple(notes))
        return Matches(found, tuple(notes))

    def by_numbers(self, values: Sequence[str]) -> Matches:
        """The files that values mean, where numbers in either may lack leading zeros."""
        numbers = _by_name((unpadded(_stem(path)), path) for path in self.files)
        return Matches(
            [numbers.get(unpadded(value)) for value in values],
            ("files are named by numbers without their leading zeros",),
        )

    def several(self, value: str) -> bool:
        """Whether a value means several files."""
        return value in self._exact and self._exact[value] is None

    def nearest(self, value: str) -> str:
        """The file that a value most likely means, as a clause; empty where none is like it."""
        names = {_stem(path).casefold(): path for path in self.files[: 50 * _SEARCHED]}
        near = names.get(_stem(value.replace("\\", "/")).casefold())
        if near is None:
            close = difflib.get_close_matches(fold(value), [fold(path) for path in self.files[:_SEARCHED]], n=1)
            near = next((path for path in self.files[:_SEARCHED] if close and fold(path) == close[0]), None)
        return "" if near is None else f"; the nearest file is {near}"

    def _prefix(self, values: Sequence[str]) -> str:
        """Prefix before the paths of files in values that name none, with `/` at its end; empty: none."""
        for value in values[:20]:
            parts = fold(value).split("/")
            for cut in range(1, len(parts)):
                if self._folded.get("/".join(parts[cut:])):
                    return "/".join(parts[:cut]) + "/"
        return ""


def fold(path: str) -> str:
    r"""One form of a path: `\` is `/`, no `./` in front, one letter case and Unicode form."""
    text = unicodedata.normalize("NFC", path.strip()).casefold().replace("\\", "/")
    while text.startswith("./"):
        text = text[2:]
    return text


def unpadded(value: str) -> str:
    """One form of a value: numbers without leading zeros, and without decimals that are zeros."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", one_form(value))


def _stem(path: str) -> str:
    name = path.rpartition("/")[2]
    return name.rpartition(".")[0] or name


def _by_name(files: Iterable[tuple[str, str]]) -> dict[str, str | None]:
    """Files by possible names in a row: any end of a path, with and without suffix; None where several match."""
    whole = list(files)
    found: dict[str, str | None] = {}
    for path, file in whole:
        ends = [path]
        while "/" in ends[-1]:
            ends.append(ends[-1].partition("/")[2])
        for name in {*ends, *(end[: -len(suffix)] for end in ends if (suffix := _ending(path)))} - {path}:
            found[name] = None if name in found else file
    # A whole path means its own file, unless another has the same one in another letter case.
    wholes: dict[str, str | None] = {}
    for path, file in whole:
        wholes[path] = None if path in wholes else file
    return found | wholes


def _ending(path: str) -> str:
    name = path.rpartition("/")[2]
    return f".{name.rpartition('.')[2]}" if "." in name[1:] else ""
