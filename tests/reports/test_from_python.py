"""A run as notebooks hold it: every number of its tables and figures is the record's."""

from __future__ import annotations

import builtins
import math
from pathlib import Path
from typing import Any

import pytest

import fedassay
from fedassay import DataError, MissingExtraError, Run
from fedassay.api import frames
from fedassay.records.record import RunRecord

TABLES = ("cells", "findings", "metrics", "ledger", "coverage")


@pytest.fixture
def held(run: Path, record: RunRecord) -> Run:
    return Run(record, run)


def test_tables_have_a_row_an_observation(held: Run) -> None:
    pytest.importorskip("pandas")
    cells = held.record.cells
    assert len(held.cells) == len(cells)
    assert len(held.findings) == sum(len(cell.findings) for cell in cells)
    assert len(held.ledger) == sum(len(cell.ledger) for cell in cells)
    assert len(held.coverage) == sum(len(cell.coverage) for cell in cells)
    assert len(held.metrics) == sum(
        len({**finding.metrics, **finding.baseline}) for cell in cells for finding in cell.findings
    )
    assert list(held.findings.columns[: len(frames.FINDINGS)]) == list(frames.FINDINGS)


def test_every_figure_is_that_of_the_record(held: Run) -> None:
    pytest.importorskip("pandas")
    for row in held.metrics.to_dict("records"):
        finding = held.record.cells[row["cell"]].findings[row["finding"]]
        metric, base = finding.metrics[row["metric"]], finding.baseline.get(row["metric"])
        assert (row["value"] == metric.value) if metric.value is not None else math.isnan(row["value"])
        assert (row["baseline"] == base.value) if base and base.value is not None else math.isnan(row["baseline"])
        assert row["verdict"] == finding.verdict
    cells = held.cells
    assert list(cells["accuracy"]) == [cell.utility["accuracy"] for cell in held.record.cells]
    assert cells["epsilon"].isin([math.inf]).any()
    joined = held.findings.merge(cells, on="cell", suffixes=("", "_of_cell"))
    assert (joined["label"] == joined["label_of_cell"]).all()


def test_what_was_not_measured_is_missing_and_says_why(held: Run) -> None:
    pytest.importorskip("pandas")
    lpips = held.metrics.query("metric == 'lpips'")
    assert lpips["value"].isna().all()
    assert lpips["reason"].str.contains("AlexNet").all()


@pytest.mark.parametrize("table", TABLES)
def test_a_run_without_cells_has_empty_tables_with_their_columns(table: str, held: Run) -> None:
    pytest.importorskip("pandas")
    empty = getattr(Run(held.record.model_copy(update={"cells": ()}), held.folder), table)
    assert len(empty) == 0
    assert tuple(empty.columns) == getattr(frames, table.upper())


@pytest.mark.parametrize("table", [*TABLES, "plot"])
def test_without_the_extra_the_error_names_it(table: str, held: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def no_extra(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] in {"pandas", "matplotlib"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])
        return real(name, *rest)

    def imported(name: str) -> Any:
        return no_extra(name)

    monkeypatch.setattr("fedassay.support.extras.import_module", imported)
    with pytest.raises(MissingExtraError, match=r"pip install 'fedassay\[notebook\]'") as caught:
        held.plot.epsilon(of="one record added or removed") if table == "plot" else getattr(held, table)
    assert isinstance(caught.value, ImportError)


def test_a_notebook_shows_the_decision_escaped(held: Run) -> None:
    cell = held.record.cells[0].model_copy(update={"label": "<script>alert(1)</script>"})
    page = Run(held.record.model_copy(update={"cells": (cell, *held.record.cells[1:])}), held.folder)._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page
    assert held.answer().text in held._repr_html_().replace("&#39;", "'")
    assert held.answer().headline in repr(held)


def test_a_decision_follows_the_policy(held: Run) -> None:
    loose = held.recommend({"name": "loose", "minimum": {"accuracy": 0.1}})
    assert loose.policy == "loose"
    impossible = held.recommend({"name": "impossible", "minimum": {"accuracy": 1.0}})
    assert impossible.recommended is None
    assert held.answer(policy={"name": "impossible", "minimum": {"accuracy": 1.0}}).answer == "no"


