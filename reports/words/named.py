"""Names of each harm: as the aim of a search, as a result, and as a question of a form."""

from __future__ import annotations

from dataclasses import dataclass

from fedassay.records.facts import HARMS, HarmKind


@dataclass(frozen=True)
class Named:
    """The names of a harm.

    Attributes:
        sought: The harm that was looked for, as an object.
        found: The harm that was found, in at most four words.
        asked: The question of a form, as a heading.
    """

    sought: str
    found: str
    asked: str


NAMED: dict[HarmKind, Named] = {
    "pictures": Named("rebuilt images", "images rebuilt", "Images of people rebuilt"),
    "exact": Named("exact features or records", "records exact", "Exact features or records"),
    "named": Named("persons named", "candidates named", "Persons named as members"),
    "members": Named("signs of membership", "members told from others", "Likely members"),
    "attributes": Named("labels and attributes", "labels or attributes told", "Labels and traits of clients"),
    "counts": Named("record counts", "record counts told", "How many records there are"),
}

assert tuple(NAMED) == HARMS
