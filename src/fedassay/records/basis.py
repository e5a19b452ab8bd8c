"""The inputs of a cell as digests, and the releases of its clients as an accountant reads them.

Both are kept in the cell. The first keeps cells with different plans, data or weights out of one record. The
second lets the record's accounting be repeated from the record alone.

A digest of private data confirms guesses: anyone who guesses an image can compute it. In a redacted run such
digests are therefore keyed (HMAC-SHA256); the run does not hold the key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from fedassay.support import limits
from fedassay.support.types import Frozen

KEYED = "hmac-sha256:"
"""Prefix of a keyed digest."""


class Basis(Frozen):
    """The inputs of a cell.

    Attributes:
        plan: SHA-256 of the run's plan, as far as it changes results; see `plan_digest`.
        cells: SHA-256 of the keys of all cells of the run, in their order.
        entry: SHA-256 of the cell's description of itself; see `entry_digest`.
        data: SHA-256 of the records of each role, keyed in redacted runs; empty without records.
        weights: Content hash of the backbone; empty where there is none.
        code: SHA-256 of the sources of fedassay and of the external components that the cell runs.
        versions: Versions of Python and of the numerical libraries.
    """

    plan: str
    cells: str
    entry: str
    data: dict[str, str] = Field(default_factory=dict)
    weights: str = ""
    code: str = ""
    versions: dict[str, str] = Field(default_factory=dict)

    def unlike(self, other: Basis) -> list[str]:
        """Return, in words, the inputs that differ from another cell's; empty where all are equal."""
        words = {
            "plan": "the plan",
            "cells": "the cells of the plan",
            "entry": "the method entry",
            "weights": "the weights of the backbone",
            "code": "the code",
        }
        found = [text for name, text in words.items() if getattr(self, name) != getattr(other, name)]
        if roles := _differ(self.data, other.data):
            found.append(f"the data ({', '.join(roles)})")
        if names := _differ(self.versions, other.versions):
            found.append(f"the versions of {', '.join(names)}")
        return found


def _differ(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


class SentFields(Frozen):
    """Fields of one message with the same protection.

    Attributes:
        names: Their names.
        release: Their `fedassay.exchange.release.Release`, without its defaults and notes.
        secure: Whether they travel under secure aggregation.
    """

    names: tuple[str, ...] = Field(min_length=1)
    release: dict[str, Any]
    secure: bool = False


class SentMessage(Frozen):
    """A message that one sender sent this many times: its fields, without their values."""

    count: int = Field(ge=1, le=limits.RECORDS)
    fields: tuple[SentFields, ...]


class SentBy(Frozen):
    """The messages of each of several senders, which are equal in all that an accountant reads.

    Classes are numbered anew for each client where releases of no other client name classes.
    """

    role: Literal["client", "colluder", "server", "aggregate"]
    senders: int = Field(ge=1, le=limits.RECORDS)
    messages: tuple[SentMessage, ...]


class Released(Frozen):
    """The releases of a cell's clients, which its ledger adds up.

    Attributes:
        sent: Messages, in groups of equal senders.
        claim: The claim for them, as `fedassay.exchange.release.PrivacyClaim`; None: none is made.
        most_records: The most records of one person at one client; None: not stated.
        transcript: SHA-256 of the transcript.json that the run keeps; empty where it keeps none.
    """

    sent: tuple[SentBy, ...]
    claim: dict[str, Any] | None = None
    most_records: int | None = None
    transcript: str = ""


def text_digest(value: Any) -> str:
    """SHA-256 of anything JSON can hold, infinities as records write them; the order of keys does not count."""
    return hashlib.sha256(json.dumps(_plain(value), sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return "inf" if value == math.inf else int(value) if value.is_integer() else value
    return value


def plan_digest(plan: Any) -> str:
    """SHA-256 of a resolved plan, without its resources: with more memory or threads it is the same plan."""
    kept = {key: value for key, value in plan.items() if key != "resources"} if isinstance(plan, dict) else plan
    return text_digest(kept)


def entry_digest(
    method: str,
    label: str,
    params: Mapping[str, Any],
    epsilon: float,
    delta: float,
    adjacency: str,
    unit: str,
    seed: int | None,
) -> str:
    """Return the SHA-256 of a cell's description; arguments as in `fedassay.records.record.CellRecord`."""
    return text_digest([method, label, params, epsilon, delta, adjacency, unit, seed])


def cells_digest(keys: Iterable[str]) -> str:
    """SHA-256 of the keys of the cells of a run."""
    return text_digest(list(keys))


def data_digest(cells: Iterable[tuple[int | None, Basis | None]]) -> str | None:
    """One digest of the data of a whole run; None where a cell does not say what it stands on, or on no data.

    Args:
        cells: Seed and basis of each.
    """
    found: dict[str, dict[str, str]] = {}
    for seed, basis in cells:
        if basis is None or not basis.data:
            return None
        found["null" if seed is None else str(seed)] = basis.data
    return text_digest(found) if found else None


def keyed(digest: str, key: bytes) -> str:
    """A digest that only those who have the key can compute of data that they hold or guess."""
    return KEYED + hmac.new(key, digest.encode(), hashlib.sha256).hexdigest()


def without_plain(basis: Basis) -> Basis:
    """Return the inputs of a cell without those digests of data that can be computed without a key."""
    kept = {role: digest for role, digest in basis.data.items() if digest.startswith(KEYED)}
    return basis.model_copy(update={"data": kept, "weights": unguessable(basis.weights)})


def unguessable(fingerprint: str) -> str:
    """The hash of a backbone; where features stand in its place it is one of private data, and is left out."""
    head, mark, _ = fingerprint.partition(":")
    return fingerprint if fingerprint.startswith(KEYED) or not mark else head