@pytest.fixture
def pyplot(monkeypatch: pytest.MonkeyPatch) -> Any:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


@pytest.mark.long
def test_tradeoff_draws_every_release_that_has_both(held: Run, pyplot: Any) -> None:
    axes = held.plot.tradeoff("ssim_gain")
    drawn = {(x, y) for bars in axes.containers for x, y in zip(*bars[0].get_data(), strict=True)}
    from fedassay.reports.document.figures.tradeoff import privacy_utility

    figure = next(item for item in privacy_utility(held.record) if item.name == "accuracy_ssim_gain")
    places = [figure.columns.index(name) for name in ("ssim_gain", "accuracy")]
    assert drawn == {(row[places[0]], row[places[1]]) for row in figure.rows}
    axes.figure.canvas.draw()


def test_epsilon_draws_every_number_and_the_unbounded_beyond(held: Run, pyplot: Any) -> None:
    with pytest.raises(
        DataError, match="share no axis; allowed for of: one record replaced, same label; one record added"
    ):
        held.plot.epsilon()
    axes = held.plot.epsilon(of="one record added or removed")
    assert axes.get_xlabel() == "ε (one record added or removed)"
    lines = {line.get_label(): list(line.get_xdata()) for line in axes.lines}
    observed = [value for value in lines["observed"] if not math.isnan(value)]
    known = {cell.privacy.observed for cell in held.record.cells} - {None}
    assert observed
    assert set(observed) <= known
    finite = [value for values in lines.values() for value in values if not math.isnan(value)]
    assert max(lines["accounted"]) == max(finite)
    assert len(axes.get_yticklabels()) == len(lines["observed"])
    axes.figure.canvas.draw()


def test_roc_draws_every_curve_on_what_is_given(held: Run, pyplot: Any) -> None:
    _, given = pyplot.subplots()
    axes = held.plot.roc(ax=given)
    assert axes is given
    curves = [finding for cell in held.record.cells for finding in cell.findings if "roc" in finding.series]
    assert len(axes.lines) == len(curves) + 1
    axes.figure.canvas.draw()


def test_pictures_are_the_grids_of_the_record(held: Run, pyplot: Any) -> None:
    grids = [
        picture
        for cell in held.record.cells
        for finding in cell.findings
        for picture in finding.pictures
        if finding.audit == "reconstruction"
    ]
    axes = held.pictures("reconstruction")
    assert len(axes) == len(grids) > 0
    for ax, picture in zip(axes, grids, strict=True):
        shape = ax.images[0].get_array().shape
        assert shape[:2] == (picture.tile[0] * len(picture.rows), picture.tile[1] * len(picture.columns))
        assert [text.get_text() for text in ax.get_yticklabels()] == list(picture.rows)


def test_a_picture_that_is_gone_is_named(held: Run, tmp_path: Path, pyplot: Any) -> None:
    with pytest.raises(DataError, match="artifacts"):
        Run(held.record, tmp_path).pictures("reconstruction")


def test_what_cannot_be_drawn_says_so(held: Run, pyplot: Any) -> None:
    nothing = Run(held.record.model_copy(update={"cells": ()}), held.folder)
    with pytest.raises(DataError, match="no release has"):
        nothing.plot.tradeoff()
    with pytest.raises(DataError, match="allowed: ssim_gain"):
        held.plot.tradeoff("psnr")
    with pytest.raises(DataError, match="finite epsilon"):
        nothing.plot.epsilon()
    with pytest.raises(DataError, match="no finding has a ROC curve"):
        nothing.plot.roc()
    assert nothing.pictures() == []


def test_comparison_puts_runs_side_by_side(held: Run, record: RunRecord) -> None:
    pytest.importorskip("pandas")
    plan = {**record.plan, "seeds": [7]}
    other = Run(record.model_copy(update={"plan": plan, "cells": record.cells[:2]}), held.folder)
    both = fedassay.compare(held, other)
    assert list(both.cells["run"].unique()) == list(both.names)
    assert len(both.cells) == len(held.cells) + 2
    assert "seeds" in " ".join(both.changes.index)
