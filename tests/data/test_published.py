"""Published data sets and weights by their own names: fetched on first use; dry runs say what is missing."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
import urllib.error
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray

from fedassay.backbones.cifar_resnet import CifarResNet
from fedassay.backbones.weights import published_url
from fedassay.cli import cli
from fedassay.data import att_faces, medmnist_sets
from fedassay.data.loading import DataRequest, load
from fedassay.support import download as downloads
from fedassay.support.download import download
from fedassay.support.errors import DataError, PlanError
from fedassay.support.paths import data_root
from fedassay.support.progress import Progress, current
from fedassay.support.torchvision import import_torchvision

RNG = np.random.default_rng(0)
XRAYS = "pneumoniamnist.npz"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of data sets of somebody who has set nothing."""
    monkeypatch.delenv("FEDASSAY_DATA", raising=False)
    monkeypatch.delenv("FEDASSAY_OFFLINE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return tmp_path / "home" / "fedassay-data"


@pytest.fixture
def xrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, NDArray[np.uint8]]:
    """PneumoniaMNIST, small, in the layout and under the name that it is published in."""
    arrays = {
        f"{part}_{what}": RNG.integers(0, top, size=(count, *shape), dtype=np.uint8)
        for part, count in (("train", 12), ("val", 4), ("test", 6))
        for what, top, shape in (("images", 256, (28, 28)), ("labels", 2, (1,)))
    }
    for part in ("train", "val", "test"):
        arrays[f"{part}_labels"][:2, 0] = (0, 1)
    server = tmp_path / "server"
    server.mkdir()
    np.savez_compressed(server / XRAYS, **arrays)  # type: ignore[arg-type]
    (server / XRAYS).rename(server / f"{XRAYS}?download=1")
    content = (server / f"{XRAYS}?download=1").read_bytes()
    monkeypatch.setattr(medmnist_sets, "_RECORD", f"file://{server}/")
    monkeypatch.setitem(medmnist_sets._MD5, "pneumoniamnist", hashlib.md5(content).hexdigest())
    return arrays


def _request(name: str, **given: object) -> DataRequest:
    return replace(DataRequest(name, None, None, None, 0, Path()), **given)  # type: ignore[arg-type]


def test_a_public_name_is_fetched_once_into_a_folder_of_ones_own(
    folder: Path, xrays: dict[str, NDArray[np.uint8]], caplog: pytest.LogCaptureFixture
) -> None:
    data = load(_request("pneumoniamnist"))
    assert data.test is not None
    assert (len(data.train), len(data.test), data.train.class_names) == (16, 6, ("normal", "pneumonia"))
    assert np.array_equal(data.train.images[:12, ..., 0], xrays["train_images"])
    assert np.array_equal(data.train.labels[12:], xrays["val_labels"][:, 0])
    assert [path.name for path in folder.iterdir()] == [XRAYS]
    assert "MD5" in caplog.text
    caplog.clear()
    load(_request("pneumoniamnist"))
    assert caplog.messages == []


