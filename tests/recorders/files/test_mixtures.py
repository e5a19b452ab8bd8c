"""Mixtures by the names of scikit-learn and of papers, and tables and matrices that lie otherwise than usual."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedassay.exchange.inference.infer import infer_kinds
from fedassay.mixtures.packed import unpack_lower
from fedassay.recorders.files.reading import Corrections, Read, read_files

_P, _K, _D = 3, 2, 5


def _mixture(seed: int, family: str) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.2, 1, (_P, _K))
    spread = rng.normal(size=(_P, _K, _D, 2 * _D))
    whole = spread @ np.swapaxes(spread, -1, -2)
    variances = np.diagonal(whole, axis1=-2, axis2=-1)
    return {
        "means": rng.normal(size=(_P, _K, _D)),
        "covs": {"full": whole, "diag": variances, "spherical": variances[..., 0]}[family],
        "weights": weights / weights.sum(axis=1, keepdims=True),
    }


def _read(folder: Path, *clients: dict[str, Any]) -> Read:
    for number, held in enumerate(clients):
        np.savez(folder / f"client_{number}.npz", **held)
    return read_files(folder, Corrections())


def _kinds(read: Read) -> dict[str, str]:
    return {item.kind: name for name, item in read.transcript.messages[0].fields.items()}


@pytest.mark.parametrize("family", ["full", "diag", "spherical"])
def test_mixtures_by_class_are_mixtures(family: str, tmp_path: Path) -> None:
    sent = [_mixture(seed, family) for seed in range(2)]
    read = _read(tmp_path, *(dict(zip(("mu", "cov", "pi"), held.values(), strict=True)) for held in sent))
    assert "mu, cov and pi are read as a mixture of 2 Gaussians for each of 3 classes" in read.text
    names = _kinds(read)
    fields = read.transcript.messages[1].fields
    assert read.transcript.classes == _P
    assert fields[names["component_counts"]].values.tolist() == [_K] * _P
    assert np.array_equal(fields["mu"].values, sent[1]["means"].reshape(-1, _D))
    assert np.array_equal(fields["pi"].values, sent[1]["weights"].ravel())
    spreads = fields["cov"].values
    whole = unpack_lower(spreads) if family == "full" else spreads
    assert np.allclose(whole, sent[1]["covs"].reshape(whole.shape))
    assert {each.status for each in infer_kinds(read.transcript)} == {"agrees"}


@pytest.mark.parametrize("form", ["json", "names"])
def test_mixtures_under_keys_of_classes_are_mixtures(form: str, tmp_path: Path) -> None:
    for number in range(2):
        held = _mixture(number, "full")
        if form == "json":
            rows = {str(k): {name: values[k].tolist() for name, values in held.items()} for k in range(_P)}
            (tmp_path / f"client_{number}.json").write_text(json.dumps(rows))
        else:
            np.savez(
                tmp_path / f"client_{number}.npz",
                **{f"{name}_{k}": values[k] for name, values in held.items() for k in range(_P)},
            )
    assert "mixture_weights" in _kinds(read_files(tmp_path, Corrections()))


@pytest.mark.parametrize("family", ["full", "tied"])
def test_what_scikit_learn_calls_a_mixture_is_one(family: str, tmp_path: Path) -> None:
    sent = []
    for seed in range(2):
        own = {f"{name}_": values[0] for name, values in _mixture(seed, "full").items()}
        covariances = own.pop("covs_")
        own["covariances_"] = covariances[0] if family == "tied" else covariances
        sent.append({**own, "n_iter_": 7, "n": 30})
    read = _read(tmp_path, *sent)
    assert read.transcript.classes == 1
    names = _kinds(read)
    assert [
        names[kind] for kind in ("mixture_weights", "mixture_means", "mixture_covariances", "class_counts")
    ] == [*("weights_", "means_", "covariances_", "n")]
    assert read.transcript.messages[0].fields["covariances_"].shape == (_K, _D * (_D + 1) // 2)


def test_weights_that_do_not_add_up_are_no_mixture(tmp_path: Path) -> None:
    held = _mixture(0, "full")
    read = _read(tmp_path, {**held, "weights": 2 * held["weights"]})
    assert "mixture_means" not in _kinds(read)


def _statistics(seed: int, classes: int = _P) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    records, labels = np.maximum(rng.normal(size=(40, 8)) + 0.3, 0), rng.integers(0, classes, 40)
    member = np.eye(classes)[labels]
    return {"sums": member.T @ records, "gram": records.T @ records, "n": member.sum(axis=0).astype(int)}


def test_an_upper_triangle_beside_sums_is_a_second_moment(tmp_path: Path) -> None:
    sent = [_statistics(seed) for seed in range(3)]
    rows = [{"sums": each["sums"], "gram": each["gram"][np.triu_indices(8)]} for each in sent]
    read = _read(tmp_path, *rows)
    assert _kinds(read) == {"class_sums": "sums", "second_moment": "gram"}
    assert "gram holds upper triangles of symmetric matrices" in read.text
    for message, own in zip(read.transcript.messages, sent, strict=True):
        assert np.allclose(unpack_lower(message.fields["gram"].values), own["gram"])


@pytest.mark.parametrize("beside", ["n", "gram"])
@pytest.mark.parametrize("name", ["sums", "means"])
def test_columns_of_classes_become_rows(name: str, beside: str, tmp_path: Path) -> None:
    sent = [_statistics(seed) for seed in range(3)]
    read = _read(tmp_path, *({name: each["sums"].T, beside: each[beside]} for each in sent))
    assert f"{name} has a column for each of 3 classes." in read.text
    for message, own in zip(read.transcript.messages, sent, strict=True):
        assert np.array_equal(message.fields[name].values, own["sums"])
        assert message.fields[name].kind.startswith("class_")


def test_equal_sides_are_said(tmp_path: Path) -> None:
    sent = [_statistics(seed, 8) for seed in range(2)]
    read = _read(tmp_path, *({"sums": each["sums"], "gram": each["gram"]} for each in sent))
    assert "sums is 8 x 8: its rows are taken for the classes, not its columns." in read.text
    assert _kinds(read) == {"class_sums": "sums", "second_moment": "gram"}


def test_a_symmetric_matrix_is_no_table_by_class(tmp_path: Path) -> None:
    records = np.maximum(np.random.default_rng(0).normal(size=(20, 6)), 0)
    read = _read(tmp_path, {"sum_x": records.sum(axis=0), "sum_xx": records.T @ records, "n": 20})
    assert "taken for the classes" not in read.text
    assert "second_moment" in _kinds(read)
