"""What the name of a metric stands for, and the metrics of pairs of images that are registered.

A metric of pairs of images is one file in `fedassay/similarity`, or in another package by an entry point
`metric.NAME`: audits measure it, and tables, pages and policies show it, without knowing its name.

    @register("metric", "my_metric")
    class MyMetric:
        facts: ClassVar[MetricFacts] = MetricFacts("my_metric", "My metric", "What it says.", worse="higher")

        @staticmethod
        def measure(truth: Images, images: Images) -> NDArray[np.float64] | None: ...
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedassay.support.registry import entries, lookup
from fedassay.support.types import Images


@dataclass(frozen=True)
class Scale:
    """How a metric fits on the axis that all attacks share: 0 without an attack, 1 where all is taken.

    Attributes:
        title: In the figure.
        nothing: Its value without an attack; None: what the finding has as its baseline.
        everything: Its value where all is taken; None: it is a gain over `over`, of which 1 is the most.
        over: The metric whose baseline a gain is over.
    """

    title: str
    nothing: float | None = None
    everything: float | None = None
    over: str = ""


@dataclass(frozen=True)
class MetricFacts:
    """What the name of a metric stands for, wherever a report or a policy uses it.

    Attributes:
        name: As findings hold it.
        title: Column header.
        about: One sentence of explanation.
        unit: Such as `dB`; empty for plain numbers.
        worse: Which way gives more away; None where neither does.
        low: The least value that there can be, known before any is seen; None: unknown.
        high: The largest, likewise.
        likeness: Of images, its place among the figures by which reports say how near they came, 1 the first;
            None: it stands in tables alone.
        recognisable: Of images, the mean from which they count as rebuilt. A convention of this project: an attack
            succeeds where it comes closer than whatever the attacker had (Balle, Cherubin and Hayes,
            "Reconstructing Training Data with Informed Adversaries", 2022), but a picture may do that and show
            nothing that a person would recognise.
        scale: How it is drawn beside other attacks; None: it is not.
    """

    name: str
    title: str
    about: str
    unit: str = ""
    worse: Literal["higher", "lower"] | None = None
    low: float | None = None
    high: float | None = None
    likeness: int | None = None
    recognisable: float | None = None
    scale: Scale | None = None


class PairMetric(Protocol):
    """A metric of pairs of images beside PSNR, SSIM and LPIPS."""

    facts: ClassVar[MetricFacts]

    @staticmethod
    def measure(truth: Images, images: Images) -> NDArray[np.float64] | None:
        """The metric of each pair.

        Args:
            truth: Shape (n, H, W, C), uint8.
            images: The same shape.

        Returns:
            Shape (n,); None where it is not defined for images of this size.
        """
        ...


@cache
def more_metrics() -> tuple[type[PairMetric], ...]:
    """The registered metrics of pairs of images."""
    return tuple(lookup("metric", name) for name in entries("metric"))
