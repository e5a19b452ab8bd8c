from __future__ import annotations

from pathlib import Path

import pytest

from fedassay.support.errors import DataError, PlanError
from fedassay.support.paths import data_root, find


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("plan", "data", "weights"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("FEDASSAY_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEDASSAY_WEIGHTS", str(tmp_path / "weights"))
    return tmp_path


def test_places_are_tried_in_order(folders: Path) -> None:
    for place in ("weights", "data", "plan"):
        (folders / place / "f").write_text("")
        assert find("f", folders / "plan") == folders / place / "f"
    assert find(folders / "data" / "f", folders / "plan") == folders / "data" / "f"


def test_the_error_says_what_was_tried_without_the_folders_themselves(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDASSAY_WEIGHTS")
    with pytest.raises(DataError) as caught:
        find("faces.npz", folders / "plan", "data.path")
    message = str(caught.value)
    assert message.startswith("data.path: faces.npz does not exist")
    assert "beside the plan" in message
    assert "FEDASSAY_DATA" in message
    assert "FEDASSAY_WEIGHTS (not set)" in message
    assert str(folders) not in message


def test_an_absolute_path_is_not_looked_for_elsewhere(folders: Path) -> None:
    (folders / "data" / "f").write_text("")
    with pytest.raises(DataError, match="does not exist"):
        find("/f", folders / "plan")


def test_home_is_expanded(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folders))
    assert find("~/data", folders / "plan") == folders / "data"
    with pytest.raises(PlanError, match="no such user"):
        find("~nobody-of-this-name/data", folders / "plan")


def test_the_data_root(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_root(None, folders / "plan") == folders / "data"
    assert data_root("sets", folders / "plan") == folders / "plan" / "sets"
    assert data_root("/sets", folders / "plan") == Path("/sets")
    monkeypatch.delenv("FEDASSAY_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folders / "own"))
    assert data_root(None, folders / "plan") == folders / "own" / "fedassay-data"
