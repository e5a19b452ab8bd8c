import pytest

from fedassay.support.adjacency import ADJACENCIES, class_counts_public, records_public, validate_adjacency
from fedassay.support.errors import PlanError


@pytest.mark.parametrize("name", ADJACENCIES)
def test_known_names_pass(name):
    assert validate_adjacency(name) == name


def test_unknown_name_says_where_and_what_is_allowed():
    with pytest.raises(
        PlanError, match=r"methods\.fedpft\.adjacency: 'swap'.*add_remove, replace_one, replace_one_same"
    ):
        validate_adjacency("swap", where="methods.fedpft.adjacency")


def test_what_each_makes_public():
    assert [a for a in ADJACENCIES if records_public(a)] == ["replace_one", "replace_one_same_label"]
    assert [a for a in ADJACENCIES if class_counts_public(a)] == ["replace_one_same_label"]
