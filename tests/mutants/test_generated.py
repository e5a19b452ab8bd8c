"""Generated faults: every operator, where they are put, and oracles that are silent where there is nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from catalogue import GENERATED, OTHERS, mutants
from cells import CASES, configured, digits, pairs, runner
from copies import PACKAGE, apply
from cripples import CELLS, SCORES, ready
from leaks import DELTA, EPSILON, LEVEL, Row, Run, in_common, judge, refuted, strength
from numpy.typing import NDArray
from operators import ANSWER, OPERATORS, changes, compiles
from patched import forgetting, patch
from places import as_edit, traced
from rooms import faults
from sample import evenly

from fedassay.privacy import symmetric
from fedassay.privacy.gaussian import calibrate_sigma

SOURCE = '''"""Of two sums."""

import numpy as np


def noised(values, scale, rng, *, clip=1.0):
    """Values, noised."""
    # é: places are of characters, not of bytes.
    norm = np.linalg.norm(values, axis=1)
    kept = values / np.maximum(norm[:, None], clip)
    total = kept.sum(axis=0)
    if len(values) > 3:
        total = total + scale * rng.standard_normal(len(total))
    else:
        raise ValueError("too few")
    return total - 1
'''


def test_every_operator_changes_something_and_leaves_python() -> None:
    found = changes(SOURCE)
    assert {change.operator for change in found} == set(OPERATORS)
    for change in found:
        assert compiles(change.applied(SOURCE)), change
        assert change.applied(SOURCE) != SOURCE
        assert change.applied(SOURCE).splitlines()[:7] == SOURCE.splitlines()[:7]
    assert found == changes(SOURCE)


@pytest.mark.parametrize(
    ("operator", "old", "new"),
    [
        ("drop a call", "kept.sum(axis=0)", "kept"),
        ("drop an argument", "np.linalg.norm(values, axis=1)", "np.linalg.norm(values)"),
        ("drop a term", "total + scale * rng.standard_normal(len(total))", "total"),
        ("halve a scale", "scale", "(scale / 2)"),
        ("swap arguments", "np.maximum(norm[:, None], clip)", "np.maximum(clip, norm[:, None])"),
        ("reuse a variable", "kept", "norm"),
        ("cast", "total - 1", "np.asarray(total - 1, np.float16)"),
        ("off by one", "len(values) > 3", "len(values) >= 3"),
        ("constant for data", "values", "(values * 0)"),
        ("flip a condition", "len(values) > 3", "(not (len(values) > 3))"),
        ("remember the first answer", "total - 1", f'globals().setdefault("{ANSWER}16", total - 1)'),
    ],
)
def test_an_operator_does_what_its_name_says(operator: str, old: str, new: str) -> None:
    own = {(SOURCE[each.start : each.end], each.new) for each in changes(SOURCE) if each.operator == operator}
    assert (old, new) in own


def test_statements_change_places() -> None:
    made = [each.applied(SOURCE) for each in changes(SOURCE) if each.operator == "reorder statements"]
    assert any(text.index("kept = ") < text.index("norm = ") for text in made)


def test_a_change_is_an_edit_of_text_that_occurs_once(tmp_path: Path) -> None:
    for change in changes(SOURCE):
        (tmp_path / "one.py").write_text(SOURCE, encoding="utf-8")
        apply(as_edit("one.py", SOURCE, change), tmp_path)
        assert (tmp_path / "one.py").read_text(encoding="utf-8") == change.applied(SOURCE)


def test_faults_are_drawn_by_seed_from_all_functions_of_a_room() -> None:
    first, again, other = (
        [next(each).name for _ in range(5)] for each in (faults(PACKAGE, "privacy", s) for s in (0, 0, 1))
    )
    assert first == again != other


def test_an_imported_package_gets_a_changed_function() -> None:
    code = symmetric.vech.__code__
    source = (PACKAGE / "privacy" / "symmetric.py").read_text(encoding="utf-8")
    change = next(
        each
        for each in changes(source)
        if "return" in source.splitlines()[each.line - 1] and each.operator == "remember the first answer"
    )
    function = next(
        f
        for f in vars(symmetric).values()
        if getattr(f, "__code__", None)
        and f.__code__.co_firstlineno < change.line <= max(line or 0 for *_, line in f.__code__.co_lines())
    )
    before = function.__code__
    try:
        patch("privacy/symmetric.py", change.applied(source))
        assert ANSWER in str(function.__code__.co_consts)
        vars(symmetric)[f"{ANSWER}{change.line}"] = "held"
        assert (
            forgetting(
                lambda: [name for name in vars(symmetric) if name.startswith(ANSWER)], "privacy/symmetric.py"
            )()
            == []
        )
    finally:
        patch("privacy/symmetric.py", source) if function.__code__ != before else None
    assert symmetric.vech.__code__ == code
    with pytest.raises(LookupError, match="nothing differs"):
        patch("privacy/symmetric.py", source)


def test_lines_that_run_are_known() -> None:
    lines = traced(PACKAGE, lambda: symmetric.vech(np.eye(3)))
    assert lines["privacy/symmetric.py"]


# The oracle of leaks, on mechanisms of which everything is known: two fields of 20 numbers.

SIGMA = calibrate_sigma(EPSILON, DELTA, 1.0)


def gaussian(
    scale: float = 1.0, *, fields: int = 1, again: bool = False, told: bool = False, seed: int = 0
) -> Run:
    """A sum of sensitivity 1 at so much of the noise that the claim needs; `again`: the noise once more, alone."""

    def run(side: object, root: int, shared: bool) -> Row:
        rng = np.random.default_rng((seed, root))
        noise = scale * SIGMA * rng.standard_normal(20)
        values = noise + (np.eye(20)[3] if side else 0.0)
        parts = [values, *([noise] if again else [])]
        own = np.concatenate(parts)
        form = "more" if told and side else "same"
        return Row(form, tuple((20 * place, 20 * place + 20) for place in range(len(parts))), own, "")

    return run


NEIGHBOURS = [(False, True), (False, True)]


def asked(run: Run) -> bool:
    return judge(run, NEIGHBOURS, [[0.0, 0.0], [0.0, 0.0]]).leaks


@pytest.mark.long
def test_the_oracle_is_silent_about_a_mechanism_that_holds_its_claim() -> None:
    assert not any(asked(gaussian(seed=seed)) for seed in range(25))


@pytest.mark.parametrize(
    "run",
    [gaussian(0.5), gaussian(1e-3), gaussian(again=True), gaussian(told=True)],
    ids=["half", "hardly any", "noise sent as well", "a form"],
)
def test_the_oracle_sees_less_noise_noise_used_twice_and_forms(run: Run) -> None:
    assert asked(run)


def test_nothing_is_looked_for_where_the_same_noise_shows_no_more() -> None:
    intact = [strength(in_common(gaussian(), pair)) for pair in NEIGHBOURS]
    assert judge(gaussian(), NEIGHBOURS, intact).runs == 0
    assert judge(gaussian(0.5), NEIGHBOURS, intact).leaks


def test_a_claim_is_refuted_by_exact_bounds_only() -> None:
    at_the_claim = math.exp(EPSILON) * 0.25 + DELTA
    assert not refuted(round(400 * at_the_claim), 100, 400, LEVEL)
    assert refuted(400, 0, 400, LEVEL)
    assert not refuted(20, 0, 20, LEVEL)  # the best possible score of too few runs


@pytest.mark.long
@pytest.mark.parametrize("case", ["fedncm", "fedcof", "fedsgd"])
def test_the_oracle_is_silent_about_shipped_methods(case: str) -> None:
    found = judge(runner(*configured(case), CASES[case]), pairs(CASES[case]), [[0.0, 0.0], [0.0, 0.0]])
    assert not found.leaks
    assert found.runs  # It came close enough to be judged: these mechanisms spend what they claim.


@pytest.mark.long
@pytest.mark.parametrize("case", CELLS)
def test_attacks_reach_their_targets_as_they_are_shipped(case: str) -> None:
    run = ready(CELLS[case])
    score, digest = run()
    assert score > 0.25
    assert run() == (score, digest)


def test_images_count_by_what_they_show_of_clients_and_not_of_strangers() -> None:
    own = digits().images[:40]
    parts = np.split(np.arange(40), 2)
    clients = [SimpleNamespace(name=f"client/{place}", images=own[part]) for place, part in enumerate(parts)]

    def score(images: NDArray[np.uint8], senders: Sequence[str] = ("client/0", "client/1")) -> float:
        names = tuple(np.repeat(senders, len(images) // len(senders)))
        held = SimpleNamespace(source=SimpleNamespace(senders=names), images=images[:, None])
        return SCORES["images"](SimpleNamespace(reconstructions=(held,)), clients, None, None)

    noisy = np.clip(own + np.random.default_rng(0).normal(0, 40, own.shape), 0, 255).astype(np.uint8)
    assert score(own) == 1
    assert 0.4 < score(noisy) < 0.9
    assert score(own[:20], ("client/0",)) == 0.5
    for shows_nobody in (np.zeros_like(own), digits().images[1300:1340], own[::-1]):
        assert abs(score(shows_nobody)) < 0.15
    assert SCORES["images"](SimpleNamespace(reconstructions=()), clients, None, None) == 0


def test_the_sample_is_of_every_operator_that_counts_and_the_others_are_apart() -> None:
    own = [entry for entry in mutants() if entry.name.startswith(GENERATED) and entry.edits]
    every = [entry for entry in mutants(every=True) if entry.name.startswith(GENERATED) and entry.edits]
    assert len(own) == 40
    assert len(every) > len(own)
    assert len({(entry.plan, entry.edits) for entry in every}) == len(every)
    assert OTHERS.parent.name == GENERATED


def test_a_sample_takes_operators_in_turn() -> None:
    rows = [
        {"operator": name, "number": number} for name, count in (("a", 9), ("b", 2)) for number in range(count)
    ]
    assert sorted(row["operator"] for row in evenly(rows, 4)) == ["a", "a", "b", "b"]
    assert evenly(rows, 4) == evenly(rows, 4)
