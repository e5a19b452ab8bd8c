from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fedassay.support.atomic import make_folder, open_atomic, write_bytes, write_text
from fedassay.support.errors import PlanError


def test_written_whole_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_bytes(path, b"one")
    write_text(path, "zwei \N{SNOWMAN}")
    assert path.read_bytes() == "zwei \N{SNOWMAN}".encode()
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def write() -> None:
        with open_atomic(path) as stream:
            stream.write(b"half of the new")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_killed_writer_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")
    code = (
        "import os, signal, sys; from pathlib import Path; from fedassay.support.atomic import open_atomic\n"
        "with open_atomic(Path(sys.argv[1])) as stream:\n"
        "    stream.write(b'half'); stream.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    left = [entry.name for entry in tmp_path.iterdir() if entry != path]
    assert all(name.startswith(".file.") and name.endswith(".tmp") for name in left)


@pytest.mark.parametrize(
    ("shared", "private", "modes"),
    [
        ("", True, (0o700, 0o600)),
        ("0", True, (0o700, 0o600)),
        ("1", True, (0o750, 0o640)),
        ("", False, (0o750, 0o640)),
    ],
)
def test_files_and_folders_are_their_owners_alone_unless_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: str, private: bool, modes: tuple[int, int]
) -> None:
    monkeypatch.setenv("FEDASSAY_SHARED", shared)
    mask = os.umask(0o027)
    try:
        write_text(tmp_path / "a" / "b" / "file", "", private=private)
        assert os.umask(0o027) == 0o027  # and the mask is as it was
    finally:
        os.umask(mask)
    found = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a/b/file")]
    assert found == [modes[0], *modes]


def _make(path: Path, kind: str) -> None:
    if kind == "folder":
        path.mkdir()
    elif kind == "named pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    elif kind == "device":
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7))
        except PermissionError:
            pytest.skip("only root makes devices")
    else:
        target = path.with_name("target")
        if kind == "link":
            target.write_text("mine")
        path.symlink_to(target)


@pytest.mark.parametrize("kind", ["folder", "named pipe", "socket", "device", "link", "dangling link"])
def test_what_is_no_regular_file_is_never_replaced(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    path = Path("there")
    _make(path, kind)
    before = path.lstat()
    with pytest.raises(PlanError, match=rf"there: it is a {kind.removeprefix('dangling ')}"):
        write_text(path, "new")
    after = path.lstat()
    assert (after.st_mode, after.st_ino, after.st_rdev) == (before.st_mode, before.st_ino, before.st_rdev)
    assert {entry.name for entry in tmp_path.iterdir()} <= {"there", "target"}
    if kind == "link":
        assert Path("target").read_text() == "mine"


def test_what_appears_while_a_file_is_written_is_left_alone_too(tmp_path: Path) -> None:
    path = tmp_path / "there"

    def write() -> None:
        with open_atomic(path) as stream:
            stream.write(b"new")
            os.mkfifo(path)

    with pytest.raises(PlanError, match="named pipe"):
        write()
    assert stat.S_ISFIFO(path.lstat().st_mode)
    assert [entry.name for entry in tmp_path.iterdir()] == ["there"]


def test_no_folder_is_made_where_something_else_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "device").symlink_to("/dev/null")
    made: list[Path] = []
    monkeypatch.setattr(Path, "mkdir", lambda self, *args, **options: made.append(self))
    for place in ("file", "file/below", "device", "device/below"):
        with pytest.raises(FileExistsError):
            make_folder(tmp_path / place)
    assert made == []
