"""Statistics under keys of classes: one array in one order, whatever the order of keys and whoever lacks one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedassay.exchange.inference.infer import infer_kinds
from fedassay.exchange.message import Message
from fedassay.recorders.files.reading import Corrections, Read, read_files
from fedassay.support.errors import DataError

_MEANS = np.random.default_rng(0).normal(size=(3, 5)).round(3)
_COUNTS = [4, 2, 7]
_NAMES = ("cat", "cow", "dog")


def _read(folder: Path, *clients: Any) -> Read:
    for number, held in enumerate(clients):
        (folder / f"client_{number}.json").write_text(json.dumps(held))
    return read_files(folder, Corrections())


def _kinds(message: Message) -> dict[str, str]:
    return {name: item.kind for name, item in message.fields.items()}


@pytest.mark.parametrize("form", ["outside", "inside"])
def test_the_order_of_keys_does_not_count(form: str, tmp_path: Path) -> None:
    def held(order: list[int]) -> Any:
        if form == "inside":
            return {_NAMES[c]: {"mean": _MEANS[c].tolist(), "n": _COUNTS[c]} for c in order}
        return {
            "label_counts": {_NAMES[c]: _COUNTS[c] for c in order},
            "means": {_NAMES[c]: _MEANS[c].tolist() for c in order[::-1]},
        }

    read = _read(tmp_path, held([0, 1, 2]), held([2, 0, 1]))
    assert read.transcript.class_names == _NAMES
    for message in read.transcript.messages:
        by_kind = {item.kind: item.values for item in message.fields.values()}
        assert np.array_equal(by_kind["class_counts"], _COUNTS)
        assert np.array_equal(by_kind["class_means"], _MEANS)


def test_a_class_that_a_client_lacks_is_said_by_its_class_ids(tmp_path: Path) -> None:
    for number, lacks in enumerate((1, 2)):
        present = [c for c in range(3) if c != lacks]
        vectors = {c: torch.tensor(_MEANS[c]) for c in present}
        counts = {c: 0 if c == lacks else _COUNTS[c] for c in range(3)}
        torch.save({"prototypes": vectors, "counts": counts}, tmp_path / f"client_{number}.pt")
    transcript = read_files(tmp_path, Corrections()).transcript
    assert transcript.classes == 3
    for message, ids in zip(transcript.messages, ([0, 2], [0, 1]), strict=True):
        assert _kinds(message) == {"prototypes": "class_means", "counts": "class_counts", "class_ids": "class_ids"}
        assert message.fields["class_ids"].values.tolist() == ids
        assert message.fields["counts"].values.tolist() == [_COUNTS[c] for c in ids]
        assert np.array_equal(message.fields["prototypes"].values, _MEANS[ids])


def test_vectors_under_nothing_but_numbers_are_prototypes(tmp_path: Path) -> None:
    for number in range(2):
        vectors = {c: torch.tensor(_MEANS[place] + number) for place, c in enumerate((0, 2, 10))}
        torch.save(vectors, tmp_path / f"client_{number}.pt")
    read = read_files(tmp_path, Corrections())
    assert read.transcript.class_names == ("0", "2", "10")
    assert np.array_equal(read.transcript.messages[1].fields["prototypes"].values, _MEANS + 1)


def test_a_name_of_a_statistic_above_its_classes_is_kept(tmp_path: Path) -> None:
    sums = {"sums": {name: row.tolist() for name, row in zip(_NAMES, _MEANS, strict=True)}}
    assert _kinds(_read(tmp_path, sums, sums).transcript.messages[0]) == {"sums": "class_sums"}


def test_counts_by_class_alone_are_counts(tmp_path: Path) -> None:
    mean = _MEANS[0].tolist()
    read = _read(
        tmp_path,
        {"label_counts": {"b": 3, "a": 2}, "mean": mean},
        {"label_counts": {"b": 5}, "mean": mean},
        {"label_counts": {"c": 1, "b": 5}, "mean": mean},
    )
    found = [
        (m.fields["label_counts"].kind, m.fields["class_ids"].values.tolist()) for m in read.transcript.messages
    ]
    assert found == [("class_counts", [0, 1]), ("class_counts", [1]), ("class_counts", [1, 2])]


@pytest.mark.parametrize(
    "held",
    [
        {
            "1": {"running_mean": [1.0, 2.0], "bias": [1.0, 1.0]},
            "4": {"running_mean": [1.0, 2.0], "bias": [2.0, 1.0]},
        },
        {"mean": {"age": 51.5, "bmi": 24.5}},
        {"encoder": {"mean": [1.0, 2.0]}, "decoder": {"mean": [1.0, 3.0]}},
    ],
)
def test_layers_and_features_are_no_classes(held: Any, tmp_path: Path) -> None:
    transcript = _read(tmp_path, held, held).transcript
    assert not transcript.class_names
    assert len(transcript.messages[0].fields) > 1


def test_rows_of_a_table_are_in_the_order_of_classes(tmp_path: Path) -> None:
    rows = ["site,label,n,mean_0,mean_1"]
    for site, order in (("A", [0, 1, 2]), ("B", [2, 0]), ("C", [2, 1, 0])):
        rows += [f"{site},{_NAMES[c]},{_COUNTS[c]},{_MEANS[c][0]},{_MEANS[c][1]}" for c in order]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    transcript = read_files(tmp_path / "t.csv", Corrections()).transcript
    assert transcript.class_names == _NAMES
    for message, ids in zip(transcript.messages, ([0, 1, 2], [0, 2], [0, 1, 2]), strict=True):
        assert message.fields["class_ids"].values.tolist() == ids
        assert message.fields["n"].values.tolist() == [_COUNTS[c] for c in ids]
        assert np.array_equal(message.fields["mean"].values, _MEANS[ids, :2])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("site;n;m\nA;1.234;0,5\nB;12;0,25\n", None),
        ('site,n,m\nA,"1,234",0.5\nB,12,0.25\n', "1,234"),
        ('site,n\nA,"1,234"\nB,12\n', "1,234"),
        ("site;m\nA;1,234\nB;0,512\n", ""),
    ],
)
def test_a_comma_that_may_part_thousands_is_refused(text: str, words: str | None, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    if words == "":
        first = read_files(tmp_path / "t.csv", Corrections()).transcript.messages[0]
        assert first.fields["m"].values.item() == 1.234
        return
    with pytest.raises(
        DataError, match=f"{words or ''} can be a decimal or thousands; allowed: numbers with one mark"
    ):
        read_files(tmp_path / "t.csv", Corrections())


_CLIENT = {"mean": _MEANS[0].tolist(), "n": 7}


@pytest.mark.parametrize(
    "held",
    [
        {"clients": {name: _CLIENT for name in "ABX"}},
        {"rounds": [{"clients": {name: _CLIENT for name in "ABX"}}]},
        {"round": 0, "updates": {name: _CLIENT for name in "ABX"}},
        {"config": {"lr": 0.1}, "sites": {name: _CLIENT for name in "ABX"}},
        {"config": {"lr": 0.1}, "hospitals": [{"site": name, **_CLIENT} for name in "ABX"]},
        {f"client{name}": _CLIENT for name in "ABX"},
    ],
)
def test_clients_below_a_word_for_several_are_clients(held: Any, tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text(json.dumps(held))
    read = read_files(tmp_path / "all.json", Corrections())
    assert [message.sender for message in read.transcript.messages] == ["client/A", "client/B", "client/X"]
    assert {*read.transcript.messages[0].fields} == {"mean", "n"}
    assert ("Left out: lr." in read.text) == ("config" in held)


def test_rounds_and_clients_in_lists_are_numbered(tmp_path: Path) -> None:
    held = {"rounds": [{"clients": [_CLIENT, _CLIENT]}, {"clients": [_CLIENT, _CLIENT]}]}
    (tmp_path / "all.json").write_text(json.dumps(held))
    messages = read_files(tmp_path / "all.json", Corrections()).transcript.messages
    expected = [(number, f"client/{client}") for number in (0, 1) for client in (0, 1)]
    assert [(message.round, message.sender) for message in messages] == expected


def test_numbers_as_texts_are_numbers(tmp_path: Path) -> None:
    held = {"mean": [str(value) for value in _MEANS[0]], "n": "7", "note": "7"}
    fields = _read(tmp_path, held).transcript.messages[0].fields
    assert {*fields} == {"mean", "n"}
    assert np.array_equal(fields["mean"].values, _MEANS[0])
    assert fields["n"].values == 7


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"means": [[1, 2], null, [3, 4]], "n": [3, 0, 4]}', "'means' holds null"),
        ('{"mean": [1, 2], "mean": [3, 4]}', "the key 'mean' is given twice"),
        ('{"means": [[1.0, 2.0], [3.0]], "n": [3, 4]}', r"'means' has rows of shapes \(2,\), \(1,\)"),
        ('{"mean": [1, 2], "n": 1%s}' % ("0" * 30), "'n' holds 10+; allowed: numbers of 64 bits"),
    ],
)
def test_what_would_be_lost_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "client_0.json").write_text(text)
    with pytest.raises(DataError, match=words):
        read_files(tmp_path, Corrections())


def test_columns_of_clients_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("feature,site1,site2\nage,50,60\nbmi,24,23\n")
    with pytest.raises(
        DataError, match="its columns site1, site2 are named like clients; allowed: a row for each"
    ):
        read_files(tmp_path / "t.csv", Corrections())


def test_means_are_not_cut_into_sums_beside_larger_squares(tmp_path: Path) -> None:
    for number in range(2):
        rng = np.random.default_rng(number)
        records, labels = np.maximum(rng.normal(size=(30, 8)) + 0.3, 0), rng.integers(0, 3, 30)
        own = [records[labels == label] for label in range(3)]
        held = {"means": [each.mean(axis=0) for each in own], "covs": [np.cov(each.T) for each in own]}
        np.savez(tmp_path / f"client_{number}.npz", **held, counts=np.bincount(labels))
    transcript = read_files(tmp_path, Corrections()).transcript
    wanted = {"means": "class_means", "covs": "class_covariances", "counts": "class_counts"}
    assert _kinds(transcript.messages[0]) == wanted
    assert not [each.text for each in infer_kinds(transcript) if each.status == "contradicts"]


def test_classes_are_as_many_as_their_counts_also_where_they_are_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(3):
        table, counts = rng.normal(size=(12, 4)), rng.integers(1, 9, 4)
        np.savez(tmp_path / f"client_{number}.npz", means=table, counts=counts)
    assert read_files(tmp_path, Corrections()).transcript.classes == 4


@pytest.mark.parametrize("head", ["", "name", "id", "client"])
def test_a_column_of_names_of_clients_is_one(head: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{head},n,mean_0,mean_1\nsite1,20,0.5,0.2\nsite2,30,0.1,0.9\n")
    messages = read_files(tmp_path / "t.csv", Corrections()).transcript.messages
    assert [(message.sender, message.fields["n"].values) for message in messages] == [
        ("client/1", 20),
        ("client/2", 30),
    ]


def test_several_counts_of_a_client_without_classes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("client,n,m\na,3,0.1\na,4,0.5\nb,4,0.7\n")
    with pytest.raises(DataError, match=r"t\.csv: has 2 rows of client_a with n, and no column of their classes"):
        read_files(tmp_path / "t.csv", Corrections())


def test_a_setting_beside_statistics_is_none(tmp_path: Path) -> None:
    records = np.maximum(np.random.default_rng(0).normal(size=(20, 6)), 0)
    held = {"mean": records.mean(axis=0).tolist(), "cov": np.cov(records.T).tolist(), "n": 20, "ok": True}
    wanted = {"mean": "class_means", "cov": "class_covariances", "n": "class_counts", "ok": "other"}
    assert _kinds(_read(tmp_path, held).transcript.messages[0]) == wanted
