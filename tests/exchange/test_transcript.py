"""Transcripts on disk: what is written comes back, and hostile folders are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedassay.exchange.ledger import account
from fedassay.exchange.release import NoClaim, PrivacyClaim, Release, exact
from fedassay.exchange.transcript import MANIFEST, Message, MessageField, Transcript, load_transcript
from fedassay.support import limits
from fedassay.support.errors import DataError


def _transcript() -> Transcript:
    noised = Release(
        mechanism="gaussian",
        adjacency="add_remove",
        group="sums",
        noise_scale=(2.0,),
        sensitivity=(1.7,),
    )
    fields = {
        "classes": MessageField(np.array([0, 2]), "class_ids", exact("labels")),
        "counts": MessageField(np.array([3, 4]), "class_counts", exact("labels"), additive=True),
        "sums": MessageField(np.arange(6.0).reshape(2, 3), "class_sums", noised, additive=True, secure=True),
    }
    claim = PrivacyClaim(epsilon=1.0, delta=1e-5, adjacency="add_remove", source="a test")
    return Transcript("captured", 3, (Message(0, "client/0", "server", fields),), claim, ("a note",))


def test_round_trip(tmp_path: Path) -> None:
    written = _transcript()
    written.save(tmp_path)
    read = load_transcript(tmp_path)
    assert (read.method, read.classes, read.claim, read.notes) == (
        written.method,
        written.classes,
        written.claim,
        written.notes,
    )
    for ours, theirs in zip(written.messages[0].fields.values(), read.messages[0].fields.values(), strict=True):
        np.testing.assert_array_equal(ours.values, theirs.values)
        assert (ours.kind, ours.release, ours.additive, ours.secure) == (
            theirs.kind,
            theirs.release,
            theirs.additive,
            theirs.secure,
        )


def test_bytes_are_the_bytes_on_disk(tmp_path: Path) -> None:
    written = _transcript()
    written.save(tmp_path)
    assert written.bytes_up == (tmp_path / "00000.safetensors").stat().st_size
    assert written.bytes_down == 0


def test_no_claim_is_explicit(tmp_path: Path) -> None:
    plain = _transcript()
    Transcript(plain.method, plain.classes, plain.messages).save(tmp_path)
    assert isinstance(load_transcript(tmp_path).claim, NoClaim)


def _edit(folder: Path, change: object) -> None:
    path = folder / MANIFEST
    content = json.loads(path.read_text())
    change(content)  # type: ignore[operator]
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.update(format=99), "format"),
        (lambda c: c["messages"][0].update(file="../outside.safetensors"), "outside"),
        (lambda c: c["messages"][0].update(file="missing.safetensors"), "not there"),
        (lambda c: c["messages"][0]["fields"].pop("sums"), "declares"),
        (lambda c: c["messages"][0]["fields"]["sums"]["release"].pop("noise_scale"), "noise_scale"),
        (lambda c: c["messages"][0].update(weight=1), "weight"),
        (lambda c: c.update(messages=[]), "messages"),
        (lambda c: c.update(classes=2), "class_ids"),
        (lambda c: c["claim"].update(epsilon=True), r": claim\.epsilon: given true; allowed: a number"),
        (
            lambda c: c["messages"][0]["fields"]["sums"]["release"].update(noise_scale=[True]),
            r"release\.noise_scale: given true; allowed: a number",
        ),
        (lambda c: c["claim"].update(epsilon="2,0"), r": claim\.epsilon: given '2,0'; allowed: a number"),
    ],
)
def test_a_manifest_that_lies_is_refused(tmp_path: Path, change: object, says: str) -> None:
    _transcript().save(tmp_path / "in")
    (tmp_path / "outside.safetensors").write_bytes((tmp_path / "in" / "00000.safetensors").read_bytes())
    _edit(tmp_path / "in", change)
    with pytest.raises(DataError, match=says):
        load_transcript(tmp_path / "in")


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    _transcript().save(tmp_path)
    content = (tmp_path / MANIFEST).read_text()
    twice = re.sub(r'("epsilon": ?1\.0)', r'\1, "epsilon": 50', content)
    (tmp_path / MANIFEST).write_text(twice)
    with pytest.raises(DataError, match="the key 'epsilon' is given twice"):
        load_transcript(tmp_path)


def test_a_mark_of_the_byte_order_is_no_matter(tmp_path: Path) -> None:
    _transcript().save(tmp_path)
    (tmp_path / MANIFEST).write_bytes(b"\xef\xbb\xbf" + (tmp_path / MANIFEST).read_bytes())
    assert load_transcript(tmp_path).classes == 3


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    import pickle

    _transcript().save(tmp_path)
    (tmp_path / "00000.safetensors").write_bytes(pickle.dumps({"sums": [1.0]}))
    with pytest.raises(DataError, match="not a safetensors file"):
        load_transcript(tmp_path)


def test_nan_is_refused_by_field_name(tmp_path: Path) -> None:
    written = _transcript()
    written.messages[0].fields["sums"].values[0, 0] = np.nan
    written.save(tmp_path)
    with pytest.raises(DataError, match="'sums' holds NaN"):
        load_transcript(tmp_path)


def test_shapes_that_contradict_the_classes_are_refused(tmp_path: Path) -> None:
    written = _transcript()
    fields = dict(written.messages[0].fields)
    fields["sums"] = MessageField(np.zeros((3, 3)), "class_sums", exact())
    Transcript("captured", 3, (Message(0, "client/0", "server", fields),)).save(tmp_path)
    with pytest.raises(DataError, match="first side must be 2"):
        load_transcript(tmp_path)


def test_a_few_sums_of_very_many_classes_are_refused(tmp_path: Path) -> None:
    fields = {
        "ids": MessageField(np.array([7]), "class_ids", exact("labels")),
        "sums": MessageField(np.zeros((1, 2000), np.float16), "class_sums", exact()),
    }
    Transcript("captured", 100_000, (Message(0, "client/0", "server", fields),)).save(tmp_path)
    with pytest.raises(DataError, match="width 2000 for 100000 classes"):
        load_transcript(tmp_path)


def test_an_absent_manifest_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=MANIFEST):
        load_transcript(tmp_path)


def test_a_gaussian_release_must_be_complete() -> None:
    with pytest.raises(ValueError, match="sensitivity"):
        Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(1.0,))
    with pytest.raises(ValueError, match="2 values for 1 cells"):
        Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(1.0, 2.0), sensitivity=(1.0,))


def test_a_message_that_was_exchanged_for_another_is_noticed(tmp_path: Path) -> None:
    _transcript().save(tmp_path)
    content = json.loads((tmp_path / "transcript.json").read_text())
    assert all(len(message["sha256"]) == 64 for message in content["messages"])
    path = tmp_path / "00000.safetensors"
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    path.write_bytes(bytes(changed))
    with pytest.raises(DataError, match="its SHA-256 is another"):
        load_transcript(tmp_path)
    for message in content["messages"]:
        del message["sha256"]  # which those who capture messages may leave out
    (tmp_path / "transcript.json").write_text(json.dumps(content))
    load_transcript(tmp_path)


def _noised(number: int, scale: float = 3.0) -> Message:
    noise = Release(
        mechanism="gaussian",
        adjacency="add_remove",
        cells=("class/0", "class/1"),
        noise_scale=(scale, scale),
        sensitivity=(1.0, 1.0),
    )
    fields = {
        "sums": MessageField(np.zeros((2, 2), np.float32), "class_sums", noise, additive=True),
        "counts": MessageField(np.ones(2, np.int64), "class_counts", exact("labels"), additive=True),
    }
    return Message(0, f"client/{number}", "server", fields)


def test_what_is_said_of_many_messages_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Transcript("many", 2, tuple(_noised(number, 3.0 + number % 2) for number in range(40)))
    sent.save(tmp_path / "few")
    monkeypatch.setattr(limits, "JSON_CONTAINERS", 300)
    sent.save(tmp_path / "many")
    manifest = json.loads((tmp_path / "many" / "transcript.json").read_text())
    assert len(manifest["shared"]) == 3
    assert [each["shared"]["sums"] for each in manifest["messages"][:3]] == [0, 2, 0]
    many = load_transcript(tmp_path / "many")
    monkeypatch.undo()
    few = load_transcript(tmp_path / "few")
    assert "shared" not in (tmp_path / "few" / "transcript.json").read_text()
    for one, other, before in zip(many.messages, few.messages, sent.messages, strict=True):
        assert one.sender == other.sender == before.sender
        for name, item in before.fields.items():
            for found in (one.fields[name], other.fields[name]):
                assert (found.kind, found.release, found.additive) == (item.kind, item.release, item.additive)
    # What is alike is one object, whatever the manifest looks like.
    for read in (many, few):
        assert len({id(item.release) for each in read.messages for item in each.fields.values()}) == 3
        assert account(read, "add_remove", 1e-5).mu == account(sent, "add_remove", 1e-5).mu


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda said: said["messages"][1]["shared"].update(sums=3), "'sums' is 3, and 1 are shared"),
        (lambda said: said["messages"][1]["shared"].update(sums=-1), "messages.1.shared.sums"),
        (lambda said: said["messages"][1]["shared"].update(sums="0"), "messages.1.shared.sums"),
        (lambda said: said["messages"][0].update(shared={"sums": 0}), "'sums' is 0, and `fields` says as well"),
        (lambda said: said["messages"][1].pop("shared"), "messages.1: says of no field what it is"),
    ],
)
def test_shared_declarations_that_lie_are_refused(
    change: Callable[[dict[str, Any]], object], says: str, tmp_path: Path
) -> None:
    Transcript("two", 2, (_noised(0), _noised(1))).save(tmp_path)
    path = tmp_path / "transcript.json"
    said = json.loads(path.read_text())
    fields = said["messages"][1].pop("fields")
    said["shared"] = [fields.pop("sums")]
    said["messages"][1] |= {"shared": {"sums": 0}, "fields": fields}
    path.write_text(json.dumps(said))
    assert load_transcript(tmp_path).messages[1].fields["sums"].kind == "class_sums"
    if "no field" in says:
        said["messages"][1].pop("fields")
    change(said)
    path.write_text(json.dumps(said))
    with pytest.raises(DataError, match=re.escape(says)):
        load_transcript(tmp_path)


def test_blocks_of_releases_that_are_alike_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Transcript("alike", 2, tuple(_noised(number) for number in range(30))).save(tmp_path / "alike")
    Transcript("unlike", 2, tuple(_noised(n, 3.0 + n) for n in range(30))).save(tmp_path / "unlike")
    monkeypatch.setattr(limits, "RELEASES", 10)
    assert len(load_transcript(tmp_path / "alike").messages) == 30
    with pytest.raises(DataError, match="releases of 61 blocks that differ; allowed: 10"):
        load_transcript(tmp_path / "unlike")
    monkeypatch.setattr(limits, "UNLIKE", 10)
    with pytest.raises(DataError, match="declares fields in 31 ways that differ; allowed: 10"):
        load_transcript(tmp_path / "unlike")
