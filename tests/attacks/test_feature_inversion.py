"""Feature inversion where the answer is known: pixels as features, and networks with more features than pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from quick_similarity import psnr
from torch import Tensor, nn
from torch.nn import functional

from fedassay.attacks.feature_inversion import FeatureInversion
from fedassay.attacks.gram.attack import GramFactorization
from fedassay.backbones.base import Backbone, BackboneRequest, finish
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.exchange.blocks import LinearBlock, OfImages
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.exchange.view import ThreatModel, View, view
from fedassay.methods.baselines.raw_features import RawFeatures
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.fedpft.method import FedPFT
from fedassay.nets.deep_image_prior import DeepImagePrior
from fedassay.nets.inversion import LeakyBackward
from fedassay.support.errors import NotRunError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images

EXACT = {"weight": 0.0, "steps": 400}


def knowledge(backbone: Backbone | None, **others: Any) -> Knowledge:
    return Knowledge(
        others.pop("attacker", None),
        10,
        backbone,
        others.pop("white_box", True),
        Seeds(0),
        "cpu",
        SILENT,
        **others,
    )


def seen(task: MethodInput, method: Any) -> View:
    return view(method.run(task).transcript, ThreatModel())


def inverted(result: AttackResult, name: str) -> Images:
    return next(item.images[:, 0] for item in result.reconstructions if item.source.name == name)


def wrap(module: nn.Module, image_shape: tuple[int, int, int]) -> Backbone:
    request = BackboneRequest("test", None, None, image_shape, 10, None, 0, "cpu", Path())
    return finish(request, module, "test", "nothing")


def own_images(task: MethodInput) -> Records:
    """The public images of a task, as an attacker's own."""
    held = task.public
    return Records("attacker", held.images, held.labels, lambda images: images.reshape(len(images), -1))


@pytest.mark.long
@pytest.mark.parametrize("family", ["spectrum", "principal_components", "pixels", "deep_image_prior"])
def test_every_family_inverts_pixels(make_task: Callable[..., MethodInput], family: str) -> None:
    task = make_task(clients=1, records=6)
    attack = FeatureInversion.model_validate({"family": family, **EXACT})
    result = attack.run(seen(task, RawFeatures()), knowledge(task.backbone, attacker=own_images(task)))
    found, truth = inverted(result, "raw"), task.clients[0].images
    # The network is a prior that cannot be switched off: it needs more steps than a fast test has.
    assert np.median(psnr(truth, found)) > (15 if family == "deep_image_prior" else 25)
    assert np.median(psnr(truth, np.roll(found, 1, axis=0))) < 12
    assert result.scores["misfit/raw"].max() < (0.2 if family == "deep_image_prior" else 0.02)


@pytest.mark.long
def test_pooled_features_are_inverted_best_along_components_of_own_images(
    make_task: Callable[..., MethodInput],
) -> None:
    """Pooling hides where things are; images like the private ones say where they usually are."""
    torch.manual_seed(0)
    trunk = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 64)
    )
    backbone = wrap(trunk, (8, 8, 1))
    task = make_task(clients=1, records=20)
    truth = task.clients[0].images
    message = Message(0, "client/0", "server", {"f": MessageField(backbone.extract(truth), "features", exact())})
    known = knowledge(backbone, attacker=own_images(task))
    found = {}
    for family in ("spectrum", "principal_components"):
        attack = FeatureInversion.model_validate({"family": family, "steps": 150})
        made = inverted(attack.run(View((message,), 10, ThreatModel()), known), "raw")
        found[family] = np.median(psnr(truth, made)), np.median(psnr(truth, np.roll(made, 1, axis=0)))
    own, others = found["principal_components"]
    assert own > found["spectrum"][0] + 2
    assert own > others + 2


@pytest.mark.parametrize("own", [None, 1])
def test_components_of_own_images_need_some(make_task: Callable[..., MethodInput], own: int | None) -> None:
    task = make_task(clients=1, records=4)
    held = None if own is None else own_images(task).take(np.arange(own))
    attack = FeatureInversion(family="principal_components", steps=1)
    with pytest.raises(NotRunError, match=r"family principal_components needs images.*data\.split\.attacker"):
        attack.run(seen(task, RawFeatures()), knowledge(task.backbone, attacker=held))


