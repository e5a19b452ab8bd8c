"""Whatever layout people publish, and whatever happens to it: it is read as it is, or a question is asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from faults import FAULTS
from held_to_truth import Outcome, made, outcome
from worlds import LAYOUTS

_ASKS = {
    "csv_of_several_labels",
    "nih_joined",
    "chexpert",
    "same_numbers_at_sites",
    # Images beside the labelled ones, attributes, sites or parts, two gradings, noisy labels.
    *("br35h", "gtsrb", "celeba", "fairface", "crc100k", "lc25000", "idrid", "imagenette"),
}
"""Layouts that leave two readings, so that a question is right."""


def _outcome(layout: str, faults: tuple[str, ...], seed: int, base: Path) -> Outcome | None:
    world = made(layout, faults, seed, base)
    return None if world is None else outcome(*world, base)


def _drawn(cases: int, seed: int) -> list[tuple[str, tuple[str, ...], int]]:
    """Layouts with none, one or two faults."""
    rng = np.random.default_rng(seed)
    layouts, faults = sorted(LAYOUTS), sorted(FAULTS)
    return [
        (
            layouts[int(rng.integers(len(layouts)))],
            tuple(str(name) for name in rng.choice(faults, int(rng.integers(3)), replace=False)),
            int(rng.integers(1_000_000)),
        )
        for _ in range(cases)
    ]


def _wrong(cases: list[tuple[str, tuple[str, ...], int]], base: Path) -> list[str]:
    """Cases that were misread, or refused without a question that the truth answers."""
    wrong = []
    for number, (layout, faults, seed) in enumerate(cases):
        found = _outcome(layout, faults, seed, base / str(number))
        if found is not None and found.kind in {"misread", "stuck"}:
            wrong.append(f"{found.kind}: {layout} {faults} {seed}: {found.words}")
    return wrong


def test_there_are_layouts_and_faults_enough() -> None:
    assert len(LAYOUTS) >= 25
    assert len(FAULTS) >= 40


def test_a_sample_of_layouts_with_faults(tmp_path: Path) -> None:
    assert _wrong(_drawn(10, seed=61), tmp_path) == []


@pytest.mark.parametrize("layout", ["aptos", "pcam", "mvtec", "dicom_with_a_table", "ham10000_whole"])
def test_archives_are_read_as_they_are_published(layout: str, tmp_path: Path) -> None:
    found = _outcome(layout, (), 3, tmp_path)
    assert found is not None
    assert (found.kind, found.words) == ("read", ())


@pytest.mark.long
def test_sound_layouts_are_read_without_a_question(tmp_path: Path) -> None:
    found = {layout: _outcome(layout, (), 3, tmp_path / layout) for layout in LAYOUTS}
    kinds = {layout: "none" if each is None else each.kind for layout, each in found.items()}
    assert {kinds[layout] for layout in _ASKS} == {"asked"}
    assert {layout: found[layout] for layout in kinds.keys() - _ASKS if kinds[layout] != "read"} == {}


@pytest.mark.long
def test_every_fault_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    cases = []
    for fault in FAULTS:
        cases += [(str(layout), (fault,), 1) for layout in rng.choice(sorted(LAYOUTS), 4, replace=False)]
    assert _wrong(cases, tmp_path) == []


@pytest.mark.slow
def test_a_thousand_data_sets(tmp_path: Path) -> None:
    # A fault applies to about half of the layouts that it is drawn with.
    cases = _drawn(2_300, seed=2026)
    assert _wrong(cases, tmp_path) == []


def test_a_misreading_is_seen(tmp_path: Path) -> None:
    world = made("site_class_image", (), 0, tmp_path)
    assert world is not None
    world[0].answers["layout"] = "class/*/image"
    turned = type(world[0])(world[0].root, world[0].records, frozenset({"site", "person"}))
    assert outcome(turned, world[1], tmp_path).kind == "misread"
