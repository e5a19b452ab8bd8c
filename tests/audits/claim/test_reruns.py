"""Rerunning a whole method on neighbours: what it sees, what it cannot, and that it never invents."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from fedassay.audits.claim.audit import DpClaimAudit
from fedassay.audits.claim.outliers import outliers_of
from fedassay.audits.claim.reruns import fit_direction, what_leaves
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import Method, MethodInput, Outcome
from fedassay.exchange.release import PrivacyClaim, Release, exact
from fedassay.exchange.transcript import Message, MessageField, Transcript
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedpft.method import FedPFT
from fedassay.methods.shared.heads import HeadTraining
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.records.record import Finding
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import DataError

DELTA = 1e-5
ADJACENCIES: tuple[Adjacency, ...] = ("add_remove", "replace_one", "replace_one_same_label")
MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]


@dataclass(frozen=True)
class Sums:
    """Every client sends the sum of its clipped features, and claims epsilon 0.5 for whatever noise it adds.

    Attributes:
        sigma: Of the noise.
        counts: Whether the number of records is sent as well, exactly.
        ragged: Whether the message grows with the number of records.
        blind: Whether the records are not looked at.
        breaks: Whether it fails on data that are not the task's own.
    """

    sigma: float = 0.0
    counts: bool = False
    ragged: bool = False
    blind: bool = False
    breaks: bool = False

    def run(self, task: MethodInput) -> Outcome:
        if self.breaks and not all(len(client) for client in task.clients):
            raise DataError("Sums: a client has no records")
        messages = []
        for client in task.clients:
            features = np.asarray(client.features, np.float64)
            features = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1.0)
            total = np.zeros(features.shape[1]) if self.blind else features.sum(axis=0)
            noise = task.seeds.numpy("noise", client.name).standard_normal(total.shape)
            gaussian = Release(
                mechanism="gaussian", adjacency="add_remove", noise_scale=(self.sigma,), sensitivity=(1.0,)
            )
            fields = {"sums": MessageField(total + self.sigma * noise, "other", gaussian)}
            if self.counts:
                fields["n"] = MessageField(np.array([len(client)], np.int32), "other", exact("labels"))
            if self.ragged:
                fields["rows"] = MessageField(np.zeros(len(client)), "other", exact())
            messages.append(Message(0, client.name, "server", fields))
        adjacency = task.privacy.adjacency
        claim = PrivacyClaim(epsilon=0.5, delta=DELTA, adjacency=adjacency, source="a test")
        return Outcome(Transcript("sums", task.classes, tuple(messages), claim), None)


ENOUGH = calibrate_sigma(0.5, DELTA, 1.0)
QUICK_HEAD = HeadTraining(solver="adam", epochs=1)


@pytest.fixture(scope="module")
def judge(make_task: MakeTask, make_context: MakeContext) -> Callable[..., Finding]:
    def assess(
        method: Method,
        *,
        adjacency: Adjacency = "add_remove",
        epsilon: float = 0.5,
        runs: int = 200,
        seed: int = 0,
        clients: int = 3,
    ) -> Finding:
        task = make_task(clients=clients, records=20 * clients, epsilon=epsilon, adjacency=adjacency, seed=seed)
        (finding,) = DpClaimAudit(mode="rerun", method_runs=runs).assess(None, make_context(task, method))
        return finding

    return assess


def observed(finding: Finding) -> float:
    value = finding.metrics["observed"].value
    assert value is not None, finding.reason
    return value


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_too_little_noise_is_disproved(judge: Callable[..., Finding], adjacency: Adjacency) -> None:
    found = judge(Sums(sigma=0.1), adjacency=adjacency)
    assert found.verdict == "unsound", found.reason
    assert observed(found) > 2
    assert found.metrics["observed"].reason.startswith("threshold")
    assert found.controls.positive is not None
    assert found.controls.positive.caught
    assert found.controls.negative is not None
    assert not found.controls.negative.flagged
    assert found.source is not None
    assert "at client/" in found.source


def test_enough_noise_is_not_refuted_and_the_reach_is_told(judge: Callable[..., Finding]) -> None:
    found = judge(Sums(sigma=ENOUGH))
    assert found.verdict == "unsupported", found.reason
    assert "was not drawn from task.mechanism" in found.reason
    assert observed(found) <= 0.5
    assert "200 runs a side can show at most" in found.reason
    assert found.controls.positive is not None
    assert found.controls.positive.caught


@pytest.mark.long
def test_bounds_are_rarely_above_the_truth(judge: Callable[..., Finding]) -> None:
    """Noise for exactly epsilon 2: the 95 % bounds of 25 audits are below it, but for a few."""
    sigma = calibrate_sigma(2.0, DELTA, 1.0)
    bounds = [observed(judge(Sums(sigma=sigma), runs=40, seed=seed, clients=1)) for seed in range(25)]
    assert np.mean(np.array(bounds) > 2.0) <= 0.18  # 5 % of 25, plus 3 standard deviations


@pytest.mark.parametrize("method", [Sums(sigma=ENOUGH, counts=True), Sums(sigma=ENOUGH, ragged=True)])
def test_a_field_that_differs_exactly_is_found(judge: Callable[..., Finding], method: Sums) -> None:
    """The number of records, sent as a number or given away by the length of a message."""
    found = judge(method)
    assert found.verdict == "unsound"
    assert observed(found) == pytest.approx(3.28, abs=0.01)  # the most that 2 x 100 tested runs can show
    if method.counts:
        assert '"n" leaves exactly: under add_remove one record changes it' in found.reason


def test_a_release_that_ignores_the_record_is_inconclusive(judge: Callable[..., Finding]) -> None:
    found = judge(Sums(sigma=1.0, blind=True), adjacency="replace_one_same_label")
    assert found.verdict == "inconclusive"
    assert "positive control was not caught" in found.reason


def test_what_cannot_be_rerun_is_not_observed(
    judge: Callable[..., Finding], make_task: MakeTask, make_context: MakeContext
) -> None:
    found = judge(Sums(sigma=ENOUGH, breaks=True))
    assert found.metrics["observed"].value is None
    assert "cannot be run again on client/0 alone: Sums: a client has no records" in found.reason
    alone = make_context(make_task(clients=3, records=3), Sums(sigma=ENOUGH))
    (tiny,) = DpClaimAudit(mode="rerun").assess(None, alone)
    assert tiny.metrics["observed"].reason == "no client has two records to rerun the method on"


def test_auto_reruns_only_where_no_statistic_is_named(make_task: MakeTask, make_context: MakeContext) -> None:
    audit = DpClaimAudit(mode="auto", method_runs=40, mechanism_trials=1000)
    (whole,) = audit.assess(None, make_context(make_task(records=60, epsilon=0.5), Sums(sigma=ENOUGH)))
    assert whole.source is not None
    assert "at client/" in whole.source
    (statistic,) = audit.assess(None, make_context(make_task(epsilon=0.5), FedCGS()))
    assert statistic.source == "statistics"


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "adjacency"),
    [
        (FedCGS(), "replace_one"),
        (FedCGS(noise="central", secure_aggregation="all"), "replace_one_same_label"),
        (FedPFT(components=2, covariance="diag", head=QUICK_HEAD), "replace_one_same_label"),
    ],
)
def test_shipped_methods_can_be_rerun(judge: Callable[..., Finding], method: Method, adjacency: Adjacency) -> None:
    """On one client's real records, the others empty; at a claim of 50 the outlier shows."""
    found = judge(method, adjacency=adjacency, epsilon=50.0, runs=40)
    assert found.metrics["observed"].value is not None, found.reason
    assert found.verdict == "sound", found.reason


