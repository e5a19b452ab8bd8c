"""Preprocessing that a plan gives and pinned weights, against torchvision and an author's own code."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from fedassay.backbones import build
from fedassay.backbones.base import Backbone, BackboneRequest, Preprocess, Preprocessing, finish, to_input
from fedassay.backbones.cifar_resnet import CifarResNet
from fedassay.backbones.torchvision_models import penultimate
from fedassay.backbones.weights import check_preprocessing, check_weights
from fedassay.data.partition import partition
from fedassay.heads.gaussian import aggregate, gaussian_head, moments, statistics
from fedassay.plan.resolve import resolve
from fedassay.plan.schema import parse_plan
from fedassay.support.errors import DataError, PlanError
from fedassay.support.torchvision import import_torchvision
from fedassay.support.weights import assign, load_state

CIFAR = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


def ask(name: str, weights: str | Path | None = "random", **given: Any) -> BackboneRequest:
    own = {key: given.pop(key) for key in ("mean", "std", "crop", "interpolation") if key in given}
    fields: dict[str, Any] = {
        "input_size": None,
        "image_shape": (32, 32, 3),
        "classes": 10,
        "public": None,
        "seed": 0,
        "device": "cpu",
        "base": Path("."),
        "preprocessing": Preprocessing(**own),
        **given,
    }
    return BackboneRequest(name=name, weights=None if weights is None else str(weights), **fields)


def _input_of(backbone: Backbone, images: Any) -> Tensor:
    first = next(part for part in backbone.module.modules() if isinstance(part, Preprocess))
    found: Tensor = first(to_input(images))
    return found


def _images(count: int = 3, height: int = 32, width: int = 32) -> Any:
    return np.random.default_rng(0).integers(0, 256, size=(count, height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("shape", [(32, 32), (40, 33), (30, 47)])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_resized_cropped_and_normalised_as_torchvision_does(shape: tuple[int, int], interpolation: str) -> None:
    transforms = import_torchvision().transforms
    images = _images(3, *shape)
    wanted = transforms.Compose(
        [
            transforms.ToTensor(),
            transforms.Resize(24, transforms.InterpolationMode(interpolation), antialias=True),
            transforms.CenterCrop(20),
            transforms.Lambda(lambda image: image.clamp(0, 1)),
            transforms.Normalize(*CIFAR),
        ]
    )
    expected = torch.stack([wanted(image) for image in images])
    mean, std = CIFAR
    backbone = build(
        ask(
            "mobilenet_v3_small",
            image_shape=(*shape, 3),
            input_size=24,
            crop=20,
            interpolation=interpolation,
            mean=mean,
            std=std,
        )
    )
    assert torch.allclose(_input_of(backbone, images), expected, atol=1e-6)
    assert f"24 pixels, {interpolation}; 20x20 in the middle" in backbone.preprocessing
    assert "minus (0.4914, 0.4822, 0.4465), divided by (0.2023, 0.1994, 0.201)" in backbone.preprocessing


def test_one_number_stands_for_every_channel() -> None:
    one, three = (build(ask("cifar_resnet20", mean=(0.5,) * n, std=(0.25,) * n)) for n in (1, 3))
    assert one.fingerprint == three.fingerprint
    assert torch.equal(_input_of(one, _images()), (to_input(_images()) - 0.5) / 0.25)


def test_a_networks_own_order_of_channels_stays(tmp_path: Path) -> None:
    trunk = import_torchvision().models.squeezenet1_1(weights=None).features
    torch.save(trunk.state_dict(), tmp_path / "trunk.pt")
    backbone = build(ask("squeezenet1_1", tmp_path / "trunk.pt", mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0)))
    seen, images = (
        _input_of(backbone, _images()),
        nn.functional.interpolate(to_input(_images()), size=(64, 64), mode="bilinear", antialias=True),
    )
    for place, channel, mean, std in ((2, 0, 0.1, 1.0), (1, 1, 0.2, 2.0), (0, 2, 0.3, 4.0)):
        assert torch.allclose(seen[:, place], (images[:, channel] - mean) / std, atol=1e-6)


def test_every_key_is_part_of_the_fingerprint_and_silence_changes_nothing() -> None:
    asked: list[dict[str, Any]] = [
        {},
        {"mean": (0.4,), "std": (0.5,)},
        {"mean": (0.4,), "std": (0.25,)},
        {"input_size": 40},
        {"input_size": 40, "crop": 32},
        {"input_size": 40, "interpolation": "bicubic"},
        {"input_size": 40, "interpolation": "nearest"},
    ]
    for name in ("cifar_resnet20", "small_cnn", "pixels"):
        weights = None if name == "pixels" else "random"
        assert len({build(ask(name, weights, **given)).fingerprint for given in asked}) == len(asked)
    module = Preprocess(size=8, channels=3, mean=(0.5,), std=(0.5,))
    assert repr(module) == "Preprocess(size=8, channels=3, scale=1.0, bgr=False)"


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("resnet18", {"mean": (0.5, 0.5), "std": (0.5, 0.5)}, r"backbone\.mean: 2 numbers given; resnet18 takes "
         r"images of 3 channels, allowed: one number, or 3 \(red, green, blue\)"),
        ("cifar_resnet20", {"mean": (0.5,) * 3, "std": (0.5,) * 4}, r"backbone\.std: 4 numbers given"),
        ("cifar_resnet20", {"mean": (0.5,)}, r"one given without the other; allowed: both or neither"),
        ("pixels", {"mean": (0.5,) * 3, "std": (0.5,) * 3, "image_shape": (8, 8, 1)}, r"images of 1 channel, "),
        ("cifar_resnet20", {"crop": 40}, r"backbone\.crop: 40 given; cifar_resnet20 cuts 40 pixels out of .* 32"),
    ],
)  # fmt: skip
def test_preprocessing_that_does_not_fit_is_refused(name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        build(ask(name, None if name == "pixels" else "random", **given))


def test_a_plan_is_refused_before_anything_is_built() -> None:
    content: dict[str, Any] = {
        "name": "p",
        "data": {"name": "digits"},
        "methods": [{"fedcgs": {}}],
        "backbone": {"name": "resnet50", "weights": "imagenet_v1", "mean": [0.5, 0.5], "std": [0.5, 0.5]},
    }
    with pytest.raises(PlanError, match=r"backbone\.mean: 2 numbers given; resnet50 takes"):
        resolve(parse_plan(content, "plan"), Path(), "plan")
    content["backbone"] |= {"mean": 0.5, "std": [0.5, 0.0, 1.0]}
    with pytest.raises(PlanError, match=r"backbone\.std.*above 0"):
        parse_plan(content, "plan")
    content["backbone"] |= {"std": 0.5, "weights": "imagenet_v3"}
    with pytest.raises(PlanError, match=r"'imagenet_v3' given; resnet50 takes imagenet, random, imagenet_v1"):
        resolve(parse_plan(content, "plan"), Path(), "plan")


def test_a_backbone_that_takes_no_preprocessing_says_so() -> None:
    """One of another package, which knows nothing of the keys, does not pass over them."""
    module = nn.Sequential(Preprocess(size=8), nn.Flatten())
    with pytest.raises(PlanError, match=r"backbone\.mean: given, but mine has a preprocessing of its own"):
        finish(ask("mine", mean=(0.5,), std=(0.5,)), module, "mine", "nothing")
    assert finish(ask("mine"), module, "mine", "nothing").width == 192


class TestPinnedWeights:
    @pytest.mark.parametrize(
        ("name", "word", "known"),
        [("resnet50", "imagenet_v2", True), ("resnet18", "imagenet_v2", False), ("vit_b_16", "imagenet_v1", True)],
    )
    def test_a_network_takes_the_versions_that_there_are(self, name: str, word: str, known: bool) -> None:
        if known:
            check_weights(name, word, Path("."))
            return
        with pytest.raises(PlanError, match=r"'imagenet_v2' given; resnet18 takes imagenet, random, imagenet_v1"):
            check_weights(name, word, Path("."))

    @pytest.mark.long
    @pytest.mark.usefixtures("online")
    def test_a_version_is_its_own_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """`imagenet` is the newest version, and the record says which; the other version's file is refused."""
        monkeypatch.setattr(torch.hub, "_hub_dir", None)
        monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
        models = import_torchvision().models
        published = models.get_model_weights("mobilenet_v2")
        files = {}
        for version in ("V1", "V2"):
            torch.manual_seed(int(version[1]))
            path = tmp_path / f"{version}.pth"
            torch.save(models.mobilenet_v2(weights=None).state_dict(), path)
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
            files[f"IMAGENET1K_{version}"] = path.rename(tmp_path / f"mobilenet_v2-{version}-{digest}.pth")
        monkeypatch.setattr(published, "url", property(lambda self: f"file://{files[self.name]}"))
        built = {
            word: build(ask("mobilenet_v2", word, input_size=32))
            for word in ("imagenet", "imagenet_v1", "imagenet_v2", "IMAGENET1K_V1")
        }
        assert built["imagenet"].fingerprint == built["imagenet_v2"].fingerprint
        assert built["imagenet_v1"].fingerprint == built["IMAGENET1K_V1"].fingerprint
        assert built["imagenet"].fingerprint != built["imagenet_v1"].fingerprint
        assert built["imagenet"].description == "mobilenet_v2, torchvision's IMAGENET1K_V2"
        assert built["imagenet_v1"].description == "mobilenet_v2, torchvision's IMAGENET1K_V1"
        # A file by its path is told by its hash, whatever its name.
        one = files["IMAGENET1K_V1"]
        by_path = build(ask("mobilenet_v2", one, input_size=32))
        assert by_path.description == f"mobilenet_v2, torchvision's IMAGENET1K_V1 (file {one})"
        assert by_path.pretrained_on == "ImageNet-1k"
        hub = tmp_path / "torch" / "hub" / "checkpoints" / files["IMAGENET1K_V2"].name
        hub.write_bytes(one.read_bytes())
        with pytest.raises(DataError, match="not the published file"):
            build(ask("mobilenet_v2", "imagenet_v2", input_size=32))
        torch.save(penultimate(models.resnet18(weights=None)).state_dict(), tmp_path / "other.pt")
        with pytest.raises(DataError, match="does not fit this network"):
            build(ask("mobilenet_v2", tmp_path / "other.pt"))

    def test_preprocessing_known_of_a_name_is_checked_without_building(self) -> None:
        check_preprocessing("small_cnn", Preprocessing((0.5,), (0.5,)))
        with pytest.raises(PlanError, match="both or neither"):
            check_preprocessing("small_cnn", Preprocessing((0.5,)))


