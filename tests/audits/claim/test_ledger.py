"""The ledger as an audit: claimed against accounted, without an attack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fedassay.audits.claim.ledger import LedgerAudit
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import MethodInput
from fedassay.exchange.release import NoClaim, PrivacyClaim
from fedassay.nets.dp_sgd.tape import trainings
from fedassay.records.record import Finding
from fedassay.support.registry import lookup

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]


def assess(context: AuditContext) -> Finding:
    (finding,) = LedgerAudit().assess(None, context)
    assert finding.audit == "ledger"
    return finding


def test_a_claim_that_the_ledger_supports(make_task: MakeTask, make_context: MakeContext) -> None:
    finding = assess(make_context(make_task(epsilon=3.0), lookup("method", "fedcgs")()))
    assert finding.verdict == "sound"
    assert finding.metrics["claimed"].value == 3.0
    assert finding.metrics["accounted"].value == pytest.approx(3.0, rel=1e-6)
    assert finding.metrics["observed"].value is None
    assert "rests on the ledger and the run's tape" in finding.reason
    assert "not refuted on" in finding.reason
    assert "the noise follows from the seed 0 and is no secret" in finding.reason
    assert [answer.status for answer in finding.tape] == ["passed"] * 4


def test_a_claim_that_it_does_not(make_task: MakeTask, make_context: MakeContext) -> None:
    context = make_context(make_task(epsilon=3.0), lookup("method", "fedcgs")())
    transcript = context.outcome.transcript
    assert isinstance(transcript.claim, PrivacyClaim)
    bold = replace(transcript, claim=transcript.claim.model_copy(update={"epsilon": 1.0}))
    finding = assess(replace(context, outcome=replace(context.outcome, transcript=bold)))
    assert finding.verdict == "unsupported"
    assert "above the claimed 1" in finding.reason


def test_a_claim_at_another_delta_is_accounted_there(make_task: MakeTask, make_context: MakeContext) -> None:
    context = make_context(make_task(epsilon=3.0), lookup("method", "fedcgs")())
    transcript = context.outcome.transcript
    assert isinstance(transcript.claim, PrivacyClaim)
    other = replace(transcript, claim=transcript.claim.model_copy(update={"delta": 1e-9}))
    finding = assess(replace(context, outcome=replace(context.outcome, transcript=other)))
    assert finding.verdict == "unsupported"
    value = finding.metrics["accounted"].value
    assert value is not None
    assert value > 3.5


def test_exact_counts_under_add_remove_are_named(make_task: MakeTask, make_context: MakeContext) -> None:
    finding = assess(make_context(make_task(epsilon=3.0), lookup("method", "fedcgs")(counts="exact")))
    assert finding.verdict == "unsound"
    assert "one message decides with certainty" in finding.reason
    assert finding.metrics["accounted"].value == float("inf")
    assert "leaves exactly" in finding.reason or "leave exactly" in finding.reason


def test_no_claim_is_not_run(make_task: MakeTask, make_context: MakeContext) -> None:
    context = make_context(make_task(), lookup("method", "fedcgs")())
    assert isinstance(context.outcome.transcript.claim, NoClaim)
    finding = assess(context)
    assert finding.verdict == "not_run"
    assert finding.metrics["accounted"].value == float("inf")


@pytest.mark.long
def test_steps_that_were_measured_count_here_as_well(make_task: MakeTask, make_context: MakeContext) -> None:
    context = make_context(
        make_task(epsilon=4.0, clients=2, records=80), lookup("method", "fedavg")(local_epochs=2)
    )
    assert "seen as their steps were taken" in assess(context).reason
    assert context.tape is not None
    entry, _ = trainings(context.tape).values()
    less = replace(entry, facts=replace(entry.facts, noise=entry.facts.noise / 2))
    context.tape.trainings[entry.key] = less
    context.data.shared.clear()
    assert assess(context).verdict == "unsound"
