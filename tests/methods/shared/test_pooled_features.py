"""raw_features and centralized: the two references over a frozen backbone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedassay.contracts.method import MethodInput, Outcome
from fedassay.methods.baselines.centralized import Centralized
from fedassay.methods.baselines.raw_features import RawFeatures
from fedassay.methods.shared.heads import HeadTraining
from fedassay.support.errors import DataError

MakeTask = Callable[..., MethodInput]


def _accuracy(outcome: Outcome, task: MethodInput) -> float:
    assert outcome.model is not None
    return float((outcome.model.predict(task.test) == task.test.labels).mean())


def test_raw_features_reach_the_oracle(make_task: MakeTask) -> None:
    task = make_task(clients=4, records=800)
    oracle = Centralized().run(task)
    assert _accuracy(oracle, task) > 0.88
    assert oracle.model is not None
    for transport, difference in (("float32", 0.0), ("float16", 0.01)):
        raw = RawFeatures(transport=transport).run(task)
        assert raw.model is not None
        disagree = (raw.model.predict(task.test) != oracle.model.predict(task.test)).mean()
        assert disagree <= difference


def test_messages_hold_every_record_in_order(make_task: MakeTask) -> None:
    task = make_task(clients=3, records=100)
    raw, oracle = RawFeatures().run(task), Centralized().run(task)
    for client, message, whole in zip(
        task.clients, raw.transcript.from_clients(), oracle.transcript.from_clients(), strict=True
    ):
        np.testing.assert_array_equal(message.fields["features"].values, client.features)
        np.testing.assert_array_equal(message.fields["labels"].values, client.labels)
        np.testing.assert_array_equal(whole.fields["images"].values, client.images)
    size = 100 * task.backbone.width
    assert raw.communication == {"paper_parameters_up": size, "paper_bytes_up": 4 * size}
    assert raw.transcript.bytes_up > 4 * size
    down = [message for message in raw.transcript.messages if message.sender == "server"]
    assert [message.receiver for message in down] == ["client/0", "client/1", "client/2"]
    assert down[0].fields["head_weights"].values.shape == (10, task.backbone.width)


def test_the_papers_optimiser(make_task: MakeTask) -> None:
    task = make_task(clients=2, records=800)
    adam = HeadTraining(solver="adam", rate=1e-2, epochs=60)
    assert _accuracy(RawFeatures(head=adam).run(task), task) > _accuracy(RawFeatures().run(task), task) - 0.03


@pytest.mark.parametrize("method", [RawFeatures(), Centralized()])
def test_nothing_to_learn_from(make_task: MakeTask, method: RawFeatures | Centralized) -> None:
    task = make_task(clients=1, records=50)
    nobody = task.clients[0].take(np.empty(0, dtype=np.int64))
    with pytest.raises(DataError, match="no client has any record"):
        method.run(replace(task, clients=(nobody,)))
