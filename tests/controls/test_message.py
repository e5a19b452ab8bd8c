"""The message audit: leaks are found, defences are believed, and a broken attack is never mistaken for safety."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedassay.attacks.gram import factorization
from fedassay.attacks.gram.attack import GramFactorization
from fedassay.attacks.label_distribution import LabelDistribution
from fedassay.attacks.message_algebra import MessageAlgebra
from fedassay.audits.message.audit import MessageAudit
from fedassay.contracts.attack import Attack, AttackResult, Knowledge
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.membership import no_questions
from fedassay.contracts.method import Method, MethodInput, Outcome
from fedassay.exchange.release import Release
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.exchange.view import View
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedlog.method import FedLog
from fedassay.methods.fedpft.method import FedPFT
from fedassay.methods.rivals.raw_features import RawFeatures
from fedassay.records.record import Finding
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]
AUDIT = MessageAudit()


def assessed(
    make_context: MakeContext, task: MethodInput, method: Method, attack: Attack
) -> Mapping[str, Finding]:
    """Findings on a run of a method, by source."""
    return _assessed(make_context(task, method), attack)


def _assessed(context: AuditContext, attack: Attack) -> Mapping[str, Finding]:
    knowledge = Knowledge(context.fresh, 10, None, False, Seeds(0), "cpu", SILENT)

    def attacked(seen: View) -> AttackResult:
        return attack.run(seen, knowledge)

    own = context.attacked(attacked, "test", no_questions())
    return {str(finding.source): finding for finding in AUDIT.assess(attacked(context.view), own)}


def controls_hold(finding: Finding) -> bool:
    positive, negative = finding.controls.positive, finding.controls.negative
    return positive is not None and positive.caught and negative is not None and not negative.flagged


@pytest.mark.parametrize("epsilon", [1.0, float("inf")])
def test_factorization_does_not_apply_to_signed_features(
    make_task: MakeTask, make_context: MakeContext, epsilon: float
) -> None:
    """Not run, with the reason: neither a failed control nor a sign of safety."""
    task = make_task(clients=3, records=60, backbone="small_cnn", epsilon=epsilon)
    assert min(client.features.min() for client in task.clients) < 0
    finding = assessed(make_context, task, FedCGS(), GramFactorization())["gram_factorization"]
    assert finding.verdict == "not_run"
    assert "signed" in finding.reason


@pytest.mark.parametrize("hidden", ["none", "counts", "all"])
def test_small_clients_of_fedcgs_leak(make_task: MakeTask, make_context: MakeContext, hidden: str) -> None:
    task = make_task(clients=3, records=18)
    method = FedCGS.model_validate({"secure_aggregation": hidden})
    finding = assessed(make_context, task, method, GramFactorization())["gram_factorization"]
    assert finding.verdict == "leak", finding.reason
    assert controls_hold(finding)
    error = finding.metrics["relative_error"]
    assert error.value is not None
    assert error.high is not None
    assert error.value < 1e-6 < error.high + 1e-6
    baseline = finding.baseline["relative_error"].value
    assert baseline is not None
    assert 0.2 < baseline < 1
    share = finding.metrics["fraction_recovered"]
    assert share.value is not None
    assert share.value > 0.9
    assert share.n == 18
    assert finding.metrics["label_accuracy"].value == 1.0
    assert "records' features computed exactly" in finding.reason


def test_noise_stops_the_factorization(make_task: MakeTask, make_context: MakeContext) -> None:
    task = make_task(clients=3, records=60, epsilon=10.0)
    finding = assessed(make_context, task, FedCGS(), GramFactorization())["gram_factorization"]
    assert finding.verdict == "no_leak_found", finding.reason
    assert controls_hold(finding)
    assert finding.metrics["relative_error"].value is None
    assert finding.metrics["relative_error"].reason
    assert finding.metrics["fraction_recovered"].value == 0.0


def test_many_records_stop_the_factorization(make_task: MakeTask, make_context: MakeContext) -> None:
    task = make_task(clients=2, records=300)
    finding = assessed(make_context, task, FedCGS(), GramFactorization())["gram_factorization"]
    assert finding.verdict == "no_leak_found"
    assert "can tell apart" in finding.reason


def test_a_limit_on_records_is_not_safety(make_task: MakeTask, make_context: MakeContext) -> None:
    task = make_task(clients=2, records=40)
    finding = assessed(make_context, task, FedCGS(), GramFactorization(max_records=10))["gram_factorization"]
    assert finding.verdict == "inconclusive"
    assert "max_records" in finding.reason


def test_a_broken_factorization_is_inconclusive(
    make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its iterations the attack must fail its own positive control."""

    def broken(problem: Any, rng: np.random.Generator, iterations: int, momentum: float) -> Any:
        turned = factorization._polar(rng.standard_normal((problem.basis.shape[1], len(problem.scatter))))
        return 0.0, problem.means + problem.basis @ (turned @ problem.scatter)

    monkeypatch.setattr(factorization, "_project", broken)
    task = make_task(clients=3, records=60)
    finding = assessed(make_context, task, FedCGS(), GramFactorization(trust=1e9))["gram_factorization"]
    assert finding.verdict == "inconclusive", finding.reason
    assert finding.controls.positive is not None
    assert not finding.controls.positive.caught


