"""Epsilon: unlike kinds have no operation, like ones are held against each other by name alone."""

from __future__ import annotations

import math
import operator
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedassay.privacy.conversions import for_person, group_pair, under_replacement
from fedassay.support.epsilon import (
    Epsilon,
    UnlikeKindsError,
    ascending,
    at_one_delta,
    exceeds,
    largest,
    numbers,
    of_kind,
    smallest,
)

ONE = Epsilon(8.0, 1e-5, "add_remove", "record")
UNLIKE = [
    Epsilon(1.0, 1e-5, "replace_one", "record"),
    Epsilon(1.0, 1e-5, "replace_one_same_label", "record"),
    Epsilon(1.0, 1e-5, "add_remove", "person"),
    Epsilon(1.0, 1e-5, "add_remove", "client"),
    Epsilon(1.0, 1e-6, "add_remove", "record"),
]
OPERATORS = (
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.mod, operator.pow),
    *(operator.lt, operator.le, operator.gt, operator.ge, divmod, max, min, math.hypot),
)


@pytest.mark.parametrize("does", OPERATORS, ids=lambda does: does.__name__)
@pytest.mark.parametrize("other", [*UNLIKE, ONE, 1.0, 2])
def test_there_is_no_operation(does: Callable[[Any, Any], Any], other: Any) -> None:
    for pair in ((ONE, other), (other, ONE)):
        with pytest.raises(TypeError):
            does(*pair)


@pytest.mark.parametrize(
    "does", [float, int, round, math.log, math.isinf, abs, operator.neg, sum, sorted, "{:g}".format]
)
def test_no_number_leaves_it(does: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):
        does([ONE, ONE] if does in (sum, sorted) else ONE)


@pytest.mark.parametrize("other", UNLIKE)
def test_named_functions_refuse_unlike_kinds(other: Epsilon) -> None:
    pair = [ONE, other]
    for does in (numbers, largest, smallest, ascending, lambda both: exceeds(*both)):
        with pytest.raises(UnlikeKindsError, match="unlike kinds"):
            does(pair)
    assert len(of_kind(pair)) == 2
    assert other != ONE


def test_like_is_held_against_like() -> None:
    small = ONE.like(2.0)
    assert largest([small, None, ONE]) == ONE
    assert smallest([small, ONE]) == small
    assert ascending([ONE, small, ONE.like(math.inf)])[0] == small
    assert exceeds(ONE, small)
    assert not exceeds(ONE, small, 4.0)
    assert largest([]) is None
    assert of_kind([ONE, small]) == {ONE.kind: (ONE, small)}


def test_a_smaller_delta_implies_a_larger_one_and_not_the_other_way() -> None:
    strict = Epsilon(8.0, 1e-6, "add_remove", "record")
    assert strict.at_delta(1e-5) == ONE
    assert "from delta 1e-06" in str(strict.at_delta(1e-5))
    with pytest.raises(ValueError, match="smaller delta"):
        ONE.at_delta(1e-6)
    assert numbers(at_one_delta([strict.like(1.0), ONE])) == [1.0, 8.0]


def test_it_is_never_printed_alone() -> None:
    for words in (str(ONE), f"{ONE}", repr(ONE), repr([ONE]), str(ONE.kind.words)):
        assert "record" in words
        assert "add" in words
        assert "remove" in words


def test_conversions_go_by_name_and_say_so() -> None:
    claim = Epsilon(0.5, 1e-6, "add_remove", "record")
    both = under_replacement(claim, "replace_one")
    assert both.kind.adjacency == "replace_one"
    assert both.bare == pytest.approx(1.0)
    assert both.delta == pytest.approx((1 + math.exp(0.5)) * 1e-6)
    assert "by removing one and adding one" in str(both)
    same = under_replacement(both, "replace_one_same_label")
    assert (same.bare, same.delta, same.adjacency) == (both.bare, both.delta, "replace_one_same_label")
    assert "a special case" in same.how
    assert under_replacement(claim, "replace_one_same_label").bare == same.bare
    person = for_person(claim, 3)
    expected = group_pair(0.5, 1e-6, 3)
    assert (person.bare, person.delta, person.unit) == (expected.epsilon, expected.delta, "person")
    assert "by a chain of 3 records" in str(person)
    assert not for_person(ONE, 30).finite
    for given, adjacency in ((both, "add_remove"), (same, "replace_one"), (same, "add_remove")):
        with pytest.raises(UnlikeKindsError, match="says nothing of"):
            under_replacement(given, adjacency)  # type: ignore[arg-type]
    with pytest.raises(UnlikeKindsError, match="for one record"):
        for_person(person, 2)


_SNIPPET = """
import math
from fedassay.support.epsilon import Epsilon
a = Epsilon(8.0, 1e-5, "add_remove", "record")
b = Epsilon(8.0, 1e-5, "replace_one", "person")
both: list[Epsilon] = [a, b]
{line}
"""
REFUSED = ("a + b", "a < b", "max(a, b)", "sorted(both)", "sum(both)", "float(a)", "a == 8.0", "f'{a:g}' + a")


@pytest.mark.slow
def test_mypy_refuses_what_unlike_kinds_have_no_operation_for(tmp_path: Path) -> None:
    source = tmp_path / "tried.py"
    lines = [*REFUSED, "a.bare = 1.0", "a.kind == b.kind"]
    source.write_text(_SNIPPET.replace("{line}", "\n".join(lines)))
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent", str(source)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
    )
    first = 7
    wrong = {int(line.split(":")[1]) for line in ran.stdout.splitlines() if ": error:" in line}
    assert wrong == set(range(first, first + len(REFUSED) + 1)), ran.stdout
