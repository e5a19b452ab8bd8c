"""Data sets by name, from tiny folders of the layouts in which they are published."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from named_folders import MADE, write
from PIL import Image

from fedassay.data import DataRequest, LoadedData, load
from fedassay.plan.own_images import outline
from fedassay.support.errors import DataError, FedassayError, PlanError

_KEYS: dict[str, dict[str, Any]] = {"celeba": {"label_column": "Smiling"}}
_EXPECTED: dict[str, tuple[tuple[str, ...], list[int], list[int]]] = {
    "pacs": (("dog", "horse"), [8, 8], []),
    "office_home": (("Alarm_Clock", "Mop"), [12, 12], []),
    "caltech101": (("Faces", "ant"), [2, 3], []),
    "stanford_cars": (("Audi S6", "Ford GT"), [2, 2], [1, 1]),
    "oxford_pets": (("Abyssinian", "american_bulldog"), [2, 2], [1, 1]),
    "food101": (("apple_pie", "waffles"), [2, 2], [1, 1]),
    "celeba": (("not Smiling", "Smiling"), [2, 2], [1, 1]),
}


def _request(name: str, folder: Path, **given: Any) -> DataRequest:
    fields: dict[str, Any] = {"root": folder, "path": None, "limit": None, "seed": 0, "base": folder, "size": 8}
    return DataRequest(name, **fields | _KEYS.get(name, {}) | given)


def _load(name: str, folder: Path, **given: Any) -> LoadedData:
    return load(_request(name, folder, **given))


@pytest.mark.parametrize("name", MADE)
def test_the_published_layout_is_read_and_told_beforehand(name: str, tmp_path: Path) -> None:
    MADE[name](tmp_path)
    data, told = _load(name, tmp_path), outline(_request(name, tmp_path))
    classes, train, test = _EXPECTED[name]
    assert data.train.class_names == classes
    assert np.bincount(data.train.labels).tolist() == train
    assert ([] if data.test is None else np.bincount(data.test.labels).tolist()) == test
    assert data.train.image_shape == (8, 8, 3)
    assert told is not None
    assert told.image == (8, 8, 3)
    assert np.array_equal(told.data.train.labels, data.train.labels)
    assert told.data.train.class_names == classes
    # The folder itself, under any name.
    folder = next(path for path in tmp_path.iterdir() if path.is_dir())
    folder.rename(tmp_path / "elsewhere")
    again = _load(name, tmp_path, root=None, path=Path("elsewhere"))
    assert again.train.digest() == data.train.digest()


def test_files_keep_their_labels(tmp_path: Path) -> None:
    """Every image is the file that its list gives this label."""
    MADE["stanford_cars"](tmp_path)
    MADE["celeba"](tmp_path)
    cars = _load("stanford_cars", tmp_path, size=None)
    for number, label in enumerate((1, 0, 0, 1)):
        with Image.open(tmp_path / "stanford_cars" / "cars_train" / f"0000{number + 1}.jpg") as image:
            assert np.array_equal(cars.train.images[number], np.asarray(image))
        assert cars.train.labels[number] == label
    faces = _load("celeba", tmp_path, size=None)
    assert faces.train.groups is not None
    first, again, other, third = faces.train.groups.tolist()
    assert first == again != other == third
    assert faces.train.labels.tolist() == [1, 0, 1, 0]
    (tmp_path / "celeba" / "identity_CelebA.txt").unlink()
    assert _load("celeba", tmp_path).train.groups is None


def test_domains_can_be_left_out_and_a_limit_is_drawn_before_reading(tmp_path: Path) -> None:
    MADE["pacs"](tmp_path)
    data = _load("pacs", tmp_path, limit=8)
    assert data.train.domain_names == ("art_painting", "cartoon", "photo", "sketch")
    assert np.bincount(data.train.labels).tolist() == [4, 4]
    told = outline(_request("pacs", tmp_path, limit=8))
    assert told is not None
    assert told.data.train.domains is not None
    assert data.train.domains is not None
    assert np.array_equal(told.data.train.domains, data.train.domains)


def test_some_domains_of_a_data_set(tmp_path: Path) -> None:
    """Only their files are decoded, a limit is drawn of these, and domains that are not there are named."""
    MADE["pacs"](tmp_path)
    write(tmp_path / "PACS" / "kfold" / "cartoon" / "dog" / "pic_1.jpg", "no image")
    request = _request("pacs", tmp_path, domains=("sketch", "photo"), limit=6)
    data, told = load(request), outline(request)
    assert told is not None
    for train in (data.train, told.data.train):
        assert train.domain_names == ("photo", "sketch")
        assert np.bincount(train.labels).tolist() == [3, 3]
        assert train.domains is not None
        assert set(train.domains) == {0, 1}
    with pytest.raises(PlanError, match=r"'drawing' given; allowed: art_painting, cartoon, photo, sketch"):
        outline(_request("pacs", tmp_path, domains=("photo", "drawing")))


def test_some_classes_of_a_data_set(tmp_path: Path) -> None:
    """Only their files are decoded, and a limit is drawn of these."""
    MADE["food101"](tmp_path)
    write(tmp_path / "food-101" / "images" / "crepes" / "1.jpg", "no image")
    for part in ("train", "test"):
        path = tmp_path / "food-101" / "meta" / f"{part}.json"
        write(path, json.dumps(json.loads(path.read_text()) | {"crepes": ["crepes/1"]}))
    request = _request("food101", tmp_path, classes=("waffles", "apple_pie"), limit=2)
    data, told = load(request), outline(request)
    assert data.train.class_names == ("apple_pie", "waffles")
    assert data.train.labels.tolist() == [0, 1]
    assert told is not None
    assert told.data.train.class_names == data.train.class_names
    with pytest.raises(
        PlanError, match=r"data\.classes: 'pizza' given; allowed: .* of apple_pie, crepes, waffles"
    ):
        outline(_request("food101", tmp_path, classes=("waffles", "pizza")))
    digits = load(DataRequest("digits", None, None, None, 0, tmp_path, classes=("7", "3")))
    whole = load(DataRequest("digits", None, None, None, 0, tmp_path)).train
    kept = np.isin(whole.labels, (3, 7))
    assert np.array_equal(digits.train.images, whole.images[kept])
    assert np.array_equal(digits.train.labels, (whole.labels[kept] == 7).astype(int))


@pytest.mark.parametrize("name", MADE)
def test_what_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=rf"data: {name} is not in data\.root: no folder .*; allowed: unpack it there"
    ):
        _load(name, tmp_path)
    with pytest.raises(PlanError, match=r"data\.labels: x given, but data set"):
        _load(name, tmp_path, labels=Path("x"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FedassayError, match=r"does not exist|no folder|holds no images"):
        _load(name, tmp_path, root=None, path=Path("empty"))


_SPOILT: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a domain": ("pacs", lambda root: (root / "PACS/kfold/photo").rename(root / "photo"), "has no folder photo"),
    "two sizes": ("caltech101", lambda root: None, "images of different sizes"),
    "a photograph": ("stanford_cars", lambda root: (root / "stanford_cars/cars_train/00002.jpg").unlink(),
                     r"cars_train_annos\.mat: names '00002\.jpg', which is not in cars_train"),
    "no table": ("stanford_cars", lambda root: write(root / "stanford_cars/devkit/cars_meta.mat", "x"),
                 r"cars_meta\.mat: cannot be read as a list of class_names"),
    "a list": ("oxford_pets", lambda root: write(root / "oxford-iiit-pet/annotations/test.txt", "Abyssinian\n"),
               r"test\.txt, line 1: 'Abyssinian'; allowed: a file's name and its class"),
    "outside": ("food101", lambda root: write(root / "food-101/meta/train.json", '{"a": ["../../x"]}'),
                r"names '\.\./\.\./x\.jpg', which is not in images"),
    "no json": ("food101", lambda root: write(root / "food-101/meta/train.json", "{"),
                r"train\.json: is no JSON"),
    "a row": ("celeba", lambda root: write(root / "celeba/list_attr_celeba.txt", "1\nBald Smiling\n1.jpg 1\n"),
              r"list_attr_celeba\.txt, line 3: '1\.jpg 1'; allowed: a file's name and 2 times 1 or -1"),
    "no identity": ("celeba", lambda root: write(root / "celeba/identity_CelebA.txt", "000001.jpg 4\n"),
                    r"000002\.jpg has no identity"),
    "a broken image": ("pacs", lambda root: write(root / "PACS/kfold/photo/dog/pic_1.jpg", "x"),
                       r"pic_1\.jpg: cannot be read as an image"),
}  # fmt: skip


@pytest.mark.parametrize("case", _SPOILT)
def test_what_is_not_as_published_is_named(case: str, tmp_path: Path) -> None:
    name, spoil, message = _SPOILT[case]
    MADE[name](tmp_path)
    spoil(tmp_path)
    with pytest.raises(DataError, match=message):
        _load(name, tmp_path, size=None)


def test_celeba_needs_an_attribute(tmp_path: Path) -> None:
    MADE["celeba"](tmp_path)
    for given in (None, "Tall", 1):
        with pytest.raises(
            PlanError, match=r"data\.label_column: .*given; allowed: an attribute, of Bald, Smiling"
        ):
            _load("celeba", tmp_path, label_column=given)


@pytest.mark.long
def test_a_dry_run_reads_headers_without_torch(tmp_path: Path) -> None:
    for make in MADE.values():
        make(tmp_path)
    code = (
        "import sys; from pathlib import Path; from fedassay.data.loading import DataRequest; "
        "from fedassay.plan.own_images import outline; root = Path(sys.argv[1]); "
        "found = [outline(DataRequest(name, root, None, None, 0, root, 8, label_column='Smiling' if name == "
        "'celeba' else None)) for name in sys.argv[2:]]; assert all(found); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), *MADE], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
