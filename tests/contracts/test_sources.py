"""Papers are named by their authors and where they appeared, never by a number of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "methods", "attacks", "audits", "reports", "configs", "docs", "benchmarks", "tests")
NUMBERED = re.compile(r"\bpapers?\s+#?\d{3}\b", re.IGNORECASE)
# The four that the methods are of, and with it the citation of each.
PAPERS = {
    "fedpft": "Parametric Feature Transfer: One-shot Federated Learning with Foundation Models",
    "fedcgs": "Capture Global Feature Statistics for One-Shot Federated Learning",
    "fedlog": "FedLog: Personalized Federated Classification with Less Communication and More Flexibility",
    "feddiff": "Navigating Heterogeneity and Privacy in One-Shot Federated Learning with Diffusion Models",
}


def texts() -> Iterator[Path]:
    """Every text of the project, links not followed."""
    yield from ROOT.glob("*.md")
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in {".py", ".md", ".yaml", ".j2", ".js"} and path != Path(__file__):
                yield path


def test_no_paper_is_cited_by_a_number_of_ours() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in texts()
        for match in NUMBERED.finditer(path.read_text(encoding="utf-8"))
    }
    assert not found


def test_the_papers_of_the_methods_are_cited_whole_in_the_method_and_in_one_table() -> None:
    table = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8").split("## The papers\n")[1].split("\n## ")[0]
    for method, title in PAPERS.items():
        source = (ROOT / "methods" / method / "method.py").read_text(encoding="utf-8").split('"""')[1]
        assert f'"{title}"' in " ".join(source.split()), method
        assert title in table, method
