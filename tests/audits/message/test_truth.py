"""Matching recovered vectors with true records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.audits.evidence import Arms, ControlResult
from fedassay.audits.features import encoder
from fedassay.audits.ladder import decide
from fedassay.audits.message.truth import judge, match, metrics, recovery_limit, result_of
from fedassay.data.records import Records
from fedassay.records.record import Limit


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), n=st.integers(1, 12))
def test_a_permutation_of_the_truth_matches_exactly(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    features, labels = rng.exponential(1, (n, 8)), rng.integers(0, 3, n)
    order = rng.permutation(n)
    found = match(features[order], labels[order], [(np.arange(n), features, labels)], np.zeros((3, 8)))
    assert found.errors.max() == 0
    assert found.cosines.min() == pytest.approx(1)
    assert found.label_right.all()
    assert found.exact == found.records == n
    assert (found.baseline == 1).all()  # the class means are zero


def test_a_record_is_matched_once_and_only_within_its_sender() -> None:
    features = np.eye(4) + 1.0
    labels = np.zeros(4, np.int64)
    vectors = features[[0, 0, 3]]
    truth = [(np.array([0, 1]), features[:1], labels[:1]), (np.array([2]), features[1:3], labels[1:3])]
    found = match(vectors, np.array([0, 0, -1]), truth, np.zeros((1, 4)))
    # The second copy has no record left; the third is another sender's record and fits none of its own.
    assert len(found.errors) == 2
    assert found.exact == 1
    assert found.records == 3
    assert found.vectors == 3
    assert found.labelled.tolist() == [True, False]


def test_records_without_features_are_not_matched() -> None:
    features = np.array([[0.0, 0.0], [1.0, 2.0]])
    found = match(features, np.array([0, 0]), [(np.arange(2), features, np.zeros(2, np.int64))], np.zeros((1, 2)))
    assert found.errors.tolist() == [0]
    assert found.records == 2


def test_metrics_of_nothing_are_missing_with_a_reason() -> None:
    none = match(
        np.zeros((0, 2)),
        np.zeros(0, np.int64),
        [(np.zeros(0, np.int64), np.ones((5, 2)), np.zeros(5, np.int64))],
        np.ones((1, 2)),
    )
    judged = judge(none, np.random.default_rng(0), tests=1)
    assert not judged.test.rejects
    assert not judged.caught
    ours, baseline = metrics(none)
    assert ours["relative_error"].value is None
    assert ours["relative_error"].reason
    assert baseline["relative_error"].value is None
    assert ours["fraction_recovered"].value == 0
    assert ours["fraction_recovered"].n == 5


def test_class_means_do_not_beat_themselves() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.exponential(1, (40, 16)), np.repeat([0, 1], 20)
    means = np.stack([features[labels == label].mean(axis=0) for label in (0, 1)])
    found = match(means[labels], labels, [(np.arange(40), features, labels)], means)
    judged = judge(found, rng, tests=1)
    assert not judged.test.rejects
    assert not judged.below_baseline


@pytest.mark.parametrize("noised", [True, False])
@pytest.mark.parametrize("caught", [True, False])
def test_vectors_that_noise_ruins_are_silence_where_the_own_control_is_caught(noised: bool, caught: bool) -> None:
    """A gate on FedCGS under noise could never be decided: what was factored was farther off than class means."""
    rng = np.random.default_rng(0)
    features, labels = rng.exponential(1, (40, 16)), np.repeat([0, 1], 20)
    means = np.stack([features[labels == label].mean(axis=0) for label in (0, 1)])
    found = match(features + rng.normal(0, 3, features.shape), labels, [(np.arange(40), features, labels)], means)
    judged = judge(found, rng, tests=1)
    assert judged.below_baseline
    limit = Limit(metric="share", value=0.1, n=40)
    control = ControlResult("known records", detected=caught, shown="", end_to_end=True)
    silent = ControlResult("nobody's records", detected=False, shown="")
    arms = Arms(result_of(judged, "gram_factorization", lambda: limit, noised=noised), (control,), silent, ())
    assert decide(arms).verdict == ("no_leak_found" if noised and caught else "inconclusive")


class _Nearest:
    """A model of somebody else's: of the features as they are, or of what a function makes of them."""

    def __init__(self, transform: Any = None) -> None:
        self.transform = transform

    def predict(self, records: Records) -> Any:
        return np.zeros(len(records), np.int64)


class _Network:
    def predict(self, records: Records) -> Any:
        return np.zeros(len(records), np.int64)


