"""What a plan says of the image metrics; light to import, since plans are read without torch."""

from __future__ import annotations

from typing import Literal

from fedassay.support.types import Frozen


class LpipsSpec(Frozen):
    """`similarity.lpips`: which LPIPS network, and a trunk file to use in place of the official one."""

    net: Literal["alex", "squeeze"] = "alex"
    trunk: str | None = None
