"""Messages of plain loops become a transcript: what was sent, of what kind, and nothing that came later."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import fedassay
from fedassay.exchange.release import PrivacyClaim, Release
from fedassay.exchange.transcript import AGGREGATE, SERVER, load_transcript
from fedassay.support.errors import DataError, PlanError


def test_a_state_dict_is_kept_as_it_was_sent(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 3)
    before = {name: value.detach().numpy().copy() for name, value in model.state_dict().items()}
    with fedassay.record(tmp_path, classes=3) as recorder:
        recorder.sent("hospital-a", model.state_dict())
        with torch.no_grad():
            model.weight.zero_()
    (message,) = load_transcript(tmp_path).messages
    assert (message.sender, message.receiver, message.round) == ("client/hospital-a", SERVER, 0)
    assert set(message.fields) == {"weight", "bias"}
    for name, values in before.items():
        np.testing.assert_array_equal(message.fields[name].values, values)
        assert message.fields[name].kind == "parameters"
        assert message.fields[name].release.mechanism == "exact"


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.bool, torch.uint8]
)
def test_tensors_of_every_type(dtype: torch.dtype, tmp_path: Path) -> None:
    sent = torch.ones(3).to(dtype)
    with fedassay.record(tmp_path, classes=3) as recorder:
        recorder.sent(0, {"values": sent.requires_grad_() if dtype.is_floating_point else sent})
    values = load_transcript(tmp_path).messages[0].fields["values"].values
    np.testing.assert_array_equal(values.astype(float), np.ones(3))


def test_lists_arrays_and_numbers(tmp_path: Path) -> None:
    with fedassay.record(tmp_path, classes=3) as recorder:
        recorder.sent(0, [np.zeros(2), np.ones((2, 2), np.float32)], round=1)
        recorder.sent(1, np.arange(4), round=1)
        recorder.sent("server", {"lr": 0.1, "n": 3}, round=2, receiver=1)
    first, second, third = load_transcript(tmp_path).messages
    assert set(first.fields) == {"0", "1"}
    assert set(second.fields) == {"array"}
    assert (third.sender, third.receiver, third.round) == (SERVER, "client/1", 2)
    assert {item.release.mechanism for item in third.fields.values()} == {"derived"}


def test_kinds_and_mechanisms_are_kept(tmp_path: Path) -> None:
    noise = Release(
        mechanism="gaussian", adjacency="add_remove", group="g", sensitivity=(1.0,), noise_scale=(2.0,)
    )
    claim = PrivacyClaim(epsilon=2.0, delta=1e-5, adjacency="add_remove", source="a test")
    recorder = fedassay.record(
        tmp_path,
        classes=3,
        kinds={"counts": "class_counts"},
        declared={"sums": fedassay.Declared("class_sums", noise, additive=True, secure=True)},
        method="ours 1.0",
        claim=claim,
    )
    recorder.sent(0, {"counts": np.array([1, 2, 3]), "sums": np.zeros((3, 5))})
    kept = load_transcript(recorder.save())
    fields = kept.messages[0].fields
    assert fields["counts"].release.depends_on == "labels"
    assert (fields["sums"].release, fields["sums"].additive, fields["sums"].secure) == (noise, True, True)
    assert (kept.method, kept.claim, kept.classes) == ("ours 1.0", claim, 3)


def test_a_wrong_declaration_ends_no_training(tmp_path: Path) -> None:
    with fedassay.record(tmp_path, classes=3, kinds={"sums": "class_sums"}) as recorder:
        recorder.sent(0, {"sums": np.zeros((4, 2)), "loss": np.nan})
    kept = load_transcript(tmp_path)
    assert kept.messages[0].fields["sums"].kind == "other"
    assert "loss" not in kept.messages[0].fields
    assert any("NaN" in note for note in kept.notes)
    assert any("audited without its kinds" in note for note in kept.notes)


def test_a_secure_sum_is_seen_as_a_sum(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    features = np.maximum(rng.normal(size=(9, 24)), 0)
    member = np.eye(3)[np.arange(9) % 3]
    recorder = fedassay.record(tmp_path / "sum", classes=3, kinds={"counts": "class_counts", "sums": "class_sums"})
    recorder.summed({"counts": member.sum(0), "sums": member.T @ features}, clients=3)
    kept = load_transcript(recorder.save())
    assert kept.messages[0].sender == AGGREGATE
    assert any("3 clients" in note for note in kept.notes)
    run = fedassay.audit(tmp_path / "sum", tmp_path / "out", progress=False)
    assert not run.errors
    assert any(finding.audit == "message" for finding in run.record.cells[0].findings)


@pytest.mark.parametrize(
    "wrong", ["text", {"name": "text"}, [object()], {"a": None}, {"a": np.array(["x"])}, b"x"]
)
def test_what_is_no_number_is_refused(wrong: object, tmp_path: Path) -> None:
    recorder = fedassay.record(tmp_path, classes=3)
    with pytest.raises(DataError, match="an array of numbers"):
        recorder.sent(0, wrong)
    with pytest.raises(DataError, match="no message"):
        recorder.save()


def test_wrong_declarations_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"kinds\.sums: given 'sums'; allowed: features"):
        fedassay.record(tmp_path, classes=3, kinds={"sums": "sums"})  # type: ignore[dict-item]
    with pytest.raises(PlanError, match="undeclared: given 'sums'"):
        fedassay.record(tmp_path, classes=3, undeclared="sums")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="classes: given 0"):
        fedassay.record(tmp_path, classes=0)
    with pytest.raises(PlanError, match="one of them"):
        fedassay.record(tmp_path, 3, kinds={"a": "other"}, declared={"a": fedassay.Declared("other")})
    recorder = fedassay.record(tmp_path, classes=3)
    with pytest.raises(PlanError, match="round: given -1"):
        recorder.sent(0, np.ones(2), round=-1)
    recorder.sent(0, np.ones(2))
    recorder.save()
    with pytest.raises(DataError, match="holds a transcript already"):
        fedassay.record(tmp_path, classes=3)


def test_a_training_that_fails_leaves_what_it_sent(tmp_path: Path) -> None:
    def training() -> None:
        with fedassay.record(tmp_path, classes=3) as recorder:
            recorder.sent(0, np.ones(2))
            raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        training()
    assert len(load_transcript(tmp_path).messages) == 1
    with pytest.raises(ValueError, match="first"), fedassay.record(tmp_path / "empty", classes=3):
        raise ValueError("first")


def test_the_most_records_of_a_person_go_into_the_transcript(tmp_path: Path) -> None:
    with fedassay.record(tmp_path / "sent", classes=2, most_records=7) as recorder:
        recorder.sent(0, {"sums": np.ones((2, 4))})
    assert load_transcript(tmp_path / "sent").most_records == 7
    with pytest.raises(PlanError, match="most_records: given 0; allowed: 1 or more"):
        fedassay.record(tmp_path / "other", classes=2, most_records=0)


def _backpropagated(records: int, seed: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The weights of a network of one rectified layer, and its gradient by a batch."""
    rng = np.random.default_rng(seed)
    inputs, labels = rng.random((records, 64)), rng.integers(0, 10, records)
    first, last = rng.normal(size=(128, 64)) / 8, rng.normal(size=(10, 128)) / 11
    hidden = np.maximum(inputs @ first.T, 0)
    powers = np.exp(hidden @ last.T)
    errors = powers / powers.sum(axis=1, keepdims=True) - np.eye(10)[labels]
    back = (errors @ last) * (hidden > 0)
    model = {"w": first, "b": np.zeros(128), "v": last, "c": np.zeros(10)}
    change = {"w": back.T @ inputs, "b": back.sum(axis=0), "v": errors.T @ hidden, "c": errors.sum(axis=0)}
    return model, change


def _images_of(folder: Path) -> int:
    run = fedassay.audit(folder, folder.parent / "out", progress=False)
    found = next(each for each in run.record.cells[0].findings if each.source == "layer_inputs")
    assert found.verdict == "leak"
    return int(found.reason.split()[0])


def test_gradients_of_which_nothing_was_said_give_their_images(tmp_path: Path) -> None:
    with fedassay.record(tmp_path / "captured", classes=10) as recorder:
        recorder.sent(0, _backpropagated(5, 0)[1])
    assert {item.kind for item in load_transcript(tmp_path / "captured").messages[0].fields.values()} == {
        "gradient"
    }
    assert _images_of(tmp_path / "captured") == 5


def test_weights_are_read_against_the_model_that_the_server_sent(tmp_path: Path) -> None:
    model, change = _backpropagated(4, 1)
    with fedassay.record(tmp_path / "captured", classes=10) as recorder:
        recorder.sent("server", model, receiver=0)
        recorder.sent(0, {name: model[name] - 0.1 * change[name] for name in model})
    sent = load_transcript(tmp_path / "captured").messages
    assert [{item.kind for item in message.fields.values()} for message in sent] == [{"parameters"}] * 2
    assert _images_of(tmp_path / "captured") == 4
