"""torchvision's data sets, on files of the published formats made here (and the real ones if there)."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.data import DataRequest, LoadedData, load
from fedassay.data.download import SHA256
from fedassay.data.torchvision_sets import parse_idx
from fedassay.support.errors import DataError
from fedassay.support.torchvision import import_torchvision

pytestmark = pytest.mark.usefixtures("online")

_RNG = np.random.default_rng(0)
_LABELS = np.arange(20, dtype=np.uint8) % 10


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _load(name: str, root: Path) -> LoadedData:
    return load(DataRequest(name, root, None, None, 0, root))


def _idx(array: NDArray[np.uint8]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, NDArray[np.uint8]]:
    """Four small archives under `published`, listed by torchvision's class in place of the real ones."""
    arrays = {
        "train-images-idx3-ubyte.gz": _RNG.integers(0, 256, size=(20, 28, 28), dtype=np.uint8),
        "train-labels-idx1-ubyte.gz": _LABELS,
        "t10k-images-idx3-ubyte.gz": _RNG.integers(0, 256, size=(10, 28, 28), dtype=np.uint8),
        "t10k-labels-idx1-ubyte.gz": _LABELS[:10],
    }
    published = tmp_path / "published"
    published.mkdir()
    for name, array in arrays.items():
        (published / name).write_bytes(gzip.compress(_idx(array), mtime=0))
    listed = import_torchvision().datasets.FashionMNIST
    monkeypatch.setattr(listed, "resources", [(name, _md5((published / name).read_bytes())) for name in arrays])
    monkeypatch.setattr(listed, "mirrors", [f"file://{published}/"])
    for name in arrays:
        content = (published / name).read_bytes()
        monkeypatch.setitem(SHA256, _md5(content), hashlib.sha256(content).hexdigest())
    return arrays


def _place(tmp_path: Path, names: list[str]) -> Path:
    raw = tmp_path / "root" / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for name in names:
        (raw / name).write_bytes((tmp_path / "published" / name).read_bytes())
    return raw


def _files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _check_mnist(data: LoadedData, arrays: dict[str, NDArray[np.uint8]]) -> None:
    assert data.test is not None
    train_x, train_y, test_x, test_y = arrays.values()
    assert np.array_equal(data.train.images[..., 0], train_x)
    assert np.array_equal(data.train.labels, train_y)
    assert np.array_equal(data.test.images[..., 0], test_x)
    assert np.array_equal(data.test.labels, test_y)
    assert data.train.class_names[0] == "T-shirt/top"


def test_archives_are_read_where_they_lie(tmp_path: Path, mnist: dict[str, NDArray[np.uint8]]) -> None:
    _place(tmp_path, list(mnist))
    before = _files(tmp_path / "root")
    _check_mnist(_load("fashion_mnist", tmp_path / "root"), mnist)
    assert _files(tmp_path / "root") == before  # nothing unpacked, nothing downloaded


def test_unpacked_files_are_read_too(tmp_path: Path, mnist: dict[str, NDArray[np.uint8]]) -> None:
    raw = _place(tmp_path, [])
    for name, array in mnist.items():
        (raw / name.removesuffix(".gz")).write_bytes(_idx(array))
    before = _files(tmp_path / "root")
    _check_mnist(_load("fashion_mnist", tmp_path / "root"), mnist)
    assert _files(tmp_path / "root") == before


def test_only_what_is_absent_is_downloaded_and_said(
    tmp_path: Path, mnist: dict[str, NDArray[np.uint8]], caplog: pytest.LogCaptureFixture
) -> None:
    raw = _place(tmp_path, list(mnist)[:3])
    with caplog.at_level("INFO"):
        _check_mnist(_load("fashion_mnist", tmp_path / "root"), mnist)
    assert [record.getMessage().split()[0] for record in caplog.records] == ["downloading"]
    assert "t10k-labels" in caplog.text
    assert sorted(path.name for path in raw.iterdir()) == sorted(mnist)


