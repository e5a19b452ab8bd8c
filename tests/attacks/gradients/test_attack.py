"""Images from the gradients that a method sends, and from messages of which only shapes are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedassay.attacks.gradients import targets
from fedassay.attacks.gradients.attack import BEHIND, INPUTS, MATCHED, STRONGEST, GradientInversion
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.membership import visible
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.exchange.release import exact, public
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.exchange.view import ThreatModel, View
from fedassay.execution.captured import AuditOptions, audit_transcript
from fedassay.methods.baselines.fedavg import FedAvg
from fedassay.methods.baselines.raw_features import RawFeatures
from fedassay.methods.fedsgd.method import FedSGD
from fedassay.support.errors import NothingToReadError, NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
MLP: dict[str, Any] = {"name": "mlp", "hidden": 128}


def attacked(seen: View, task: MethodInput, *, backbone: bool = True, **parameters: Any) -> AttackResult:
    known = Knowledge(None, 10, task.backbone if backbone else None, True, Seeds(0), "cpu", SILENT)
    return GradientInversion(**parameters).run(seen, known)


def seen_of(outcome: Outcome, **threat: Any) -> View:
    return visible(outcome, ThreatModel(**threat))


def near(result: AttackResult, task: MethodInput, source: str = INPUTS) -> list[tuple[float, bool]]:
    """Of every image: the largest difference to its sender's nearest record, and whether its label is right."""
    made = next(item for item in result.reconstructions if item.source.name == source)
    found = []
    for image, sender, label in zip(made.images[:, 0], made.source.senders, made.source.labels, strict=True):
        owners = [client for client in task.clients if sender in (client.name, "aggregate")]
        records = np.concatenate([client.images for client in owners]).astype(int)
        labels = np.concatenate([client.labels for client in owners])
        away = np.abs(records - image.astype(int)).reshape(len(records), -1).max(axis=1)
        found.append((float(away.min()), bool(labels[away.argmin()] == label)))
    return found


@pytest.mark.parametrize("batch", [1, 4])
def test_a_batch_comes_back_with_its_labels(batch: int, make_task: MakeTask) -> None:
    task = make_task()
    result = attacked(seen_of(FedSGD(body=MLP, batch=batch).run(task)), task)
    assert near(result, task) == [(0.0, True)] * (3 * batch)
    assert result.scores["recovered"].tolist() == [batch] * 3
    assert result.scores[f"misfit/{INPUTS}"].max() < 0.05


def test_a_sum_over_clients_is_a_batch_of_all_of_them(make_task: MakeTask) -> None:
    task = make_task()
    result = attacked(seen_of(FedSGD(body=MLP, batch=1).run(task), view="aggregate"), task)
    assert near(result, task) == [(0.0, True)] * 3


def test_weights_after_steps_of_plain_descent_are_as_good(make_task: MakeTask) -> None:
    """Steps on the same records add up to a matrix of the same form; Adam's do not."""
    task = make_task(clients=2, records=6)
    method = FedAvg(
        bodies=({"name": "mlp", "hidden": 128},),
        local_epochs=3,
        learning_rate=0.01,
        optimizer={"name": "sgd"},
    )
    result = attacked(seen_of(method.run(task)), task)
    assert result.scores["recovered"].tolist() == [3, 3]
    # Weights in float32 hold a change of a thousandth of theirs to four digits.
    assert max(away for away, _ in near(result, task)) <= 2


def test_shapes_alone_are_enough(make_task: MakeTask) -> None:
    """Captured messages come without a network, a backbone, or the weights that went out."""
    task = make_task()
    outcome = FedSGD(body=MLP, batch=2).run(task)
    uploads = tuple(message for message in outcome.transcript.messages if message.sender != SERVER)
    captured = Outcome(Transcript("captured", 10, uploads, outcome.transcript.claim), None)
    result = attacked(seen_of(captured), task, backbone=False)
    assert [away for away, _ in near(result, task)] == [0.0] * 6


