"""The result of every interval of the project: an estimate with its ends and method, or the reason for none."""

from __future__ import annotations

from dataclasses import dataclass

from fedassay.records.record import Metric


@dataclass(frozen=True)
class Estimate:
    """A value with a two-sided confidence interval.

    Attributes:
        value: The estimate; None where it cannot be had.
        low: Lower end; None where there is no interval.
        high: Upper end; None where there is no interval.
        n: Observations behind it.
        method: Name of the interval, and of its target where that is not the value's own; "" without one.
        reason: Reason why there is no value, or no interval; None where there are both.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    method: str = ""
    reason: str | None = None

    def metric(self, reason: str = "", unit: str = "") -> Metric:
        """The estimate in a finding, with a remark on it; without one, with the reason why it is not whole."""
        return Metric(
            value=self.value,
            low=self.low,
            high=self.high,
            n=self.n,
            unit=unit,
            reason=reason or self.reason or "",
        )


def check_level(level: float) -> None:
    """Refuse a confidence level outside (0, 1)."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")
