"""The pages in a real browser: quiet, whole, sortable, and fit for a phone."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedassay.records.record import RunRecord, load_record
from fedassay.reports import write_report
from fedassay.reports.document.compare import write_comparison
from fedassay.reports.document.index import write_index


def driver() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chromium", Path(__file__).with_name("chromium.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHROMIUM = driver()
pytestmark = pytest.mark.skipif(
    CHROMIUM.find() is None, reason="no Chromium on this machine (apt-get install chromium)"
)

PHOTOGRAPHS = Path(__file__).parents[2] / "docs" / "gallery" / "photographs"
SECTIONS = ["verdicts", "epsilons", "utility", "reconstruction", "attacks", "ledger", "basis"]
FIRST_COLUMN = "[...document.querySelectorAll('#t-utility tbody')].map(b => b.rows[0].cells[{index}].dataset.sort)"
OVERFLOW = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with CHROMIUM.Browser(CHROMIUM.find(), tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(run: Path, record: RunRecord, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(record, run, "html", tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def compared(run: Path, record: RunRecord, tmp_path_factory: pytest.TempPathFactory) -> Path:
    shorter = record.model_copy(update={"cells": record.cells[:5]})
    return write_comparison([(run, record), (run, shorter)], tmp_path_factory.mktemp("page") / "compare.html")


@pytest.fixture(scope="module")
def indexed(run: Path, record: RunRecord, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    shutil.copytree(run, folder / "a-name-that-somebody-made-long-enough-to-fill-a-phone")
    (folder / "broken").mkdir()
    (folder / "broken" / "record.json").write_text("{")
    return write_index(folder)


def complaints(browser: Any) -> list[dict[str, Any]]:
    """Console errors, exceptions, and what the content security policy blocked."""
    wanted = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}
    return [event for event in browser.events if event.get("method") in wanted]


def requests(browser: Any) -> list[str]:
    """Addresses asked for, the page itself and data URIs apart."""
    urls = [
        event["params"]["request"]["url"]
        for event in browser.events
        if event.get("method") == "Network.requestWillBeSent"
    ]
    return [url for url in urls if not url.startswith(("data:", "file:"))] + [
        url for url in urls if url.startswith("file:") and not url.endswith(("report.html", "compare.html"))
    ]


@pytest.mark.parametrize("dark", [False, True])
def test_no_console_message_and_no_request(browser: Any, report: Path, compared: Path, dark: bool) -> None:
    for page in (report, compared):
        browser.open(page, dark=dark)
        assert browser.evaluate("document.readyState") == "complete"
        assert complaints(browser) == []
        assert requests(browser) == []
        assert browser.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")


def test_sections_are_there_and_shown(browser: Any, report: Path) -> None:
    browser.open(report)
    heights = browser.evaluate(f"{SECTIONS}.map(id => document.getElementById(id).getBoundingClientRect().height)")
    assert len(heights) == 7
    assert min(heights) > 100
    assert browser.evaluate("document.querySelectorAll('main > section').length") == 8


def test_tables_sort_by_number_with_what_was_not_measured_last(browser: Any, report: Path) -> None:
    browser.open(report)
    titles = browser.evaluate("[...document.querySelectorAll('#t-utility th')].map(h => h.textContent)")
    index = titles.index("SSIM gain over baseline")
    press = f"document.querySelectorAll('#t-utility th button')[{index}].click()"
    orders = []
    for _ in range(2):
        browser.evaluate(press)
        orders.append(browser.evaluate(FIRST_COLUMN.format(index=index)))
    state = browser.evaluate(f"document.querySelectorAll('#t-utility th')[{index}].ariaSort")
    assert state == "descending"
    measured = [[float(value) for value in order if value] for order in orders]
    assert measured[0] == sorted(measured[0])
    assert measured[1] == sorted(measured[0], reverse=True)
    assert len(measured[0]) == 4
    assert all(value == "" for order in orders for value in order[4:])


def test_infinity_sorts_as_the_largest_epsilon(browser: Any, report: Path) -> None:
    browser.open(report)
    browser.evaluate("document.querySelectorAll('#t-utility th button')[1].click()")
    order = [float(value) for value in browser.evaluate(FIRST_COLUMN.format(index=1))]
    assert order == sorted(order)
    assert order[-1] == float("inf")


def test_a_baseline_stays_under_its_measurement(browser: Any, report: Path) -> None:
    browser.open(report)
    browser.evaluate("document.querySelectorAll('#t-reconstruction th button')[0].click()")
    classes = browser.evaluate(
        "[...document.querySelectorAll('#t-reconstruction tbody tr')].map(r => r.className)"
    )
    assert classes == ["row-measured", "row-baseline"] * (len(classes) // 2)


def test_a_table_sorts_from_the_keyboard(browser: Any, report: Path) -> None:
    browser.open(report)
    browser.evaluate("document.querySelector('#t-utility th button').focus()")
    browser.press("Enter")
    assert browser.evaluate("document.querySelector('#t-utility th').ariaSort") == "ascending"
    assert browser.evaluate("document.getElementById('said').textContent") == "Sorted by Method, ascending"


def test_the_first_tab_skips_to_the_answer_and_the_second_reaches_the_sections(browser: Any, report: Path) -> None:
    browser.open(report)
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.getAttribute('href')") == "#decision"
    assert browser.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.matches('nav.sections a')") is True


OPEN = """document.querySelectorAll('details').forEach(fold => { fold.open = true; });
new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"""
"""Opens every fold, and waits until the page has seen what that made of its tables."""
STOPS = """[...document.querySelectorAll('a[href], button, summary, [tabindex]')]
  .filter(e => e.tabIndex >= 0 && e.checkVisibility())"""


def test_the_head_of_a_table_is_one_stop_and_arrows_go_along_it(browser: Any, report: Path) -> None:
    browser.open(report)
    stops = "[...document.querySelectorAll('table')].map(t => t.querySelectorAll('.sort[tabindex=\"0\"]').length)"
    heads = browser.evaluate("document.querySelectorAll('table:has(.sort)').length")
    assert heads > 5
    assert sorted(browser.evaluate(stops))[-heads:] == [1] * heads
    browser.evaluate("document.querySelector('#t-utility th button').focus()")
    titles = browser.evaluate("[...document.querySelectorAll('#t-utility th')].map(h => h.textContent)")
    for key, index in (("ArrowLeft", 0), ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", -1)):
        browser.press(key)
        assert browser.evaluate("document.activeElement.textContent") == titles[index]
    browser.press("Enter")
    assert browser.evaluate("document.querySelector('#t-utility th:last-child').ariaSort") == "ascending"
    assert sorted(browser.evaluate(stops))[-heads:] == [1] * heads


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("photographs") / "report.html"
    return write_report(load_record(PHOTOGRAPHS), PHOTOGRAPHS, "html", written)


@pytest.mark.long
def test_a_long_page_is_gone_through_by_its_parts(browser: Any, photographs: Path) -> None:
    """Every column and every table was a stop: 313 of them."""
    browser.open(photographs)
    assert browser.evaluate(f"{STOPS}.length") <= 80
    browser.evaluate(OPEN)
    assert browser.evaluate(f"{STOPS}.length") <= 140


BOXES = """[...document.querySelectorAll('.box')].filter(box => box.checkVisibility()).map(box => [
  box.scrollWidth > box.clientWidth + 1, box.tabIndex === 0, box.previousElementSibling.checkVisibility(),
  box.previousElementSibling.textContent])"""


@pytest.mark.parametrize("width", [390, 1280])
def test_a_table_that_is_wider_than_its_place_says_so(browser: Any, photographs: Path, width: int) -> None:
    browser.open(photographs, width=width)
    browser.evaluate(OPEN)
    found = browser.evaluate(BOXES)
    assert len(found) > 10
    assert {wide for wide, *_ in found} == {True, False}
    for wide, stop, sign, words in found:
        assert stop == sign == wide
        assert ("go on to the right" in words) == wide


@pytest.mark.parametrize("width", [390, 1280])
def test_words_in_figures_are_nine_pixels_and_no_label_lies_on_an_error_bar(
    browser: Any, photographs: Path, width: int
) -> None:
    browser.open(photographs, width=width)
    sizes = browser.evaluate(FIGURE_WORDS)
    assert len(sizes) > 100
    assert min(sizes) >= 9
    assert browser.evaluate("document.querySelectorAll('.whisker').length") > 5
    assert browser.evaluate(ON_BARS) == []


FIGURE_WORDS = """[...document.querySelectorAll('svg text')]
  .filter(word => word.checkVisibility() && word.textContent.trim())
  .map(word => {
    const {a, b} = word.getScreenCTM();
    return parseFloat(getComputedStyle(word).fontSize) * Math.hypot(a, b);
  })"""
ON_BARS = """[...document.querySelectorAll('svg.figure')].flatMap(figure => {
  const bars = [...figure.querySelectorAll('.whisker')].map(bar => bar.getBoundingClientRect());
  return [...figure.querySelectorAll('.point-label')].filter(label => {
    const {left, right, top, bottom} = label.getBoundingClientRect();
    return bars.some(b => b.left < right - 1 && b.right > left + 1 && b.top < bottom - 2 && b.bottom > top + 2);
  }).map(label => label.textContent);
})"""
BEYOND = """[...document.querySelectorAll('.options td')].filter(cell => {
  const {left, right, width} = cell.getBoundingClientRect();
  return !width || left < 0 || right > document.documentElement.clientWidth;
}).length"""


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_shows_the_whole_row_of_every_method(browser: Any, photographs: Path, width: int) -> None:
    browser.open(photographs, width=width)
    assert browser.evaluate("document.querySelectorAll('.options td').length") > 30
    assert browser.evaluate(BEYOND) == 0
    named = "[...document.querySelectorAll('.options td')].map(cell => cell.dataset.label)"
    assert "Accuracy" in browser.evaluate(named)


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_no_horizontal_scroll_of_the_page(browser: Any, report: Path, compared: Path, width: int) -> None:
    for page in (report, compared):
        browser.open(page, width=width)
        assert browser.evaluate(OVERFLOW) is False
        browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert browser.evaluate(OVERFLOW) is False


HIDDEN = """[...document.querySelectorAll('#t-runs td')].filter(cell => {
  const {left, right} = cell.getBoundingClientRect();
  return left < 0 || right > document.documentElement.clientWidth;
}).length"""


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_the_index_shows_every_cell_of_a_run(browser: Any, indexed: Path, width: int) -> None:
    """The worst finding and the links are what it is for: on a phone they are not beyond the edge of a table."""
    browser.open(indexed, width=width)
    assert browser.evaluate("document.querySelectorAll('#t-runs td').length") == 7 * 2
    assert browser.evaluate(OVERFLOW) is False
    assert browser.evaluate(HIDDEN) == 0


FALLEN = """[...document.querySelectorAll('td .badge + sup')].filter(mark =>
  mark.getBoundingClientRect().top >= mark.previousElementSibling.getBoundingClientRect().bottom).length"""


@pytest.mark.long
@pytest.mark.parametrize("width", [390, 1280])
def test_a_footnote_stays_beside_its_verdict(browser: Any, width: int, tmp_path: Path) -> None:
    written = write_report(load_record(PHOTOGRAPHS), PHOTOGRAPHS, "html", tmp_path / "report.html")
    browser.open(written, width=width)
    assert browser.evaluate("document.querySelectorAll('td .badge + sup').length") > 20
    assert browser.evaluate(FALLEN) == 0


def test_what_to_type_is_not_broken_over_lines(browser: Any, report: Path) -> None:
    browser.open(report, width=390)
    assert browser.evaluate("document.querySelector('.notice .option').textContent") == "--redact"
    assert browser.evaluate("document.querySelector('.notice .option').getClientRects().length") == 1


def test_a_phone_gets_the_narrow_plots(browser: Any, report: Path) -> None:
    shown = "getComputedStyle(document.querySelector('#f-epsilons .{name}')).display"
    browser.open(report, width=390)
    assert [browser.evaluate(shown.format(name=name)) for name in ("wide", "narrow")] == ["none", "block"]
    size = "parseFloat(getComputedStyle(document.querySelector('#f-epsilons .narrow .tick')).fontSize)"
    scale = "document.querySelector('#f-epsilons .narrow svg').getBoundingClientRect().width / 350"
    assert browser.evaluate(f"{size} * {scale}") >= 10


def test_the_theme_follows_the_system_until_the_reader_chooses(browser: Any, report: Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    browser.open(report, dark=False)
    light = browser.evaluate(paper)
    browser.open(report, dark=True)
    dark = browser.evaluate(paper)
    assert light != dark
    browser.evaluate("document.getElementById('theme').click()")
    assert browser.evaluate(paper) == light
    browser.open(report, dark=True)
    assert browser.evaluate(paper) == light
    browser.evaluate("localStorage.clear()")


def pages_of(file: Path) -> int:
    """Sheets of a PDF, whose page objects Chromium writes uncompressed."""
    return len(re.findall(rb"/Type ?/Page\b", file.read_bytes()))


USUAL = ({"raw_features", "fedpft", "fedcgs", "fedlog", "feddiff"}, {"reconstruction", "message", "dp_claim"})
"""Method entries and audits of the run that shows what this is for."""


def test_a_usual_run_is_printed_on_twelve_sheets(
    browser: Any, run: Path, record: RunRecord, tmp_path: Path
) -> None:
    labels, audits = USUAL
    cells = tuple(
        cell.model_copy(update={"findings": tuple(each for each in cell.findings if each.audit in audits)})
        for cell in record.cells
        if cell.label in labels and cell.seed == record.cells[0].seed
    )
    assert len(cells) >= 9
    usual = record.model_copy(update={"cells": cells, "errors": ()})
    browser.open(write_report(usual, run, "html", tmp_path / "report.html"))
    browser.pdf(tmp_path / "page.pdf")
    assert 1 < pages_of(tmp_path / "page.pdf") <= 12


@pytest.mark.long
@pytest.mark.parametrize(("name", "sheets"), [("photographs", 14), ("quickstart", 12)])
def test_a_run_of_the_gallery_is_printed_on_few_sheets(
    browser: Any, tmp_path: Path, name: str, sheets: int
) -> None:
    folder = PHOTOGRAPHS.with_name(name)
    record = load_record(folder)
    assert len(record.cells) >= 13
    browser.open(write_report(record, folder, "html", tmp_path / "report.html"))
    browser.pdf(tmp_path / "page.pdf")
    assert 1 < pages_of(tmp_path / "page.pdf") <= sheets
    browser.open(tmp_path / "report.html", width=SHEET)
    browser.command("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate(SMALL) == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= SHEET


SHEET = 718
"""Width of A4 without its margins, in CSS pixels: Chromium prints a wider page smaller as a whole."""
SMALL = """
[...document.querySelectorAll('body *')]
  .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
  .filter(e => e.checkVisibility() && !e.closest('svg, sup, .visually-hidden, title'))
  .map(e => [parseFloat(getComputedStyle(e).fontSize) * e.currentCSSZoom * .75, e.tagName + '.' + e.className])
  .filter(([points]) => points < 7.95)