def test_singletons_and_ranks_of_fedcgs(make_task: MakeTask, make_context: MakeContext) -> None:
    task = make_task(clients=3, records=60)
    found = assessed(make_context, task, FedCGS.model_validate({"secure_aggregation": "counts"}), MessageAlgebra())
    singles = sum(int((np.bincount(client.labels, minlength=10) == 1).sum()) for client in task.clients)
    finding = found["singletons"]
    assert finding.verdict == "leak", finding.reason
    assert controls_hold(finding)
    assert f"{singles} of 60 records' features computed exactly" in finding.reason
    assert finding.metrics["label_accuracy"].value == 1.0
    structure = found["structure"]
    assert structure.verdict == "leak"
    assert controls_hold(structure)
    assert structure.metrics["counts_right"].value == 1.0
    assert "which are not sent" in structure.reason


def test_components_of_fedpft(make_task: MakeTask, make_context: MakeContext) -> None:
    found = assessed(make_context, make_task(clients=2, records=40), FedPFT(), MessageAlgebra())
    finding = found["collapsed_components"]
    assert finding.verdict == "leak", finding.reason
    assert controls_hold(finding)


def test_raw_features_do_not_go_unsaid(make_task: MakeTask, make_context: MakeContext) -> None:
    found = assessed(make_context, make_task(clients=2, records=40), RawFeatures(), MessageAlgebra())
    assert found["raw"].verdict == "leak"
    assert found["raw"].metrics["fraction_recovered"].value == 1.0


def test_large_classes_give_algebra_nothing(make_task: MakeTask, make_context: MakeContext) -> None:
    found = assessed(make_context, make_task(clients=1, records=400), FedCGS(), MessageAlgebra())
    assert set(found) == {"structure"}
    assert found["structure"].verdict == "no_leak_found", found["structure"].reason
    assert controls_hold(found["structure"])


def test_vectors_of_other_features_are_not_judged(make_task: MakeTask, make_context: MakeContext) -> None:
    """FedLog's sums are of features of the clients' own bodies: there is no truth to compare them with."""
    task = make_task(clients=2, records=30)
    method = FedLog.model_validate({"rounds": 1, "local_epochs": 1})
    found = assessed(make_context, task, method, MessageAlgebra())
    assert found["structure"].verdict in {"leak", "no_leak_found", "inconclusive"}
    for name, finding in found.items():
        if name != "structure":
            assert finding.verdict == "not_run"
            assert "own networks" in finding.reason


