"""Each number that the README promises stands on the page it links, or follows from a record that is kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedassay.records.record import CellRecord, RunRecord, load_record

ROOT = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"(?<![\w.,-])(?:\d[\d,]*)?\.?\d+(?:e-\d+)?(?![\w%])")
LINK = re.compile(r"\]\((docs/[\w./-]+\.md)")
SAID = {"1", "10", "1.000"}
"""Epsilons that every page has, and a figure that tables write with fewer digits."""


def promises() -> list[str]:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## What it finds")[2].partition("\n## ")[0]
    return [line for line in table.splitlines() if line.startswith("| ")][1:]


def record(name: str) -> RunRecord:
    return load_record(ROOT / "docs" / "gallery" / name)


def the(run: RunRecord, label: str, epsilon: float) -> CellRecord:
    (cell,) = (cell for cell in run.cells if cell.label == label and cell.epsilon == epsilon)
    return cell


@pytest.mark.parametrize("row", promises(), ids=lambda row: row.split("|")[1].strip()[:30])
def test_a_number_of_the_readme_stands_on_the_page_that_measured_it(row: str) -> None:
    pages = [ROOT / page for page in LINK.findall(row)]
    assert pages, "a finding names where it was measured"
    text = " ".join(page.read_text(encoding="utf-8") for page in pages)
    found = set(NUMBER.findall(text))
    said = set(NUMBER.findall(LINK.sub("", row))) - SAID
    missing = {number for number in said if not any(each.startswith(number) for each in found)}
    assert not missing, [str(page.relative_to(ROOT)) for page in pages]
    assert any(word in text for word in ("fedassay run", "benchmarks", "python ")), "a page names its command"


def test_what_fedlog_is_said_to_spend_is_in_the_record_of_claims() -> None:
    run = record("claims")
    (row,) = (row for row in promises() if row.startswith("| FedLog"))
    shown, spends = (
        the(run, "fedlog public seed", 1.0).observed,
        the(run, "fedlog released code", 10.0).accounted,
    )
    assert shown is not None
    assert f"shows {shown.bare:.1f};" in row
    assert spends is not None
    assert f"spends {spends.bare:.1f} " in row


def test_with_calibrated_noise_no_attack_at_epsilon_1_shows_more_than_the_claim() -> None:
    run = record("claims")
    sound = [cell for cell in run.cells if cell.epsilon == 1.0 and cell.privacy.verdict == "sound"]
    assert len(sound) >= 10
    for cell in sound:
        assert cell.observed is None or cell.observed.bare <= 1.0, cell.label


def test_the_demonstration_says_how_many_digits_its_record_has() -> None:
    plan = (ROOT / "configs" / "demonstration.yaml").read_text(encoding="utf-8")
    said = re.search(r"(\d+) of (\d+) digits", plan)
    assert said is not None
    harms = [
        (finding.harm.count or finding.harm.total, finding.harm.among or finding.harm.total)
        for cell in record("demonstration").cells
        for finding in cell.findings
        if finding.harm is not None and finding.harm.kind == "pictures"
    ]
    assert tuple(map(int, said.groups())) in harms, harms


METHOD_PAGES = ("fedpft", "fedcgs", "fedlog", "feddiff", "closed_forms")
SUMMARY = re.compile(r"^- \*\*(?:Sent|Leaks|Deploy):\*\*.*?(?=^- \*\*|^\S(?!\*)|\n\n)", re.M | re.S)


def page(name: str) -> tuple[str, str]:
    """What a page says first, and all that stands below its first heading."""
    first, _, rest = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").partition("\n## ")
    return LINK.sub("]", first), rest


def row_of(text: str, *words: str) -> list[str]:
    """The cells of the one row of a table that holds these words."""
    (row,) = (line for line in text.splitlines() if line.startswith("|") and all(word in line for word in words))
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("name", METHOD_PAGES)
def test_a_number_of_a_pages_summary_stands_in_its_tables(name: str) -> None:
    """But the two that a test below computes from them."""
    first, rest = page(name)
    bullets = " ".join(SUMMARY.findall(first))
    assert bullets.count("**") == 6
    said = set(NUMBER.findall(bullets)) - ({"36", "39"} if name == "feddiff" else set())
    found = set(NUMBER.findall(first.replace(bullets, "") + rest))
    assert not {number for number in said if not any(each.startswith(number) for each in found)}


def test_the_index_gives_no_number() -> None:
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert not NUMBER.findall(re.sub(r"\]\([^)]*\)", "]", text))


def test_what_privacy_costs_feddiff_follows_from_its_table() -> None:
    first, rest = page("feddiff")
    said = re.search(r"(\d+) to (\d+) points", first)
    assert said is not None
    without = float(row_of(rest, "a perceptron", "no privacy")[1])
    private = [float(each.split()[0]) for each in row_of(rest, "under DP-SGD with FMF")[1].split("], ")]
    assert [round(without - each) for each in private] == list(map(int, said.groups()))


def test_what_closed_forms_keep_at_epsilon_8_follows_from_their_table() -> None:
    first, rest = page("closed_forms")
    said = re.search(r"at epsilon 8 (.+?)\s+kept (\.\d+) or more", first, re.S)
    assert said is not None
    names = re.findall(r"`(\w+)`", said[1])
    table = (first + rest).partition("| accuracy at inf | at 8 |")[2].partition("\n\n")[0]
    kept = [float(row_of(table, f"| `{name}` |")[2]) for name in names]
    assert len(kept) == 4
    assert min(kept) == float(said[2])
