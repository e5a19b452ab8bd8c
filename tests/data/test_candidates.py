"""`knowledge.gallery`: candidates of a folder or an archive, of the plan's classes; every error is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedassay.data.candidates import candidates_of
from fedassay.data.class_labels import Classes
from fedassay.data.gallery import gallery_of
from fedassay.data.images import ImageSet
from fedassay.data.records import Records
from fedassay.support.errors import DataError
from fedassay.support.types import Images

_RNG = np.random.default_rng(0)
_IMAGES = _RNG.integers(0, 256, (6, 8, 8, 1), np.uint8)
_LABELS = np.array([2, 0, 1, 2, 2, 0])


def alike(classes: tuple[str, ...]) -> ImageSet:
    return ImageSet(_IMAGES[:0], np.zeros(0, np.int64), classes)


def read(path: Path, classes: tuple[str, ...]) -> Records:
    return candidates_of(path, alike(classes), lambda images: images.reshape(len(images), -1).astype(np.float32))


def folder_of(path: Path, images: Images, names: list[str]) -> Path:
    """One PNG a candidate, in the folder of its class."""
    for number, (image, name) in enumerate(zip(images, names, strict=True)):
        (path / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(path / name / f"{number}.png")
    return path


def held(records: Records) -> set[tuple[bytes, int]]:
    return {(image.tobytes(), int(label)) for image, label in zip(records.images, records.labels, strict=True)}


def test_a_folder_and_an_archive_are_the_same_candidates(tmp_path: Path) -> None:
    classes = ("cat", "dog", "newt")
    folder = folder_of(tmp_path / "folder", _IMAGES, [classes[label] for label in _LABELS])
    np.savez(tmp_path / "images.npz", x=_IMAGES[..., 0], y=_LABELS)
    wanted = {(image.tobytes(), int(label)) for image, label in zip(_IMAGES, _LABELS, strict=True)}
    assert held(read(folder, classes)) == held(read(tmp_path / "images.npz", classes)) == wanted
    assert read(folder, classes).features.shape == (6, 64)


def test_a_candidate_that_is_listed_again_counts_once(tmp_path: Path) -> None:
    rows, labels = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])
    twice = np.array([0, 1, 2, 3, 4, 5, 1, 4])
    np.savez(tmp_path / "features.npz", features=rows[twice], labels=labels[twice])
    found, again = gallery_of(tmp_path / "features.npz", Classes(2), None)
    assert again == 2
    assert np.array_equal(found.features, rows)
    assert np.array_equal(found.take(np.array([5, 0])).features, rows[[5, 0]])
    # Under another label it is another candidate.
    np.savez(tmp_path / "features.npz", features=rows[twice], labels=[*labels, 0, 1])
    assert len(gallery_of(tmp_path / "features.npz", Classes(2), None)[0]) == 8
    np.savez(tmp_path / "images.npz", x=_IMAGES[[0, 1, 0, 2]], y=_LABELS[[0, 1, 0, 2]])
    assert len(read(tmp_path / "images.npz", ("a", "b", "c"))) == 3


def test_labels_that_name_classes_are_names(tmp_path: Path) -> None:
    """Classes 5, 6 and 7 of the data: labels 7, 5, 6 are the names, and no positions."""
    np.savez(tmp_path / "images.npz", x=_IMAGES, y=_LABELS + 5)
    assert read(tmp_path / "images.npz", ("5", "6", "7")).labels.tolist() == _LABELS.tolist()


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"y": None}, "has no array y"),
        ({"x": _IMAGES.astype(np.float32)}, "x: holds float32; allowed: uint8"),
        ({"x": _IMAGES[:0], "y": _LABELS[:0]}, r"x has shape \(0, 8, 8, 1\)"),
        ({"y": _LABELS[:5]}, r"y has shape \(5,\) of int64; allowed: whole numbers, \(6,\)"),
        ({"y": _LABELS * 0.5}, "y has shape .* float64"),
        ({"y": _LABELS + 1}, "has class 3; allowed: cat, dog, newt"),
        ({"y": _LABELS - 1}, "has class -1; allowed: cat, dog, newt"),
        ({"x": _IMAGES[:, :7]}, r"images of \(7, 8, 1\); allowed: \(8, 8, 1\)"),
    ],
)
def test_a_wrong_archive_is_one_error(arrays: dict[str, Any], says: str, tmp_path: Path) -> None:
    whole = {"x": _IMAGES, "y": _LABELS} | arrays
    np.savez(tmp_path / "images.npz", **{name: array for name, array in whole.items() if array is not None})
    with pytest.raises(DataError, match=rf"^knowledge\.gallery: .*{says}"):
        read(tmp_path / "images.npz", ("cat", "dog", "newt"))


@pytest.mark.parametrize(
    ("images", "name", "says"),
    [
        (_IMAGES, "horse", "has class horse; allowed: cat, dog"),
        (np.repeat(_IMAGES, 3, axis=3), "cat", r"images of \(8, 8, 3\); allowed: \(8, 8, 1\)"),
        (_IMAGES[:0], "cat", "has no folder with images in it"),
    ],
)
def test_a_wrong_folder_is_one_error(images: Images, name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    folder = folder_of(tmp_path / "mine", images, [name] * len(images))
    with pytest.raises(DataError, match=rf"^knowledge\.gallery: .*{says}"):
        read(folder, ("cat", "dog"))
