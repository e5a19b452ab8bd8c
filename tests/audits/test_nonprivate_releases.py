"""Releases that are known to give control records away, in the shape of the audited one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from contexts import with_data

from fedassay.audits.nonprivate_releases import clients_as_large, dealt_clients, nonprivate_releases
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import Method, MethodInput
from fedassay.exchange.feature_sources import sources
from fedassay.exchange.view import ThreatModel, view
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedpft.method import FedPFT
from fedassay.support.errors import NotRunError

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]


@pytest.mark.parametrize("method", [FedCGS(), FedPFT(components=1), FedPFT(components=10)])
@pytest.mark.parametrize("epsilon", [1.0, float("inf")])
def test_every_vector_is_a_control_records_own_feature(
    method: Method, epsilon: float, make_task: MakeTask, make_context: MakeContext
) -> None:
    context = make_context(make_task(epsilon=epsilon, adjacency="replace_one_same_label"), method)
    (release,) = nonprivate_releases(context, 60)
    (source,) = [
        item
        for item in sources(release.view, np.random.default_rng(0))
        if item.name in {"class_means", "mixture_samples"}
    ]
    records = release.records
    assert len(source.vectors) == len(records) >= 60
    distance = np.linalg.norm(source.vectors[:, None] - records.features[None], axis=2)
    assert (distance.min(axis=1) < 0.05 * np.linalg.norm(records.features, axis=1).mean()).all()
    assert len(set(distance.argmin(axis=1).tolist())) == len(records)
    assert release.view.threat == context.view.threat


def test_a_sum_holds_the_records_of_one_client(make_task: MakeTask, make_context: MakeContext) -> None:
    method = FedCGS(secure_aggregation="all")
    context = make_context(make_task(), method)
    threat = ThreatModel(view="aggregate")
    context = replace(context, view=view(context.outcome.transcript, threat))
    released = nonprivate_releases(context, 30)
    assert len(released) >= 3
    features = np.concatenate([release.records.features for release in released])
    assert len(np.unique(features, axis=0)) == len(features)
    for release in released:
        assert [len(client) > 0 for client in release.clients] == [True, False, False]
        assert release.view.threat == threat
        (source,) = sources(release.view, np.random.default_rng(0))
        np.testing.assert_allclose(np.sort(source.vectors, axis=0), np.sort(release.records.features, axis=0))


def test_first_clients_stay_and_records_are_nobody_elses(make_task: MakeTask, make_context: MakeContext) -> None:
    context = make_context(make_task(), FedCGS())
    few, many = dealt_clients(context, 20), dealt_clients(context, 60)
    for one, other in zip(few, many, strict=False):
        assert one.name == other.name
        assert np.array_equal(one.images, other.images)
        assert len(set(one.labels.tolist())) == len(one)
    everything = np.concatenate([client.images for client in many])
    assert len(np.unique(everything, axis=0)) == len(everything)


def test_cells_of_other_epsilons_share_the_release(make_task: MakeTask, make_context: MakeContext) -> None:
    shared: dict[str, object] = {}
    one = make_context(make_task(epsilon=1.0), FedCGS(), shared=shared)
    other = make_context(make_task(epsilon=4.0), FedCGS(), shared=shared)
    assert nonprivate_releases(one, 20)[0] is nonprivate_releases(other, 20)[0]
    another = make_context(make_task(epsilon=1.0), FedCGS(transport="float32"), shared=shared)
    assert nonprivate_releases(another, 20)[0] is not nonprivate_releases(one, 20)[0]


def test_too_few_control_records_say_how_many_are_missing(make_task: MakeTask, make_context: MakeContext) -> None:
    context = make_context(make_task(), FedCGS())
    context = with_data(context, control=context.data.control.take(np.arange(5)))
    with pytest.raises(NotRunError, match=r"data\.split\.control at least \d+ more"):
        nonprivate_releases(context, 60, least=20)


def test_clients_may_be_as_large_as_the_real_ones(make_task: MakeTask, make_context: MakeContext) -> None:
    context = make_context(make_task(clients=10, records=100), FedCGS())
    (release,) = nonprivate_releases(context, 60, as_large=True)
    sizes = [len(client) for client in release.clients if len(client)]
    assert sizes == [10] * 6
    for real, made in zip(context.data.clients, clients_as_large(context, 30), strict=False):
        assert sorted(real.labels.tolist()) == sorted(made.labels.tolist())
    summed = replace(context, view=view(context.outcome.transcript, ThreatModel(view="aggregate")))
    (whole,) = nonprivate_releases(summed, 60, as_large=True)
    assert sum(len(client) for client in whole.clients) == 100
    few = replace(with_data(summed, control=context.data.control.take(np.arange(40))), method_key="another")
    with pytest.raises(NotRunError, match="at least 60 more"):
        nonprivate_releases(few, 60, as_large=True)
