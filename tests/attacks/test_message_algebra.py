"""Message algebra: every rule on a message where it applies, and silence where none does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.attacks.message_algebra import MessageAlgebra
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.method import MethodInput
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.release import Release, exact
from fedassay.exchange.transcript import Message, MessageField, Transcript
from fedassay.exchange.view import ThreatModel, view
from fedassay.methods.baselines.raw_features import RawFeatures
from fedassay.methods.fedpft.method import FedPFT
from fedassay.mixtures.em import fit_mixtures
from fedassay.mixtures.packed import Family, pack_lower
from fedassay.privacy.mechanisms import release_shared_sums
from fedassay.privacy.tape import FreeNoise
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

KNOWLEDGE = Knowledge(None, 10, None, False, Seeds(0), "cpu", SILENT)
NOISE = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(0.5,), sensitivity=(1.0,))


def sent(number: int = 0, sender: str = "client/0", **fields: tuple[Any, FieldKind] | MessageField) -> Message:
    """A message of exact fields, given as (values, kind), and of fields as they are."""
    return Message(
        number,
        sender,
        "server",
        {
            name: item if isinstance(item, MessageField) else MessageField(np.asarray(item[0]), item[1], exact())
            for name, item in fields.items()
        },
    )


def attacked(*messages: Message, classes: int = 3, **parameters: Any) -> AttackResult:
    seen = view(Transcript("captured", classes, messages), ThreatModel())
    return MessageAlgebra(**parameters).run(seen, KNOWLEDGE)


def source(result: AttackResult, name: str) -> VectorSource:
    return next(part for part in result.vectors if part.name == name)


def rules(result: AttackResult) -> set[str]:
    return {str(rule) for rule in result.artifacts["rules"]}


def features(n: int, width: int = 20, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    rng = np.random.default_rng(seed)
    return rng.exponential(1, (n, width)) * (rng.random((n, width)) < 0.5)


@pytest.mark.parametrize("kind", ["class_sums", "class_means"])
def test_a_class_of_one_record_is_that_record(kind: FieldKind) -> None:
    own = features(4)
    blocks = np.stack([own[0], own[1:3].sum(axis=0), own[3]])
    result = attacked(sent(N=([1, 2, 1], "class_counts"), A=(blocks, kind), ids=([0, 2, 1], "class_ids")))
    found = source(result, "singletons")
    np.testing.assert_allclose(found.vectors, own[[0, 3]], rtol=1e-6)
    assert found.labels.tolist() == [0, 1]
    assert (found.rows == -1).all()


def test_a_class_of_one_record_shows_without_counts() -> None:
    """Class sums and second moment give the counts that are not sent."""
    own = features(5)
    labels = np.array([0, 1, 1, 2, 2])
    sums = np.stack([own[labels == label].sum(axis=0) for label in range(3)])
    result = attacked(sent(A=(sums, "class_sums"), B=(own.T @ own, "second_moment")))
    np.testing.assert_allclose(source(result, "singletons").vectors, own[:1], rtol=1e-6)
    assert rules(result) == {"derivable_counts", "rank"}
    where = list(result.artifacts["rules"]).index("derivable_counts")
    assert result.scores[f"values/{where}"].tolist() == [1, 2, 2]
    assert result.artifacts["discloses"].all()


def _covariances(groups: list[Any], form: str, gamma: float) -> Any:
    """Covariances of groups of records, in a form that messages have."""
    whole = np.stack([np.cov(group.T, ddof=0) + gamma * np.eye(group.shape[1]) for group in groups])
    diagonal = np.diagonal(whole, axis1=1, axis2=2)
    return {"square": whole, "packed": pack_lower(whole), "diag": diagonal, "spherical": diagonal.mean(axis=1)}[
        form
    ]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("form", ["square", "packed", "diag", "spherical"])
@pytest.mark.parametrize("kinds", [("class_means", "class_covariances"), ("mixture_means", "mixture_covariances")])
def test_without_counts_a_covariance_of_nothing_is_one_record(kinds: Any, form: str, dtype: Any) -> None:
    own = features(9)
    groups = [own[:1], own[1:6], own[6:]]
    means = np.stack([group.mean(axis=0) for group in groups]).astype(dtype)
    spread = _covariances(groups, form, 0.0).astype(dtype)
    result = attacked(sent(m=(means, kinds[0]), s=(spread, kinds[1]), ids=([2, 0, 1], "class_ids")))
    found = source(result, "spreadless_means")
    np.testing.assert_allclose(found.vectors, means[:1].astype(np.float64), rtol=1e-6)
    assert found.labels.tolist() == [2]


@pytest.mark.parametrize("form", ["square", "packed"])
@pytest.mark.parametrize("gamma", [1e-6, 0.1, 10.0])
def test_shared_regularisation_does_not_hide_that_there_is_no_spread(form: str, gamma: float) -> None:
    own = features(9)
    groups = [own[:4], own[4:5], own[5:]]
    means = np.stack([group.mean(axis=0) for group in groups])
    spread = _covariances(groups, form, gamma)
    result = attacked(sent(m=(means, "class_means"), s=(spread, "class_covariances")))
    np.testing.assert_allclose(source(result, "spreadless_means").vectors, own[4:5], rtol=1e-6)


def test_spread_or_spheres_or_empty_classes_or_counts_are_no_single_records() -> None:
    own = features(12)
    groups = [own[:4], own[4:8], own[8:]]
    means = np.stack([group.mean(axis=0) for group in groups])

    def vectors(spread: Any, mean: Any = means, **more: Any) -> tuple[Any, ...]:
        message = sent(m=(mean, "class_means"), s=(spread, "class_covariances"), **more)
        return tuple(part for part in attacked(message).vectors if part.name == "spreadless_means")

    whole = _covariances(groups, "packed", 0.0)
    assert vectors(whole) == ()
    spheres = np.stack([level * np.eye(20) for level in (0.5, 0.7, 0.9)])
    assert vectors(spheres) == ()
    empty, none = whole.copy(), means.copy()
    empty[1], none[1] = 0, 0
    assert vectors(empty, none) == ()
    lone = whole.copy()
    lone[1] = 0
    assert len(vectors(lone)) == 1
    assert vectors(lone, N=([4, 4, 4], "class_counts")) == ()
    tiny = _covariances(
        [1e-3 * (group - group.mean(axis=0)) + group.mean(axis=0) for group in groups], "packed", 0
    )
    assert vectors(tiny) == ()


def test_collapsed_components_are_records() -> None:
    own = features(3)
    result = attacked(
        sent(
            ids=([0, 1], "class_ids"),
            N=([10, 1], "class_counts"),
            K=([3, 1], "component_counts"),
            w=([0.1, 0.4, 0.5, 1.0], "mixture_weights"),
            m=(np.stack([own[0], own[1] * 2, own[1], own[2]]), "mixture_means"),
            v=(np.stack([np.full(20, 1.0)] * 2 + [np.full(20, 1e-5), np.full(20, 1.0)]), "mixture_covariances"),
        )
    )
    # The weight of one record, no variance left, and the only record of its class.
    found = source(result, "collapsed_components")
    np.testing.assert_allclose(found.vectors, own, rtol=1e-6)
    assert found.labels.tolist() == [0, 0, 1]


@pytest.mark.parametrize("leaving", [False, True])
def test_one_record_more_or_less_is_the_difference(leaving: bool) -> None:
    own = features(6)
    messages = [
        sent(
            number,
            N=([n, 3], "class_counts"),
            A=(np.stack([own[:n].sum(axis=0), own[:3].sum(axis=0)]), "class_sums"),
        )
        for number, n in enumerate((6, 5) if leaving else (5, 6))
    ]
    result = attacked(*messages, classes=2)
    np.testing.assert_allclose(source(result, "differences").vectors, own[5:], rtol=1e-5)
    assert source(result, "differences").labels.tolist() == [0]
    assert not any(part.name == "singletons" for part in result.vectors)


@pytest.mark.parametrize(
    ("family", "components", "transport"), [("spherical", 3, "float16"), ("diag", 5, "float32")]
)
def test_who_left_between_two_fits_of_a_mixture_is_a_vector(
    family: Family, components: int, transport: str
) -> None:
    """Two fits that start anew have other components, and the sums of their classes differ by one record."""
    own = features(30)
    messages = []
    for number, n in enumerate((30, 29)):
        mixed, _ = fit_mixtures([own[:n]], components, family, [np.random.default_rng(number)])
        messages.append(
            sent(
                number,
                N=([n], "class_counts"),
                parts=(mixed.components, "component_counts"),
                weights=(mixed.weights.astype(transport), "mixture_weights"),
                means=(mixed.means.astype(transport), "mixture_means"),
                spread=(mixed.covariances.astype(transport), "mixture_covariances"),
            )
        )
    result = attacked(*messages, classes=1)
    found = source(result, "differences").vectors
    assert found.shape == (1, own.shape[1])
    assert np.linalg.norm(found[0] - own[29]) < 0.03 * np.linalg.norm(own[29])
    assert "differences" in result.artifacts["applicable"]


def test_two_records_more_are_no_vector() -> None:
    own = features(6)
    messages = [
        sent(k, N=([n], "class_counts"), A=(own[:n].sum(axis=0)[None], "class_sums")) for k, n in ((0, 4), (1, 6))
    ]
    assert not attacked(*messages, classes=1).vectors


def test_the_constant_feature_gives_the_counts() -> None:
    own = np.concatenate([np.ones((5, 1)), features(5)], axis=1)
    sums = np.stack([own[:1].sum(axis=0), own[1:3].sum(axis=0), own[3:].sum(axis=0)])
    result = attacked(sent(T=(sums, "class_sums")))
    assert rules(result) == {"derivable_counts"}
    assert result.scores["values/0"].tolist() == [1, 2, 2]
    np.testing.assert_allclose(source(result, "singletons").vectors, own[:1], rtol=1e-6)


def test_redundant_fields_are_named() -> None:
    own = features(9)
    blocks = own.reshape(3, 3, -1).sum(axis=1)
    plain = sent(
        A=(blocks, "class_sums"), total=(own.sum(axis=0), "other"), n=(9, "other"), N=([3, 3, 3], "class_counts")
    )
    texts = [str(text) for text in attacked(plain).artifacts["texts"]]
    assert "total is the sum of A over the classes" in texts
    assert "n is the sum of N over the classes" in texts
    rng = np.random.default_rng(0)
    big = 100 * features(3, 400)
    noised = sent(
        A=MessageField(big + rng.normal(0, 0.5, big.shape), "class_sums", NOISE),
        total=MessageField(big.sum(axis=0) + rng.normal(0, 0.5, 400), "other", NOISE),
    )
    result = attacked(noised)
    assert "total is the sum of A over the classes; noised twice, the two average out" in result.artifacts["texts"]
    unrelated = sent(A=(blocks, "class_sums"), other=(features(1)[0], "other"))
    assert "redundant_field" not in rules(attacked(unrelated))


def test_fields_without_protection_beside_protected_ones_are_named() -> None:
    rng = np.random.default_rng(0)
    noised = MessageField(rng.normal(size=(3, 20)), "class_sums", NOISE)
    result = attacked(sent(A=noised, B=(np.eye(20), "second_moment"), N=([4, 4, 4], "class_counts")))
    named = {
        str(field)
        for rule, field in zip(result.artifacts["rules"], result.artifacts["fields"], strict=True)
        if rule == "unprotected_field"
    }
    assert named == {"B", "N"}
    alone = attacked(sent(A=noised))
    assert rules(alone) == set()
    assert not alone.vectors


def test_noise_that_is_missing_is_missed() -> None:
    own = features(6)
    declared = {
        "A": MessageField(own[:3], "class_sums", NOISE),
        "B": MessageField(own.T @ own + 1e-9 * np.eye(20), "second_moment", NOISE),
        "N": MessageField(np.array([2.0, 2.0, 2.0]), "class_counts", NOISE),
    }
    result = attacked(sent(**declared))
    missing = [
        str(name)
        for rule, name in zip(result.artifacts["rules"], result.artifacts["fields"], strict=True)
        if rule == "missing_noise"
    ]
    assert missing == ["A", "B", "N"]
    rng = np.random.default_rng(0)
    there = {
        name: MessageField(item.values + rng.normal(0, 0.5, item.values.shape), item.kind, NOISE)
        for name, item in declared.items()
    }
    assert "missing_noise" not in rules(attacked(sent(**there)))


def _noised_sums(width: int, records: int, scale: float, kind: type, seed: int) -> Message:
    rng = np.random.default_rng(seed)
    own = rng.normal(size=(records, width))
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    released = release_shared_sums(
        own, rng.integers(3, size=records), 3, sigmas=(scale,) * 3, noise=FreeNoise(rng)
    )
    release = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(scale,), sensitivity=(1.0,))
    kinds: tuple[FieldKind, ...] = ("class_counts", "class_sums", "second_moment")
    return sent(
        **{
            name: MessageField(part.astype(kind), name, release)
            for name, part in zip(kinds, released, strict=True)
        }
    )


@pytest.mark.parametrize(
    ("width", "records", "scale", "kind"),
    [
        (32, 2000, 1.0, np.float64),  # the second moment drowns the noise: no eigenvalue is negative
        (64, 200, 5.0, np.float32),
        (2, 50, 5.0, np.float64),
        (3, 2, 5.0, np.float64),
        (16, 6000, 1.0, np.float16),  # float16 holds whole numbers only from 1024 on
        (16, 6000, 2e-6, np.float16),
    ],
)
def test_noise_that_is_there_is_never_missed(width: int, records: int, scale: float, kind: type) -> None:
    messages = [_noised_sums(width, records, scale, kind, seed) for seed in range(40)]
    for message in messages:
        assert "missing_noise" not in rules(attacked(message))


def test_rounding_and_clamping_what_was_noised_disclose_nothing() -> None:
    rng = np.random.default_rng(0)
    whole = np.maximum(np.rint(rng.normal([0.0, 5.0, 9.0], 0.5)), 0.0)
    result = attacked(sent(N=MessageField(whole, "class_counts", NOISE)))
    assert "missing_noise" in rules(result)
    assert not result.artifacts["discloses"].any()


def test_sums_too_large_for_fractions_are_no_counts() -> None:
    rng = np.random.default_rng(0)
    blocks = 30 * features(3)
    blocks[:, 4] = rng.uniform(2100, 4000, 3)
    assert "derivable_counts" not in rules(attacked(sent(A=(blocks.astype(np.float16), "class_sums"))))
    blocks[:, 4] = [7, 9, 12]
    assert "derivable_counts" in rules(attacked(sent(A=(blocks.astype(np.float32), "class_sums"))))


def test_noised_singletons_are_left_out_where_nothing_is_left_of_them() -> None:
    own = features(1, 400)
    for scale, kept in ((1e-4, True), (1.0, False)):
        release = Release(mechanism="gaussian", adjacency="add_remove", noise_scale=(scale,), sensitivity=(1.0,))
        fields = {"A": MessageField(own, "class_sums", release), "N": ([1], "class_counts")}
        assert bool(attacked(sent(**fields), classes=1).vectors) is kept  # type: ignore[arg-type]


def test_a_view_without_statistics_is_not_attacked() -> None:
    words = (
        "clients send other, and the rules read features; counts beside sums or means; sums beside second "
        "moments; moments of mixtures"
    )
    with pytest.raises(NotRunError, match=words):
        attacked(sent(thing=(np.zeros(3), "other")))


def test_nothing_is_found_in_large_classes() -> None:
    own = features(60)
    blocks = own.reshape(3, 20, -1).sum(axis=1)
    result = attacked(sent(A=(blocks, "class_sums"), N=([20, 20, 20], "class_counts")))
    assert not result.vectors
    assert rules(result) == {"exact_counts"}
    assert not result.artifacts["discloses"].any()


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(counts=st.lists(st.integers(0, 4), min_size=3, max_size=3), seed=st.integers(0, 99))
def test_as_many_singletons_as_classes_of_one(counts: list[int], seed: int) -> None:
    own = features(sum(counts) or 1, seed=seed)
    labels = np.repeat(np.arange(3), counts)
    sums = np.stack([own[: len(labels)][labels == label].sum(axis=0) for label in range(3)])
    result = attacked(sent(A=(sums, "class_sums"), N=(counts, "class_counts")))
    found = [part for part in result.vectors if part.name == "singletons"]
    assert sum(len(part.vectors) for part in found) == counts.count(1)


def test_mixtures_of_small_classes_are_records(make_task: Callable[..., MethodInput]) -> None:
    """FedPFT with ten components on classes of about ten records sends the records."""
    task = make_task(clients=3, records=60)
    outcome = FedPFT().run(task)
    result = MessageAlgebra().run(view(outcome.transcript, ThreatModel()), KNOWLEDGE)
    found = source(result, "collapsed_components")
    truth = np.concatenate([client.features for client in task.clients]).astype(float)
    apart = np.linalg.norm(found.vectors[:, None] - truth, axis=2).min(axis=1)
    assert len(found.vectors) > 20
    assert np.median(apart / np.linalg.norm(found.vectors, axis=1)) < 1e-2


def test_raw_features_hold_no_algebra(make_task: Callable[..., MethodInput]) -> None:
    outcome = RawFeatures().run(make_task(clients=1, records=40))
    assert not MessageAlgebra().run(view(outcome.transcript, ThreatModel()), KNOWLEDGE).vectors
