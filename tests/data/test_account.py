"""The account of what was read: in words, in a record, and back."""

from __future__ import annotations

from pathlib import Path

from fedassay.data.account import Account, LeftOut

_MADE = Account(("60 files",), ("labels.csv is in UTF-16",), root=Path("x")).adding(
    LeftOut("image", 1, "masks beside their images", ("ill/1_mask.png",)), LeftOut("column", 2_000, "age\x1b[2J")
)


def test_one_line_each() -> None:
    assert list(_MADE.lines()) == [
        "read: 60 files",
        "note: labels.csv is in UTF-16",
        "left out: 1 image: masks beside their images",
        r"left out: 2,000 columns: age\x1b[2J",
    ]
    assert not Account()


def test_a_record_holds_it_without_paths() -> None:
    facts = _MADE.facts()
    assert "1_mask" not in str(facts)
    assert list(Account.of(facts).lines()) == list(_MADE.lines())
    assert [Account.of(odd) for odd in (None, 3, {"read": 1}, {"left_out": [{"kind": "x"}]})] == [Account()] * 4
