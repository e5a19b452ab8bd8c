"""The names of measured figures: how they are headed, in which unit, and which way is worse."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedassay.records.record import CellRecord, Metric


@dataclass(frozen=True)
class Meaning:
    """What a metric's name stands for.

    Attributes:
        title: Column header.
        hint: One sentence of explanation.
    """

    title: str
    hint: str


MEANINGS: dict[str, Meaning] = {
    "psnr": Meaning("PSNR", "Peak signal-to-noise ratio to the private image, in dB; higher is closer."),
    "ssim": Meaning("SSIM", "Structural similarity to the private image, at most 1; higher is closer."),
    "lpips": Meaning("LPIPS", "Learned perceptual distance to the private image; lower is closer."),
    "ssim_gain": Meaning("SSIM gain", "SSIM above the baseline's, paired by target; above 0 is leakage."),
    "relative_error": Meaning("Relative error", "Of recovered features, median over recovered records."),
    "cosine": Meaning("Cosine", "Of recovered with true features, median over recovered records."),
    "claimed": Meaning("Claimed ε", "What the plan asked for."),
    "accounted": Meaning("Accounted ε", "Everything that leaves, on exact sensitivities: an upper bound."),
    "accounted_stated": Meaning("Accounted ε, stated", "The same on the source's own stated sensitivities."),
    "observed": Meaning("Observed ε", "A lower bound that an attack showed, 95 % one-sided."),
    "mu": Meaning("μ", "Total Gaussian-DP parameter, where everything is Gaussian."),
    "auc": Meaning("AUC", "Area under the ROC curve of the membership test; 0.5 is guessing."),
    "tpr_at_1pct": Meaning("TPR at 1 % FPR", "Members found while 1 % of non-members are accused."),
    "tpr_at_0.1pct": Meaning("TPR at 0.1 % FPR", "Members found while 0.1 % of non-members are accused."),
    "min_distance": Meaning(
        "Smallest score", "Smallest memorization score of a generated image; below 1 is a copy."
    ),
    "under_threshold": Meaning("Under threshold", "Generated images whose memorization score is below 1."),
    "heldout_gap": Meaning("Held-out gap", "How much closer samples lie to training than to held-out images."),
}
"""The metric names that the run record fixes; audits may add their own, headed by their name."""

UTILITY = ("accuracy",)
COMMUNICATION = ("bytes_up", "bytes_down")
PRIVACY = ("claimed", "accounted", "accounted_stated", "observed", "mu")


def title(name: str) -> str:
    """Column header of a metric."""
    known = MEANINGS.get(name)
    return known.title if known else name.replace("_", " ").capitalize()


def hint(name: str) -> str:
    """Explanation of a metric, empty for names the record does not fix."""
    known = MEANINGS.get(name)
    return known.hint if known else ""


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Names once each: the fixed ones in their usual order, then the others as they come."""
    given = list(dict.fromkeys(names))
    return tuple([name for name in MEANINGS if name in given] + [name for name in given if name not in MEANINGS])


def utility_names(cells: Iterable[CellRecord]) -> tuple[str, ...]:
    """Names of the utility figures; `x_low`, `x_high` and `x_n` belong to `x`."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.utility))
    owned = {f"{name}_{part}" for name in names for part in ("low", "high", "n")}
    kept = [name for name in names if name not in owned]
    return tuple(sorted(kept, key=lambda name: name not in UTILITY))


def utility(cell: CellRecord, name: str) -> Metric:
    """A utility figure of a cell, with its interval where the record holds one."""
    value = cell.utility.get(name)
    if value is None:
        return Metric(value=None, reason=f"this method gives no {name.replace('_', ' ')}")
    count = cell.utility.get(f"{name}_n")
    return Metric(
        value=value,
        low=cell.utility.get(f"{name}_low"),
        high=cell.utility.get(f"{name}_high"),
        n=None if count is None else round(count),
    )
