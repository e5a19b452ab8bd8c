"""Copies that were mirrored, shifted or recoloured: pixel distance misses them, the audit's spaces find them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import nn

from fedassay.audits.memorization import altered as evidence
from fedassay.audits.memorization.audit import MemorizationAudit
from fedassay.audits.memorization.controls import Redrawn
from fedassay.audits.memorization.judging import judge
from fedassay.audits.memorization.looking import Looks
from fedassay.audits.memorization.scores import Search, distinct, match_classes
from fedassay.audits.memorization.spaces import Space, altered, mirrored, moved, space_named, standardised
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.data.records import Records
from fedassay.exchange.models import Generator
from fedassay.exchange.transcript import Transcript
from fedassay.records.record import Finding
from fedassay.similarity.lpips import Lpips
from fedassay.support.registry import lookup
from fedassay.support.types import Images

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]
ALIGNED = Space("aligned", "aligned", standardised, moved, False)
QUICK: dict[str, Any] = {"control_records": 24, "permutations": 500}


class _Stages(nn.Module):
    """Two stages, as the trunk of LPIPS gives them."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)

    def forward(self, planes: torch.Tensor) -> list[torch.Tensor]:
        one = torch.relu(self.first(planes))
        return [one, torch.relu(self.second(one))]


class _Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scaling_layer, self.net = nn.Identity(), _Stages()


@dataclass(frozen=True)
class Recalling:
    """A method whose generators give back what they were made of."""

    def run(self, task: MethodInput) -> Outcome:
        generators = {client.name: Redrawn(client.images) for client in task.clients}
        return Outcome(Transcript("drawing", 10, ()), None, generators=generators)


@pytest.fixture
def assess(make_task: MakeTask, make_context: MakeContext, tmp_path: Path) -> Callable[..., Finding]:
    """Under a claim, so that being closer without a copy is no leak."""
    task = make_task(epsilon=10.0)
    shared: dict[str, object] = {}

    def run(make: Callable[[Records], Images], space: str) -> Finding:
        generators: dict[str, Generator] = {own.name: Redrawn(make(own)) for own in task.clients}
        outcome = Outcome(Transcript("drawing", 10, ()), None, generators=generators)
        context = make_context(task, Recalling(), outcome=outcome, bounds=12, folder=tmp_path, shared=shared)
        (finding,) = MemorizationAudit(altered_copies=space, **QUICK).assess(None, context)  # type: ignore[arg-type]
        return finding

    return run


def mirror(own: Records) -> Images:
    return own.images[:, :, ::-1]


def strangers(own: Records) -> Images:
    """Images of other digits than the client's: noise that no score calls a copy."""
    return np.random.default_rng(1).integers(0, 256, own.images.shape, dtype=np.uint8)


@pytest.mark.long
def test_mirrored_copies_are_found_where_pixel_distance_finds_none(assess: Callable[..., Finding]) -> None:
    missed, found = assess(mirror, "none"), assess(mirror, "aligned")
    copied = missed.metrics["copied"].value
    assert copied is not None
    assert copied < 0.1
    assert missed.verdict != "leak"
    assert "altered_copied" not in missed.metrics
    assert found.verdict == "leak", found.reason
    assert "altered copies of training records are given back" in found.reason
    back = found.metrics["altered_copied"].value
    assert back is not None
    assert back > 0.8
    assert found.metrics["copied"] == missed.metrics["copied"]
    plain, beside, _ = found.pictures
    assert "altered (aligned)" in beside.title
    assert plain.file != beside.file
    assert len(beside.columns) == 30


@pytest.mark.long
def test_images_of_nobody_are_no_altered_copies(assess: Callable[..., Finding]) -> None:
    without, beside = assess(strangers, "none"), assess(strangers, "aligned")
    assert without.verdict == beside.verdict == "no_leak_found"
    assert beside.metrics["altered_copied"].value == 0
    assert "altered copies" in beside.reason


@pytest.mark.long
def test_plain_copies_stay_a_leak(assess: Callable[..., Finding]) -> None:
    assert assess(lambda own: own.images, "aligned").verdict == "leak"