def _by_label(task: MethodInput) -> MethodInput:
    """The same records, dealt out so that every client holds a few classes."""
    images, labels = (
        np.concatenate([getattr(own, part) for own in task.clients]) for part in ("images", "labels")
    )
    parts = np.array_split(np.argsort(labels, kind="stable"), len(task.clients))
    dealt = zip(task.clients, parts, strict=True)
    return replace(
        task, clients=tuple(replace(own, images=images[part], labels=labels[part]) for own, part in dealt)
    )


@pytest.mark.parametrize("hidden", ["none", "counts"])
def test_label_histograms_leak_where_clients_differ(
    make_task: MakeTask, make_context: MakeContext, hidden: str
) -> None:
    task = _by_label(make_task(clients=4, records=48))
    method = FedCGS.model_validate({"secure_aggregation": hidden})
    finding = assessed(make_context, task, method, LabelDistribution())["label_histograms"]
    assert finding.verdict == "leak", finding.reason
    assert controls_hold(finding)
    ours, baseline = finding.metrics["total_variation"].value, finding.baseline["total_variation"].value
    assert ours is not None
    assert baseline is not None
    assert ours < 0.3 * baseline


def test_two_histograms_that_are_read_exactly_leak(make_task: MakeTask, make_context: MakeContext) -> None:
    """No interval of two distances is short enough to show it, but nothing is left to chance."""
    task = _by_label(make_task(clients=2, records=48))
    finding = assessed(make_context, task, FedCGS(), LabelDistribution())["label_histograms"]
    assert finding.verdict == "leak", finding.reason
    assert controls_hold(finding)


def test_label_histograms_under_heavy_noise_are_no_leak(make_task: MakeTask, make_context: MakeContext) -> None:
    task = _by_label(make_task(clients=6, records=120))
    release = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(100.0,), sensitivity=(1.0,))
    rng = np.random.default_rng(0)
    messages = tuple(
        Message(0, client.name, SERVER, {"N": MessageField(rng.normal(20, 100, 10), "class_counts", release)})
        for client in task.clients
    )
    outcome = Outcome(Transcript("noised", 10, messages), None)
    finding = _assessed(make_context(task, outcome=outcome), LabelDistribution())["label_histograms"]
    assert finding.verdict in {"no_leak_found", "inconclusive"}, finding.reason
    assert controls_hold(finding)


def test_a_captured_transcript_has_no_truth(make_task: MakeTask, make_context: MakeContext) -> None:
    """Without records nothing is matched; what arithmetic says stands, with controls of records at hand."""
    task = make_task(clients=2, records=20)
    outcome = FedCGS.model_validate({"secure_aggregation": "counts"}).run(task)
    context = make_context(replace(task, clients=()), outcome=outcome)
    found = _assessed(context, GramFactorization())
    assert found["gram_factorization"].verdict == "not_run"
    assert "without known records" in found["gram_factorization"].reason
    found = _assessed(context, MessageAlgebra())
    assert found["singletons"].verdict == "not_run"
    assert found["structure"].verdict == "leak"
    assert found["structure"].controls.positive is not None
    assert found["structure"].controls.positive.caught
    with pytest.raises(NotRunError, match="no sender in the view has records"):
        _assessed(context, LabelDistribution())


def test_a_view_without_messages_is_said(make_task: MakeTask, make_context: MakeContext) -> None:
    with pytest.raises(NotRunError):
        assessed(
            make_context,
            make_task(clients=2, records=20),
            RawFeatures(),
            GramFactorization(),
        )


def test_rules_are_tried_out_where_features_are_the_clients_own(
    make_task: MakeTask, make_context: MakeContext
) -> None:
    """FedLog's statistics are of features that nobody else has; the rules' control then uses the backbone's."""
    task = make_task(clients=2, records=60, epsilon=10.0)
    finding = assessed(make_context, task, FedLog(rounds=1, local_epochs=1, width=5), MessageAlgebra())[
        "structure"
    ]
    assert finding.verdict == "no_leak_found", finding.reason
    assert controls_hold(finding)
