"""The backbone contract on small images, and the backbones that need no file."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fedassay.backbones import build, is_torchvision_name, small_cnn, torchvision_names
from fedassay.backbones.base import Backbone, BackboneRequest, Preprocess, initialised, to_input
from fedassay.data import DataRequest, ImageSet, load
from fedassay.data.roles import Roles, split_roles
from fedassay.support import cache
from fedassay.support.errors import PlanError
from fedassay.support.registry import entries

_RNG = np.random.default_rng(0)


def ask(name: str, **given: Any) -> BackboneRequest:
    fields: dict[str, Any] = {
        "weights": None,
        "input_size": None,
        "image_shape": (8, 8, 1),
        "classes": 10,
        "public": None,
        "seed": 0,
        "device": "cpu",
        "base": Path("."),
        **given,
    }
    return BackboneRequest(name=name, **fields)


def _noise(*shape: int) -> NDArray[np.uint8]:
    return _RNG.integers(0, 256, size=shape, dtype=np.uint8)


@pytest.fixture(scope="module")
def roles() -> Roles:
    data = load(DataRequest("digits", None, None, None, 0, Path(".")))
    shares = {"private": 0.4, "attacker": 0.3, "public": 0.1, "test": 0.2}
    return split_roles(data, shares, np.random.default_rng(0))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def trained(roles: Roles) -> Backbone:
    return build(ask("small_cnn", public=roles.public))


_SHAPES = [(8, 8, 1), (28, 28, 1), (32, 32, 3), (25, 31, 3)]
_KINDS: list[tuple[str, dict[str, Any]]] = [
    ("pixels", {}),
    ("pixels", {"input_size": 16}),
    ("small_cnn", {"weights": "random"}),
    ("small_cnn", {"weights": "random", "input_size": 24}),
    ("small_cnn_rectified", {"weights": "random"}),
    ("cifar_resnet20", {"weights": "random"}),
    ("squeezenet1_1", {"weights": "random"}),
    ("mobilenet_v3_small", {"weights": "random", "input_size": 32}),
]


@pytest.mark.parametrize("shape", _SHAPES, ids=str)
@pytest.mark.parametrize(("name", "given"), _KINDS, ids=str)
def test_contract(name: str, given: dict[str, Any], shape: tuple[int, int, int]) -> None:
    backbone = build(ask(name, image_shape=shape, **given))
    images = _noise(5, *shape)
    features = backbone.extract(images)
    assert (features.shape, features.dtype) == ((5, backbone.width), np.float32)
    assert np.isfinite(features).all()
    assert len(np.unique(features, axis=0)) == 5
    assert np.array_equal(features, backbone.extract(images))
    assert np.allclose(features, backbone.extract(images, batch=2), atol=1e-4)
    assert backbone.extract(images[:0]).shape == (0, backbone.width)
    # A white-box attack differentiates through resizing and normalisation.
    pixels = to_input(images).requires_grad_()
    backbone.module(pixels).square().sum().backward()
    assert pixels.grad is not None
    assert pixels.grad.abs().sum() > 0
    assert not any(parameter.requires_grad for parameter in backbone.module.parameters())
    assert not backbone.module.training
    again = build(ask(name, image_shape=shape, **given))
    assert again.fingerprint == backbone.fingerprint
    assert np.array_equal(again.extract(images), features)


@pytest.mark.parametrize("images", [np.zeros((2, 8, 8, 3), np.uint8), np.zeros((2, 8, 8, 1)), np.zeros((8, 8, 1))])
def test_other_images_are_refused(images: NDArray[Any]) -> None:
    with pytest.raises(ValueError, match="backbone pixels: images are"):
        build(ask("pixels")).extract(images)


def test_pixels_are_the_pixels() -> None:
    images = _noise(3, 8, 8, 1)
    assert np.array_equal(build(ask("pixels")).extract(images), images.reshape(3, 64) / np.float32(255))


def test_fingerprints_tell_weights_and_preprocessing_apart() -> None:
    asked = [
        ask("small_cnn", weights="random"),
        ask("small_cnn", weights="random", seed=1),
        ask("small_cnn", weights="random", input_size=16),
        ask("small_cnn", weights="random", image_shape=(8, 8, 3)),
        ask("cifar_resnet20", weights="random"),
        ask("cifar_resnet20", weights="random", input_size=16),
        ask("pixels"),
        ask("pixels", input_size=16),
    ]
    assert len({build(one).fingerprint for one in asked}) == len(asked)


@pytest.mark.parametrize("side", [8, 13, 28])
def test_a_grid_that_comes_in_as_it_is_needs_no_averages(side: int) -> None:
    own = initialised(lambda: small_cnn._network(1, side, 64), 0)
    plain = initialised(lambda: small_cnn._network(1, side, 64), 0)
    assert isinstance(plain, nn.Sequential)
    plain[10] = nn.AdaptiveAvgPool2d(4)
    assert repr(own) == repr(plain)
    images = torch.rand((3, 1, side, side), generator=torch.Generator().manual_seed(0))
    made = []
    for network in (own, plain):
        given = images.clone().requires_grad_()
        features = network(given)
        features.sum().backward()
        made.append((features.detach(), given.grad))
    assert all(torch.equal(one, other) for one, other in zip(*made, strict=True))


def test_initialisation_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    build(ask("small_cnn", weights="random"))
    assert torch.equal(before, torch.get_rng_state())


def test_memory_is_flat_in_the_number_of_images() -> None:
    """60,000 images of 28x28 take their features and one batch, no float copy of them all."""
    backbone = build(ask("small_cnn", weights="random", image_shape=(28, 28, 1)))
    thin = Backbone(**{**vars(backbone), "module": nn.Sequential(nn.Flatten(), nn.Linear(784, 64))})
    images = np.zeros((60_000, 28, 28, 1), dtype=np.uint8)
    sizes: list[int] = []
    thin.module.register_forward_hook(lambda _module, given, _out: sizes.append(len(given[0])))
    tracemalloc.start()
    features = thin.extract(images)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert max(sizes) <= 256
    assert sum(sizes) == 60_000
    assert peak < 2 * features.nbytes


class TestPreprocess:
    def test_grey_is_repeated_and_normalised(self) -> None:
        images = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
        out = Preprocess(channels=3, mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0))(images)
        for channel, (mean, std) in enumerate(((0.1, 1.0), (0.2, 2.0), (0.3, 4.0))):
            assert torch.allclose(out[:, channel], (images[:, 0] - mean) / std)

    def test_blue_comes_first_after_scaling(self) -> None:
        images = torch.tensor([0.0, 0.5, 1.0]).reshape(1, 3, 1, 1)
        out = Preprocess(channels=3, mean=(103.939, 116.779, 123.68), std=(1.0,) * 3, scale=255.0, bgr=True)(
            images
        )
        assert out.flatten().tolist() == pytest.approx([255 - 103.939, 127.5 - 116.779, -123.68], abs=1e-4)

    def test_resizing_keeps_the_mean(self) -> None:
        images = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
        for size in (4, 32):
            out = Preprocess(size=size)(images)
            assert out.shape == (1, 3, size, size)
            assert float(out.mean()) == pytest.approx(float(images.mean()), abs=0.02)


class TestSmallCnn:
    @pytest.mark.long
    def test_public_weights_are_decent_on_digits(self, roles: Roles, trained: Backbone) -> None:
        """A linear probe on private features beats one on pixels and one on random features."""
        from sklearn.linear_model import LogisticRegression

        def probe(backbone: Backbone) -> float:
            private, test = (backbone.extract(part.images) for part in (roles.private, roles.test))
            model = LogisticRegression(C=100, max_iter=500).fit(private, roles.private.labels)
            return float(model.score(test, roles.test.labels))

        accuracy = probe(trained)
        assert accuracy > 0.98
        assert accuracy > probe(build(ask("pixels")))
        assert accuracy > probe(build(ask("small_cnn", weights="random")))

    def test_features_have_unit_norm(self, roles: Roles, trained: Backbone) -> None:
        features = trained.extract(roles.test.images)
        assert trained.width == 64
        assert np.abs(np.linalg.norm(features, axis=1) - 1).max() < 1e-5
        assert (features != 0).all()
        assert trained.pretrained_on == "the public split (180 records)"

    def test_trained_once_and_the_same_without_the_cache(
        self, roles: Roles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        few = ImageSet(_noise(20, 8, 8, 1), np.arange(20) % 10, tuple("0123456789"))
        monkeypatch.setattr("fedassay.backbones.small_cnn._STEPS", (5, 5))
        prints = []
        for folder in ("one", "two"):
            monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path / folder))
            prints += [build(ask("small_cnn", public=few)).fingerprint for _ in range(2)]
            assert cache.info().entries == 1
        assert len(set(prints)) == 1
        assert build(ask("small_cnn", public=few, seed=1)).fingerprint != prints[0]
        assert build(ask("small_cnn", weights="random")).fingerprint != prints[0]

    @pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 3), (7, 9, 1)], ids=str)
    def test_trains_on_other_shapes(self, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("fedassay.backbones.small_cnn._STEPS", (3, 3))
        public = ImageSet(_noise(20, *shape), np.arange(20) % 2, ("a", "b"))
        backbone = build(ask("small_cnn", public=public, image_shape=shape, classes=2))
        random = build(ask("small_cnn", weights="random", image_shape=shape, classes=2))
        assert backbone.fingerprint != random.fingerprint
        assert np.isfinite(backbone.extract(public.images)).all()

    def test_public_weights_need_a_public_split(self, roles: Roles) -> None:
        one_class = roles.public.take(roles.public.labels == 3)
        for public, reason in (
            (None, "is empty"),
            (roles.public.take(np.array([], int)), "is empty"),
            (one_class, "is all of one class"),
        ):
            with pytest.raises(PlanError, match=rf"public split, which {reason}; raise data\.split\.public"):
                build(ask("small_cnn", public=public))


class TestFeaturesThroughTheCache:
    @pytest.fixture(autouse=True)
    def _own_cache(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path))

    def test_the_same_images_are_extracted_once(self) -> None:
        backbone = build(ask("small_cnn", weights="random"))
        images = _noise(10, 8, 8, 1)
        first = backbone.features(images)
        calls: list[Callable[[], None]] = []
        backbone.module.register_forward_hook(lambda *_: calls.append(lambda: None))
        assert np.array_equal(backbone.features(images.copy()), first)
        assert calls == []
        assert np.array_equal(first, backbone.extract(images))

    def test_other_images_and_other_backbones_are_other_entries(self) -> None:
        images = _noise(10, 8, 8, 1)
        one, two = (build(ask("small_cnn", weights="random", seed=seed)) for seed in (0, 1))
        for backbone, given in ((one, images), (two, images), (one, images[::-1])):
            assert np.array_equal(backbone.features(given), backbone.extract(given))
        assert cache.info().entries == 3

    def test_pixels_are_not_kept(self) -> None:
        build(ask("pixels")).features(_noise(10, 8, 8, 1))
        assert cache.info().entries == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("pixel", {}, r"backbone\.name: given 'pixel'; allowed: .*cifar_resnet20.*pixels.*resnet50"),
        (
            "pixels",
            {"weights": "random"},
            r"backbone\.weights: 'random' given; pixels takes none",
        ),
        (
            "small_cnn",
            {"weights": "imagenet"},
            r"backbone\.weights: 'imagenet' given; small_cnn takes public, random$",
        ),
        (
            "small_cnn",
            {"weights": "random", "input_size": 0},
            r"backbone\.input_size: 0 given; allowed: 1 or more",
        ),
        ("small_cnn", {"weights": "random", "input_size": 1}, r"backbone\.input_size: 1 is not a size"),
        (
            "cifar_resnet20",
            {},
            r"backbone\.weights: nothing given; cifar_resnet20 takes cifar10, random, the path of a",
        ),
        ("cifar_resnet20", {"weights": "public"}, r"backbone\.weights: 'public' given"),
        (
            "resnet18",
            {"weights": "public"},
            r"'public' given; resnet18 takes imagenet, random, imagenet_v1, IMAGENET1K_V1",
        ),
        ("squeezenet1_1", {"weights": "random", "input_size": 4}, r"backbone\.input_size: 4 is not a size"),
        ("vit_b_32", {"weights": "random", "input_size": 40}, r"backbone\.input_size: 40 is not a size"),
    ],
)
def test_wrong_requests_are_refused(name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        build(ask(name, **given))


def test_names_are_known_without_importing_torch() -> None:
    assert is_torchvision_name("resnet50")
    assert is_torchvision_name("vit_b_16")
    assert not is_torchvision_name("fasterrcnn_resnet50_fpn")
    assert not is_torchvision_name("deeplabv3_resnet50")
    assert not is_torchvision_name("small_cnn")
    code = (
        "import sys; import fedassay.backbones as b; assert b.torchvision_names(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_names_agree_with_torchvisions_own_list() -> None:
    from fedassay.support.torchvision import import_torchvision

    models = import_torchvision().models
    assert list(torchvision_names()) == sorted(models.list_models(module=models))


def test_the_registered_backbones() -> None:
    names = """
        cifar_resnet20 cifar_resnet56 clip_vit_b_32 mae_vit_b_16 open_clip_vit_b_32 pixels small_cnn
        small_cnn_rectified squeezenet1_1
    """
    assert list(entries("backbone")) == names.split()
    assert all(entry.summary for entry in entries("backbone").values())
