"""Inferred kinds: each reading, what is not told, and what contradicts a declaration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedassay.exchange.inference.infer import Inferred, infer_kinds, with_inferred
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.release import Release, exact
from fedassay.exchange.transcript import Message, MessageField, Transcript
from fedassay.mixtures.packed import pack_lower

CLASSES, WIDTH = 6, 20
Arrays = dict[str, np.ndarray]


def _records(size: int, seed: int, *, signed: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(size, WIDTH)) + 0.3
    return (features if signed else np.maximum(features, 0)), rng.integers(0, CLASSES, size)


def _found(messages: list[Arrays], classes: int = CLASSES, **kinds: FieldKind) -> dict[str, Inferred]:
    return {found.field: found for found in infer_kinds(_transcript(messages, classes, **kinds))}


def _transcript(messages: list[Arrays], classes: int = CLASSES, **kinds: FieldKind) -> Transcript:
    sent = tuple(
        Message(
            0,
            f"client/{place}",
            "server",
            {name: MessageField(values, kinds.get(name, "other"), exact()) for name, values in arrays.items()},
        )
        for place, arrays in enumerate(messages)
    )
    return Transcript("captured", classes, sent)


def _kinds(messages: list[Arrays], classes: int = CLASSES) -> dict[str, FieldKind | None]:
    return {name: found.reading.kind for name, found in _found(messages, classes).items()}


def _sums(size: int, seed: int, *, signed: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    features, labels = _records(size, seed, signed=signed)
    member = np.eye(CLASSES)[labels].T
    return member.sum(axis=1), member @ features, features.T @ features


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("size", [8, 15, 19, 21, 60, 400])
def test_sums_beside_their_gram_matrix(size: int, signed: bool) -> None:
    parts = [_sums(size, seed, signed=signed) for seed in range(3)]
    found = _found([{"a": sums, "b": gram} for _, sums, gram in parts])
    if signed and size >= WIDTH:
        # Inverse and weights give the same numbers of records, and no sign tells them apart.
        assert {each.status for each in found.values()} == {"ambiguous"}
        assert set(found["a"].reading.kinds) == {"class_sums", "ridge_weights"}
    else:
        assert {name: each.reading.kind for name, each in found.items()} == {
            "a": "class_sums",
            "b": "second_moment",
        }


def test_sizes_of_clients_tell_a_gram_matrix_from_an_inverse() -> None:
    """Signed features at full rank: with more records, a Gram matrix is larger and an inverse smaller."""
    parts = [_sums(size, seed, signed=True) for seed, size in enumerate((30, 90, 400))]
    summed = [{"a": sums, "b": gram, "n": counts} for counts, sums, gram in parts]
    assert _kinds(summed) == {"a": "class_sums", "b": "second_moment", "n": "class_counts"}
    inverse = [
        {"a": np.linalg.solve(gram, sums.T).T, "b": np.linalg.inv(gram), "n": counts}
        for counts, sums, gram in parts
    ]
    assert _kinds(inverse) == {"a": "ridge_weights", "b": "inverse_gram", "n": "class_counts"}


@pytest.mark.parametrize("size", [15, 60, 400])
def test_means_beside_a_gram_matrix_and_counts(size: int) -> None:
    messages = []
    for seed in range(3):
        counts, sums, gram = _sums(size, seed)
        means = sums / np.maximum(counts, 1)[:, None]
        messages.append({"a": means, "b": pack_lower(gram), "n": counts.astype(np.int32)})
    assert _kinds(messages) == {"a": "class_means", "b": "second_moment", "n": "class_counts"}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("gamma", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("size", [8, 15, 60, 400])
@pytest.mark.parametrize("columns", [False, True])
def test_ridge_weights_and_a_regularised_gram_matrix(size: int, gamma: float, dtype: type, columns: bool) -> None:
    messages = []
    for seed in range(3):
        _, sums, gram = _sums(size, seed)
        ridge = gram + gamma * np.eye(WIDTH)
        weights = np.linalg.solve(ridge, sums.T)
        messages.append({"w": (weights if columns else weights.T).astype(dtype), "c": ridge.astype(dtype)})
    found = _found(messages)
    assert found["c"].reading.kind == "regularised_gram", found["c"].text
    assert found["w"].reading.kind == "ridge_weights", found["w"].text
    assert found["w"].reading.transposed == columns
    changed = with_inferred(_transcript(messages), tuple(found.values()))
    assert changed.messages[0].fields["w"].values.shape == (CLASSES, WIDTH)
    if size < WIDTH and dtype == np.float64:
        assert f"gamma = {gamma:.4g}" in found["c"].text


def test_the_inverse_of_a_regularised_gram_matrix() -> None:
    messages = []
    for seed in range(3):
        _, sums, gram = _sums(9, seed)
        ridge = gram + 2.0 * np.eye(WIDTH)
        messages.append({"w": np.linalg.solve(ridge, sums.T).T, "r": np.linalg.inv(ridge)})
    found = _found(messages)
    assert found["r"].reading.kind == "inverse_gram"
    assert "gamma = 2" in found["r"].text
    assert found["w"].reading.kind == "ridge_weights"


def test_sums_beside_a_regularised_gram_matrix_are_no_weights() -> None:
    parts = [_sums(11, seed) for seed in range(3)]
    messages = [{"a": sums, "c": gram + np.eye(WIDTH)} for _, sums, gram in parts]
    assert _kinds(messages) == {"a": "class_sums", "c": "regularised_gram"}


def test_a_gram_matrix_alone_at_full_rank_is_not_told_from_one_with_a_ridge() -> None:
    found = _found([{"b": _sums(200, seed)[2]} for seed in range(2)])["b"]
    assert found.status == "ambiguous"
    assert found.reading.kinds == ("second_moment", "regularised_gram")
    assert with_inferred(_transcript([{"b": _sums(200, 0)[2]}]), (found,)).messages[0].fields["b"].kind == "other"


@pytest.mark.parametrize("what", ["sums", "means"])
def test_sums_and_means_beside_counts_differ_in_how_they_grow(what: str) -> None:
    messages = []
    for seed, size in enumerate((20, 60, 200)):
        counts, sums, _ = _sums(size, seed)
        held = np.flatnonzero(counts)
        rows = sums[held] if what == "sums" else sums[held] / counts[held, None]
        messages.append({"i": held.astype(np.int32), "n": counts[held].astype(np.int64), "m": rows})
    assert _kinds(messages) == {"i": "class_ids", "n": "class_counts", "m": f"class_{what}"}


def test_classes_of_one_size_do_not_tell_sums_from_means() -> None:
    rng = np.random.default_rng(0)
    messages = [{"n": np.full(CLASSES, 7), "m": rng.random((CLASSES, WIDTH))} for _ in range(4)]
    found = _found(messages, classes=CLASSES)
    assert found["m"].status == "ambiguous"
    assert set(found["m"].reading.kinds) == {"class_sums", "class_means"}


def test_sums_of_one_record_a_class_are_the_records() -> None:
    """Their own products add up to the Gram matrix, as those of sums of several do not."""
    rng = np.random.default_rng(1)
    features = np.maximum(rng.normal(size=(CLASSES, WIDTH)), 0)
    found = _found([{"a": features, "b": features.T @ features}])
    assert found["b"].reading.kind == "second_moment"
    assert found["a"].reading.kind == "features"


@pytest.mark.parametrize("covariances", [False, True])
def test_class_wise_matrices(covariances: bool) -> None:
    messages = []
    for seed in range(3):
        features, labels = _records(90, seed)
        own = [features[labels == label] for label in range(CLASSES)]
        counts = np.array([len(each) for each in own])
        if covariances:
            rows, stack = [each.mean(axis=0) for each in own], [np.cov(each.T) for each in own]
        else:
            rows, stack = [each.sum(axis=0) for each in own], [each.T @ each for each in own]
        messages.append({"n": counts, "t": np.array(rows), "s": np.array(stack)})
    kinds = _kinds(messages)
    assert kinds["s"] == ("class_covariances" if covariances else "class_second_moments")
    assert kinds["t"] == ("class_means" if covariances else "class_sums")


def test_sums_and_squares_of_small_features_are_told_apart_by_the_diagonal() -> None:
    """Of features between 0 and 1 either table may be the squares of the other one."""
    messages = []
    for seed in range(3):
        features, labels = np.random.default_rng(seed).uniform(0.1, 0.9, (60, WIDTH)), np.arange(60) % CLASSES
        member = np.eye(CLASSES)[labels].T
        parts = {"a": member @ features**2, "b": member @ features, "n": member.sum(axis=1).astype(np.int64)}
        messages.append({**parts, "g": features.T @ features})
    told = _kinds(messages)
    assert (told["a"], told["b"], told["n"]) == ("class_second_moments", "class_sums", "class_counts")


def test_whole_numbers_beside_a_network_are_counts_where_there_is_one_a_class() -> None:
    rng = np.random.default_rng(0)
    sent = [{"k": rng.standard_normal((8, 3, 3, 3)), "n": rng.integers(0, 50, CLASSES)} for _ in range(3)]
    assert _kinds(sent) == {"k": "parameters", "n": "class_counts"}
    longer = [{**own, "n": rng.integers(0, 50, CLASSES + 1)} for own in sent]
    assert _kinds(longer)["n"] == "other"


def test_features_and_their_labels() -> None:
    parts = [_records(size, seed) for seed, size in enumerate((9, 14, 30))]
    assert _kinds([{"x": features, "y": labels} for features, labels in parts]) == {"x": "features", "y": "labels"}


@pytest.mark.parametrize("seed", range(20))
def test_noise_tables_are_never_told_to_be_statistics(seed: int) -> None:
    """Arrays of the right shapes that have nothing to do with one another."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(3, WIDTH, WIDTH + 5))
    messages = [{"a": rng.normal(size=(CLASSES, WIDTH)), "b": each @ each.T} for each in root]
    assert _found(messages)["a"].reading.kind not in {"class_sums", "class_means"}
    symmetric = [each[:, :WIDTH] + each[:, :WIDTH].T for each in root]
    assert _kinds([{"b": each} for each in symmetric])["b"] is None


