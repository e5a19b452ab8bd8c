"""Can private images be reconstructed from what the clients send?

Joins the truth to the images that a reconstruction attack made (paper 000, section 6.4 and appendix
E) and asks whether they are closer to the private images than what the adversary could have shown
without a generator. Every finding carries both controls: raw features of the same records must be
caught, a release without information on the records must not be flagged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedassay.audits.stats.resampling import (
    Interval,
    Statistic,
    difference,
    mean_of,
    mean_of_top,
    resampled,
)
from fedassay.errors import NotRunError
from fedassay.lab import AttackResult, Lab, Reconstruction
from fedassay.pictures import write_grid
from fedassay.record import (
    Controls,
    Finding,
    Metric,
    NegativeControl,
    Picture,
    PictureColumn,
    PositiveControl,
    unmeasured,
)
from fedassay.registry import register
from fedassay.release import exact
from fedassay.similarity.groups import group_agreement
from fedassay.similarity.nearest import nearest
from fedassay.similarity.ssim_search import most_similar
from fedassay.threat import View
from fedassay.transcript import Message, MessageField
from fedassay.values import Floats, Images, Ints, Parameters
from fedassay.vectors import VectorSource

_ASSUMPTIONS = (
    "PSNR on the data range 255, SSIM with a 7x7 uniform window",
    "leak: mean SSIM above the baseline at 95 % one-sided, corrected for the number of tests in the run",
)


@dataclass(frozen=True)
class _Scored:
    """One selection of one source: images beside truth, and the baseline's.

    Attributes:
        truth: Private images, shape (n, H, W, C).
        images: Reconstructions of them.
        baseline: What the adversary shows without a generator.
        rank: Score by which the reconstructions are selected, shape (n,).
        baseline_rank: The same for the baseline.
        top: How many of the n are kept; n keeps all.
    """

    truth: Images
    images: Images
    baseline: Images
    rank: NDArray[np.float64]
    baseline_rank: NDArray[np.float64]
    top: int


@register("audit", "reconstruction")
class ReconstructionAudit(Parameters):
    """Are reconstructed images closer to the private ones than the baseline's?"""

    reads: ClassVar[tuple[str, ...]] = ("feature_diffusion",)
    tests_per_cell: ClassVar[int] = 4

    near_duplicates: float = Field(default=0.1, ge=0, lt=1)
    """Share of the private images dropped beforehand: those most similar (SSIM) to an attacker image."""
    top: float = Field(default=0.01, gt=0, le=1)
    """Share that the selections `attacker` and `oracle` keep."""
    at_least: int = Field(default=20, ge=2)
    """They keep at least so many."""
    draws: int = Field(default=2000, ge=200)
    """Bootstrap resamples."""
    pictures: int = Field(default=8, ge=0)
    """Columns of a picture grid."""

    def assess(self, result: AttackResult | None, lab: Lab) -> list[Finding]:
        """One finding for each source and selection of the attack's reconstructions."""
        assert result is not None
        if lab.attacker is None:
            raise NotRunError("no attacker records: the baselines need some")
        if not result.reconstructions:
            raise NotRunError("the attack reconstructed nothing")
        truth = _Truth.of(lab, self.near_duplicates)
        findings = []
        for reconstruction in result.reconstructions:
            if reconstruction.source.paired:
                findings += self._paired(reconstruction, result, truth, lab)
            else:
                findings += self._set_level(reconstruction, result, truth, lab)
        return findings
