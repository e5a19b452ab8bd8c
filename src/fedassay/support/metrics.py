"""Facts about metrics, and the registered metrics of pairs of images.

A metric of pairs of images is one file in `fedassay/similarity`, or in another package by an entry point
`metric.NAME`: audits measure it, and tables, pages and policies show it, without knowing its name.

    @register("metric", "my_metric")
    class MyMetric:
        facts: ClassVar[MetricFacts] = MetricFacts("my_metric", "My metric", "What it says.", worse="higher")

        @staticmethod
        def measure(truth: Images, images: Images) -> Matrix | None: ...
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal, Protocol

from fedassay.support.registry import entries, lookup
from fedassay.support.types import Images, Matrix


@dataclass(frozen=True)
class Scale:
    """Position of a metric on the axis that all attacks share: 0 without an attack, 1 for a complete leak.

    Attributes:
        title: Axis label in the figure.
        nothing: Its value without an attack; None: the baseline of the finding.
        everything: Its value for a complete leak; None: the metric is a gain over `over`, and 1 is the largest
            value.
        over: The metric that the gain is measured over.
    """

    title: str
    nothing: float | None = None
    everything: float | None = None
    over: str = ""


@dataclass(frozen=True)
class MetricFacts:
    """Facts about a metric, for every report and policy that uses it.

    Attributes:
        name: Its name in findings.
        title: Column header.
        about: One sentence of explanation.
        unit: Such as `dB`; empty for plain numbers.
        worse: The direction that means a larger leak; None where neither does.
        low: The least possible value, known before any measurement; None: unknown.
        high: The largest possible value, likewise.
        likeness: For images, its rank among the figures of similarity that reports quote, 1 the first; None: it is
            shown in tables alone.
        recognisable: For images, the mean from which they count as rebuilt. A convention of this project: an
            attack succeeds where it comes closer than the attacker's prior knowledge (Balle, Cherubin and Hayes,
            "Reconstructing Training Data with Informed Adversaries", 2022). Such a picture may still show nothing
            that a person would recognise.
        scale: Its position in the figure beside other attacks; None: it is not drawn.
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
    def measure(truth: Images, images: Images) -> Matrix | None:
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
