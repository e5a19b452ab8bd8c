"""Plans whose keys hold what nobody means: refused in words, or laid out and estimated."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from fedassay.console import print_cells
from fedassay.contracts.registry import ComponentKind, component, usable
from fedassay.plan.keys import entry_keys, every_key
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import Plan, parse_plan
from fedassay.support.errors import FedassayError

FEW: tuple[Any, ...] = ([], {}, "", 0, 5e-324, 1e308, 10**30, [[]], [1, 2], math.inf)
MANY: tuple[Any, ...] = (
    *FEW,
    *(
        -1,
        1,
        2,
        0.5,
        [0],
        [1],
        [1e308],
        ["x"],
        [{}],
        None,
        True,
        False,
        "x",
        "\u202e\u0301" * 5,
        "\ud800",
        "x" * 5000,
    ),
    *({"a": 1}, {"name": "x"}, -math.inf, math.nan, "inf", "null", "(redacted)", [True], [None, 1], {"a": []}),
    *(10**6, 10**9, {3: 4}, {None: None}, [[[[]]]], b"x", (1,)),
)
_BEFORE: dict[str, dict[str, Any]] = {
    "method": {},
    "attack": {"audits": "standard"},
    "audit": {"attacks": "standard"},
}


def _base() -> dict[str, Any]:
    return {"name": "odd", "data": {"name": "digits"}, "methods": [{"fedcgs": {}}], "privacy": {"epsilon": 4.0}}


def _places() -> list[tuple[str, ...]]:
    """Every key of every component, and of every section."""
    found: list[tuple[str, ...]] = [(key.name,) for key in every_key(Plan)]
    for kind in get_args(ComponentKind):
        for entry in usable(kind):
            named = (*every_key(component(kind, entry.name)), *(entry_keys() if kind == "method" else ()))
            found += [(kind, entry.name, key.name) for key in named]
    return found


def _with(place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A plan with one odd value."""
    tree = _base()
    if len(place) == 1:
        _put(tree, place[0], value)
        return tree
    kind, name, key = place
    tree |= _BEFORE[kind] | {f"{kind}s": [{name: {}}]}
    _put(tree[f"{kind}s"][0][name], key, value)
    return tree


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    place = tree
    for part in parents:
        inner = place.get(part.removesuffix("[]"))
        place[part.removesuffix("[]")] = inner = inner if isinstance(inner, dict) else {}
        if part.endswith("[]"):
            place[part.removesuffix("[]")] = [inner]
        place = inner
    place[last] = value


def _laid_out(tree: dict[str, Any]) -> bool:
    """Whether a plan is taken; any other error than one of words is let through."""
    try:
        print_cells(resolve(parse_plan(tree, "plan"), Path(), "plan"), as_json=False, device="cpu")
    except FedassayError:
        return False
    return True


def _singles(values: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    return (_with(place, value) for place in _places() for value in values)


@pytest.mark.long
def test_an_odd_value_is_refused_in_words_or_laid_out() -> None:
    """`components: []` ended in a traceback, as did a sampling rate that makes infinitely many steps."""
    taken = [_laid_out(tree) for tree in _singles(([], {}, 5e-324, 10**30))]
    assert 0 < sum(taken) < len(taken)


@pytest.mark.slow
def test_any_odd_value_is_refused_in_words_or_laid_out() -> None:
    taken = [_laid_out(tree) for tree in _singles(MANY)]
    assert 0 < sum(taken) < len(taken)


@pytest.mark.slow
def test_two_odd_values_are_refused_in_words_or_laid_out() -> None:
    rng, places = random.Random(0), _places()
    for _ in range(20_000):
        tree = _with(rng.choice(places), rng.choice(MANY))
        other = rng.choice([place for place in places if len(place) == 1])
        try:
            _put(tree, other[0], rng.choice(MANY))
        except (TypeError, AttributeError):
            continue  # what stands there has no keys any more
        _laid_out(tree)
