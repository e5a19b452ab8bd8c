"""The page: its sections, its pictures, its silence on the network, its care with hostile text."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import re
import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pydantic import ValidationError

from fedassay.records.record import CellRecord, Finding, Metric, Picture, PictureColumn, RunRecord, Series
from fedassay.reports import render, write_report
from fedassay.reports.document.content import contents
from fedassay.support.errors import PlanError

SECTIONS = ["verdicts", "epsilons", "utility", "reconstruction", "attacks", "ledger", "basis"]
VOID = {"meta", "link", "img", "br", "input"}


class Page(HTMLParser):
    """What the tests look at: tags, their attributes, their nesting, the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def html(run: Path, record: RunRecord) -> str:
    return render(run, record, "html")


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


@pytest.mark.long
def test_seven_sections_in_order_and_well_formed(page: Page) -> None:
    ids = [attributes.get("id") for attributes in page.all("section")]
    assert [name for name in ids if name in SECTIONS] == SECTIONS
    assert page.open == []
    every = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(every) == len(set(every))


def test_nothing_is_fetched(page: Page) -> None:
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, name, value)
        assert not [name for name in attributes if name.startswith("on") or name == "style"]


def test_scripts_and_styles_run_by_their_hash_alone(html: str, page: Page) -> None:
    policy = next(a["content"] or "" for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    for tag in ("script", "style"):
        sources = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.S)
        assert len(sources) == 1
        digest = base64.b64encode(hashlib.sha256(sources[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_every_figure_has_a_text_alternative(html: str, page: Page, record: RunRecord) -> None:
    figures = [a for a in page.all("svg") if a.get("role") == "img"]
    names = contents(record).figures
    first_screen = 2  # the figure of epsilons, wide and narrow
    assert len(figures) == len(names) + sum(bool(figure.narrow) for figure in names) + first_screen
    ids = {attributes.get("id") for _, attributes in page.tags}
    for figure in figures:
        title, description = (figure["aria-labelledby"] or "").split()
        assert {title, description} <= ids
        assert re.search(rf'<desc id="{re.escape(description)}">[^<]{{20,}}</desc>', html)
    assert all(image.get("alt") for image in page.all("img"))


def test_pictures_are_the_tiles_of_the_grid(run: Path, record: RunRecord, page: Page) -> None:
    finding = record.cells[0].findings[0]
    picture = finding.pictures[0]
    grid = Image.open(run / picture.file)
    sources = [image["src"] or "" for image in page.all("img")]
    shown = [Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))) for source in sources]
    pixels = [list(tile.get_flattened_data()) for tile in shown]
    column = [list(grid.crop((0, 8 * row, 8, 8 * row + 8)).get_flattened_data()) for row in range(3)]
    assert any(pixels[at : at + 3] == column for at in range(len(pixels)))
    expected = sum(len(p.rows) * len(p.columns) for c in record.cells for f in c.findings for p in f.pictures)
    # The first screen shows some of them as well: the worst leak, and a strip a method.
    assert len(sources) > expected


def test_numbers_of_the_record_are_on_the_page(page: Page) -> None:
    words = " ".join(page.text.split())
    assert "0.950 [0.942, 0.958]" in words
    assert "0.880 [0.872, 0.888]" in words
    assert "the weights of AlexNet are not available" in words
    assert "out of memory at step 12" in words
    assert "EXACT" in words
    assert "MISSED" in words
    assert "Mironov 2012" in words


def test_the_same_record_gives_the_same_page(run: Path, record: RunRecord, html: str) -> None:
    assert render(run, record, "html") == html


def test_the_plan_on_the_page_is_the_plan(page: Page, record: RunRecord) -> None:
    import yaml

    start = page.text.index("name: sweep")
    plan = yaml.safe_load(page.text[start : page.text.index("Run it again")])
    assert plan["privacy"]["epsilon"] == [math.inf, 10.0, 1.0]
    assert plan["methods"] == record.plan["methods"]


def test_the_papers_of_the_methods_are_named(html: str) -> None:
    assert "arXiv 2503.06962" in html
    assert "Parametric Feature Transfer: One-shot Federated Learning with Foundation Models" in html


def test_sections_without_content_say_why(tmp_path: Path, build_cell: Any) -> None:
    cell = build_cell(None, "fedpft", "fedpft", math.inf, 0, findings=())
    record = RunRecord(plan={"name": "thin", "audits": [{"inversion": {}}]}, environment={}, cells=(cell,))
    text = Page(render(tmp_path, record, "html")).text
    assert "Not part of this plan: it asks for no reconstruction audit." in text
    assert "In the plan, but no cell has a finding" in text
    assert "Nothing to draw: no cell claims, accounts or shows a finite epsilon." in text


def test_a_record_without_cells_still_renders(tmp_path: Path) -> None:
    text = Page(render(tmp_path, RunRecord(plan={}, environment={}, cells=()), "html")).text
    assert "No release was audited." in text


