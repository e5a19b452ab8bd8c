"""How folders above images are read: which level is the class, the person, the site or the official part."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from fedassay.data.account import LeftOut
from fedassay.data.folder_words import IMAGES, MASKS, VIEWS, Level, level_of, odd_names
from fedassay.data.spellings import as_one, listed, one_form
from fedassay.data.table_words import part_in, part_of, plain_name
from fedassay.support.errors import DataError, PlanError

LAYOUTS = (
    "class/image, class/person/image, site/class/image, or train and test above these; a table of labels beside "
    "them; or data.layout, which says what each level of folders is"
)
_WORDS = ("class", "person", "site", "split", "*")
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
        levels = self.levels
        named = [level for level in levels if level != "*"]
        if self.text.split("/")[-1] != "image" or not set(levels) <= set(_WORDS) or len(set(named)) < len(named):
            raise PlanError(
                f"data.layout: {self.text} given; allowed: {', '.join(_WORDS)} for each level of folders, each "
                "word once, and image at the end, such as class/person/image"
            )

    @property
    def levels(self) -> list[str]:
        """The levels of folders, the outermost first."""
        return self.text.split("/")[:-1]

    def place(self, path: str) -> Place | None:
        """What the folders above a file say; None: there are too few."""
        folders, levels = path.split("/")[:-1], self.levels
        if len(folders) < len(levels):
            return None
        named = dict(zip(levels, folders[len(folders) - len(levels) :], strict=True))
        split = named.get("split", "")
        return Place(
            named.get("class", ""),
            named.get("person", ""),
            named.get("site", ""),
            part_in(split) or "",
        )

    def places(self, paths: Sequence[str], where: str) -> list[Place]:
        """What the folders say of each file.

        Raises:
            DataError: A file lies in fewer folders than the layout has.
        """
        found = [self.place(path) for path in paths]
        if (
            missed := next((path for path, place in zip(paths, found, strict=True) if place is None), None)
        ) is not None:
            raise DataError(f"data.layout: {self.text} given; {missed} of {where} lies in fewer folders")
        return [place for place in found if place is not None]


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
    left = (
        [LeftOut("image", len(beside), "masks beside the images that they are of", tuple(beside))]
        if beside
        else []
    )
    depths = Counter(path.count("/") for path in kept)
    stray = [path for path in kept if "/" not in path] if len(depths) > 1 else []
    if stray and len(stray) <= max(1, _STRAY * len(kept)):
        kept = [path for path in kept if "/" in path]
        left.append(LeftOut("image", len(stray), "beside the folders that are read", tuple(stray)))
    return kept, left


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
    if not kinds:
        raise DataError(f"{where}: has no folders in it; allowed: {LAYOUTS}")
    if set(kinds) == {"skipped"}:
        only = paths[0].split("/")[-2]
        raise DataError(
            f"{where}: has one class folder, {only}{_in_names(paths)}; allowed: two or more ({LAYOUTS})"
        )
    columns = list(zip(*(path.split("/")[:-1] for path in paths), strict=True))
    for number, (names, kind) in enumerate(zip(columns, kinds, strict=True)):
        odd = odd_names(set(names))
        if kind in {"unknown", "nothing", "class"} and odd and len(odd) < len(set(names)):
            rest = [name for name in sorted(set(names)) if name not in odd]
            _check_odd(odd, rest, kinds, number, where)
    found = list(dict.fromkeys(_possible(columns, kinds)))
    likely = [layout for layout in found if "class" in layout.levels]
    if len(likely) == 1 and not _is_doubtful(likely[0], kinds, columns):
        return likely[0]
    if not likely:
        ways = [f"{layout.text} ({_counts(layout, paths)})" for layout in _any(kinds) if "class" in layout.levels]
        raise DataError(
            f"{where}: its folders ({', '.join(_shown(names) for names in columns)}) are named like parts, sites, "
            f"persons or visits, and none like classes{_in_names(paths)}; allowed: data.labels, a table with a "
            "row for each image"
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
            part="" if split is None else (part_in(each[split]) or ""),
        )
        for each in folders
    ]


def _check_odd(odd: Sequence[str], rest: Sequence[str], kinds: Sequence[Level], number: int, where: str) -> None:
    is_no, it = ("is no class", "it") if len(odd) == 1 else ("are no classes", "them")
    said = f"{where}: {listed(odd)} {is_no} by name beside {listed(rest, 8)}; allowed: "
    if set(kinds[number + 1 :]) - {"skipped", "split", "visit"}:
        raise DataError(f"{said}data.path: one of these folders alone, such as {where}/{rest[0]}")
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


def _in_names(paths: Sequence[str]) -> str:
    """A clause on names of files that begin with one of a few words, as `cat.1.jpg` and `dog.1.jpg` do."""
    first = {re.split(r"[^a-zà-ÿ]", _split(path)[1].casefold(), maxsplit=1)[0] for path in paths} - {""}
    return f"; names of files begin with {listed(sorted(first))}, and are not read" if 1 < len(first) <= 20 else ""


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