def _authors_head(
    extract: nn.Module, loaders: list[Any], classes: int, width: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the authors' `main_fedcgs.py` computes, line by line (Guan et al. 2025, the published code)."""
    sums, counts, total, second = [], [], [], []
    for loader in loaders:
        cs, cc = torch.zeros((classes, width)).double(), torch.zeros(classes)
        ax, bx = torch.zeros(width).double(), torch.zeros((width, width)).double()
        for images, labels in loader:
            with torch.no_grad():
                features = extract(images).double()
            cs.scatter_add_(0, labels.unsqueeze(1).expand_as(features).to(torch.int64), features)
            cc.scatter_add_(0, labels.to(torch.int64), torch.ones(len(labels)))
            ax += features.sum(dim=0)
            bx += features.T @ features
        sums.append(cs), counts.append(cc), total.append(ax), second.append(bx)
    cc, cs, ax, bx = (sum(parts[1:], parts[0]) for parts in (counts, sums, total, second))
    number = cc.sum()
    mean = ax / number
    covariance = (bx - torch.outer(mean, ax) - torch.outer(ax, mean) + torch.outer(mean, mean) * number) / (
        number - 1
    )
    means = torch.div(cs, torch.reshape(cc, (-1, 1))).double()
    inverse = torch.tensor(np.linalg.inv(covariance.numpy()))
    weights = means @ inverse
    bias = torch.zeros(classes)
    for i in range(classes):
        bias[i] = -(means[i] @ inverse @ means[i]) / 2 + torch.log(cc[i] / number)
    return weights, bias, means, covariance


def test_fedcgs_is_the_authors_code_on_their_preprocessing(shared_data: Path, shared_weights: Path) -> None:
    """Head, outputs and predictions as `main_fedcgs.py` gives them, on real images and trained weights."""
    path = shared_weights / "cifar10_resnet20.pt"
    with np.load(shared_data / "cifar10_subset.npz", allow_pickle=False) as archive:
        images, labels = archive["x_train"][:400], archive["y_train"][:400].astype(np.int64)
        test = archive["x_test"][:100]
    rng = np.random.default_rng(0)
    from fedassay.data.images import ImageSet

    private = ImageSet(images, labels, tuple(map(str, range(10))))
    parts = partition(private, "dirichlet", 4, alpha=0.1, min_records=10, rng=rng)
    # Theirs: PIL images through torchvision's transforms, batches of 1,024, float32 features, sums in float64.
    transforms = import_torchvision().transforms
    theirs = transforms.Compose([transforms.ToTensor(), transforms.Normalize(*CIFAR)])
    network = CifarResNet(3, 10)
    assign(network, load_state(path), "w")
    network.linear = nn.Identity()
    network.eval()

    def loaded(chosen: Any) -> list[tuple[Tensor, Tensor]]:
        return [
            (torch.stack([theirs(Image.fromarray(images[i])) for i in rows]), torch.tensor(labels[rows]))
            for rows in np.array_split(chosen, -(-len(chosen) // 1024))
        ]

    weights, bias, means, covariance = _authors_head(network, [loaded(part) for part in parts], 10, 64)
    with torch.no_grad():
        held = network(torch.stack([theirs(Image.fromarray(image)) for image in test]))
    outputs = (held.double() @ weights.T + bias).numpy()
    # Ours: the backbone with their keys, the method's statistics and head.
    mean, std = CIFAR
    backbone = build(ask("cifar_resnet20", path, mean=mean, std=std))
    found = moments(
        aggregate(statistics(backbone.extract(images[part]), labels[part], 10) for part in parts), "total"
    )
    head = gaussian_head(found, 0.0).head
    ours = head.scores(backbone.extract(test))
    assert np.abs(found.means - means.numpy()).max() < 1e-6
    assert np.abs(found.covariance - covariance.numpy()).max() < 1e-6
    assert np.abs(ours - outputs).max() < 1e-6 * np.abs(outputs).max()
    # Their accuracy is that of the head rounded to float32, as they write it into the network.
    rounded = (held @ weights.float().T + bias.float()).argmax(dim=1).numpy()
    assert np.array_equal(head.predict(backbone.extract(test)), rounded)
    # The keys matter: ImageNet's normalisation gives another head.
    other = build(ask("cifar_resnet20", path)).extract(test)
    assert np.abs(head.scores(other) - outputs).max() > 1e-3 * np.abs(outputs).max()
