from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.support import cache
from fedassay.support.errors import PlanError
from fedassay.support.hashing import digest_arrays, digest_records


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDASSAY_CACHE_LIMIT", raising=False)
    return tmp_path / "cache"


class Counter:
    def __init__(self, arrays: dict[str, NDArray[np.generic]]) -> None:
        self.arrays, self.calls = arrays, 0

    def __call__(self) -> dict[str, NDArray[np.generic]]:
        self.calls += 1
        return self.arrays


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*/*.safetensors"))


def test_built_once_and_read_back_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, NDArray[np.generic]] = {
        "f": rng.normal(size=(3, 4)).astype(np.float32),
        "transposed": np.arange(6, dtype=np.int64).reshape(2, 3).T,
        "u": np.array([], dtype=np.uint8),
        "scalar": np.array(1.5),
        "nan": np.array([np.nan, -0.0]),
    }
    build = Counter(arrays)
    first = cache.cached_arrays({"a": 1}, build)
    second = cache.cached_arrays({"a": 1}, build)
    assert build.calls == 1
    for name, array in arrays.items():
        for got in (first[name], second[name]):
            assert got.dtype == array.dtype
            assert got.shape == array.shape
            assert got.tobytes() == array.tobytes()


def test_every_part_of_the_key_counts() -> None:
    keys: list[cache.Key] = [{"a": 1}, {"a": 2}, {"a": "1"}, {"a": 1.0}, {"b": 1}, {"a": 1, "b": None}]
    for number, key in enumerate(keys):
        cache.cached_arrays(key, Counter({"x": np.array([number])}))
    assert [int(cache.cached_arrays(key, Counter({}))["x"][0]) for key in keys] == list(range(len(keys)))
    assert cache.cached_arrays({"b": None, "a": 1}, Counter({}))["x"][0] == 5  # order does not count


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1], b"x"])
def test_keys_that_are_not_json_scalars_are_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        cache.cached_arrays({"a": value}, Counter({}))  # type: ignore[dict-item]


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _type_that_numpy_has_not(path: Path) -> None:
    head = b'{"x":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"\0\0")


@pytest.mark.parametrize("damage", [_truncate, _flip, _empty, _type_that_numpy_has_not])
def test_damaged_entries_are_found_and_built_again(folder: Path, damage: object) -> None:
    build = Counter({"x": np.arange(10.0)})
    cache.cached_arrays({"a": 1}, build)
    damage(_entries(folder)[0])  # type: ignore[operator]
    assert np.array_equal(cache.cached_arrays({"a": 1}, build)["x"], np.arange(10.0))
    assert build.calls == 2
    cache.cached_arrays({"a": 1}, build)
    assert build.calls == 2  # and mended on disk


def test_an_entry_under_another_entrys_name_is_not_taken(folder: Path) -> None:
    cache.cached_arrays({"a": 1}, Counter({"x": np.array([1])}))
    one = _entries(folder)[0]
    cache.cached_arrays({"a": 2}, Counter({"x": np.array([2])}))
    two = next(path for path in _entries(folder) if path != one)
    two.write_bytes(one.read_bytes())
    build = Counter({"x": np.array([2])})
    assert cache.cached_arrays({"a": 2}, build)["x"][0] == 2
    assert build.calls == 1


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_entry_is_neither_read_nor_replaced(
    folder: Path, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.cached_arrays({"a": 1}, Counter({"x": np.array([1])}))
    (path,) = _entries(folder)
    path.rename(tmp_path / "elsewhere")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.mkdir()
    build = Counter({"x": np.array([2])})
    for _ in range(2):
        assert cache.cached_arrays({"a": 1}, build)["x"][0] == 2
    assert build.calls == 2
    assert "nothing kept in the cache" in caplog.text
    assert not path.is_file() or path.is_symlink()
    assert cache.clear().entries == (kind != "folder")


def test_a_failing_build_leaves_nothing(folder: Path) -> None:
    def build() -> dict[str, NDArray[np.generic]]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.cached_arrays({"a": 1}, build)
    assert _entries(folder) == []


def test_a_cache_that_cannot_be_written_costs_no_result(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.write_text("a file where the folder should be")
    assert cache.cached_arrays({"a": 1}, Counter({"x": np.array([1])}))["x"][0] == 1
    assert "nothing kept in the cache" in caplog.text
    assert cache.info().entries == 0


def test_the_longest_unused_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = np.zeros(2**18, dtype=np.uint8)  # a quarter of a MiB
    monkeypatch.setenv("FEDASSAY_CACHE_LIMIT", str(1 / 1024))  # room for three and their headers
    for number in range(3):
        cache.cached_arrays({"n": number}, Counter({"x": block}))
        for path in _entries(folder):
            status = path.stat()
            os.utime(path, (status.st_atime, status.st_mtime - 100))
    cache.cached_arrays({"n": 0}, Counter({}))  # used again: now 1 is the oldest
    cache.cached_arrays({"n": 3}, Counter({"x": block}))
    kept = []
    for number in range(4):
        build = Counter({"x": block})
        monkeypatch.setattr(cache, "_write", lambda *_: None)
        cache.cached_arrays({"n": number}, build)
        kept.append(build.calls == 0)
    assert kept == [True, False, True, True]
    assert cache.info().bytes <= cache.info().limit


def test_a_result_larger_than_the_cache_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.cached_arrays({"small": 1}, Counter({"x": np.zeros(10)}))
    monkeypatch.setenv("FEDASSAY_CACHE_LIMIT", str(1 / 1024))
    cache.cached_arrays({"large": 1}, Counter({"x": np.zeros(2**18)}))
    assert len(_entries(folder)) == 1


@pytest.mark.parametrize("limit", ["much", "-1", "nan", "inf"])
def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setenv("FEDASSAY_CACHE_LIMIT", limit)
    with pytest.raises(PlanError, match="FEDASSAY_CACHE_LIMIT"):
        cache.info()


def test_info_counts_and_clear_removes_only_what_the_cache_wrote(folder: Path) -> None:
    for number in range(3):
        cache.cached_arrays({"n": number}, Counter({"x": np.zeros(100)}))
    shelf = _entries(folder)[0].parent
    (folder / "mine.txt").write_text("mine")
    (shelf / "mine.safetensors").write_text("mine")
    (shelf / f".{'0' * 64}.safetensors.abc.tmp").write_text("interrupted")
    before = cache.clear()
    assert (before.entries, before.folder) == (3, folder)
    assert before.bytes > 3 * 800
    assert cache.info().entries == 0
    left = sorted(path.name for path in folder.rglob("*") if path.is_file())
    assert left == ["mine.safetensors", "mine.txt"]


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FEDASSAY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "fedassay"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.folder() == Path.home() / ".cache" / "fedassay"


def test_the_entry_is_a_plain_safetensors_file_that_says_what_it_is(folder: Path) -> None:
    from safetensors import safe_open

    cache.cached_arrays({"what": "test"}, Counter({"x": np.arange(3)}))
    with safe_open(_entries(folder)[0], framework="np") as entry:
        metadata = entry.metadata()
    assert json.loads(metadata["key"])["what"] == "test"
    assert metadata["sha256"] == digest_arrays({"x": np.arange(3)})


def test_digests_tell_apart_names_types_shapes_and_values() -> None:
    base = np.zeros((2, 3), dtype=np.float32)
    others: list[dict[str, NDArray[np.generic]]] = [
        {"x": base},
        {"y": base},
        {"x": base.reshape(3, 2)},
        {"x": base.astype(np.float64)},
        {"x": base.view(np.int32)},
        {"x": -base},
        {"x": base, "y": base},
    ]
    assert len({digest_arrays(arrays) for arrays in others}) == len(others)
    assert digest_arrays({"x": base.T}) == digest_arrays({"x": np.ascontiguousarray(base.T)})
    rows = np.array([[1, 2], [3, 4], [1, 2]], dtype=np.uint8)
    one, two, three = digest_records(rows)
    assert one == three != two


def test_trim_removes_the_longest_unused_and_keeps_the_rest(folder: Path) -> None:
    for number in range(4):
        cache.cached_arrays({"n": number}, Counter({"x": np.zeros(1000)}))
        for path in _entries(folder):
            status = path.stat()
            os.utime(path, (status.st_atime, status.st_mtime - 100))
    one = cache.info().bytes // 4
    left = cache.trim(2 * one + 100)
    assert left.entries == 2
    build = Counter({"x": np.zeros(1000)})
    for number in (2, 3):
        cache.cached_arrays({"n": number}, build)
    assert build.calls == 0
    assert cache.trim(0).entries == 0
