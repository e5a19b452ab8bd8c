"""DP-SGD of persons: what goes into the noise is the clipped mean gradient of each person's records."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedassay.nets.dp_sgd.clipped_sums import ClippedSums, RecordStreams
from fedassay.nets.dp_sgd.clipped_update import ClippedUpdate, clipped_updates, parameters_of, release_update
from fedassay.nets.dp_sgd.units import of_persons, side_by_side
from fedassay.nets.local_training import record_objective
from fedassay.privacy.reruns import llr_scores
from fedassay.privacy.tape import FreeNoise
from fedassay.privacy.variants import distances

PLACES = np.array([[0, 3, 5], [1, -1, -1], [2, 4, -1]])


def loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(scores, labels, reduction="none")


def network(kind: str) -> nn.Module:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Flatten(), nn.Linear(9, 4))
    if kind == "convolutions":
        body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3, 4))
    return body


@pytest.mark.parametrize("kind", ["linear", "convolutions"])
@pytest.mark.parametrize("norm", [0.3, 100.0])
def test_a_person_s_gradient_is_the_mean_over_its_records_clipped_as_one(kind: str, norm: float) -> None:
    module = network(kind)
    inputs = torch.randn(6, 1, 3, 3, generator=torch.Generator().manual_seed(1)) * 3
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    rows, own = side_by_side(inputs, labels, PLACES)
    assert own.tolist() == [[0, 3, 1], [1, -1, -1], [2, 0, -1]]
    clip = ClippedSums(module, of_persons(record_objective(loss), 3), norm)
    sums = clip(rows, own, RecordStreams(1, np.arange(3)), check=True)
    expected = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    for person in PLACES:
        places = person[person >= 0]
        module.zero_grad()
        loss(module(inputs[places]), labels[places]).mean().backward()
        gradient = {name: p.grad.clone() for name, p in module.named_parameters()}
        length = float(torch.sqrt(sum(each.square().sum() for each in gradient.values())))
        for name, each in gradient.items():
            expected[name] += each * min(1.0, norm / length)
    for name, each in expected.items():
        torch.testing.assert_close(sums[name], each, rtol=1e-4, atol=1e-5)


def test_streams_of_a_person_s_records_are_all_different() -> None:
    streams = RecordStreams(7, np.array([2, 5]))
    first = streams.normals(4)
    spread = streams.spread(3)
    rows = spread.normals(4)
    assert len({tuple(row.tolist()) for row in rows}) == 6
    # The first record of each place has the stream that a record at this place has.
    torch.testing.assert_close(rows[[0, 3]], first)
    torch.testing.assert_close(spread[2:4].normals(4), rows[2:4])


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("moved", [0.5, 1.0])
def test_clipped_updates_released_again_are_as_private_as_is_said(rounds: int, moved: float) -> None:
    private = ClippedUpdate(0.5, moved, 0.8)
    experiment = clipped_updates(private, rounds)
    assert experiment.mu == pytest.approx(moved * math.sqrt(rounds) / 0.8)
    assert math.hypot(*distances(experiment)) == pytest.approx(moved * math.sqrt(rounds))
    zero, one = llr_scores(experiment, reruns=20_000, rng=np.random.default_rng(0))
    for scores, sign in ((zero, -1), (one, 1)):
        assert scores.mean() == pytest.approx(
            sign * experiment.mu**2 / 2, abs=5 * experiment.mu / math.sqrt(20_000)
        )
        assert scores.std() == pytest.approx(experiment.mu, rel=0.03)
    # No updates lie further apart than these, however long and whichever way.
    rng = np.random.default_rng(1)
    for _ in range(300):
        pair = rng.standard_normal((2, 2)) * rng.exponential(1.0, (2, 1))
        if moved == 0.5:
            pair[0] = 0.0
        found = replace(
            experiment,
            neighbours=replace(experiment.neighbours, features0=pair[:1], features1=pair[1:]),
        )
        assert math.hypot(*distances(found)) <= moved * math.sqrt(rounds) + 1e-12


def test_an_update_is_clipped_as_a_whole_and_noised_once() -> None:
    module = network("linear")
    start = parameters_of(module)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1.0)
    away = parameters_of(module) - start
    release_update(module, start, ClippedUpdate(0.5, 0.5, 0.0), FreeNoise(np.random.default_rng(0)))
    moved = parameters_of(module) - start
    assert np.linalg.norm(moved) == pytest.approx(0.5, rel=1e-5)
    np.testing.assert_allclose(moved / 0.5, away / np.linalg.norm(away), atol=1e-6)
    release_update(module, start, ClippedUpdate(100.0, 100.0, 0.1), FreeNoise(np.random.default_rng(0)))
    noise = parameters_of(module) - start - moved
    assert 0.05 < noise.std() < 0.15
    # Nobody's update: a client without records.
    release_update(
        module, parameters_of(module), ClippedUpdate(1.0, 1.0, 0.0), FreeNoise(np.random.default_rng(0))
    )
