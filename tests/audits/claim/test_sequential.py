"""`sequential: true`: FedLog's released code falls after few releases, what holds is sound, and stays so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fedassay.audits.claim.audit import DpClaimAudit
from fedassay.audits.claim.tape.sensitivity import LEAST_REPLAYS
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import MethodInput
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedlog.method import FedLog

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 10.0])
def test_fedlogs_released_code_is_refuted_in_two_thousand_releases(
    make_task: MakeTask, make_context: MakeContext, epsilon: float
) -> None:
    task = make_task(epsilon=epsilon, adjacency="add_remove", clients=2, records=60)
    method = FedLog(rounds=10, local_epochs=1, width=6, mechanism="released_code")
    audit = DpClaimAudit(sequential=True, mechanism_trials=10_000, replays=LEAST_REPLAYS)
    (found,) = audit.assess(None, make_context(task, method, bounds=50))
    assert found.verdict == "unsound", found.reason
    assert "refuted after" in found.reason
    observed = found.metrics["observed"]
    assert observed.n is not None
    assert observed.n <= 2000
    assert found.controls.positive is not None
    assert found.controls.positive.caught
    assert found.controls.negative is not None
    assert not found.controls.negative.flagged


def test_a_whole_mechanism_is_sound_and_spends_its_releases(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    context = make_context(make_task(epsilon=1.0, adjacency="add_remove"), FedCGS(), bounds=200)
    (found,) = DpClaimAudit(sequential=True, mechanism_trials=8000).assess(None, context)
    assert found.verdict == "sound", found.reason
    assert "not refuted by 16,000 releases" in found.reason
    assert found.limit is not None
