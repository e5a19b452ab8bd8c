"""Adjacency relations (how two neighbouring data sets may differ) and units of privacy (the party protected).

A sensitivity, a noise scale or an epsilon means nothing without one name of each kind
beside it. Records are (feature vector, label) pairs held by one client. The relations are
worded for records; where the unit is a person or a client, all of its records take part.
"""

from __future__ import annotations

from typing import Literal

Adjacency = Literal["add_remove", "replace_one", "replace_one_same_label"]
"""One of the three relations described in `ADJACENCIES`."""

ADJACENCIES: dict[str, str] = {
    "add_remove": (
        "One record is added to or removed from one client's data. The number of records, in total and "
        "in each class, is private: a count that leaves exactly voids every finite epsilon."
    ),
    "replace_one": (
        "One record of one client is replaced by any other record, whose label may differ. The client's "
        "total number of records is public; its class counts are not (a record may leave one class and "
        "enter another, so two classes change at once)."
    ),
    "replace_one_same_label": (
        "One record of one client is replaced by another record with the same label. Class counts are "
        "public, and exactly one class changes."
    ),
}
"""The change that each adjacency allows, and the counts that it makes public."""


Unit = Literal["record", "person", "client"]
"""The party that a guarantee protects: one of the three described in `UNITS`."""

UNITS: dict[str, str] = {
    "record": "Neighbouring data sets differ in one record.",
    "person": (
        "Neighbouring data sets differ in one person: all of the records of one person at a client. Under "
        "replace_one_same_label each of them is replaced by one with the same label."
    ),
    "client": "Neighbouring data sets differ in one client: all of its records.",
}
"""The difference between neighbouring data sets, by unit."""

UNIT_ORDER: tuple[Unit, ...] = ("record", "person", "client")
"""Units from the smallest to the largest: each is made of those before it."""

UNIT_WORDS: dict[str, str] = {"record": "one record", "person": "one person", "client": "one client"}
"""A unit as a sentence names it."""


def record_counts_public(adjacency: Adjacency) -> bool:
    """Whether a client's number of records is the same on both sides of every neighbouring pair."""
    return adjacency != "add_remove"


def class_counts_public(adjacency: Adjacency) -> bool:
    """Whether a client's class counts are the same on both sides of every neighbouring pair."""
    return adjacency == "replace_one_same_label"
