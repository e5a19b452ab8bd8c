"""What a plan says of the image metrics; light to import, since plans are read without torch."""

from __future__ import annotations

from typing import Literal

from fedassay.support.types import Parameters


class LpipsSpec(Parameters):
    """`similarity.lpips`: which LPIPS network, and a trunk file to use in place of the official one."""

    net: Literal["alex", "squeeze"] = "alex"
    """The network that LPIPS compares images by: AlexNet or SqueezeNet."""
    trunk: str | None = None
    """A file to use in place of torchvision's own weights of that network."""
