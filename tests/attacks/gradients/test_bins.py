"""A server that sends trap weights reads single records out of large batches; an honest one does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedassay.attacks.gradients.attack import GradientInversion
from fedassay.attacks.gradients.bins import binned_inputs
from fedassay.attacks.gradients.targets import Layer
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.membership import visible
from fedassay.contracts.method import MethodInput
from fedassay.data.records import joined
from fedassay.exchange.view import ThreatModel
from fedassay.methods.fedsgd.method import FedSGD
from fedassay.support.errors import PlanError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]


def attacked(task: MethodInput, hidden: int, *, malicious: bool, body: str = "mlp", **threat: Any) -> AttackResult:
    """The gradient of all records of every client, attacked."""
    method = FedSGD(body={"name": body, "hidden": hidden}, batch=10_000)
    outcome = method.run(replace(task, adversary=task.public if malicious else None))
    known = Knowledge(None, 10, task.backbone, True, Seeds(0), "cpu", SILENT)
    return GradientInversion(rounds=1).run(visible(outcome, ThreatModel(**threat)), known)


def exact(result: AttackResult, task: MethodInput) -> int:
    """Private records that an image is equal to, pixel by pixel."""
    private = {image.tobytes() for image in joined("private", task.clients).images}
    made = [each.images[:, 0] for each in result.reconstructions]
    return len({image.tobytes() for images in made for image in images} & private)


@pytest.mark.parametrize("threat", [{}, {"view": "aggregate"}])
def test_records_come_out_of_a_batch_that_an_honest_server_reads_nothing_of(
    threat: dict[str, Any], make_task: MakeTask
) -> None:
    """120 records a client, or 240 in all under secure aggregation, through 256 units."""
    task = make_task(clients=2, records=240)
    honest = attacked(task, 256, malicious=False, **threat)
    trapped = attacked(task, 256, malicious=True, **threat)
    assert exact(honest, task) == 0
    # Between n records and 256 thresholds a record is alone with a probability of about exp(-n / 256).
    expected = 240 * np.exp(-(240 if threat else 120) / 256)
    assert exact(trapped, task) > 0.6 * expected
    assert any("one question at many thresholds" in note for note in trapped.notes)
    assert not any("one question" in note for note in honest.notes)


def test_a_private_gradient_is_read_by_no_trap(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=60, epsilon=8.0)
    assert exact(attacked(task, 256, malicious=True), task) == 0


def test_records_of_nobody_come_out_of_nothing(make_task: MakeTask) -> None:
    """The null control: of another client's gradient no image is one of these records."""
    task, other = make_task(clients=1, records=60), make_task(clients=1, records=60, seed=5)
    others = replace(other, clients=(other.clients[0].without(task.clients[0]),))
    assert len(others.clients[0]) > 40
    assert exact(attacked(others, 256, malicious=True), task) == 0


def test_inputs_behind_convolutions_are_read_as_well(make_task: MakeTask) -> None:
    """The trap is in the first fully connected layer: what it is given comes out."""
    task = make_task(clients=1, records=40)
    network = FedSGD(body={"name": "cnn", "hidden": 128}, batch=100)
    outcome = network.run(replace(task, adversary=task.public))
    message = next(each for each in outcome.transcript.messages if each.sender == "client/0")
    layer = _first_linear(network, task, message.fields)
    rows = binned_inputs(layer)
    assert len(rows) >= 20


def _first_linear(method: FedSGD, task: MethodInput, fields: Any) -> Layer:
    names = list(fields)
    first = next(name for name in names if fields[name].values.ndim == 2)
    after = names[names.index(first) + 1]
    whole = method._network(task.clients[0], replace(task, adversary=task.public)).module
    known = dict(whole.named_parameters())
    weights = (known[first].detach().numpy(), known[after].detach().numpy())
    return Layer(first, fields[first].values, fields[after].values, weights)


def test_no_honest_layer_has_one_question(make_task: MakeTask) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        weights, bias = rng.uniform(-1, 1, (64, 32)), rng.uniform(-1, 1, 64)
        gradient = rng.standard_normal((64, 32))
        assert not len(binned_inputs(Layer("l", gradient, rng.standard_normal(64), (weights, bias))))
    assert not len(binned_inputs(Layer("l", gradient, bias, None)))


def test_what_leaves_the_server_no_choice_is_refused(make_task: MakeTask) -> None:
    task = make_task(clients=1, records=20)
    with pytest.raises(PlanError, match="no rectifier and second layer"):
        FedSGD(body="linear", width=200).run(replace(task, adversary=task.public, classes=10))
    with pytest.raises(PlanError, match="leaves the server no choice"):
        FedSGD().run(replace(task, adversary=task.public))
