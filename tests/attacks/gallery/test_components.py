"""Components of mixtures one by one: each is a sum over a whole number of records."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.attacks.gallery.certificate import in_part, whole
from fedassay.attacks.gallery.solving import exact_weights
from fedassay.attacks.gallery.system import System, system_of
from fedassay.exchange.blocks import LinearBlock
from fedassay.exchange.linear import linear_blocks
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import Release, exact
from fedassay.mixtures.em import fit_mixtures
from fedassay.support.types import Bools, Ints

Matrix = NDArray[np.float64]

CLASSES, WIDTH, EACH, COMPONENTS = 3, 40, 60, 4
RNG = np.random.default_rng(5)
CENTRES = 6 * RNG.standard_normal((CLASSES, COMPONENTS, WIDTH))
LABELS = np.repeat(np.arange(CLASSES), 2 * EACH)
FEATURES = CENTRES[LABELS, RNG.integers(COMPONENTS, size=len(LABELS))] + RNG.standard_normal((len(LABELS), WIDTH))
MEMBERS = np.tile(np.arange(2 * EACH) < EACH, CLASSES)
"""A spherical class tells 42 numbers, and has 120 candidates, of which half are members."""


def sent(transport: str = "float16", spread: float = 1.0, noise: float = 0.0) -> Message:
    """The mixtures of the members, fitted to features that lie so far apart."""
    own = [(spread * FEATURES[MEMBERS & (label == LABELS)]).astype(np.float32) for label in range(CLASSES)]
    mixtures, _ = fit_mixtures(
        own, COMPONENTS, "spherical", [np.random.default_rng(each) for each in range(CLASSES)]
    )
    noised = Release(
        mechanism="gaussian", adjacency="add_remove", noise_scale=(noise,), sensitivity=(1.0,), cells=("all",)
    )
    release = noised if noise else exact()
    fields = {
        "counts": MessageField(np.full(CLASSES, float(EACH)), "class_counts", exact()),
        "parts": MessageField(mixtures.components, "component_counts", exact()),
        "weights": MessageField(mixtures.weights.astype(transport), "mixture_weights", exact()),
        "means": MessageField(mixtures.means.astype(transport), "mixture_means", release),
        "spread": MessageField(mixtures.covariances.astype(transport), "mixture_covariances", exact()),
    }
    return Message(0, "client/0", SERVER, fields)


def blocks_of(message: Message) -> dict[str, LinearBlock]:
    return {block.of: block for block in linear_blocks(message, CLASSES) if isinstance(block.of, str)}


def system(blocks: list[LinearBlock], rows: Ints) -> System:
    images = np.zeros((len(rows), 1, 1, 1), np.uint8)
    found = system_of(blocks, FEATURES[rows], images, LABELS[rows], missing=0.0)
    assert found is not None
    return found


def test_each_component_is_the_sum_of_the_members_that_are_likeliest_of_it() -> None:
    found = blocks_of(sent("float64"))
    cells = found["features"].cells
    assert cells is not None
    assert len(cells.classes) == CLASSES + CLASSES * COMPONENTS
    place = cells.of(FEATURES, LABELS)
    assert np.array_equal(cells.classes[place], LABELS)
    for number in range(len(cells.classes)):
        own = FEATURES[MEMBERS & (place == number)]
        assert found["ones"].total[number, 0] == len(own)
        np.testing.assert_allclose(found["features"].total[number], own.sum(axis=0), atol=1e-3)
        np.testing.assert_allclose(found["norms"].total[number, 0], (own**2).sum(), rtol=1e-4)


@pytest.mark.parametrize("transport", ["float16", "float32"])
def test_components_name_whom_their_sum_does_not(transport: str) -> None:
    """Eighty candidates a class have 42 equations, and some twenty a component as many."""
    blocks, every = list(blocks_of(sent(transport)).values()), np.arange(len(LABELS))
    rows = every[(np.arange(len(LABELS)) % (2 * EACH) < EACH + 20)]
    one, copies = system(blocks, rows), np.ones(len(rows), np.int64)
    solved = exact_weights(one)
    assert whole(one, solved, copies)
    assert np.array_equal(solved.weights > 0.5, MEMBERS[rows])
    joint = system([block.together() for block in blocks], rows)
    # In float32 the class is told as well, by weights between 0 and 1; not where half of the digits are gone.
    assert whole(joint, exact_weights(joint), copies) == (transport == "float32")


def test_the_components_that_a_gallery_covers_are_explained_by_themselves() -> None:
    """One member is missing: its component is not explained, and all others are."""
    blocks = list(blocks_of(sent("float32")).values())
    rows = np.flatnonzero(np.arange(len(LABELS)) % (2 * EACH) < EACH + 10)[1:]
    found = system(blocks, rows)
    solved, copies = exact_weights(found), np.ones(len(rows), np.int64)
    sure: Bools = in_part(found, solved, copies)
    lacking = found.labels == blocks[0].cells.of(FEATURES[:1], LABELS[:1])[0]  # type: ignore[union-attr]
    assert not whole(found, solved, copies)
    assert np.array_equal(sure, ~lacking)
    assert np.array_equal(solved.weights[sure] > 0.5, MEMBERS[rows][sure])


def test_strangers_explain_no_component() -> None:
    blocks = list(blocks_of(sent("float32")).values())
    rows = np.flatnonzero(~MEMBERS)
    found = system(blocks, rows)
    solved, copies = exact_weights(found), np.ones(len(rows), np.int64)
    assert not in_part(found, solved, copies).any()


def test_components_that_share_records_or_are_noised_are_taken_together() -> None:
    """Close together no component holds a whole number of records; under noise nobody knows whose they were."""
    close = sent("float64")
    shared = np.repeat(np.array([0.3, -0.3, 0.0, 0.0]) / EACH, CLASSES).reshape(-1, CLASSES).T.ravel()
    moved = MessageField(close.fields["weights"].values + shared, "mixture_weights", exact())
    fields = {**close.fields, "weights": moved}
    cells = blocks_of(Message(0, "client/0", SERVER, fields))["features"].cells
    assert cells is not None
    assert len(cells.classes) == CLASSES + CLASSES * (COMPONENTS - 2)
    assert blocks_of(sent("float64", noise=0.1))["features"].cells is None