@pytest.mark.long
@pytest.mark.parametrize("channels", [1, 3])
def test_rectified_networks_of_grey_and_colour_images_are_inverted(channels: int) -> None:
    torch.manual_seed(0)
    trunk = nn.Sequential(
        nn.Conv2d(channels, 64, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 512), nn.ReLU()
    )
    backbone = wrap(trunk, (8, 8, channels))
    smooth = np.random.default_rng(0).integers(0, 256, (5, 2, 2, channels))
    images = smooth.repeat(4, axis=1).repeat(4, axis=2).astype(np.uint8)
    source = np.asarray(backbone.extract(images))
    message = Message(0, "client/0", "server", {"f": MessageField(source, "features", exact())})
    attack = FeatureInversion(weight=0.01, steps=400)
    found = inverted(attack.run(View((message,), 10, ThreatModel()), knowledge(backbone)), "raw")
    assert found.shape == images.shape
    assert np.median(psnr(images, found)) > np.median(psnr(images, np.roll(found, 1, axis=0))) + 6


def test_single_records_come_back_as_pictures_from_fedcgs_sums(make_task: Callable[..., MethodInput]) -> None:
    """The chain of attacks: second moment, single features, pictures."""
    task = make_task(clients=2, records=16)
    message = seen(task, FedCGS())
    recovered = GramFactorization().run(message, knowledge(None)).vectors
    assert len(recovered[0].vectors) == 16
    attack = FeatureInversion(**EXACT, directions=0)
    result = attack.run(message, knowledge(task.backbone, recovered=recovered))
    found = inverted(result, "gram_factorization")
    for client in task.clients:
        own = found[[name == client.name for name in recovered[0].senders]]
        best = [max(psnr(np.repeat(image[None], len(own), axis=0), own)) for image in client.images]
        assert min(best) > 25
    without = attack.run(message, knowledge(task.backbone))
    assert {item.source.name for item in without.reconstructions} == {"class_means"}


def test_the_strongest_direction_of_a_lone_record_is_its_feature(make_task: Callable[..., MethodInput]) -> None:
    task = make_task(clients=2, records=2)
    result = FeatureInversion(**EXACT, directions=1).run(seen(task, FedCGS()), knowledge(task.backbone))
    found = inverted(result, "gram_directions").reshape(2, -1).astype(float)
    truth = np.stack([client.images[0].ravel() for client in task.clients]).astype(float)
    cosines = (found * truth).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(truth, axis=1)
    assert cosines.min() > 0.98


@pytest.mark.long
def test_class_sums_without_counts_are_inverted(make_task: Callable[..., MethodInput]) -> None:
    task = make_task(clients=1, records=10)
    plain, hidden = (
        FeatureInversion(**EXACT).run(seen(task, method), knowledge(task.backbone))
        for method in (FedCGS(), FedCGS(secure_aggregation="counts"))
    )
    means, sums = inverted(plain, "class_means"), inverted(hidden, "class_sums")
    alone = np.flatnonzero(np.bincount(task.clients[0].labels, minlength=10) > 0)
    assert len(means) == len(sums) == len(alone)
    cosines = [
        float(a.ravel().astype(float) @ b.ravel().astype(float))
        / float(np.linalg.norm(a.astype(float)) * np.linalg.norm(b.astype(float)))
        for a, b in zip(means, sums, strict=True)
    ]
    assert min(cosines) > 0.95


def test_vectors_are_drawn_down_to_the_limit(make_task: Callable[..., MethodInput]) -> None:
    task = make_task(clients=1, records=12)
    result = FeatureInversion(max_vectors=5, steps=1).run(
        seen(task, FedPFT(components=1)), knowledge(task.backbone)
    )
    assert len(inverted(result, "mixture_samples")) == 5
    assert result.notes == ("mixture_samples: 5 of 12 vectors drawn at random",)


def test_the_same_seed_gives_the_same_bits(make_task: Callable[..., MethodInput]) -> None:
    task = make_task(clients=1, records=4)
    for family in ("spectrum", "principal_components", "deep_image_prior"):
        attack = FeatureInversion.model_validate({"family": family, "steps": 5})
        message, known = seen(task, RawFeatures()), knowledge(task.backbone, attacker=own_images(task))
        first, second = (inverted(attack.run(message, known), "raw") for _ in range(2))
        np.testing.assert_array_equal(first, second)


class _Rounded(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1).round()


