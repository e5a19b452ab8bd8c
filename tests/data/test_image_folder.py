from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fedassay.data import DataRequest, LoadedData, load
from fedassay.support.errors import DataError, PlanError

_RNG = np.random.default_rng(0)


def _picture(side: int = 8, mode: str = "RGB") -> Image.Image:
    channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    return Image.fromarray(_RNG.integers(0, 256, size=(side, side, *channels), dtype=np.uint8))


def _write(root: Path, *names: str, side: int = 8, mode: str = "RGB") -> dict[str, NDArray[np.uint8]]:
    written = {}
    for name in names:
        picture = _picture(side, mode)
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        picture.save(root / name)
        written[name] = np.asarray(picture)
    return written


def _load(root: Path, **given: Any) -> LoadedData:
    fields = {"root": None, "path": root, "limit": None, "seed": 0, "base": root.parent, **given}
    return load(DataRequest("image_folder", **fields))


def test_class_folders_in_the_order_of_names(tmp_path: Path) -> None:
    written = _write(tmp_path, "dog/2.png", "cat/b.png", "dog/10.png", "cat/a.PNG")
    _write(tmp_path, ".hidden/x.png", "cat/.hidden.png")
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "readme.txt").write_text("not a class")
    data = _load(tmp_path)
    assert data.train.class_names == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 0, 1, 1]
    for image, name in zip(data.train.images, ["cat/a.PNG", "cat/b.png", "dog/10.png", "dog/2.png"], strict=True):
        assert np.array_equal(image, written[name])
    assert (data.test, data.train.domains) == (None, None)


def test_domains(tmp_path: Path) -> None:
    _write(tmp_path, "sketch/cat/1.png", "photo/dog/1.png", "photo/cat/1.png", "photo/cat/2.png")
    train = _load(tmp_path).train
    assert train.class_names == ("cat", "dog")
    assert train.domain_names == ("photo", "sketch")
    assert train.domains is not None
    assert train.domains.tolist() == [0, 0, 0, 1]
    assert train.labels.tolist() == [0, 0, 1, 0]


def test_train_and_test_folders_are_an_official_test_set(tmp_path: Path) -> None:
    _write(tmp_path, "train/cat/1.png", "train/dog/1.png", "test/dog/1.png")
    data = _load(tmp_path)
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (2, 1)
    assert data.test.labels.tolist() == [1]
    assert data.train.domains is None


def test_grey_stays_grey_and_one_colour_image_makes_all_colour(tmp_path: Path) -> None:
    grey = _write(tmp_path, "a/1.png", "b/1.png", mode="L")
    data = _load(tmp_path)
    assert data.train.image_shape == (8, 8, 1)
    assert np.array_equal(data.train.images[0, :, :, 0], grey["a/1.png"])
    colour = _write(tmp_path, "b/2.png", mode="RGBA")
    data = _load(tmp_path)
    assert data.train.image_shape == (8, 8, 3)
    assert np.array_equal(data.train.images[0], np.repeat(grey["a/1.png"][..., None], 3, axis=2))
    assert np.array_equal(data.train.images[2], colour["b/2.png"][..., :3])


def test_orientation_is_followed(tmp_path: Path) -> None:
    _write(tmp_path, "b/1.png")
    picture = Image.fromarray(_RNG.integers(0, 256, size=(8, 12, 3), dtype=np.uint8))
    exif = picture.getexif()
    exif[0x0112] = 6  # shown turned by a quarter
    (tmp_path / "a").mkdir()
    picture.save(tmp_path / "a" / "1.png", exif=exif)
    upright = np.rot90(np.asarray(picture), k=-1)
    with pytest.raises(DataError, match=r"a/1\.png is 8x12, .*b/1\.png is 8x8"):
        _load(tmp_path)
    Image.fromarray(np.ascontiguousarray(upright)).save(tmp_path / "b" / "1.png")
    assert np.array_equal(_load(tmp_path).train.images[0], upright)


