"""Learned perceptual image patch similarity, through the package `lpips`.

Zhang, Isola, Efros, Shechtman, Wang (2018), version 0.1 of the weights: an ImageNet trunk (AlexNet, or the lighter
SqueezeNet 1.1), unit-normalised activations of each of its stages, squared differences weighted by learned heads,
averaged over positions. It is 0 for identical images; lower is more similar.

The heads ship with the package. The trunk is torchvision's published file, looked for in torch's hub folder and
downloaded if it is not there; the hash in its name is checked. A file of the user's can take its place, and the
description then says that the numbers are not official LPIPS. Where both are missing there is no number: a trunk
with random weights gives plausible numbers without a meaning.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedassay.similarity.images import check_images, check_pairs
from fedassay.similarity.spec import TRUNKS, Net
from fedassay.support.errors import DataError
from fedassay.support.paths import find
from fedassay.support.torchvision import import_torchvision
from fedassay.support.weights import assign, hub_file, load_state

SMALLEST = 32
"""Images with a side under this are enlarged: AlexNet's last stages would have no positions left."""
ENLARGED = 64
"""The shorter side after enlarging. The authors train the heads on patches of 64x64."""

_NAMES = {"alex": "AlexNet", "squeeze": "SqueezeNet 1.1"}
_CAFFE_BGR_MEAN = (103.939, 116.779, 123.68)


@dataclass(frozen=True)
class Unavailable:
    """LPIPS cannot be computed, and why; reports print the reason in place of a number."""

    reason: str


