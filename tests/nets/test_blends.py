"""Blends of an adversary's own images: how many, of what, and that they bring reconstructions closer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedassay.attacks.feature_diffusion import _are_features, _blended
from fedassay.backbones.base import Backbone, BackboneRequest
from fedassay.backbones.small_cnn import small_cnn_rectified
from fedassay.contracts.attack import Knowledge
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource
from fedassay.nets.blends import MOST, blends
from fedassay.nets.presets import PRESETS, TINY
from fedassay.nets.sampling import sample
from fedassay.nets.training import train
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images


def digits() -> Images:
    return np.asarray(load_digits().images * 15.9375).astype(np.uint8)[..., None]


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    request = BackboneRequest("small_cnn_rectified", "random", None, (8, 8, 1), 10, None, 0, "cpu", Path())
    return small_cnn_rectified(request)


@pytest.mark.parametrize(
    ("n", "rows", "made"), [(10, 50, 40), (10, 10, 0), (10, 9, 0), (1, 50, 0), (3, 5000, 3 * MOST)]
)
def test_as_many_as_are_missing(n: int, rows: int, made: int) -> None:
    images = digits()[:n]
    found = blends(images, rows, np.random.default_rng(0))
    assert found.shape == (made, 8, 8, 1)
    assert found.dtype == np.uint8


def test_each_number_lies_between_those_of_two_images_or_is_one_of_them() -> None:
    dark, bright = np.full((1, 6, 6, 3), 10, np.uint8), np.full((1, 6, 6, 3), 250, np.uint8)
    made = blends(np.concatenate([dark, bright]), 2 + 2 * MOST, np.random.default_rng(0))
    means, cuts = made[:MOST], made[MOST:]
    assert (np.ptp(means.reshape(MOST, -1), axis=1) == 0).all()
    assert 10 <= means.min() < 60 < 200 < means.max() <= 250
    assert set(np.unique(cuts)) == {10, 250}
    assert (np.ptp(cuts, axis=3) == 0).all()


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_strangers_are_rebuilt_more_closely(backbone: Backbone, seed: int) -> None:
    """From 60 images of its own, an adversary's squared error falls by a tenth or more (14 to 31 % at 4 seeds)."""
    rng, images = np.random.default_rng(seed), digits()
    order = rng.permutation(len(images))
    own, others = images[order[:60]], images[order[60:260]]
    preset = replace(TINY, steps=100, width=64, blocks=2, warmup=10, centres=600)
    errors = []
    for pairs in (own, np.concatenate([own, blends(own, 600, rng)])):
        model = train(pairs, backbone.extract(pairs), preset, seed=seed)
        shown = sample(model, backbone.extract(others), seed=1).astype(np.float64)
        errors.append(float(((shown - others) ** 2).mean()))
    assert errors[1] < 0.9 * errors[0]


@pytest.mark.parametrize(
    ("preset", "scale", "asked", "made"),
    [
        ("tiny", 1.0, True, True),
        ("paper", 1.0, True, False),
        ("tiny", 2.0, True, False),
        ("tiny", 1.0, False, False),
    ],
    ids=["tiny", "the paper's", "features of another backbone", "no backbone"],
)
def test_only_who_may_ask_the_same_backbone_blends(
    backbone: Backbone, preset: str, scale: float, asked: bool, made: bool
) -> None:
    def extract(images: Images) -> Floats:
        return scale * backbone.extract(images)

    attacker = Records("attacker", digits()[:20], np.zeros(20, np.int64), extract)
    known = Knowledge(attacker, 10, backbone if asked else None, False, Seeds(0), "cpu", SILENT)
    found = _blended(known, attacker, PRESETS[preset])
    assert len(found) == (20 * MOST if made else 0)


def test_a_backbone_is_not_asked_for_longer_than_training_takes(backbone: Backbone) -> None:
    attacker = Records("attacker", digits()[:200], np.zeros(200, np.int64), backbone.extract)
    known = Knowledge(attacker, 10, backbone, False, Seeds(0), "cpu", SILENT)
    brief = replace(TINY, width=8, blocks=1, steps=200, batch=64)
    assert 0 < len(_blended(known, attacker, brief)) < 100 < len(_blended(known, attacker, TINY))


@pytest.mark.parametrize(
    ("name", "noise", "expected"),
    [("raw", 0.0, True), ("raw", 0.25, True), ("raw", 2.0, False), ("class_means", 0.0, False)],
)
def test_blends_serve_vectors_that_are_features(
    backbone: Backbone, name: str, noise: float, expected: bool
) -> None:
    """Noise is in median distances between the attacker's features; means of records are no features."""
    rng = np.random.default_rng(0)
    attacker = Records("attacker", digits()[:60], np.zeros(60, np.int64), backbone.extract)
    vectors = backbone.extract(digits()[60:160])
    gaps = np.linalg.norm(attacker.features[:, None] - attacker.features[None], axis=2)
    apart = np.median(np.sort(gaps, axis=1)[:, 1])
    vectors = vectors + noise * apart / np.sqrt(vectors.shape[1]) * rng.standard_normal(vectors.shape)
    nobody = np.full(100, -1, np.int64)
    source = VectorSource(name, vectors.astype(np.float32), nobody, ("client/0",) * 100, nobody)
    assert _are_features(source, attacker) is expected
