"""Control clients as large as audited ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedassay.audits.message.nonprivate import each_as_large
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.methods.fedcgs.method import FedCGS


def same(one: Records, other: Records) -> bool:
    return np.array_equal(one.images, other.images) and np.array_equal(one.labels, other.labels)


def test_audits_that_ask_for_a_client_of_one_histogram_get_the_same_one(
    make_task: Callable[..., MethodInput], make_context: Callable[..., AuditContext]
) -> None:
    context = make_context(make_task(clients=3, records=60), FedCGS())
    large = context.data.clients[0]
    small = large.take(np.flatnonzero(large.labels == large.labels[0]), "client/1")
    several = each_as_large(context, [large, small, large])
    for made, audited in zip(several, (large, small, large), strict=True):
        assert sorted(made.labels.tolist()) == sorted(audited.labels.tolist())
    assert not same(several[0], several[2])
    alone = each_as_large(context, [small, large])
    assert same(alone[0], several[1])
    assert same(alone[1], several[0])
