"""Weight files: what fits, what is refused, and the real ones on real images."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fedassay.backbones import build, torchvision_names
from fedassay.backbones.base import Backbone, BackboneRequest, to_input
from fedassay.backbones.cifar_resnet import CifarResNet
from fedassay.backbones.torchvision_models import penultimate
from fedassay.support.errors import DataError
from fedassay.support.torchvision import import_torchvision
from fedassay.support.weights import assign, hub_file, load_state

pytestmark = pytest.mark.usefixtures("online")


def ask(name: str, weights: str | Path | None, **given: Any) -> BackboneRequest:
    fields: dict[str, Any] = {
        "input_size": None,
        "image_shape": (32, 32, 3),
        "classes": 10,
        "public": None,
        "seed": 0,
        "device": "cpu",
        "base": Path("."),
        **given,
    }
    return BackboneRequest(name=name, weights=None if weights is None else str(weights), **fields)


def _images(count: int = 4) -> Any:
    return np.random.default_rng(0).integers(0, 256, size=(count, 32, 32, 3), dtype=np.uint8)


def _state(blocks: int = 3, classes: int = 10) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    model = CifarResNet(blocks, classes)
    return {
        name: torch.rand(value.shape, generator=generator) * 0.1 + 0.01
        for name, value in model.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }


def test_the_same_weights_in_any_wrapping(tmp_path: Path) -> None:
    state = _state()
    torch.save(state, tmp_path / "plain.pt")
    wrapped = OrderedDict((f"module.{name}", value) for name, value in state.items())
    torch.save({"state_dict": wrapped, "best": 91.7}, tmp_path / "checkpoint.pt")
    save_file(state, tmp_path / "safe.safetensors")
    prints = {
        build(ask("cifar_resnet20", name, base=tmp_path)).fingerprint
        for name in ("plain.pt", "checkpoint.pt", "safe.safetensors")
    }
    assert len(prints) == 1


def test_features_are_what_the_classifier_reads(tmp_path: Path) -> None:
    state = _state(classes=7)
    torch.save(state, tmp_path / "w.pt")
    backbone = build(ask("cifar_resnet20", tmp_path / "w.pt"))
    model = CifarResNet(3, 7)
    assign(model, state, "w")
    images = _images()
    mean, std = (torch.tensor(v).reshape(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.no_grad():
        logits = model.eval()((to_input(images) - mean) / std).numpy()
    features = backbone.extract(images)
    assert np.allclose(
        features @ state["linear.weight"].numpy().T + state["linear.bias"].numpy(), logits, atol=1e-4
    )
    assert features.min() >= 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: s.pop("layer2.1.conv2.weight"),
            r"does not fit this network: missing layer2\.1\.conv2\.weight$",
        ),
        (lambda s: s.update(extra=torch.zeros(1)), r"unexpected extra$"),
        (
            lambda s: s.update({"conv1.weight": torch.zeros(16, 1, 3, 3)}),
            r"wrong shapes: conv1\.weight \(16, 1, 3, 3\) where \(16, 3, 3, 3\) is needed",
        ),
        (lambda s: s.update({"bn1.bias": torch.full((16,), torch.nan)}), r"bn1\.bias holds NaN"),
    ],
)
def test_weights_that_do_not_fit_name_the_keys(tmp_path: Path, change: Any, message: str) -> None:
    state = _state()
    change(state)
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(DataError, match=message):
        build(ask("cifar_resnet20", tmp_path / "w.pt"))


def test_another_networks_weights_name_a_few_keys_and_count_the_rest(tmp_path: Path) -> None:
    torch.save(_state(blocks=9), tmp_path / "w.pt")
    with pytest.raises(DataError, match=r"unexpected layer1\.3\.conv1\.weight, .* and \d+ more"):
        build(ask("cifar_resnet20", tmp_path / "w.pt"))
    with pytest.raises(DataError, match=r"missing 0\.weight.*unexpected conv1\.weight"):
        build(ask("squeezenet1_1", tmp_path / "w.pt"))


class _Trap:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (pytest.fail, ("unpickled",))


def test_files_that_are_no_weights(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"

    def refused(message: str) -> None:
        with pytest.raises(DataError, match=message):
            load_state(path)

    torch.save({"a": _Trap()}, path)
    refused(r"w\.pt: not a file of plain tensors")
    torch.save(_state(), path)
    whole = path.read_bytes()
    for damaged in (b"", b"hello", whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        refused(r"weights w\.pt: ")
    torch.save(torch.zeros(3), path)
    refused(r"holds a Tensor, not a state dict")
    torch.save({}, path)
    refused(r"not a state dict")
    torch.save({"a": torch.zeros(1), "epoch": 3}, path)
    refused(r"entry 'epoch' is a int, not a tensor")
    (tmp_path / "w.safetensors").write_bytes(b"hello")
    with pytest.raises(DataError, match=r"weights w\.safetensors: cannot be read"):
        load_state(tmp_path / "w.safetensors")
    with pytest.raises(DataError, match=r"backbone\.weights: absent\.pt does not exist"):
        build(ask("cifar_resnet20", "absent.pt"))


class TestHub:
    """torchvision's published weights, with a published address made of a local file."""

    @pytest.fixture(autouse=True)
    def _own_hub(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.hub, "_hub_dir", None)
        monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))

    def _publish(self, folder: Path, name: str = "net") -> tuple[str, Path]:
        """Address of a file that is named by its hash, and where the hub keeps it."""
        source = folder / "source.pth"
        torch.save({"a": torch.zeros(1)}, source)
        digest = hashlib.sha256(source.read_bytes()).hexdigest()[:8]
        published = source.rename(folder / f"{name}-{digest}.pth")
        return f"file://{published}", folder / "torch" / "hub" / "checkpoints" / published.name

    def test_downloaded_once_and_checked(self, tmp_path: Path) -> None:
        url, kept = self._publish(tmp_path)
        assert hub_file(url) == kept
        Path(url.removeprefix("file://")).unlink()
        assert hub_file(url) == kept

    def test_a_file_of_the_right_name_is_not_trusted(self, tmp_path: Path) -> None:
        url, kept = self._publish(tmp_path)
        kept.parent.mkdir(parents=True)
        kept.write_bytes(b"something else")
        with pytest.raises(DataError, match=r"not the published file \(its SHA-256 does not begin with"):
            hub_file(url)

    def test_a_failed_download_names_the_file_to_place(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"net-01234567\.pth: .*download failed.*TORCH_HOME/hub/checkpoints"):
            hub_file(f"file://{tmp_path}/net-01234567.pth")
        assert not list((tmp_path / "torch" / "hub" / "checkpoints").iterdir())

    def test_a_download_with_another_hash_is_not_kept(self, tmp_path: Path) -> None:
        url, kept = self._publish(tmp_path)
        Path(url.removeprefix("file://")).write_bytes(b"something else")
        with pytest.raises(DataError, match="download failed"):
            hub_file(url)
        assert not kept.exists()

    @pytest.mark.parametrize("name", ["resnet18", "squeezenet1_1", "googlenet"])
    def test_imagenet_weights_come_through_the_hub(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A model saved in place of the published file gives that model's penultimate features."""
        models = import_torchvision().models
        options = {"transform_input": True, "init_weights": True} if name == "googlenet" else {}
        model = models.get_model(name, weights=None, **options).eval()
        path = tmp_path / "model.pth"
        torch.save(model.state_dict(), path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
        path = path.rename(tmp_path / f"{name}-{digest}.pth")
        enum = type(models.get_model_weights(name).DEFAULT)
        monkeypatch.setattr(enum, "url", property(lambda _self: f"file://{path}"))
        backbone = build(ask(name, None, input_size=64))
        images = _images(2)
        mean, std = (torch.tensor(v).reshape(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
        resized = nn.functional.interpolate(to_input(images), size=(64, 64), mode="bilinear", antialias=True)
        with torch.no_grad():
            expected = penultimate(model)((resized - mean) / std).numpy()
        assert backbone.pretrained_on == "ImageNet-1k"
        assert np.allclose(backbone.extract(images), expected, atol=1e-4)


def test_old_densenet_keys_are_renamed(tmp_path: Path) -> None:
    model = import_torchvision().models.densenet121(weights=None)
    old = {
        re.sub(r"(denselayer\d+\.)(norm|conv)(\d)", r"\1\2.\3", name): value
        for name, value in model.state_dict().items()
    }
    assert old.keys() != model.state_dict().keys()
    torch.save(old, tmp_path / "densenet.pth")
    assert build(ask("densenet121", tmp_path / "densenet.pth", input_size=32)).width == 1024


# One of each family: the others differ in depth and width. (RegNet reads a parameter while it is
# built, which a model without memory does not have.)
_FAMILIES = """
    alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5
    mobilenet_v2 mobilenet_v3_large resnet50 resnext50_32x4d shufflenet_v2_x0_5 squeezenet1_0 swin_t swin_v2_t
    vgg11_bn vit_b_16 wide_resnet50_2
"""


@pytest.mark.long
@pytest.mark.parametrize("name", _FAMILIES.split())
def test_features_of_every_family_are_the_classifiers_input(name: str) -> None:
    """The width found by running is the width the last layer was built to read."""
    assert name in torchvision_names()
    models = import_torchvision().models
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    with torch.device("meta"):
        model = models.get_model(name, weights=None, **options).eval()
        last = [m for m in model.modules() if isinstance(m, nn.Linear)][-1:] or [model.classifier[1]]
        reads = last[0].in_features if isinstance(last[0], nn.Linear) else last[0].in_channels
        size = 299 if name == "inception_v3" else 224
        features = penultimate(model)(torch.zeros(2, 3, size, size))
    assert features.shape == (2, reads)


def test_a_regnet() -> None:
    assert build(ask("regnet_y_400mf", "random", input_size=32)).width == 440


def test_a_network_with_nothing_to_cut_off() -> None:
    with pytest.raises(ValueError, match="no linear classifier"):
        penultimate(nn.Sequential(nn.Conv2d(3, 8, 3)))


def _probe(backbone: Backbone, data: Any, train: int, test: int) -> float:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    features = backbone.extract(data["x_train"][:train])
    model = LinearDiscriminantAnalysis().fit(features, data["y_train"][:train])
    return float(model.score(backbone.extract(data["x_test"][:test]), data["y_test"][:test]))


@pytest.fixture(scope="module")
def cifar(shared_data: Path) -> dict[str, Any]:
    with np.load(shared_data / "cifar10_subset.npz", allow_pickle=False) as archive:
        return {name: archive[name] for name in ("x_train", "y_train", "x_test", "y_test")}


def test_the_real_cifar_resnet_classifies(cifar: dict[str, Any], shared_weights: Path) -> None:
    """Its own classifier on our features: 91.7 % on the whole test set, so about 0.92 +- 0.03 on 500."""
    path = shared_weights / "cifar10_resnet20.pt"
    state = load_state(path)
    features = build(ask("cifar_resnet20", path)).extract(cifar["x_test"][:500])
    logits = features @ state["linear.weight"].numpy().T + state["linear.bias"].numpy()
    assert 0.88 < np.mean(logits.argmax(axis=1) == cifar["y_test"][:500]) < 0.96
    assert build(ask("cifar_resnet56", shared_weights / "cifar10_resnet56.pt")).width == 64


def test_the_real_squeezenet_trunk_sees(cifar: dict[str, Any], shared_weights: Path) -> None:
    backbone = build(ask("squeezenet1_1", shared_weights / "squeezenet1_1_imagenet_features.pt"))
    random = build(ask("squeezenet1_1", "random"))
    assert backbone.width == 512
    features = backbone.extract(cifar["x_test"][:100])
    assert features.min() == 0
    assert 0.5 < np.mean(features == 0) < 0.97

    def nearest_mean(extractor: Backbone) -> float:
        train, test = (
            extractor.extract(cifar[name][:count]) for name, count in (("x_train", 400), ("x_test", 200))
        )
        train, test = (f / np.linalg.norm(f, axis=1, keepdims=True) for f in (train, test))
        means = np.stack([train[cifar["y_train"][:400] == label].mean(axis=0) for label in range(10)])
        return float(np.mean((test @ means.T).argmax(axis=1) == cifar["y_test"][:200]))

    assert nearest_mean(backbone) > nearest_mean(random) + 0.1


@pytest.mark.slow
def test_the_real_squeezenet_trunk_at_published_accuracy(cifar: dict[str, Any], shared_weights: Path) -> None:
    """60 % with 6,000 training images at 64 pixels."""
    backbone = build(ask("squeezenet1_1", shared_weights / "squeezenet1_1_imagenet_features.pt"))
    assert abs(_probe(backbone, cifar, 6000, 2500) - 0.60) < 0.03
