"""Random streams depend on their names alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedassay.support.seeds import Seeds

parts = st.lists(st.one_of(st.text(max_size=5), st.integers(0, 9)), min_size=1, max_size=3)


@given(parts, parts)
def test_streams_are_equal_exactly_when_their_paths_are(first: list[str | int], second: list[str | int]) -> None:
    a, b = Seeds(0).integer(*first), Seeds(0).integer(*second)
    same = [(type(x), x) for x in first] == [(type(x), x) for x in second]
    assert (a == b) == same


def test_streams_do_not_depend_on_what_was_drawn_before() -> None:
    seeds = Seeds(3)
    before = seeds.numpy("noise").normal()
    seeds.numpy("split").normal(size=100)
    assert seeds.numpy("noise").normal() == before


def test_a_child_is_not_its_parent_s_path() -> None:
    assert Seeds(0).child("a").integer("b") != Seeds(0).integer("a", "b")
    assert Seeds(0).child("a").integer("b") == Seeds(0).child("a").integer("b")


def test_seed_none_differs_every_time() -> None:
    assert Seeds(None).integer("noise") != Seeds(None).integer("noise")
    seeds = Seeds(None)
    assert seeds.integer("noise") == seeds.integer("noise")
