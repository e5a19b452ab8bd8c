"""A contact sheet: what a data set holds, by class, site, part and client, and what looks odd in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedassay.data.account import Account
from fedassay.data.image_header import Header
from fedassay.data.pictures_seen import Seen, seen
from fedassay.data.shortcuts import TEST, odd_masks, shortcuts
from fedassay.data.twins import Twin, twins
from fedassay.support.types import Finite, Frozen, Images, Ints

TILE = 96
"""Side of a thumbnail."""
THUMBNAILS = 8
"""Thumbnails of a group."""
_PAIRS = 12
"""Pairs of pictures that are alike which are shown."""
_GROUPS = {"part": 6, "class": 24, "site": 12, "client": 12}
"""Groups of a kind that are shown."""
_PIXELS, _PICTURES = 512 * 1024 * 1024, 20_000
"""Pixels and pictures that are looked at, which takes about a minute; of larger sets a sample is."""


class Group(Frozen):
    """Pictures that have something in common.

    Attributes:
        kind: `part`, `class`, `site` or `client`.
        name: Of the part, the class, the site, the client.
        records: Number of pictures.
        persons: Number of their persons; None where unknown.
        looked_at: Number of pictures looked at for the following figures.
        brightness: Mean of their mean grey values, 0 to 255; None where none was looked at.
        spread: Standard deviation of these mean grey values.
        sizes: The most frequent sizes and modes, in words.
        thumbnails: Number of pictures shown.
    """

    kind: str
    name: str
    records: int
    persons: int | None
    looked_at: int
    brightness: Finite | None
    spread: Finite | None
    sizes: str
    thumbnails: int


class Pair(Frozen):
    """Two pictures that are alike.

    Attributes:
        words: Description of their common and different properties.
        first: The one: where it is from.
        second: The other.
        same: Whether all their pixels are equal.
    """

    words: str
    first: str
    second: str
    same: bool


class Sheet(Frozen):
    """A contact sheet without its thumbnails, for the record.

    Attributes:
        source: The data set.
        records: Pictures in it.
        persons: Number of their persons; None where unknown.
        looked_at: Pictures that were looked at.
        groups: Kinds in the order of a reader: parts, classes, sites, clients.
        unshown: Groups of a kind that are not among `groups`.
        warnings: Oddities, worst first, one sentence each.
        test: The comparison of classes, in words.
        alike: Number of similar pairs (`all`), and of those in two `parts`, `persons`, `classes`, `clients` or
            `sites`.
        pairs: Those that are shown.
        left_out: Data left out, one line each, with the number of their thumbnails.
        files_left_out: Number of files among that.
    """

    source: str
    records: int
    persons: int | None
    looked_at: int
    groups: tuple[Group, ...]
    unshown: dict[str, int]
    warnings: tuple[str, ...]
    test: str
    alike: dict[str, int]
    pairs: tuple[Pair, ...]
    left_out: tuple[tuple[str, int], ...]
    files_left_out: int


@dataclass(frozen=True, eq=False)
class Listed:
    """All pictures of a data set, before they are looked at.

    Attributes:
        source: The data set.
        labels: Class of each, shape (n,).
        class_names: Of the classes.
        kinds: Headers of all; of pictures in arrays, without a format.
        picture: Gives one, shape (H, W, C), uint8.
        name: Says where one is from, in a few words.
        parts: Numbers in `part_names` of each, or None.
        part_names: Roles, or the official training and test set.
        sites: Numbers in `site_names` of each, or None.
        site_names: Of the sites.
        persons: The person of each, or None.
        clients: Client of each, from 0, and -1 of those that no client has; None where no clients are known.
        account: Account of the data, read and left out.
        unread: Gives the picture of a file that was left out, or None where it is none.
    """

    source: str
    labels: Ints
    class_names: tuple[str, ...]
    kinds: Sequence[Header]
    picture: Callable[[int], Images]
    name: Callable[[int], str]
    parts: Ints | None = None
    part_names: tuple[str, ...] = ()
    sites: Ints | None = None
    site_names: tuple[str, ...] = ()
    persons: Ints | None = None
    clients: Ints | None = None
    account: Account = field(default_factory=Account)
    unread: Callable[[str], Images | None] = lambda path: None


@dataclass(frozen=True, eq=False)
class Contact:
    """A sheet with its thumbnails.

    Attributes:
        sheet: The contact sheet's data.
        tiles: Rows of thumbnails, shape (rows, THUMBNAILS, TILE, TILE, 3): of each group, of each pair (two), of
            each line that was left out.
    """

    sheet: Sheet
    tiles: NDArray[np.uint8]


def contact(listed: Listed, seed: int = 0) -> Contact:
    """Look at a data set.

    Args:
        listed: The data set.
        seed: Of the draw of thumbnails, and of what is looked at in a large set.
    """
    rng = np.random.default_rng(seed)
    looked = seen(_sample(listed.kinds, rng), listed.picture)
    groups, rows = [], []
    unshown: dict[str, int] = {}
    for kind, name, members in _groups(listed, unshown):
        drawn = members[np.sort(rng.permutation(len(members))[:THUMBNAILS])]
        groups.append(_group(kind, name, members, len(drawn), listed, looked))
        rows.append(_row([listed.picture(row) for row in drawn.tolist()]))
    found = [(twin, _parted(twin, listed, looked)) for twin in twins(looked)]
    # Those that most things part come first, then equal ones.
    found.sort(key=lambda each: (-len(each[1]), not each[0].same, each[0]))
    pairs = []
    for twin, ways in found[:_PAIRS]:
        both = [int(looked.rows[place]) for place in (twin.first, twin.second)]
        pictures = [listed.picture(row) for row in both]
        rows.append(_row(pictures))
        same = twin.same and np.array_equal(pictures[0], pictures[1])
        words = ("the same picture" if same else "nearly the same") + (f" in two {in_line(ways)}" if ways else "")
        pairs.append(Pair(words=words, first=listed.name(both[0]), second=listed.name(both[1]), same=same))
    alike = {"all": len(found), **Counter(way for _, ways in found for way in ways)}
    left_out = []
    for each in listed.account.left_out:
        pictures = [picture for path in each.paths[:THUMBNAILS] if (picture := listed.unread(path)) is not None]
        left_out.append((each.line, len(pictures)))
        rows.append(_row(pictures))
    sheet = Sheet(
        source=listed.source,
        records=len(listed.labels),
        persons=None if listed.persons is None else len(np.unique(listed.persons)),
        looked_at=len(looked.rows),
        groups=tuple(groups),
        unshown=unshown,
        warnings=tuple(_warnings(listed, looked, alike)),
        test=TEST,
        alike=alike,
        pairs=tuple(pairs),
        left_out=tuple(left_out),
        files_left_out=sum(
            each.count for each in listed.account.left_out if each.kind in ("file", "image", "table")
        ),
    )
    return Contact(sheet, np.stack(rows) if rows else np.zeros((0, THUMBNAILS, TILE, TILE, 3), np.uint8))


def tile(picture: Images) -> NDArray[np.uint8]:
    """A picture as a thumbnail (TILE, TILE, 3) of the same proportions; small ones grow by whole numbers."""
    image = Image.fromarray(picture[..., 0] if picture.shape[-1] == 1 else picture).convert("RGB")
    longest = max(image.size)
    factor = TILE // longest if longest <= TILE else TILE / longest
    size = tuple(max(1, round(side * factor)) for side in image.size)
    how = Image.Resampling.NEAREST if longest <= TILE else Image.Resampling.BOX
    canvas = Image.new("RGB", (TILE, TILE), (128, 128, 128))
    small = image.resize((size[0], size[1]), how)
    canvas.paste(small, ((TILE - size[0]) // 2, (TILE - size[1]) // 2))
    return np.asarray(canvas)


def _row(pictures: Sequence[Images]) -> NDArray[np.uint8]:
    row = np.zeros((THUMBNAILS, TILE, TILE, 3), np.uint8)
    for place, picture in enumerate(pictures):
        row[place] = tile(picture)
    return row


def _sample(kinds: Sequence[Header], rng: np.random.Generator) -> list[int]:
    """Draw the pictures to look at: all, or as many at random as their pixels allow."""
    pixels = np.array([kind.size[0] * kind.size[1] for kind in kinds], np.int64)
    order = rng.permutation(len(kinds))[:_PICTURES]
    kept = order[np.cumsum(pixels[order]) <= _PIXELS]
    return [int(row) for row in np.sort(kept)]


def _groups(listed: Listed, unshown: dict[str, int]) -> Iterator[tuple[str, str, Ints]]:
    """Kind, name and pictures of every group that is shown."""
    clients = listed.clients
    count = 0 if clients is None or not len(clients) else int(clients.max()) + 1
    kinds: Mapping[str, tuple[Ints | None, Sequence[str]]] = {
        "part": (listed.parts, listed.part_names),
        "class": (listed.labels, listed.class_names),
        "site": (listed.sites, listed.site_names),
        "client": (clients, [f"client {number}" for number in range(count)]),
    }
    for kind, (numbers, names) in kinds.items():
        if numbers is None:
            continue
        present = [number for number in range(len(names)) if (numbers == number).any()]
        for number in present[: _GROUPS[kind]]:
            yield kind, names[number], np.flatnonzero(numbers == number)
        if len(present) > _GROUPS[kind]:
            unshown[kind] = len(present) - _GROUPS[kind]


def _group(kind: str, name: str, members: Ints, shown: int, listed: Listed, looked: Seen) -> Group:
    here = np.isin(looked.rows, members)
    brightness = looked.brightness[here]
    return Group(
        kind=kind,
        name=name,
        records=len(members),
        persons=None if listed.persons is None else len(np.unique(listed.persons[members])),
        looked_at=int(here.sum()),
        brightness=round(float(brightness.mean()), 2) if len(brightness) else None,
        spread=round(float(brightness.std()), 2) if len(brightness) else None,
        sizes=_sizes([listed.kinds[row] for row in members.tolist()]),
        thumbnails=shown,
    )


def _sizes(kinds: Sequence[Header]) -> str:
    """The most frequent sizes and modes."""
    sizes = Counter(kind.size for kind in kinds)
    modes = Counter(_mode(kind) for kind in kinds)
    (width, height), most = sizes.most_common(1)[0]
    words = f"{width}x{height}"
    if len(sizes) > 1:
        sides = np.array(list(sizes))
        low, high = sides.min(axis=0).tolist(), sides.max(axis=0).tolist()
        words = f"{low[0]}x{low[1]} to {high[0]}x{high[1]}, most ({most:,}) {words}"
    (mode, _), *others = modes.most_common()
    named = mode if not others else ", ".join(f"{count:,} {name}" for name, count in modes.most_common(3))
    return f"{words}, {named}"


def _mode(kind: Header) -> str:
    return f"{'grey' if kind.grey else 'colour'}{f' of {kind.bits} bits' if kind.bits > 8 else ''}"


def _parted(twin: Twin, listed: Listed, looked: Seen) -> list[str]:
    """Return the borders between two similar pictures: the words of `Sheet.alike`."""
    one, other = int(looked.rows[twin.first]), int(looked.rows[twin.second])
    ways = {"parts": listed.parts, "persons": listed.persons, "classes": listed.labels, "sites": listed.sites}
    found = [name for name, numbers in ways.items() if numbers is not None and numbers[one] != numbers[other]]
    clients = [] if listed.clients is None else [listed.clients[row] for row in (one, other)]
    return [*found, *(["clients"] if clients and min(clients) >= 0 and clients[0] != clients[1] else [])]


def in_line(words: Sequence[str]) -> str:
    """Words joined by commas, and by `and` before the last."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _warnings(listed: Listed, looked: Seen, alike: Mapping[str, int]) -> Iterator[str]:
    """Oddities, in sentences without their full stop."""
    labels = listed.labels[looked.rows]
    persons = None if listed.persons is None else listed.persons[looked.rows]
    kinds = [listed.kinds[row] for row in looked.rows.tolist()]
    present = [listed.class_names[number] for number in np.unique(labels).tolist()]
    others = present[1] if len(present) == 2 else "the other classes"
    for each in shortcuts(labels, listed.class_names, persons, kinds, looked):
        inside, outside = (
            f"{value:.0%}" if each.share else f"{value:.3g}" for value in (each.inside, each.outside)
        )
        yield (
            f"class {each.of} can be told from {others} by its {each.what} alone: {inside} against {outside}; "
            f"{each.ordered:.0%} of pairs of {'pictures' if persons is None else 'persons'} are in that order"
        )
    yield from odd_masks(labels, listed.class_names, looked)
    for way, words, why in (
        ("parts", "in two parts", "what one part holds of a picture, the other knows"),
        ("persons", "of two persons", "persons who are counted as two may be one"),
        ("classes", "of two classes", "one picture has two labels"),
    ):
        if number := alike.get(way):
            pairs = f"{number:,} pairs of pictures {words} are" if number > 1 else f"1 pair of pictures {words} is"
            yield f"{pairs} alike: {why}"