def test_a_failed_download_is_one_error_and_leaves_nothing(
    tmp_path: Path, mnist: dict[str, NDArray[np.uint8]]
) -> None:
    (tmp_path / "published" / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"FashionMNIST/raw/train-images-idx3-ubyte\.gz: .*download failed.*place"):
        _load("fashion_mnist", tmp_path / "root")
    assert _files(tmp_path / "root") == {}


def test_a_download_with_another_hash_is_not_kept(tmp_path: Path, mnist: dict[str, NDArray[np.uint8]]) -> None:
    path = tmp_path / "published" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="its SHA-256 is not"):
        _load("fashion_mnist", tmp_path / "root")
    assert _files(tmp_path / "root") == {}


def test_a_damaged_archive_is_named_and_left(tmp_path: Path, mnist: dict[str, NDArray[np.uint8]]) -> None:
    raw = _place(tmp_path, list(mnist))
    (raw / "t10k-images-idx3-ubyte.gz").write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz: is not the published file"):
        _load("fashion_mnist", tmp_path / "root")
    assert (raw / "t10k-images-idx3-ubyte.gz").read_bytes() == b"damaged"


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0\x08", b"\0\0\x09\x01\0\0\0\1x", b"\0\0\x08\x01\0\0\0\2x", b"\0\0\x08\0", b"\0\0\x08\x02\0\0"],
)
def test_idx_files_that_are_none(data: bytes) -> None:
    with pytest.raises(DataError, match="f: "):
        parse_idx(data, "f")


class _Python2Array:
    """Writes an array the way Python 2 and old NumPy did, which is what CIFAR's files hold."""

    def __init__(self, array: NDArray[np.uint8]) -> None:
        self.array = array

    def pickled(self) -> bytes:
        array = self.array
        shape = b"(" + b"".join(b"J" + struct.pack("<i", side) for side in array.shape) + b"t"
        dtype = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        data = b"T" + struct.pack("<i", array.nbytes) + array.tobytes()
        empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
        return empty + b"(K\x01" + shape + dtype + b"\x89" + data + b"tb"


def _batch(array: NDArray[np.uint8], key: str, labels: list[int]) -> bytes:
    name = key.encode()
    entries = b"U\x04data" + _Python2Array(array).pickled()
    entries += b"U" + bytes([len(name)]) + name + b"(" + b"".join(b"K" + bytes([n]) for n in labels) + b"l"
    return b"\x80\x02}(" + entries + b"u."


def _tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def _list_cifar(root: Path, monkeypatch: pytest.MonkeyPatch, content: dict[str, bytes]) -> None:
    """Make torchvision's CIFAR10 list the files of `content` (batches.meta, data_batch_1, ...) as its own."""
    listed = import_torchvision().datasets.CIFAR10
    root.mkdir(exist_ok=True)
    _tar(root / listed.filename, {f"{listed.base_folder}/{name}": data for name, data in content.items()})
    sums = {name: _md5(data) for name, data in content.items()}
    monkeypatch.setattr(listed, "tgz_md5", _md5((root / listed.filename).read_bytes()))
    monkeypatch.setattr(listed, "train_list", [[n, s] for n, s in sums.items() if n.startswith("data")])
    monkeypatch.setattr(listed, "test_list", [["test_batch", sums["test_batch"]]])
    monkeypatch.setattr(listed, "meta", {**listed.meta, "md5": sums["batches.meta"]})


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    rows = _RNG.integers(0, 256, size=(30, 3072), dtype=np.uint8)
    names = ["airplane", "automobile"]
    meta = b"\x80\x02}U\x0blabel_names(" + b"".join(b"U" + bytes([len(n)]) + n.encode() for n in names) + b"ls."
    content = {
        f"data_batch_{part}": _batch(rows[part * 4 : part * 4 + 4], "labels", [0, 1, 1, 0]) for part in range(1, 6)
    }
    content |= {"test_batch": _batch(rows[24:26], "labels", [1, 0]), "batches.meta": meta}
    _list_cifar(tmp_path / "root", monkeypatch, content)
    return {"rows": rows, "names": tuple(names), "content": content}


