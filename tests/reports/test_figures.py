"""Figures say what the data says: positions, bounds, fronts, counts."""

from __future__ import annotations

import itertools
import math
import re
from statistics import NormalDist
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.records.record import CellRecord, Finding, Metric, RunRecord, Series
from fedassay.reports.document.ceiling import KAPPA, ceiling
from fedassay.reports.document.content import contents
from fedassay.reports.document.figures.curves import Named, roc, sweep
from fedassay.reports.document.figures.epsilon import accuracy_epsilon
from fedassay.reports.document.figures.epsilons import epsilons
from fedassay.reports.document.figures.histogram import histogram
from fedassay.reports.document.figures.svg import (
    Figure,
    Scale,
    extra_height,
    legend,
    linear_scale,
    linear_ticks,
    log_scale,
    log_ticks,
    tag,
    text,
)
from fedassay.reports.document.figures.tradeoff import pareto, privacy_utility
from fedassay.reports.document.figures.utility import bytes_up

finite = st.floats(min_value=-1e6, max_value=1e6)
positive = st.floats(min_value=1e-9, max_value=1e9)


def elements(figure: Figure, class_: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(figure.svg)
    return [item for item in root.iter() if class_ in (item.get("class") or "").split()]


@given(st.lists(finite, min_size=1, max_size=20))
def test_a_linear_scale_holds_all_its_values(values: list[float]) -> None:
    scale = linear_scale(values, 10.0, 110.0)
    assert all(10.0 <= scale(value) <= 110.0 for value in values)
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks())


@given(st.lists(positive, min_size=1, max_size=20))
def test_a_log_scale_holds_all_its_values_and_has_ticks(values: list[float]) -> None:
    scale = log_scale(values, 0.0, 100.0)
    assert all(-1e-6 <= scale(value) <= 100 + 1e-6 for value in values)
    assert 1 <= len(scale.ticks(5)) <= 12


@given(finite, st.floats(min_value=1e-3, max_value=1e6))
def test_linear_ticks_are_evenly_spaced_round_numbers(low: float, span: float) -> None:
    ticks = linear_ticks(low, low + span, 5)
    assert 2 <= len(ticks) <= 11
    steps = [b - a for a, b in itertools.pairwise(ticks)]
    assert all(step == pytest.approx(steps[0], rel=1e-5) for step in steps)


def test_a_log_scale_ends_where_floats_do() -> None:
    scale = log_scale([5e-324, 1.7e308], 0.0, 100.0)
    assert 0 < scale.low < scale.high < math.inf
    assert 1 <= len(scale.ticks(5)) <= 12


def test_log_ticks_are_thinned() -> None:
    assert log_ticks(1e-12, 1, 5) == [1e-12, 1e-9, 1e-6, 1e-3, 1.0]


def test_attributes_and_text_are_escaped() -> None:
    assert tag("a", b='"<&') == '<a b="&quot;&lt;&amp;"/>'
    assert text(0, 0, "<b>") == '<text x="0" y="0" text-anchor="start">&lt;b&gt;</text>'


def test_every_figure_is_xml_with_a_row_for_every_mark(record: RunRecord) -> None:
    for figure in contents(record).figures:
        for svg in filter(None, (figure.svg, figure.narrow)):
            root = ElementTree.fromstring(svg)
            assert root.get("role") == "img"
            assert "nan" not in svg.lower()
            assert "style=" not in svg
        assert figure.rows
        assert all(len(row) == len(figure.columns) for row in figure.rows)


def test_figures_stay_within_their_frame(record: RunRecord) -> None:
    for figure in contents(record).figures:
        root = ElementTree.fromstring(figure.svg)
        width, height = (float(part) for part in (root.get("viewBox") or "").split()[2:])
        for item in root.iter():
            for name, limit in (("cx", width), ("x1", width), ("x2", width), ("cy", height), ("y1", height)):
                value = item.get(name)
                assert value is None or -1 <= float(value) <= limit + 1, (figure.name, item.tag, name, value)