"""


def test_paper_shows_all_words_at_eight_points(browser: Any, report: Path) -> None:
    browser.open(report, width=SHEET)
    words = "[...document.querySelectorAll('.table, .footnotes li, .untested')]"
    on_screen = browser.evaluate(f"{words}.filter(e => e.checkVisibility()).length")
    browser.command("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate(f"{words}.filter(e => e.checkVisibility()).length") >= on_screen > 5
    assert browser.evaluate(SMALL) == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= SHEET


def test_no_figure_is_taller_than_a_sheet(browser: Any, report: Path) -> None:
    browser.open(report, width=703)  # A4 without its margins, in CSS pixels
    browser.command("Emulation.setEmulatedMedia", media="print")
    tall = "[...document.querySelectorAll('svg.figure')].map(f => f.getBoundingClientRect().height)"
    assert max(browser.evaluate(tall)) < 1000


CONTRAST = """
(() => {
  const parse = (words) => words.match(/[\\d.]+/g).map(Number);
  const light = (c) => c.slice(0, 3).map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const e of document.querySelectorAll("main *")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.closest("title, desc")) continue;
    const style = getComputedStyle(e);
    const ink = parse(e.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) bad.push([e.tagName, e.className.baseVal ?? e.className, e.textContent.slice(0, 30), ratio]);
  }
  return bad;
})()
"""


@pytest.mark.parametrize("dark", [False, True])
def test_all_text_has_the_contrast_that_wcag_asks_for(browser: Any, report: Path, dark: bool) -> None:
    browser.open(report, dark=dark)
    assert browser.evaluate(CONTRAST) == []


def test_copying_gives_tab_separated_rows(browser: Any, report: Path) -> None:
    browser.open(report)
    browser.evaluate(
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async t => { window.copied = t; }}})"
    )
    browser.evaluate("document.querySelector('#t-reconstruction .copy').click()")
    rows = browser.evaluate("window.copied").split("\n")
    assert rows[0].split("\t")[:4] == ["Method", "ε", "Seed", "Source"]
    assert len({len(row.split("\t")) for row in rows}) == 1
    assert "0.950 [0.942, 0.958]" in rows[1]


@pytest.mark.long
def test_paper_gets_what_is_open_and_a_line_for_what_is_not(browser: Any, report: Path, tmp_path: Path) -> None:
    browser.open(report)
    browser.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    assert browser.evaluate("document.querySelector('details.key').open") is True
    assert browser.evaluate("document.querySelector('details.plan').open") is False
    browser.command("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate("document.querySelector('#t-utility td').getBoundingClientRect().height") > 5
    closed = (
        "[...document.querySelectorAll('main details.fold:not([open])')].filter(fold => fold.checkVisibility())"
    )
    lines = browser.evaluate(f"{closed}.map(fold => fold.querySelector('.elsewhere').checkVisibility())")
    assert len(lines) > 5
    assert all(lines)
    assert "not printed; record.json" in browser.evaluate(
        "document.querySelector('details.plan summary').textContent"
    )
    assert browser.evaluate("getComputedStyle(document.querySelector('nav.sections')).display") == "none"
