"""The mission's table: methods by epsilon, every figure beside its yardstick, every empty cell with a reason."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

import fedassay
from fedassay.records.facts import Obstacle
from fedassay.records.record import Finding, Metric, RunRecord, load_record
from fedassay.reports import render
from fedassay.reports.document.compare import write_comparison
from fedassay.reports.document.latex import latex
from fedassay.reports.document.mission.figure import mission_figures
from fedassay.reports.document.mission.lines import line_of, lines
from fedassay.reports.document.mission.shown import Shown, shown, side_by_side
from fedassay.reports.document.mission.strips import strips
from fedassay.reports.document.mission.table import mission_table
from fedassay.reports.words.groups import groups

GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"


@pytest.fixture(scope="module")
def photographs() -> RunRecord:
    return load_record(GALLERY / "photographs")


@pytest.fixture(scope="module")
def table(photographs: RunRecord) -> Shown:
    found = shown(photographs)
    assert found is not None
    return found


def test_eight_columns_and_a_row_for_every_method_at_every_epsilon(photographs: RunRecord, table: Shown) -> None:
    assert [head.title for head in table.headings] == [
        *("Method", "ε", "Accuracy", "Reconstruction", "Inversion", "Copies", "Members", "Claim")
    ]
    assert len(table.rows) == len(photographs.cells)
    assert {len(row.entries) for row in table.rows} == {6}


def test_no_entry_is_empty_without_two_words(table: Shown) -> None:
    for row in table.rows:
        for entry in row.entries:
            assert entry.parts or entry.why or entry.name, row
            assert len(entry.why.split()) <= 3
            assert all(part.text != "–" or part.why for part in entry.parts)


def test_every_likeness_stands_beside_look_alikes_with_interval_and_n(table: Shown) -> None:
    measured = [row.entries[1] for row in table.rows if row.entries[1].parts]
    assert len(measured) == 7
    for entry in measured:
        ssim, psnr, _ = entry.parts
        assert ssim.beside
        assert ssim.interval
        assert psnr.beside
        assert psnr.interval
        assert re.fullmatch(r"n = \d+", entry.count)


def test_undecided_numbers_stand_there_with_their_reason(photographs: RunRecord) -> None:
    found = {(line.group.label, line.group.asked.bare): line.images[0] for line in lines(photographs)}
    undecided = found["fedpft", 8.0]
    assert undecided.why == "claim bounds it"
    assert undecided.metrics["ssim"].value is not None
    assert found["fedcgs", float("inf")].decided
    assert found["feddiff", 8.0].why == "no vectors"


def _with(record: RunRecord, *findings: Finding) -> RunRecord:
    """A record of its first private cell alone, with these findings and a claim that bounds nothing."""
    cell = next(cell for cell in record.cells if cell.epsilon != float("inf"))
    privacy = cell.privacy.model_copy(update={"verdict": "inconclusive"})
    return record.model_copy(
        update={"cells": (cell.model_copy(update={"findings": findings, "privacy": privacy}),)}
    )


def _finding(verdict: str, ssim: float, selection: str = "all", **given: object) -> Finding:
    return Finding(
        audit="reconstruction",
        attack="feature_diffusion",
        selection=selection,
        verdict=verdict,  # type: ignore[arg-type]
        reason="said so",
        metrics={"ssim": Metric(value=ssim, n=20), "ssim_gain": Metric(value=ssim - 0.3, n=20)},
        baseline={"ssim": Metric(value=0.3, n=20)},
        **given,  # type: ignore[arg-type]
    )


def test_a_leak_speaks_before_a_closer_picture_that_decides_nothing(photographs: RunRecord) -> None:
    record = _with(
        photographs, _finding("inconclusive", 0.9), _finding("leak", 0.4), _finding("no_leak_found", 0.5)
    )
    line = lines(record)[0].images[0]
    assert line.verdict == "leak"
    assert line.metrics["ssim"].value == 0.4


def test_an_artificial_worst_record_is_no_member() -> None:
    run = load_record(GALLERY / "demonstration")
    assert "worst_case" in [finding.selection for cell in run.cells for finding in cell.findings]
    for line in (line_of(group) for group in groups(run)):
        assert line.members.finding is None or line.members.finding.selection != "worst_case"


def test_images_of_everybody_speak_before_the_best_of_them(photographs: RunRecord) -> None:
    record = _with(photographs, _finding("leak", 0.8, "oracle"), _finding("leak", 0.4, "all"))
    assert lines(record)[0].images[0].metrics["ssim"].value == 0.4


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("no_power", "few records"),
        ("worse_than_baseline", "too weak"),
        ("control_missed", "control missed"),
        ("other_features", "own features"),
        ("crashed", "attack crashed"),
    ],
)
def test_an_obstacle_is_two_words(photographs: RunRecord, kind: str, words: str) -> None:
    record = _with(photographs, _finding("inconclusive", 0.4, obstacle=Obstacle(kind=kind)))  # type: ignore[arg-type]
    assert lines(record)[0].images[0].why == words


def test_a_trunk_of_the_users_own_is_named_in_the_column(photographs: RunRecord) -> None:
    plan = {**photographs.plan, "similarity": {"lpips": {"net": "squeeze", "trunk": "somewhere/mine.pt"}}}
    found = shown(photographs.model_copy(update={"plan": plan}))
    assert found is not None
    assert found.headings[3].parts[2] == "LPIPS (trunk mine.pt)"


def test_csv_and_data_frame_hold_the_same_rows(photographs: RunRecord) -> None:
    rows = list(csv.DictReader(io.StringIO(mission_table(photographs).csv())))
    frame = fedassay.load(GALLERY / "photographs").mission
    assert len(set(frame.columns)) == len(frame.columns)
    assert list(frame.columns) == list(rows[0])
    assert len(rows) == len(frame) == 14
    assert float(rows[0]["reconstruction_ssim_lookalikes"]) == frame["reconstruction_ssim_lookalikes"][0]
    assert frame["reconstruction_why"][2] == "claim bounds it"


def _columns(row: str) -> int:
    """How many columns a row of LaTeX fills."""
    spans = sum(int(width) - 1 for width in re.findall(r"\\multicolumn\{(\d+)\}", row))
    return row.count(" & ") + 1 + spans


def test_latex_fills_every_column_of_every_row(photographs: RunRecord) -> None:
    text = latex(photographs)
    layout = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)
    assert layout is not None
    rows = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert {_columns(row) for row in rows} == {len(layout[1])}
    assert "one record replaced, same label" in text
    assert r"\caption" in text
    assert r"\textbf{0.525} / 0.315" in text
    assert "[0.460, 0.559]" in text
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize("name", ["photographs", "captured"])
def test_names_are_text_and_no_commands(name: str) -> None:
    record = load_record(GALLERY / name)
    cell = record.cells[0].model_copy(update={"label": "50%_of {a}\\input & ~^$#"})
    text = latex(record.model_copy(update={"cells": (cell, *record.cells[1:])}))
    assert r"50\%\_of \{a\}\textbackslash{}input \& \textasciitilde{}\textasciicircum{}\$\#" in text


def test_latex_of_a_run_without_images_has_a_row_a_cell_and_its_relation() -> None:
    record = load_record(GALLERY / "claims")
    assert shown(record) is None
    rows = [line for line in latex(record).splitlines() if line.endswith(r" \\")][1:]
    assert len(rows) == len(record.cells)
    assert {row.count(" & ") for row in rows} == {8}
    assert any("one record added or removed" in row for row in rows)


def test_two_sweeps_stand_in_one_table(photographs: RunRecord, tmp_path: Path) -> None:
    other = photographs.model_copy(
        update={"plan": {**photographs.plan, "name": "again", "similarity": {"lpips": {"trunk": "mine.pt"}}}}
    )
    data = side_by_side([("photographs", photographs), ("again", other)])
    assert data is not None
    assert len(data.rows) == 28
    methods = [row.method for row in data.rows if row.first]
    assert methods[:4] == [
        "raw_features, photographs",
        "raw_features, again",
        "fedpft, photographs",
        "fedpft, again",
    ]
    assert data.headings[3].parts[2] == "LPIPS / LPIPS (trunk mine.pt)"
    runs = [(tmp_path / "a", photographs), (tmp_path / "b", other)]
    written = {name: write_comparison(runs, tmp_path / name, name).read_text() for name in ("md", "latex", "csv")}
    assert written["md"].count("| fedpft, again |") == 3
    assert "fedpft, again" in written["latex"]
    rows = list(csv.DictReader(io.StringIO(written["csv"])))
    assert [row["run"] for row in rows] == ["photographs"] * 14 + ["again"] * 14
    assert "no run has images" in str(_refused(tmp_path))


def _refused(tmp_path: Path) -> fedassay.PlanError:
    claims = load_record(GALLERY / "claims")
    with pytest.raises(fedassay.PlanError) as raised:
        write_comparison([(tmp_path, claims), (tmp_path, claims)], tmp_path / "x", "md")
    return raised.value


def test_every_measured_point_is_drawn_on_one_axis_beside_its_look_alikes(photographs: RunRecord) -> None:
    (figure,) = mission_figures(photographs)
    rows = [dict(zip(figure.columns, row, strict=True)) for row in figure.rows]
    accuracy = [row for row in rows if row["panel"] == "accuracy"]
    images = [row for row in rows if row["panel"] == "reconstruction"]
    assert (len(accuracy), len(images)) == (14, 7)
    assert {row["at_epsilon"] for row in images if row["label"] == "fedpft"} == {float("inf"), 8.0, 1.0}
    assert all(row["lookalikes"] is not None for row in images)
    assert figure.svg.count("hollow") == sum(bool(row["undecided"]) for row in images) == 4
    moved = next(row for row in images if row["label"] == "fedcgs" and row["epsilon"] == 8.0)
    assert moved["converted"] == "yes"
    # Replacing is removing and adding: twice the mu, and more than twice the epsilon.
    assert 16 < moved["at_epsilon"] < 20
    assert "fedcgs (converted)" in figure.svg


def test_a_strip_shows_one_private_image_at_every_epsilon(photographs: RunRecord) -> None:
    found = {strip.method: strip for strip in strips(GALLERY / "photographs", photographs)}
    assert set(found) == {"raw_features", "fedpft", "fedcgs"}
    heads = [shot.head for shot in found["fedpft"].shots]
    assert heads == ["private image", "look-alike", "ε = ∞", "ε = 8", "ε = 1"]
    assert all(shot.tile is not None for shot in found["fedpft"].shots)
    assert [shot.open for shot in found["fedpft"].shots][-2:] == [True, True]
    assert strips(GALLERY / "photographs", photographs.model_copy(update={"redacted": True})) == ()


def test_a_run_of_generators_alone_has_the_table() -> None:
    record = load_record(GALLERY / "quickstart")
    alone = [
        cell.model_copy(update={"findings": [each for each in cell.findings if each.audit == "memorization"]})
        for cell in record.cells
        if cell.method == "feddiff"
    ]
    plan = {**record.plan, "audits": [{"memorization": {}}]}
    found = shown(record.model_copy(update={"plan": plan, "cells": alone}))
    assert found is not None
    assert [row.entries[1].name for row in found.rows] == ["nearest samples"] * 3
    without = [cell.model_copy(update={"findings": []}) for cell in alone]
    assert shown(record.model_copy(update={"plan": plan, "cells": without})) is None


def test_markdown_and_page_hold_the_table(photographs: RunRecord) -> None:
    text = render(GALLERY / "photographs", photographs, "md")
    rows = [line for line in text.splitlines() if line.startswith("| fedpft | ")]
    assert any("claim bounds it" in row and "0.425 / 0.484" in row for row in rows)
    page = render(GALLERY / "photographs", photographs, "html")
    assert page.index('id="t-mission"') < page.index('class="next"')
