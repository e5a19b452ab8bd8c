"""Reconstruction: what end-to-end controls catch, and what a negative verdict could have seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contexts import with_data

from fedassay.audits.reconstruction.audit import ReconstructionAudit
from fedassay.audits.reconstruction.selections import private_truth
from fedassay.contracts.attack import AttackResult, Reconstruction
from fedassay.contracts.audit import AttackedContext, AuditContext
from fedassay.contracts.membership import MembershipGame, no_questions
from fedassay.contracts.method import Method, MethodInput
from fedassay.exchange.feature_sources import VectorSource, sources
from fedassay.exchange.view import View
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedpft.method import FedPFT
from fedassay.records.record import Finding
from fedassay.support.types import Images

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]
Invert = Callable[[VectorSource], Images]


def exact(source: VectorSource) -> Images:
    """Inverts features that are pixels in [0, 1]."""
    return np.rint(source.vectors.clip(0, 1) * 255).astype(np.uint8).reshape(-1, 1, 8, 8, 1)


def garbage(source: VectorSource) -> Images:
    """Looks at raw features only."""
    return exact(source) if source.name == "raw" else np.full((len(source.vectors), 1, 8, 8, 1), 77, np.uint8)


def average(source: VectorSource) -> Images:
    """Shows the mean of all images wherever the vectors are not raw."""
    images = exact(source)
    if source.name == "raw":
        return images
    return np.broadcast_to(images.mean(axis=0).astype(np.uint8), images.shape).copy()


def first_only(source: VectorSource) -> Images:
    """Attacks the first client; everybody else gets noise."""
    images = exact(source)
    others = np.array([name != source.senders[0] for name in source.senders]) & (source.name != "raw")
    images[others] = np.random.default_rng(0).integers(0, 256, images[others].shape)
    return images


def attacked(context: AuditContext, invert: Invert) -> tuple[AttackResult, AttackedContext]:
    def attack(
        seen: View, game: MembershipGame | None = None, *, rerun_previous_attacks: bool = False
    ) -> AttackResult:
        found = sources(seen, np.random.default_rng(6))
        made = tuple(Reconstruction(source, invert(source)) for source in found)
        return AttackResult("feature_diffusion", reconstructions=made)

    return attack(context.view), context.attacked(attack, invert.__name__, no_questions())


def findings(context: AuditContext, invert: Invert, **changes: Any) -> dict[str | None, Finding]:
    result, own = attacked(context, invert)
    audit = ReconstructionAudit(control_records=100, permutations=400, pictures=0, **changes)
    return {finding.selection: finding for finding in audit.assess(result, own)}


@pytest.mark.long
@pytest.mark.parametrize("invert", [garbage, average])
@pytest.mark.parametrize("method", [FedCGS(), FedPFT(components=3)])
def test_garbage_from_the_methods_own_vectors_is_no_answer(
    method: Method, invert: Invert, make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    """Raw features are caught, the end-to-end control is not."""
    for epsilon in (1.0, float("inf")):
        task = make_task(epsilon=epsilon, adjacency="replace_one_same_label", records=200)
        for finding in findings(make_context(task, method, bounds=6, folder=tmp_path), invert).values():
            assert finding.verdict == "inconclusive", finding.reason
            assert "the positive control was not caught" in finding.reason
            assert "may decide" in finding.reason
            assert finding.controls.positive is not None
            assert "own release" in finding.controls.positive.release


@pytest.mark.long
def test_noised_reconstructions_that_are_ruined_stay_conclusive(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    """With an end-to-end control caught, images worse than the attacker's own are what noise lets one expect."""
    task = make_task(clients=20, records=200, epsilon=1.0)
    for finding in findings(make_context(task, FedCGS(), bounds=6, folder=tmp_path), exact).values():
        assert finding.verdict == "no_leak_found", finding.reason
        assert finding.limit is not None
        assert 0 < finding.limit.value <= 1
        assert finding.limit.n == 180


def test_without_noise_ruin_is_no_answer(make_task: MakeTask, make_context: MakeContext, tmp_path: Path) -> None:
    context = make_context(make_task(clients=20, records=200), FedCGS(), bounds=6, folder=tmp_path)
    result, own = attacked(context, exact)
    made = result.reconstructions[0]
    dull = Reconstruction(made.source, np.full_like(made.images, 77))
    audit = ReconstructionAudit(control_records=100, permutations=400, pictures=0)
    for finding in audit.assess(AttackResult("feature_diffusion", (dull,)), own):
        assert finding.verdict == "inconclusive"
        assert "worse than what needs no generator" in finding.reason


@pytest.mark.long
def test_too_few_control_records_say_how_many_more(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    context = make_context(make_task(clients=20, records=200), FedCGS(), bounds=6, folder=tmp_path)
    context = with_data(context, control=context.data.control.take(np.arange(5)))
    for finding in findings(context, garbage).values():
        assert finding.verdict == "inconclusive"
        assert "give data.split.control at least" in finding.reason
        assert finding.obstacle is not None
        assert (finding.obstacle.role, finding.obstacle.held) == ("control", len(context.data.control))
    # An attack that found a leak has worked here: raw features show that it can.
    for finding in findings(context, exact).values():
        assert finding.verdict == "leak", finding.reason
        assert "end_to_end" not in {control.role for control in finding.all_controls}


def test_the_truth_of_a_seed_does_not_hang_on_the_cell(make_task: MakeTask, make_context: MakeContext) -> None:
    """Cells of a seed share it: whichever comes first must draw the same fresh images."""
    task = make_task(records=60)
    one = make_context(replace(task, seeds=task.seeds.child("one")), FedCGS())
    other = make_context(replace(task, seeds=task.seeds.child("other")), FedCGS())
    first, second = private_truth(one, 0.1), private_truth(other, 0.1)
    assert np.array_equal(first.fresh, second.fresh)
    assert np.array_equal(first.images, second.images)


@pytest.mark.long
def test_a_few_near_copies_are_no_clean_bill(
    make_task: MakeTask, make_context: MakeContext, tmp_path: Path
) -> None:
    """Three records of 180 come back to the bit: the mean does not show it, and yet it is not nothing."""
    task = make_task(clients=20, records=200, epsilon=1.0)
    context = make_context(task, FedCGS(), bounds=6, folder=tmp_path)
    result, own = attacked(context, exact)
    truth = private_truth(own, 0.1)
    made = result.reconstructions[0]
    images = made.images.copy()
    images[:3, 0] = truth.images[[5, 50, 150]]
    audit = ReconstructionAudit(control_records=100, permutations=400, pictures=0)
    leaky = AttackResult("feature_diffusion", (Reconstruction(made.source, images),))
    for finding in audit.assess(leaky, own):
        assert finding.verdict in {"inconclusive", "leak"}, finding.reason
        assert "near copies" in finding.reason
