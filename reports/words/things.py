"""The plain words for the attacked and for the units that are counted."""

from __future__ import annotations

from fedassay.records.facts import Thing
from fedassay.support.registry import entries

SOURCES = {
    "raw": "raw features",
    "mixture_samples": "features sampled from the mixtures",
    "class_means": "class means",
    "class_sums": "class sums",
    "second_moment": "second moments",
    "gradient": "gradients",
    "singletons": "sums over a single record",
    "collapsed_components": "mixture components of a single record",
    "exact_counts": "record counts, which are sent as they are",
    "derivable_counts": "class sums and second moments together",
    "rank": "the rank of second moments",
    "label_histograms": "what is sent",
    "layer_inputs": "the gradients",
    "strongest_direction": "the gradients",
    "informed": "messages whose other records are known",
    "model": "the model",
}
"""Plain words for what was attacked; others are printed as they are."""

THINGS: dict[Thing, str] = {
    "record": "records",
    "person": "persons",
    "client": "clients",
    "message": "messages",
    "canary": "canaries",
    "training_record": "training images",
    "class": "classes",
    "release": "releases",
    "sum": "all clients together",
    "worst_neighbours": "artificial neighbours",
}

MOST_EXPOSED = frozenset({"worst_record", "worst_person_told", "worst_client_told"})
"""Metrics for the share of runs in which the unit most at risk is inferred."""


def source_words(source: str | None) -> str:
    """Name the attacked source, in plain words."""
    if source in SOURCES:
        return SOURCES[source]
    words = (source or "what is sent").replace("_", " ")
    # Vectors that an attack recovered are named after it.
    return f"what is sent, by {words}" if source in entries("attack") else words
