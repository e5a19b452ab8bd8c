"""Whole numbers of secure aggregation: scale and modulus are found or given, and sums are those of the records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from systems import Arrays, System, population, sums

from fedassay.attacks.gram.targets import targets
from fedassay.exchange.inference.infer import infer_kinds, with_inferred
from fedassay.exchange.view import ThreatModel, View
from fedassay.recorders.files.reading import Corrections, read_files
from fedassay.support.errors import PlanError


def _summed(system: System) -> Arrays:
    return {name: sum(own[name] for own in system.messages) for name in system.messages[0]}  # type: ignore[misc]


def _quantised(sent: Arrays, scale: int, modulus: int | None, *, counts: bool) -> dict[str, Any]:
    whole = {
        name: np.rint(values * (scale if counts or values.dtype.kind == "f" else 1)).astype(np.int64)
        for name, values in sent.items()
    }
    if modulus is None:
        return whole
    return {name: np.array(values.astype(object) % modulus).astype(np.uint64) for name, values in whole.items()}


def _off(path: Path, said: Corrections, system: System) -> tuple[float, str]:
    """How far the nearest second moment that is read is from that of all records, and what was said."""
    read = read_files(path, said)
    transcript = with_inferred(read.transcript, infer_kinds(read.transcript))
    assert [message.sender for message in transcript.messages] == ["aggregate"]
    view = View(transcript.messages, transcript.classes, ThreatModel())
    records = np.concatenate(system.features)
    wanted = records.T @ records
    found = [gram.second for each in targets(view, gamma=None, differences=False) for gram in each.candidates]
    return min((float(np.abs(own - wanted).max() / wanted.max()) for own in found), default=np.inf), read.text


def _small(system: System) -> System:
    """Of the first client and half of the second: fewer records than features."""
    return System(system.messages[:1], system.features[:1], system.labels[:1])


@pytest.mark.parametrize("modulus", [None, 1 << 32, 1 << 64])
@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("scale", [1 << 12, 1 << 16, 1 << 24, 10**6])
def test_a_scale_that_nobody_says_is_found(scale: int, counts: bool, modulus: int | None, tmp_path: Path) -> None:
    for seed, make in enumerate((sums, lambda rng: population(rng, 1, "sum", "gram"))):
        system = _small(make(np.random.default_rng(seed)))
        np.savez(tmp_path / "a.npz", **_quantised(_summed(system), scale, modulus, counts=counts))
        off, text = _off(tmp_path / "a.npz", Corrections(aggregate=True), system)
        assert off < 2 / scale
        assert f"numbers times {scale:g}" in text
        assert "that the rank shows" in text


def test_negative_sums_show_the_modulus(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    records = rng.normal(size=(9, 20))
    sent = {"count": np.asarray(9), "sum": records.sum(axis=0), "gram": records.T @ records}
    system = System([sent], [records], [np.zeros(9, np.int64)])
    np.savez(tmp_path / "a.npz", **_quantised(_summed(system), 1 << 16, 1 << 32, counts=True))
    off, text = _off(tmp_path / "a.npz", Corrections(aggregate=True), system)
    assert off < 1e-4
    assert "numbers times 65536 modulo 4294967296" in text


def test_a_scale_and_a_modulus_that_are_given_are_taken(tmp_path: Path) -> None:
    system = _small(population(np.random.default_rng(1), 1, "mean", "cov"))
    np.savez(tmp_path / "a.npz", **_quantised(_summed(system), 5000, 2**31 - 1, counts=False))
    off, _ = _off(tmp_path / "a.npz", Corrections(aggregate=True), system)
    assert off > 0.1, "means beside covariances do not tell their scale"
    said = Corrections(aggregate=True, scale=5000, modulus=2**31 - 1)
    off, text = _off(tmp_path / "a.npz", said, system)
    assert off < 1e-3
    assert "numbers times 5000 modulo 2147483647" in text


def test_whole_numbers_that_are_no_others_stay(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    pixels = rng.integers(0, 256, (9, 20))
    held = {"sum": pixels.sum(axis=0), "gram": pixels.T @ pixels, "count": np.asarray(9)}
    np.savez(tmp_path / "a.npz", **held)
    read = read_files(tmp_path / "a.npz", Corrections())
    assert "are read as" not in read.text
    np.testing.assert_array_equal(read.transcript.messages[0].fields["gram"].values, held["gram"])


def test_whole_numbers_of_an_unknown_scale_are_asked_about(tmp_path: Path) -> None:
    """Class sums alone show no scale."""
    path = tmp_path / "a.npz"
    sums = np.round(np.random.default_rng(0).random((3, 8)) * 2**16).astype(np.int64)
    np.savez(path, sums=sums, counts=np.array([4, 5, 6]))
    assert "sums holds whole numbers: if these are numbers times a scale" in read_files(path, Corrections()).text
    assert "--scale." not in read_files(path, Corrections(scale=2.0**16)).text


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (Corrections(scale=16.0), "no array holds whole numbers"),
        (Corrections(modulus=256), "no array holds whole numbers"),
    ],
)
def test_options_without_whole_numbers_are_refused(said: Corrections, message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.full((3, 4), 0.5))
    with pytest.raises(PlanError, match=message):
        read_files(tmp_path / "a.npz", said)
    np.savez(tmp_path / "b.npz", a=np.full((3, 4), 1000))
    with pytest.raises(PlanError, match="numbers go up to 1000"):
        read_files(tmp_path / "b.npz", Corrections(modulus=256))


def test_a_declared_histogram_is_not_asked_for_a_scale(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", h=np.array([[1, 3, 0, 5], [2, 2, 2, 3]]))
    assert "--scale" in read_files(tmp_path / "a.npz", Corrections()).text
    assert "--scale" not in read_files(tmp_path / "a.npz", Corrections(kinds={"h": "histogram"})).text
