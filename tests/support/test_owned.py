"""The cache reads and adds to nothing that somebody else could have written."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from fedassay.execution.run_output import output_folder
from fedassay.support import cache
from fedassay.support.errors import PlanError
from fedassay.support.hashing import digest_arrays

TRUE = np.arange(6.0)
PLACES = ["cache", "home", "shelf", "entry"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDASSAY_PRIVATE_CACHE", raising=False)
    monkeypatch.delenv("FEDASSAY_SHARED", raising=False)
    return tmp_path / "cache"


def features() -> NDArray[np.float64]:
    return cache.cached_arrays({"a": 1}, lambda: {"x": TRUE})["x"]


def forged(folder: Path) -> dict[str, Path]:
    """An entry whose numbers are all zero and whose digest is right, and the folders that it lies in."""
    features()
    (entry,) = folder.rglob("*.safetensors")
    with safe_open(entry, framework="np") as held:
        stated = held.metadata()
    zeros = {"x": np.zeros_like(TRUE)}
    save_file(zeros, entry, metadata={**stated, "sha256": digest_arrays(zeros)})
    entry.chmod(0o600)
    assert not features().any(), "a forgery that its owner makes is read, so that what follows shows something"
    return dict(zip(PLACES, (folder, entry.parents[1], entry.parent, entry), strict=True))


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Make a path somebody else's; return whose it is."""
    if os.geteuid() == 0:
        os.chown(path, 4321, -1)
        return 4321
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    return own


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o1777, 0o702])
@pytest.mark.parametrize("place", PLACES)
def test_what_others_can_write_is_not_read(
    folder: Path, place: str, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = forged(folder)[place]
    path.chmod(mode)
    assert np.array_equal(features(), TRUE)
    (said,) = {message for message in caplog.messages if f"{path} has mode {mode:04o}, so others" in message}
    assert f"chmod go-w {path}" in said
    assert len(said.replace(str(path), "PATH").split()) <= 30


@pytest.mark.parametrize("place", PLACES)
def test_what_others_own_is_not_read(
    folder: Path, place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = forged(folder)[place]
    whose = give_away(path, monkeypatch)
    assert np.array_equal(features(), TRUE)
    assert f"belongs to user {whose}, not to you" in caplog.text


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o711])
def test_what_others_can_only_read_is_read(folder: Path, mode: int) -> None:
    for path in list(forged(folder).values())[:3]:
        path.chmod(mode)
    assert not features().any()


def test_a_folder_that_others_can_write_gets_no_entries(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    features()
    assert not list(folder.iterdir())
    assert "has mode 0777" in cache.info().refused
    with output_folder(tmp_path / "run", redact=False):
        built: list[int] = []
        for _ in range(2):
            cache.cached_arrays({"a": 1}, lambda: {"x": np.array(built.append(1) or 0)})  # type: ignore[func-returns-value]
        assert built == [1], "the cells of a run share what they computed all the same"
    assert not list(folder.iterdir())


def test_a_link_to_a_folder_of_ones_own_is_followed_and_one_of_others_is_not(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    folder.symlink_to(elsewhere)
    forged(elsewhere)
    assert not features().any()
    if os.geteuid() == 0:
        os.chown(folder, 4321, -1, follow_symlinks=False)
        assert np.array_equal(features(), TRUE)


def test_a_shared_run_leaves_a_cache_that_is_still_its_owners_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others may read a run and files of a group are writable, the cache must not shut itself out."""
    monkeypatch.setenv("FEDASSAY_SHARED", "1")
    before = os.umask(0o002)
    try:
        features()
        cache.drop()
        cache.hold()
        features()
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*"))} == {0}
    assert not cache.info().refused
    assert np.array_equal(cache.cached_arrays({"a": 1}, dict)["x"], TRUE)


def test_without_a_home_folder_nothing_is_kept_and_the_numbers_are_right(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("FEDASSAY_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", none)
    assert np.array_equal(features(), TRUE)
    with pytest.raises(PlanError, match="no home folder"):
        cache.info()
