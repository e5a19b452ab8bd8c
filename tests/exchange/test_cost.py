"""What attacks on messages are estimated to take, before one starts."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.exchange.cost import seconds_of
from fedassay.exchange.release import NoClaim, exact
from fedassay.exchange.transcript import Message, MessageField, Transcript
from fedassay.mixtures.packed import pack_lower


def _message(records: int, width: int, seed: int, counted: bool) -> Message:
    rng = np.random.default_rng(seed)
    features, labels = np.abs(rng.normal(size=(records, width))), rng.integers(0, 2, records)
    member = (labels[:, None] == np.arange(2)).astype(float)
    fields = {
        "moment": MessageField(features.T @ features, "second_moment", exact(), additive=True),
        "sums": MessageField(member.T @ features, "class_sums", exact(), additive=True),
    }
    if counted:
        fields["counts"] = MessageField(member.sum(axis=0), "class_counts", exact("labels"), additive=True)
    return Message(0, f"client/{seed}", "server", fields)


def _transcript(*messages: Message) -> Transcript:
    return Transcript("captured", 2, messages, NoClaim(reason="a test"))


@pytest.mark.parametrize("records", [40, 100])
def test_hidden_counts_hide_no_cost(records: int) -> None:
    given, hidden = (seconds_of(_transcript(_message(records, 160, 1, counted))) for counted in (True, False))
    assert hidden == pytest.approx(given)
    assert given > 60 * (records / 256) ** 3


def test_the_cost_of_many_messages_adds_up_until_it_is_enough() -> None:
    messages = [_message(100, 160, seed, counted=False) for seed in range(4)]
    one, all_ = seconds_of(_transcript(messages[0])), seconds_of(_transcript(*messages))
    assert all_ == pytest.approx(4 * one, rel=0.01)
    assert one < seconds_of(_transcript(*messages), 1.5 * one) < all_


def test_a_moment_of_full_rank_is_not_factored() -> None:
    assert seconds_of(_transcript(_message(400, 160, 1, counted=False))) < 1


def test_what_changed_between_two_messages_of_a_sender_is_factored_too() -> None:
    first = _message(30, 160, 1, counted=False)
    more = _message(90, 160, 2, counted=False)
    fields = {
        name: MessageField(item.values + more.fields[name].values, item.kind, exact(), additive=True)
        for name, item in first.fields.items()
    }
    second = Message(1, first.sender, "server", fields)
    apart = seconds_of(_transcript(first)) + seconds_of(_transcript(second))
    assert seconds_of(_transcript(first, second)) > apart + 60 * (80 / 256) ** 3


def test_covariances_class_by_class_count() -> None:
    width, counts = 150, np.array([100.0, 120.0])
    fields = {
        "means": MessageField(np.ones((2, width)), "class_means", exact()),
        "covariances": MessageField(np.stack([np.eye(width)] * 2), "class_covariances", exact()),
        "counts": MessageField(counts, "class_counts", exact("labels")),
    }
    found = seconds_of(_transcript(Message(0, "client/0", "server", fields)))
    assert found > 60 * float(((counts / 256) ** 3).sum())


def test_decompositions_take_the_cube_of_the_width() -> None:
    """34 s were measured for a moment 2,048 wide; a covariance of a class takes a quarter of it."""
    moment = seconds_of(_transcript(_message(400, 160, 1, counted=False)))
    assert moment == pytest.approx(34 * (160 / 2048) ** 3, rel=0.05)
    covariances = np.stack([np.eye(160)] * 3)
    for values in (covariances, np.stack([pack_lower(own) for own in covariances])):
        fields = {"c": MessageField(values, "class_covariances", exact())}
        found = seconds_of(_transcript(Message(0, "client/0", "server", fields)))
        assert found == pytest.approx(3 * moment / 4, rel=0.05)


@pytest.mark.parametrize("moment", [np.zeros((0, 0)), np.full((40, 40), 1e300), np.full((40, 40), np.inf)])
def test_a_moment_that_cannot_be_decomposed_is_not_factored(moment: np.ndarray) -> None:
    fields = {"moment": MessageField(moment, "second_moment", exact(), additive=True)}
    messages = (Message(0, "client/0", "server", fields), Message(1, "client/0", "server", fields))
    assert seconds_of(_transcript(*messages)) < 1
