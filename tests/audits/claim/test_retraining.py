"""Bodies trained on the records: the audit finds by itself what the sensitivity of a fixed body misses."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import numpy as np
import pytest

from fedassay.audits.claim.audit import DpClaimAudit
from fedassay.audits.claim.outliers import outliers_of
from fedassay.audits.claim.reruns import what_leaves
from fedassay.audits.claim.retraining import worst_retraining
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.methods.fedlog.method import FedLog
from fedassay.privacy.variants import distances
from fedassay.records.record import Finding
from fedassay.support.errors import NotRunError
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]


def _fedlog(**params: object) -> FedLog:
    return FedLog.model_validate({"rounds": 1, "body": "private", "public_seed": 0, **params})


@pytest.fixture
def judge(make_task: MakeTask, make_context: MakeContext) -> Callable[..., Finding]:
    def assess(method: FedLog, *, epsilon: float = 5.0, records: int = 257) -> Finding:
        context = make_context(make_task(clients=2, records=records, epsilon=epsilon), method)
        (finding,) = DpClaimAudit(mechanism_trials=20_000).assess(None, context)
        return finding

    return assess


def _observed(finding: Finding) -> float:
    value = finding.metrics["observed"].value
    assert value is not None, finding.reason
    return value


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1.0, 5.0, 10.0])
def test_a_body_trained_on_the_records_is_unsound(judge: Callable[..., Finding], epsilon: float) -> None:
    found = judge(_fedlog(), epsilon=epsilon)
    assert found.verdict == "unsound", found.reason
    assert _observed(found) > 1.5 * epsilon
    positive, negative = found.controls.positive, found.controls.negative
    assert positive is not None
    assert positive.caught
    assert negative is not None
    assert not negative.flagged
    assert any("its noise is calibrated to 11.18" in text for text in found.assumptions)
    assert any("is public" in text for text in found.assumptions)


@pytest.mark.long
def test_a_body_that_hardly_trains_is_not_called_unsound(judge: Callable[..., Finding]) -> None:
    """Then the sensitivity of a fixed body holds, and what is seen stays below the claim."""
    found = judge(_fedlog(learning_rate=1e-12, local_epochs=1))
    assert found.verdict == "unsupported", found.reason
    assert 0 < _observed(found) < 5.0


@pytest.mark.long
@pytest.mark.parametrize("params", [{"body": "public"}, {"body": "dp_sgd", "dp_sgd": {"sampling_rate": 1.0}}])
def test_other_bodies_are_sound(judge: Callable[..., Finding], params: dict[str, object]) -> None:
    found = judge(_fedlog(local_epochs=1, **params))
    assert found.verdict == "sound", found.reason
    assert 0 < _observed(found) <= 5.0


@pytest.mark.long
def test_under_replace_one_the_minibatches_stay_and_less_is_found(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    task = make_task(epsilon=5.0, adjacency="replace_one")
    (found,) = DpClaimAudit(mechanism_trials=20_000).assess(None, make_context(task, _fedlog(rounds=2)))
    assert found.verdict == "unsound", found.reason
    said = re.search(r"by ([\d.]+); its noise is calibrated to ([\d.]+)", " ".join(found.assumptions))
    assert said is not None
    moved, calibrated = (float(number) for number in said.groups())
    assert calibrated == pytest.approx(22.27, abs=0.01)
    assert moved < calibrated


def test_without_a_public_seed_nothing_is_known_to_train_again(judge: Callable[..., Finding]) -> None:
    found = judge(_fedlog(public_seed=None))
    assert found.metrics["observed"].value is None
    # No attack, but replays on neighbours: the bodies move T further than its noise was calibrated to.
    assert found.verdict == "unsound"
    assert "above the declared sensitivity" in found.reason


def test_a_record_that_makes_a_minibatch_more_is_tried(make_task: MakeTask, make_context: MakeContext) -> None:
    context = make_context(make_task(clients=1, records=75, epsilon=5.0), _fedlog(local_epochs=1, batch=32))
    (retrained,) = context.outcome.retrained.values()
    seen = []

    def spy(index: int, without: Records, within: Records) -> object:
        seen.append((index, len(without), len(within)))
        return retrained.experiment(index, without, within)

    watched = dataclasses.replace(retrained, experiment=spy)
    context = dataclasses.replace(context, outcome=dataclasses.replace(context.outcome, retrained={"T": watched}))
    found = worst_retraining(context, "add_remove")
    assert seen == [(0, 75, 76)] * 3 + [(0, 64, 65)] * 3
    assert "the worst of 6 neighbours tried, by the exact statistics" in found.says


@pytest.mark.long
def test_the_experiment_is_what_the_method_does(make_task: MakeTask, make_context: MakeContext) -> None:
    """Runs of the method itself, many noise seeds a side, are as far apart as the experiment says."""
    context = make_context(make_task(clients=2, records=200, epsilon=5.0), _fedlog(local_epochs=2))
    first, second = context.data.clients
    (retrained,) = context.outcome.retrained.values()
    outlier = outliers_of(context, second, "add_remove")[0]
    experiment = retrained.experiment(1, outlier.without, outlier.within)

    def sent(records: Records, seed: int) -> np.ndarray:
        outcome = context.method.run_on([first.take(np.zeros(0, np.int64)), records], Seeds(seed))
        released = what_leaves(outcome, "client/1")
        return np.concatenate([released["0/counts"], released["0/sums"]])

    # The same noise on both sides drops out.
    step = sent(outlier.within, 0) - sent(outlier.without, 0)
    assert np.linalg.norm(step) == pytest.approx(distances(experiment)[0], rel=1e-4)
    along = step / np.linalg.norm(step)
    zero = np.array([sent(outlier.without, 1000 + i) @ along for i in range(60)])
    one = np.array([sent(outlier.within, 2000 + i) @ along for i in range(60)])
    spread = np.sqrt((zero.var(ddof=1) + one.var(ddof=1)) / 2)
    # Standard error of the estimate: sqrt(2/60 + mu^2 / (4 * 59)).
    error = np.sqrt(2 / 60 + experiment.mu**2 / 236)
    assert abs((one.mean() - zero.mean()) / spread - experiment.mu) < 3 * error
    assert experiment.mu > 3 * error


def test_exact_counts_make_the_neighbours_certain(make_task: MakeTask, make_context: MakeContext) -> None:
    context = make_context(make_task(clients=1, records=40, epsilon=5.0), _fedlog(counts="exact"))
    assert worst_retraining(context, "add_remove").experiment.mu == np.inf


def test_no_client_with_two_records_is_said(make_task: MakeTask, make_context: MakeContext) -> None:
    context = make_context(make_task(clients=3, records=3, epsilon=5.0), _fedlog())
    with pytest.raises(NotRunError, match="no client has two records"):
        worst_retraining(context, "add_remove")
