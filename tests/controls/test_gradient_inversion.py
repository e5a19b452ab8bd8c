"""The inversion audit with images from gradients: caught, not found under noise, never safe by a broken attack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedassay.attacks.gradients.attack import INPUTS, STRONGEST, GradientInversion
from fedassay.audits.inversion.audit import InversionAudit
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.membership import MembershipGame, no_questions
from fedassay.contracts.method import MethodInput
from fedassay.exchange.view import View
from fedassay.methods.fedsgd.method import FedSGD
from fedassay.records.record import Finding
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]


def judged(
    task: MethodInput, make_context: MakeContext, folder: Path, *, broken: bool = False, batch: int = 2
) -> dict[str | None, Finding]:
    def attack(
        view: View, game: MembershipGame | None = None, *, rerun_previous_attacks: bool = False
    ) -> AttackResult:
        known = Knowledge(None, 10, task.backbone, True, Seeds(0), "cpu", SILENT)
        result = GradientInversion(rounds=3).run(view, known)
        rng = np.random.default_rng(0)
        made = tuple(
            replace(
                item, images=rng.integers(0, 256, item.images.shape).astype(np.uint8) if broken else item.images
            )
            for item in result.reconstructions
        )
        return replace(result, reconstructions=made)

    method = FedSGD(body={"name": "mlp", "hidden": 128}, batch=batch)
    context = make_context(task, method, bounds=6, folder=folder)
    own = context.attacked(attack, "test", no_questions())
    findings = InversionAudit(permutations=400, pictures=4).assess(attack(context.view), own)
    assert {finding.attack for finding in findings} == {"gradient_inversion"}
    for finding in findings:
        assert finding.controls.positive is not None
        assert finding.controls.negative is not None
        assert not finding.controls.negative.flagged
    return {finding.source: finding for finding in findings}


def test_images_of_a_batch_are_a_leak(make_task: MakeTask, make_context: MakeContext, tmp_path: Path) -> None:
    found = judged(make_task(clients=6, records=60), make_context, tmp_path)
    assert set(found) == {INPUTS, STRONGEST}
    finding = found[INPUTS]
    assert finding.verdict == "leak", finding.reason
    assert finding.metrics["psnr"].value == 100
    assert finding.metrics["psnr"].n == 12
    # Six batches of two, of the sixty records that the clients hold.
    assert finding.harm is not None
    assert (finding.harm.count, finding.harm.total) == (12, 12)
    assert "no client holds" in finding.controls.negative.release  # type: ignore[union-attr]
    assert (tmp_path / finding.pictures[0].file).is_file()


def test_a_broken_attack_is_inconclusive(make_task: MakeTask, make_context: MakeContext, tmp_path: Path) -> None:
    for finding in judged(make_task(clients=6, records=60), make_context, tmp_path, broken=True).values():
        assert finding.verdict == "inconclusive", finding.reason


@pytest.mark.slow
def test_a_private_gradient_is_no_leak(make_task: MakeTask, make_context: MakeContext, tmp_path: Path) -> None:
    ((source, finding),) = judged(make_task(clients=6, records=60, epsilon=8.0), make_context, tmp_path).items()
    # Held against the same mixture of a gradient without noise, and not against what was taken apart there.
    assert source == STRONGEST
    assert finding.verdict == "no_leak_found", finding.reason
    assert finding.limit is not None
    assert finding.controls.positive.caught  # type: ignore[union-attr]