def test_what_may_not_be_fetched_says_so(
    folder: Path, xrays: dict[str, NDArray[np.uint8]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        DataError, match=r"pneumoniamnist\.npz: not under .*fedassay-data, and data\.download is fal"
    ):
        load(_request("pneumoniamnist", download=False))
    monkeypatch.setenv("FEDASSAY_OFFLINE", "1")
    with pytest.raises(DataError, match="--offline"):
        load(_request("pneumoniamnist"))
    assert not folder.exists()


def test_a_home_that_cannot_be_written_is_named_with_what_to_set(
    folder: Path, xrays: dict[str, NDArray[np.uint8]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an account of a service; whoever runs the tests may be allowed everything, so the call refuses."""

    def refuses(path: Path, **_given: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(downloads, "make_folder", refuses)
    with pytest.raises(DataError, match=r"fedassay-data cannot be written \(Permission denied\); FEDASSAY_DATA"):
        load(_request("pneumoniamnist"))


def test_a_damaged_copy_is_named(folder: Path, xrays: dict[str, NDArray[np.uint8]]) -> None:
    load(_request("pneumoniamnist"))
    (folder / XRAYS).write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"is not the published file.*MD5"):
        load(_request("pneumoniamnist"))


def test_without_a_network_the_error_says_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str, start: int) -> None:
        raise urllib.error.URLError(socket.gaierror(-3, "Temporary failure in name resolution"))

    monkeypatch.setattr(downloads, "_answer", refuse)
    with pytest.raises(
        DataError, match=r"https://x\.example/f: there is no network, or it does not know the addr"
    ):
        download(tmp_path / "f", ["https://x.example/f"], "00")


def test_a_download_moves_the_bar_that_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = RNG.bytes((2 << 20) + 5)
    (tmp_path / "there").write_bytes(content)
    told: list[tuple[int, int]] = []

    class Bars:
        def add_task(self, description: str, total: int | None) -> int:
            assert description == "here"
            return 0

        def update(self, task: int, completed: int, total: int) -> None:
            told.append((completed, total))

        def remove_task(self, task: int) -> None: ...

    monkeypatch.setattr("fedassay.support.progress._current", [Progress(Bars())])
    download(tmp_path / "here", [f"file://{tmp_path}/there"], hashlib.sha256(content).hexdigest())
    assert told == [(1 << 20, len(content)), (2 << 20, len(content)), (len(content), len(content))]
    with current() as shown:
        assert isinstance(shown.bars, Bars)


def _faces() -> NDArray[np.uint8]:
    return RNG.integers(0, 256, size=(400, 112, 92), dtype=np.uint8)


@pytest.mark.parametrize("kind", ["zip", "folder", "npz"])
def test_faces_are_read_as_they_are_published(
    folder: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    faces = _faces()
    monkeypatch.setattr(att_faces, "_SHA256", hashlib.sha256(faces.tobytes()).hexdigest())
    pictures = {
        name: b"P5\n92 112\n255\n" + face.tobytes() for name, face in zip(att_faces._NAMES, faces, strict=True)
    }
    asked = _request("att_faces", label_column="person", groups="person")
    folder.mkdir(parents=True)
    if kind == "zip":
        published = tmp_path / "att_faces.zip"
        with zipfile.ZipFile(published, "w") as archive:
            archive.writestr("README", "faces")
            for name, content in pictures.items():
                archive.writestr(f"att_faces/{name}", content)
        md5 = hashlib.md5(published.read_bytes()).hexdigest()
        file = replace(att_faces._FILE, urls=(f"file://{published}",), md5=md5)
        monkeypatch.setattr(att_faces, "_FILE", file)
    elif kind == "folder":
        for name, content in pictures.items():
            (folder / "att_faces" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "att_faces" / name).write_bytes(content)
    else:
        np.savez(tmp_path / "mine.npz", x=faces)
        asked = replace(asked, path=tmp_path / "mine.npz")
    train = load(asked).train
    assert np.array_equal(train.images[..., 0], faces)
    assert train.classes == 40
    assert np.array_equal(train.labels, np.repeat(np.arange(40), 10))
    with pytest.raises(PlanError, match="age given; data set att_faces knows glasses, person"):
        load(replace(asked, label_column="age"))


@pytest.mark.parametrize("content", [b"no archive", b"P5\n9 9\n255\n"])
def test_another_archive_is_no_faces(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "faces.zip"
    path.write_bytes(content)
    if content.startswith(b"P5"):
        with zipfile.ZipFile(path, "w") as archive:
            for name in att_faces._NAMES:
                archive.writestr(name, content)
    with pytest.raises(DataError, match=r"faces\.zip: cannot be read as AT&T's archive"):
        load(_request("att_faces", path=path))


def _plan(folder: Path, data: dict[str, object], backbone: dict[str, object]) -> Path:
    path = folder / "plan.json"
    content = {"name": "p", "data": data, "backbone": backbone, "methods": ["fedcgs"], "clients": {"count": 2}}
    path.write_text(json.dumps(content))
    return path


PUBLIC = [
    ({"name": "cifar10"}, {"name": "pixels"}, "data: cifar10", "cifar-10-python.tar.gz"),
    ({"name": "pneumoniamnist", "size": 16}, {"name": "pixels"}, "data: pneumoniamnist", XRAYS),
    ({"name": "att_faces"}, {"name": "pixels"}, "data: att_faces", "att_faces.zip"),
    (
        {"name": "photographs"},
        {"name": "squeezenet1_1", "weights": "imagenet"},
        "backbone: squeezenet1_1 with weights imagenet",
        "squeezenet1_1-b8a52dc0.pth",
    ),
    (
        {"name": "photographs"},
        {"name": "cifar_resnet20", "weights": "cifar10"},
        "backbone: cifar_resnet20 with weights cifar10",
        "resnet20-12fca82f.th",
    ),
]


@pytest.mark.parametrize(("data", "backbone", "what", "file"), PUBLIC, ids=lambda value: str(value)[:20])
def test_a_dry_run_says_what_the_run_would_fetch_and_where_it_may_not_how_to_get_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    data: dict[str, object],
    backbone: dict[str, object],
    what: str,
    file: str,
) -> None:
    plan = _plan(tmp_path, data, backbone)
    told = CliRunner().invoke(cli, ["run", str(plan), "--dry-run"], standalone_mode=False)
    assert told.exception is None, told.exception
    key, _, name = what.partition(": ")
    assert f"{key}: the first run fetches {file} of {name} from https" in told.output
    monkeypatch.setenv("FEDASSAY_OFFLINE", "1")
    for command in (["run", str(plan), "--dry-run"], ["run", str(plan), "-o", str(tmp_path / "run")]):
        refused = CliRunner().invoke(cli, command, standalone_mode=False)
        assert isinstance(refused.exception, DataError)
        sentence = str(refused.exception)
        assert sentence.startswith(f"{what} is not in ")
        assert f"place {file} from http" in sentence
        assert len(sentence.split()) <= 30
    assert not (tmp_path / "run").exists()


def test_a_plan_that_forbids_it_says_the_key(tmp_path: Path) -> None:
    plan = _plan(tmp_path, {"name": "cifar10", "download": False}, {"name": "pixels"})
    refused = CliRunner().invoke(cli, ["run", str(plan), "--dry-run"], standalone_mode=False)
    assert "data.download: false forbids to fetch it" in str(refused.exception)


def test_weights_of_cifar_are_fetched_by_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedassay.backbones import base, build, cifar_resnet

    saved = tmp_path / "saved.th"
    torch.save({"state_dict": {f"module.{k}": v for k, v in CifarResNet(3, 10).state_dict().items()}}, saved)
    digits = hashlib.sha256(saved.read_bytes()).hexdigest()[:8]
    published = saved.rename(tmp_path / f"resnet20-{digits}.th")
    weights = replace(cifar_resnet._WEIGHTS_20, urls={"cifar10": f"file://{published}"})
    monkeypatch.setattr(cifar_resnet, "_WEIGHTS_20", weights)
    request = base.BackboneRequest("cifar_resnet20", "cifar10", None, (32, 32, 3), 4, None, 0, "cpu", tmp_path)
    found = build(request)
    assert found.pretrained_on == "CIFAR-10's training images"
    assert (data_root(None, tmp_path).name, published_url("cifar_resnet20", "random")) == ("fedassay-data", None)
    assert (tmp_path / "torch" / "hub" / "checkpoints" / published.name).is_file()


def test_registered_backbones_name_the_files_that_torchvision_publishes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torchvision, which takes seconds to import."""
    models = import_torchvision().models
    monkeypatch.setattr("fedassay.backbones.weights.import_torchvision", pytest.fail)
    url = models.SqueezeNet1_1_Weights.IMAGENET1K_V1.url
    assert {published_url("squeezenet1_1", word) for word in (None, "imagenet", "imagenet_v1")} == {url}
    assert published_url("squeezenet1_1", "trunk.pth") is published_url("small_cnn", "public") is None