@pytest.mark.long
def test_a_space_that_sees_no_altered_copy_says_nothing(
    assess: Callable[..., Finding], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records all look alike there: what was altered on purpose is missed, and the verdict is as without it."""

    def alike(images: Images) -> Any:
        return np.ones((len(images), 4), np.float32) + np.eye(4, dtype=np.float32)[np.arange(len(images)) % 2]

    blind = Space("backbone", "nothing", alike, mirrored, False)
    monkeypatch.setattr(evidence, "space_named", lambda name, context: blind)
    without, beside = assess(mirror, "none"), assess(mirror, "backbone")
    assert beside.verdict == without.verdict
    assert "not counted: copies altered on purpose are not seen" in beside.reason


@pytest.mark.long
def test_evidence_that_other_records_show_as_well_does_not_count(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    """Each image of a client is there twice, mirrored: one half of the client gives the other half back."""
    task = make_task(clients=1, records=120, epsilon=10.0)
    own = task.clients[0]
    both = np.concatenate([own.images, np.ascontiguousarray(own.images[:, :, ::-1])])
    twice = replace(own.take(np.tile(np.arange(len(own)), 2)), images=both)
    task = replace(task, clients=(twice,))
    outcome = Outcome(Transcript("drawing", 10, ()), None, generators={own.name: Redrawn(strangers(twice))})
    context = make_context(task, Recalling(), outcome=outcome, bounds=12, folder=tmp_path)
    (finding,) = MemorizationAudit(altered_copies="aligned", **QUICK).assess(None, context)
    assert "not counted: records that no generator saw are given back" in finding.reason
    assert finding.verdict != "leak"


@pytest.mark.long
def test_a_space_that_is_not_to_be_had_is_said(assess: Callable[..., Finding]) -> None:
    finding = assess(mirror, "lpips")
    metric = finding.metrics["altered_copied"]
    assert metric.value is None
    assert "LPIPS: not asked for" in metric.reason
    assert finding.verdict == assess(mirror, "none").verdict


def test_one_more_test_is_counted() -> None:
    facts = lookup("audit", "memorization").facts
    asked = {each: facts.more_tests({"altered_copies": each}) for each in ("none", "aligned", "backbone", "lpips")}
    assert asked == {"none": 0, "aligned": 1, "backbone": 1, "lpips": 1}


def test_what_is_altered_is_not_what_it_was(make_task: MakeTask) -> None:
    images = distinct(make_task(clients=1, records=90).clients[0]).images
    changed = altered(images, np.random.default_rng(0))
    same = (changed == images).reshape(len(images), -1).all(axis=1)
    assert same.mean() < 0.05
    assert np.array_equal(changed[0], images[0, :, ::-1])


def test_brightness_and_contrast_drop_out(make_task: MakeTask) -> None:
    images = make_task(clients=1, records=40).clients[0].images
    darker = np.rint(images * 0.5 + 20).astype(np.uint8)
    np.testing.assert_allclose(standardised(darker), standardised(images), atol=0.1)


def test_large_images_are_reduced_before_they_are_shifted() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 96, 64, 3), dtype=np.uint8)
    shown = list(moved(images))
    assert {each.shape for each in shown} == {(2, 32, 21, 3)}
    assert len(shown) == 2 * 7 * 5


@pytest.mark.long
def test_scores_are_those_of_a_naive_search(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=60)
    own, unseen = distinct(task.clients[0]), distinct(task.test).without(task.clients[0])
    matched, held = match_classes(own, unseen, np.random.default_rng(0))
    heldout = unseen.take(held)
    images = altered(own.images[:9], np.random.default_rng(1))
    looks = Looks(ALIGNED, Search(50, 0.5, "cpu", 4))
    looks.beside(own, matched, heldout)(images)
    (found,) = looks.scores

    def unit(values: Any) -> Any:
        flat = values.reshape(-1).astype(np.float64) / 255
        centred = (flat - flat.mean()) / (flat.std() + 1e-3)
        return centred / np.linalg.norm(centred)

    def to_each(image: Images, gallery: Images) -> list[float]:
        wide = np.pad(image, ((1, 1), (1, 1), (0, 0)), mode="edge")
        shown = [each[r : r + 8, c : c + 8] for each in (wide, wide[:, ::-1]) for r in range(3) for c in range(3)]
        return [min(np.linalg.norm(unit(one) - unit(record)) for one in shown) for record in gallery]

    for place, image in enumerate(images):
        distances = np.array(to_each(image, own.images))
        expected = distances.min() / (0.5 * np.sort(distances)[:50].mean())
        assert found.training[place] == pytest.approx(expected, abs=2e-3)
    gallery = np.concatenate([own.images[matched], heldout.images])
    closeness = np.full(len(gallery), 2.0)
    for image in images:
        distances = np.array(to_each(image, gallery))
        near, score = distances.argmin(), distances.min() / (0.5 * np.sort(distances)[:50].mean())
        closeness[near] = min(closeness[near], score)
    np.testing.assert_allclose(np.concatenate([found.closeness, found.heldout_closeness]), closeness, atol=2e-3)


@pytest.mark.long
def test_false_alarms_keep_to_their_level(make_task: MakeTask) -> None:
    """200 generators that give back records which are in neither group: mirrored, shifted and recoloured."""
    whole = distinct(make_task(clients=1, records=900).clients[0])
    alarms = 0
    for run in range(200):
        rng = np.random.default_rng(run)
        first, second, third = np.split(rng.permutation(len(whole))[:180], 3)
        own, held = whole.take(first), whole.take(second)
        matched, kept = match_classes(own, held, rng)
        looks = Looks(ALIGNED, Search(50, 0.5, "cpu", 0))
        looks.beside(own, matched, held.take(kept))(altered(whole.images[third], rng))
        alarms += judge(looks.scores, 1.0, rng, tests=1, draws=200).copied.p <= 0.05
    assert alarms <= binom.ppf(0.999, 200, 0.05)


def test_the_lpips_network_is_a_space(make_task: MakeTask, make_context: MakeContext, tmp_path: Path) -> None:
    """Its mean activations hardly move where an image is mirrored or shifted, and do where it is another."""
    network = Lpips(_Network().eval(), "random", "cpu")
    task = make_task(clients=1, records=30)
    context = make_context(task, Recalling(), folder=tmp_path)
    context = replace(context, similarity=replace(context.similarity, lpips=network))
    space = space_named("lpips", context)
    vectors = space.embed(task.clients[0].images)
    assert vectors.shape == (len(task.clients[0]), 24)
    shifted = np.roll(task.clients[0].images, 1, axis=2)
    moved_by = np.linalg.norm(space.embed(shifted) - vectors, axis=1)
    apart = np.linalg.norm(vectors - np.roll(vectors, 1, axis=0), axis=1)
    assert np.median(moved_by) < np.median(apart)