class _Detached(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1).detach()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"white_box": False}, "black_box"),
        ({"backbone": None}, "no backbone"),
        ({"backbone": wrap(_Rounded(), (8, 8, 1))}, "test is not differentiable: no gradient"),
        ({"backbone": wrap(_Detached(), (8, 8, 1))}, "test is not differentiable"),
    ],
)
def test_what_the_attack_requires_is_said(
    make_task: Callable[..., MethodInput], changes: dict[str, Any], reason: str
) -> None:
    task = make_task(clients=1, records=4)
    known = replace(knowledge(task.backbone), **changes)
    with pytest.raises(NotRunError, match=reason):
        FeatureInversion().run(seen(task, RawFeatures()), known)


def test_networks_of_a_deep_image_prior_do_not_mix() -> None:
    prior = DeepImagePrior(
        3, (9, 12, 2), channels=4, levels=3, depth=5, generator=torch.Generator().manual_seed(0)
    )
    images = prior()
    assert images.shape == (3, 2, 9, 12)
    (images[1] * torch.randn(images[1].shape)).sum().backward()
    for name, parameter in prior.named_parameters():
        assert parameter.grad is not None
        parts = parameter.grad.chunk(3)
        assert not parts[0].any(), name
        assert not parts[2].any(), name
    assert prior.last.weight.grad is not None
    assert prior.last.weight.grad.chunk(3)[1].any()


@pytest.mark.parametrize(
    "rectifier", [functional.relu, torch.relu, Tensor.relu, nn.ReLU(), nn.ReLU(inplace=True), Tensor.relu_]
)
def test_only_the_gradient_of_a_rectifier_leaks(rectifier: Callable[[Tensor], Tensor]) -> None:
    values = torch.tensor([-2.0, 3.0], requires_grad=True)
    with LeakyBackward(0.25):
        result = rectifier(values * 1)
    assert result.tolist() == [0.0, 3.0]
    result.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [0.25, 1.0]


class _Body(nn.Module):
    """Pixels in [0, 1] to more features than there are pixels, so that one image alone has a feature."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        weights = np.random.default_rng(seed).standard_normal((64, 96)) / 8
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float32))

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1) @ self.weights  # type: ignore[operator]


def _through(bodies: dict[str, nn.Module]) -> Callable[[Message, int], list[LinearBlock]]:
    """Class sums of the outputs of each sender's body."""

    def enters(message: Message, classes: int) -> list[LinearBlock]:
        module, nothing = bodies[message.sender], np.zeros(classes)

        def vectors(images: Images) -> NDArray[np.float64]:
            return module(torch.tensor(images).permute(0, 3, 1, 2) / 255).double().numpy()  # type: ignore[no-any-return]

        total = message.fields["sums"].values
        return [LinearBlock("sums", OfImages(vectors, module), 1, True, total, noise=nothing, rounding=nothing)]

    return enters


def _sums_of_bodies(images: Images, bodies: dict[str, nn.Module]) -> View:
    """Class sums of clients with one record a class, each by its own body."""
    parts = np.split(images, len(bodies))
    messages = []
    for (sender, module), part in zip(bodies.items(), parts, strict=True):
        sums = module(torch.tensor(part).permute(0, 3, 1, 2) / 255).numpy()
        counts = MessageField(np.ones(len(part), np.int32), "class_counts", exact("labels"))
        fields = {"sums": MessageField(sums, "class_sums", exact()), "counts": counts}
        messages.append(Message(0, sender, SERVER, fields))
    return View(tuple(messages), 10, ThreatModel(), enters=_through(bodies))


def test_sums_of_a_body_that_everybody_can_train_are_inverted_through_it() -> None:
    truth = np.random.default_rng(1).integers(256, size=(20, 8, 8, 1), dtype=np.uint8)
    body = _Body()
    attack = FeatureInversion.model_validate({"family": "pixels", **EXACT})
    backbone = wrap(nn.Flatten(), (8, 8, 1))
    result = attack.run(_sums_of_bodies(truth, {"client/0": body, "client/1": body}), knowledge(backbone))
    assert psnr(truth, inverted(result, "class_means")).mean() > 25
    with pytest.raises(NotRunError, match="width 96, and the backbone's features 64"):
        attack.run(_sums_of_bodies(truth, {"client/0": body, "client/1": _Body(1)}), knowledge(backbone))
