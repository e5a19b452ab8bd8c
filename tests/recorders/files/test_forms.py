"""Statistics in other forms than sums: what follows of them is what sums of the same records give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from systems import correlation, principal, singular

from fedassay.attacks.gram.targets import targets
from fedassay.exchange.inference.infer import infer_kinds, with_inferred
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.transcript import Transcript
from fedassay.exchange.view import ThreatModel, View
from fedassay.recorders.files.reading import Corrections, Read, read_files

RECORDS = np.maximum(np.random.default_rng(5).normal(size=(11, 24)) + 0.2, 0)


def _read(base: Path, arrays: dict[str, Any], **said: FieldKind) -> Read:
    np.savez(base / "client_0.npz", **arrays)
    return read_files(base / "client_0.npz", Corrections(kinds=said))


def _moments(read: Read) -> list[np.ndarray]:
    transcript = with_inferred(read.transcript, infer_kinds(read.transcript))
    view = View(transcript.messages, transcript.classes, ThreatModel())
    return [gram.second for each in targets(view, gamma=None, differences=False) for gram in each.candidates]


def _kinds(transcript: Transcript) -> dict[str, str]:
    return {name: item.kind for name, item in transcript.messages[0].fields.items()}


def _is_whole(read: Read) -> bool:
    wanted = RECORDS.T @ RECORDS
    return any(np.abs(each - wanted).max() < 1e-6 * wanted.max() for each in _moments(read))


def _without(arrays: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: values for name, values in arrays.items() if name not in names}


@pytest.mark.parametrize(
    "arrays",
    [
        correlation(RECORDS),
        principal(RECORDS),
        _without(principal(RECORDS), "n_samples_"),
        _without(principal(RECORDS), "n_samples_", "singular_values_"),
        _without(principal(RECORDS), "explained_variance_"),
        singular(RECORDS),
        _without(singular(RECORDS), "count"),
    ],
    ids=["correlation", "PCA", "no count", "variances alone", "singular values", "SVD", "SVD without a count"],
)
def test_each_form_gives_the_second_moment_of_its_records(arrays: dict[str, Any], tmp_path: Path) -> None:
    assert _is_whole(_read(tmp_path, arrays))


@pytest.mark.parametrize(
    ("arrays", "answer"),
    [
        (correlation(RECORDS), {"t1": "class_means", "t2": "deviations"}),
        (_without(principal(RECORDS), "singular_values_"), {"t1": "axis_variances"}),
        (_without(singular(RECORDS), "count"), {"t0": "singular_values"}),
    ],
    ids=["correlation", "PCA", "SVD"],
)
def test_without_names_one_question_is_asked_that_kinds_answer(
    arrays: dict[str, Any], answer: dict[str, str], tmp_path: Path
) -> None:
    nameless = {f"t{place}": values for place, values in enumerate(arrays.values())}
    read = _read(tmp_path, nameless)
    assert all(f"--kinds {name}=..." in read.text for name in answer)
    assert not _is_whole(read)
    assert _is_whole(_read(tmp_path, nameless, **answer))


def test_axes_that_leave_directions_out_are_no_second_moment(tmp_path: Path) -> None:
    read = _read(tmp_path, principal(RECORDS, 4))
    assert "components_ keep 4 directions of 10 that 11 records may have" in read.text
    assert "do not apply" in read.text
    assert not _moments(read)
    assert _kinds(read.transcript)["components_"] == "axes"


def test_left_vectors_beside_singular_values_are_the_records(tmp_path: Path) -> None:
    left, lengths, axes = torch.pca_lowrank(torch.from_numpy(RECORDS), q=11)
    arrays = {"U": left.numpy(), "S": lengths.numpy(), "V": axes.numpy(), "mean": RECORDS.mean(axis=0), "n": 11}
    read = _read(tmp_path, arrays)
    (message,) = read.transcript.messages
    assert _kinds(read.transcript)["U"] == "features"
    np.testing.assert_allclose(message.fields["U"].values, RECORDS, atol=1e-9)


def test_clusters_are_means_and_their_labels_are_counts(tmp_path: Path) -> None:
    fitted = KMeans(3, n_init=1, random_state=0).fit(RECORDS)
    centres, labels = fitted.cluster_centers_, fitted.labels_
    read = _read(tmp_path, {"cluster_centers_": centres, "labels_": labels, "inertia_": fitted.inertia_})
    (message,) = read.transcript.messages
    assert _kinds(read.transcript) == {
        "cluster_centers_": "class_means",
        "labels_": "class_counts",
        "inertia_": "other",
    }
    assert read.transcript.classes == 3
    counts = message.fields["labels_"].values
    sums = np.stack([RECORDS[labels == cluster].sum(axis=0) for cluster in range(3)])
    np.testing.assert_allclose(counts[:, None] * centres, sums, atol=1e-12)


def test_statistics_of_single_features_are_named_and_say_what_does_not_apply(tmp_path: Path) -> None:
    for bins, told in (
        ([3, 0, 2], "none of its 3 bins holds"),
        ([3, 1, 2], "1 of its 3 bins holds"),
        ([1, 1], "2 of its 2 bins hold"),
    ):
        read = _read(tmp_path, {"hist": np.array(bins), "bin_edges": np.arange(len(bins) + 1.0)})
        assert f"{told} one record" in read.text
        assert _kinds(read.transcript) == {"hist": "histogram", "bin_edges": "bin_edges"}
    own = {"count": np.asarray(11), "mean": RECORDS.mean(axis=0), "std": RECORDS.std(axis=0)}
    for arrays in (
        {"count": np.asarray(11), "quantiles": np.quantile(RECORDS, [0, 0.5, 1], axis=0)},
        own,
        {**own, "min": RECORDS.min(axis=0), "max": RECORDS.max(axis=0)},
    ):
        read = _read(tmp_path, arrays)
        assert "No product of two features is sent" in read.text
        assert not _moments(read)
        assert not {"parameters", "other"} & set(_kinds(read.transcript).values())


def test_declared_kinds_are_read_alike(tmp_path: Path) -> None:
    arrays = dict(zip("dcba", correlation(RECORDS).values(), strict=True))
    kinds = {"a": "correlation", "b": "deviations", "c": "class_means", "d": "class_counts"}
    assert _is_whole(_read(tmp_path, arrays, **kinds))
