"""Whatever layout people publish, and whatever happens to it: it is read as it is, or a question is asked."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from faults import FAULTS
from held_to_truth import Outcome, made, outcome
from worlds import LAYOUTS

_AMBIGUOUS = {
    "csv_of_several_labels": "two columns hold a few values each, and none is named as labels are",
    "celeba": "forty attributes, each of which is a task",
    "fairface": "age, gender and race are tasks alike",
    "idrid": "two gradings of the same eye",
    "utkface": "age, gender and race stand as numbers in the name, and nothing says which is which",
    "chexpert": "several findings a record, each of which is a task; blanks and -1 may be either",
    "nih_joined": "several findings a record, joined in a cell",
    "voc": "several objects an image, in a list for each",
    "same_numbers_at_sites": "a number at two sites may be one person or two",
    "breakhis": "benign and malignant, or the kinds of tumour below them, which are both published tasks",
    "lc25000": "organs, or the tissues below them, which are both classes",
    "crc100k": "two collections, of which one is called VAL and the other after an institute",
}
"""Layouts that a person could not read from the files alone either, with the reason."""


def _outcome(layout: str, faults: tuple[str, ...], seed: int, base: Path) -> Outcome | None:
    world = made(layout, faults, seed, base)
    return None if world is None else outcome(*world, base)


def _drawn(cases: int, seed: int) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Layouts with one or two faults, which need not apply to the layout."""
    rng = np.random.default_rng(seed)
    layouts, faults = sorted(LAYOUTS), sorted(FAULTS)
    for _ in range(cases):
        many = int(rng.integers(1, 3))
        yield (
            layouts[int(rng.integers(len(layouts)))],
            tuple(str(name) for name in rng.choice(faults, many, replace=False)),
            int(rng.integers(1_000_000)),
        )


def _wrong(cases: Iterable[tuple[str, tuple[str, ...], int]], base: Path, most: int = 10_000) -> list[str]:
    """Cases that were misread, or refused without a question that the truth answers."""
    wrong, held = [], 0
    for number, (layout, faults, seed) in enumerate(cases):
        found = _outcome(layout, faults, seed, base / str(number))
        shutil.rmtree(base / str(number), ignore_errors=True)
        held += found is not None
        if found is not None and found.kind in {"misread", "stuck"}:
            wrong.append(f"{found.kind}: {layout} {faults} {seed}: {found.words}")
        if held == most:
            break
    return wrong


def test_there_are_layouts_and_faults_enough() -> None:
    assert len(LAYOUTS) >= 25
    assert len(FAULTS) >= 40


def test_a_sample_of_layouts_with_faults(tmp_path: Path) -> None:
    assert _wrong(_drawn(10, seed=61), tmp_path) == []


@pytest.mark.parametrize("layout", ["aptos", "dogs_vs_cats", "mura", "table_of_patients", "ham10000_whole"])
def test_archives_are_read_as_they_are_published(layout: str, tmp_path: Path) -> None:
    found = _outcome(layout, (), 3, tmp_path)
    assert found is not None
    assert (found.kind, found.words) == ("read", ())


@pytest.mark.long
def test_sound_layouts_are_read_without_a_question(tmp_path: Path) -> None:
    found = {layout: _outcome(layout, (), 3, tmp_path / layout) for layout in LAYOUTS}
    kinds = {layout: "none" if each is None else each.kind for layout, each in found.items()}
    assert {kinds[layout] for layout in _AMBIGUOUS} == {"asked"}
    assert {layout: found[layout] for layout in kinds.keys() - _AMBIGUOUS if kinds[layout] != "read"} == {}


@pytest.mark.long
def test_every_fault_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    cases = []
    for fault in FAULTS:
        cases += [(str(layout), (fault,), 1) for layout in rng.choice(sorted(LAYOUTS), 4, replace=False)]
    assert _wrong(cases, tmp_path) == []


@pytest.mark.slow
def test_a_thousand_data_sets(tmp_path: Path) -> None:
    assert _wrong(_drawn(10_000, seed=2026), tmp_path, most=1_000) == []


def test_a_misreading_is_seen(tmp_path: Path) -> None:
    world = made("site_class_image", (), 0, tmp_path)
    assert world is not None
    world[0].answers["layout"] = "class/*/image"
    turned = type(world[0])(world[0].root, world[0].records, frozenset({"site", "person"}))
    assert outcome(turned, world[1], tmp_path).kind == "misread"