def test_the_features_of_a_model_of_any_class_are_those_that_it_names() -> None:
    images, labels = np.zeros((2, 8, 8, 1), np.uint8), np.zeros(2, np.int64)
    records = Records("x", images, labels, lambda shown: np.ones((len(shown), 3), np.float32))

    def encoded(model: Any) -> Any:
        context: Any = SimpleNamespace(outcome=SimpleNamespace(model=model))
        encode = encoder(context)
        return None if encode is None else encode(records).tolist()

    assert encoded(_Nearest()) == [[1.0] * 3] * 2
    assert encoded(_Nearest(lambda features: features / 2)) == [[0.5] * 3] * 2
    assert encoded(_Network()) is None


def test_strangers_that_are_alike_do_not_cast_doubt_on_exact_copies() -> None:
    rng = np.random.default_rng(3)
    modes = rng.normal(0, 1, (2, 16))  # of one class, whose mean is like none of its records
    features = np.repeat(modes, 20, axis=0) + rng.normal(0, 0.05, (40, 16))
    fresh = np.repeat(modes, 20, axis=0) + rng.normal(0, 0.05, (40, 16))
    labels, means = np.zeros(40, np.int64), modes.mean(axis=0, keepdims=True)

    def recovery(vectors: Any, truth: Any) -> Any:
        matched = match(vectors, labels, [(np.arange(40), truth, labels)], means)
        return judge(matched, np.random.default_rng(0), tests=5)

    exact, non_members = recovery(features, features), recovery(features, fresh)
    assert non_members.test.rejects
    assert not exact.flags(non_members)
    near = recovery(features + rng.normal(0, 0.02, features.shape), features)
    assert near.matched.exact == 0
    assert near.flags(non_members)
    fresh[0] = features[0]
    assert exact.flags(recovery(features, fresh))


def _alike(seed: int, shift: float) -> tuple[Any, Any, Any, Any, Any]:
    """Twelve persons of ten records; vectors miss all records of one person by alike much."""
    rng = np.random.default_rng(seed)
    persons = np.repeat(np.arange(12), 10)
    features = 5.0 + rng.normal(0, 0.1, (120, 16)) + 30 * np.eye(120, 16)
    means = features.mean(axis=0, keepdims=True)
    # Closer than the class mean, or farther, by a coin of each person: nothing of the method's doing.
    share = 1 + np.where(rng.random(12) < 0.5 + shift, -0.02, 0.02)[persons]
    vectors = features + (means - features) * share[:, None]
    return vectors, features, means, persons, rng


@pytest.mark.long
@pytest.mark.parametrize("known", [True, False])
def test_vectors_of_one_person_are_no_trials_of_their_own(known: bool) -> None:
    rejected = 0
    for seed in range(100):
        vectors, features, means, persons, rng = _alike(seed, 0.0)
        labels = np.arange(120)  # matched as they come: each sender holds one record
        truth = [(np.array([row]), features[[row]], labels[[row]]) for row in range(120)]
        whose = [persons[[row]] for row in range(120)] if known else None
        judged = judge(match(vectors, labels, truth, means, whose), rng, tests=1)
        assert len(judged.matched.by_person(judged.matched.errors)) == (12 if known else 120)
        rejected += judged.test.rejects
    # At 5 % a hundred tests reject 11 times or fewer but for one time in a hundred; by records far oftener.
    assert (rejected <= 11) == known, rejected


def test_shares_have_intervals_by_person_and_limits_count_persons() -> None:
    rng = np.random.default_rng(0)
    features, persons = rng.normal(0, 1, (80, 16)), np.repeat(np.arange(8), 10)
    vectors = features + np.where(persons < 4, 0.0, 3.0)[:, None]
    labels, means = np.zeros(80, np.int64), features.mean(axis=0, keepdims=True)
    # A sender for each record, whose vector is then matched to it.
    truth = [(np.array([row]), features[[row]], labels[[row]]) for row in range(80)]
    whose = [persons[[row]] for row in range(80)]
    by_record = metrics(match(vectors, labels, truth, means))[0]["fraction_recovered"]
    whole = match(vectors, labels, truth, means, whose)
    by_person = metrics(whole)[0]["fraction_recovered"]
    assert by_person.value == by_record.value == 0.5
    assert by_person.n == by_record.n == 80
    assert by_person.low < by_record.low - 0.1  # type: ignore[operator]
    assert by_person.high > by_record.high + 0.1  # type: ignore[operator]
    assert "by person, of whom there are 8" in by_person.reason
    assert whole.trials == 8
    nobody = match(vectors, labels, truth, means, [None, *whose[1:]])
    assert nobody.persons is None
    assert nobody.trials == 80
    none = judge(
        match(
            np.zeros((0, 16)), np.zeros(0, np.int64), [(np.zeros(0, np.int64), features, labels)], means, [persons]
        ),
        rng,
        tests=1,
    )
    limit = recovery_limit(none, [judge(whole, rng, tests=1)])
    assert not isinstance(limit, str)
    assert limit.n == 8
    assert "persons" in limit.words
