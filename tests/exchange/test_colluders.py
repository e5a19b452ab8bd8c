"""Clients that collude with the server: what is left of sums, of noise, and of the ledger."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from fedassay.exchange.colluders import colluders_of, without_shares
from fedassay.exchange.ledger import account
from fedassay.exchange.recount import released, transcript_of
from fedassay.exchange.release import Release, exact
from fedassay.exchange.transcript import Message, MessageField, Transcript
from fedassay.exchange.view import ThreatModel, view
from fedassay.support.errors import DataError

SCALE = 4.0


def _noised(shares: int) -> Release:
    return Release(
        mechanism="gaussian", adjacency="add_remove", noise_scale=(SCALE,), sensitivity=(1.0,), shares=shares
    )


def _sums(name: str, value: float, release: Release, number: int = 0, secure: bool = True) -> Message:
    values = np.full((2, 3), value, np.float32)
    sums = MessageField(values, "class_sums", release, additive=True, secure=secure)
    return Message(number, name, "server", {"sums": sums})


def _of(names: list[str], release: Release | None = None, secure: bool = True) -> Transcript:
    messages = [
        _sums(name, 10.0**place, exact() if release is None else release, secure=secure)
        for place, name in enumerate(names)
    ]
    return Transcript("fedncm", 2, tuple(messages))


def _value(transcript: Transcript, threat: ThreatModel) -> float:
    (message,) = view(transcript, threat).messages
    return float(message.fields["sums"].values[0, 0])


@pytest.mark.parametrize(("threat", "secure"), [("per_client", True), ("aggregate", False)])
def test_what_is_left_is_the_sum_less_the_colluders_parts(threat: str, secure: bool) -> None:
    names = ["client/0", "client/1", "client/2", "client/3"]
    model = ThreatModel.model_validate({"view": threat})
    whole = _value(_of(names, secure=secure), model)
    assert whole == 1111
    renamed = ["client/0", "client/1", "colluder/0", "colluder/1"]
    seen = view(_of(renamed, secure=secure), model)
    (message,) = seen.messages
    assert message.sender == "aggregate"
    assert seen.cohorts == {0: ("client/0", "client/1")}
    np.testing.assert_array_equal(message.fields["sums"].values, whole - 100 - 1000)


def test_one_client_that_is_left_is_seen_by_itself() -> None:
    """Type, release and name are those of its own message: nothing is summed any more."""
    hidden = _of(["client/0", "colluder/0", "colluder/1"], _noised(3))
    (left,) = view(hidden, ThreatModel()).messages
    (own,) = view(_of(["client/0"], _noised(1), secure=False), ThreatModel()).messages
    assert (left.sender, left.receiver, left.round) == (own.sender, own.receiver, own.round)
    np.testing.assert_array_equal(left.fields["sums"].values, own.fields["sums"].values)
    assert left.fields["sums"].dtype == own.fields["sums"].dtype
    assert left.fields["sums"].release.noise_scale == pytest.approx((SCALE / math.sqrt(3),))


def test_rounds_without_colluders_stay_whole() -> None:
    other = (_sums("client/0", 1.0, exact(), 1), _sums("client/1", 2.0, exact(), 1))
    transcript = _of(["client/0", "client/1", "colluder/0"])
    seen = view(Transcript("fedncm", 2, (*transcript.messages, *other)), ThreatModel())
    assert [float(each.fields["sums"].values[0, 0]) for each in seen.messages] == [11.0, 3.0]


def test_what_colluders_send_openly_is_not_shown() -> None:
    """They are nobody's victims, and know their own records."""
    counts = {"counts": MessageField(np.ones(2), "class_counts", exact("labels"))}
    both = [
        Message(0, name, "server", {**_sums(name, 1.0, exact()).fields, **counts})
        for name in ("client/0", "client/1", "colluder/0")
    ]
    seen = view(Transcript("captured", 2, tuple(both)), ThreatModel())
    assert [message.sender for message in seen.messages] == ["client/0", "client/1", "aggregate"]


def test_colluders_without_a_sum_are_one_clear_error() -> None:
    open_ = _of(["client/0", "client/1", "colluder/0"], secure=False)
    with pytest.raises(DataError, match=r"fedncm: 1 of the senders collude .* no other client sends anything"):
        view(open_, ThreatModel(colluding=1))
    alone = _of(["colluder/0", "colluder/1"])
    with pytest.raises(DataError, match="2 of the senders collude"):
        view(alone, ThreatModel(colluding=2))
    with pytest.raises(DataError, match="a sum was captured as such"):
        view(_of(["aggregate", "colluder/0"]), ThreatModel(colluding=1))
    # An audit that asks what a client sends by itself is another adversary.
    assert [each.sender for each in view(open_, ThreatModel()).messages] == ["client/0", "client/1"]


def test_a_broadcast_has_no_parts() -> None:
    with pytest.raises(ValidationError, match="shows no sum"):
        ThreatModel(view="broadcast", colluding=1)


@pytest.mark.parametrize("colluding", [0, 1, 3, 8])
def test_the_shares_of_colluders_hide_nobody(colluding: int) -> None:
    """With k of n shares told, mu grows by the root of n / (n - k); local noise stays as it is."""
    count = 9
    names = [f"client/{i}" for i in range(count - colluding)] + [f"colluder/{i}" for i in range(colluding)]
    accounted = account(_of(names, _noised(count)), "add_remove", 1e-5)
    assert accounted.mu == pytest.approx(math.sqrt(count / (count - colluding)) / SCALE)
    local = account(_of(names, _noised(1)), "add_remove", 1e-5)
    assert local.mu == pytest.approx(1 / SCALE)


def test_what_a_record_keeps_adds_up_to_the_same() -> None:
    """A record names no senders, but says how many of them collude."""
    sent = _of(["client/0", "client/1", "colluder/0", "colluder/1"], _noised(4))
    again = transcript_of(released(sent))
    assert len(colluders_of(again.messages)) == 2
    assert account(again, "add_remove", 1e-5) == account(sent, "add_remove", 1e-5)


def test_more_colluders_than_shares_change_nothing() -> None:
    """Such a release cannot have been made by these senders; its scale is then not made up."""
    assert without_shares(_noised(2), 2) == _noised(2)


@pytest.mark.parametrize(("senders", "shares"), [(3, 3), (3, 4), (2, 7), (5, 3)])
def test_shares_of_noise_that_no_client_sends_hide_nothing(senders: int, shares: int) -> None:
    """The sum carries as many shares as clients send it, whatever the release divides the noise by."""
    names = [f"client/{number}" for number in range(senders)]
    mu = account(_of(names, _noised(shares)), "add_remove", 1e-5).mu
    assert mu == pytest.approx(math.sqrt(max(1.0, shares / senders)) / SCALE)
