"""What decides is declared: every metric that an audit emits, and every statistic that its tests use.

No list of exceptions stands here: what a finding shows can be bounded by a policy, and says which way is worse.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from fedassay.contracts.registry import every_audit, metrics
from fedassay.reports.gate.policy import Policy

AUDITS = Path(__file__).resolve().parents[2] / "audits"
ROOMS = {name: name for name in every_audit() if name not in ("dp_claim", "ledger")} | {"claim": "dp_claim"}
TESTS = ("by_p_value", "by_arithmetic", "LeakTest")


def _makers(trees: Iterable[ast.AST]) -> set[str]:
    """Names of what gives a metric: its type, and the functions of a room that are annotated to give one."""
    nodes = (node for tree in trees for node in ast.walk(tree))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef) and node.returns)
    return {"Metric", "unmeasured"} | {each.name for each in functions if ast.unparse(each.returns) == "Metric"}  # type: ignore[arg-type]


def _emitted(trees: Sequence[ast.AST]) -> Iterator[str]:
    """Names under which metrics are put into a dictionary."""
    makers = _makers(trees)

    def made(value: ast.AST) -> bool:
        return isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] in makers

    for node in (node for tree in trees for node in ast.walk(tree)):
        pairs: list[tuple[ast.AST | None, ast.AST]] = []
        if isinstance(node, ast.Dict):
            pairs = list(zip(node.keys, node.values, strict=True))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            pairs = [(node.targets[0].slice, node.value)]
        yield from (str(key.value) for key, value in pairs if isinstance(key, ast.Constant) and made(value))


def _statistics(tree: ast.AST) -> Iterator[str]:
    """Names that tests give as the metric that they are about."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in TESTS:
            given = [*node.args[1:], *(word.value for word in node.keywords if word.arg == "statistic")]
            yield from (
                each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )


def _trees(room: str) -> list[ast.AST]:
    return [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((AUDITS / room).rglob("*.py"))]


@pytest.mark.parametrize("room", ROOMS)
def test_what_an_audit_emits_it_declares(room: str) -> None:
    emitted = set(_emitted(_trees(room)))
    declared = {metric.name for metric in every_audit()[ROOMS[room]].metrics}
    assert emitted - declared == set()


@pytest.mark.long
def test_the_search_finds_what_is_emitted() -> None:
    found = {name for room in ROOMS for name in _emitted(_trees(room))}
    assert found >= {"psnr_gain", "copied", "total_variation", "auc", "identified", "noise_p", "misfit"}
    made = 'figures = {"odd": Metric(value=1.0), "even": 2}\nfigures["other"] = unmeasured("so")'
    assert set(_emitted([ast.parse(made)])) == {"odd", "other"}


@pytest.mark.parametrize("room", sorted(set(ROOMS) - {"claim"}))
def test_a_statistic_is_declared_with_its_direction(room: str) -> None:
    used = {name for tree in _trees(room) for name in _statistics(tree)}
    declared = {metric.name: metric for metric in every_audit()[ROOMS[room]].metrics}
    assert used
    for name in used:
        assert declared[name].worse is not None, name


def test_every_declared_metric_is_said_in_words_and_can_be_bounded() -> None:
    for name, metric in metrics().items():
        assert metric.title, name
        assert metric.about.endswith("."), name
        side = "minimum" if metric.worse == "lower" else "maximum"
        assert Policy.model_validate({"name": "mine", side: {name: 1.0}})


def test_a_metric_means_one_thing_wherever_it_is_declared() -> None:
    for facts in every_audit().values():
        for metric in facts.metrics:
            assert metric == metrics()[metric.name]
