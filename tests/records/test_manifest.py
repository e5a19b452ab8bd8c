"""What a run folder's notes may name: a name that no file can have is nobody's."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedassay.records.manifest import _is_file, _remove_file


@pytest.mark.parametrize("name", ["a\0b", "a\0b/c", "c/a\0b", "\0"])
def test_names_with_a_null_byte_are_nobodys(tmp_path: Path, name: str) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "kept").write_text("mine")
    _remove_file(tmp_path, name)
    assert not _is_file(tmp_path / name)
    assert (tmp_path / "c" / "kept").is_file()
