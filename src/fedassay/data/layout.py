"""`data.layout`: what each level of folders above an image is, or what its name says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fedassay.data.account import LeftOut
from fedassay.data.path_pattern import PathPattern
from fedassay.data.spellings import as_one, listed
from fedassay.data.table_words import part_in
from fedassay.support.errors import DataError, PlanError

LAYOUTS = "folders as class/image, a table (data.labels), or data.layout, such as site/class/person/image"
_NAMED = ("class", "person", "site", "split")
_ENDING = r"(?:\.[^./]*)?"
"""The ending of a name, which a pattern may leave out."""


class Place(NamedTuple):
    """Facts about an image from folders or a table; empty: unknown."""

    label: str = ""
    person: str = ""
    site: str = ""
    part: str = ""
    persons: tuple[str, ...] = ()
    """Values of a table's columns for the person."""


@dataclass(frozen=True)
class Layout:
    """Kinds of the levels of folders, laid on the last folders of a path.

    Attributes:
        text: As `data.layout` gives it, such as `site/class/*/image`.

    Raises:
        PlanError: A level has none of the names that levels have, or one that another has.
    """

    text: str

    def __post_init__(self) -> None:
        *levels, name = self.text.split("/")
        plain = [level for level in levels if level not in _NAMED and not set(level) & set("{*#")]
        sound = set(self.words) <= set(_NAMED) and len(set(self.words)) == len(self.words)
        if plain or not sound or (name != "image" and "{" not in name):
            raise PlanError(
                f"data.layout: {self.text} given; allowed: {', '.join(_NAMED)}, * for each level of folders, each "
                "word once, and image at the end, such as class/person/image; or patterns of names, such as "
                "{class}_# at the end, where # is a number and * is anything"
            )

    @cached_property
    def _pattern(self) -> PathPattern:
        wild = [f"{{{part}}}" if part in _NAMED else part for part in self.text.split("/")]
        return PathPattern("/".join([*wild[:-1], "*" if wild[-1] == "image" else wild[-1]]), _ENDING)

    @property
    def words(self) -> list[str]:
        """Kinds of facts that folders and the file name give, the outermost first."""
        return self._pattern.words

    def place(self, path: str) -> Place | None:
        """Return the facts in the folders and name of a file; None: it does not fit."""
        values = self._pattern.values(path)
        if values is None:
            return None
        named = dict(zip(self.words, values, strict=True))
        part = (part_in(named["split"]) or "train") if "split" in named else ""
        return Place(named.get("class", ""), named.get("person", ""), named.get("site", ""), part)

    def fitting(self, paths: Sequence[str], where: str, *, leave_out: bool) -> tuple[list[str], list[LeftOut]]:
        """The files that fit, and the others, which are left out.

        Raises:
            DataError: A file does not fit, and is not to be left out.
        """
        kept = [path for path in paths if self.place(path) is not None]
        rest = sorted(set(paths) - set(kept))
        if rest and not (leave_out and kept):
            few = f"lies in fewer folders{' or has another name' if '{' in self.text else ''}"
            raise DataError(
                f"data.layout: {self.text} given; {rest[0]} of {where} {few}; allowed: a layout of all "
                f"{len(paths):,} images, or data.incomplete: leave_out, which leaves out {len(rest):,} of them"
            )
        return kept, left_images(rest, f"which data.layout, {self.text}, does not fit")

    def places(self, paths: Iterable[str]) -> list[Place]:
        """Return the facts in the folders and names of those files that fit."""
        return [place for path in paths if (place := self.place(path)) is not None]

    def counted(self, paths: Iterable[str]) -> str:
        """The layout with the classes, persons, sites and parts that it gives."""
        words = []
        columns = zip(*self.places(paths), strict=True)
        for what, values in zip(("class", "person", "site", "part"), columns, strict=False):
            names = sorted(set(as_one(values, what)[0]) - {""})
            if names:
                many = f"{len(names):,} {what}{'' if len(names) == 1 else 'es' if what == 'class' else 's'}"
                words.append(f"{many}: {listed(names, 3)}")
        return f"{self.text} ({', '.join(words)})"


def left_images(paths: Sequence[str], why: str) -> list[LeftOut]:
    """Images that are left out for one reason; empty where there are none."""
    return [LeftOut("image", len(paths), why, tuple(paths))] if paths else []


def folders_of(path: str) -> list[str]:
    """The folders that a file lies in, the outermost first."""
    return path.split("/")[:-1]


def stem_of(path: str) -> str:
    """The name of a file without its ending."""
    name = path.rpartition("/")[2]
    return re.sub(r"(?<=.)\.[^.]*$", "", name)
