"""Records with labels in files are records, and no weights that somebody sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedassay.recorders.files.reading import Corrections, read_files

RECORDS, CLASSES = 40, 4
NAMES = ("f0 y0", "x_train y_train", "data target", "features labels", "images labels", "X y", "a b")
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, CLASSES, RECORDS)
TABLES: dict[str, np.ndarray] = {
    "vectors": RNG.normal(size=(RECORDS, 16)),
    "images": RNG.integers(0, 256, (RECORDS, 3, 8, 8)).astype(np.uint8),
}
FORMS: dict[str, np.ndarray] = {
    "numbers": LABELS,
    "floats": LABELS.astype(np.float64),
    "columns": LABELS[:, None],
    "one 1 a row": np.eye(CLASSES)[LABELS],
}


def _fields(path: Path, **arrays: Any) -> tuple[dict[str, Any], int, str]:
    np.savez(path / "client_1.npz", **arrays)
    read = read_files(path / "client_1.npz", Corrections())
    (message,) = read.transcript.messages
    return {name: item.values for name, item in message.fields.items()}, read.transcript.classes, read.text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("names", NAMES)
def test_features_and_labels_are_records(names: str, table: str, form: str, tmp_path: Path) -> None:
    x, y = names.split()
    fields, classes, text = _fields(tmp_path, **{x: TABLES[table], y: FORMS[form]})
    assert np.array_equal(fields["labels"], LABELS)
    assert np.allclose(fields["features"], TABLES[table].reshape(RECORDS, -1))
    assert classes == CLASSES
    assert f"these are {RECORDS} records as they are, and no message" in text


def test_parts_of_records_are_records(tmp_path: Path) -> None:
    vectors = TABLES["vectors"]
    fields, _, _ = _fields(tmp_path, x_train=vectors, y_train=LABELS, x_test=vectors[:9], y_test=LABELS[:9])
    assert fields["features"].shape == (RECORDS + 9, 16)


def test_several_labels_a_record_are_those_of_records(tmp_path: Path) -> None:
    several = RNG.integers(0, 2, (RECORDS, 3))
    fields, classes, _ = _fields(tmp_path, x=TABLES["vectors"], labels=several)
    assert classes == len(np.unique(several, axis=0))
    assert len(fields["labels"]) == RECORDS


def test_a_table_with_a_label_in_each_row_is_of_records(tmp_path: Path) -> None:
    rows = "".join(f"{20 + i},{i % 7},{('ill', 'well')[i % 2]}\n" for i in range(20))
    (tmp_path / "a.csv").write_text(f"age,bmi,label\n{rows}")
    (message,) = read_files(tmp_path / "a.csv", Corrections()).transcript.messages
    assert message.fields["features"].shape == (20, 2)
    assert message.fields["labels"].values.tolist() == [i % 2 for i in range(20)]


@pytest.mark.parametrize(
    "counts", [np.array([0, 1, 1, 2, 2, 1, 0, 2]), np.array([3, 3, 4, 4, 3, 4, 3, 3])], ids=["empty", "even"]
)
def test_counts_beside_means_are_no_labels(counts: np.ndarray, tmp_path: Path) -> None:
    means = RNG.random((8, 16)) * (counts > 0)[:, None]
    fields, _, text = _fields(tmp_path, means=means, counts=counts)
    assert "labels" not in fields
    assert "records as they are" not in text


def test_weights_and_offsets_are_no_records(tmp_path: Path) -> None:
    arrays = {"fc.weight": RNG.normal(size=(10, 64)), "fc.bias": np.zeros(10), "out": RNG.normal(size=(3, 10))}
    assert "records as they are" not in _fields(tmp_path, **arrays)[2]


def _smooth(records: int, *sides: int) -> np.ndarray:
    """Levels of images from 0 to 255, in which neighbours are alike."""
    waves = [np.linspace(0, 3, side) for side in (records, *sides)]
    return np.rint(127 + 127 * np.sin(sum(np.meshgrid(*waves, indexing="ij")))).astype(np.uint8)


PIXELS = {
    "bytes": lambda levels: levels,
    "0 to 1": lambda levels: (levels / 255).astype(np.float32),
    "half": lambda levels: (levels / 255).astype(np.float16),
}


@pytest.mark.parametrize("pixels", PIXELS)
@pytest.mark.parametrize("sides", [(28, 28), (12, 20, 3), (3, 16, 16), (8, 8, 1)])
@pytest.mark.parametrize("ending", ["npz", "npy"])
def test_images_without_labels_are_records(
    ending: str, sides: tuple[int, ...], pixels: str, tmp_path: Path
) -> None:
    held = PIXELS[pixels](_smooth(30, *sides))
    path = tmp_path / f"a.{ending}"
    np.savez(path, held) if ending == "npz" else np.save(path, held)
    read = read_files(path, Corrections())
    (message,) = read.transcript.messages
    assert {name: item.kind for name, item in message.fields.items()} == {"features": "features"}
    assert np.allclose(message.fields["features"].values, held.reshape(30, -1))
    assert read.transcript.classes == 1
    assert "holds images: these are 30 records as they are, and no message" in read.text


def test_digits_of_16_levels_are_images(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", load_digits().images / 16)
    assert "holds images: these are 1,797 records" in read_files(tmp_path / "a.npy", Corrections()).text


@pytest.mark.parametrize(
    "arrays",
    [
        {"attention": RNG.dirichlet(np.ones(16), (4, 16))},
        {"w": RNG.random((6, 12, 12))},
        {"codes": RNG.integers(0, 256, (64, 16, 16)).astype(np.uint8)},
        {"means": _smooth(4, 16, 16) / 255},
        {"w": _smooth(30, 16, 16)[:24].reshape(4, 6, 16, 16).mean(axis=1) / 255},
        {"conv.weight": RNG.random((4, 3, 3, 3))},
        {"kernel": _smooth(30, 7, 7) / 255},
        {"causal": np.tril(np.ones((4, 16, 16)))},
        {"segments": (_smooth(8, 16, 16) > 127).astype(np.uint8)},
    ],
    ids=lambda arrays: " ".join(arrays),
)
def test_other_arrays_from_0_to_1_are_no_images(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    assert "records as they are" not in _fields(tmp_path, **arrays)[2]
