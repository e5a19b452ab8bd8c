"""What lies in a folder beside the images that are read has an account."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedassay.data import DataRequest, load
from fedassay.data.account import LeftOut
from fedassay.data.image_folder import image_folder
from fedassay.support.errors import DataError

_PICTURE = Image.fromarray(np.arange(100, dtype=np.uint8).reshape(10, 10))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes with one image each."""
    root = tmp_path / "set"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        _PICTURE.save(root / name / "1.png")
    return root


def _request(root: Path) -> DataRequest:
    return DataRequest("image_folder", None, root, None, 0, root.parent)


def _left_out(root: Path, **given: Any) -> tuple[LeftOut, ...]:
    request = replace(_request(root), **given)
    found = image_folder.size(request).data.account.left_out
    assert load(request).account.left_out == found
    return found


def test_a_folder_of_images_alone_leaves_nothing_out(folder: Path) -> None:
    assert _left_out(folder) == ()


def test_other_files_are_counted_by_ending_and_folder(folder: Path) -> None:
    for number in range(7):
        (folder / "b" / f"{number}.npy").write_bytes(b"x")
    (folder / "a" / "x.npy").write_bytes(b"x")
    with pytest.raises(DataError, match=r"8 \.npy in a, b hold pictures in a format that is not read"):
        load(_request(folder))
    (folder / "notes.TXT").write_text("x")
    (folder / "README").write_text("x")
    assert [each.line for each in _left_out(folder, incomplete="leave_out")] == [
        "8 files: of ending .npy, which is not read: convert them to PNG (b 7, a 1)",
        "1 file: of ending .txt (the folder itself 1)",
        "1 file: without an ending (the folder itself 1)",
    ]


def test_many_folders_are_not_all_named(folder: Path) -> None:
    for number in range(9):
        (folder / f"c{number}").mkdir()
        (folder / f"c{number}" / "x.txt").write_text("x")
    (line,) = (each.line for each in _left_out(folder))
    assert line == "9 files: of ending .txt (c0 1, c1 1, c2 1, c3 1, and 5 more folders)"


def test_images_where_nobody_looks_for_them_are_said_to_be_images(folder: Path) -> None:
    _PICTURE.save(folder / "top.png")
    (left,) = _left_out(folder)
    assert (left.kind, left.count, left.paths) == ("image", 1, ("top.png",))
    assert "beside the folders that are read" in left.line


def test_files_of_operating_systems_are_one_line(folder: Path) -> None:
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", "._1.png", "__MACOSX/a/._1.png", "@eaDir/1.png@Syno"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    (left,) = _left_out(folder)
    assert (left.count, left.why.partition(" (")[0]) == (6, "hidden, or of an operating system")


@pytest.mark.parametrize("place", ["x", "a/x", "a/x.png"])
def test_a_link_to_itself_is_named(folder: Path, place: str) -> None:
    (folder / place).symlink_to(Path(place).name)
    with pytest.raises(DataError, match=rf"^set/{place}: is a link that leads to itself; allowed: remove it$"):
        image_folder.size(_request(folder))


def test_links_that_lead_elsewhere_or_nowhere(folder: Path, tmp_path: Path) -> None:
    (folder / "b" / "2.png").symlink_to(folder / "a" / "1.png")
    (folder / "b" / "3.png").symlink_to(tmp_path / "gone.png")
    (folder / "a" / "loop").symlink_to(folder, target_is_directory=True)
    assert {each.why.partition(" (")[0]: each.count for each in _left_out(folder)} == {
        "a link that leads nowhere": 1,
        "a link to a folder, which is not followed": 1,
    }
    assert len(load(_request(folder)).train) == 3


def test_a_linked_folder_that_is_read_is_not_left_out(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    _PICTURE.save(tmp_path / "elsewhere" / "1.png")
    (folder / "c").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert _left_out(folder) == ()
    assert load(_request(folder)).train.class_names == ("a", "b", "c")


def test_a_folder_without_images_says_what_lies_there(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.npy").write_bytes(b"x")
    with pytest.raises(DataError, match=r"no images in its folders; 2 files: of ending \.npy, .*\(a 1, b 1\)"):
        image_folder.size(_request(tmp_path))