def _check_cifar(data: LoadedData, cifar: dict[str, Any]) -> None:
    rows = cifar["rows"]
    assert data.test is not None
    assert data.train.class_names == cifar["names"]
    assert data.train.labels.tolist() == [0, 1, 1, 0] * 5
    assert data.test.labels.tolist() == [1, 0]
    # Row 6, red plane, second line, third column.
    assert data.train.images[2, 1, 2, 0] == rows[6, 32 + 2]
    assert data.train.images[2, 1, 2, 2] == rows[6, 2048 + 32 + 2]
    expected = rows[4:24].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    assert np.array_equal(data.train.images, expected)


def test_cifar_is_read_from_its_archive(tmp_path: Path, cifar: dict[str, Any]) -> None:
    before = _files(tmp_path / "root")
    _check_cifar(_load("cifar10", tmp_path / "root"), cifar)
    assert _files(tmp_path / "root") == before


def test_cifar_is_read_from_unpacked_batches(tmp_path: Path, cifar: dict[str, Any]) -> None:
    root = tmp_path / "root"
    (root / "cifar-10-python.tar.gz").unlink()
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    for name, data in cifar["content"].items():
        (folder / name).write_bytes(data)
    _check_cifar(_load("cifar10", root), cifar)
    (folder / "data_batch_3").write_bytes(cifar["content"]["data_batch_2"])
    with pytest.raises(DataError, match="cifar-10-batches-py/data_batch_3: is not there as published"):
        _load("cifar10", root)


def test_the_python2_arrays_of_these_tests_are_the_real_thing() -> None:
    array = _RNG.integers(0, 256, size=(2, 5), dtype=np.uint8)
    loaded = pickle.loads(b"\x80\x02" + _Python2Array(array).pickled() + b".", encoding="latin1")
    assert np.array_equal(loaded, array)


class _Trap:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (pytest.fail, ("unpickled",))


def test_code_in_a_batch_is_never_run(
    tmp_path: Path, cifar: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the MD5 is right."""
    content = {**cifar["content"], "data_batch_4": pickle.dumps(_Trap(), protocol=2)}
    _list_cifar(tmp_path / "root", monkeypatch, content)
    with pytest.raises(DataError, match=r"data_batch_4: is no CIFAR batch \(.* is not allowed\)"):
        _load("cifar10", tmp_path / "root")


def test_svhn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.io import savemat

    images = _RNG.integers(0, 256, size=(32, 32, 3, 6), dtype=np.uint8)
    digits = np.array([[10], [1], [2], [9], [10], [5]], dtype=np.uint8)
    listed = {}
    for part in ("train", "test"):
        savemat(tmp_path / f"{part}_32x32.mat", {"X": images, "y": digits})
        listed[part] = [
            "http://invalid.invalid",
            f"{part}_32x32.mat",
            _md5((tmp_path / f"{part}_32x32.mat").read_bytes()),
        ]
    monkeypatch.setattr(import_torchvision().datasets.SVHN, "split_list", listed)
    data = _load("svhn", tmp_path)
    assert data.train.labels.tolist() == [0, 1, 2, 9, 0, 5]
    assert np.array_equal(data.train.images[3], images[..., 3])
    assert data.test is not None
    assert len(data.test) == 6


def test_the_real_fashion_mnist(shared_data: Path) -> None:
    before = sorted(path.name for path in (shared_data / "FashionMNIST" / "raw").iterdir())
    data = _load("fashion_mnist", shared_data)
    assert data.test is not None
    assert (len(data.train), len(data.test)) == (60000, 10000)
    assert np.bincount(data.train.labels).tolist() == [6000] * 10
    assert sorted(path.name for path in (shared_data / "FashionMNIST" / "raw").iterdir()) == before
