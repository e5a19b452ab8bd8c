"""The reconstruction audit with attacks whose strength is known: exact, blind, and by memory alone.

Features are the pixels themselves, so that an exact inversion exists and needs no training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from contexts import Runs
from quick_similarity import QuickSimilarity

from fedassay.audits.reconstruction.audit import ReconstructionAudit
from fedassay.contracts.attack import AttackResult, Reconstruction
from fedassay.contracts.audit import AttackedContext, AuditIO, CellData
from fedassay.contracts.membership import MembershipGame, no_questions
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource, sources
from fedassay.exchange.ledger import Accounted
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.view import ThreatModel, View, view
from fedassay.privacy.tape import Tape
from fedassay.records.record import Finding
from fedassay.support.registry import lookup
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images

Invert = Callable[[VectorSource, np.random.Generator], Images]


def exact(source: VectorSource, rng: np.random.Generator) -> Images:
    """Inverts features that are pixels in [0, 1]."""
    return np.rint(source.vectors.clip(0, 1) * 255).astype(np.uint8).reshape(-1, 1, 8, 8, 1)


def blind(source: VectorSource, rng: np.random.Generator) -> Images:
    """Looks at nothing."""
    return rng.integers(0, 256, (len(source.vectors), 1, 8, 8, 1)).astype(np.uint8)


def _context(task: MethodInput, method: str, invert: Invert, folder: Path) -> tuple[AttackResult, AttackedContext]:
    built = lookup("method", method)()

    def attack(
        seen: View, game: MembershipGame | None = None, *, rerun_previous_attacks: bool = False
    ) -> AttackResult:
        rng = np.random.default_rng(5)
        found = sources(seen, np.random.default_rng(6))
        made = tuple(Reconstruction(source, invert(source, rng)) for source in found)
        return AttackResult("feature_diffusion", reconstructions=made)

    def run(clients: Sequence[Records], seeds: Seeds, privacy: PrivacyTarget) -> Outcome:
        again = MethodInput(
            clients=tuple(clients),
            test=task.test,
            public=task.public,
            classes=task.classes,
            backbone=task.backbone,
            privacy=privacy,
            seeds=seeds,
            simulated=True,
            device="cpu",
            progress=task.progress,
        )
        outcome = built.run(again)
        assert isinstance(outcome, Outcome)
        return outcome

    def run_on(clients: Sequence[Records], seeds: Seeds) -> Outcome:
        return run(clients, seeds, task.privacy)

    def run_nonprivate(clients: Sequence[Records], seeds: Seeds) -> Outcome:
        return run(clients, seeds, task.privacy.model_copy(update={"epsilon": math.inf}))

    outcome = built.run(task)
    seen = view(outcome.transcript, ThreatModel())
    assert task.public is not None
    context = AttackedContext(
        data=CellData(
            clients=task.clients,
            test=task.test.take(np.arange(len(task.test) // 2), "test"),
            fresh=task.public,
            control=task.test.take(np.arange(len(task.test) // 2, len(task.test)), "control"),
            attacker=task.public,
            backbone=task.backbone,
            classes=task.classes,
        ),
        method=Runs(run_on, run_nonprivate, run_on),
        method_key=method,
        outcome=outcome,
        view=seen,
        accounted=Accounted(*[task.privacy.guarantee.like(math.inf)] * 2, None, (), ""),
        tape=Tape(),
        privacy=task.privacy,
        num_tests=6,
        similarity=QuickSimilarity(None, "not asked for"),
        seeds=task.seeds,
        io=AuditIO("cpu", task.progress, folder, ("cell", "audit")),
        attack=attack,
        attack_key=invert.__name__,
        game=no_questions(),
    )
    return attack(seen), context


def _findings(
    task: MethodInput, method: str, invert: Invert, folder: Path, pictures: int = 3
) -> dict[str | None, Finding]:
    result, context = _context(task, method, invert, folder)
    audit = ReconstructionAudit(control_records=100, permutations=400, pictures=pictures)
    return {finding.selection: finding for finding in audit.assess(result, context)}


def test_an_exact_inversion_of_raw_features_is_a_leak(
    make_task: Callable[..., MethodInput], tmp_path: Path
) -> None:
    found = _findings(make_task(), "raw_features", exact, tmp_path)
    assert set(found) == {"all", "oracle"}
    for finding in found.values():
        assert finding.verdict == "leak", finding.reason
        assert finding.metrics["ssim"].value == pytest.approx(1.0)
        assert finding.metrics["psnr"].value == 100.0
        assert finding.controls.positive is not None
        assert finding.controls.positive.caught
        assert finding.controls.negative is not None
        assert not finding.controls.negative.flagged
        assert finding.metrics["lpips"].value is None
        assert finding.metrics["lpips"].reason == "not asked for"
    assert found["all"].metrics["ssim"].n == 270  # 300 without the tenth nearest to an attacker image
    assert found["oracle"].metrics["ssim"].n == 20
    picture = found["all"].pictures[0]
    assert (tmp_path / picture.file).is_file()
    assert len(picture.columns) == 3
    assert picture.columns[0].metrics["ssim"] == pytest.approx(1.0)


@pytest.mark.parametrize("method", ["raw_features", "fedcgs"])
def test_a_broken_attack_is_inconclusive_never_safe(
    method: str, make_task: Callable[..., MethodInput], tmp_path: Path
) -> None:
    for finding in _findings(make_task(), method, blind, tmp_path).values():
        assert finding.verdict == "inconclusive"
        assert "too weak" in finding.reason
        assert finding.controls.positive is not None
        assert not finding.controls.positive.caught


def test_shuffled_truth_is_not_flagged(make_task: Callable[..., MethodInput], tmp_path: Path) -> None:
    """Reconstructions of other records than those they are held against: no leak, and worse than no attack."""
    task = make_task()
    result, context = _context(task, "raw_features", exact, tmp_path)
    source = result.reconstructions[0].source
    wrong = Reconstruction(source, np.roll(result.reconstructions[0].images, 7, axis=0))
    audit = ReconstructionAudit(control_records=100, permutations=400, pictures=0)
    for finding in audit.assess(AttackResult("feature_diffusion", reconstructions=(wrong,)), context):
        assert finding.verdict == "inconclusive", finding.reason
        assert "worse than what needs no generator" in finding.reason
        assert finding.controls.positive is not None
        assert finding.controls.positive.caught


@pytest.mark.long
def test_means_of_many_records_are_not_a_leak(make_task: Callable[..., MethodInput], tmp_path: Path) -> None:
    found = _findings(make_task(clients=2, records=600), "fedcgs", exact, tmp_path)
    assert set(found) == {"oracle_all", "oracle"}
    # Twenty means cannot give away enough of 600 records for a test of them all: silence is none.
    assert found["oracle_all"].verdict == "inconclusive", found["oracle_all"].reason
    assert found["oracle_all"].obstacle is not None
    assert found["oracle_all"].obstacle.kind == "no_power"


def planted(outcome: Outcome, clients: Sequence[Records]) -> Outcome:
    """Every class sum replaced by the feature of one record of the class, as often as there are records."""
    by_name = {client.name: client for client in clients}
    messages = []
    for message in outcome.transcript.messages:
        sums, client = message.fields.get("A"), by_name.get(message.sender)
        if sums is None or client is None:
            messages.append(message)
            continue
        values = sums.values.copy()
        for label in np.unique(client.labels):
            own = np.flatnonzero(client.labels == label)
            values[label] = len(own) * client.features[own[0]]
        messages.append(replace(message, fields={**message.fields, "A": replace(sums, sent=values)}))
    return replace(outcome, transcript=replace(outcome.transcript, messages=tuple(messages)))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
def test_a_total_leak_of_few_vectors_is_never_silence(
    seed: int, make_task: Callable[..., MethodInput], tmp_path: Path
) -> None:
    """Forty means of 360 records show forty of them exactly: a leak, or undecided, and no clean bill."""
    task = make_task(seed=seed, clients=4, records=360)
    _, context = _context(task, "fedcgs", exact, tmp_path)
    outcome = planted(context.outcome, task.clients)
    seen = view(outcome.transcript, ThreatModel())
    audit = ReconstructionAudit(control_records=60, permutations=200, pictures=0)
    findings = audit.assess(context.attack(seen), replace(context, outcome=outcome, view=seen))
    assert findings
    for finding in findings:
        assert finding.verdict in {"leak", "inconclusive"}, finding.reason


def test_singletons_are_a_leak(make_task: Callable[..., MethodInput], tmp_path: Path) -> None:
    """Twenty clients of a few records each: most class means are single records."""
    found = _findings(make_task(clients=20, records=100), "fedcgs", exact, tmp_path)
    assert found["oracle"].verdict == "leak", found["oracle"].reason


@pytest.mark.long
def test_fresh_records_cry_wolf_no_more_often_than_said(
    make_task: Callable[..., MethodInput], tmp_path: Path
) -> None:
    """The set-level negative control over several splits: at most one flag among twenty tests."""
    flagged = []
    for seed in range(5):
        for method in ("fedcgs", "fedpft"):
            task = make_task(seed=seed, clients=2)
            for finding in _findings(task, method, exact, tmp_path, pictures=0).values():
                assert finding.controls.negative is not None
                flagged.append(finding.controls.negative.flagged)
    assert len(flagged) == 20
    assert sum(flagged) <= 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_private_images_of_another_domain_than_the_tests_are_not_mistaken_for_reconstructions(
    seed: int, make_task: Callable[..., MethodInput], tmp_path: Path
) -> None:
    """Class means of other records of a domain that half of the fresh images are not of."""

    def inverted(records: Records, step: int) -> Records:
        images = records.images.copy()
        images[::step] = 255 - images[::step]
        return replace(records, images=images)

    task = make_task(clients=2, records=400, seed=seed)
    assert task.public is not None
    clients = tuple(inverted(client, 1) for client in task.clients)
    task = replace(task, clients=clients, test=inverted(task.test, 2), public=inverted(task.public, 2))
    parts = [tuple(client.take(np.arange(start, len(client), 2)) for client in clients) for start in (0, 1)]
    result, _ = _context(replace(task, clients=parts[0]), "fedcgs", exact, tmp_path)
    _, context = _context(replace(task, clients=parts[1]), "fedcgs", exact, tmp_path)
    audit = ReconstructionAudit(control_records=100, permutations=400, pictures=0)
    found = {finding.selection: finding for finding in audit.assess(result, context)}
    assert found["oracle_all"].verdict == "inconclusive", found["oracle_all"].reason
    assert "may differ from fresh ones without any release" in found["oracle_all"].reason
    assert any(each.role == "confounder" and each.detected for each in found["oracle_all"].all_controls)
    assert found["oracle"].verdict != "leak", found["oracle"].reason
