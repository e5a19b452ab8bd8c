"""The user's own archives: what is read, and one clear refusal for everything else."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.data import DataRequest, LoadedData, load
from fedassay.data.npz import outline_of_npz
from fedassay.support.errors import DataError, PlanError

_RNG = np.random.default_rng(0)
_X = _RNG.integers(0, 256, size=(12, 9, 10, 3), dtype=np.uint8)
_Y = np.arange(12) % 3


def _load(path: Path, **given: Any) -> LoadedData:
    fields = {"root": None, "path": path, "limit": None, "seed": 0, "base": path.parent, **given}
    return load(DataRequest("npz", **fields))


def _save(folder: Path, compressed: bool = False, **arrays: Any) -> Path:
    path = folder / "mine.npz"
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    return path


@pytest.mark.parametrize("compressed", [False, True])
def test_colour_images_with_an_official_test_set(tmp_path: Path, compressed: bool) -> None:
    data = _load(_save(tmp_path, compressed, x=_X[:8], y=_Y[:8], x_test=_X[8:], y_test=_Y[8:], other=_Y))
    assert data.test is not None
    assert np.array_equal(data.train.images, _X[:8])
    assert np.array_equal(data.test.images, _X[8:])
    assert np.array_equal(data.train.labels, _Y[:8])
    assert np.array_equal(data.test.labels, _Y[8:])
    assert data.train.class_names == ("0", "1", "2")
    assert data.source == "file mine.npz"


def test_grey_images_get_a_channel(tmp_path: Path) -> None:
    data = _load(_save(tmp_path, x_train=_X[..., 0], y_train=_Y))
    assert data.test is None
    assert data.train.image_shape == (9, 10, 1)


def test_labels_are_numbered_anew_over_both_sets(tmp_path: Path) -> None:
    labels = np.array([7, -1, 7, -1], dtype=np.int8)
    data = _load(_save(tmp_path, x=_X[:4], y=labels, x_test=_X[4:6], y_test=np.array([7, 3], dtype=np.uint64)))
    assert data.train.class_names == ("-1", "3", "7")
    assert data.train.labels.tolist() == [2, 0, 2, 0]
    assert data.test is not None
    assert data.test.labels.tolist() == [2, 1]


def test_fortran_order_is_read_right(tmp_path: Path) -> None:
    assert np.array_equal(_load(_save(tmp_path, x=np.asfortranarray(_X), y=_Y)).train.images, _X)


def test_the_path_is_looked_up_beside_the_plan(tmp_path: Path) -> None:
    _save(tmp_path, x=_X, y=_Y)
    assert len(_load(Path("mine.npz"), base=tmp_path).train) == 12


def _with_nan(array: NDArray[Any]) -> NDArray[np.float64]:
    out = array.astype(np.float64)
    out.flat[0] = np.nan
    return out


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": _X / 255, "y": _Y}, r"mine\.npz: x: holds float64; allowed: uint8"),
        ({"x": _with_nan(_X), "y": _Y}, r"x: holds float64; allowed: uint8"),
        ({"x": _X.astype(np.int64), "y": _Y}, r"x: holds int64; allowed: uint8"),
        ({"x": _X, "y": _with_nan(_Y)}, r"y: holds float64; allowed: whole numbers"),
        ({"x": _X, "y": _Y[:5]}, r"y: has shape \(5,\), but there are 12 images"),
        ({"x": _X, "y": _Y[:, None, None]}, r"y: has shape \(12, 1, 1\), but there are 12 images"),
        ({"x": _X, "y": _X[:, 0, :0, 0]}, r"y: has shape \(12, 0\)"),
        (
            {"x": _X, "y": _X[:, :2, 0, 0]},
            r"y: has 2 labels a record; allowed: one, which data.label_column picks",
        ),
        (
            {"train_images": _X, "train_labels": _Y[:5, None]},
            r"train_labels: has shape \(5, 1\), but there are 12",
        ),
        ({"train_images": _X}, r"has no array train_labels"),
        ({"train_images": _X, "train_labels": _Y, "val_images": _X}, r"only one of val_images and val_labels"),
        ({"train_images": _X, "train_labels": _Y, "x": _X, "y": _Y}, r"both x and train_images"),
        (
            {"x": np.zeros((2, 1025, 8), np.uint8), "y": _Y[:2]},
            r"1025x8 pixels; allowed: up to 1024x1024, to which",
        ),
        ({"x": np.zeros((300, 8, 8), np.uint8), "y": np.arange(300)}, r"300 records are of 300 classes; allowed"),
        (
            {"x": np.zeros((12, 28, 28, 28), np.uint8), "y": _Y},
            r"shape \(12, 28, 28, 28\); allowed: 1 or 3 channels",
        ),
        ({"x": _X, "y": np.array(["a"] * 12)}, r"y: holds <U1"),
        ({"x": _X[0, :, :, 0], "y": _Y}, r"x: has shape \(9, 10\)"),
        ({"x": _X.transpose(0, 3, 1, 2), "y": _Y}, r"1 or 3 channels \(channels come last\)"),
        ({"x": _X[:0], "y": _Y[:0]}, r"mine\.npz: holds no images"),
        ({"x": _X[:, :1, :1], "y": _Y}, r"images of 1x1 pixels; allowed: 7x7 or larger"),
        ({"x": _X, "y": _Y * 0}, r"all records are of one class"),
        ({"x": _X}, r"has no array y"),
        ({"images": _X, "y": _Y}, r"has no array x"),
        ({"x": _X, "y": _Y, "x_test": _X}, r"only one of x_test and y_test"),
        ({"x": _X, "y": _Y, "x_train": _X}, r"both x and x_train"),
        ({"x": _X, "y": _Y, "x_test": _X[:, :8], "y_test": _Y}, r"x_test holds images of \(8, 10, 3\)"),
        ({"x": np.array([{}] * 12), "y": _Y}, r"x: holds pickled Python objects, which are never loaded"),
        ({"x": _X, "y": np.full(12, 2**63, dtype=np.uint64)}, r"below 2\^63"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays, allow_pickle=True)
    with pytest.raises(DataError, match=message):
        _load(path)


class _Trap:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (pytest.fail, ("unpickled",))


def _raw(folder: Path, **members: bytes) -> Path:
    path = folder / "mine.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return path


def _npy(array: NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array)
    return stream.getvalue()


def test_a_pickle_inside_is_never_run(tmp_path: Path) -> None:
    path = _raw(tmp_path, x=pickle.dumps(_Trap()), y=_npy(_Y))
    with pytest.raises(DataError, match="x: is no NumPy array"):
        _load(path)
    whole = tmp_path / "pickle.npz"
    whole.write_bytes(pickle.dumps(_Trap()))
    with pytest.raises(DataError, match=r"no sound \.npz archive"):
        _load(whole)


def test_a_header_that_promises_more_than_there_is(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": (10**12, 9, 9)})
    path = _raw(tmp_path, x=stream.getvalue(), y=_npy(_Y))
    with pytest.raises(DataError, match=r"x: declares \(1000000000000, 9, 9\) uint8"):
        _load(path)


def test_an_archive_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedassay.support.limits.ARRAY_BYTES", 1000)
    path = _save(tmp_path, True, x=np.zeros((12, 9, 10), dtype=np.uint8), y=_Y)
    assert path.stat().st_size < 1000
    with pytest.raises(DataError, match=r"unpacks to .* GiB; allowed"):
        _load(path)


def test_an_archive_that_lies_about_its_size(tmp_path: Path) -> None:
    """The directory says 1 byte, the data is longer: no more is read than was said."""
    path = _raw(tmp_path, x=_npy(_X), y=_npy(_Y))
    data = bytearray(path.read_bytes())
    size = struct.pack("<I", len(_npy(_X)))
    central = data.index(b"PK\x01\x02")
    at = data.index(size, central)
    data[at : at + 4] = struct.pack("<I", 1)
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"mine\.npz"):
        _load(path)


def test_damaged_archives(tmp_path: Path) -> None:
    path = _save(tmp_path, True, x=_X, y=_Y)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:100] + bytes([whole[100] ^ 255]) + whole[101:], b"PK"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"mine\.npz"):
            _load(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"is empty \(0 bytes\)"):
        _load(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.path: absent\.npz does not exist; looked beside the plan"):
        _load(Path("absent.npz"), base=tmp_path)
    with pytest.raises(DataError, match="is a folder"):
        _load(tmp_path)
    with pytest.raises(PlanError, match=r"data\.path: not given"):
        load(DataRequest("npz", None, None, None, 0, tmp_path))


def test_crc_errors_do_not_pass(tmp_path: Path) -> None:
    path = _save(tmp_path, x=_X, y=_Y)
    data = bytearray(path.read_bytes())
    at = data.index(_X.tobytes())
    data[at] ^= 1
    assert zlib.crc32(bytes(data)) != zlib.crc32(path.read_bytes())
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"no sound \.npz archive"):
        _load(path)


def test_real_files(shared_data: Path) -> None:
    cifar = _load(shared_data / "cifar10_subset.npz")
    assert cifar.test is not None
    assert (len(cifar.train), len(cifar.test), cifar.train.classes) == (12000, 2500, 10)
    faces = _load(shared_data / "att_faces.npz")
    assert faces.test is None
    assert faces.train.images.shape == (400, 112, 92, 1)
    assert np.bincount(faces.train.labels).tolist() == [10] * 40


def test_size_resizes_every_set(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=_X, y=np.arange(12) % 2, x_test=_X[:4], y_test=np.arange(4) % 2)
    data = load(DataRequest("npz", None, path, None, 0, tmp_path, size=12))
    assert data.test is not None
    assert data.train.image_shape == data.test.image_shape == (12, 12, 3)
    with pytest.raises(PlanError, match=r"data\.size: 3 given"):
        load(DataRequest("npz", None, path, None, 0, tmp_path, size=3))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _medmnist(folder: Path, colour: bool, **changes: Any) -> Path:
    """A file of MedMNIST's layout: labels (n, 1), three sets."""
    pixels = _X if colour else _X[..., 0]
    arrays = {
        "train_images": pixels[:6],
        "val_images": pixels[6:8],
        "test_images": pixels[8:],
        "train_labels": _Y[:6, None].astype(np.uint8),
        "val_labels": _Y[6:8, None].astype(np.uint8),
        "test_labels": _Y[8:, None].astype(np.uint8),
    }
    return _save(folder, True, **{**arrays, **changes})


