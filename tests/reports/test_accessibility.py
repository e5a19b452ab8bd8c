"""The pages under axe-core, in a real browser: contrast, roles, names, labels, headings, keyboard reach.

axe-core comes with the package axe-core-python (of which nothing but `axe.min.js` is used), or is the file that
FEDASSAY_AXE names, such as a newer `axe.min.js` of the npm package axe-core.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest

import fedassay.reports.document.html
from fedassay.records.record import RunRecord, load_record
from fedassay.reports import write_report
from fedassay.reports.document.compare import write_comparison

OTHER = Path(__file__).parents[2] / "docs" / "gallery" / "clinic"
KINDS = ("report", "compare", "other", "thin")
FOLDS = "document.querySelectorAll('details').forEach(fold => { fold.open = true; })"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
RULES = """
(() => {
  const tags = TAGS;
  const colours = axe.getRules(tags)
    .filter(rule => rule.tags.includes("cat.color") && !rule.tags.includes("experimental"))
    .map(rule => rule.ruleId);
  const rules = {
    all: {runOnly: tags},
    structure: {runOnly: tags, rules: Object.fromEntries(colours.map(id => [id, {enabled: false}]))},
    colours: {runOnly: {type: "rule", values: colours}},
  };
  return axe.run(document, {...rules.CHOSEN, resultTypes: ["violations"]})
    .then(found => found.violations.map(each => [each.id, each.help, each.nodes.map(n => n.html.slice(0, 160))]));
})()
"""
STYLE = Path(inspect.getfile(fedassay.reports.document.html)).with_name("templates") / "style.css"


def driver() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chromium", Path(__file__).with_name("chromium.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def axe() -> Path | None:
    """Where axe.min.js is, or None."""
    if named := os.environ.get("FEDASSAY_AXE"):
        return Path(named)
    if importlib.util.find_spec("axe_core_python") is None:
        return None
    return Path(str(resources.files("axe_core_python") / "axe.min.js"))


CHROMIUM = driver()
pytestmark = [
    pytest.mark.skipif(CHROMIUM.find() is None, reason="no Chromium on this machine (apt-get install chromium)"),
    pytest.mark.skipif(axe() is None, reason="no axe-core (pip install axe-core-python)"),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with CHROMIUM.Browser(CHROMIUM.find(), tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(run: Path, record: RunRecord, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A sweep with all that a page can hold, a comparison, the page of another run, one with hardly anything."""
    folder = tmp_path_factory.mktemp("pages")
    other = load_record(OTHER)
    thin = RunRecord(plan={"name": "thin"}, environment={}, cells=())
    return {
        "report": write_report(record, run, "html", folder / "report.html"),
        "compare": write_comparison([(run, record), (run, other)], folder / "compare.html"),
        "other": write_report(other, folder, "html", folder / "other.html"),
        "thin": write_report(thin, folder, "html", folder / "thin.html"),
    }


def complaints(browser: Any, rules: Literal["all", "structure", "colours"] = "all") -> list[list[Any]]:
    """What axe-core has against the page that is open."""
    file = axe()
    assert file is not None
    # As a result the whole library would come back.
    browser.evaluate(file.read_text(encoding="utf-8") + "\n;0")
    found: list[list[Any]] = browser.evaluate(RULES.replace("TAGS", json.dumps(TAGS)).replace("CHOSEN", rules))
    return found


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing(browser: Any, pages: dict[str, Path], kind: str) -> None:
    """Colours, which take most of the time, are looked at where all of them are seen."""
    browser.open(pages[kind])
    assert complaints(browser, "structure") == []
    browser.evaluate(FOLDS)
    assert complaints(browser) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing_in_the_dark(browser: Any, pages: dict[str, Path], kind: str) -> None:
    browser.open(pages[kind], dark=True)
    browser.evaluate(FOLDS)
    assert complaints(browser, "colours") == []


def test_a_theme_changes_colours_alone_and_a_fold_no_colour() -> None:
    screen, _, _ = STYLE.read_text(encoding="utf-8").partition("@media print")
    blocks = re.findall(r"([^{}]+)\{([^{}]*)\}", screen)
    dark = [held for selector, held in blocks if "data-theme" in selector]
    assert len(dark) == 2
    assert all(name.startswith("--") or name == "color-scheme" for held in dark for name in _properties(held))
    folds = [held for selector, held in blocks if "[open]" in selector]
    assert folds
    assert {name for held in folds for name in _properties(held)} == {"margin-bottom"}


def _properties(block: str) -> list[str]:
    return [part.partition(":")[0].strip() for part in block.split(";") if part.strip()]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing_on_a_phone(browser: Any, pages: dict[str, Path], kind: str) -> None:
    browser.open(pages[kind], width=390)
    browser.evaluate(FOLDS)
    assert complaints(browser) == []


@pytest.mark.long
def test_axe_is_listening(browser: Any, pages: dict[str, Path]) -> None:
    browser.open(pages["report"])
    browser.evaluate("document.documentElement.removeAttribute('lang')")
    browser.evaluate("document.images[0].removeAttribute('alt')")
    browser.evaluate("document.querySelector('.box').removeAttribute('tabindex')")
    assert {"html-has-lang", "image-alt"} <= {each[0] for each in complaints(browser, "structure")}
    browser.open(pages["thin"])
    browser.evaluate("document.documentElement.removeAttribute('lang')")
    browser.evaluate("document.querySelector('h1').style.color = '#ddd'")
    assert {each[0] for each in complaints(browser)} == {"html-has-lang", "color-contrast"}
    assert {each[0] for each in complaints(browser, "structure")} == {"html-has-lang"}
    assert {each[0] for each in complaints(browser, "colours")} == {"color-contrast"}


@pytest.mark.long
def test_every_fold_opens_from_the_keyboard(browser: Any, pages: dict[str, Path]) -> None:
    browser.open(pages["report"])
    browser.evaluate("document.querySelector('details.fold:not([open]) > summary').focus()")
    browser.press("Enter")
    assert browser.evaluate("document.activeElement.parentElement.open") is True
