"""Kind of a level of folders, by the names on it: a part, a site, a person, a class, or nothing of a record."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Literal

from fedassay.data.groups import OBVIOUS
from fedassay.data.path_pattern import PathPattern
from fedassay.data.spellings import are_dates
from fedassay.data.table_words import WORDS, are_parts, part_of

Kind = Literal["split", "site", "person", "class", "skipped", "visit", "numbered", "nothing", "unknown"]
"""`visit` is a folder of one person's study; `numbered` may be persons or classes; `nothing` is no record's."""

MASKS = WORDS["masks"] | {f"{word}s" for word in WORDS["masks"]}
"""Folders beside one of images that hold something else of the same records."""
MASK = re.compile(r"(.+?)[-_ .]?(?:mask|segmentation|seg|gt|annotation|overlay|heatmap)[-_ .]?\d*", re.IGNORECASE)
"""Names of masks beside the image that they are of."""
IMAGES = WORDS["images"]

_SITES = WORDS["sites"]
_CLASSES = WORDS["classes"]
_CHUNKS = WORDS["chunks"]
_VISITS = WORDS["visits"]
VIEWS = WORDS["views"]
_NOTHING = WORDS["nothing"]
_NUMBERED = re.compile(r"(.*?)[-_ .]?(\d+)([a-z]?)$")
_INSIDE = (
    ("{{class}}{0}#{1}", re.compile(r".*?[^\W\d_]([-_. ]*\(?)\d+(\)?)")),
    ("*#{0}{{class}}{1}", re.compile(r".*?\d+([-_. ]+)[^\W\d](?:[^\d]*[^\W\d])?()")),
)
"""Patterns of names that may hold a class beside a number, and what gives their separators."""
_UID = re.compile(r"[\d.]{12,}|[0-9a-f]{8,}(-[0-9a-f]{4,})*|[0-9a-f]{12,}")
_SYNSET = re.compile(r"n\d{8}")
_YEAR = re.compile(r"(19|20)\d\d")
_GRADES = 10


def level_of(names: Collection[str]) -> Kind:
    """Return the kind of a level of folders with these names; `unknown` where the names do not say."""
    whole = [name.casefold() for name in names]
    numbered = [found for name in whole if (found := _NUMBERED.fullmatch(name))]
    stems = [re.sub(r"[^a-zà-ÿ]+", " ", found[1]).split() for found in numbered]
    words = {word for stem in stems for word in stem[-1:]}
    return (
        _of_forms(names, whole)
        or _of_one_stem(whole, numbered, words)
        or _of_codes(whole, numbered, words)
        or _of_series(whole, numbered, words)
        or _of_words(whole)
    )


def _of_forms(names: Collection[str], whole: Sequence[str]) -> Kind | None:
    """Return the kind of official parts, magnifications, dates, years and folders of all images."""
    if are_parts(names):
        return "split"
    if all(re.fullmatch(r"\d+x", name) for name in whole) or are_dates(whole):
        return "visit"
    if all(re.sub(r"[^a-z]", "", name) in IMAGES for name in whole) or all(map(_YEAR.fullmatch, whole)):
        return "skipped"
    return None


def _of_one_stem(whole: Sequence[str], numbered: Sequence[re.Match[str]], words: set[str]) -> Kind | None:
    """Return the kind of names that are numbers behind one stem, by its last word."""
    if len(numbered) != len(whole) or len({found[1] for found in numbered}) != 1:
        return None
    if words & _VISITS:
        return "visit"
    if words & set(OBVIOUS) or words & {"p", "case", "slide", "id"}:
        return "person"
    if words & _SITES:
        return "site"
    return "skipped" if words & _CHUNKS else None


def _of_codes(whole: Sequence[str], numbered: Sequence[re.Match[str]], words: set[str]) -> Kind | None:
    """Return the kind of synsets, unique identifiers, numbered classes and bare numbers."""
    if all(_SYNSET.fullmatch(name) for name in whole):
        return "class"
    if len(whole) > 1 and all(_UID.fullmatch(name) for name in whole):
        return "person"
    if len(numbered) == len(whole) and words <= _CLASSES - {"no"} and words:
        return "class"
    if not all(name.isdecimal() for name in whole):
        return None
    numbers = sorted(map(int, whole))
    grades = numbers[0] in {0, 1} and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    plain = [name.lstrip("0") or "0" for name in whole] == list(whole)
    return "class" if grades and len(numbers) <= _GRADES and plain else "numbered"


def _of_series(whole: Sequence[str], numbered: Sequence[re.Match[str]], words: set[str]) -> Kind | None:
    """Return the kind of names that are mostly numbers behind one stem."""
    series = Counter(re.sub(r"\d+", "", found[1]) for found in numbered)
    if max(series.values(), default=0) > 0.8 * len(whole) and len(whole) > 1 and not _letters(whole) & _CLASSES:
        return "person" if words & set(OBVIOUS) else "numbered"
    return None


def _of_words(whole: Sequence[str]) -> Kind:
    """Return the kind by the words in the names; `unknown` where none decides."""
    if any(_letters([name]) & _NOTHING for name in whole):
        return "nothing"
    if all(_letters([name]) <= VIEWS for name in whole):
        return "visit"
    sites, classes = (sum(bool(_letters([name]) & known) for name in whole) for known in (_SITES, _CLASSES))
    if sites > classes and 2 * sites >= len(whole):
        return "site"
    return "class" if classes > sites else "unknown"


def odd_names(names: Collection[str]) -> list[str]:
    """Names of a level that are of no class, such as `thumbnails`, or of a part beside others that are not."""
    return sorted(name for name in names if _letters([name.casefold()]) & _NOTHING or part_of(name))


def words_in(names: Sequence[str]) -> tuple[str, list[str]]:
    """The pattern of names that hold one of few words beside a number, and the word of each; else nothing."""
    for form, pattern in _INSIDE:
        fits = [pattern.fullmatch(name) for name in names]
        if len({fit and fit.groups() for fit in fits}) != 1 or fits[0] is None:
            continue
        text = form.format(*fits[0].groups())
        found = PathPattern(text)
        words = [values[0] for name in names if (values := found.values(name))]
        if len(words) == len(names) and 1 < len(set(words)) <= len(set(names)) / 2:
            return text, words
    return "", []


def are_classes(names: Collection[str]) -> bool:
    """Whether names are of classes, most of them by a word that is known."""
    known = sum(bool(_letters([name]) & _CLASSES) for name in names)
    # A class that recurs beside several views, as in left_ill and right_ill, is one part of the word.
    once = {tuple(w for w in re.findall(r"[a-zà-ÿ]+", name.casefold()) if w not in VIEWS) for name in names}
    return len(once) == len(names) > 0 and level_of(names) == "class" and 2 * known >= len(names)


def no_records(names: Collection[str]) -> list[str]:
    """Names of what holds no records, where every other name has a word that is known of classes."""
    odd = [name for name in names if (words := _letters([name])) and words <= _NOTHING]
    rest = [name for name in names if name not in odd]
    return odd if len(rest) > 1 and all(_letters([name]) & _CLASSES for name in rest) else []


def _letters(names: Collection[str]) -> set[str]:
    return {word for name in names for word in re.findall(r"[a-zà-ÿ]+", name.casefold())}