@pytest.mark.parametrize("colour", [False, True])
def test_medmnist_is_read_as_it_is(tmp_path: Path, colour: bool) -> None:
    data = _load(_medmnist(tmp_path, colour))
    assert data.test is not None
    assert data.train.image_shape == (9, 10, 3 if colour else 1)
    pixels = _X if colour else _X[..., :1]
    assert np.array_equal(data.train.images, pixels[:8])
    assert np.array_equal(data.test.images, pixels[8:])
    assert data.train.labels.tolist() == _Y[:8].tolist()
    assert data.test.labels.tolist() == _Y[8:].tolist()


def test_one_of_several_labels_is_picked(tmp_path: Path) -> None:
    several = np.stack([_Y == 0, _Y == 1, _Y * 0 + 1], axis=1).astype(np.uint8)
    labels = {"train_labels": several[:6], "val_labels": several[6:8], "test_labels": several[8:]}
    path = _medmnist(tmp_path, False, **labels)
    assert _load(path, label_column=1).train.labels.tolist() == (_Y[:8] == 1).astype(int).tolist()
    for wrong in (3, -1, "pneumonia"):
        with pytest.raises(
            DataError, match=f"data.label_column: {wrong} given; .* has 3 columns, allowed: 0 to 2"
        ):
            _load(path, label_column=wrong)
    with pytest.raises(DataError, match="all records are of one class"):
        _load(path, label_column=2)
    with pytest.raises(DataError, match=r"label_column: 0 given, but mine\.npz: y has one label a record"):
        _load(_save(tmp_path, x=_X, y=_Y), label_column=0)


