"""Reading of the folders above images: the level of the class, the person, the site and the official part.

Every level of folders has a kind by its names. A reading makes one level the class and lets each other level be
what its names and the nesting of levels allow. If one reading is left it is taken; if several are left, the user
is asked.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fedassay.data.folder_words import Kind, are_classes, level_of, odd_names, words_in
from fedassay.data.layout import LAYOUTS, Layout, Place, folders_of, stem_of
from fedassay.data.spellings import listed, one_form
from fedassay.data.table_words import part_in
from fedassay.support.errors import DataError

_NO_CLASSES = ("skipped", "split", "visit")
"""Kinds of levels that are never the class."""
_SHOWN = 4
"""Readings that an error shows."""


@dataclass
class _Level:
    """One level of folders, or the names of the files.

    Attributes:
        values: Value of each image there.
        kind: Kind of the level, by the names.
        word: Name of the level in a layout where it is not the class.
        as_class: Name of the level where it is the class.
    """

    values: Sequence[str]
    kind: Kind
    word: str
    as_class: str = "class"

    @property
    def names(self) -> set[str]:
        """The values, each once."""
        return set(self.values)


class FolderReading(NamedTuple):
    """Reading of folders, and whether the names of a level say that it is the class."""

    layout: Layout
    by_name: bool


def read_folders(
    paths: Sequence[str], where: str, are_classes_too: Callable[[Sequence[str]], bool] = lambda words: False
) -> FolderReading:
    """The one reading that folders can have.

    Args:
        paths: Of images below their folder, all of one depth, with `/`.
        where: The folder, for errors.
        are_classes_too: Whether words in the names of the images are classes, though none is known.

    Raises:
        DataError: There is none, or several are left; the message has all with what they would give.
    """
    _check_depth(paths, where)
    levels = [_level(values) for values in zip(*map(folders_of, paths), strict=True)]
    for level in [level for level in levels if level.kind == "split"][:-1]:
        # Of two levels of parts, as in train/train, the inner one counts.
        level.word = "*"
    named = _find_words(levels, paths, are_classes_too)
    if all(level.kind == "skipped" for level in levels):
        names = sorted({folder for path in paths for folder in folders_of(path)[-1:]})
        held = f"one class folder, {names[0]}" if len(names) == 1 else "no folders in it"
        held = held if len(names) < 2 else f"folders that are no classes by name, {listed(names)}"
        raise DataError(f"{where}: has {held}; allowed: {named}two or more ({LAYOUTS})")
    for level in levels:
        if level.kind in {"unknown", "nothing", "class"}:
            _check_odd(level.names, _any_reading(levels)[0].text, where)
    readings = [*dict.fromkeys(_readings(levels))]
    layouts = [_layout(levels, words) for words in readings]
    if not readings:
        ways = "; or ".join(layout.counted(paths) for layout in _any_reading(levels))
        shown = ", ".join(listed(sorted(level.names), 3) for level in levels[:-1])
        raise DataError(
            f"{where}: its folders ({shown}) are named like parts, sites, persons or visits, and none like "
            f"classes; allowed: {named}data.labels, a table of the images"
            f"{ways and '; or, where these are the classes, data.layout: '}{ways}"
        )
    classes = levels[readings[0].index("class")]
    sites = [level for level, word in zip(levels, readings[0], strict=True) if word == "site"]
    doubtful = classes.kind == "numbered" or any(part_in(name) for level in sites for name in level.names)
    if len(layouts) == 1 and not doubtful:
        return FolderReading(layouts[0], classes.kind == "class" and classes.as_class == "class")
    if len(layouts) == 1:
        layouts += _others(layouts[0])
    raise DataError(
        f"{where}: its folders can be read in {len(layouts)} ways; data.layout says which is right: "
        + "; or ".join(layout.counted(paths) for layout in layouts[:_SHOWN])
        + (f"; or {len(layouts) - _SHOWN} more" if len(layouts) > _SHOWN else "")
    )


def _level(values: Sequence[str]) -> _Level:
    """A level of folders; one with one name is `skipped`."""
    kind = "skipped" if len(set(values)) == 1 else level_of(set(values))
    return _Level(values, kind, kind if kind in {"split", "site", "person"} else "*")


def _check_depth(paths: Sequence[str], where: str) -> None:
    flat, deep = (pick(paths, key=lambda path: path.count("/")) for pick in (min, max))
    if flat.count("/") < deep.count("/"):
        above, below = (path.split("/")[0] if "/" in path else "the folder itself" for path in (flat, deep))
        raise DataError(
            f"{where}: {above} holds images, but {below} holds folders of images; allowed: data.path: one of them "
            f"alone; {LAYOUTS}"
        )


def _find_words(
    levels: list[_Level], paths: Sequence[str], are_classes_too: Callable[[Sequence[str]], bool]
) -> str:
    """Take words beside numbers in names of folders or files for classes; the names become the last level.

    Returns:
        The layout that takes the class from the names of files, as a choice of an error; empty: there is none.
    """
    for level in levels:
        once = sorted(level.names)
        pattern, words = words_in(once)
        if are_classes(set(words)):
            found = dict(zip(once, words, strict=True))
            level.values, level.kind, level.as_class = [found[name] for name in level.values], "class", pattern
    files, folders = _Level([], "skipped", "image"), [level.word for level in levels]
    unknown = [level for level in levels if level.kind == "unknown"]
    in_names = all(level.kind not in {"class", "nothing"} for level in levels)
    levels.append(files)
    pattern, words = words_in([stem_of(path) for path in paths] if in_names else [])
    # Folders with one word for all of their images, as breeds of dogs, are the classes themselves.
    if not words or (unknown and not _cross(unknown[-1].values, words)):
        return ""
    if are_classes(set(words)) or are_classes_too(words):
        files.values, files.kind, files.as_class = words, "class", pattern
    return f"data.layout: {Layout('/'.join([*folders, pattern])).counted(paths)}; or "


def _cross(folders: Sequence[str], words: Sequence[str]) -> bool:
    """Whether the words in names of files differ within folders, and recur in several."""
    return len(set(zip(folders, words, strict=True))) > max(len(set(folders)), len(set(words)))


def _layout(levels: Sequence[_Level], words: Sequence[str]) -> Layout:
    texts = [level.as_class if word == "class" else word for level, word in zip(levels, words, strict=True)]
    # A layout is laid on the last folders: the outermost ones need no word.
    return Layout(re.sub(r"^(\*/)+", "", "/".join(texts)))


def _readings(levels: Sequence[_Level]) -> Iterator[tuple[str, ...]]:
    """Every way to call the levels that names and nesting leave open."""
    for kind in ("class", "unknown", "numbered"):
        places = [number for number, level in enumerate(levels) if level.kind == kind]
        if places:
            break
    else:
        return
    if kind == "class":
        # Kinds of what is ill, below benign and malignant, can be the classes as well.
        places += [number for number in range(places[0], len(levels)) if levels[number].kind == "unknown"]
    for place in places:
        choices = [_choices(levels, number, place) for number in range(len(levels))]
        for words in itertools.product(*choices):
            once = [word for word in words if word != "*"]
            if len(set(once)) == len(once):
                yield words


def _choices(levels: Sequence[_Level], number: int, place: int) -> list[str]:
    """Possible words for a level where the one at a place is the class."""
    level, classes = levels[number], levels[place]
    if number == place:
        return ["class"]
    if level.kind == "class":
        return ["*"]
    if level.kind == "numbered":
        return ["*" if any(each.kind == "person" for each in levels) else "person"]
    if level.kind != "unknown":
        return [level.word]
    pairs = len(set(zip(level.values, classes.values, strict=True)))
    if number > place:
        return ["person", "*"] if pairs == len(level.names) else ["site", "*"]
    if pairs == len(level.names) or any(each.kind == "site" for each in levels):
        return ["*"]
    # Where each class lies in one folder alone, folders may be kinds of classes.
    return ["site"] if pairs > len(classes.names) else ["site", "*"]


def _any_reading(levels: Sequence[_Level]) -> list[Layout]:
    """Layouts in which one level or the other is the class, whatever its names are; none where all are parts."""
    return [
        _layout(levels, ["class" if at == number else level.word for at, level in enumerate(levels)])
        for number, open_ in reversed([*enumerate(levels)])
        if open_.kind not in _NO_CLASSES
    ]


def _others(layout: Layout) -> list[Layout]:
    """Alternatives to the only layout: its classes may be persons, with the classes in a table."""
    if "site" in layout.words:
        return [Layout(layout.text.replace("site", "*"))]
    return [] if "person" in layout.words else [Layout(layout.text.replace("class", "person"))]


def _check_odd(names: Collection[str], layout: str, where: str) -> None:
    """Refuse a level with names that are of no class beside others.

    Raises:
        DataError: There are such.
    """
    odd = odd_names(names)
    rest = sorted(set(names).difference(odd))
    if odd and rest:
        raise DataError(
            f"{where}: {listed(odd)} {'is no class' if len(odd) == 1 else 'are no classes'} by name beside "
            f"{listed(rest, 8)}; allowed: data.layout: {layout}, which takes all for classes, with data.classes: "
            f"[{', '.join(rest[:8])}] where the others are to be left out; or data.path: one folder alone, such "
            f"as {where}/{rest[0]}"
        )


def folder_places(paths: Sequence[str], labels: Collection[str]) -> list[Place]:
    """Official parts and sites of images that get their classes from a table.

    Folders at the top are the sites where all images lie in such, unless their names are something else: persons,
    parts, views, shares of a download, or the classes themselves.
    """
    levels = [_level(values) for values in zip(*map(folders_of, paths), strict=False)]
    splits = [level for level in levels if level.kind == "split"]
    sites = [level for level in levels if level.kind == "site"]
    open_ = [level for level in levels if level.kind not in {"skipped", "split"}]
    if not sites and open_ and open_[0].kind == "unknown":
        known = set(map(one_form, labels))
        sites = [] if set(map(one_form, open_[0].names)) <= known else open_[:1]
    return [
        Place(
            site=sites[0].values[number] if sites else "",
            part=(part_in(splits[-1].values[number]) or "train") if splits else "",
        )
        for number in range(len(paths))
    ]
