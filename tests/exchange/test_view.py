"""What each threat model sees."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.exchange.release import derived, exact
from fedassay.exchange.transcript import Message, MessageField, Transcript
from fedassay.exchange.view import ThreatModel, view
from fedassay.support.errors import DataError


def _client(i: int, ids: list[int], round_: int = 0, secure: bool = False) -> Message:
    counts = np.array([i + 1 for _ in ids])
    sums = np.full((len(ids), 2), float(i + 1))
    return Message(
        round_,
        f"client/{i}",
        "server",
        {
            "classes": MessageField(np.array(ids), "class_ids", exact("labels")),
            "counts": MessageField(counts, "class_counts", exact("labels"), additive=True, secure=secure),
            "sums": MessageField(sums, "class_sums", exact(), additive=True),
        },
    )


def _transcript(secure: bool = False) -> Transcript:
    down = Message(1, "server", "client/0", {"head": MessageField(np.zeros(2), "head", derived())})
    messages = (_client(0, [0, 1], secure=secure), _client(1, [1, 2], secure=secure), down)
    return Transcript("fedcgs", 3, messages)


def test_per_client_sees_every_message() -> None:
    seen = view(_transcript(), ThreatModel())
    assert [message.sender for message in seen.messages] == ["client/0", "client/1", "server"]


def test_secure_fields_appear_only_as_their_sum() -> None:
    seen = view(_transcript(secure=True), ThreatModel())
    assert [message.sender for message in seen.messages] == ["client/0", "client/1", "aggregate", "server"]
    assert all("counts" not in message.fields for message in seen.messages[:2])
    np.testing.assert_array_equal(seen.messages[2].fields["counts"].values, [1, 3, 2])
    assert set(seen.messages[2].fields) == {"counts"}


def test_aggregate_sees_nothing_of_a_single_client() -> None:
    seen = view(_transcript(), ThreatModel(view="aggregate"))
    assert [message.sender for message in seen.messages] == ["aggregate", "server"]
    np.testing.assert_array_equal(seen.messages[0].fields["sums"].values, [[1, 1], [3, 3], [2, 2]])
    assert "classes" not in seen.messages[0].fields


def test_broadcast_sees_the_server_only() -> None:
    assert [m.sender for m in view(_transcript(), ThreatModel(view="broadcast")).messages] == ["server"]


def test_sums_of_different_shapes_are_refused() -> None:
    field = {"x": MessageField(np.zeros(3), "other", exact(), additive=True, secure=True)}
    longer = {"x": MessageField(np.zeros(4), "other", exact(), additive=True, secure=True)}
    messages = (Message(0, "client/0", "server", field), Message(0, "client/1", "server", longer))
    with pytest.raises(DataError, match="client/1: field 'x' of shape"):
        view(Transcript("captured", 3, messages), ThreatModel())


def test_rounds() -> None:
    assert [m.round for m in view(_transcript(), ThreatModel(rounds="last")).messages] == [1]
    assert [m.round for m in view(_transcript(), ThreatModel(rounds=0)).messages] == [0, 0]


def test_messages_are_sorted_into_rounds_once() -> None:
    reads = []

    class Counted(int):
        def __eq__(self, other: object) -> bool:
            reads.append(other)
            return int(self) == other

        __hash__ = int.__hash__

    messages = tuple(_client(0, [0], round_=Counted(number)) for number in range(40))
    assert len(view(Transcript("x", 1, messages), ThreatModel()).messages) == 40
    assert len(reads) <= 20 * 40
