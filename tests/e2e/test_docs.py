"""The documentation works: every block runs as it stands, in its page's order, and the site builds cleanly.

A page's blocks share one empty folder. `yaml` with a title is a file of that name; `sh` is run by bash and
`python` by Python, both must succeed; `<!-- exit 1 -->` above a block says that it exits with 1,
`<!-- needs NAME -->` that it needs a program or a package, `<!-- slow: why -->` on the page that it takes minutes.
`text` is not run.
"""

from __future__ import annotations

import html
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import forked
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
LANGUAGES = {"python", "sh", "yaml", "json", "toml", "text", "markdown", "bibtex"}

_FENCE = re.compile(
    r"(?:^<!-- exit (?P<exit>\d+) -->\n)?(?:^<!-- needs (?P<needs>\S+) -->\n)?"
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str | None
    code: str
    exit: int
    needs: str | None


def _blocks(page: Path) -> Iterator[Block]:
    for found in _FENCE.finditer(page.read_text(encoding="utf-8")):
        exit_code = int(found["exit"] or 0)
        yield Block(found["language"], found["title"], found["code"], exit_code, found["needs"])


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _pages() -> list[object]:
    marked = []
    for page in PAGES:
        slow = "<!-- slow" in page.read_text(encoding="utf-8")
        marked.append(pytest.param(page, id=_name(page), marks=[pytest.mark.slow] if slow else []))
    return marked


def _there(name: str) -> bool:
    return shutil.which(name) is not None or importlib.util.find_spec(name) is not None


@pytest.mark.long
@pytest.mark.parametrize("page", _pages())
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    forked.programs(programs)
    folder = tmp_path / "page"
    folder.mkdir()
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    for block in _blocks(page):
        if block.needs is not None and not _there(block.needs):
            continue
        if block.title is not None:
            (folder / block.title).write_text(block.code, encoding="utf-8")
        if block.language not in {"sh", "python"}:
            continue
        runner = ["bash", "-euc"] if block.language == "sh" else [str(programs / "python"), "-c"]
        done = subprocess.run(
            [*runner, block.code], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == block.exit, f"{block.code}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_blocks_of_a_page_are_well_formed(page: Path) -> None:
    fences = len(re.findall(r"^```", page.read_text(encoding="utf-8"), re.MULTILINE))
    blocks = list(_blocks(page))
    assert fences == 2 * len(blocks), "a fence that the tests do not see"
    for block in blocks:
        assert block.language in LANGUAGES, f"{block.language!r} is no language of these pages"
        if block.language == "json":
            json.loads(block.code)
        if block.language == "yaml":
            yaml.safe_load(block.code)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_plans_and_policies_of_a_page_are_accepted(page: Path, tmp_path: Path) -> None:
    from fedassay.execution.captured import scenario_of_adversary
    from fedassay.reports.gate.policy import load_policy

    for block in _blocks(page):
        content = yaml.safe_load(block.code) if block.language == "yaml" else {}
        path = tmp_path / "block.yaml"
        path.write_text(block.code, encoding="utf-8")
        if "data" in content and "name" in content:
            scenario_of_adversary(content, tmp_path, str(path))
        elif {"maximum", "exact_fields", "forbidden_verdicts"} & content.keys():
            load_policy(path)


def test_the_documented_manifest_is_accepted(tmp_path: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    from fedassay.exchange.transcript import load_transcript

    manifest = next(block for block in _blocks(ROOT / "docs" / "transcript.md") if block.language == "json").code
    (tmp_path / "transcript.json").write_text(manifest)
    arrays = {"counts": np.arange(10), "sums": np.zeros((10, 4))}
    save_file(arrays, tmp_path / "00000.safetensors")
    assert load_transcript(tmp_path).classes == 10


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'fedassay[docs]'")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return out


@pytest.mark.slow
def test_the_site_has_a_page_for_everything_registered(site: Path) -> None:
    from fedassay.support.registry import entries

    for kind, folder in (("method", "methods"), ("attack", "attacks"), ("audit", "audits")):
        for name in entries(kind):  # type: ignore[arg-type]
            page = (site / folder / f"{name}.html").read_text(encoding="utf-8")
            assert f'<h1 id="{name}">' in page or f">{name}<" in page
    for page in PAGES:
        if (ROOT / "docs") in page.parents:
            made = (site / page.relative_to(ROOT / "docs")).with_suffix(".html").read_text(encoding="utf-8")
            title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").replace("`", "")
            shown = re.sub(r"<[^>]+>", "", made.partition("<h1")[2].partition("</h1>")[0]).partition(">")[2]
            assert html.unescape(shown).startswith(title), f"another page stands in the place of {page.name}"


@pytest.mark.slow
def test_the_search_works_from_the_disk(site: Path, tmp_path: Path) -> None:
    path = ROOT / "tests" / "reports" / "chromium.py"
    spec = importlib.util.spec_from_file_location("chromium", path)
    assert spec is not None
    assert spec.loader is not None
    chromium = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(chromium)
    if chromium.find() is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium)")
    asked = (
        "new Promise(resolve => { const box = document.querySelector('.md-search__input'); let tries = 0;"
        "const ask = () => { box.focus(); box.value = 'secure aggregation';"
        "box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));"
        "const count = document.querySelectorAll('.md-search-result__item').length;"
        "count || ++tries > 200 ? resolve(count) : setTimeout(ask, 100); }; ask(); })"
    )
    with chromium.Browser(chromium.find(), tmp_path / "profile") as browser:
        for page in ("index.html", "howto/record.html"):
            browser.open(site / page)
            assert browser.evaluate(asked) > 5, page


@pytest.mark.slow
def test_the_site_fetches_nothing(site: Path) -> None:
    for page in site.rglob("*.html"):
        for found in re.findall(
            r"<(?:script|link|img|iframe)[^>]*?(?:src|href)=[\"']?([^\"' >]+)", page.read_text()
        ):
            assert not found.startswith(("http:", "https:", "//")), f"{page.name} fetches {found}"
