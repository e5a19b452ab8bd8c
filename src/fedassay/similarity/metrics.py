"""The image metrics of a plan: PSNR and SSIM always, LPIPS unless the plan switches it off."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedassay.similarity.reported import reported_psnr, reported_ssim
from fedassay.similarity.spec import LpipsSpec, chosen
from fedassay.support.metrics import more_metrics
from fedassay.support.types import Images, Matrix

if TYPE_CHECKING:
    from fedassay.similarity.lpips import Lpips

_log = logging.getLogger(__name__)

PSNR_CAP = 100.0
"""Identical images have infinite PSNR; they count as this many dB, so that means stay finite."""


@dataclass(frozen=True)
class Similarity:
    """Measurements of the similarity of two images.

    Attributes:
        lpips: The loaded network, or None.
        remark: The LPIPS network used, or the reason that there is none.
        device: Device of LPIPS and of searches over pairs.
        lacks: The reason that a requested network is missing, and a file that would do; else empty.
    """

    lpips: Lpips | None
    remark: str
    device: str = "cpu"
    lacks: str = ""

    def measure(self, truth: Images, images: Images) -> dict[str, Matrix]:
        """PSNR (dB) and SSIM by scikit-image, LPIPS where it is available, and every registered metric of pairs.

        Args:
            truth: Shape (n, H, W, C), uint8.
            images: The same shape.

        Returns:
            Arrays of shape (n,) by metric name.
        """
        values: dict[str, Matrix] = {
            "psnr": np.minimum(reported_psnr(truth, images), PSNR_CAP),
            "ssim": reported_ssim(truth, images),
        }
        if self.lpips is not None:
            values["lpips"] = self.lpips.score(truth, images)
        measured = {metric.facts.name: metric.measure(truth, images) for metric in more_metrics()}
        return values | {name: each for name, each in measured.items() if each is not None}

    def warned(self) -> Similarity:
        """Log the missing network and return `self`; for the start of a run, not for every worker."""
        if self.lacks:
            _log.warning("similarity.lpips: LPIPS is not measured: %s", self.lacks)
        return self

    @property
    def remarks(self) -> dict[str, str]:
        """Remarks beside each metric: the network used, or the reason that it was not measured."""
        return {"lpips": self.remark}


def make_similarity(asked: LpipsSpec | Literal["auto"] | None, base: Path, device: str) -> Similarity:
    """The metrics that a plan's `similarity` section asks for.

    Raises:
        DataError: A trunk file is named and cannot be used.
    """
    spec = chosen(asked)
    if spec is None:
        return Similarity(None, "similarity.lpips is switched off", device)
    # The package takes seconds to import, and plans without LPIPS do not need it.
    from fedassay.similarity.lpips import Unavailable, load_lpips

    found = load_lpips(net=spec.net, trunk=spec.trunk, base=base, device=device)
    if isinstance(found, Unavailable):
        return Similarity(None, f"not available: {found.reason}", device, found.reason)
    return Similarity(found, found.description, device)