def test_records_hold_no_nan_and_no_ragged_series(build_cell: Any) -> None:
    with pytest.raises(ValidationError, match="allowed: a number"):
        Metric(value=math.nan)
    with pytest.raises(ValidationError, match="one length"):
        Series(title="t", columns={"fpr": (0.1, 1.0), "tpr": (0.5,)})
    cell = build_cell(None, "fedpft", "fedpft", 1.0, 0)
    edited = cell.model_dump(mode="json") | {"utility": {"accuracy": math.nan}}
    with pytest.raises(ValidationError, match="allowed: a number"):
        CellRecord.model_validate(edited)


def test_text_where_numbers_were_expected_does_not_break_the_page(tmp_path: Path, build_cell: Any) -> None:
    columns = {"fpr": (0.1, 1.0, "x"), "tpr": (0.5, None, "inf")}
    odd = {name: Series(title="t", columns=columns) for name in ("roc", "sweep", "scores", "targets", "other")}
    finding = Finding(audit="reconstruction", verdict="leak", reason="", series=odd)
    cell = build_cell(None, "fedpft", "fedpft", 1.0, 0, findings=(finding,))
    record = RunRecord(plan={}, environment={}, cells=(cell,))
    for name in ("html", "md", "sarif", "junit"):
        assert render(tmp_path, record, name)  # type: ignore[arg-type]
    write_report(record, tmp_path, "csv", None)


def test_hostile_text_stays_text(tmp_path: Path, build_cell: Any) -> None:
    evil = '<script>alert(1)</script><img src=x onerror="alert(2)">'
    cell = build_cell(
        None,
        "fedpft",
        "fedpft",
        1.0,
        0,
        findings=(Finding(audit=evil, source=evil, verdict="leak", reason=evil),),
        reason=evil,
        notes=(evil,),
    ).model_copy(update={"label": evil})
    record = RunRecord(plan={"name": evil, "k": evil}, environment={evil: evil}, cells=(cell,))
    page = Page(render(tmp_path, record, "html"))
    assert len(page.all("script")) == 1
    assert not page.all("img")
    assert page.text.count("<script>alert(1)</script>") > 5


def pictured(build_cell: Any, picture: Picture) -> RunRecord:
    finding = Finding(audit="reconstruction", verdict="leak", reason="r", pictures=(picture,))
    return RunRecord(
        plan={},
        environment={},
        cells=(build_cell(None, "raw_features", "raw_features", math.inf, 0, findings=(finding,)),),
    )


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("artifacts/none.png", "the file is not there"),
        ("artifacts/text.png", "the file is not a PNG"),
        ("artifacts/other.png", "the file is 5 x 4 pixels, the record says 16 x 8"),
        ("../outside.png", "the record points outside the run folder"),
        ("artifacts/gif.png", "the file is not a PNG"),
    ],
)
def test_pictures_that_cannot_be_used_are_named(tmp_path: Path, build_cell: Any, file: str, words: str) -> None:
    run = tmp_path / "run"
    (run / "artifacts").mkdir(parents=True)
    (run / "artifacts" / "text.png").write_text("no picture")
    Image.new("L", (5, 4)).save(run / "artifacts" / "other.png")
    Image.new("L", (16, 8)).save(run / "artifacts" / "gif.png", "GIF")
    Image.new("L", (16, 8)).save(tmp_path / "outside.png")
    picture = Picture(file=file, title="t", tile=(8, 8), rows=("a",), columns=(PictureColumn(), PictureColumn()))
    page = Page(render(run, pictured(build_cell, picture), "html"))
    assert words in page.text
    assert not page.all("img")


def test_a_grid_too_large_to_open_is_refused_unread(tmp_path: Path, build_cell: Any) -> None:
    (tmp_path / "artifacts").mkdir()
    # A header alone: a file of 45 bytes that claims 1.6 gigapixels.
    header = b"IHDR" + struct.pack(">IIBBBBB", 40_000, 40_000, 8, 0, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    (tmp_path / "artifacts" / "huge.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk)
    columns = tuple(PictureColumn() for _ in range(10))
    picture = Picture(file="artifacts/huge.png", title="t", tile=(40_000, 4_000), rows=("a",), columns=columns)
    page = Page(render(tmp_path, pictured(build_cell, picture), "html"))
    assert "No pictures" in page.text
    assert not page.all("img")


@pytest.mark.long
def test_write_report_names_what_it_wrote(run: Path, record: RunRecord, tmp_path: Path) -> None:
    for name in ("html", "md", "json", "sarif", "junit"):
        path = write_report(record, run, name, tmp_path / f"report.{name}")
        assert path.read_text(encoding="utf-8") == render(run, record, name)  # type: ignore[arg-type]
    assert (write_report(record, run, "csv", tmp_path / "tables") / "verdicts.csv").is_file()


def test_an_output_that_cannot_be_written_is_one_message(run: Path, record: RunRecord, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanError, match="cannot be written"):
        write_report(record, run, "md", tmp_path / "file" / "report.md")


def test_csv_is_no_document(run: Path, record: RunRecord) -> None:
    with pytest.raises(PlanError, match="folder"):
        render(run, record, "csv")
