"""Text of others: nothing hidden in it, and no two texts under one file name."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.support.text import file_name, plain, plain_json, plain_lines, plain_tree

HOSTILE = "a\x1b[2J\x9b31m\x07\x00\x7f\u202eb\u2066\u2028\u2029\x85\r\n\ufeffc\U000e0041"
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def hidden(text: str, keep: str = "") -> set[str]:
    """Characters of a text that a terminal would act on, or that nobody would see."""
    return {char for char in text if unicodedata.category(char) in _HIDDEN and char not in keep + "\u200c\u200d"}


@given(st.text())
def test_no_hidden_character_is_left(text: str) -> None:
    assert not hidden(plain(text))
    assert not hidden(plain_lines(text), keep="\n\t")


def test_what_is_hidden_can_be_read() -> None:
    assert plain("a\x1b[2J\u202eb\U000e0041\n") == "a\\x1b[2J\\u202eb\\U000e0041\\x0a"
    assert plain("größe ε δ 方法 א 👩\u200d🔬") == "größe ε δ 方法 א 👩\u200d🔬"


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5))
def test_a_document_means_the_same_and_hides_nothing(value: object) -> None:
    document = plain_json(json.dumps(value, indent=1, ensure_ascii=False))
    assert json.loads(document) == value
    assert not hidden(document, keep="\n")


def test_every_text_of_a_tree_is_reached() -> None:
    tree = plain_tree({HOSTILE: [HOSTILE, {"x": (HOSTILE, 1, None)}]})
    assert not hidden(json.dumps(tree, ensure_ascii=False), keep="\n\t")


@pytest.mark.parametrize("parts", [("reconstruction", "raw"), ("message",), ("a_1", "b2")])
def test_plain_names_stay_as_they_are(parts: tuple[str, ...]) -> None:
    assert file_name(*parts) == "-".join(parts)


_PARTS = st.lists(st.one_of(st.text(alphabet="aA-_./#\x1b1", max_size=4), st.text(max_size=200)), min_size=1)


@pytest.mark.long
@given(_PARTS, _PARTS)
def test_different_texts_have_names_that_no_file_system_takes_as_one(one: list[str], other: list[str]) -> None:
    first, second = file_name(*one), file_name(*other)
    assert (first.casefold() == second.casefold()) == (one == other)
    for name in (first, second):
        assert len(name) <= 100
        assert name.isascii()
        assert not set(name) & set("/\\\0 ")
