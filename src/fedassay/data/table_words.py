"""Meaning of the names of columns, folders and parts; every list of such words in one place."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from importlib import resources
from typing import Literal

import yaml

from fedassay.data.groups import is_obvious

Part = Literal["train", "validation", "test"]

WORDS: Mapping[str, frozenset[str]] = {
    name: frozenset(words)
    for name, words in yaml.safe_load((resources.files(__package__) / "words.yaml").read_text("utf-8")).items()
}
"""The lists of words.yaml by their names."""

LABELS = (WORDS["label_columns"], WORDS["label_columns_else"])
"""Columns that are taken for the labels, in two ranks: one of the second only where there is none of the first."""
SITES = frozenset(w + end for w in WORDS["site_columns"] for end in ("", "id", "name", "number", "no", "code"))
"""Columns that are taken for sites."""
PERSONS_ELSE = frozenset(
    word + end
    for word in WORDS["group_columns"]
    for end in ("id", "", "number", "no", "uid", "instanceuid", "name")
)
"""Columns that say which records belong together where none identifies persons."""
PARTS_COLUMNS = WORDS["part_columns"]
_TEXT = frozenset({".csv", ".tsv", ".tab"})
ENDINGS = _TEXT | {".xlsx", ".jsonl"}
"""Files that are read as tables; of others with a table's ending it is said that they are not."""
UNREAD = frozenset({".xls", ".ods", ".parquet", ".feather", ".sav", ".dta", ".rds"})
"""Tables in formats that are not read."""
FILES = re.compile(r"file|image|img|path|name|scan|picture|photo|bild|datei", re.IGNORECASE)

_ABOUT = re.compile(
    r"(^|[^a-z])(age|sex|gender|race|ethnicity|date|time|year|view|laterality|eye|side|body|location|locali[sz]ation|"
    r"width|height|size|bbox|spacing|url|index|id|ids|no|number|comment|note|notes|report|dx_type|follow|alter|"
    r"anatom|anatomic|anatomical|geschlecht|datum|weight|manufacturer|scanner|device|model|source|modality|x|y|w|h)([^a-z]|$)",
    re.IGNORECASE,
)
_PARTS: dict[str, Part] = {
    **dict.fromkeys(("train", "training", "trainset", "tr"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "valset"), "validation"),
    **dict.fromkeys(("test", "testing", "testset", "te", "eval", "evaluation", "holdout"), "test"),
}
_BESIDE_A_PART = WORDS["beside_parts"]


def plain_name(name: str) -> str:
    """A name in small letters, without what is no letter."""
    return re.sub(r"[^a-z]", "", name.casefold())


def part_of(name: str) -> Part | None:
    """The official part that a folder, file or value of this name is: `train`, `Testing`, `val_images`."""
    return part_in(name) if _beside_part(name) <= _BESIDE_A_PART else None


def part_in(name: str) -> Part | None:
    """The one official part that is among the words of a name: `stage_2_test_images`, `CRC-VAL-HE`."""
    parts = {_PARTS[word] for word in _words(name) if word in _PARTS}
    return parts.pop() if len(parts) == 1 else None


def are_parts(names: Collection[str]) -> bool:
    """Whether names are those of official parts, with or without words that all of them share.

    Beside a test set of the same name, the other is for training: `dataset` and `dataset_test`.
    """
    parts, beside = {part_in(name) for name in names}, {_beside_part(name) for name in names}
    if len(names) == 2 and len(beside) == 1 and frozenset() not in beside and len(parts) == 2:
        parts -= {None}
        return parts != {"train"}
    # Several of one part are something else that is called so, as `Training_001` and `Training_002`.
    several = None not in parts and (len(parts) > 1 or len(names) == 1)
    return several and (len(beside) == 1 < len(names) or all(map(part_of, names)))


def _words(name: str) -> list[str]:
    """The words of a name; a single letter, as of a list, is none."""
    return re.findall(r"[a-z]{2,}", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).casefold())


def _beside_part(name: str) -> frozenset[str]:
    return frozenset(_words(name)).difference(_PARTS)


def is_person(name: str) -> bool:
    """Whether a column identifies persons."""
    return is_obvious(name)


def is_site(name: str) -> bool:
    """Whether a column says where a record is from."""
    return plain_name(name) in SITES


def is_about(name: str) -> bool:
    """Whether a column says something of a record that is no class of it, as its age or its size."""
    return bool(_ABOUT.search(re.sub(r"([a-z])([A-Z])", r"\1 \2", name)))


def label_rank(name: str) -> int | None:
    """Rank of a column's name as that of the labels, 0 the surest; None: nothing says that it holds them."""
    words = re.sub(r"[^a-z]+", "_", name.casefold()).strip("_")
    if len(words) == 1 and len(name) > 1:
        return None
    return next((rank for rank, known in enumerate(LABELS) if words in known), None)