@dataclass(frozen=True)
class Lpips:
    """A loaded LPIPS network.

    Attributes:
        network: Maps two (n, 3, H, W) batches on [-1, 1] to (n, 1, 1, 1) distances.
        description: The network, its trunk, official or not, and the enlarging rule.
        device: Device of the network.
    """

    network: nn.Module
    description: str
    device: str | torch.device

    def score(self, x: NDArray[Any], y: NDArray[Any], *, batch: int = 64) -> NDArray[np.float64]:
        """LPIPS of each pair (x[i], y[i]).

        Args:
            x: (N, H, W) or (N, H, W, C) with C 1 or 3, uint8 or float in [0, 1]. Grey images are
                repeated over the three channels; a shorter side under 32 is enlarged to 64 (bilinear).
            y: the same shape.
            batch: pairs evaluated at a time.

        Returns:
            (N,), at least 0.

        Raises:
            ValueError: different shapes, another type or number of channels, values outside [0, 1].
        """
        x, y = check_pairs(x, y)
        if x.shape[3] not in (1, 3):
            raise ValueError(f"LPIPS takes images of 1 or 3 channels: {x.shape[3]} given")
        values = np.empty(len(x))
        with torch.inference_mode():
            for start in range(0, len(x), batch):
                part = slice(start, start + batch)
                distance = self.network(_as_input(x[part], self.device), _as_input(y[part], self.device))
                values[part] = distance.flatten().double().cpu().numpy()
        return values

    def embed(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """Unit-normalised activations of every stage, averaged over positions: what an image shows, wherever.

        LPIPS compares activations place by place; their means hardly move where an image is shifted or mirrored.

        Args:
            images: As those of `score`.

        Returns:
            (N, d), d the sum of the stages' channels.
        """
        checked = check_images(images, "images")
        found = []
        with torch.inference_mode():
            for start in range(0, len(checked), 64):
                planes = _as_input(checked[start : start + 64], self.device)
                stages = self.network.get_submodule("net")(self.network.get_submodule("scaling_layer")(planes))
                means = [functional.normalize(stage, dim=1).mean(dim=(2, 3)) for stage in stages]
                found.append(torch.cat(means, dim=1).cpu().numpy())
        return np.concatenate(found)


def load_lpips(
    net: Net = "alex",
    trunk: str | Path | None = None,
    *,
    base: Path | None = None,
    device: str | torch.device = "cpu",
) -> Lpips | Unavailable:
    """Loads LPIPS, or says why it cannot be had.

    Args:
        net: The trunk's architecture.
        trunk: A file to use in place of the official trunk: torchvision's whole state dict (keys
            `features.0.weight`, ...), or the trunk alone (`0.weight`, ...). Torchvision's published
            file itself, known by its hash, is official wherever it lies. A SqueezeNet trunk alone
            is taken to be trained in Caffe, as for the backbone `squeezenet1_1`: its input is blue,
            green, red on 0 to 255 less the ImageNet means.
        base: Folder that a relative `trunk` is looked for in first.
        device: Device of the computation.

    Returns:
        The network; `Unavailable` where no trunk is named and the official one is neither in torch's
        hub folder nor can be downloaded, or the file there is not the published one.

    Raises:
        DataError: The named trunk is not found, cannot be read, or does not fit the network.
    """
    if trunk is None:
        try:
            state = load_state(hub_file(TRUNKS[net][0]))
        except DataError as error:
            return Unavailable(f"LPIPS not available: {error}")
        source = "torchvision's ImageNet weights"
    else:
        path = find(trunk, base or Path(), "similarity.lpips.trunk")
        state = load_state(path)
        if _is_published(path, net):
            source = "torchvision's ImageNet weights"
        else:
            source = f"UNOFFICIAL trunk from {path.name}: not comparable with published LPIPS"
    caffe = net == "squeeze" and not any(name.startswith("features.") for name in state)
    network = _build(net, state, f"similarity.lpips.trunk: {trunk} as the trunk of {_NAMES[net]}")
    if caffe:
        network.scaling_layer = CaffeInput()
        source += ", read as Caffe-trained"
    description = (
        f"LPIPS 0.1, {_NAMES[net]}, {source}; images under {SMALLEST} pixels enlarged to {ENLARGED} (bilinear)"
    )
    return Lpips(network.to(device).eval(), description, device)


class CaffeInput(nn.Module):
    """Turns RGB on [-1, 1] into what Caffe's ImageNet networks expect: BGR on 0..255 less the means."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(_CAFFE_BGR_MEAN).view(1, 3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """(n, 3, H, W) to the same shape."""
        return (images.flip(1) + 1) * 127.5 - self.mean


def _is_published(path: Path, net: Net) -> bool:
    """Whether a file is torchvision's: the published name ends in the first digits of its SHA-256."""
    digits = TRUNKS[net][0].rpartition("-")[2].removesuffix(".pth")
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest().startswith(digits)


def _build(net: str, state: Mapping[str, Tensor], where: str) -> nn.Module:
    """The `lpips` module with every weight accounted for: trunk and heads are matched key by key."""
    import_torchvision()  # before lpips, which imports torchvision itself
    import lpips

    # The constructor would load any hub file of the right name unchecked, so it gets neither trunk
    # nor heads. What it draws at random instead is overwritten below and leaves no trace in the
    # caller's random state.
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # lpips calls torchvision by a deprecated argument
        network: nn.Module = lpips.LPIPS(pretrained=False, net=net, pnet_rand=True, verbose=False)
    layers = dict(_trunk_layers(network))
    trunk_state = {
        name.removeprefix("features."): value
        for name, value in state.items()
        if not name.startswith("classifier.")
    }
    assign(nn.ModuleDict(layers), trunk_state, where)
    heads = Path(lpips.__file__).parent / "weights" / "v0.1" / f"{net}.pth"
    named = {name: module for name, module in network.named_children() if name.startswith("lin")}
    named.pop("lins")  # the same heads in a list
    assign(nn.ModuleDict(named), load_state(heads), f"heads of lpips, {heads.name}")
    return network.requires_grad_(False)


def _trunk_layers(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The layers of the trunk under the names that torchvision gives them (`0`, `3`, ...)."""
    for stage in network.get_submodule("net").children():
        yield from stage.named_children()


def _as_input(images: NDArray[Any], device: str | torch.device) -> Tensor:
    """Checked images (n, H, W, C) as (n, 3, H', W') on [-1, 1]."""
    tensor = torch.from_numpy(np.ascontiguousarray(images)).to(device)
    unit = tensor.to(torch.float32) / 255 if images.dtype == np.uint8 else tensor.to(torch.float32)
    planes = unit.permute(0, 3, 1, 2).expand(-1, 3, -1, -1)
    height, width = planes.shape[2:]
    if min(height, width) < SMALLEST:
        factor = ENLARGED / min(height, width)
        size = (round(height * factor), round(width * factor))
        planes = nn.functional.interpolate(planes, size=size, mode="bilinear", align_corners=False)
    return planes * 2 - 1
