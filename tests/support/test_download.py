from __future__ import annotations

import fcntl
import hashlib
import io
from email.message import Message
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedassay.support import download as downloads
from fedassay.support.download import download
from fedassay.support.errors import DataError, PlanError

pytestmark = pytest.mark.usefixtures("online")

CONTENT = np.random.default_rng(0).bytes(5 << 20)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server:
    """Gives CONTENT, from where it is asked to; breaks off after some bytes where it is told to."""

    def __init__(self, content: bytes = CONTENT, status: int = 206) -> None:
        self.content, self.status, self.starts, self.left = content, status, [], 1 << 40

    def __call__(self, url: str, start: int) -> Any:
        self.starts.append(start)
        answer = _Answer(self.content[start if self.status == 206 else 0 :], self)
        answer.status = self.status if start else 200
        return answer


class _Answer(io.BytesIO):
    def __init__(self, content: bytes, server: Server) -> None:
        super().__init__(content)
        self.server, self.status, self.headers = server, 200, Message()
        self.headers["Content-Length"] = str(len(content))

    def read(self, size: int | None = -1) -> bytes:
        if self.server.left <= 0:
            raise ConnectionResetError("reset by peer")
        part = super().read(size)
        self.server.left -= len(part)
        return part


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(downloads, "_answer", made)
    return made


def test_downloaded_announced_and_checked(
    tmp_path: Path, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    download(tmp_path / "a" / "file", ["https://x.example/file"], SHA256)
    assert (tmp_path / "a" / "file").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["file"]
    (line,) = caplog.messages
    for words in ("https://x.example/file", "5.2 MB", str(tmp_path / "a" / "file"), SHA256, "--offline"):
        assert words in line


@pytest.mark.parametrize(("status", "starts"), [(206, [0, 2 << 20]), (200, [0, 2 << 20])])
def test_resumed_where_it_broke_off(tmp_path: Path, server: Server, status: int, starts: list[int]) -> None:
    """From the start where the server gives no parts."""
    server.left, server.status = 2 << 20, status
    with pytest.raises(DataError, match=r"reset by peer; 2,097,152 bytes are kept, and the next try goes on"):
        download(tmp_path / "file", ["https://x.example/file"], SHA256)
    assert not (tmp_path / "file").exists()
    server.left = 1 << 40
    download(tmp_path / "file", ["https://x.example/file"], SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.starts == starts


def test_another_file_is_not_kept_and_the_next_address_is_tried(tmp_path: Path, server: Server) -> None:
    server.content = CONTENT[:-1] + b"x"
    with pytest.raises(DataError, match="its SHA-256 is not"):
        download(tmp_path / "file", ["https://x.example/file", "https://y.example/file"], SHA256)
    assert server.starts == [0, 0]
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_part_is_thrown_away(tmp_path: Path, server: Server) -> None:
    (tmp_path / ".file.part").write_bytes(b"x" * 1000)
    with pytest.raises(DataError, match="its SHA-256 is not"):
        download(tmp_path / "file", ["https://x.example/file"], SHA256)
    download(tmp_path / "file", ["https://x.example/file"], SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_offline(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDASSAY_OFFLINE", "1")
    with pytest.raises(DataError, match="--offline: it would be downloaded from https"):
        download(tmp_path / "file", ["https://x.example/file"], SHA256)
    assert server.starts == []


@pytest.mark.parametrize("url", ["http://x.example/file", "ftp://x.example/file"])
def test_only_over_https(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataError, match="not https"):
        download(tmp_path / "file", [url], SHA256)
    assert list(tmp_path.iterdir()) == []


def test_no_redirection_away_from_https() -> None:
    handler = downloads._OnlyToHttps()
    request = downloads.urllib.request.Request("https://x.example/file")
    with pytest.raises(OSError, match="not https"):
        handler.redirect_request(request, None, 302, "", Message(), "http://x.example/file")
    assert handler.redirect_request(request, None, 302, "", Message(), "https://y.example/file") is not None


def test_a_link_in_the_way_is_left_alone(tmp_path: Path, server: Server) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".file.part").symlink_to(tmp_path / "mine")
    with pytest.raises(PlanError, match="a link"):
        download(tmp_path / "file", ["https://x.example/file"], SHA256)
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("whole", [True, False])
def test_another_process_that_gave_up_takes_nothing_away(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """It removed the empty part that was opened here, while its lock was waited for."""
    lock, locked = fcntl.flock, []

    def waited(stream: Any, kind: int) -> None:
        if not locked:
            (tmp_path / ".file.part").unlink()
        locked.append(kind)
        lock(stream, kind)

    monkeypatch.setattr(fcntl, "flock", waited)
    if whole:
        download(tmp_path / "file", ["https://x.example/file"], SHA256)
        assert (tmp_path / "file").read_bytes() == CONTENT
    else:
        server.content = CONTENT[:-1] + b"x"
        with pytest.raises(DataError, match="its SHA-256 is not"):
            download(tmp_path / "file", ["https://x.example/file"], SHA256)
        assert list(tmp_path.iterdir()) == []
    assert len(locked) == 2
