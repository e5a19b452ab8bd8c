"""Pages made from runs: reports and evidence rendered from docs/gallery, and the notebooks with their outputs.

A hook of mkdocs (mkdocs.yml). A report is a function of its record, and so is the evidence of each release of the
runs that `EVIDENCE` names: what the gallery shows is what this version of fedassay makes of them. A notebook's
page shows the outputs that it is stored with, figures as files beside it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from fedassay.records.record import load_record
from fedassay.reports.document.html import page
from fedassay.reports.evidence.folder import PAGES, evidence_files
from fedassay.reports.evidence.release import release_of
from fedassay.reports.words.groups import groups
from fedassay.reports.words.naming import slug

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "docs" / "gallery"
NOTEBOOKS = ROOT / "examples" / "notebooks"
EVIDENCE = ("demonstration", "clinic")
"""Runs of whose releases the two pages to sign are shown."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the notebooks after the pages that somebody wrote on using fedassay from Python."""
    pages = [{title(path): f"notebooks/{path.stem}.md"} for path in notebooks()]
    place = next(at for at, entry in enumerate(config.nav or []) if "From Python" in entry) + 1
    config.nav = [*(config.nav or [])[:place], {"Notebooks": pages}, *(config.nav or [])[place:]]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reports and the notebooks' pages."""
    for run in sorted(path.parent for path in RUNS.glob("*/record.json")):
        files.append(File.generated(config, f"gallery/{run.name}.html", content=page(run, load_record(run))))
    for name, text in evidence():
        files.append(File.generated(config, f"gallery/{name}.html", content=text))
    for path in notebooks():
        figures: list[bytes] = []
        text = "\n\n".join(blocks(json.loads(path.read_text(encoding="utf-8")), path.stem, figures))
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=f"{text}\n"))
        for number, figure in enumerate(figures):
            files.append(File.generated(config, f"notebooks/{path.stem}-{number}.png", content=figure))
    return files


def evidence() -> Iterator[tuple[str, str]]:
    """Names and pages of the evidence of each release of some runs, such as `demonstration-average-eps2.5`."""
    for run in EVIDENCE:
        record = load_record(RUNS / run)
        for group in groups(record):
            release = release_of(record, None, group.label, group.asked.bare)
            asked = f"eps{group.asked.bare:g}" if group.asked.finite else "no-noise"
            yield f"{run}-{slug(group.label)}-{asked}", evidence_files(release)[PAGES]


def notebooks() -> list[Path]:
    """The notebooks, in the order of their table on the page for Python."""
    order = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    return sorted(NOTEBOOKS.glob("*.ipynb"), key=lambda path: order.index(f"| `{path.stem}` |"))


def title(path: Path) -> str:
    """The heading of a notebook."""
    first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"]
    return "".join(first).partition("\n")[0].removeprefix("# ")


def blocks(notebook: dict[str, Any], name: str, figures: list[bytes]) -> Iterator[str]:
    """A notebook as Markdown; its figures are put into a list.

    Args:
        notebook: Its contents.
        name: Its name; figure N is the file NAME-N.png.
        figures: Taken in as PNG.
    """
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
            continue
        yield f"```python\n{source}\n```"
        for output in cell["outputs"]:
            data = output.get("data", {})
            if output["output_type"] == "stream":
                yield f"```text\n{''.join(output['text']).rstrip()}\n```"
            elif "image/png" in data:
                words = escape(f"Figure {len(figures) + 1} of this notebook, drawn by the code above")
                yield f"![{words}]({name}-{len(figures)}.png)"
                figures.append(base64.b64decode("".join(data["image/png"])))
            elif "text/html" in data:
                # The line of a run's progress is empty in the end.
                if html := "".join(data["text/html"]).strip():
                    yield f'<div class="output">\n{html}\n</div>'
            elif "text/plain" in data:
                yield f"```text\n{''.join(data['text/plain'])}\n```"
