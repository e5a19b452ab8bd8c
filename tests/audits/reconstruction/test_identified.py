"""Recovered vectors and the records that they are the features of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedassay.audits.reconstruction.identified import identified
from fedassay.contracts.attack import Reconstruction
from fedassay.contracts.method import MethodInput
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.transcript import AGGREGATE

MakeTask = Callable[..., MethodInput]


def _recovered(
    task: MethodInput, name: str, sender: str | None, noise: float
) -> tuple[Reconstruction, np.ndarray]:
    """The clients' features in random order, each as an image that holds its number."""
    rng = np.random.default_rng(0)
    features = np.concatenate([client.features for client in task.clients])
    senders = np.concatenate([[client.name] * len(client) for client in task.clients])
    order = rng.permutation(len(features))
    vectors = features[order] * (1 + noise * rng.standard_normal(features[order].shape))
    images = np.broadcast_to(order.astype(np.uint8)[:, None, None, None, None], (len(order), 1, 8, 8, 1))
    names = tuple(str(each) if sender is None else sender for each in senders[order])
    none = np.full(len(order), -1)
    return Reconstruction(VectorSource(name, vectors.astype(np.float32), none, names, none), images), order


def test_vectors_find_their_records_over_one_client_and_over_the_sum(make_task: MakeTask) -> None:
    task = make_task(clients=3, records=60)
    for sender in (None, AGGREGATE):
        made, _ = _recovered(task, "gram_factorization", sender, 1e-4)
        found = identified(made, task.clients, 20)
        assert found.source.paired
        assert len(found.source.vectors) == 60
        starts = {"client/0": 0, "client/1": 20, "client/2": 40}
        where = [starts[name] + row for name, row in zip(found.source.senders, found.source.rows, strict=True)]
        assert np.array_equal(found.images[:, 0, 0, 0, 0], where)


def test_what_is_no_records_feature_stays_a_set(make_task: MakeTask) -> None:
    task = make_task(clients=3, records=60)
    far, _ = _recovered(task, "gram_factorization", None, 0.5)
    assert identified(far, task.clients, 20) is far
    means, _ = _recovered(task, "class_means", None, 0.0)
    assert identified(means, task.clients, 20) is means
    few, _ = _recovered(task, "gram_factorization", None, 1e-4)
    assert identified(few, task.clients, 61) is few
    non_member, _ = _recovered(task, "gram_factorization", "somebody else", 1e-4)
    assert identified(non_member, task.clients, 20) is non_member


def test_a_record_keeps_its_closest_vector(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=40)
    made, order = _recovered(task, "gram_factorization", None, 1e-3)
    twice = VectorSource(
        "gram_factorization",
        np.concatenate([made.source.vectors, task.clients[0].features[order[:10]].astype(np.float32)]),
        np.full(50, -1),
        made.source.senders + made.source.senders[:10],
        np.full(50, -1),
    )
    images = np.concatenate([made.images, 200 + np.zeros((10, *made.images.shape[1:]), np.uint8)])
    found = identified(Reconstruction(twice, images), task.clients, 20)
    assert len(found.source.vectors) == 40
    assert (found.images[:, 0, 0, 0, 0] == 200).sum() == 10
