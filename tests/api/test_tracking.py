"""A run in MLflow; needs the real package (`pip install 'fedassay[mlflow]'`), but for what is said without it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import fedassay
from fedassay.api.tracking import flat, metrics, taken, value

RUN = Path(__file__).resolve().parents[2] / "docs" / "gallery" / "photographs"


@pytest.fixture(scope="module")
def run() -> fedassay.Run:
    return fedassay.load(RUN)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    """A client of MLflow and the address of a store that is a folder."""
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed: pip install 'fedassay[mlflow]'")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions ask for it
    uri = (tmp_path / "store").as_uri()
    return mlflow.MlflowClient(tracking_uri=uri), uri


def test_without_mlflow_the_extra_is_named(run: fedassay.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(fedassay.MissingExtraError, match=r"Run\.to_mlflow.*pip install 'fedassay\[mlflow\]'"):
        run.to_mlflow()


def test_every_figure_has_a_name_of_its_own_that_mlflow_takes(run: fedassay.Run) -> None:
    for cell in run.record.cells:
        sent = metrics(cell)
        names = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/ ")
        assert all(set(name) <= names and len(name) <= 250 for name in sent)
        measured = [
            metric.value
            for finding in cell.findings
            for metric in finding.metrics.values()
            if metric.value is not None and abs(metric.value) != float("inf")
        ]
        own = [name for name in sent if not name.endswith((".low", ".high", ".baseline")) and name.count("/") > 1]
        assert len(own) == len(measured)


def test_names_and_values_are_made_to_fit() -> None:
    assert taken("a/../b") == "a/_/b"
    assert taken("share of ε=1") == "share of __1"
    assert value(float("inf")) == "inf"
    assert value({"epsilon": [float("inf"), 1.0]}) == '{"epsilon": ["inf", 1.0]}'
    assert len(value("x" * 1000)) == 500
    assert flat({"a": {"b": None, "c": [1]}, "d": "e"}) == {"a.c": "[1]", "d": "e"}


def test_a_run_has_its_plan_decision_and_documents_and_its_cells_below_it(
    run: fedassay.Run, store: tuple[Any, str]
) -> None:
    client, uri = store
    number = run.to_mlflow("audits", uri=uri, policy="strict")
    whole = client.get_run(number)
    assert whole.info.status == "FINISHED"
    assert whole.data.params["data.name"] == run.record.plan["data"]["name"]
    assert whole.data.tags["fedassay.decision"] == run.answer(policy="strict").text
    assert {each.path for each in client.list_artifacts(number)} == {
        "record.json",
        "plan.yaml",
        "report.html",
        "report.md",
    }
    place = client.get_experiment_by_name("audits").experiment_id
    found = client.search_runs([place], f"tags.`mlflow.parentRunId` = '{number}'")
    assert len(found) == len(run.record.cells)
    assert {each.info.status for each in found} == {"FINISHED"}
    for cell in run.record.cells:
        (mine,) = [
            each
            for each in found
            if each.data.params["label"] == cell.label and float(each.data.params["epsilon"]) == cell.epsilon
        ]
        assert mine.data.metrics == pytest.approx(metrics(cell))
        assert mine.data.tags["fedassay.verdict"] == cell.privacy.verdict


@pytest.mark.parametrize("private", [False, True])
def test_pictures_leave_only_where_asked(run: fedassay.Run, store: tuple[Any, str], private: bool) -> None:
    client, uri = store
    number = run.to_mlflow(uri=uri, name="mine", private=private)
    assert client.get_run(number).info.run_name == "mine"
    folder = Path(client.download_artifacts(number, ""))
    sent = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    assert sent["redacted"] is not private
    assert any(finding["pictures"] for cell in sent["cells"] for finding in cell["findings"]) is private
    assert ("This page contains private images" in (folder / "report.html").read_text(encoding="utf-8")) is private


def test_what_mlflow_refuses_is_one_message(
    run: fedassay.Run, store: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, uri = store
    client.delete_experiment(client.create_experiment("gone"))
    with pytest.raises(fedassay.DataError, match=r"Run\.to_mlflow: 'file:.*non-active"):
        run.to_mlflow("gone", uri=uri)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(fedassay.DataError, match="unknown://nowhere"):
        run.to_mlflow(uri="unknown://nowhere")
