"""Label distribution: exact from counts, recovered where they are hidden, estimated where they are noised."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedassay.attacks.label_distribution import LabelDistribution, _on_simplex
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.release import Release, exact
from fedassay.exchange.transcript import Message, MessageField
from fedassay.exchange.view import ThreatModel, View, view
from fedassay.methods.baselines.raw_features import RawFeatures
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds


def knowledge(attacker: Records | None = None) -> Knowledge:
    return Knowledge(attacker, 10, None, False, Seeds(0), "cpu", SILENT)


def attacked(seen: View, attacker: Records | None = None) -> AttackResult:
    return LabelDistribution().run(seen, knowledge(attacker))


def histogram(records: Records) -> NDArray[np.float64]:
    return np.bincount(records.labels, minlength=10) / len(records)


def distances(result: AttackResult, task: MethodInput) -> NDArray[np.float64]:
    """Total variation distance of every client's estimate."""
    truth = {client.name: histogram(client) for client in task.clients}
    pairs = zip(result.artifacts["senders"], result.artifacts["histograms"], strict=True)
    return np.array([np.abs(estimate - truth[str(name)]).sum() / 2 for name, estimate in pairs])


@pytest.mark.parametrize("hidden", ["none", "counts"])
def test_hiding_the_counts_does_not_hide_them(make_task: Callable[..., MethodInput], hidden: str) -> None:
    task = make_task(clients=3, records=60)
    outcome = FedCGS.model_validate({"secure_aggregation": hidden}).run(task)
    result = attacked(view(outcome.transcript, ThreatModel()))
    own = [name for name in result.artifacts["senders"] if str(name) != "aggregate"]
    assert len(own) == 3
    if hidden == "none":
        assert distances(result, task).max() < 1e-12
    else:
        kept = AttackResult(
            "", artifacts={name: result.artifacts[name][: len(own)] for name in ("senders", "histograms")}
        )
        assert distances(kept, task).max() < 1e-12
        assert set(map(str, result.artifacts["evidence"][:3])) == {"second_moment"}


def test_under_the_aggregate_view_it_is_everybodys(make_task: Callable[..., MethodInput]) -> None:
    task = make_task(clients=3, records=300)
    result = attacked(view(FedCGS().run(task).transcript, ThreatModel(view="aggregate")))
    assert list(map(str, result.artifacts["senders"])) == ["aggregate"]
    everybody = np.bincount(np.concatenate([client.labels for client in task.clients]), minlength=10)
    np.testing.assert_allclose(result.artifacts["histograms"][0], everybody / everybody.sum())
    assert result.scores["total"].tolist() == [300]


def test_raw_labels(make_task: Callable[..., MethodInput]) -> None:
    task = make_task(clients=2, records=50)
    assert distances(attacked(view(RawFeatures().run(task).transcript, ThreatModel())), task).max() < 1e-12


def _skewed(task: MethodInput, keep: Callable[[Message], dict[str, MessageField]]) -> View:
    messages = [
        Message(m.round, m.sender, m.receiver, keep(m)) for m in FedCGS().run(task).transcript.from_clients()
    ]
    return View(tuple(messages), 10, ThreatModel())


def test_class_sums_alone_tell_the_proportions(make_task: Callable[..., MethodInput]) -> None:
    task = make_task(clients=3, records=300, labels_of=[0, 1, 2, 7])
    seen = _skewed(task, lambda message: {"A": message.fields["A"]})
    by_norm, measured = attacked(seen), attacked(seen, task.public)
    assert set(map(str, by_norm.artifacts["evidence"])) == {"norms"}
    assert set(map(str, measured.artifacts["evidence"])) == {"sums_on_means"}
    assert distances(by_norm, task).max() < 0.1
    assert distances(measured, task).max() < 0.05
    np.testing.assert_allclose(measured.scores["total"], 100, rtol=0.1)


def test_presence_is_the_last_resort() -> None:
    fields = {"ids": MessageField(np.array([1, 4]), "class_ids", exact())}
    result = attacked(View((Message(0, "client/0", "server", fields),), 10, ThreatModel()))
    expected = np.zeros(10)
    expected[[1, 4]] = 0.5
    np.testing.assert_array_equal(result.artifacts["histograms"][0], expected)
    assert np.isnan(result.scores["total"][0])


def _counts(values: NDArray[np.float64], scale: float, number: int) -> Message:
    release = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(scale,), sensitivity=(1.0,))
    kind: FieldKind = "class_counts"
    return Message(number, "client/0", "server", {"N": MessageField(values, kind, release)})


def test_noised_counts_are_averaged_over_rounds() -> None:
    true = np.array([40.0, 30, 20, 10, 0, 0, 0, 0, 0, 0])
    rng = np.random.default_rng(0)
    distance = {}
    for rounds in (1, 100):
        found = []
        for _ in range(20):
            messages = tuple(_counts(true + rng.normal(0, 10, 10), 10.0, r) for r in range(rounds))
            estimate = attacked(View(messages, 10, ThreatModel())).artifacts["histograms"][0]
            found.append(np.abs(estimate - true / 100).sum() / 2)
        distance[rounds] = np.mean(found)
    assert distance[100] < 0.3 * distance[1]


def test_noised_counts_and_sums_together_are_better_than_counts(make_task: Callable[..., MethodInput]) -> None:
    task = make_task(clients=3, records=300, epsilon=5.0)
    seen = view(FedCGS().run(task).transcript, ThreatModel())
    counts_alone = View(
        tuple(Message(m.round, m.sender, m.receiver, {"N": m.fields["N"]}) for m in seen.from_clients()),
        10,
        seen.threat,
    )
    clipped = task.public
    assert clipped is not None
    norms = np.linalg.norm(clipped.features, axis=1, keepdims=True)
    attacker = Records("attacker", clipped.images, clipped.labels, lambda _images: clipped.features / norms)
    alone, together = (distances(attacked(part, attacker), task) for part in (counts_alone, seen))
    assert together.mean() < alone.mean()


def test_a_view_that_says_nothing_of_labels_is_not_attacked() -> None:
    fields = {"thing": MessageField(np.zeros(3), "other", exact())}
    with pytest.raises(NotRunError, match="nothing about labels"):
        attacked(View((Message(0, "client/0", "server", fields),), 10, ThreatModel()))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=2, max_size=12))
def test_every_estimate_is_a_histogram(counts: list[float]) -> None:
    found = _on_simplex(np.array(counts))
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    if min(counts) >= 0 and sum(counts) > 0:
        np.testing.assert_allclose(found, np.array(counts) / sum(counts), atol=1e-12)