def test_a_1_for_the_class_among_0_is_the_class(tmp_path: Path) -> None:
    path = _save(tmp_path, x=_X, y=np.eye(3, dtype=np.int64)[_Y])
    assert _load(path).train.labels.tolist() == _Y.tolist()
    assert _load(path, label_column=1).train.labels.tolist() == (_Y == 1).astype(int).tolist()


def test_an_outline_says_what_loading_would_find(tmp_path: Path) -> None:
    for path in (
        _medmnist(tmp_path, True),
        _save(_made(tmp_path / "other"), x=_X, y=_Y, x_test=_X, y_test=_Y, domain=_Y[::-1]),
    ):
        data, seen = _load(path), outline_of_npz(DataRequest("npz", None, path, None, 0, tmp_path))
        assert data.test is not None
        assert seen.data.test is not None
        assert seen.image == data.train.image_shape
        assert np.array_equal(seen.data.train.labels, data.train.labels)
        assert np.array_equal(seen.data.test.labels, data.test.labels)
        assert seen.data.train.domain_names == data.train.domain_names
        assert seen.data.train.images.nbytes == 0


def test_images_of_the_levels_0_and_1_are_refused(tmp_path: Path) -> None:
    path = _save(tmp_path, x=np.eye(8, dtype=np.uint8)[None].repeat(4, 0), y=[0, 1, 0, 1])
    with pytest.raises(DataError, match="x: holds the grey levels 0 and 1 alone; allowed: levels from 0 to 255"):
        _load(path)


def test_arrays_that_are_not_read_are_named(tmp_path: Path) -> None:
    beside = {"x_val": _X[:2], "y_val": _Y[:2], "site": _Y}
    data = _load(_save(tmp_path, x_train=_X, y_train=_Y, domain=_Y, **beside))
    assert [each.line for each in data.account.left_out] == ["3 arrays: x_val, y_val, site"]
    assert not _load(_save(tmp_path, x=_X, y=_Y)).account


def test_minus_one_beside_classes_is_said(tmp_path: Path) -> None:
    account = _load(_save(tmp_path, x=_X, y=_Y - 1)).account
    assert account.notes == ("-1 is read as a class, of 4 records; where it means no label, take them out",)
    assert not _load(_save(tmp_path, x=_X, y=2 * (_Y % 2) - 1)).account.notes


def test_classes_of_the_test_set_alone_are_said(tmp_path: Path) -> None:
    data = _load(_save(tmp_path, x=_X[:8], y=_Y[:8] % 2, x_test=_X[8:], y_test=_Y[8:]))
    assert data.account.notes == ("classes of the test set alone, of which nothing can be learned: 2",)
