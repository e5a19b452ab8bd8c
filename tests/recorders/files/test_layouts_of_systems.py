"""Files as NVFlare and OpenFL lay them out: the sites' statistics, and a model's tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedassay.recorders.files.reading import Corrections, read_files
from fedassay.support.errors import DataError

SITES = ("site-1", "site-2", "Global")
PARTS = ("train", "test")


def _value(statistic: str, own: np.ndarray) -> Any:
    if statistic == "histogram":
        counts, edges = np.histogram(own, 4, (0, 1))
        return [[low, high, int(n)] for low, high, n in zip(edges[:-1], edges[1:], counts, strict=True)]
    return {"count": len(own), "sum": own.sum(), "mean": own.mean(), "stddev": own.std(ddof=1)}[statistic]


def _statistics(parts: tuple[str, ...], outer: str, sites: tuple[str, ...] = SITES) -> tuple[Any, dict[str, Any]]:
    rng = np.random.default_rng(0)
    records = {site: {part: rng.random((7, 5)) for part in parts} for site in sites}
    named = ("count", "sum", "mean", "stddev", "histogram")

    def of(statistic: str, site: str, part: str, column: int) -> Any:
        return _value(statistic, records[site][part][:, column])

    if outer == "feature":
        return {
            f"f{column}": {
                name: {site: {part: of(name, site, part, column) for part in parts} for site in sites}
                for name in named
            }
            for column in range(5)
        }, records
    return {
        name: {
            site: {part: {f"f{column}": of(name, site, part, column) for column in range(5)} for part in parts}
            for site in sites
        }
        for name in named
    }, records


@pytest.mark.parametrize("outer", ["feature", "statistic"])
@pytest.mark.parametrize("parts", [PARTS, PARTS[:1]])
def test_statistics_of_nvflare_are_of_sites_data_sets_and_features(
    parts: tuple[str, ...], outer: str, tmp_path: Path
) -> None:
    held, records = _statistics(parts, outer)
    (tmp_path / "stats.json").write_text(json.dumps(held))
    read = read_files(tmp_path / "stats.json", Corrections())
    assert "No product of two features is sent" in read.text
    assert [message.sender for message in read.transcript.messages] == ["client/1", "client/2"]
    assert read.transcript.classes == len(parts)
    for message, site in zip(read.transcript.messages, SITES, strict=False):
        assert {item.kind for item in message.fields.values()} == {
            *("class_counts", "class_means", "class_sums", "deviations", "histogram", "bin_edges")
        }
        for place, part in enumerate(parts):
            own = records[site][part]
            np.testing.assert_allclose(message.fields["mean"].values[place], own.mean(axis=0))
            assert message.fields["count"].values[place] == 7
            bins = message.fields["histogram"].values.reshape(len(parts), 5, 4)
            assert bins[place, 2].tolist() == np.histogram(own[:, 2], 4, (0, 1))[0].tolist()


def test_statistics_of_all_sites_alone_are_the_aggregate(tmp_path: Path) -> None:
    held, _ = _statistics(PARTS[:1], "feature", ("Global",))
    (tmp_path / "stats.json").write_text(json.dumps(held))
    read = read_files(tmp_path / "stats.json", Corrections())
    assert [message.sender for message in read.transcript.messages] == ["aggregate"]


def _varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def _field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content)
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _tensor(name: str, values: np.ndarray, *, packed: bool = True) -> bytes:
    sides = b"".join(map(_varint, values.shape))
    shape = _field(2, sides) if packed else b"".join(_field(2, side) for side in values.shape)
    held = _field(1, name.encode()) + _field(2, 3) + _field(4, 0) + _field(5, shape) + _field(6, b"trained")
    return _field(1, held + _field(7, values.tobytes()))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_model_of_openfl_is_read_without_its_package(kind: type, packed: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    model = {"fc.weight": rng.normal(size=(6, 300)).astype(kind), "fc.bias": rng.normal(size=6).astype(kind)}
    for name in ("init", "last"):
        content = b"".join(_tensor(own, values, packed=packed) for own, values in model.items())
        (tmp_path / f"{name}.pbuf").write_bytes(content)
    read = read_files(tmp_path / "last.pbuf", Corrections(downlink=tmp_path / "init.pbuf"))
    for message in read.transcript.messages:
        values = [item.values for item in message.fields.values()]
        assert all(np.array_equal(a, b) for a, b in zip(values, model.values(), strict=True))
    assert read.transcript.messages[0].sender == "server"


@pytest.mark.parametrize(
    "content",
    [
        b"\xff" * 40,
        _tensor("a", np.ones(40, np.float32))[:-20],
        _field(1, _field(1, b"a") + _field(5, _field(2, _varint(1 << 40))) + _field(7, bytes(64))),
        _field(1, _field(1, b"a") + _field(5, _field(1, b"x") + _field(2, b"\x08")) + _field(7, bytes(32))),
        _field(1, b""),
        _field(2, b"model"),
    ],
    ids=["no protobuf", "cut off", "another shape", "quantised", "empty tensor", "no tensor"],
)
def test_other_content_is_refused_with_what_to_save_instead(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.pbuf").write_bytes(content)
    with pytest.raises(
        DataError, match=r"no model of OpenFL in a layout that is read \(.*\); save its arrays instead"
    ):
        read_files(tmp_path / "a.pbuf", Corrections())


def test_counts_by_class_beside_a_mean_and_a_covariance_of_all_records(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    held = {}
    for site in ("site-1", "site-2"):
        own = np.maximum(rng.normal(size=(11, 20)) + 0.2, 0)
        counts = {"train": {"ill": 4, "healthy": 7}}
        held[site] = {"count": counts, "mean": own.mean(axis=0).tolist(), "cov": np.cov(own.T).tolist()}
    (tmp_path / "stats.json").write_text(json.dumps(held))
    read = read_files(tmp_path / "stats.json", Corrections())
    for message in read.transcript.messages:
        kinds = {name: (item.kind, item.shape) for name, item in message.fields.items()}
        assert kinds == {
            "count/train": ("class_counts", (1,)),
            "mean": ("class_means", (1, 20)),
            "cov": ("class_covariances", (1, 20, 20)),
        }
        assert message.fields["count/train"].values.tolist() == [11]


def test_a_matrix_of_ones_is_no_correlation(tmp_path: Path) -> None:
    np.save(tmp_path / "server.npy", np.ones((3, 3), np.float32))
    (message,) = read_files(tmp_path / "server.npy", Corrections()).transcript.messages
    assert {item.kind for item in message.fields.values()} == {"parameters"}