def test_a_mechanism_whose_worst_neighbours_are_unknown_names_no_statistic(make_task: MakeTask) -> None:
    """Theorem 4.1 on features clipped to the orthant: nothing to release by itself, so it must be rerun."""
    task = make_task(epsilon=1.0, adjacency="replace_one_same_label")
    published = {"components": 1, "mechanism": "paper", "head": {"solver": "adam", "epochs": 1}}
    assert FedPFT.model_validate(published).run(task).mechanisms
    assert not FedPFT.model_validate({**published, "nonnegative": True}).run(task).mechanisms


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_outliers_are_neighbours(make_task: MakeTask, make_context: MakeContext, adjacency: Adjacency) -> None:
    context = make_context(make_task(clients=3, records=60, adjacency=adjacency), Sums())
    client = context.data.clients[1]
    outliers = outliers_of(context, context.data.clients[1], adjacency)
    assert len({outlier.name for outlier in outliers}) == 3
    for outlier in outliers:
        zero, one = outlier.without, outlier.within
        assert zero is client
        if adjacency == "add_remove":
            assert len(one) == len(zero) + 1
            np.testing.assert_array_equal(one.images[:-1], zero.images)
            np.testing.assert_array_equal(one.labels[:-1], zero.labels)
            continue
        changed = (one.images != zero.images).any(axis=(1, 2, 3))
        assert changed.sum() == 1
        other = one.labels != zero.labels
        assert other.sum() == (adjacency == "replace_one")
        assert not (other & ~changed).any()
        assert one.features.shape == zero.features.shape
        assert not np.array_equal(one.features, zero.features)


def test_a_direction_weighs_coordinates_by_their_noise() -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((60, 3)) * np.array([1.0, 5.0, 1.0])
    zero = [{"a": row} for row in noise]
    one = [{"a": row + np.array([1.0, 1.0, 0.0])} for row in noise]
    weights = fit_direction(zero, one).weights
    assert weights[2] == pytest.approx(0, abs=1e-9)
    assert weights[0] / weights[1] == pytest.approx(25, rel=0.6)
    assert weights[3] == 0  # the length never differs


def test_a_constant_that_differs_outweighs_everything() -> None:
    rng = np.random.default_rng(1)
    zero = [{"a": rng.standard_normal(2), "n": np.array([7.0])} for _ in range(5)]
    one = [{"a": rng.standard_normal(2) + 9, "n": np.array([6.0])} for _ in range(5)]
    direction = fit_direction(zero, one)
    scores = [[direction.score(row) for row in side] for side in (zero, one)]
    assert set(scores[0]) == {-7.0}
    assert set(scores[1]) == {-6.0}
    # Fields that turn up in some runs only, or change their length, are cut and padded, and their length counts.
    assert direction.score({"a": np.zeros(5)}) == 0.0
    ragged = fit_direction([{"a": np.zeros(2)}] * 2, [{"a": np.zeros(3)}] * 2)
    assert ragged.score({"a": np.zeros(3)}) > ragged.score({"a": np.zeros(2)})


def test_only_the_client_and_the_secure_sum_are_looked_at(make_task: MakeTask) -> None:
    open_fields = what_leaves(Sums().run(make_task(clients=3)), "client/1")
    assert list(open_fields) == ["0/sums"]
    assert math.isfinite(open_fields["0/sums"].sum())
    secure = FedCGS(secure_aggregation="all").run(make_task(clients=3))
    assert sorted(what_leaves(secure, "client/1")) == ["0/A", "0/B", "0/N"]
    assert what_leaves(secure, "client/1")["0/N"].sum() == 300