def test_what_several_kinds_of_epsilon_are_of_stands_below_the_plot(build_cell: Any) -> None:
    told = Finding(
        audit="membership",
        verdict="leak",
        reason="r",
        metrics={"auc": Metric(value=0.9, low=0.8, high=0.95, n=40)},
    )
    cells = [
        build_cell(None, name, name, 1.0, 0, findings=(told,), utility={"accuracy": 0.8})
        for name in ("fedpft", "fedcgs")
    ]
    (figure,) = privacy_utility(RunRecord(plan={}, environment={}, cells=tuple(cells)))
    width = float((ElementTree.fromstring(figure.svg).get("viewBox") or "").split()[2])
    for item in elements(figure, "tick"):
        # Letters of 11 pixels are some five wide.
        end = float(item.get("x") or 0) + 5 * len(item.text or "") * (item.get("text-anchor") == "start")
        assert end <= width, item.text
    for name, kind in (("fedpft", "one record replaced, same label"), ("fedcgs", "one record added or removed")):
        assert f"ε of {name}: {kind}." in figure.note


def _beyond_its_ledger(cell: CellRecord) -> CellRecord:
    """The refuted cell with an attack that shows more than is accounted; others as they are."""
    if cell.label != "released":
        return cell
    return cell.model_copy(update={"privacy": cell.privacy.model_copy(update={"observed": 9.0, "mu": 1.0})})


def test_the_epsilon_plot_puts_the_unbounded_beyond_the_break_and_the_rest_on_its_axis(record: RunRecord) -> None:
    figure = epsilons(record)
    assert figure is not None
    rows = {(row[0], row[2]): row for row in figure.rows}
    # A claim that is too small is disproved by what is really spent, which an attack does not exceed.
    assert rows["released", 0.5][4:7] == (0.5, 4.46, 3.12)
    # Where an attack shows more than the ledger adds up to, the ledger is wrong: nothing is drawn of it.
    exceeded = epsilons(record.model_copy(update={"cells": tuple(map(_beyond_its_ledger, record.cells))}))
    assert exceeded is not None
    (refuted,) = (row for row in exceeded.rows if row[0] == "released")
    assert refuted[4:9] == (0.5, None, 9.0, None, None)
    assert rows["fedlog", 1.0][5] == math.inf
    tips = [float(re.split("[ ,]", item.get("points") or "")[2]) for item in elements(figure, "accounted")]
    marked = [row for row in figure.rows if row[5] is not None]
    drawn = list(zip(tips[: len(marked)], marked, strict=True))  # without the legend's
    unbounded = [x for x, row in drawn if row[5] == math.inf]
    bounded = [x for x, row in drawn if row[5] != math.inf]
    assert len(set(unbounded)) == 1
    assert max(bounded) < unbounded[0] - 20
    for standing in {row[-2:] for _, row in drawn}:
        order = sorted((float(row[5]), x) for x, row in drawn if row[-2:] == standing)  # type: ignore[arg-type]
        assert [x for _, x in order] == sorted(x for _, x in order)


def test_guarantees_that_speak_of_unlike_neighbours_share_no_axis(build_cell: Any) -> None:
    """Each adjacency and unit has an axis and a line that names it; one alone needs no name."""
    pair = [build_cell(None, name, name, epsilon, 0) for name in ("fedpft", "fedcgs") for epsilon in (1.0, 8.0)]
    bare = build_cell(None, "raw_features", "raw_features", math.inf, 0)
    both = RunRecord(plan={}, environment={}, cells=(bare, *pair))
    figure = epsilons(both)
    assert figure is not None
    assert figure.svg.count("Neighbours: ") == 2
    assert {row[0]: row[-2:] for row in figure.rows if row[2] == 1.0} == {
        "fedpft": ("replace_one_same_label", "record"),
        "fedcgs": ("add_remove", "record"),
    }
    drawn = accuracy_epsilon(both)
    # What claims nothing is the reference in each.
    assert [{row[0] for row in each.rows} for each in drawn] == [
        {"raw_features", "fedpft"},
        {"raw_features", "fedcgs"},
    ]
    assert len({each.name for each in drawn}) == 2
    alone = RunRecord(plan={}, environment={}, cells=(bare, *pair[:2]))
    single = epsilons(alone)
    assert single is not None
    assert "Neighbours: " not in single.svg
    assert [each.name for each in accuracy_epsilon(alone)] == ["accuracy_epsilon"]