@pytest.mark.long
def test_an_audit_of_captured_gradients_says_that_they_are_records(make_task: MakeTask, tmp_path: Path) -> None:
    taken_apart, mixed = (INPUTS, "leak"), (STRONGEST, "inconclusive")
    for epsilon, expected in ((math.inf, [taken_apart, mixed]), (8.0, [mixed])):
        outcome = FedSGD(body=MLP, batch=2).run(make_task(epsilon=epsilon))
        folder = tmp_path / str(epsilon)
        outcome.transcript.save(folder / "sent")
        _, record = audit_transcript(folder / "sent", None, folder / "run", AuditOptions(quiet=True, device="cpu"))
        assert not record.errors
        found = [item for item in record.cells[0].findings if item.attack == "gradient_inversion"]
        assert [(item.source, item.verdict) for item in found] == expected
        assert {item.audit for item in found} == {"inversion"}
        assert (folder / "run" / found[0].pictures[0].file).is_file()


def test_a_private_gradient_gives_nothing(make_task: MakeTask) -> None:
    task = make_task(epsilon=8.0)
    result = attacked(seen_of(FedSGD(body=MLP, batch=4).run(task)), task, rounds=2)
    assert result.scores["recovered"].tolist() == [0, 0, 0]
    assert min(away for away, _ in near(result, task, STRONGEST)) > 100
    assert any("was not taken apart" in note for note in result.notes)


def test_inputs_behind_convolutions_are_inverted_record_by_record(make_task: MakeTask) -> None:
    task = make_task(clients=1)
    result = attacked(seen_of(FedSGD(body="cnn", batch=2).run(task)), task)
    assert result.scores["recovered"].tolist() == [2]
    assert result.scores[f"misfit/{BEHIND}"].max() < 0.3
    made = next(item for item in result.reconstructions if item.source.name == BEHIND)
    records = task.clients[0].images[..., 0].astype(float)
    errors = [np.square(records - image[..., 0]).mean(axis=(1, 2)).min() for image in made.images[:, 0]]
    # Two poolings leave 2x2 of these images: what is dark and what is bright comes back, not every pixel.
    assert np.mean(errors) < 0.7 * np.square(records - 128).mean()


@pytest.mark.slow
def test_matching_shows_a_record_where_algebra_is_not_used(make_task: MakeTask) -> None:
    task = make_task(clients=1)
    outcome = FedSGD(body={"name": "mlp", "hidden": 64}, batch=1).run(task)
    result = attacked(seen_of(outcome), task, algebra=False, preset="small")
    (away, right), *_ = near(result, task, MATCHED)
    assert right
    assert result.scores[f"misfit/{MATCHED}"][0] < 0.05
    assert away < 128


def test_batches_above_the_limit_are_not_tried_which_is_not_that_nothing_is_there(make_task: MakeTask) -> None:
    task = make_task()
    with pytest.raises(NotRunError) as raised:
        attacked(seen_of(FedSGD(body=MLP, batch=8).run(task)), task, algebra=False, most=4)
    assert not isinstance(raised.value, NothingToReadError)
    assert (raised.value.key, raised.value.held, raised.value.needed) == ("most", 4, 8)


def test_images_above_the_limit_are_named_with_the_number_that_would_do(make_task: MakeTask) -> None:
    task = make_task(clients=3)
    result = attacked(seen_of(FedSGD(body=MLP, batch=2).run(task)), task, algebra=False, max_images=4)
    limited = result.limited
    assert limited is not None
    assert (limited.key, limited.held, limited.needed) == ("max_images", 4, 6)


def test_a_view_without_gradients_does_not_apply(make_task: MakeTask) -> None:
    task = make_task()
    with pytest.raises(NothingToReadError, match="no gradient"):
        attacked(seen_of(RawFeatures().run(replace(task))), task)


def test_the_start_of_every_client_is_looked_up_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, weights = [], targets._weights

    def counted(message: Message) -> Any:
        asked.append(message)
        return weights(message)

    monkeypatch.setattr(targets, "_weights", counted)
    clients, messages = 30, []
    for number in range(clients):
        start = {"w": MessageField(np.full((2, 3), float(number)), "parameters", public())}
        sent = {"w": MessageField(np.ones((2, 3)), "gradient", exact())}
        messages += [Message(0, SERVER, f"client/{number}", start), Message(0, f"client/{number}", SERVER, sent)]
    found = targets.targets(View(tuple(messages), 2, ThreatModel()))
    assert [target.start["w"][0, 0] for target in found] == list(range(clients))
    assert len(asked) <= 3 * clients
