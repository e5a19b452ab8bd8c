"""Clients dealt anew are like the clients, hold no record twice, and make no leak where nothing is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.attacks.label_distribution import LabelDistribution
from fedassay.audits.message.audit import MessageAudit
from fedassay.audits.message.dealt_anew import deal
from fedassay.audits.stats.paired import sign_flip
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.membership import no_questions, visible
from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyClaim
from fedassay.exchange.view import ThreatModel, View
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.records.record import Finding
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

CLASSES = 6


def clients_of(sizes: list[int], seed: int, persons: int | None = None, skew: float = 1.0) -> list[Records]:
    rng = np.random.default_rng(seed)
    clients = []
    for number, size in enumerate(sizes):
        labels = rng.choice(CLASSES, size=size, p=rng.dirichlet(np.full(CLASSES, skew)))
        images = (1000 * number + np.arange(size)).astype(np.uint32).view(np.uint8).reshape(size, 1, 4, 1)
        groups = None if persons is None else 100 * number + np.arange(size) // persons
        features = np.zeros((size, 1), np.float32)
        clients.append(Records(f"client/{number}", images, labels, lambda _, own=features: own, groups))
    return clients


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=6).filter(any),
    st.integers(0, 99),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([0.5, 1.0]),
)
def test_no_record_is_dealt_twice_and_persons_stay_together(
    sizes: list[int], seed: int, persons: int | None, part: float
) -> None:
    clients = clients_of(sizes, seed, persons)
    dealt = deal(clients, np.random.default_rng(seed), part)
    assert [client.name for client in dealt] == [client.name for client in clients]
    images = [image.tobytes() for client in dealt for image in client.images]
    known = {
        image.tobytes(): label
        for client in clients
        for image, label in zip(client.images, client.labels, strict=True)
    }
    assert len(set(images)) == len(images)
    labels = [label for client in dealt for label in client.labels]
    assert [known[image] for image in images] == labels
    if persons is not None:
        whose = [set(client.groups.tolist()) for client in dealt if client.groups is not None]
        assert sum(map(len, whose)) == len(set().union(*whose))
    if persons in (None, 1):
        for before, after in zip(clients, dealt, strict=True):
            assert len(after) == (max(1, round(part * len(before))) if len(before) else 0)


def test_clients_of_few_classes_stay_so() -> None:
    def concentration(clients: list[Records]) -> float:
        shares = [np.bincount(own.labels, minlength=CLASSES) / len(own) for own in clients]
        return float(np.mean([(share**2).sum() for share in shares]))

    skewed, even = clients_of([60] * 5, 0, skew=0.1), clients_of([60] * 5, 0, skew=50.0)
    again = [deal(skewed, np.random.default_rng(seed)) for seed in range(20)]
    flat = [deal(even, np.random.default_rng(seed)) for seed in range(20)]
    assert np.mean([concentration(each) for each in again]) > 0.8 * concentration(skewed)
    assert np.mean([concentration(each) for each in flat]) < 1.2 * concentration(even)


@pytest.mark.long
def test_estimates_that_know_nothing_are_no_leak_at_five_percent() -> None:
    """Four deals of five clients: the truths share their records, and the test must not mind."""
    rejected = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        clients = clients_of([40] * 5, seed, skew=[0.3, 3.0][seed % 2])
        prior = np.bincount(np.concatenate([own.labels for own in clients]), minlength=CLASSES) / 200
        saved = []
        for owner in (own for number in range(4) for own in deal(clients, np.random.default_rng([seed, number]))):
            true = np.bincount(owner.labels, minlength=CLASSES) / max(1, len(owner))
            guess = rng.dirichlet(1e-3 + 300 * prior)
            saved.append((np.abs(prior - true).sum() - np.abs(guess - true).sum()) / 2)
        rejected += sign_flip(np.array(saved), rng, tests=1).p <= 0.05
    assert rejected <= 19  # 10 are expected at most, 19 with probability .003


def finding_of(
    make_task: Callable[..., MethodInput],
    make_context: Callable[..., AuditContext],
    epsilon: float,
    view: Any = None,
    claimed: float | None = None,
) -> Finding:
    task = make_task(clients=4, records=160, epsilon=epsilon, adjacency="add_remove")
    context = make_context(task, FedCGS(), bounds=14)
    sent = context.outcome.transcript
    if claimed is not None and isinstance(sent.claim, PrivacyClaim):
        claim = sent.claim.model_copy(update={"epsilon": claimed})
        sent = replace(sent, claim=claim)
        context = replace(context, outcome=replace(context.outcome, transcript=sent))
    if view is not None:
        threat = ThreatModel.model_validate({"view": view})
        context = replace(context, view=visible(context.outcome, threat))
    knowledge = Knowledge(context.data.fresh, 10, None, False, Seeds(0), "cpu", SILENT)

    def attacked(seen: View, *_: Any, **__: Any) -> AttackResult:
        return LabelDistribution().run(seen, knowledge)

    own = context.attacked(attacked, "test", no_questions())
    return next(iter(MessageAudit().assess(attacked(context.view), own)))


@pytest.mark.parametrize("view", [None, "aggregate"])
def test_four_sites_and_a_sum_can_be_judged(
    make_task: Callable[..., MethodInput], make_context: Callable[..., AuditContext], view: Any
) -> None:
    """Four senders, and the one sum, were `inconclusive` whatever the noise was: twelve would have decided."""
    silent = finding_of(make_task, make_context, 0.05, view)
    assert silent.verdict == "no_leak_found", silent.reason
    assert silent.limit is not None
    assert silent.limit.n >= 12
    assert "dealt anew" in silent.reason


@pytest.mark.parametrize("view", [None, "aggregate"])
def test_counts_under_noise_are_a_leak_where_they_are_closer_than_the_claim_allows(
    make_task: Callable[..., MethodInput], make_context: Callable[..., AuditContext], view: Any
) -> None:
    """A claim on records protects no count of labels; noise that is smaller than claimed shows in them."""
    honest = finding_of(make_task, make_context, 3.0, view)
    assert honest.verdict == "no_leak_found", honest.reason
    false = finding_of(make_task, make_context, 50.0, view, claimed=0.1)
    assert false.verdict == "leak", false.reason
    assert "is what the claim allows" in false.reason
