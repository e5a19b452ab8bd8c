"""Accounting once more, from a record's releases or from a transcript, without trust in its totals.

A record holds the releases of every sender without their values (`fedassay.records.basis.Released`). An accountant
reads nothing else, so a record was altered if its totals or ledger do not follow from its own releases.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import ValidationError

from fedassay.exchange.ledger import Accounted, account, ledger_rows
from fedassay.exchange.message import AGGREGATE, COLLUDER, SERVER, Message, MessageField
from fedassay.exchange.release import NoClaim, PrivacyClaim, Release
from fedassay.exchange.transcript import Transcript
from fedassay.records.basis import Released, SentBy, SentFields, SentMessage
from fedassay.records.record import CellRecord, LedgerRow
from fedassay.support import limits
from fedassay.support.epsilon import Epsilon
from fedassay.support.errors import DataError, FedassayError
from fedassay.support.validation import explain

_Role = Literal["client", "colluder", "server", "aggregate"]
_ROLES: dict[str, _Role] = {SERVER: "server", AGGREGATE: "aggregate"}
_SLACK = 1e-6
"""Relative difference of two totals that rounding explains."""
_NOTHING = np.zeros(0, np.float32)


def released(transcript: Transcript, manifest: str = "") -> Released:
    """Releases of a run, as a record keeps them.

    Args:
        transcript: The transcript.
        manifest: SHA-256 of its transcript.json, where the run keeps that.
    """
    shared = any(
        item.release.cells != ("all",)
        for message in transcript.messages
        if message.sender in _ROLES
        for item in message.fields.values()
    )
    senders: dict[str, Counter[tuple[str, ...]]] = {}
    classes: dict[str, dict[str, str]] = {}
    kinds: dict[str, SentFields] = {}
    for message in transcript.messages:
        own = None if shared else classes.setdefault(message.sender, {})
        texts = []
        for each in _alike(message, own):
            texts.append(each.model_dump_json())
            kinds.setdefault(texts[-1], each)
        senders.setdefault(message.sender, Counter())[tuple(texts)] += 1
    found: dict[str, tuple[SentBy, int]] = {}
    for sender, counted in senders.items():
        sent = tuple(
            SentMessage(count=number, fields=tuple(kinds[text] for text in texts))
            for texts, number in counted.items()
        )
        role: _Role = "colluder" if sender.startswith(COLLUDER) else _ROLES.get(sender, "client")
        by = SentBy(role=role, senders=1, messages=sent)
        text = by.model_dump_json()
        found[text] = (by, found.get(text, (by, 0))[1] + 1)
    claim = transcript.claim
    return Released(
        sent=tuple(by.model_copy(update={"senders": number}) for by, number in found.values()),
        claim=claim.model_dump(mode="json") if isinstance(claim, PrivacyClaim) else None,
        most_records=transcript.most_records,
        transcript=manifest,
    )


def _alike(message: Message, classes: dict[str, str] | None) -> Iterator[SentFields]:
    """The fields of a message by their protection; classes renumbered in place where a mapping is given."""
    groups: dict[tuple[Release, bool], list[str]] = {}
    for name, item in message.fields.items():
        groups.setdefault((item.release, item.secure), []).append(name)
    for (release, secure), names in groups.items():
        said = release.model_dump(mode="json", exclude_defaults=True)
        said.pop("note", None)
        if classes is not None and release.cells != ("all",):
            said["cells"] = [_renumbered(cell, classes) for cell in release.cells]
        yield SentFields(names=tuple(names), release=said, secure=secure)


def _renumbered(cell: str, classes: dict[str, str]) -> str:
    return cell if cell == "all" else classes.setdefault(cell, f"class/{len(classes)}")


def transcript_of(what: Released) -> Transcript:
    """Messages without values that an accountant cannot tell from those that were sent; alike senders are one.

    Raises:
        DataError: They are none that could have been sent, or too many.
    """
    messages: list[Message] = []
    blocks = 0
    try:
        for number, by in enumerate(what.sent):
            senders = [next((name for name, role in _ROLES.items() if role == by.role), f"client/{number}")]
            if by.role == "colluder" or (by.role == "client" and _divided(by)):
                # Their number decides how much noise is left.
                senders = [
                    f"{COLLUDER if by.role == 'colluder' else 'client/'}{number}-{each}"
                    for each in range(min(by.senders, limits.CLIENTS))
                ]
            many = len(senders) * sum(message.count for message in by.messages)
            if many + len(messages) > 10 * limits.MESSAGES:
                raise DataError("the record says that more messages were sent than are added up again")
            for message in by.messages:
                fields = {
                    name: MessageField(_NOTHING, "other", release, secure=group.secure)
                    for group in message.fields
                    for release in (Release.model_validate_json(json.dumps(group.release)),)
                    for name in group.names
                }
                blocks += sum(len(item.release.cells) for item in fields.values())
                if blocks > 10 * limits.RELEASES:
                    raise DataError("the record says that more was released than is added up again")
                messages += [Message(0, sender, SERVER, fields) for sender in senders] * message.count
        claim = NoClaim() if what.claim is None else PrivacyClaim.model_validate_json(json.dumps(what.claim))
    except ValidationError as error:
        raise DataError(explain(error, None, "the record says of a release what none can be")) from None
    return Transcript("", 1, tuple(messages), claim, most_records=what.most_records)


def _divided(by: SentBy) -> bool:
    """Whether noise is divided over these senders and others."""
    return any(group.release.get("shares", 1) != 1 for message in by.messages for group in message.fields)


@dataclass(frozen=True)
class Recounted:
    """Totals accounted again.

    Attributes:
        asked: Under the cell's own relation, delta and unit.
        claimed: Under those of the claim; the same without a claim that could be audited.
        claim: The claimed epsilon; None without a claim.
        problems: Contradictions in the cell, one clause each.
    """

    asked: Accounted
    claimed: Accounted
    claim: Epsilon | None
    problems: tuple[str, ...]


def recounted(cell: CellRecord, transcript: Transcript | None = None) -> Recounted | None:
    """Add up again what a cell says was released, and compare its totals and its ledger.

    Args:
        cell: The cell.
        transcript: Its messages, where the run keeps them; they then count, and not what the record says of them.

    Returns:
        None where the record does not say what was released.

    Raises:
        DataError: Its releases cannot be added up.
    """
    if cell.released is None:
        return None
    said = transcript_of(cell.released)
    read = said if transcript is None else transcript
    try:
        asked = account(read, cell.adjacency, cell.delta, cell.unit)
        claim = read.claim
        claimed = asked
        if isinstance(claim, PrivacyClaim) and claim.delta > 0:
            claimed = account(read, claim.adjacency, claim.delta, claim.unit)
        rows = ledger_rows(read, cell.adjacency)
    except (FedassayError, ValueError, TypeError) as error:
        raise DataError(f"what the record says was released cannot be added up ({error})") from None
    guarantee = claim.guarantee if isinstance(claim, PrivacyClaim) else None
    problems = [*_totals(cell, asked, guarantee), *_rows(cell, rows, read)]
    if transcript is not None:
        problems += _beside(cell, transcript)
    return Recounted(asked, claimed, guarantee, tuple(problems))


def _totals(cell: CellRecord, asked: Accounted, claim: Epsilon | None) -> Iterator[str]:
    """Numbers of the cell that are others than the accountant gives."""
    privacy = cell.privacy
    for name, held, found in (
        ("claimed", privacy.claimed, None if claim is None else claim.bare),
        ("accounted", privacy.accounted, asked.epsilon),
        ("accounted_stated", privacy.accounted_stated, asked.epsilon_stated),
        ("mu", privacy.mu, asked.mu),
    ):
        if unlike(held, found):
            yield f"{name} is given as {_shown(held)}, and what was released gives {_shown(found)}"
    if set(privacy.exact_fields) != set(asked.exact_fields):
        yield "the fields that leave exactly are others than those that were released"


def _rows(cell: CellRecord, rows: Iterable[LedgerRow], read: Transcript) -> Iterator[str]:
    """Rows of the ledger that do not follow from the releases."""
    told = {(row.field, row.direction): row for row in cell.ledger}
    found = {(row.field, row.direction): row for row in rows}
    if set(told) != set(found):
        yield "the ledger lists other fields than were released"
        return
    for key, row in found.items():
        own, items = told[key], list(_items(read, row.field))
        wrong = [name for name in ("exact", "public_under_adjacency") if getattr(own, name) != getattr(row, name)]
        wrong += [
            name for name in ("sensitivity", "noise_scale") if _unlike_pair(getattr(own, name), getattr(row, name))
        ]
        # Where senders protect a field in several ways, a row names one of these ways.
        wrong += [
            name
            for name in ("adjacency", "unit", "group")
            if all(getattr(own, name) != getattr(item.release, name) for item in items)
        ]
        if set(own.mechanism.split("+")) != set(row.mechanism.split("+")):
            wrong.append("mechanism")
        if all(own.secure != item.secure for item in items):
            wrong.append("secure")
        if own.dp_sgd is not None and not any(_is_dp_sgd(own.dp_sgd, item.release) for item in items):
            wrong.append("dp_sgd")
        if wrong:
            yield f"the ledger's row of {row.field} ({', '.join(wrong)}) is not what was released"


def _items(read: Transcript, name: str) -> Iterator[MessageField]:
    """The fields of a name, each way in which it is protected once."""
    seen: set[tuple[int, bool]] = set()
    for message in read.messages:
        item = message.fields.get(name)
        if item is not None and (id(item.release), item.secure) not in seen:
            seen.add((id(item.release), item.secure))
            yield item


def _is_dp_sgd(row: Mapping[str, float], release: Release) -> bool:
    given = (release.noise_multiplier, release.sampling_rate, release.steps)
    held = (row.get("noise_multiplier"), row.get("sampling_rate"), row.get("steps"))
    return release.mechanism == "dp_sgd" and not any(map(unlike, held, given))


def _beside(cell: CellRecord, transcript: Transcript) -> Iterator[str]:
    """Contradictions between a transcript and the record."""
    assert cell.released is not None
    own = released(transcript, cell.released.transcript)
    if own != cell.released:
        yield "what the record says was released is not what its transcript holds"
    for name, sent in (("bytes_up", transcript.bytes_up), ("bytes_down", transcript.bytes_down)):
        if unlike(cell.communication.get(name), float(sent)):
            yield f"{name} is not what its transcript holds"


def unlike(held: float | None, found: float | None) -> bool:
    """Whether two numbers differ by more than rounding, or only one is there."""
    if held is None or found is None:
        return held is not found
    return not (held == found or math.isclose(held, found, rel_tol=_SLACK, abs_tol=1e-12))


def _unlike_pair(held: tuple[float, float] | None, found: tuple[float, float] | None) -> bool:
    if held is None or found is None:
        return held is not found
    return any(map(unlike, held, found))


def _shown(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.6g}"
