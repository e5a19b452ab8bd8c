from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fedassay.support.temporary import temporary_folder


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_its_owners_alone_and_gone_at_the_end(there: Path) -> None:
    with temporary_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "a").mkdir()
        (folder / "a" / "file").touch()
    assert list(there.iterdir()) == []


def test_gone_after_an_error(there: Path) -> None:
    def work() -> None:
        with temporary_folder() as folder:
            (folder / "file").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert list(there.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next_and_what_is_in_use_is_not(there: Path) -> None:
    code = (
        "import os, signal\nfrom fedassay.support.temporary import temporary_folder\n"
        "with temporary_folder() as folder:\n"
        "    (folder / 'face.png').touch(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, env={**os.environ, "TMPDIR": str(there)})
    assert done.returncode == -signal.SIGKILL
    assert list(there.rglob("face.png"))
    (there / "fedassay-private-notes").mkdir()  # nobody's we know
    with temporary_folder() as one, temporary_folder() as other:
        assert not list(there.rglob("face.png"))
        assert {path.name for path in there.iterdir()} == {"fedassay-private-notes", one.name, other.name}