def test_mixed_sizes_name_two_files_or_are_resized(tmp_path: Path) -> None:
    _write(tmp_path, "a/1.png", "a/2.png")
    _write(tmp_path, "b/1.png", side=16)
    with pytest.raises(DataError, match=r"different sizes: .*/a/1\.png is 8x8, .*/b/1\.png is 16x16; allowed"):
        _load(tmp_path)
    assert _load(tmp_path, size=12).train.images.shape == (3, 12, 12, 3)


def test_a_limit_is_drawn_before_reading(tmp_path: Path) -> None:
    _write(tmp_path, *(f"{label}/{number}.png" for label in "ab" for number in range(10)))
    one, same = (_load(tmp_path, limit=6, seed=3).train for _ in range(2))
    assert np.bincount(one.labels).tolist() == [3, 3]
    assert one.digest() == same.digest()


def _spoil(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])


@pytest.mark.parametrize("keep", [0, 20, 120])
def test_a_broken_image_is_named(tmp_path: Path, keep: int) -> None:
    _write(tmp_path, "a/1.png", "b/1.png", "b/2.png")
    _spoil(tmp_path / "b" / "1.png", keep)
    with pytest.raises(DataError, match=r"/b/1\.png: cannot be read as an image"):
        _load(tmp_path)


def test_text_with_an_images_ending_is_named(tmp_path: Path) -> None:
    _write(tmp_path, "a/1.png", "b/1.png")
    (tmp_path / "b" / "2.jpg").write_text("hello")
    with pytest.raises(DataError, match=r"/b/2\.jpg: cannot be read as an image \(no image format known\)"):
        _load(tmp_path)


def test_a_header_that_does_not_end_is_refused_before_it_is_read_through(tmp_path: Path) -> None:
    _write(tmp_path, "a/1.png", "b/1.png")
    pixels = np.full((8, 8), 7, np.uint8).tobytes()
    (tmp_path / "a" / "1.png").write_bytes(b"P5 #" + b"x" * 50_000 + b"\n8 8 255 " + pixels)
    assert _load(tmp_path).train.images[0].max() == 7
    (tmp_path / "a" / "1.png").write_bytes(b"P5 #" + b"x" * 70_000 + b"\n8 8 255 " + pixels)
    with pytest.raises(DataError, match=r"/a/1\.png: cannot be read as an image \(a header of more than 65,536"):
        _load(tmp_path)


def test_one_pixel_images_are_named(tmp_path: Path) -> None:
    _write(tmp_path, "a/1.png", "b/1.png")
    _write(tmp_path, "b/2.png", side=1)
    with pytest.raises(DataError, match=r"/b/2\.png: is 1x1 pixels; allowed: 7x7 or larger"):
        _load(tmp_path)


def test_layouts_that_make_no_data_set(tmp_path: Path) -> None:
    root = tmp_path / "faces"
    root.mkdir()
    with pytest.raises(DataError, match="faces: has no folders in it"):
        _load(root)
    (root / "a").mkdir()
    with pytest.raises(DataError, match="no images in its folders"):
        _load(root)
    _write(root, "a/1.png")
    with pytest.raises(DataError, match="has one class folder, a; allowed: two or more"):
        _load(root)
    _write(root, "b/c/1.png")
    with pytest.raises(DataError, match="a holds images, but b holds folders of images"):
        _load(root)
    with pytest.raises(DataError, match="is a file; allowed: a folder"):
        _load(root / "a" / "1.png")
    with pytest.raises(DataError, match="does not exist"):
        _load(tmp_path / "absent")
    with pytest.raises(PlanError, match=r"data\.path: not given"):
        load(DataRequest("image_folder", None, None, None, 0, tmp_path))
    with pytest.raises(PlanError, match=r"data\.size: 3 given"):
        _load(root, size=3)
