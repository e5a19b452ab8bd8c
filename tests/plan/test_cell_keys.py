"""Keys of cells: no two cells of a plan share one, nor a file, whatever their labels and numbers are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.plan.resolve import resolve
from fedassay.plan.schema import parse_plan
from fedassay.support.errors import PlanError

PLAN: dict[str, Any] = {
    "name": "keys",
    "data": {"name": "digits"},
    "backbone": {"name": "pixels"},
    "methods": ["fedcgs"],
}


def _keys(**plan: Any) -> list[str]:
    return [cell.key for cell in resolve(parse_plan({**PLAN, **plan}, "plan.yaml"), Path(), "plan.yaml").cells]


def _labelled(*labels: str) -> list[str]:
    return _keys(methods=[{"fedcgs": {"label": label}} for label in labels])


@pytest.mark.parametrize(
    "labels",
    [
        ("no noise", "no_noise", "no/noise", "no[noise"),
        ("DP", "dp", "Dp"),
        ("a" * 300, "a" * 299 + "b", "a" * 60),
        ("方法一", "方法二"),
        ("cafe\u0301", "caf\u00e9"),
        (".x", "x", "-x", "..", "."),
        ("a\x1b[2J", "a?[2J", "a\n[2J"),
    ],
)
def test_labels_count_as_written(labels: tuple[str, ...]) -> None:
    keys = _labelled(*labels)
    assert len({key.lower() for key in keys}) == len(labels)
    assert all(key.isascii() and len(key) < 160 and key[0] not in ".-" for key in keys)


def test_numbers_count_at_full_precision() -> None:
    assert len(set(_keys(privacy={"epsilon": [1.0000001, 1.0000004, 1]}))) == 3
    assert len(set(_keys(privacy={"epsilon": 1, "delta": [1.0000001e-5, 1.0000004e-5]}))) == 2


def test_keys_stay_readable_where_nothing_collides() -> None:
    assert _keys(seeds=[0, 7]) == ["fedcgs-epsinf-delta1e-05-seed0", "fedcgs-epsinf-delta1e-05-seed7"]
    assert _labelled("no noise") == ["no_noise-epsinf-delta1e-05-seed0"]


def test_null_seeds_are_as_many_draws_of_the_noise() -> None:
    assert len(set(_keys(seeds=[None, None, 0]))) == 3


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"seeds": [0, 1, 0]}, r"^plan\.yaml: seeds: given 0 2 times; allowed: each value once$"),
        ({"seeds": [1, True]}, r"seeds: given true; allowed: a number"),
        ({"privacy": {"epsilon": [1, 2, 1.0]}}, r"privacy\.epsilon: given 1\.0 2 times"),
        ({"privacy": {"epsilon": [".inf", math.inf]}}, r"privacy\.epsilon: given inf 2 times"),
        ({"privacy": {"epsilon": 1, "delta": [1e-5, 0.00001]}}, r"privacy\.delta: given 1e-05 2 times"),
        ({"methods": [{"fedcgs": {"epsilon": [3, 3]}}]}, r"methods\.fedcgs\.epsilon: given 3\.0 2 times"),
    ],
)
def test_equal_cells_and_repeated_seeds_are_refused(plan: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        _keys(**plan)


_ALIKE = st.text(alphabet="aA_ /-.#\u00e9e\u0301\x1b0", min_size=1, max_size=8)
_LABELS = st.one_of(_ALIKE, _ALIKE.map(lambda text: text * 60), st.text(min_size=1, max_size=30))
_CLOSE = st.integers(0, 40).map(lambda step: 1 + step * 2.0**-52)
_NUMBERS = st.one_of(_CLOSE, st.just(math.inf), st.floats(1e-300, 1e300))
_SEEDS = st.one_of(st.none(), st.integers(-3, 3), st.integers(-(10**18), 10**18))


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(
    labels=st.lists(_LABELS.filter(lambda text: bool(text.strip())), min_size=1, max_size=5, unique=True),
    epsilons=st.lists(_NUMBERS, min_size=1, max_size=4, unique=True),
    deltas=st.lists(
        st.integers(0, 9).map(lambda i: 1e-5 * (1 + i * 2.0**-50)), min_size=1, max_size=3, unique=True
    ),
    seeds=st.lists(_SEEDS, min_size=1, max_size=4),
)
def test_no_two_cells_of_any_plan_share_a_key_or_a_file(
    labels: list[str], epsilons: list[float], deltas: list[float], seeds: list[int | None]
) -> None:
    seeds = [*dict.fromkeys(seed for seed in seeds if seed is not None), *(seed for seed in seeds if seed is None)]
    keys = _keys(
        methods=[{"fedcgs": {"label": label}} for label in labels],
        privacy={"epsilon": epsilons, "delta": deltas},
        seeds=seeds,
    )
    expected = len(labels) * len(seeds) * sum(1 if math.isinf(e) else len(deltas) for e in epsilons)
    assert len({key.casefold() for key in keys}) == len(keys) == expected
    # Plain letters, so that no file system changes one, and short enough for what is added to them.
    assert all(set(key) <= set(_PLAIN) and len(key) <= 160 for key in keys)


_PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-+"
