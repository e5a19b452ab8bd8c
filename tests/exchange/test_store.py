"""Messages that wait on the disk: equal to those in memory, gone when nobody needs them any more."""

from __future__ import annotations

import gc
import math
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedassay.exchange.ledger import account
from fedassay.exchange.release import derived, exact
from fedassay.exchange.store import Spool
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript, load_transcript
from fedassay.exchange.view import ThreatModel, view
from fedassay.support.errors import DataError


def _message(index: int) -> Message:
    rng = np.random.default_rng(index)
    fields = {
        "N": MessageField(np.array([3, index], dtype=np.int32), "class_counts", exact("labels"), additive=True),
        "A": MessageField(rng.normal(size=(2, 6)), "class_sums", exact(), additive=True),
        "empty": MessageField(np.zeros((0, 4), dtype=np.float32), "other", exact()),
    }
    return Message(0, f"client/{index}", SERVER, fields)


def test_the_first_messages_stay_in_memory_and_the_rest_equal_what_was_given(tmp_path: Path) -> None:
    given = [_message(index) for index in range(5)]
    size = sum(item.nbytes for item in given[0].fields.values())
    kept = Spool(tmp_path, limit=2 * size).keep_all(given)
    assert [message.stored is None for message in kept] == [True, True, False, False, False]
    for before, after in zip(given, kept, strict=True):
        assert after.serialized == before.serialized
        assert after.nbytes == before.nbytes
        for name, item in after.fields.items():
            own = before.fields[name]
            assert (item.shape, item.dtype, item.size, item.nbytes) == (own.shape, own.dtype, own.size, own.nbytes)
            assert (item.kind, item.release, item.additive) == (own.kind, own.release, own.additive)
            np.testing.assert_array_equal(item.values, own.values)


def test_sizes_of_what_is_not_read_are_those_of_large_arrays_too(tmp_path: Path) -> None:
    array = np.zeros((301, 301))
    message = Message(0, "client/0", SERVER, {"B": MessageField(array, "second_moment", exact())})
    (kept,) = Spool(tmp_path, limit=0).keep_all([message])
    assert kept.stored is not None
    found = (kept.fields["B"].size, kept.fields["B"].nbytes)
    # A number of half precision would be rounded before it is compared.
    assert all(isinstance(size, int) for size in found)
    assert found == (array.size, array.nbytes)


def test_without_a_folder_everything_stays_in_memory() -> None:
    assert all(message.stored is None for message in Spool(limit=0).keep_all(_message(i) for i in range(3)))


def test_files_live_as_long_as_a_message_in_them(tmp_path: Path) -> None:
    kept = Spool(tmp_path, limit=0).keep_all(_message(i) for i in range(3))
    last = kept[-1]
    del kept
    gc.collect()
    np.testing.assert_array_equal(last.fields["A"].values, _message(2).fields["A"].values)
    del last
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_broadcast_is_written_once(tmp_path: Path) -> None:
    head = {"head": MessageField(np.arange(6.0), "head", derived())}
    kept = Spool(tmp_path, limit=0).keep_all(Message(1, SERVER, f"client/{i}", head) for i in range(4))
    assert len({message.stored for message in kept}) == 1
    assert [message.receiver for message in kept] == [f"client/{i}" for i in range(4)]


def test_what_an_adversary_sees_does_not_depend_on_where_messages_wait(tmp_path: Path) -> None:
    given = tuple(_message(index) for index in range(4))
    kept = tuple(Spool(tmp_path, limit=0).keep_all(given))
    for threat in (ThreatModel(), ThreatModel(view="aggregate")):
        a, b = (view(Transcript("x", 2, messages), threat).messages for messages in (given, kept))
        assert [message.serialized for message in a] == [message.serialized for message in b]


def test_a_transcript_is_read_lazily_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Transcript("x", 2, tuple(_message(index) for index in range(4))).save(tmp_path / "a")
    whole = load_transcript(tmp_path / "a")
    monkeypatch.setattr("fedassay.exchange.transcript._HELD", 150)
    lazy = load_transcript(tmp_path / "a")
    assert [message.stored is None for message in whole.messages] == [True] * 4
    assert [message.stored is None for message in lazy.messages] == [True, False, False, False]
    lazy.save(tmp_path / "b")
    for path in (tmp_path / "a").iterdir():
        assert (tmp_path / "b" / path.name).read_bytes() == path.read_bytes()


def test_a_transcript_that_is_read_lazily_is_not_written_over_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedassay.exchange.transcript._HELD", 0)
    Transcript("x", 2, (_message(0), _message(1))).save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = load_transcript(tmp_path)
    again.save(tmp_path)  # every message lies where it belongs
    more = replace(again, messages=(*again.messages, _message(2)))
    more.save(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in before if name.endswith("s")} == {
        name: content for name, content in before.items() if name.endswith("s")
    }
    assert len(load_transcript(tmp_path).messages) == 3
    with pytest.raises(DataError, match="another folder"):
        replace(again, messages=again.messages[::-1]).save(tmp_path)
    assert [m.sender for m in load_transcript(tmp_path).messages] == ["client/0", "client/1", "client/2"]


def test_a_file_that_changes_after_it_was_read_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedassay.exchange.transcript._HELD", 0)
    Transcript("x", 2, (_message(0), _message(1))).save(tmp_path)
    first, second = load_transcript(tmp_path).messages
    (tmp_path / "00000.safetensors").unlink()
    path = tmp_path / "00001.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"00000\.safetensors: 'A' can no longer be read"):
        _ = first.fields["A"].values
    with pytest.raises(DataError, match=r"00001\.safetensors: .* has become shorter"):
        _ = second.serialized


def test_memory_does_not_grow_with_the_messages(tmp_path: Path) -> None:
    """20 MB are kept, accounted for, written and summed in a tenth of that."""

    def messages() -> Iterator[Message]:
        for index in range(200):
            sums = np.full((100, 256), index, dtype=np.float32)
            fields = {"A": MessageField(sums, "class_sums", exact(), additive=True)}
            yield Message(0, f"client/{index}", SERVER, fields)

    tracemalloc.start()
    try:
        transcript = Transcript("x", 100, tuple(Spool(tmp_path, limit=1 << 18).keep_all(messages())))
        transcript.save(tmp_path / "transcript")
        assert account(transcript, "add_remove", 1e-5).epsilon == math.inf
        (total,) = view(transcript, ThreatModel(view="aggregate")).messages
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert transcript.bytes_up > 200 * 100 * 256 * 4
    assert (total.fields["A"].values == 199 * 100).all()
    assert peak < 2 << 20
