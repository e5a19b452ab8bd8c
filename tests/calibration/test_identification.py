"""The test of identification keeps its level where vectors say nothing, and finds what names its records."""

from __future__ import annotations

from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.audits.stats.identification import Group, Identification, identify


def named(seed: int, *, strength: float, collapsed: bool = False) -> Identification:
    """Vectors of four clients, noise and their records, `strength` of these; `collapsed`: all alike."""
    rng = np.random.default_rng(seed)
    groups = []
    for client in range(4):
        private, others = rng.standard_normal((5, 8)), rng.standard_normal((25, 8))
        vectors = (1 - strength) * rng.standard_normal((6, 8)) + strength * private[rng.integers(0, 5, 6)]
        groups.append(Group(np.repeat(vectors[:1], 6, axis=0) if collapsed else vectors, private, others, client))
    found = identify(groups)
    assert found is not None
    return found


@pytest.mark.parametrize("collapsed", [False, True])
def test_p_values_are_valid_where_vectors_say_nothing(collapsed: bool) -> None:
    """Also where all vectors of a client are one and the same, which a binomial test would take for six."""
    p = np.array([named(seed, strength=0.0, collapsed=collapsed).test.p for seed in range(400)])
    for level in (0.01, 0.05, 0.2):
        assert (p <= level).mean() <= level + 3 * np.sqrt(level * (1 - level) / len(p))


def test_vectors_that_are_their_records_are_found() -> None:
    found = named(0, strength=0.9)
    assert found.test.p <= 0.01
    assert found.hits.mean() > 0.9
    np.testing.assert_allclose(found.chance, 5 / 30)


def test_every_hit_counts_however_many_there_are() -> None:
    private = np.eye(3)
    vectors = private[np.arange(2051) % 3]
    found = identify([Group(vectors, private, -private, 0)])
    assert found is not None
    assert found.test.value == 2051


def test_ranks_are_those_of_a_plain_search() -> None:
    rng = np.random.default_rng(1)
    private, others, vectors = (rng.standard_normal((n, 3)) for n in (3, 7, 4))
    found = identify([Group(vectors, private, others, 0)])
    assert found is not None
    for vector, rank in zip(vectors, found.ranks, strict=True):
        best = min(np.linalg.norm(vector - each) for each in private)
        assert rank == 1 + sum(bool(np.linalg.norm(vector - each) <= best) for each in others)


def test_a_claim_allows_its_ceiling_and_no_more() -> None:
    found = named(0, strength=0.9)
    assert found.allowed(0.0) == pytest.approx(5 / 30)
    assert found.allowed(50.0) == pytest.approx(1.0)
    assert not found.beyond(50.0, 0.05)


def test_groups_without_a_gallery_say_nothing() -> None:
    none, ones = np.zeros((0, 3)), np.ones((1, 3))
    assert identify([Group(ones, ones, none, 0)]) is None


@settings(max_examples=60, deadline=None)
@given(
    shown=st.lists(st.lists(st.integers(0, 6), max_size=7), min_size=1, max_size=2),
    private=st.integers(1, 4),
    others=st.integers(1, 3),
)
def test_p_is_that_of_all_choices_gone_through(shown: list[list[int]], private: int, others: int) -> None:
    """Two galleries of up to seven records, which several vectors may be nearest to."""
    groups, each, size = [], [], private + others
    records = np.arange(float(size))[:, None]
    for client, places in enumerate(shown):
        nearest = [place % size for place in places]
        groups.append(Group(records[nearest], records[:private], records[private:], client))
        choices = combinations(range(size), private)
        each.append([sum(nearest.count(record) for record in choice) for choice in choices] if places else [0])
    found = identify(groups)
    if not any(shown):
        assert found is None
        return
    assert found is not None
    sums = np.array([sum(hits) for hits in product(*each)])
    assert found.test.p == pytest.approx(np.mean(sums >= found.hits.sum()))
    assert found.test.smallest == pytest.approx(np.mean(sums == sums.max()))


def test_a_p_value_has_no_floor() -> None:
    """Of 2,000 draws none says less than .0005 of what comes by chance once in a million."""
    records = np.random.default_rng(0).standard_normal((60, 5))
    found = identify([Group(records[:4], records[:4], records[4:], 0)])
    assert found is not None
    assert found.test.p == pytest.approx(1 / comb(60, 4))
