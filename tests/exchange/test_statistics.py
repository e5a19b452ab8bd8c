"""What follows from sums: counts that are not sent, ranks, fields that others give, noise that is not there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.message import AGGREGATE, SERVER, Message, MessageField
from fedassay.exchange.release import Release, exact
from fedassay.exchange.statistics import (
    Remark,
    any_protected,
    gram_of,
    known_counts,
    noise_of,
    remarks,
    roundoff,
    statistics_of,
    without_spread,
)
from fedassay.mixtures.packed import pack_lower

CLASSES, WIDTH = 3, 12
COUNTS = np.array([4.0, 1.0, 3.0])
LABELS = np.repeat(np.arange(CLASSES), COUNTS.astype(int))
RECORDS = np.abs(np.random.default_rng(0).standard_normal((len(LABELS), WIDTH)))
SUMS = np.stack([RECORDS[label == LABELS].sum(axis=0) for label in range(CLASSES)])
SECOND = RECORDS.T @ RECORDS
Fields = Mapping[FieldKind, NDArray[np.generic]]


def _noised(scale: float) -> Release:
    return Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(scale,), sensitivity=(1.0,))


def _message(fields: Fields, sender: str = "client/0", **releases: Release) -> Message:
    own = {kind: MessageField(values, kind, releases.get(kind, exact())) for kind, values in fields.items()}
    return Message(0, sender, SERVER, own)


def _said(message: Message, rule: str) -> list[Remark]:
    return [each for each in remarks([message], CLASSES) if each.rule == rule]


def test_means_times_counts_are_sums() -> None:
    own = statistics_of(_message({"class_means": SUMS / COUNTS[:, None], "class_counts": COUNTS}), CLASSES)
    assert own.sums is not None
    np.testing.assert_allclose(own.sums, SUMS)
    np.testing.assert_array_equal(own.order, np.arange(CLASSES))
    assert statistics_of(_message({"class_means": SUMS}), CLASSES).sums is None
    some = statistics_of(_message({"class_ids": np.array([2, 0]), "class_sums": SUMS[:2]}), CLASSES)
    np.testing.assert_array_equal(some.order, [2, 0])


def test_noise_and_rounding_of_a_field() -> None:
    assert noise_of(MessageField(SUMS, "class_sums", _noised(0.5))) == 0.5
    assert noise_of(MessageField(SUMS, "class_sums", exact())) == 0
    assert roundoff(np.zeros(1, np.float32)) == np.finfo(np.float32).eps / 2
    assert roundoff(np.zeros(1, np.int64)) == 0
    assert any_protected([_message({"class_sums": SUMS}), _message({"class_sums": SUMS}, class_sums=_noised(1.0))])
    assert not any_protected([_message({"class_sums": SUMS})])


def test_a_ridge_comes_off_a_moment_that_gives_it() -> None:
    ridged = _message({"regularised_gram": SECOND + 0.3 * np.eye(WIDTH), "class_sums": SUMS})
    own = gram_of(ridged, CLASSES)
    assert own is not None
    np.testing.assert_allclose(own.second, SECOND, atol=1e-9)
    given = gram_of(ridged, CLASSES, 0.1)
    assert given is not None
    np.testing.assert_allclose(given.second, SECOND + 0.2 * np.eye(WIDTH), atol=1e-9)
    weights = SUMS @ np.linalg.inv(SECOND + 0.3 * np.eye(WIDTH))
    from_weights = gram_of(
        _message({"regularised_gram": SECOND + 0.3 * np.eye(WIDTH), "ridge_weights": weights}), CLASSES
    )
    assert from_weights is not None
    assert from_weights.sums is not None
    np.testing.assert_allclose(from_weights.sums, SUMS, atol=1e-9)
    assert gram_of(_message({"class_sums": SUMS}), CLASSES) is None


def test_counts_are_sent_or_follow_from_a_moment_or_from_a_feature_that_is_one() -> None:
    sent = known_counts(_message({"class_counts": COUNTS, "class_sums": SUMS}), CLASSES)
    assert sent is not None
    assert sent[1] == "sent"
    derived = known_counts(_message({"second_moment": SECOND, "class_sums": SUMS}), CLASSES)
    assert derived is not None
    assert derived[1] == "second_moment"
    np.testing.assert_allclose(derived[0], COUNTS)
    beside = np.concatenate([SUMS, COUNTS[:, None]], axis=1)
    constant = known_counts(_message({"class_sums": beside}), CLASSES)
    assert constant is not None
    assert constant[1] == "constant_feature"
    np.testing.assert_array_equal(constant[0], COUNTS)
    assert known_counts(_message({"class_sums": SUMS}), CLASSES) is None


@pytest.mark.parametrize(
    "column",
    [np.zeros(CLASSES), np.array([4.0, -1.0, 3.0]), np.array([4.0, 1.5, 3.0])],
    ids=["nobody", "below 0", "not whole"],
)
def test_a_column_that_is_no_number_of_records_gives_no_counts(column: NDArray[np.float64]) -> None:
    assert known_counts(_message({"class_sums": np.concatenate([SUMS, column[:, None]], axis=1)}), CLASSES) is None


def test_whole_numbers_by_chance_are_no_counts() -> None:
    two = np.concatenate([SUMS, COUNTS[:, None], COUNTS[:, None]], axis=1)
    assert known_counts(_message({"class_sums": two}), CLASSES) is None
    coarse = np.concatenate([1e5 * SUMS, 1e5 * COUNTS[:, None]], axis=1).astype(np.float16)
    large = np.where(np.isfinite(coarse), coarse, np.float16(6e4))
    assert known_counts(_message({"class_sums": large}), CLASSES) is None


def test_counts_that_leave_exactly_are_said() -> None:
    (own,) = _said(_message({"class_counts": COUNTS}), "exact_counts")
    assert (own.sender, own.field, own.discloses) == ("client/0", "class_counts", False)
    np.testing.assert_array_equal(own.values, COUNTS)
    assert "of client/0 leave exactly" in own.text
    (summed,) = _said(_message({"class_counts": COUNTS}, AGGREGATE), "exact_counts")
    assert "all clients together" in summed.text
    assert not _said(_message({"class_counts": COUNTS}, class_counts=_noised(1.0)), "exact_counts")


def test_a_rank_is_a_number_of_records() -> None:
    (own,) = _said(_message({"second_moment": SECOND}), "rank")
    assert (own.sender, own.field, own.discloses) == ("client/0", "second_moment", True)
    np.testing.assert_array_equal(own.values, [len(RECORDS)])
    assert f"of {WIDTH} active features has rank {len(RECORDS)}" in own.text
    (counted,) = _said(_message({"second_moment": SECOND, "class_counts": COUNTS}), "rank")
    assert not counted.discloses
    assert counted.text.endswith("which the counts say as well")
    (ridged,) = _said(_message({"regularised_gram": SECOND + 0.3 * np.eye(WIDTH)}), "rank")
    assert ridged.field == "regularised_gram"
    many = np.random.default_rng(1).standard_normal((40, WIDTH))
    assert not _said(_message({"second_moment": many.T @ many}), "rank")
    assert not _said(_message({"second_moment": SECOND}, second_moment=_noised(1e-9)), "rank")


def test_counts_that_follow_are_disclosed() -> None:
    (own,) = _said(_message({"second_moment": SECOND, "class_sums": SUMS}), "derivable_counts")
    assert own.discloses
    assert own.field == "second_moment"
    np.testing.assert_allclose(own.values, COUNTS)
    assert not _said(_message({"second_moment": SECOND, "class_counts": COUNTS}), "derivable_counts")


def test_fields_that_others_give_are_redundant() -> None:
    means = {"class_means": SUMS / COUNTS[:, None], "class_sums": SUMS, "class_counts": COUNTS}
    (own,) = _said(_message(means), "redundant_field")
    assert (own.field, own.discloses) == ("class_means", False)
    assert not _said(_message({**means, "class_means": SUMS}), "redundant_field")
    total: dict[FieldKind, NDArray[np.generic]] = {"class_sums": SUMS, "other": SUMS.sum(axis=0)}
    (own,) = _said(_message(total), "redundant_field")
    assert (own.field, own.discloses) == ("other", False)
    assert own.text == "other is the sum of class_sums over the classes"
    (counted,) = _said(_message({"class_counts": COUNTS, "other": np.array(COUNTS.sum())}), "redundant_field")
    assert counted.field == "other"
    assert not _said(_message({**total, "other": SUMS.mean(axis=0)}), "redundant_field")


def test_what_is_noised_twice_averages_out() -> None:
    rng = np.random.default_rng(2)
    sums, total = SUMS + 0.01 * rng.standard_normal(SUMS.shape), SUMS.sum(axis=0)
    noised = {"class_sums": _noised(0.01), "other": _noised(0.01)}
    sent: Fields = {"class_sums": sums, "other": total + 0.01 * rng.standard_normal(WIDTH)}
    (own,) = _said(_message(sent, **noised), "redundant_field")
    assert own.discloses
    assert own.text.endswith("the two average out")
    other: Fields = {"class_sums": sums, "other": total + 0.1 * rng.standard_normal(WIDTH)}
    assert not _said(_message(other, **noised), "redundant_field")


def test_noise_that_is_declared_and_not_there_is_said() -> None:
    def told(values: NDArray[np.floating], kind: FieldKind = "class_sums", scale: float = 1.0) -> list[str]:
        found = _said(_message({kind: values}, **{kind: _noised(scale)}), "missing_noise")
        assert all(each.values == [scale] and not each.discloses for each in found)
        return [each.text for each in found]

    rng = np.random.default_rng(3)
    noise = rng.standard_normal((CLASSES, WIDTH))
    assert told(noise) == []
    assert "and none is negative" in told(np.maximum(noise, 0))[0]
    some = noise.copy()
    some[0, :3] = 0
    assert "8% of the entries are exactly 0" in told(some)[0]
    assert "all counts are whole" in told(COUNTS, "class_counts")[0]
    assert told(COUNTS, "class_counts", 0.04) == []
    assert told(COUNTS + 0.3, "class_counts") == []
    assert "eigenvalues are alike" in told(SECOND + np.eye(WIDTH), "second_moment")[0]
    symmetric = rng.standard_normal((WIDTH, WIDTH))
    assert told(SECOND + (symmetric + symmetric.T) / 2, "second_moment") == []
    # A type that is hardly finer than the noise has zeros by rounding.
    assert told(np.zeros(4, np.float16), scale=1e-5) == []


def test_exact_fields_beside_noise_are_said() -> None:
    sent: Fields = {"class_sums": SUMS, "class_counts": COUNTS}
    (own,) = _said(_message(sent, class_sums=_noised(1.0)), "unprotected_field")
    assert (own.field, own.discloses) == ("class_counts", True)
    releases = {"class_sums": _noised(1.0), "class_counts": exact("size")}
    (size,) = _said(_message(sent, **releases), "unprotected_field")
    assert not size.discloses
    assert "the number of records in a run" in size.text
    assert not _said(_message(sent), "unprotected_field")


def test_covariances_of_single_records_have_no_spread() -> None:
    means = np.random.default_rng(4).standard_normal((4, 5))
    spread = np.random.default_rng(5).uniform(1, 2, (4, 5))
    alone = np.array([False, True, False, True])
    variances = np.where(alone[:, None], 0.0, spread)
    for form in (
        variances,
        variances.mean(axis=1),
        np.stack([np.diag(own) for own in variances]),
        np.stack([pack_lower(np.diag(own)) for own in variances]),
    ):
        np.testing.assert_array_equal(without_spread(form, means), alone)


def test_what_all_covariances_share_is_no_spread() -> None:
    means = np.random.default_rng(4).standard_normal((4, 5))
    spread = np.random.default_rng(5).uniform(1, 2, (4, 5))
    spread[:, 0] = 0.01
    shared = np.full((4, 5), 0.01)
    alone = np.array([False, True, False, True])
    for ridge in (0.01, 0.05):
        own = np.where(alone[:, None], ridge / 0.01 * shared, spread)
        expected = alone if ridge == 0.01 else np.zeros(4, bool)
        np.testing.assert_array_equal(without_spread(own, means), expected)
        whole = np.stack([np.diag(row) for row in own])
        np.testing.assert_array_equal(without_spread(whole, means), expected)
    # Spherical covariances are multiples of the identity whatever the records are like.
    np.testing.assert_array_equal(without_spread(np.array([1.0, 0.01]), means[:2]), [False, False])
    tilted = np.stack([np.diag(row) for row in np.where(alone[:, None], shared, spread)])
    tilted[1, 2, 3] = tilted[1, 3, 2] = 0.009
    # One that is tilted is no multiple of the identity, and has a smaller eigenvalue than the last one.
    np.testing.assert_array_equal(without_spread(tilted, means), np.zeros(4, bool))