def test_marks_say_their_values_under_a_pointer(record: RunRecord) -> None:
    for figure in (epsilons(record), *accuracy_epsilon(record), *privacy_utility(record)):
        assert figure is not None
        # The first title is the figure's own.
        titles = [
            item.text or ""
            for item in ElementTree.fromstring(re.sub(' xmlns="[^"]*"', "", figure.svg)).iter("title")
        ]
        assert len(titles) == 1 + len(figure.rows), figure.name
        assert all(title in figure.description for title in titles[1:])


def test_the_reconstruction_ceiling_is_the_closed_form(record: RunRecord) -> None:
    figure = epsilons(record)
    assert figure is not None
    ceilings = {row[7]: row[8] for row in figure.rows if row[7] is not None}
    normal = NormalDist()
    expected = {mu: normal.cdf(normal.inv_cdf(KAPPA) + float(mu)) for mu in (2.1, 0.27)}
    assert ceilings == pytest.approx(expected)
    assert ceiling(math.inf) == 1.0
    assert all(row[8] is None for row in figure.rows if row[7] is None)


def test_without_a_finite_epsilon_there_is_no_epsilon_plot(build_cell: Any) -> None:
    cell = build_cell(None, "fedpft", "fedpft", math.inf, 0)
    assert epsilons(RunRecord(plan={}, environment={}, cells=(cell,))) is None


def test_an_observation_of_zero_is_drawn_at_the_left_edge(build_cell: Any) -> None:
    cell = build_cell(None, "fedpft", "fedpft", 1.0, 0, observed=0.0)
    figure = epsilons(RunRecord(plan={}, environment={}, cells=(cell,)))
    assert figure is not None
    assert "observed at least 0" in figure.description
    assert len(elements(figure, "observed")) == 2  # the mark and its key


@given(st.lists(st.tuples(finite, st.floats(min_value=0, max_value=1)), min_size=1, max_size=12))
def test_the_front_is_what_no_other_point_beats(points: list[tuple[float, float]]) -> None:
    front = pareto(points)
    assert any(front)
    for point, on_front in zip(points, front, strict=True):
        beaten = any(o[0] <= point[0] and o[1] >= point[1] and o != point for o in points)
        assert on_front is not beaten


def test_inconclusive_cells_are_named_and_not_placed(record: RunRecord) -> None:
    figure = next(item for item in privacy_utility(record) if item.name == "accuracy_ssim_gain")
    placed = {(row[0], row[2]) for row in figure.rows}
    assert placed == {("raw_features", math.inf), ("fedpft", math.inf), ("dp", 10.0), ("dp", 1.0)}
    # fedpft's inconclusive finding has the larger gain: it must not count.
    gain = next(row[4] for row in figure.rows if row[0] == "fedpft")
    assert gain == pytest.approx(-0.014)
    assert "Not placed, since not measured or unbounded (the table says why): fedcgs ∞" in figure.note


def test_accuracy_and_bytes(record: RunRecord) -> None:
    rows = [row for figure in accuracy_epsilon(record) for row in figure.rows]
    row = next(row for row in rows if row[0] == "dp" and row[2] == 10.0)
    assert row[4:8] == (pytest.approx(0.906), pytest.approx(0.904), pytest.approx(0.908), 2)
    sizes = bytes_up(record)
    assert sizes is not None
    assert {row[0]: row[4] for row in sizes.rows}["feddiff"] == 5_840_000.0


def test_names_of_rows_keep_to_their_room(build_cell: Any) -> None:
    names = ("fedcgs", "a method whose label nobody could read at a glance")
    cells = [
        build_cell(None, "fedcgs", "fedcgs", epsilon, 0, bytes=1000.0 / epsilon).model_copy(update={"label": name})
        for name in names
        for epsilon in (1, 8)
    ]
    figure = bytes_up(RunRecord(plan={}, environment={}, cells=tuple(cells)))
    assert figure is not None
    shown = [item.text or "" for item in elements(figure, "point-label")]
    assert shown[:2] == ["fedcgs 1", "fedcgs 8"]
    assert max(map(len, shown)) == 26
    for epsilon in (1, 8):
        assert f"{names[1]}, ε = {epsilon} (one record added or removed): " in figure.svg
    assert figure.note.endswith(" ε: one record added or removed.")


