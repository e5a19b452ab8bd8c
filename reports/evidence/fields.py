"""Fields that a client sends, their protection, and their assumed readers, in words that need no manual."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fedassay.exchange.kinds import kinds
from fedassay.records.record import CellRecord, LedgerRow
from fedassay.reports.evidence.lines import Line, by_person
from fedassay.reports.evidence.release import Release
from fedassay.reports.words.sentences import listed

_MOST = 3
"""Fields of one kind that are named; of more it is said how many there are."""

_MECHANISMS = {
    "gaussian": "Gaussian noise is",
    "pure": "Noise of pure differential privacy is",
    "dp_sgd": "In every training step (DP-SGD), noise is",
}
"""Ways of adding noise, as the beginning of a sentence."""

_VIEWS = {
    "per_client": "The server, or whoever reads what each client sends",
    "aggregate": "Whoever sees the sums over all clients, and no client's own message",
    "broadcast": "Whoever receives what the server sends out",
}
"""Readers of the messages, by the plan's `threat.view`."""


def named(rows: Iterable[LedgerRow]) -> str:
    """Fields as a list in words, each kind once with the names of its fields; empty where there are none."""
    said_of: dict[str, dict[str, None]] = {}
    known = kinds()
    for row in rows:
        words = known.get(row.kind, known["other"]).words
        said_of.setdefault(words, {})[row.field.replace("_", " ")] = None
    said = (
        f"{words} ({listed(fields, limit=_MOST) if len(fields) <= _MOST else f'{len(fields)} fields'})"
        for words, fields in said_of.items()
    )
    return listed(said, limit=len(said_of))


def noise(cell: CellRecord) -> str:
    """Sentences on the noise and the fields that it is added to, one a mechanism; empty without noise."""
    said = []
    for mechanism, words in _MECHANISMS.items():
        fields = named(row for row in cell.ledger if row.mechanism == mechanism)
        said += [f"{words} added to {fields}."] if fields else []
    return " ".join(said)


def assumed(release: Release, clause: str, question: str) -> Line:
    """Line on the assumed adversary, from the plan; for a person to fill in where the plan does not state it."""
    plan = release.record.plan
    threat = plan.get("threat") if isinstance(plan, dict) else None
    if not isinstance(threat, dict) or threat.get("view") not in _VIEWS:
        return by_person(clause, question, "Say who can read what the clients send.")
    rounds: Any = threat.get("rounds", "all")
    when = {"all": "in every round", "last": "in the last round"}.get(rounds, f"in round {rounds}")
    said = [f"{_VIEWS[threat['view']]}, {when}."]
    if release.captured:
        # Further knowledge of a foreign system's adversary is stated by the plan that comes with its messages.
        return Line(clause, question, "answered", said[0], ("/plan/threat",))
    if threat.get("backbone") == "white_box":
        said.append("It has the network that computes features.")
    elif threat.get("backbone") == "black_box":
        said.append("It can query the network that computes features.")
    return Line(clause, question, "answered", " ".join(said), ("/plan/threat",))


def people(release: Release, clause: str, question: str) -> Line:
    """Line on the numbers of records, persons and clients; a person has to fill it in for captured messages."""
    seed = str(release.cells[0][1].seed) if release.cells else ""
    data = release.record.data.get(seed)
    data = data if isinstance(data, dict) else {}
    records, clients = data.get("records"), data.get("client_records")
    private = records.get("private") if isinstance(records, dict) else None
    if private is None or not isinstance(clients, list):
        return by_person(clause, question, "Count the people, and the records of each.")
    held = data.get("persons")
    persons = held.get("persons") if isinstance(held, dict) else None
    places = [f"/data/{seed}/records/private", f"/data/{seed}/client_records"]
    if isinstance(persons, dict) and persons.get("private") is not None:
        of = f"of {persons['private']:,} persons"
        places.append(f"/data/{seed}/persons/persons/private")
    else:
        of = "of as many persons at most, since the run knows of none"
    words = f"In this run {private:,} records {of}, at {len(clients):,} clients."
    return Line(clause, question, "answered", words, tuple(places))
