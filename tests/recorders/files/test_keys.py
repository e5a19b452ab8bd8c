"""Keys and parts of names that are clients or classes: read as such where that is clear, and else asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedassay.recorders.files.reading import Corrections, Read, read_files
from fedassay.support.errors import DataError, PlanError

_CLASSES = 3
_KINDS = {"mean": "class_means", "cov": "class_covariances", "count": "class_counts"}


def _statistics(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    records, labels = np.maximum(rng.normal(size=(20, 8)) + 0.3, 0), rng.integers(0, _CLASSES, 20)
    own = [records[labels == label] for label in range(_CLASSES)]
    return {
        "mean": np.array([each.mean(axis=0) for each in own]),
        "cov": np.array([np.cov(each.T) for each in own]),
        "count": np.bincount(labels, minlength=_CLASSES),
    }


def _named(form: str, seed: int = 0) -> dict[str, Any]:
    held = _statistics(seed)
    return {form.format(own=own, key=key): held[own][key] for own in held for key in range(_CLASSES)}


def _read(path: Path, held: dict[str, Any], clients: int | None = None) -> Read:
    np.savez(path, **held)
    return read_files(path, Corrections(clients=clients))


def _fields(read: Read) -> list[dict[str, str]]:
    return [{name: item.kind for name, item in each.fields.items()} for each in read.transcript.messages]


@pytest.mark.parametrize(
    "form", ["{own}_{key}", "{own}{key}", "{own}.class{key}", "class_{key}_{own}", "{key}-{own}"]
)
def test_numbers_of_classes_in_names_are_classes(form: str, tmp_path: Path) -> None:
    for number in range(2):
        np.savez(tmp_path / f"client_{number}.npz", **_named(form, number))
    read = read_files(tmp_path, Corrections())
    assert _fields(read) == [_KINDS, _KINDS]
    for number, message in enumerate(read.transcript.messages):
        for name, values in _statistics(number).items():
            assert np.array_equal(message.fields[name].values, values)


def test_a_number_that_may_be_a_client_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "all.npz"
    with pytest.raises(DataError, match="0, 1, 2 may be clients or one client's classes; say --clients 3"):
        _read(path, _named("{own}_{key}"))
    assert _fields(_read(path, _named("{own}_{key}"), clients=1)) == [_KINDS]
    assert _fields(_read(path, _named("{own}_{key}"), clients=3)) == [_KINDS] * 3
    assert _fields(_read(path, _named("{own}_class{key}"))) == [_KINDS]


@pytest.mark.parametrize("form", ["{0}_{1}", "{0}.{1}", "st_{0}_{1}"])
def test_words_that_may_be_clients_are_asked_for(form: str, tmp_path: Path) -> None:
    held = {form.format(who, own): np.arange(3.0) for who in ("alice", "bob") for own in ("mean", "sum")}
    with pytest.raises(DataError, match=r"alice, (st_)?bob may be clients or parts of .* say --clients 2"):
        _read(tmp_path / "all.npz", held)
    assert _fields(_read(tmp_path / "all.npz", held, clients=1)) == [dict.fromkeys(held, "parameters")]
    read = _read(tmp_path / "all.npz", held, clients=2)
    assert [{*message.fields} for message in read.transcript.messages] == [{"mean", "sum"}] * 2


@pytest.mark.parametrize(
    "names",
    [
        ("feature_mean", "feature_cov", "label_counts"),
        ("mean_x", "mean_y", "cov_x", "cov_y"),
        ("sum1", "sum2", "n"),
        ("weight_0", "mean_0", "weight_1", "mean_1"),
        ("bn1_mean", "bn1_var", "bn2_mean", "bn2_var"),
        ("w_1", "mean_1", "w_2", "mean_2"),
    ],
)
def test_names_of_one_message_stay(names: tuple[str, ...], tmp_path: Path) -> None:
    held = {name: np.full((4, 4), 0.5) if name[0] == "w" else np.arange(4.0) + 0.5 for name in names}
    assert [{*each} for each in _fields(_read(tmp_path / "all.npz", held))] == [{*names}]


@pytest.mark.parametrize("form", ["tables", "keys"])
def test_numbers_above_tables_by_class_are_clients(form: str, tmp_path: Path) -> None:
    def means(seed: int) -> Any:
        rows = _statistics(seed)["mean"].tolist()
        return rows if form == "tables" else dict(enumerate(rows))

    (tmp_path / "all.json").write_text(json.dumps({str(client): {"mean": means(client)} for client in range(2)}))
    read = read_files(tmp_path / "all.json", Corrections())
    assert [message.sender for message in read.transcript.messages] == ["client/0", "client/1"]
    assert _fields(read) == [{"mean": "class_means"}] * 2


def test_numbers_above_vectors_are_asked_for_unless_a_name_says_whose_they_are(tmp_path: Path) -> None:
    held = {str(key): {"mean": [1.0, key], "n": 5} for key in range(2)}
    for name in ("all.json", "client_0.json"):
        (tmp_path / name).write_text(json.dumps(held))
    with pytest.raises(DataError, match=r"all\.json: 0, 1 may be clients or one client's classes"):
        read_files(tmp_path / "all.json", Corrections())
    assert len(read_files(tmp_path / "all.json", Corrections(clients=2)).transcript.messages) == 2
    assert read_files(tmp_path / "client_0.json", Corrections()).transcript.classes == 2


@pytest.mark.parametrize(
    "given",
    [{"clients": True}, {"clients": "2"}, {"clients": 0}, {"classes": -1}, {"classes": 2.5}, {"modulus": 1}],
)
def test_numbers_that_count_nothing_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(
        PlanError, match=r"(clients|classes|modulus): given .*; allowed: [12] or more, a whole number"
    ):
        Corrections(**given)
