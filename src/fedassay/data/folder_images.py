"""Images in folders that are records: neither masks, nor of a test set without classes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fedassay.data.account import LeftOut
from fedassay.data.folder_words import IMAGES, MASK, MASKS, VIEWS, no_records, words_in
from fedassay.data.layout import Layout, folders_of, left_images, stem_of
from fedassay.data.table_words import part_in, part_of, plain_name

_STRAY = 0.05
"""Share of images that may lie beside the folders of all others and are left out with a word."""


def without_masks(paths: Sequence[str]) -> tuple[list[str], list[LeftOut]]:
    """The images without masks of them, and without the few that lie beside the folders of all others."""
    masks = _folders_of_masks({path.rpartition("/")[0] for path in paths})
    names = {path.rpartition("/")[0] + "/" + stem_of(path).casefold() for path in paths}
    beside = []
    for path in paths:
        folder, base = path.rpartition("/")[0], MASK.fullmatch(stem_of(path))
        if folder in masks or (base is not None and f"{folder}/{base[1].casefold()}" in names):
            beside.append(path)
    kept = sorted(set(paths) - set(beside))
    left = left_images(beside, "masks beside the images that they are of")
    stray = [path for path in kept if "/" not in path]
    if 0 < len(stray) <= max(1, _STRAY * len(kept)) and len(stray) < len(kept):
        kept = [path for path in kept if "/" in path]
        left += left_images(stray, "beside the folders that are read")
    return kept, left


def _folders_of_masks(folders: set[str]) -> set[str]:
    """Folders that lie in, or are, one with a name of masks beside one of images or of an official part."""
    inside: dict[str, set[str]] = defaultdict(set)
    for folder in folders:
        for above, name in _ways(folder):
            inside[above].add(name)
    with_images = {
        above
        for above, names in inside.items()
        if any(plain_name(name) in IMAGES | VIEWS or part_of(name) for name in names)
    }
    return {
        folder
        for folder in folders
        if any(above in with_images and plain_name(name) in MASKS for above, name in _ways(folder))
    }


def _ways(folder: str) -> list[tuple[str, str]]:
    """Every folder on the way to one, as what it lies in and its name."""
    parts = folder.split("/")
    return [("/".join(parts[:number]), part) for number, part in enumerate(parts)]


def with_classes(paths: Sequence[str]) -> tuple[list[str], list[LeftOut]]:
    """The images without those of a test set that has no classes, and of folders that are none beside classes."""
    test = [path for path in paths if any(part_in(name) == "test" for name in folders_of(path))]
    rest = sorted(set(paths) - set(test))
    left: list[LeftOut] = []
    if test and rest and _lack_classes(test, rest):
        paths = rest
        left = left_images(test, "of a test set whose classes neither folders nor names say")
    names: dict[int, set[str]] = defaultdict(set)
    for path in paths:
        for number, name in enumerate(folders_of(path)):
            names[number].add(name)
    odd = {(number, name) for number, each in names.items() for name in no_records(each)}
    beside = [path for path in paths if not odd.isdisjoint(enumerate(folders_of(path)))]
    left += left_images(beside, "in folders that are no classes by name beside folders that are")
    return sorted(set(paths) - set(beside)), left


def _lack_classes(test: Sequence[str], rest: Sequence[str]) -> bool:
    """Whether the images of a test set lack the folders, or the words in their names, that the others have."""
    if max(path.count("/") for path in test) < min(path.count("/") for path in rest):
        return True
    pattern, words = words_in([stem_of(path) for path in rest])
    return bool(words) and not any(Layout(pattern).place(path) for path in test)
