"""What a plan says of the image metrics; light to import, since plans are read without torch."""

from __future__ import annotations

from typing import Literal

from fedassay.support.types import Parameters

Net = Literal["alex", "squeeze"]
"""The networks that LPIPS compares images by."""

AUTO: Net = "squeeze"
"""That of `lpips: auto`: always the same, so that its numbers compare, and a fiftieth of the other's size."""

TRUNKS: dict[Net, tuple[str, float]] = {
    "alex": ("https://download.pytorch.org/models/alexnet-owt-7be5be79.pth", 244.4),
    "squeeze": ("https://download.pytorch.org/models/squeezenet1_1-b8a52dc0.pth", 5.0),
}
"""Where the official trunk of each is published, and its size in MB; its name ends in digits of its SHA-256."""


class LpipsSpec(Parameters):
    """`similarity.lpips`: which LPIPS network, and a trunk file to use in place of the official one."""

    net: Net = "alex"
    """The network that LPIPS compares images by: AlexNet or SqueezeNet."""
    trunk: str | None = None
    """A file to use in place of torchvision's own weights of that network."""


def chosen(asked: LpipsSpec | Literal["auto"] | None) -> LpipsSpec | None:
    """What `similarity.lpips` asks for: `auto` is the smaller network on its official trunk."""
    return LpipsSpec(net=AUTO) if asked == "auto" else asked
