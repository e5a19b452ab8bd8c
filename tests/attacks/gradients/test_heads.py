"""Features from the gradient of a head: exact where a label occurs once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import softmax

from fedassay.attacks.gradients.heads import HeadInversion
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.membership import visible
from fedassay.contracts.method import MethodInput
from fedassay.exchange.release import exact, public
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.exchange.view import ThreatModel, View
from fedassay.methods.fedsgd.method import FedSGD
from fedassay.support.errors import NothingToReadError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]


def attacked(seen: View, task: MethodInput) -> AttackResult:
    return HeadInversion().run(seen, Knowledge(None, 10, task.backbone, True, Seeds(0), "cpu", SILENT))


@pytest.mark.parametrize("batch", [1, 4, 12])
def test_labels_that_occur_once_give_their_feature(batch: int, make_task: MakeTask) -> None:
    task = make_task()
    method = FedSGD(batch=batch)
    result = attacked(visible(method.run(task), ThreatModel()), task)
    wanted = []
    for client, counts in zip(task.clients, result.artifacts["counts"], strict=True):
        drawn = client.take(method._batch(client, task))
        np.testing.assert_array_equal(np.bincount(drawn.labels, minlength=10), counts)
        for row in range(len(drawn)):
            if (drawn.labels == drawn.labels[row]).sum() == 1:
                wanted.append((client.name, int(drawn.labels[row]), drawn.features[row]))
    assert wanted
    (source,) = result.vectors
    found = {
        (sender, int(label)): vector
        for sender, label, vector in zip(source.senders, source.labels, source.vectors, strict=True)
    }
    assert len(found) == len(wanted)
    for sender, label, feature in wanted:
        error = np.linalg.norm(found[sender, label] - feature) / np.linalg.norm(feature)
        assert error < 1e-5


def test_a_head_that_was_not_zero_is_solved_for(make_task: MakeTask) -> None:
    task = make_task()
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(6, 40)), np.array([0, 2, 3, 5, 7, 9])
    weights, bias = 0.05 * rng.normal(size=(10, 40)), 0.1 * rng.normal(size=10)
    errors = softmax(features @ weights.T + bias, axis=1) - np.eye(10)[labels]
    start = {"w": weights, "b": bias}
    sent = {"w": errors.T @ features / 6, "b": errors.sum(axis=0) / 6}
    fields = {name: MessageField(values, "gradient", exact()) for name, values in sent.items()}
    fields["records"] = MessageField(np.array([6]), "other", exact("labels"))
    messages = (
        Message(0, SERVER, "client/0", {name: MessageField(v, "head", public()) for name, v in start.items()}),
        Message(1, "client/0", SERVER, fields),
    )
    (source,) = attacked(View(messages, 10, ThreatModel()), task).vectors
    assert source.labels.tolist() == labels.tolist()
    np.testing.assert_allclose(source.vectors, features, rtol=1e-4, atol=1e-4)


def test_networks_and_private_heads_give_none(make_task: MakeTask) -> None:
    task = make_task(epsilon=8.0)
    result = attacked(visible(FedSGD().run(task), ThreatModel()), task)
    assert not result.vectors
    assert all("is not known" in note for note in result.notes)
    with pytest.raises(NothingToReadError):
        attacked(visible(FedSGD(body="mlp").run(task), ThreatModel()), task)