def test_what_contradicts_its_declaration_is_said_and_not_followed() -> None:
    messages = [{"a": sums, "b": gram} for _, sums, gram in (_sums(12, seed) for seed in range(3))]
    found = _found(messages, a="class_means", b="second_moment")
    assert found["a"].status == "contradicts"
    assert found["a"].text.startswith("a declares class_means, but its arrays are class_sums")
    assert found["b"].status == "agrees"
    transcript = _transcript(messages, a="class_means", b="second_moment")
    read = with_inferred(transcript, tuple(found.values())).messages[0].fields
    assert {name: item.kind for name, item in read.items()} == {"a": "class_sums", "b": "second_moment"}


def test_noise_hides_the_algebra_and_that_is_said() -> None:
    transcript = _transcript([{"a": sums, "b": gram} for _, sums, gram in (_sums(12, s) for s in range(2))])
    release = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(1.0,), sensitivity=(1.0,))
    noised = tuple(
        replace(m, fields={name: replace(item, release=release) for name, item in m.fields.items()})
        for m in transcript.messages
    )
    found = infer_kinds(replace(transcript, messages=noised))
    assert {each.status for each in found} == {"unknown"}
    assert all("Gaussian noise" in each.text for each in found)


def test_more_forms_than_are_read_are_said() -> None:
    found = infer_kinds(_transcript([{f"b{place}": np.eye(3)} for place in range(40)]))
    assert len(found) == 40
    assert sum("forms of messages" in each.text for each in found) == 24


