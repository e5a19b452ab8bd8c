"""`fedassay audit T --gallery FOLDER`: names in captured messages, and none where the members are not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from fedassay.contracts.method import MethodInput
from fedassay.data.records import joined
from fedassay.exchange.message import Message, MessageField
from fedassay.exchange.release import exact
from fedassay.execution.captured import AuditOptions, audit_transcript
from fedassay.heads.penalised import PenalisedEstimator
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedpft.method import FedPFT
from fedassay.records.record import Finding
from fedassay.support.errors import DataError

MakeTask = Callable[..., MethodInput]


def audited(folder: Path, gallery: Path) -> Finding:
    """The finding on the gallery of an audit of captured messages."""
    options = AuditOptions(device="cpu", quiet=True, gallery=gallery)
    _, record = audit_transcript(folder / "sent", None, folder / "run", options)
    assert not record.errors, record.errors
    found = next(finding for finding in record.cells[0].findings if finding.attack == "gallery")
    print(found.reason)
    return found


def written(folder: Path, features: np.ndarray, labels: np.ndarray) -> Path:
    """A gallery of features."""
    folder.mkdir()
    np.savez(folder / "gallery.npz", features=features, labels=labels)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("method", [FedCGS(secure_aggregation="all"), FedPFT(components=1, transport="float32")])
def test_members_are_named_in_captured_messages(
    method: FedCGS | FedPFT, make_task: MakeTask, tmp_path: Path
) -> None:
    task = make_task(clients=1, records=100)
    method.run(task).transcript.save(tmp_path / "sent")
    own, test = task.clients[0], task.test
    rows = np.random.default_rng(0).permutation(len(own) + len(test))
    features = np.concatenate([own.features, test.features])[rows]
    gallery = written(tmp_path / "gallery", features, np.concatenate([own.labels, test.labels])[rows])
    found = audited(tmp_path, gallery)
    assert found.verdict == "leak"
    assert found.harm is not None
    # Of 397 candidates; how many of these took part nobody knows who has the messages alone.
    assert (found.harm.kind, found.harm.count, found.harm.total) == ("named", 100, None)


def test_more_questions_than_fit_in_memory_are_refused_before_work_is_done(
    make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(clients=3, records=100)
    FedCGS().run(task).transcript.save(tmp_path / "sent")
    gallery = written(tmp_path / "gallery", task.test.features[:40], task.test.labels[:40])
    monkeypatch.setattr("fedassay.support.limits.ASKED", 119)
    with pytest.raises(DataError, match="40 candidates for each of 3 senders; allowed: 119 altogether"):
        audited(tmp_path, gallery)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_who_joined_and_left_is_named_between_two_captures(make_task: MakeTask, tmp_path: Path) -> None:
    """Two rounds of a client of whose records the gallery holds only those that changed."""
    task = make_task(clients=1, records=100)
    own, test = task.clients[0], task.test
    second = joined(own.name, [own.take(np.arange(4, 100)), test.take(np.arange(6))])
    messages, outcome = [], None
    for number, held in enumerate((own, second)):
        outcome = FedCGS().run(replace(task, clients=(held,)))
        messages += [replace(message, round=number) for message in outcome.transcript.from_clients()]
    assert outcome is not None
    replace(outcome.transcript, messages=tuple(messages)).save(tmp_path / "sent")
    few = joined("few", [test, own.take(np.arange(4))])
    found = audited(tmp_path, written(tmp_path / "gallery", few.features, few.labels))
    assert found.verdict == "leak"
    assert found.harm is not None
    assert (found.harm.kind, found.harm.count) == ("named", 10)
    assert "6 are named to have joined and 4 to have left" in found.reason
    control = next(each for each in found.all_controls if "two times" in each.release)
    assert control.detected


@pytest.mark.long
def test_nobody_is_named_of_strangers(make_task: MakeTask, tmp_path: Path) -> None:
    task = make_task(clients=1, records=100)
    FedCGS().run(task).transcript.save(tmp_path / "sent")
    found = audited(tmp_path, written(tmp_path / "gallery", task.test.features, task.test.labels))
    assert found.verdict == "inconclusive"
    assert "0 of 297 candidates are named" in found.reason


@pytest.mark.parametrize("given", ["nothing", "images", "labels", "names", "table"])
def test_a_wrong_gallery_is_one_clear_error(given: str, make_task: MakeTask, tmp_path: Path) -> None:
    task = make_task(clients=1, records=20)
    FedCGS().run(task).transcript.save(tmp_path / "sent")
    folder = tmp_path / "gallery"
    if given == "labels":
        written(folder, task.test.features, task.test.labels + 7)
    elif given == "images":
        folder.mkdir()
    elif given == "names":
        folder = tmp_path / "gallery.npz"
        np.savez(folder, X=task.test.features, y=task.test.labels)
    elif given == "table":
        folder = tmp_path / "gallery.csv"
        folder.write_text("a,b\n1,2\n")
    said = {
        "nothing": "no such folder",
        "images": "--plan",
        "labels": "allowed: 0 to 9",
        "names": "holds no features and no labels beside X, y",
        "table": "no file that is read; allowed: an .npz with",
    }[given]
    with pytest.raises(DataError, match=said):
        audited(tmp_path, folder)


@pytest.mark.long
def test_a_model_in_a_capture_is_read_and_its_control_is_a_head(make_task: MakeTask, tmp_path: Path) -> None:
    task = make_task(clients=1, records=60)
    own, test = task.clients[0], task.test
    sent = FedCGS().run(task).transcript
    head = PenalisedEstimator("least_squares", 2.0).fit(own.features, own.labels)
    fields = {
        "head_classes": MessageField(head.classes.astype(np.int32), "other", exact()),
        "weights": MessageField(head.weights.astype(np.float32), "head", exact()),
        "bias": MessageField(head.bias.astype(np.float32), "head", exact()),
    }
    message = Message(0, own.name, "server", fields)
    replace(sent, messages=(message,)).save(tmp_path / "sent")
    features = np.concatenate([own.features, test.features[:60]])
    labels = np.concatenate([own.labels, test.labels[:60]])
    found = audited(tmp_path, written(tmp_path / "gallery", features, labels))
    assert found.controls.positive is not None
    assert found.controls.positive.caught
    assert found.verdict == "leak"
    assert found.harm is not None
    assert found.harm.count == 60


@pytest.mark.parametrize("labelled", [True, False])
def test_a_scaler_in_a_file_names_its_records_without_labels(labelled: bool, tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(size=(80, 64))
    scaler = StandardScaler().fit(features[:40])
    np.savez(tmp_path / "scaler.npz", mean_=scaler.mean_, scale_=scaler.scale_, n_samples_seen_=40)
    labels = {"labels": np.arange(80) % 4 + 7} if labelled else {}
    np.savez(tmp_path / "gallery.npz", features=features, **labels)
    options = AuditOptions(device="cpu", quiet=True, gallery=tmp_path / "gallery.npz")
    _, record = audit_transcript(tmp_path / "scaler.npz", None, tmp_path / "run", options)
    assert not record.errors, record.errors
    found = next(finding for finding in record.cells[0].findings if finding.attack == "gallery")
    assert found.verdict == "leak", found.reason
    assert found.harm is not None
    assert found.harm.count == 40
