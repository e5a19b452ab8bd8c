from typing import get_args

from fedassay.support.adjacency import ADJACENCIES, Adjacency, class_counts_public, record_counts_public


def test_every_relation_is_described():
    assert list(ADJACENCIES) == list(get_args(Adjacency))


def test_what_each_makes_public():
    assert [a for a in ADJACENCIES if class_counts_public(a)] == ["replace_one_same_label"]
    assert [a for a in ADJACENCIES if record_counts_public(a)] == ["replace_one", "replace_one_same_label"]
