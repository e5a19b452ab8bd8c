"""Blocks are the sums over a sender's records, whatever fields a message has them in."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from fedassay.contracts.method import MethodInput
from fedassay.exchange.blocks import LinearBlock
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.linear import linear_blocks
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import Release, exact
from fedassay.exchange.spectra import halved, magnitudes
from fedassay.methods.fedpft.method import FedPFT
from fedassay.mixtures.packed import pack_lower
from fedassay.privacy.mechanisms import clip_features

Matrix = NDArray[np.float64]
MakeTask = Callable[..., MethodInput]
CLASSES, WIDTH = 4, 5
ORDER = np.array([3, 0, 1])
"""Classes that the sender has, in the order in which it sends them."""
LABELS = np.repeat(ORDER, (4, 6, 7))
RECORDS = np.random.default_rng(0).standard_normal((len(LABELS), WIDTH)) + 1
COUNTS = np.bincount(LABELS, minlength=CLASSES).astype(np.float64)
SUMS = np.stack([RECORDS[label == LABELS].sum(axis=0) for label in range(CLASSES)])
SQUARES = np.stack([(RECORDS[label == LABELS] ** 2).sum(axis=0) for label in range(CLASSES)])
PRODUCTS = np.stack([RECORDS[label == LABELS].T @ RECORDS[label == LABELS] for label in range(CLASSES)])
MEANS = (SUMS / np.maximum(COUNTS, 1)[:, None])[ORDER]
VARIANCES = (SQUARES / np.maximum(COUNTS, 1)[:, None])[ORDER] - MEANS**2
COVARIANCES = np.stack([np.cov(RECORDS[label == LABELS].T, bias=True) for label in ORDER])


def _noised(scale: float, cells: tuple[str, ...] = ("all",)) -> Release:
    return Release(
        mechanism="gaussian", adjacency="add_remove", noise_scale=(scale,), sensitivity=(1.0,), cells=cells
    )


def _message(
    fields: Mapping[FieldKind, NDArray[np.floating]], releases: Mapping[str, Release] | None = None
) -> Message:
    given = releases or {}
    own = {kind: MessageField(values, kind, given.get(kind, exact())) for kind, values in fields.items()}
    ids = {"ids": MessageField(ORDER, "class_ids", exact("labels"))}
    return Message(0, "client/0", SERVER, ids | own)


def _blocks(fields: Mapping[FieldKind, NDArray[np.floating]], sizes: bool = False) -> dict[str, LinearBlock]:
    known = COUNTS.astype(np.int64) if sizes else None
    return {block.field: block for block in linear_blocks(_message(fields), CLASSES, known)}


def test_counts_and_sums_stand_at_their_classes() -> None:
    found = _blocks({"class_counts": COUNTS[ORDER], "class_sums": SUMS[ORDER]})
    np.testing.assert_array_equal(found["class_counts"].total.ravel(), COUNTS)
    np.testing.assert_allclose(found["class_sums"].total, SUMS)
    assert [block.of for block in found.values()] == ["ones", "features"]
    assert all(block.power == 1 and block.by_class for block in found.values())


def test_means_are_sums_beside_counts_alone() -> None:
    beside = _blocks({"class_means": MEANS, "class_counts": COUNTS[ORDER]})
    np.testing.assert_allclose(beside["class_means"].total, SUMS)
    np.testing.assert_allclose(_blocks({"class_means": MEANS}, sizes=True)["class_means"].total, SUMS)
    assert not _blocks({"class_means": MEANS})


def test_counts_below_zero_are_none() -> None:
    sent = np.where(ORDER == 1, -2.0, COUNTS[ORDER])
    found = _blocks({"class_means": MEANS, "class_counts": sent})
    np.testing.assert_array_equal(found["class_means"].total[1], 0)
    np.testing.assert_allclose(found["class_means"].total[3], SUMS[3])


def test_two_messages_have_each_its_own_counts() -> None:
    for factor in (1.0, 2.0):
        found = _blocks({"class_means": MEANS, "class_counts": factor * COUNTS[ORDER]})
        np.testing.assert_allclose(found["class_means"].total, factor * SUMS)


def test_second_moments_are_over_all_records_or_by_class() -> None:
    moment = _blocks({"second_moment": PRODUCTS.sum(axis=0)})["second_moment"]
    np.testing.assert_allclose(moment.total, PRODUCTS.sum(axis=0))
    assert (moment.power, moment.by_class, moment.free_ridge) == (2, False, False)
    by_class = _blocks({"class_second_moments": PRODUCTS[ORDER], "class_sums": SUMS[ORDER]})
    np.testing.assert_allclose(by_class["class_second_moments"].total, PRODUCTS)
    packed = np.stack([pack_lower(own) for own in PRODUCTS[ORDER]])
    by_class = _blocks({"class_second_moments": packed, "class_sums": SUMS[ORDER]})
    np.testing.assert_allclose(by_class["class_second_moments"].total, PRODUCTS)
    squares = _blocks({"class_second_moments": SQUARES[ORDER], "class_sums": SUMS[ORDER]})
    assert squares["class_second_moments"].of == "squares"
    np.testing.assert_allclose(squares["class_second_moments"].total, SQUARES)


@pytest.mark.parametrize("beside", ["class_means", "class_sums"])
def test_covariances_by_class_are_second_moments_about_zero(beside: FieldKind) -> None:
    fields: dict[FieldKind, Matrix] = {"class_counts": COUNTS[ORDER], beside: SUMS[ORDER]}
    if beside == "class_means":
        fields[beside] = MEANS
    whole = _blocks({**fields, "class_covariances": COVARIANCES})["class_covariances"]
    np.testing.assert_allclose(whole.total, PRODUCTS, atol=1e-12)
    assert (whole.of, whole.power) == ("features", 2)
    diagonal = _blocks({**fields, "class_covariances": VARIANCES})["class_covariances"]
    np.testing.assert_allclose(diagonal.total, SQUARES, atol=1e-12)
    assert (diagonal.of, diagonal.power) == ("squares", 1)


def test_a_ridge_is_taken_off_and_weights_give_sums_whatever_it_is() -> None:
    few = RECORDS[:3]
    second = few.T @ few + 0.3 * np.eye(WIDTH)
    own = np.stack([few[LABELS[:3] == label].sum(axis=0) for label in ORDER])
    found = _blocks({"regularised_gram": second, "ridge_weights": own @ np.linalg.inv(second)})
    gram = found["regularised_gram"]
    np.testing.assert_allclose(gram.total, few.T @ few, atol=1e-9)
    assert (gram.power, gram.by_class, gram.free_ridge) == (2, False, True)
    np.testing.assert_allclose(found["ridge_weights"].total[ORDER], own, atol=1e-9)


@pytest.mark.parametrize("family", ["full", "diag", "spherical"])
def test_mixtures_of_one_component_are_sums_of_a_class(family: str) -> None:
    spread = {
        "full": np.stack([pack_lower(own) for own in COVARIANCES]),
        "diag": VARIANCES,
        "spherical": VARIANCES.mean(axis=1),
    }[family]
    sent = {"mixture_means": MEANS, "mixture_covariances": spread, "class_counts": COUNTS[ORDER]}
    found = _blocks(sent)
    np.testing.assert_allclose(found["mixture_means"].total, SUMS)
    second = found["mixture_covariances"]
    truth = {"full": PRODUCTS, "diag": SQUARES, "spherical": SQUARES.sum(axis=1, keepdims=True)}[family]
    np.testing.assert_allclose(second.total, truth, atol=1e-9)
    assert second.of == {"full": "features", "diag": "squares", "spherical": "norms"}[family]
    assert second.free_ridge == (family == "full")


FITTED = np.random.default_rng(2).standard_normal((90, WIDTH)) * (1, 2, 0.5, 3, 1) + 1
OF_FITTED = np.repeat(ORDER, (20, 30, 40))
"""Records that mixtures of several components are fitted to, and their classes."""


def _mixed(family: str, components: tuple[int, ...], steps: int = 100) -> dict[FieldKind, NDArray[Any]]:
    """What scikit-learn fits, as it would be sent."""
    sent: dict[str, list[Matrix]] = {"mixture_means": [], "mixture_covariances": [], "mixture_weights": []}
    for label, number in zip(ORDER, components, strict=True):
        fit = GaussianMixture(number, covariance_type=family, max_iter=steps, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fit.fit(FITTED[label == OF_FITTED])
        spread = np.asarray(fit.covariances_)
        sent["mixture_means"].append(fit.means_)
        sent["mixture_weights"].append(fit.weights_)
        sent["mixture_covariances"].append(pack_lower(spread) if family == "full" else spread)
    found: dict[FieldKind, NDArray[Any]] = {
        kind: np.concatenate(parts) for kind, parts in cast("dict[FieldKind, list[Matrix]]", sent).items()
    }
    counts = np.array([(label == OF_FITTED).sum() for label in ORDER])
    return found | {"component_counts": np.array(components), "class_counts": counts}


def _truth(family: str) -> tuple[Matrix, Matrix]:
    own = [FITTED[label == OF_FITTED] for label in range(CLASSES)]
    second = {
        "full": [rows.T @ rows for rows in own],
        "diag": [(rows**2).sum(axis=0) for rows in own],
        "spherical": [[(rows**2).sum()] for rows in own],
    }[family]
    return np.stack([rows.sum(axis=0) for rows in own]), np.array(second)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize(("components", "steps"), [((3, 1, 8), 100), ((2, 5, 2), 1)])
@pytest.mark.parametrize("family", ["full", "diag", "spherical"])
def test_mixtures_of_several_components_are_sums_taken_together(
    family: str, components: tuple[int, ...], steps: int, kind: type[np.floating[Any]]
) -> None:
    """Fitted by another library, to the end or for one step, up to what is said to be rounded off."""
    sent = _mixed(family, components, steps)
    typed = {name: own.astype(kind) if name.startswith("mixture") else own for name, own in sent.items()}
    found = _blocks(typed)
    sums, second = _truth(family)
    first, own = found["mixture_means"].together(), found["mixture_covariances"].together()
    assert own.of == {"full": "features", "diag": "squares", "spherical": "norms"}[family]
    assert np.all(np.abs(first.total - sums) <= 4 * first.rounding[:, None] + 1e-12)
    gap = own.total - second
    if own.free_ridge:
        gap = gap - np.eye(WIDTH) * np.trace(gap, axis1=1, axis2=2)[:, None, None] / WIDTH
    assert np.all(np.abs(gap).reshape(CLASSES, -1) <= 4 * own.rounding[:, None] + 1e-4)
    # What is said is not much more than what there is.
    size = np.sqrt(np.mean(sums**2, axis=1))[ORDER]
    assert np.all(first.rounding[ORDER] < max(4 * np.finfo(kind).eps, 1e-6) * size * 3)


def test_noise_on_several_components_adds_up() -> None:
    """A joint release noises the sums of each; others noise its mean, which counts by its share of the class."""
    sent = _mixed("diag", (4, 1, 9))
    joint, apart = (
        {block.field: block for block in linear_blocks(_message(sent, {"mixture_means": release}), CLASSES)}[
            "mixture_means"
        ].noise
        for release in (_noised(0.1), _noised(0.1, cells=("class/0",)))
    )
    np.testing.assert_allclose(joint[ORDER], 0.1 * np.sqrt([4, 1, 9]))
    shares = np.split(sent["mixture_weights"], [4, 5])
    counts = np.array([20, 30, 40])
    np.testing.assert_allclose(
        apart[ORDER], [0.1 * n * np.sqrt((own**2).sum()) for n, own in zip(counts, shares, strict=True)]
    )


@pytest.mark.parametrize(("components", "family"), [(3, "diag"), (5, "spherical")])
def test_private_mixtures_are_off_by_what_is_said(components: int, family: str, make_task: MakeTask) -> None:
    """DP-EM: sums over its components against those of clipped records, class by class."""
    task = make_task(clients=1, records=600, epsilon=20.0)
    method = FedPFT.model_validate({"components": components, "covariance": family, "counts": "noised"})
    message = method.run(task).transcript.messages[0]
    found = {block.field: block for block in linear_blocks(message, task.classes)}["means"]
    client = task.clients[0]
    clipped = clip_features(client.features.astype(np.float64))
    sums = np.stack([clipped[client.labels == label].sum(axis=0) for label in range(task.classes)])
    apart = np.sqrt(np.mean((found.total - sums) ** 2, axis=1)) / found.error
    assert 0.8 < np.median(apart) < 1.2
    assert np.max(apart) < 1.4


def test_mean_magnitudes_are_a_sum_over_all_records() -> None:
    images = np.random.default_rng(1).integers(0, 256, (int(COUNTS.sum()), 4, 4, 1), dtype=np.uint8)
    spectra = magnitudes(images)
    found = _blocks({"magnitude_mean": spectra.mean(axis=0), "class_counts": COUNTS[ORDER]})["magnitude_mean"]
    np.testing.assert_allclose(found.total, halved(spectra).sum(axis=0))
    assert not found.by_class


def test_noise_on_means_is_lifted_to_sums_unless_the_sums_were_noised() -> None:
    fields: dict[FieldKind, Matrix] = {"class_means": MEANS, "class_counts": COUNTS[ORDER]}
    cells = tuple(f"class/{label}" for label in ORDER)
    on_means = Release(
        mechanism="gaussian",
        adjacency="add_remove",
        noise_scale=(0.1, 0.2, 0.3),
        sensitivity=(1.0,) * 3,
        cells=cells,
    )
    for release, scales in ((on_means, np.array([0.1, 0.2, 0.3])), (_noised(0.5), np.full(3, 0.5))):
        found = linear_blocks(_message(fields, {"class_means": release}), CLASSES)
        noise = next(block.noise for block in found if block.field == "class_means")
        factor = COUNTS[ORDER] if release is on_means else 1.0
        np.testing.assert_allclose(noise[ORDER], scales * factor)


def test_classes_that_are_none_give_nothing() -> None:
    ids = {"ids": MessageField(np.array([0, 1, CLASSES]), "class_ids", exact("labels"))}
    counts = {"n": MessageField(np.ones(3), "class_counts", exact("labels"))}
    assert linear_blocks(Message(0, "client/0", SERVER, ids | counts), CLASSES) == ()
    assert len(linear_blocks(Message(0, "client/0", SERVER, ids | counts), CLASSES + 1)) == 1
