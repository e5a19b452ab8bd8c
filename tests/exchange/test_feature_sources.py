"""Vectors of feature space are read from every message that holds some, with their classes and senders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.exchange.feature_sources import (
    VectorSource,
    concatenated,
    in_space,
    message_mixtures,
    no_vectors,
    sources,
)
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.message import AGGREGATE, SERVER, Message, MessageField
from fedassay.exchange.release import exact
from fedassay.exchange.view import ThreatModel, View
from fedassay.mixtures.packed import pack_lower
from fedassay.support.errors import NotRunError

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((6, 3)).astype(np.float32)


def _message(sender: str, fields: Mapping[FieldKind, NDArray[np.generic]]) -> Message:
    return Message(0, sender, SERVER, {kind: MessageField(own, kind, exact()) for kind, own in fields.items()})


def _sources(*messages: Message) -> dict[str, VectorSource]:
    return {each.name: each for each in sources(View(messages, 4, ThreatModel()), np.random.default_rng(1))}


def test_features_are_the_records_own_rows() -> None:
    labels = np.array([3, 1, 1, 0, 2, 3])
    (found,) = _sources(
        _message("client/0", {"features": ROWS[:4], "labels": labels[:4]}),
        _message("client/1", {"features": ROWS[4:], "labels": labels[4:]}),
    ).values()
    assert (found.name, found.paired) == ("raw", True)
    np.testing.assert_array_equal(found.vectors, ROWS)
    np.testing.assert_array_equal(found.labels, labels)
    assert found.senders == ("client/0",) * 4 + ("client/1",) * 2
    np.testing.assert_array_equal(found.rows, [0, 1, 2, 3, 0, 1])
    part = found.take(np.array([5, 0]))
    assert part.senders == ("client/1", "client/0")
    np.testing.assert_array_equal(part.rows, [1, 0])


def test_labels_that_are_not_sent_are_unknown() -> None:
    found = _sources(_message("client/0", {"features": ROWS}))["raw"]
    np.testing.assert_array_equal(found.labels, np.full(6, -1))


def test_means_have_the_classes_that_are_sent() -> None:
    found = _sources(_message(AGGREGATE, {"class_ids": np.array([3, 1]), "class_means": ROWS[:2]}))["class_means"]
    np.testing.assert_array_equal(found.labels, [3, 1])
    assert found.senders == (AGGREGATE,) * 2
    assert not found.paired
    whole = _sources(_message("client/0", {"class_means": ROWS[:4]}))["class_means"]
    np.testing.assert_array_equal(whole.labels, np.arange(4))


def test_sums_over_counts_are_means_of_the_classes_that_are_there() -> None:
    counts = np.array([2.0, 0.4, -1.0, 5.0])
    found = _sources(_message("client/0", {"class_sums": ROWS[:4], "class_counts": counts}))["class_means"]
    np.testing.assert_array_equal(found.labels, [0, 3])
    np.testing.assert_allclose(found.vectors, np.stack([ROWS[0] / 2, ROWS[3] / 5]), rtol=1e-6)
    assert not _sources(_message("client/0", {"class_sums": ROWS[:4]}))
    assert not _sources(_message(SERVER, {"class_means": ROWS[:4]}))


@pytest.mark.parametrize("family", ["full", "diag", "spherical"])
def test_mixtures_are_sampled_as_often_as_their_counts_say(family: str) -> None:
    means = np.array([[50.0, 0, 0], [0, 50, 0], [0, 0, 50]])
    spread = {
        "full": np.stack([pack_lower(4 * np.eye(3))] * 3),
        "diag": np.full((3, 3), 4.0),
        "spherical": np.full(3, 4.0),
    }[family]
    message = _message(
        "client/0",
        {
            "class_ids": np.array([2, 0]),
            "mixture_means": means,
            "mixture_covariances": spread,
            "component_counts": np.array([2, 1]),
            "mixture_weights": np.array([0.25, 0.75, 1.0]),
            "class_counts": np.array([400.2, 100.0]),
        },
    )
    mixed = message_mixtures(message)
    assert mixed is not None
    assert mixed.family == family
    found = _sources(message)["mixture_samples"]
    np.testing.assert_array_equal(np.bincount(found.labels, minlength=4), [100, 0, 400, 0])
    assert not found.paired
    near = np.argmax(found.vectors, axis=1)
    assert set(near[found.labels == 0]) == {2}
    assert (near[found.labels == 2] == 0).mean() == pytest.approx(0.25, abs=0.08)
    assert found.vectors[found.labels == 0].std(axis=0) == pytest.approx(np.full(3, 2.0), rel=0.25)
    np.testing.assert_array_equal(_sources(message)["mixture_samples"].vectors, found.vectors)


def test_mixtures_without_parts_have_one_component_a_class() -> None:
    fields: dict[FieldKind, NDArray[np.generic]] = {
        "mixture_means": ROWS[:4],
        "mixture_covariances": np.ones((4, 3)),
    }
    mixed = message_mixtures(_message("client/0", fields))
    assert mixed is not None
    np.testing.assert_array_equal(mixed.components, np.ones(4))
    np.testing.assert_array_equal(mixed.counts, np.zeros(4))
    assert message_mixtures(_message("client/0", {"mixture_means": ROWS[:4]})) is None


def test_parts_stand_in_their_order() -> None:
    one = VectorSource("raw", ROWS[:2], np.array([1, 2]), ("a", "a"), np.array([0, 1]))
    two = VectorSource("raw", ROWS[2:3], np.array([0]), ("b",), np.array([-1]))
    found = concatenated([two, one])
    assert found.senders == ("b", "a", "a")
    np.testing.assert_array_equal(found.labels, [0, 1, 2])
    np.testing.assert_array_equal(found.rows, [-1, 0, 1])
    np.testing.assert_array_equal(found.vectors, ROWS[[2, 0, 1]])


def test_what_sends_no_vectors_is_told_from_what_sends_others() -> None:
    """An attack on features does not apply to a decoder; features of other networks are untried."""

    def why(*messages: Message) -> NotRunError:
        seen = tuple(_sources(*messages).values())
        return no_vectors(seen, 64, "features")

    nothing = why(_message("client/0", {"parameters": np.ones(9)}))
    assert nothing.why.kind == "nothing_to_read"
    assert str(nothing) == "the view holds no vectors: features are needed"
    other = why(_message("client/0", {"features": np.ones((3, 31))}))
    assert other.why.kind != "nothing_to_read"
    assert str(other) == "the vectors that are sent have width 31, and the backbone's features 64"
    # Noise that leaves no count above one half hides the classes, and settles nothing.
    hidden = why(_message("client/0", {"class_sums": np.ones((4, 64)), "class_counts": np.zeros(4)}))
    assert hidden.why.kind != "nothing_to_read"
    assert "that noise left" in str(hidden)


@pytest.mark.parametrize("place", [0, 3])
def test_the_constant_of_ridge_regression_is_no_feature(place: int) -> None:
    features = ROWS[:2]
    none = np.full(2, -1)
    sent = np.insert(features, place, 1, axis=1)
    one = VectorSource("class_means", sent, none, ("a", "a"), none)
    (found,) = in_space([one, VectorSource("raw", sent[:, :1], none, ("a", "a"), none)], 3)
    np.testing.assert_array_equal(found.vectors, features)
    assert in_space([one], 9) == ()


def test_vectors_of_many_senders_are_found_in_one_pass() -> None:
    class Senders(tuple[str, ...]):
        taken = 0

        def __iter__(self) -> Iterator[str]:
            Senders.taken += 1
            return super().__iter__()

    names = [f"client/{number}" for number in range(50)]
    source = VectorSource("raw", np.zeros((100, 2)), np.zeros(100, np.int64), Senders(names * 2), np.arange(100))
    found = source.of_senders([*names[1:], "stranger"])
    assert Senders.taken == 1
    assert found["client/7"].tolist() == [7, 57]
    assert len(found["stranger"]) == 0
    assert "client/0" not in found
