"""Adjacency relations: what one record may do between two neighbouring data sets.

A sensitivity, a noise scale or an epsilon means nothing without one of these names
beside it. Records are (feature vector, label) pairs held by one client; the unit of
privacy is always one record.
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
"""What each adjacency allows, and what it makes public."""


def class_counts_public(adjacency: Adjacency) -> bool:
    """Whether a client's class counts are the same on both sides of every neighbouring pair."""
    return adjacency == "replace_one_same_label"
