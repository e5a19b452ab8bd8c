"""Keys above the arrays of a file: clients, classes, or parts of a network.

Keys are those of nested mappings, or parts of names (`alice_mean`, `mean_0`). Numbers are classes where a name
says whose the file is. Elsewhere they are clients if tables by class stand below them, and else the user is asked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from fedassay.exchange.kinds import called
from fedassay.recorders.files.names import Whose
from fedassay.support.errors import DataError
from fedassay.support.text import cut

PARTS = re.compile(r"(?i)(layer|block|conv|fc|linear|encoder|decoder|module|stage|head|\d+$)")
"""Keys of a network's parts, which may well hold arrays of the same names."""
BY_CLASS = frozenset(
    [
        *("class_counts", "class_sums", "class_means", "class_covariances", "variances", "deviations"),
        *("mixture_weights", "mixture_means", "mixture_covariances"),
    ]
)
"""Kinds of arrays that may stand under keys of classes."""
_LAYERS = frozenset(["weight", "bias", "biases", "kernel"])
_CLASS = r"(?:class|label|cls)?[-_ ]?"
_NUMBERED = (
    re.compile(rf"(?i)(?P<own>.*?[a-z])(?P<mark>[-_ .:]*)(?P<key>{_CLASS}\d{{1,9}})"),
    re.compile(rf"(?i)(?P<key>{_CLASS}\d{{1,9}})(?P<mark>[-_ .:])(?P<own>[a-z].*)"),
)
_ENDS = re.compile(r"[-_.]\d{1,9}$")
_WORDED = (re.compile(r"(.+?)[-_ .:](.+)"), re.compile(r"(.+)[-_ .:](.+)"))


@dataclass(frozen=True, eq=False)
class Held:
    """An array with the client, round and role that its names give."""

    file: str
    about: Whose
    own: tuple[str, ...]
    values: NDArray[Any]


def numbered(held: list[Held]) -> list[Held]:
    """Part names of statistics from the numbers at their ends: `mean_0`, `mean_1` and `class0_mean` have keys."""
    found = {id(each): _number_of(each) for each in held}
    # Beside tables that are numbered alike stand layers of a network.
    if any(
        each.values.ndim > 1 and _ENDS.search(each.own[-1]) for each in held if each.own and not found[id(each)][1]
    ):
        return held
    words = {word for each in held if each.own for word in re.split(r"[\W_]+", each.own[-1].casefold())}
    if words & _LAYERS or all(not own or own[-1] == "weights" for _, _, *own in found.values()):
        return held
    keys: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for each in held:
        mark, key, *own = found[id(each)]
        keys[each.file, mark, *own].add(key)

    def parted(each: Held) -> Held:
        mark, key, *own = found[id(each)]
        others = keys[each.file, mark, *own]
        # Glued numbers that begin with 1 may be those of moments: sum1, sum2.
        known = len(others) > 1 and (mark or "0" in others or not key.isdecimal())
        return replace(each, own=(*own[:-1], key, own[-1])) if known else each

    return list(map(parted, held))


def _number_of(each: Held) -> tuple[str, ...]:
    """Return the mark and the number in a name of a statistic by class, and its keys without these."""
    name = each.own[-1] if each.own else ""
    for form in () if called(name, whole=True) else _NUMBERED:
        found = form.fullmatch(name)
        if found and (found["own"] == "weights" or BY_CLASS.intersection(called(found["own"]))):
            return found["mark"], found["key"], *each.own[:-1], found["own"]
    return "", "", *each.own


def by_key(held: list[Held], clients: int | None) -> list[Held]:
    """Read the outermost keys of one file as clients where all of them hold arrays of the same names.

    Args:
        held: The arrays of all files.
        clients: Number of clients, if given; 1: all arrays are one message.

    Raises:
        DataError: The keys may be clients, or classes or parts of one message.
    """
    free = [each for each in held if not (each.about.client or each.about.server or each.about.summed)]
    if clients == 1 or not free:
        return held
    parted = {id(each): each.own for each in free} if any(len(each.own) > 1 for each in free) else _worded(free)
    if any(len(own) < 2 for own in parted.values()):
        return held
    deep = _shared(list(parted.values()))
    keys: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for own in parted.values():
        keys[own[deep]].add(own[deep + 1 :])
    if not all(key.startswith("#") for key in keys) and not _are_clients(keys, free, deep, clients):
        return held

    def of_client(each: Held) -> Held:
        own = parted.get(id(each))
        if own is None:
            return each
        about = replace(each.about, client=own[deep].removeprefix("#"))
        return replace(each, about=about, own=(*own[:deep], *own[deep + 1 :]))

    return list(map(of_client, held))


def _worded(free: list[Held]) -> dict[int, tuple[str, ...]]:
    """Part the names of statistics of one file from the words that they begin with, where all have such words."""
    for form in _WORDED:
        found = {id(each): form.fullmatch(each.own[-1]) for each in free if each.own}
        parts: dict[int, tuple[str, ...]] = {
            each: (part[1], part[2]) for each, part in found.items() if part is not None
        }
        sides: dict[tuple[str, ...], set[int]] = defaultdict(set)
        for each in free:
            sides[parts.get(id(each), ("",))[1:]].add(each.values.ndim)
        words = {word for word, _ in parts.values()}
        known = all(called(own) and not called(word) for word, own in parts.values())
        if known and len(parts) == len(free) and len(words) > 1 and all(len(own) == 1 for own in sides.values()):
            return parts
    return {id(each): each.own for each in free}


def _are_clients(
    keys: dict[str, set[tuple[str, ...]]], free: Sequence[Held], deep: int, clients: int | None
) -> bool:
    """Whether keys are clients, by the number of clients that was given, or by what stands below them."""
    alike = len(set(map(frozenset, keys.values()))) == 1
    if len(keys) < 2 or not alike or clients == len(keys):
        return len(keys) > 1 and alike
    numbers = all(map(str.isdecimal, keys))
    if not numbers and any(map(PARTS.search, keys)):
        return False
    if not numbers and len(free[0].own) > 1:
        return True
    names = {name for below in keys.values() for own in below for name in own}
    if numbers and (names & _LAYERS or not any(BY_CLASS.intersection(called(name)) for name in names)):
        return False
    if numbers and any(_is_by_class(each, deep) for each in free):
        return True
    if clients is not None:
        return False
    listed = cut(", ".join(sorted(keys)), 60)
    other = "one client's classes" if numbers else "parts of one client's names"
    raise DataError(
        f"{free[0].file}: {listed} may be clients or {other}; say --clients {len(keys)} where each is a client, "
        "or --clients 1"
    )


def _is_by_class(each: Held, deep: int) -> bool:
    """Whether an array below a key has a row for each class by its name and sides, or keys of classes."""
    *keys, own = each.own[deep + 1 :] or each.own
    if any(map(str.isdecimal, (*keys, own))):
        return True
    sides = {"class_counts": 0, "class_sums": 1, "class_means": 1}
    return any(each.values.ndim > sides.get(kind, 16) for kind in called(own, whole=True))


def _shared(held: list[tuple[str, ...]]) -> int:
    """Return the number of outermost keys that lead to all arrays, of statistics alone, two others left."""
    if not all(called(own[-1]) for own in held):
        return 0
    fewest = min(map(len, held)) - 2
    return next((deep for deep in range(fewest) if len({own[deep] for own in held}) > 1), max(0, fewest))
