"""Claims for records that are sold as claims for persons: named in every planted case, and in no honest one."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fedassay.audits.claim.transcript_only import captured_claim
from fedassay.exchange.ledger import account
from fedassay.exchange.privacy_unit import record_as_person, warnings_of
from fedassay.exchange.release import NoClaim, PrivacyClaim, PrivacyTarget, Release, exact, public
from fedassay.exchange.transcript import MANIFEST, Message, MessageField, Transcript, load_transcript
from fedassay.privacy.gaussian import calibrate_sigma, epsilon_of
from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.errors import DataError

DELTA = 1e-5


def gaussian(adjacency: Adjacency, unit: Unit = "record", epsilon: float = 1.0) -> Release:
    scale = calibrate_sigma(epsilon, DELTA, 1.5)
    return Release(mechanism="gaussian", adjacency=adjacency, unit=unit, noise_scale=(scale,), sensitivity=(1.5,))


def by_class(epsilon: float = 1.0) -> Release:
    scale = calibrate_sigma(epsilon, DELTA, 1.5)
    return Release(
        mechanism="gaussian",
        adjacency="replace_one_same_label",
        cells=("class/0", "class/1"),
        noise_scale=(scale, scale),
        sensitivity=(1.5, 1.0),
    )


def pure() -> Release:
    return Release(mechanism="pure", adjacency="add_remove", pure_epsilon=(0.5,))


def dp_sgd(adjacency: Adjacency, unit: Unit = "record") -> Release:
    return Release(
        mechanism="dp_sgd", adjacency=adjacency, unit=unit, noise_multiplier=4.0, sampling_rate=0.05, steps=10
    )


def sent(
    release: Release,
    adjacency: Adjacency,
    most: int | None,
    unit: Unit = "record",
    claimed: float = 1.0,
    delta: float = DELTA,
) -> Transcript:
    messages = tuple(
        Message(0, f"client/{i}", "server", {"values": MessageField(np.zeros(3), "other", release)})
        for i in (0, 1)
    )
    claim = PrivacyClaim(epsilon=claimed, delta=delta, adjacency=adjacency, unit=unit, source="made up")
    return Transcript("test", 2, messages, claim, most_records=most)


def trained(adjacency: Adjacency, most: int) -> Transcript:
    """DP-SGD of records, which keeps what it claims for a record."""
    alone = sent(dp_sgd(adjacency), adjacency, None)
    claimed = account(alone, adjacency, DELTA).epsilon * 1.001
    return sent(dp_sgd(adjacency), adjacency, most, claimed=claimed)


ADD, ANY, SAME = "add_remove", "replace_one", "replace_one_same_label"


@cache
def planted() -> list[Transcript]:
    return [
        *(sent(gaussian(a), a, most) for a in (ADD, ANY, SAME) for most in (2, 3, 12, 400)),
        *(sent(by_class(), SAME, most) for most in (2, 5)),
        *(sent(pure(), ADD, most, claimed=0.5) for most in (2, 30)),
        sent(pure(), ADD, 4, claimed=0.5, delta=0.0),
        trained(ADD, 2),
        trained(ANY, 3),
        sent(exact(), ADD, 2),
    ]


@cache
def honest() -> list[Transcript]:
    return [
        *(sent(gaussian(a, "person"), a, most, "person") for a in (ADD, ANY, SAME) for most in (2, 400)),
        *(sent(gaussian(a, "client"), a, 7, "client") for a in (ADD, ANY, SAME)),
        *(sent(gaussian(a), a, most) for a in (ADD, ANY, SAME) for most in (None, 1)),
        sent(dp_sgd(ADD, "person"), ADD, 9, "person"),
        # What leaves keeps the claim for persons: the claim says less than it could.
        sent(gaussian(ANY, "person"), ANY, 9),
        sent(gaussian(ADD, epsilon=0.01), ADD, 2, claimed=5.0),
        sent(public(), ADD, 9),
        Transcript("test", 2, sent(exact(), ADD, 9).messages, NoClaim(), most_records=9),
    ]


def test_there_are_twenty_of_each() -> None:
    assert len(planted()) == len(honest()) == 20


@pytest.mark.parametrize("number", range(20))
def test_every_planted_claim_is_named(number: int) -> None:
    transcript = planted()[number]
    claim = transcript.claim
    assert isinstance(claim, PrivacyClaim)
    mistaken = record_as_person(transcript)
    assert mistaken is not None
    assert mistaken.total.bare > claim.epsilon
    assert f"up to {mistaken.records} records" in mistaken.words
    target = PrivacyTarget(epsilon=claim.epsilon, delta=DELTA, adjacency=claim.adjacency)
    assert mistaken.words in warnings_of(transcript, target, 0)
    # What the claimed pair alone gives is looser, or is no guarantee.
    assert mistaken.generic.bare >= mistaken.total.bare or mistaken.generic.delta > claim.delta or claim.delta == 0


@pytest.mark.parametrize("number", range(20))
def test_no_honest_claim_is(number: int) -> None:
    assert record_as_person(honest()[number]) is None


def test_what_the_claim_really_is() -> None:
    mistaken = record_as_person(sent(gaussian(ADD), ADD, 12))
    assert mistaken is not None
    mu = 1.5 / calibrate_sigma(1.0, DELTA, 1.5)
    assert mistaken.total.bare == pytest.approx(epsilon_of(12 * mu, DELTA))
    assert "attained where its 12 records are all alike" in mistaken.words
    many = record_as_person(sent(gaussian(ADD), ADD, 30))
    assert many is not None
    assert not many.generic.finite
    assert "the claimed pair alone gives no guarantee" in many.words


def test_a_release_for_another_unit_is_converted_or_unbounded() -> None:
    record, person = gaussian(ANY), gaussian(ANY, "person")
    assert account(sent(record, ANY, None), ANY, DELTA, "person").epsilon == math.inf
    assert (
        "the number of these records is not known" in account(sent(record, ANY, None), ANY, DELTA, "person").reason
    )
    mu = account(sent(record, ANY, 5), ANY, DELTA).mu
    assert mu is not None
    assert account(sent(record, ANY, 5), ANY, DELTA, "person").mu == pytest.approx(5 * mu)
    # Nobody says how many records, or persons, a client has.
    assert account(sent(record, ANY, 5), ANY, DELTA, "client").epsilon == math.inf
    assert account(sent(person, ANY, 5), ANY, DELTA, "client").epsilon == math.inf
    # A person's guarantee is also one for each of its records; one that comes or goes changes the person.
    assert account(sent(person, ANY, 5), ANY, DELTA).mu == pytest.approx(mu)
    added = gaussian(ADD, "person")
    assert account(sent(added, ADD, 5), ADD, DELTA).mu == pytest.approx(2 * mu)
    mixed = sent(record, ANY, 3)
    both = (*mixed.messages, *sent(person, ANY, 3).messages)
    total = account(Transcript("test", 2, both, mixed.claim, most_records=3), ANY, DELTA, "person").mu
    assert total == pytest.approx(math.hypot(3, 1) * mu)


@pytest.mark.parametrize("most", [None, 6])
def test_an_audit_of_captured_messages_says_it(most: int | None) -> None:
    transcript = sent(gaussian(ADD), ADD, most)
    accounted = account(transcript, ADD, DELTA)
    finding = captured_claim("dp_claim", transcript, accounted)
    said = [text for text in finding.assumptions if "one person has up to 6 records" in text]
    assert len(said) == (0 if most is None else 1)


def test_transcripts_carry_units_and_old_ones_are_of_records(tmp_path: Path) -> None:
    transcript = sent(gaussian(ANY, "person"), ANY, 4, "person")
    transcript.save(tmp_path / "new")
    read = load_transcript(tmp_path / "new")
    assert read.most_records == 4
    assert isinstance(read.claim, PrivacyClaim)
    assert read.claim.unit == read.messages[0].fields["values"].release.unit == "person"
    path = tmp_path / "new" / MANIFEST
    old = json.loads(path.read_text())
    del old["most_records"], old["claim"]["unit"]
    for message in old["messages"]:
        del message["fields"]["values"]["release"]["unit"]
    path.write_text(json.dumps(old))
    read = load_transcript(tmp_path / "new")
    assert read.most_records is None
    assert isinstance(read.claim, PrivacyClaim)
    assert read.claim.unit == read.messages[0].fields["values"].release.unit == "record"
    old["most_records"] = 0
    path.write_text(json.dumps(old))
    with pytest.raises(DataError, match="most_records"):
        load_transcript(tmp_path / "new")


def test_a_person_has_records_of_several_classes() -> None:
    with pytest.raises(ValueError, match='unit person has the cell "all" alone'):
        Release(**{**by_class().model_dump(), "unit": "person"})


def test_what_a_reader_must_know_besides_the_numbers() -> None:
    claim = PrivacyClaim(epsilon=1.0, delta=1e-3, adjacency="add_remove", unit="person", source="a test")
    asked = PrivacyTarget(epsilon=1.0, delta=1e-3, adjacency="add_remove", unit="person")
    transcript = replace(Transcript("captured", 2, (), claim), most_records=3)
    assert warnings_of(transcript, asked, 999) == warnings_of(transcript, asked, 0) == ()
    (outright,) = warnings_of(transcript, asked, 1000)
    assert outright.endswith("allows a person to be published outright")
    (other,) = warnings_of(transcript, asked.model_copy(update={"adjacency": "replace_one"}), 999)
    assert other == "claimed under add_remove, audited under replace_one"
    (nobody,) = warnings_of(replace(transcript, most_records=None), asked, 999)
    assert "the persons of the records are not known" in nobody
    assert warnings_of(replace(transcript, claim=NoClaim(reason="a test")), asked, 1000) == ()