def _backpropagated(records: int, seed: int, *, dtype: type = np.float32) -> Arrays:
    """The gradient of a network of one hidden layer, rectified, by a batch."""
    rng = np.random.default_rng(seed)
    inputs, labels = rng.random((records, 30)), rng.integers(0, CLASSES, records)
    first, last = rng.normal(size=(40, 30)) / 5, rng.normal(size=(CLASSES, 40)) / 6
    hidden = np.maximum(inputs @ first.T, 0)
    powers = np.exp(hidden @ last.T)
    errors = powers / powers.sum(axis=1, keepdims=True) - np.eye(CLASSES)[labels]
    back = (errors @ last) * (hidden > 0)
    arrays = {"a": back.T @ inputs, "b": back.sum(axis=0), "c": errors.T @ hidden, "d": errors.sum(axis=0)}
    return {name: values.astype(dtype) for name, values in arrays.items()}


@pytest.mark.parametrize("records", [1, 5, 20])
@pytest.mark.parametrize("declared", ["parameters", "other", "head", "features"])
def test_gradients_of_few_records_are_told_whatever_they_declare(records: int, declared: FieldKind) -> None:
    messages = [_backpropagated(records, seed) for seed in range(3)]
    found = _found(messages, **dict.fromkeys("abcd", declared))
    assert {each.read_as for each in found.values()} == {"gradient"}
    assert f"has rank {records}" in found["a"].text


