"""Every citation of docs/papers is resolved to the words, or the cell, of the paper's text that states the value.

The papers are not part of this project: without their texts (`FEDASSAY_PAPERS`, a folder) only what needs none of
them is tested. Of a setting with a value, `says` is quoted from the part of the paper that `where` names; where
the quoted words do not hold the value as it is, `means` says how it follows. A setting without a value says that
the paper is silent: none of the words under `absent` stands in that part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedassay.nets.presets import PAPER

TABLES = Path(__file__).resolve().parents[2] / "docs" / "papers"
NAMES = ("fedpft", "fedcgs", "feddiff", "fedlog")
ELSEWHERE = ("no audits there", "the authors' code")
"""What is cited that is no text of a paper."""
WORDS = {"three": 3, "two": 2, "five": 5}

Paper = dict[str, Any]


@cache
def _paper(name: str) -> Paper:
    loaded: Paper = yaml.safe_load((TABLES / f"{name}.yaml").read_text(encoding="utf-8"))
    return loaded


def _settings() -> Iterator[Any]:
    for name in NAMES:
        for number, setting in enumerate(_paper(name)["settings"]):
            yield pytest.param(name, setting, id=f"{name}-{number}-{setting['setting']}")


def _plans() -> Iterator[Any]:
    for name in NAMES:
        for plan, about in _paper(name)["plans"].items():
            yield pytest.param(name, plan, about, id=plan)


def _text(folder: Path, paper: Paper) -> str:
    """The text of a paper: of the files that begin with its mark the only one."""
    found = [
        text
        for path in sorted(folder.glob("*.txt"))
        if paper["text"] in (text := path.read_text(encoding="utf-8"))[:400]
    ]
    assert len(found) == 1, paper["text"]
    return found[0]


def part_of(text: str, paper: Paper, where: str) -> str:
    """The part of a paper that a citation names, lines and all.

    It begins with the first line that begins with, or failing that holds, the first mark, and ends before the next
    that does so with the second; an empty one is the end.
    """
    start, end = paper["sections"][where]
    lines = [_flat(line) for line in text.splitlines()]
    first = _line(lines, start, 0)
    last = len(lines) if not end else _line(lines, end, first + 1)
    return "\n".join(lines[first:last])


def _line(lines: list[str], mark: str, after: int) -> int:
    begins = [number for number in range(after, len(lines)) if lines[number].startswith(mark)]
    holds = [number for number in range(after, len(lines)) if mark in lines[number]]
    assert begins or holds, mark
    return (begins or holds)[0]


def _flat(text: str) -> str:
    return " ".join(text.split())


def _said(setting: dict[str, Any]) -> list[str]:
    says = setting.get("says", [])
    return [says] if isinstance(says, str) else list(says)


def numbers(text: str) -> list[float]:
    """The numbers in some words: `5e-4`, `2.18E-06`, `.535`, `10,000`; a percentage as a share, too."""
    found = []
    for number, percent in re.findall(r"(?<![\w.])(\d[\d,]*\.?\d*(?:[eE]-?\d+)?|\.\d+)\s?(%?)", text):
        value = float(number.replace(",", "").rstrip("."))
        found += [value, value / 100] if percent else [value]
    # Units and letters stand beside some: `5.81M`, `(K=10)`, `1000 iterations`, `16-bit`.
    for number in re.findall(r"[=(](\d+\.?\d*)", text):
        found.append(float(number))
    found += [number for word, number in WORDS.items() if re.search(rf"\b{word}\b", text)]
    return found


def states(value: Any, words: str) -> bool:
    """Whether the words hold a value as it is."""
    if isinstance(value, (list, tuple)):
        return all(states(each, words) for each in value)
    if isinstance(value, (int, float)):
        return any(abs(each - value) <= 1e-9 * max(abs(each), abs(value)) for each in numbers(words))
    plain = re.sub(r"[^a-z0-9]", "", str(value).lower())
    return plain in re.sub(r"[^a-z0-9]", "", words.lower())


def test_words_state_values_or_do_not() -> None:
    assert states(0.05, "5 % of the training set")
    assert states(5.0e-4, "the weight decay is set to 5e-4")
    assert states("resnet50", "a ResNet-50 extractor")
    assert states([10, 20], "(K=10) 86.19 (K=20) 86.89")
    assert not states(0.5, "momentum = 0.9, 5 clients")
    assert not states(1, "with 10 clients and 0.1")
    assert not states("adam", "an SGD optimiser")


@pytest.mark.long
@pytest.mark.parametrize(("name", "setting"), _settings())
def test_a_setting_is_cited_whole(name: str, setting: dict[str, Any]) -> None:
    """What is needed to look it up is there, and no citation is of a part that is not known."""
    if setting["where"] in ELSEWHERE:
        assert "says" not in setting
        return
    assert setting["where"] in _paper(name)["sections"], setting["where"]
    valued = setting.get("value") is not None or "count" in setting or "methods" in setting
    assert valued == bool(_said(setting))
    if not valued:
        return
    wanted = setting.get("value", setting.get("count", list(setting.get("methods", {}))))
    assert states(wanted, " ".join(_said(setting))) or setting.get("means"), "the words do not hold the value"


@pytest.mark.parametrize(("name", "setting"), _settings())
def test_a_setting_is_what_the_paper_says(name: str, setting: dict[str, Any], shared_papers: Path) -> None:
    if setting["where"] in ELSEWHERE:
        pytest.skip(f"{setting['where']}: no text that could be read here")
    paper = _paper(name)
    part = _flat(part_of(_text(shared_papers, paper), paper, setting["where"]))
    for words in _said(setting):
        assert _flat(words) in part, f"{setting['where']} does not say: {words}"
    for word in setting.get("absent", ()):
        assert not re.search(rf"(?<!\w){re.escape(word)}", part), f"{setting['where']} does say: {word}"


@pytest.mark.parametrize(("name", "plan", "about"), _plans())
def test_figures_are_cells_of_the_papers_tables(
    name: str, plan: str, about: dict[str, Any], shared_papers: Path
) -> None:
    paper = _paper(name)
    text = _text(shared_papers, paper)
    parts = [part_of(text, paper, where) for where in about["from"]]
    for number in re.findall(r"\d*\.\d+(?:e-\d+)?", about["results"]):
        assert any(states(float(number), _untorn(part)) for part in parts), f"{plan}: {number}"
    if about.get("places") or not about["order"]:
        return
    assert set(about["cells"]) == set(about["order"])
    lines = [line for part in parts for line in part.splitlines()]
    for label, row in about["cells"].items():
        rows = [line for line in lines if row in line]
        assert any(states(about["order"][label], _untorn(line)) for line in rows), f"{plan}: {label}"


def _untorn(text: str) -> str:
    """Figures apart from what is printed beside them: `63.95±0.00`, `5.81M`, `3.45±plus-or-minus`."""
    return re.sub(r"[^\d.,eE+\-\s]|(?<!\d)[eE]", " ", text.replace("±", " "))


def test_choices_behind_the_papers_preset_are_listed_as_ours() -> None:
    """FedPFT's appendix E.3 names a kind of network and of sampler; the numbers are another paper's, or ours."""
    ours = {
        setting["setting"]: str(setting["here"])
        for setting in _paper("fedpft")["settings"]
        if setting["where"] == "appendix E.3" and setting["value"] is None
    }
    said = " ".join(ours.values())
    for choice in (PAPER.prediction, PAPER.beta_schedule, f"{PAPER.timesteps} steps", f"{PAPER.steps:,} steps"):
        assert choice in said
    assert ours["weight of guidance"] == f"{PAPER.guidance}"
    assert ours["DDIM steps"] == f"{PAPER.sampling_steps}"
    assert ours["share of training rows without condition"] == f"{PAPER.condition_dropout}"
    assert ours["moving average of the attacker's weights"] == f"decay {PAPER.ema}"
    levels = ", ".join(map(str, PAPER.multipliers))
    assert ours["width, levels and dropout of the attacker's U-Net"] == (
        f"{PAPER.width} channels times {levels}, two blocks, dropout {PAPER.dropout} (Ho et al. 2020)"
    )
    assert f"of {PAPER.batch} at {PAPER.learning_rate:.0e}".replace("e-0", "e-") in said
    assert f"{PAPER.warmup:,}" in said
