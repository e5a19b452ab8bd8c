"""LPIPS: never a random trunk's number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from skimage import data

from fedassay.similarity.lpips import CaffeInput, Lpips, Unavailable, load_lpips
from fedassay.similarity.spec import TRUNKS
from fedassay.support import weights
from fedassay.support.errors import DataError
from fedassay.support.torchvision import import_torchvision

pytestmark = pytest.mark.usefixtures("online")

TRUNK = "squeezenet1_1_imagenet_features.pt"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub folder and no network."""

    def refuse(*arguments: object, **options: object) -> None:
        raise DataError("the download failed (no network in this test)")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(weights, "download", refuse)
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def caffe(shared_weights: Path) -> Lpips:
    loaded = load_lpips("squeeze", TRUNK, base=shared_weights)
    assert isinstance(loaded, Lpips)
    return loaded


@pytest.fixture(scope="module")
def random_squeezenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """torchvision's whole SqueezeNet with known weights, as a user's own file."""
    path = tmp_path_factory.mktemp("weights") / "own.pt"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        torch.save(import_torchvision().models.squeezenet1_1(weights=None).state_dict(), path)
    return path


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("net", ["alex", "squeeze"])
def test_no_trunk_is_unavailable_with_the_reason(net: str) -> None:
    found = load_lpips(net)  # type: ignore[arg-type]
    assert isinstance(found, Unavailable)
    assert "not available" in found.reason
    assert "no network in this test" in found.reason


def test_a_hub_file_that_is_not_the_published_one_is_unavailable(hub: Path) -> None:
    torch.save({"features.0.weight": torch.zeros(64, 3, 11, 11)}, hub / "alexnet-owt-7be5be79.pth")
    found = load_lpips("alex")
    assert isinstance(found, Unavailable)
    assert "not the published file" in found.reason


def test_a_file_with_the_published_hash_is_official(
    random_squeezenet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hashlib

    digest = hashlib.sha256(random_squeezenet.read_bytes()).hexdigest()
    monkeypatch.setitem(TRUNKS, "squeeze", (f"https://example.org/squeezenet1_1-{digest[:8]}.pth", 5.0))
    found = load_lpips("squeeze", random_squeezenet)
    assert isinstance(found, Lpips)
    assert "UNOFFICIAL" not in found.description


@pytest.mark.filterwarnings("ignore:The parameter 'pretrained':UserWarning")
@pytest.mark.filterwarnings("ignore:Arguments other than a weight enum:UserWarning")
def test_the_trunk_and_heads_are_those_of_the_package(random_squeezenet: Path) -> None:
    found = load_lpips("squeeze", random_squeezenet)
    assert isinstance(found, Lpips)
    assert "UNOFFICIAL trunk from own.pt" in found.description
    assert "Caffe" not in found.description
    import lpips as package

    direct = package.LPIPS(net="squeeze", pnet_rand=True, verbose=False)
    features = import_torchvision().models.squeezenet1_1(weights=None)
    features.load_state_dict(torch.load(random_squeezenet, weights_only=True))
    for stage in direct.net.children():
        for name, layer in stage.named_children():
            layer.load_state_dict(features.features[int(name)].state_dict())
    x, y = data.astronaut()[None, :64, :64], data.chelsea()[None, :64, :64]
    left, right = (torch.from_numpy(a).permute(0, 3, 1, 2) / 127.5 - 1 for a in (x, y))
    assert found.score(x, y)[0] == pytest.approx(direct(left, right).item(), rel=1e-5)


def test_loading_leaves_the_random_state_alone(random_squeezenet: Path) -> None:
    before = torch.random.get_rng_state()
    load_lpips("squeeze", random_squeezenet)
    torch.testing.assert_close(torch.random.get_rng_state(), before)


def test_caffe_input_is_bgr_less_the_means() -> None:
    red = torch.tensor([1.0, -1.0, -1.0]).view(1, 3, 1, 1)
    expected = torch.tensor([-103.939, -116.779, 255 - 123.68]).view(1, 3, 1, 1)
    torch.testing.assert_close(CaffeInput()(red), expected)


def test_unofficial_trunk_orders_images_as_people_do(caffe: Lpips) -> None:
    assert "UNOFFICIAL" in caffe.description
    assert "read as Caffe-trained" in caffe.description
    pictures = np.stack([p[40:104, 60:124] for p in (data.astronaut(), data.chelsea(), data.coffee())])
    rng = np.random.default_rng(0)
    scores = [
        caffe.score(pictures, np.clip(pictures + rng.normal(0, sigma, pictures.shape), 0, 255).astype(np.uint8))
        for sigma in (0, 5, 15, 45)
    ]
    np.testing.assert_allclose(scores[0], 0, atol=1e-7)
    assert np.all(np.diff(scores, axis=0) > 0)
    shifted = caffe.score(pictures[:, :, 1:], pictures[:, :, :-1])
    assert np.all(shifted < caffe.score(pictures, np.roll(pictures, 1, axis=0)))


def test_symmetry_batches_types_and_small_images(caffe: Lpips) -> None:
    images = np.stack([data.astronaut()[i : i + 8, 200:208] for i in range(0, 80, 8)])
    x, y = images[:5], images[5:]
    values = caffe.score(x, y)
    assert np.all(values > 0)
    np.testing.assert_allclose(caffe.score(y, x), values, rtol=1e-5)
    np.testing.assert_allclose(caffe.score(x, y, batch=2), values, rtol=1e-5)
    np.testing.assert_allclose(caffe.score(x / 255, y), values, rtol=1e-5)
    grey = caffe.score(x[..., 0], y[..., 0])
    np.testing.assert_allclose(grey, caffe.score(x[..., :1].repeat(3, 3), y[..., :1].repeat(3, 3)), rtol=1e-5)
    with pytest.raises(ValueError, match="1 or 3 channels"):
        caffe.score(x[..., :2], y[..., :2])


def test_wrong_trunks_are_refused_by_name(random_squeezenet: Path, tmp_path: Path) -> None:
    state = torch.load(random_squeezenet, weights_only=True)
    state["features.0.wieght"] = state.pop("features.0.weight")
    torch.save(state, tmp_path / "typo.pt")
    with pytest.raises(DataError, match=r"missing 0\.weight; unexpected 0\.wieght"):
        load_lpips("squeeze", "typo.pt", base=tmp_path)
    with pytest.raises(DataError, match="AlexNet: does not fit"):
        load_lpips("alex", random_squeezenet)
    (tmp_path / "text.pt").write_text("not weights")
    with pytest.raises(DataError, match=r"weights text\.pt"):
        load_lpips("squeeze", "text.pt", base=tmp_path)
    with pytest.raises(DataError, match=r"similarity\.lpips\.trunk: absent\.pt does not exist"):
        load_lpips("squeeze", "absent.pt", base=tmp_path)
