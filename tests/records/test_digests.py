"""What stands in a run folder, held against its digests: what is larger than a run's files is not read."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from fedassay.records import digests
from fedassay.support import limits


def test_files_of_other_sizes_and_words_that_are_no_digest_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page.html").write_bytes(b"page")
    for name, size in (("large.png", limits.RUN_FILE_BYTES + 1), ("message.safetensors", 100)):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, size)
    sound = {
        name: hashlib.sha256(data).hexdigest()
        for name, data in (("page.html", b"page"), ("message.safetensors", bytes(100)))
    }
    assert digests.altered(tmp_path, sound) == []
    read: list[str] = []
    plain = hashlib.file_digest

    def watched(stream: object, kind: str) -> object:
        read.append(stream.name)  # type: ignore[attr-defined]
        return plain(stream, kind)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "file_digest", watched)
    wrong = {"page.html": "", "message.safetensors": "0" * 63, "large.png": "0" * 64, "gone": "0" * 64}
    assert [words.split(" is ")[0] for words in digests.altered(tmp_path, wrong)] == list(wrong)
    assert read == []
