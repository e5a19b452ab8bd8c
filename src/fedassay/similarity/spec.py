"""A plan's settings of the image metrics; light to import, since plans are read without torch."""

from __future__ import annotations

from typing import Literal

from fedassay.support.types import Parameters

Net = Literal["alex", "squeeze"]
"""The networks that LPIPS compares images by."""

AUTO: Net = "squeeze"
"""The network of `lpips: auto`: always the same, for comparable numbers, and a fiftieth of the other's size."""

TRUNKS: dict[Net, tuple[str, float]] = {
    "alex": ("https://download.pytorch.org/models/alexnet-owt-7be5be79.pth", 244.4),
    "squeeze": ("https://download.pytorch.org/models/squeezenet1_1-b8a52dc0.pth", 5.0),
}
"""URL of each official trunk, and its size in MB; its name ends in digits of its SHA-256."""


class LpipsSpec(Parameters):
    """`similarity.lpips`: which LPIPS network, and a trunk file to use in place of the official one."""

    net: Net = "alex"
    """The network that LPIPS compares images by: AlexNet or SqueezeNet."""
    trunk: str | None = None
    """A file to use in place of torchvision's own weights of that network."""


def chosen(asked: LpipsSpec | Literal["auto"] | None) -> LpipsSpec | None:
    """Return the network that `similarity.lpips` asks for: `auto` is the smaller one on its official trunk."""
    return LpipsSpec(net=AUTO) if asked == "auto" else asked
