"""How folders above images are read: which level is the class, the person, the site or the official part."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fedassay.data.account import LeftOut
from fedassay.data.folder_words import IMAGES, MASKS, VIEWS, Level, are_classes, level_of, no_records, odd_names
from fedassay.data.spellings import as_one, listed, one_form
from fedassay.data.table_words import part_in, part_of, plain_name
from fedassay.support.errors import DataError, PlanError

LAYOUTS = (
    "class/image, class/person/image, site/class/image, or train and test above these; a table of labels "
    "(data.labels); or data.layout, which says what each level of folders is, or where the class is in names "
    "({class}_*)"
)
_NAMED = ("class", "person", "site", "split")
_WORDS = (*_NAMED, "*")
_PIECES = {"*": ".*?", "#": r"\d+"} | {f"{{{word}}}": f"(?P<{word}>.+?)" for word in _NAMED}
"""What the pieces of a pattern stand for; all else stands for itself."""
_INSIDE = (
    ("{{class}}{0}#{1}", re.compile(r".*?[^\W\d_]([-_. ]*\(?)\d+(\)?)")),
    ("*#{0}{{class}}{1}", re.compile(r".*?\d+([-_. ]+)[^\W\d](?:[^\d]*[^\W\d])?()")),
)
"""Patterns of names that may hold a class beside a number, and what gives their separators."""
_MASK = re.compile(r"(.+?)[-_ .]?(?:mask|segmentation|seg|gt|annotation|overlay|heatmap)[-_ .]?\d*", re.IGNORECASE)
_STRAY = 0.05
"""Share of images that may lie beside the folders of all others and are left out with a word."""


@dataclass(frozen=True)
class Place:
    """What the folders above an image say of it; empty: nothing."""

    label: str = ""
    person: str = ""
    site: str = ""
    part: str = ""


@dataclass(frozen=True)
class Layout:
    """What each level of folders is, laid on the last folders of a path.

    Attributes:
        text: As `data.layout` gives it, such as `site/class/*/image`.

    Raises:
        PlanError: A level has none of the names that levels have, or one that another has.
    """

    text: str

    def __post_init__(self) -> None:
        *levels, name = self.parts
        words = self.words
        sound = set(words) <= set(_NAMED) and len(set(words)) == len(words) and "image" not in levels
        if not sound or (name != "image" and "{" not in name):
            raise PlanError(
                f"data.layout: {self.text} given; allowed: {', '.join(_WORDS)} for each level of folders, each "
                "word once, and image at the end, such as class/person/image; or patterns of names, such as "
                "{class}_# at the end, where # is a number and * is anything"
            )

    @property
    def parts(self) -> list[str]:
        """What each level is, and what the name."""
        return self.text.split("/")

    @property
    def words(self) -> list[str]:
        """What folders and the name say of a file."""
        held = (re.findall(r"\{(\w*)\}", part) or ([] if set(part) & set("*#") else [part]) for part in self.parts)
        return [word for words in held for word in words if word != "image"]

    @property
    def levels(self) -> list[str]:
        """The levels of folders and, where the class stands in it, the name, the outermost first."""
        *levels, name = (word[1] if (word := re.search(r"\{(\w+)\}", level)) else level for level in self.parts)
        return levels if name == "image" else [*levels, name]

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        """What folders and the name have to fit; the ending of the name may be left out."""
        whole = [{"image": "*"}.get(part, f"{{{part}}}" if part in _NAMED else part) for part in self.parts]
        made = [
            "".join(_PIECES.get(piece, re.escape(piece)) for piece in re.split(r"(\{\w+\}|[*#])", part))
            for part in whole
        ]
        return [re.compile(each) for each in (*made[:-1], rf"{made[-1]}(?:\.[^.]*)?")]

    def place(self, path: str) -> Place | None:
        """What folders and name of a file say; None: it does not fit."""
        parts, patterns = path.split("/"), self._patterns
        if len(parts) < len(patterns):
            return None
        found = [
            each.fullmatch(part) for each, part in zip(patterns, parts[len(parts) - len(patterns) :], strict=True)
        ]
        named: dict[str, str] = {}
        for fit in found:
            if fit is None:
                return None
            named |= fit.groupdict()
        return Place(
            named.get("class", ""),
            named.get("person", ""),
            named.get("site", ""),
            (part_in(named["split"]) or "train") if "split" in named else "",
        )

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
        return kept, _left(rest, f"which data.layout, {self.text}, does not fit")

    def places(self, paths: Sequence[str]) -> list[Place]:
        """What folders and names say of files that fit."""
        return [place for path in paths if (place := self.place(path)) is not None]


def without_masks(paths: Sequence[str]) -> tuple[list[str], list[LeftOut]]:
    """The images without masks of them, and without the few that lie beside the folders of all others."""
    places = {path: _split(path) for path in paths}
    names = {(folder, stem.casefold()) for folder, stem in places.values()}
    folders = {folder for folder, _ in places.values()}
    below: dict[str, set[str]] = defaultdict(set)
    for folder in folders:
        for above, name in _ways(folder):
            below[above].add(name)
    of_masks = {
        folder
        for folder in folders
        if any(
            plain_name(name) in MASKS
            and any(plain_name(other) in IMAGES | VIEWS or part_of(other) for other in below[above])
            for above, name in _ways(folder)
        )
    }
    beside = [
        path
        for path, (folder, stem) in places.items()
        if folder in of_masks or ((base := _MASK.fullmatch(stem)) and (folder, base[1].casefold()) in names)
    ]
    kept = sorted(set(paths) - set(beside))
    left = _left(beside, "masks beside the images that they are of")
    depths = Counter(path.count("/") for path in kept)
    stray = [path for path in kept if "/" not in path] if len(depths) > 1 else []
    if stray and len(stray) <= max(1, _STRAY * len(kept)):
        kept = [path for path in kept if "/" in path]
        left += _left(stray, "beside the folders that are read")
    return kept, left


def with_classes(paths: Sequence[str]) -> tuple[list[str], list[LeftOut]]:
    """The images without those of a test set that has no classes, and of folders that are none beside classes."""
    test = [path for path in paths if any(part_in(name) == "test" for name in path.split("/")[:-1])]
    rest = sorted(set(paths) - set(test))
    left: list[LeftOut] = []
    if test and rest and _lack_classes(test, rest):
        paths, left = rest, _left(test, "of a test set, of which neither folders nor names say the classes")
    names: dict[int, set[str]] = defaultdict(set)
    for path in paths:
        for number, name in enumerate(path.split("/")[:-1]):
            names[number].add(name)
    odd = {(number, name) for number, each in names.items() for name in no_records(each)}
    beside = [path for path in paths if not odd.isdisjoint(enumerate(path.split("/")[:-1]))] if odd else []
    left += _left(beside, "in folders that are no classes by name beside folders that are")
    return sorted(set(paths) - set(beside)), left


def _lack_classes(test: Sequence[str], rest: Sequence[str]) -> bool:
    """Whether the images of a test set lack the folders, or the words in their names, that the others have."""
    if max(path.count("/") for path in test) < min(path.count("/") for path in rest):
        return True
    found = _inside([_split(path)[1] for path in rest])
    return found is not None and not any(Layout(found[0]).place(path.rpartition("/")[2]) for path in test)


def _left(paths: Sequence[str], why: str) -> list[LeftOut]:
    return [LeftOut("image", len(paths), why, tuple(paths))] if paths else []


def _inside(names: Sequence[str]) -> tuple[str, list[str]] | None:
    """The pattern of names that hold one of a few words beside a number, and the word of each; else None."""
    for form, pattern in _INSIDE:
        fits = [pattern.fullmatch(name) for name in names]
        if len({fit and fit.groups() for fit in fits}) != 1 or fits[0] is None:
            continue
        text = form.format(*fits[0].groups())
        places = [Layout(text).place(name) for name in names]
        words = [place.label if place else "" for place in places]
        if "" not in words and 1 < len(set(words)) <= len(set(names)) / 2:
            return text, words
    return None


def _ways(folder: str) -> Iterator[tuple[str, str]]:
    """Every folder on the way to one, as what it lies in and its name."""
    parts = folder.split("/")
    return (("/".join(parts[:number]), part) for number, part in enumerate(parts))


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name.rpartition(".")[0] or name


def levels_of(paths: Sequence[str]) -> list[Level]:
    """What each level of folders is, by its names; a level with one name is `skipped`.

    Raises:
        DataError: Images lie in folders of different depth.
    """
    depth = {path.count("/") for path in paths}
    if len(depth) > 1:
        flat, deep = (
            next(path for path in paths if path.count("/") == number) for number in (min(depth), max(depth))
        )
        raise DataError(
            f"{_above(flat)} holds images, but {_above(deep)} holds folders of images; allowed: data.path: one of "
            f"them alone; {LAYOUTS}"
        )
    return [
        "skipped" if len(set(names)) == 1 else level_of(set(names))
        for names in zip(*(path.split("/")[:-1] for path in paths), strict=True)
    ]


def _above(path: str) -> str:
    return path.split("/", maxsplit=1)[0] if "/" in path else "the folder itself"


def read_folders(paths: Sequence[str], where: str) -> Layout:
    """The one layout that folders can have.

    Args:
        paths: Of images below their folder, all of one depth, with `/`.
        where: The folder, for errors.

    Raises:
        DataError: There is none, or several are left; the message has all with what they would give.
    """
    try:
        kinds = levels_of(paths)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    columns: list[Sequence[str]] = list(zip(*(path.split("/")[:-1] for path in paths), strict=True))
    texts = {}
    for number, names in enumerate(columns):
        found = _inside(sorted(set(names)))
        if found is not None and are_classes(set(found[1])):
            word = dict(zip(sorted(set(names)), found[1], strict=True))
            columns[number], kinds[number], texts[number] = [word[name] for name in names], "class", found[0]
    in_names = None
    if not {"class", "nothing"} & set(kinds):
        in_names = _inside([_split(path)[1] for path in paths])
    unknown = [names for names, kind in zip(columns, kinds, strict=True) if kind == "unknown"]
    if in_names is not None and unknown and not _cross(unknown[-1], in_names[1]):
        # Folders whose images have one word each, as breeds of dogs, are the classes themselves.
        in_names = None
    if in_names is not None and are_classes(set(in_names[1])):
        kinds.append("class")
        columns.append(in_names[1])
        texts[len(kinds) - 1] = in_names[0]
    if set(kinds) <= {"skipped"}:
        held = f"one class folder, {paths[0].split('/')[-2]}" if kinds else "no folders in it"
        raise DataError(f"{where}: has {held}; allowed: {_named(in_names, kinds, paths)}two or more ({LAYOUTS})")
    for number, (names, kind) in enumerate(zip(columns, kinds, strict=True)):
        odd = odd_names(set(names))
        if kind in {"unknown", "nothing", "class"} and odd and len(odd) < len(set(names)):
            rest = [name for name in sorted(set(names)) if name not in odd]
            _check_odd(odd, rest, kinds, number, where)
    possible = list(dict.fromkeys(_possible(columns, kinds)))
    likely = [
        _written(layout, texts, len(paths[0].split("/")) - 1) for layout in possible if "class" in layout.levels
    ]
    if len(likely) == 1 and not _is_doubtful(likely[0], kinds, columns):
        return likely[0]
    if not likely:
        ways = [f"{layout.text} ({_counts(layout, paths)})" for layout in _any(kinds) if "class" in layout.levels]
        raise DataError(
            f"{where}: its folders ({', '.join(_shown(names) for names in columns)}) are named like parts, sites, "
            f"persons or visits, and none like classes; allowed: {_named(in_names, kinds, paths)}data.labels, a "
            "table with a row for each image"
            + (f"; or, where these are the classes, data.layout: {'; or '.join(ways)}" if ways else "")
        )
    raise DataError(
        f"{where}: its folders can be read in more than one way; data.layout says which is right: "
        + "; or ".join(
            f"{layout.text} ({_counts(layout, paths)})"
            for layout in (likely if len(likely) > 1 else [*likely, *_others(likely[0])])
        )
    )


def folder_places(paths: Sequence[str], labels: Collection[str]) -> list[Place]:
    """Official parts and sites of images whose classes a table gives.

    Folders at the top are the sites where all images lie in such, unless their names are something else: persons,
    parts, views, shares of a download, or the classes themselves.
    """
    folders = [path.split("/")[:-1] for path in paths]
    shared = min(map(len, folders))
    columns = list(zip(*(each[:shared] for each in folders), strict=True))
    kinds = ["skipped" if len(set(names)) == 1 else level_of(set(names)) for names in columns]
    known = set(map(one_form, labels))
    split = next((number for number, kind in reversed([*enumerate(kinds)]) if kind == "split"), None)
    site = next((number for number, kind in enumerate(kinds) if kind == "site"), None)
    first = next((number for number, kind in enumerate(kinds) if kind not in {"skipped", "split"}), None)
    if site is None and first is not None and kinds[first] == "unknown":
        site = None if set(map(one_form, columns[first])) <= known else first
    return [
        Place(
            site="" if site is None else each[site],
            part="" if split is None else (part_in(each[split]) or "train"),
        )
        for each in folders
    ]


def _check_odd(odd: Sequence[str], rest: Sequence[str], kinds: Sequence[Level], number: int, where: str) -> None:
    is_no, it = ("is no class", "it") if len(odd) == 1 else ("are no classes", "them")
    said = f"{where}: {listed(odd)} {is_no} by name beside {listed(rest, 8)}; allowed: "
    if set(kinds[number + 1 :]) - {"skipped", "split", "visit"}:
        raise DataError(
            f"{said}data.path: one of these folders alone, such as {where}/{rest[0]}, or data.layout, such as "
            f"{_any(kinds)[0].text}, which takes all of them"
        )
    raise DataError(
        f"{said}data.classes: [{', '.join(rest[:8])}] with data.layout: {_any(kinds)[0].text}, which leaves {it} "
        "out, or data.layout alone, which takes all for classes"
    )


def _any(kinds: Sequence[Level]) -> list[Layout]:
    """Layouts in which one level or the other is the class, whatever its names are; none where all are parts."""
    return [
        Layout("/".join(["class" if at == number else _word(kind) for at, kind in enumerate(kinds)] + ["image"]))
        for number, open_ in reversed([*enumerate(kinds)])
        if open_ not in {"skipped", "split", "visit"}
    ]


def _word(kind: Level) -> str:
    return kind if kind in {"split", "site", "person"} else "*"


def _possible(columns: Sequence[Sequence[str]], kinds: Sequence[Level]) -> Iterator[Layout]:
    """Every layout that names and nesting leave open."""
    named = [number for number, kind in enumerate(kinds) if kind == "class"]
    if not named:
        named = [number for number, kind in enumerate(kinds) if kind == "unknown"]
    if not named:
        named = [number for number, kind in enumerate(kinds) if kind == "numbered"]
    elif inner := [number for number, kind in enumerate(kinds) if kind == "unknown" and number > named[0]]:
        # Kinds of what is ill, below benign and malignant, can be the classes as well.
        named += inner
    for place in named:
        choices = [
            ["class"] if number == place else _choices(columns, kinds, number, place)
            for number in range(len(kinds))
        ]
        for words in itertools.product(*choices):
            once = [word for word in words if word != "*"]
            if len(set(once)) == len(once):
                yield Layout("/".join([*words, "image"]))


def _choices(columns: Sequence[Sequence[str]], kinds: Sequence[Level], number: int, place: int) -> list[str]:
    """What a level may be where another is the class."""
    kind = kinds[number]
    if kind not in {"unknown", "numbered", "class"}:
        # Of two levels of parts, as in train/train, the inner one tells.
        inner = kind in {"split", "person"} and kind in kinds[number + 1 :]
        return ["*"] if inner and kind == "split" else [_word(kind)]
    if kind == "numbered":
        return ["person"] if "person" not in kinds else ["*"]
    if kind == "class":
        return ["*"]
    pairs, names = set(zip(columns[number], columns[place], strict=True)), set(columns[number])
    if number < place and len(pairs) == len(set(columns[place])) > len(names):
        # Each class lies in one folder alone, as kinds of what is ill do.
        return ["site", "*"] if "site" not in kinds else ["*"]
    if number < place:
        return ["site"] if len(pairs) > len(names) and "site" not in kinds else ["*"]
    return ["site", "*"] if len(pairs) > len(names) else ["person", "*"]


def _is_doubtful(layout: Layout, kinds: Sequence[Level], columns: Sequence[Sequence[str]]) -> bool:
    """Whether the only layout has a class that looks like something else, or a site that looks like a part."""
    names = set(columns[layout.levels.index("site")]) if "site" in layout.levels else set()
    return kinds[layout.levels.index("class")] == "numbered" or any(map(part_in, names))


def _others(layout: Layout) -> list[Layout]:
    """What the only layout could be as well: its classes persons, of which a table says the classes."""
    if "site" in layout.levels:
        return [Layout(layout.text.replace("site", "*"))]
    return [Layout(layout.text.replace("class", "person"))] if "person" not in layout.levels else []


def _cross(folders: Sequence[str], words: Sequence[str]) -> bool:
    """Whether the words in names of files differ within folders, and recur in several."""
    pairs = set(zip(folders, words, strict=True))
    return len(pairs) > max(len(set(folders)), len(set(words)))


def _written(layout: Layout, texts: Mapping[int, str], folders: int) -> Layout:
    """The layout with the patterns of those levels, or of the name, that hold the class beside a number."""
    parts = [texts.get(number, part) for number, part in enumerate(layout.parts)]
    return Layout("/".join(parts[:-1] if folders in texts else parts))


def _named(found: tuple[str, list[str]] | None, kinds: Sequence[Level], paths: Sequence[str]) -> str:
    """The layout that takes the class from names, with what it would give, as a choice; empty: there is none."""
    if found is None:
        return ""
    layout = Layout("/".join([*map(_word, kinds), found[0]]))
    return f"data.layout: {layout.text} ({_counts(layout, paths)}); or "


def _counts(layout: Layout, paths: Sequence[str]) -> str:
    places = [place for path in paths if (place := layout.place(path)) is not None]
    words = []
    for what, values in (
        ("class", [place.label for place in places]),
        ("person", [place.person for place in places]),
        ("site", [place.site for place in places]),
        ("part", [place.part for place in places]),
    ):
        names = sorted(set(as_one(values, what)[0]) - {""})
        if names:
            many = f"{len(names):,} {what}{'' if len(names) == 1 else 'es' if what == 'class' else 's'}"
            words.append(f"{many}: {listed(names, 3)}")
    return ", ".join(words)


def _shown(names: Sequence[str]) -> str:
    return listed(sorted(set(names)), 3)