def test_a_gradient_of_many_records_is_tried_as_one_and_said_to_be_unsure() -> None:
    found = _found([_backpropagated(400, seed) for seed in range(2)])
    assert {each.reading.kinds for each in found.values()} == {("gradient", "parameters")}
    assert {each.read_as for each in found.values()} == {"gradient"}
    assert "is tried as gradient" in found["a"].text


@pytest.mark.filterwarnings("ignore:.*(overflow|invalid value):RuntimeWarning")
@pytest.mark.parametrize("height", [1e200, 1e308])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("joined", [False, True])
def test_what_overflows_as_a_pair_is_told_nothing_of(height: float, counted: bool, joined: bool) -> None:
    """Numbers of records that are infinite, or no numbers, are no reading's."""
    pair = {"gram": np.full((4, 4), height), "f": np.full((10, 4), height)}
    rest = {"n": np.ones(10)} if counted else {}
    found = _found([({"f": pair["f"]} if joined else pair) | rest], 10)
    assert found["f"].reading.kind is None


def test_layers_of_a_shuffled_gradient_are_put_in_their_order() -> None:
    arrays = _backpropagated(5, 0)
    shuffled = [{name: arrays[name] for name in "dbca"}]
    transcript = _transcript(shuffled)
    read = with_inferred(transcript, infer_kinds(transcript))
    assert list(read.messages[0].fields) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("pruned", [False, True])
def test_weights_are_no_gradient(seed: int, pruned: bool) -> None:
    """Nor are pruned ones, whose rows of 0 lower the rank, nor a head whose rows add up to 0."""
    rng = np.random.default_rng(seed)
    first, last = rng.normal(size=(40, 30)) / 5, rng.normal(size=(CLASSES, 40)) / 6
    offsets, end = rng.normal(size=40), rng.normal(size=CLASSES)
    if pruned:
        first[rng.random(40) < 0.5], offsets[(first == 0).all(axis=1)] = 0, 0
    network = {"a": first, "b": offsets, "c": last, "d": end}
    assert {each.read_as for each in _found([network], **dict.fromkeys("abcd", "parameters")).values()} == {None}
    centred = {"c": last - last.mean(axis=0), "d": end - end.mean()}
    assert {each.read_as for each in _found([centred], **dict.fromkeys("cd", "head")).values()} == {None}


def test_second_moments_of_an_optimiser_are_no_gradient() -> None:
    """They are as small as one, of a network's shapes, and never negative."""
    rng = np.random.default_rng(0)
    shapes = {"a": (40, 30), "b": (40,), "c": (CLASSES, 40), "d": (CLASSES,)}
    arrays = {name: 1e-5 * rng.random(shape) for name, shape in shapes.items()}
    assert {each.read_as for each in _found([arrays], **dict.fromkeys("abcd", "parameters")).values()} == {None}


@pytest.mark.parametrize("flat", [False, True])
def test_weights_beside_counts_of_few_records_are_no_features(flat: bool) -> None:
    """Counts below the number of classes, 0 beside a row of weights, were labels, and the weights features."""
    rng = np.random.default_rng(2)
    messages = []
    for _ in range(3):
        weights = rng.normal(size=(10, 384))
        counts = np.bincount(rng.integers(10, size=20), minlength=10)
        assert counts.min() == 0
        messages.append({"a": weights.ravel() if flat else weights, "b": counts})
    found = _found(messages, classes=10)
    assert found["a"].reading.kind != "features"
    assert found["b"].reading.kind != "labels"
