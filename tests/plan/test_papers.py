"""What is said of a paper's plan is made of the plan and of the paper's settings."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedassay.records.record import CellPrivacy, CellRecord, RunRecord

PLAN: dict[str, Any] = {
    "seeds": [0, 1],
    "clients": {"count": 10, "alpha": 0.1},
    "methods": [
        {"fedavg": {"rounds": 5, "bodies": [{"name": "cnn", "hidden": None}], "label": "a"}},
        {"fedavg": {"rounds": 5, "bodies": [{"name": "cnn", "hidden": None}]}},
        {"fedpft": {"head": {"rate": 1e-4}, "delta": None}},
    ],
}


@pytest.fixture(scope="module")
def papers() -> ModuleType:
    path = Path("docs/papers.py").resolve()
    spec = importlib.util.spec_from_file_location("papers_of_docs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _lines(papers: ModuleType, **setting: Any) -> list[str]:
    whole = {"plans": "all", "setting": "it", "where": "table 1", **setting}
    found: list[str] = papers.deviations([whole], "plan", PLAN)
    return found


@pytest.mark.parametrize(
    "setting",
    [
        {"key": "clients.count", "value": 10},
        {"key": "clients.alpha", "value": 0.1},
        {"key": "seeds", "count": 2},
        {"key": "methods.*.rounds", "value": 5},
        {"key": "methods.fedavg.bodies", "value": ["cnn"]},
        {"key": "methods.fedpft.head.rate", "value": 1.0e-4},
        {"key": ["methods.fedpft.head.optimizer.name", "methods.fedpft.head.rate"], "value": 1.0e-4},
        {"key": "methods.fedpft.delta", "value": "plan", "default": "plan"},
        {"key": "methods.none.rounds", "value": 3, "optional": True},
        {"methods": {"FedAvg": "fedavg", "A": ["b", "a"]}},
        {"plans": ["another"], "key": "clients.count", "value": 3},
    ],
)
def test_what_is_the_papers_is_not_listed(papers: ModuleType, setting: dict[str, Any]) -> None:
    assert _lines(papers, **setting) == []


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"key": "clients.count", "value": 50}, "it: 50 in the paper (table 1), here 10."),
        ({"key": "seeds", "count": 3}, "it: 3 in the paper (table 1), here 2."),
        (
            {"key": "methods.fedavg.bodies", "value": ["resnet16"]},
            "it: resnet16 in the paper (table 1), here cnn.",
        ),
        (
            {"key": "methods.fedavg.optimizer.name", "value": "sgd"},
            "it: sgd in the paper (table 1), here no key for it.",
        ),
        ({"key": "clients.alpha", "value": None}, "it: the paper does not say (table 1), here 0.1."),
        ({"value": "all", "here": "half"}, "it: all in the paper (table 1), here half."),
        ({"methods": {"FedKT": "fedkt", "FedAvg": "fedavg"}}, "it: without FedKT (table 1)."),
        (
            {"key": ["methods.fedavg.rounds", "methods.fedpft.head.rate"], "every": True, "value": 5},
            "it: 5 in the paper (table 1), here 5, 0.0001.",
        ),
    ],
)
def test_what_differs_is_listed(papers: ModuleType, setting: dict[str, Any], says: str) -> None:
    assert _lines(papers, **setting) == [says]


def test_every_plan_of_a_paper_is_in_a_table(papers: ModuleType) -> None:
    assert papers.unnamed() == []


def test_heads_and_page_are_what_the_tables_make(papers: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert papers.main(["--check"]) == 0, capsys.readouterr().out


def test_a_changed_plan_changes_its_head(papers: ModuleType, tmp_path: Path) -> None:
    paper, name, path = next(item for item in papers.planned() if item[1] == "feddiff_table3")
    text = path.read_text(encoding="utf-8")
    other = tmp_path / path.name
    other.write_text(text.replace("count: 10", "count: 7"), encoding="utf-8")
    made = papers.head(paper, name, other)
    assert "- clients: 10 in the paper (table 2), here 7." in made
    assert papers.with_head(text, made).startswith(made)
    assert papers.with_head(text, made).endswith(text[text.index("name: feddiff_table3") :])


def test_order_is_counted_in_pairs(papers: ModuleType) -> None:
    order = {"a": 3.0, "b": 2.0, "c": 2.0, "d": 1.0}
    assert papers.agreement(order, {"a": 0.9, "b": 0.5, "d": 0.6}) == "2 of 3"
    assert papers.agreement(order, {"b": 0.5, "c": 0.6}) == "nothing to compare"


def test_a_row_has_the_papers_figures_beside_ours(papers: ModuleType) -> None:
    run = {"scale": 0.02, "set": ["data.name=npz", "data.path=FILE.npz"], "records": 1200, "clients": 1}
    run |= {
        "minutes": 3.0,
        "measured": "accuracy",
        "figures": {"a": 0.5, "c": 0.25},
        "errors": ["b: it diverged."],
    }
    about = {"results": "a 90,\n b 80.", "order": {"a": 90.0, "b": 80.5}}
    assert papers._of_plan(about, run) == (
        "×0.02, 1,200 records, 1 client, 3 min",
        "a 90/50.0; b 80.5/-",
        "b: it diverged",
    )
    assert papers._of_plan(about, None) == ("not run", "", "")
    low = papers._of_plan(about, run | {"figures": {"a": 0.1}})
    assert low[1:] == (
        "none above 15",
        "nothing learned; b: it diverged",
    )


def test_a_digest_names_no_folder(papers: ModuleType) -> None:
    cell = CellRecord(
        method="fedavg",
        label="fedavg",
        params={},
        params_given={},
        epsilon=10.0,
        delta=1e-5,
        adjacency="add_remove",
        seed=0,
        utility={"accuracy": 0.5},
        communication={},
        privacy=CellPrivacy(claimed=None, accounted=None, verdict="not_run"),
        seconds={"method": 30.0},
    )
    command = ["fedassay", "run", "plan.yaml", "--set", "data.path=/somewhere/else/file.npz"]
    record = RunRecord(
        plan={"clients": {"count": 5}, "scaled": 0.1},
        environment={"command": command},
        data={"0": {"client_records": [3, 4]}},
        cells=(cell, cell),
    )
    assert papers.digest(record, "accuracy") == {
        "scale": 0.1,
        "set": ["data.path=FILE.npz"],
        "records": 7,
        "clients": 5,
        "minutes": 1.0,
        "measured": "accuracy",
        "figures": {"fedavg": 0.5},
        "errors": [],
    }