def test_the_histogram_counts_every_score_once() -> None:
    scores = (0.2, 0.99999, 1.0, 1.5, 2.0, 2.0)
    figure = histogram("h", "cell", Series(title="s", columns={"generated": scores, "heldout": (1.9,) * 6}))
    assert figure is not None
    assert sum(int(row[2]) for row in figure.rows) == len(scores)  # type: ignore[arg-type]
    assert sum(int(row[3]) for row in figure.rows) == 6  # type: ignore[arg-type]
    below = sum(int(row[2]) for row in figure.rows if float(row[1]) <= 1.0)  # type: ignore[arg-type]
    assert below == 2
    assert "2 below the threshold" in figure.description
    assert len(elements(figure, "s1")) >= 2


def test_a_histogram_without_scores_is_none() -> None:
    assert histogram("h", "cell", Series(title="s", columns={"generated": (None, "inf")})) is None


def test_roc_leaves_out_what_a_log_axis_cannot_hold() -> None:
    series = Series(title="r", columns={"fpr": (0.0, 0.001, 0.01, 1.0), "tpr": (0.0, 0.0, 0.5, 1.0)})
    (figure,) = roc("r", "t", [Named("a", series)])
    assert figure.rows == (("a", 0.01, 0.5), ("a", 1.0, 1.0))
    assert "0.500 of members found at 0.0100" in figure.description
    assert roc("r", "t", [Named("a", Series(title="", columns={"fpr": (0.0,), "tpr": (0.0,)}))]) == ()


@given(st.lists(st.text("ab ,ε", min_size=1, max_size=200), min_size=1, max_size=8))
def test_a_legend_keeps_to_its_width_and_says_every_name_whole(names: list[str]) -> None:
    drawn = legend([(name, index) for index, name in enumerate(names)], 50.0, 100.0, 420.0)
    texts = [ElementTree.fromstring(each) for each in drawn if each.startswith("<text")]
    assert all(float(item.get("x") or 0) + 6.2 * len(item.text or "") <= 420.0 for item in texts)
    assert len({(item.get("x"), item.get("y")) for item in texts}) == len(texts)
    said = "".join(item.text or "" for item in texts)
    assert said.replace(" ", "") == "".join(names).replace(" ", "")
    lowest = max(float(item.get("y") or 0) for item in texts)
    assert lowest <= 100.0 + extra_height([(name, 0) for name in names], 420.0)


def test_a_band_reaches_down_to_the_axis_where_its_low_end_is_zero() -> None:
    columns = {
        "fpr": (0.0, 0.02, 0.1, 1.0),
        "tpr": (0.0, 0.1, 0.5, 1.0),
        "tpr_low": (0.0, 0.0, 0.2, 0.9),
        "tpr_high": (0.2, 0.3, 0.8, 1.0),
    }
    (figure,) = roc("r", "title", [Named("a", Series(title="s", columns=columns))])
    (band,) = elements(figure, "band")
    points = [tuple(map(float, each.split(","))) for each in (band.get("points") or "").split()]
    assert [x for x, _ in points[:3]] == [x for x, _ in reversed(points[3:])]
    assert points[-1][1] == max(y for _, y in points)


def test_many_curves_are_spread_over_several_plots() -> None:
    series = Series(title="r", columns={"fpr": (0.01, 1.0), "tpr": (0.5, 1.0)})
    figures = roc("r", "t", [Named(str(i), series) for i in range(11)])
    assert [figure.name for figure in figures] == ["r_1", "r_2"]
    assert len({row[0] for figure in figures for row in figure.rows}) == 11


def test_a_sweep_breaks_its_line_where_nothing_was_measured() -> None:
    columns = {"n": (1, 2, 3, 4, 5), "error": (1e-6, 1e-5, None, 0.1, 0.2)}
    figure = sweep("s", "cell", Series(title="Error", columns=columns))
    assert figure is not None
    assert len([item for item in elements(figure, "line")]) == 2
    assert "not measured at 3" in figure.description
    assert sweep("s", "cell", Series(title="Error", columns={"n": (1,), "error": (None,)})) is None


def test_a_scale_maps_its_ends() -> None:
    scale = Scale(0.1, 10.0, 0.0, 100.0, log=True)
    assert [scale(value) for value in (0.1, 1.0, 10.0)] == pytest.approx([0.0, 50.0, 100.0])
