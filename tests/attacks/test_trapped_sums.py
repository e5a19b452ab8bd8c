"""Records out of sums under a malicious server's backbone, and silence under an honest one's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedassay.attacks.trapped_sums import TrappedSums
from fedassay.backbones.base import renewed
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.method import Method, MethodInput
from fedassay.exchange.view import ThreatModel, view
from fedassay.methods.closed_forms.fedcof import FedCOF
from fedassay.methods.closed_forms.fedncm import FedNCM
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.nets.cells import cells_for
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]


def trapped(task: MethodInput, records: float) -> MethodInput:
    """The same task under a backbone of cells that its public records set."""
    assert task.public is not None
    network = cells_for(task.public.images, task.public.labels, task.backbone.width, records, Seeds(7))
    backbone = renewed(task.backbone, network, "cells", "the server's own images")
    clients = tuple(replace(client, extract=backbone.extract) for client in task.clients)
    return replace(task, clients=clients, test=replace(task.test, extract=backbone.extract), backbone=backbone)


def attacked(task: MethodInput, method: Method, threat: ThreatModel | None = None) -> AttackResult:
    known = Knowledge(task.public, 10, task.backbone, True, Seeds(0), "cpu", SILENT)
    return TrappedSums().run(view(method.run(task).transcript, threat or ThreatModel()), known)


@pytest.mark.parametrize(
    "method", [FedCGS(), FedCGS(transport="float32"), FedNCM(), FedCOF()], ids=lambda m: type(m).__name__
)
def test_every_vector_is_one_records_features(method: Method, make_task: MakeTask) -> None:
    task = trapped(make_task(clients=4, records=400), 10.0)
    result = attacked(task, method)
    (found,), held = result.vectors, {client.name: client for client in task.clients}
    assert len(found.vectors) > 60
    for vector, label, sender in zip(found.vectors, found.labels, found.senders, strict=True):
        apart = np.abs(held[sender].features - vector).max(axis=1)
        assert apart.min() < 2e-3
        assert held[sender].labels[apart.argmin()] == label
    assert (result.scores["in_cell"] == 2).any() == isinstance(method, FedCGS)


def test_all_that_are_alone_in_a_cell_are_read(make_task: MakeTask) -> None:
    """A count by the records themselves, which the attack does not see."""
    task = trapped(make_task(clients=2, records=200), 10.0)
    (found,) = attacked(task, FedNCM()).vectors
    alone = 0
    for client in task.clients:
        cells = task.backbone.module.layout.split(client.features)[..., 0] > 0.5  # type: ignore[union-attr, operator]
        for label in range(10):
            alone += int((cells[client.labels == label].sum(axis=0) == 1).sum())
    assert len(found.vectors) == alone > 0


def test_secure_aggregation_leaves_cells_apart(make_task: MakeTask) -> None:
    task = trapped(make_task(clients=4, records=400), 40.0)
    (found,) = attacked(task, FedCGS(secure_aggregation="all")).vectors
    every = np.concatenate([client.features for client in task.clients])
    assert set(found.senders) == {"aggregate"}
    assert len(found.vectors) > 15
    assert max(np.abs(every - vector).max(axis=1).min() for vector in found.vectors) < 2e-3


def test_an_honest_backbone_has_no_cells(make_task: MakeTask) -> None:
    with pytest.raises(NotRunError, match="only a malicious server's does"):
        attacked(make_task(clients=2, records=100), FedCGS())


def test_noise_is_not_read_through(make_task: MakeTask) -> None:
    with pytest.raises(NothingToReadError, match="the sums of 2 messages are noised"):
        attacked(trapped(make_task(clients=2, records=100, epsilon=8.0), 10.0), FedCGS())
