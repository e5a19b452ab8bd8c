"""Intervals by type of data: coverage by simulation, at the numbers of values that audits have."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta

from fedassay.audits.stats.typed_intervals import Binary, Bounded, DataType, Unbounded, interval, mean_of_top

# Laws on the unit interval: SSIM-like, skewed either way, rare ones. With their means.
BOUNDED = {
    "normal": (lambda rng, n: np.clip(0.5 + 0.1 * rng.standard_normal(n), 0, 1), 0.5),
    "right-skewed": (lambda rng, n: rng.beta(0.5, 5, n), 0.5 / 5.5),
    "left-skewed": (lambda rng, n: rng.beta(5, 0.5, n), 5 / 5.5),
    "rare ones": (lambda rng, n: (rng.random(n) < 0.05).astype(float), 0.05),
    "few values": (lambda rng, n: rng.integers(0, 3, n) / 2, 0.5),
}
UNBOUNDED = {
    "normal": (lambda rng, n: rng.standard_normal(n), 0.0, 0.0),
    "lognormal": (lambda rng, n: rng.lognormal(size=n), 1.0, math.exp(0.5)),
    "minus lognormal": (lambda rng, n: -rng.lognormal(size=n), -1.0, -math.exp(0.5)),
}
LEVEL = 0.95


def coverage(law, truth: float, n: int, kind: DataType, runs: int) -> float:
    rng = np.random.default_rng([n, runs])
    found = (interval(law(rng, n), kind, level=LEVEL) for _ in range(runs))
    return float(np.mean([each.low is not None and each.low <= truth <= each.high for each in found]))


def least(runs: int) -> float:
    """The nominal level minus three standard deviations of the simulation."""
    return LEVEL - 3 * math.sqrt(LEVEL * (1 - LEVEL) / runs)


@pytest.mark.long
@pytest.mark.parametrize("n", [5, 20, 100])
@pytest.mark.parametrize("law", BOUNDED)
def test_betting_covers_the_mean_of_a_known_range(law: str, n: int) -> None:
    draw, mean = BOUNDED[law]
    assert coverage(draw, mean, n, Bounded(0, 1), 400) >= least(400)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 5, 20, 100, 1000])
@pytest.mark.parametrize("law", BOUNDED)
def test_betting_covers_the_mean_in_many_runs(law: str, n: int) -> None:
    draw, mean = BOUNDED[law]
    runs = 4000 if n < 1000 else 1000
    assert coverage(draw, mean, n, Bounded(0, 1), runs) >= least(runs)


@pytest.mark.parametrize("n", [5, 20, 100])
def test_clopper_pearson_covers_rare_ones(n: int) -> None:
    draw, share = BOUNDED["rare ones"]
    assert coverage(draw, share, n, Binary(), 2000) >= least(2000)


@pytest.mark.parametrize("level", [0.8, 0.99])
def test_shares_have_the_level_that_is_asked_for(level: float) -> None:
    found = interval(np.repeat([0.0, 1.0], (30, 12)), Binary(), level=level)
    tail = (1 - level) / 2
    assert found.low == pytest.approx(beta.ppf(tail, 12, 31))
    assert found.high == pytest.approx(beta.isf(tail, 13, 30))


@pytest.mark.parametrize("n", [6, 20, 100])
@pytest.mark.parametrize("law", UNBOUNDED)
def test_order_statistics_cover_the_median(law: str, n: int) -> None:
    draw, median, _ = UNBOUNDED[law]
    covered = coverage(draw, median, n, Unbounded("median"), 4000)
    assert least(4000) <= covered <= 0.985


@pytest.mark.long
@pytest.mark.parametrize("law", UNBOUNDED)
def test_the_bootstrap_of_a_mean_is_named_approximate(law: str) -> None:
    """At n = 100: near nominal for normal values, and what skewness costs is known."""
    draw, _, mean = UNBOUNDED[law]
    found = interval(draw(np.random.default_rng(0), 100), Unbounded("mean"))
    assert "approximate" in found.method
    assert coverage(draw, mean, 100, Unbounded("mean"), 400) >= (0.92 if law == "normal" else 0.86)


def test_without_an_interval_there_is_a_reason() -> None:
    values = np.random.default_rng(0).standard_normal(99)
    mean = interval(values, Unbounded("mean"))
    assert (mean.low, mean.high) == (None, None)
    assert mean.value == pytest.approx(values.mean())
    assert "100" in mean.reason
    median = interval(values[:5], Unbounded("median"))
    assert (median.low, median.high) == (None, None)
    assert "6 have" in median.reason
    assert interval(values[:6], Unbounded("median")).low == values[:6].min()


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_the_reason_names_the_smallest_number_that_would_do(level: float) -> None:
    few = interval(np.zeros(1), Unbounded("median"), level=level)
    if few.reason is None:
        return
    needed = int(few.reason.split("; ")[1].split()[0])
    assert interval(np.arange(needed), Unbounded("median"), level=level).low is not None
    assert interval(np.arange(needed - 1), Unbounded("median"), level=level).low is None


def test_betting_shrinks_with_what_is_known() -> None:
    rng = np.random.default_rng(1)
    widths = [np.ptp(betting(rng.uniform(0.45, 0.55, n))) for n in (10, 100, 1000, 10000)]
    assert np.all(np.diff(widths) < 0)
    assert widths[-1] < 0.01
    # A range that is wider than need be costs width, and scales with the values.
    narrow, wide = betting(rng.uniform(0.4, 0.6, 200)), interval(rng.uniform(0.4, 0.6, 200), Bounded(-5, 5))
    assert np.ptp(narrow) < wide.high - wide.low
    values = rng.uniform(0, 1, 50)
    scaled = interval(7 * values - 3, Bounded(-3, 4))
    assert (scaled.low, scaled.high) == pytest.approx(tuple(7 * np.array(betting(values)) - 3))


def betting(values) -> tuple[float, float]:
    found = interval(values, Bounded(0, 1))
    return found.low, found.high


def test_betting_covers_sorted_values() -> None:
    """Values that come sorted are put in random order: bets on a trend would win every time."""
    covered = []
    for seed in range(400):
        values = np.sort(np.random.default_rng(seed).beta(2, 2, 60))
        low, high = betting(values)
        covered.append(low <= 0.5 <= high)
    assert np.mean(covered) >= least(400)


@pytest.mark.parametrize("n", [20, 100])
def test_the_mean_of_the_top_covers_its_own_target(n: int) -> None:
    """The best fifth by the values themselves: the mean of the law above the next record's value."""
    covered, rng = [], np.random.default_rng(n)
    for _ in range(400):
        values = rng.beta(2, 5, n)
        found = mean_of_top(values, values, n // 5, Bounded(0, 1))
        edge = np.sort(values)[-(n // 5) - 1]
        # E[X; X > edge] of Beta(2, 5) is 2/7 of the survival function of Beta(3, 5).
        truth = 2 / 7 * beta.sf(edge, 3, 5) / beta.sf(edge, 2, 5)
        covered.append(found.low <= truth <= found.high)
        assert "above the next one" in found.method
        assert found.low >= edge
    assert np.mean(covered) >= least(400)


def test_what_selects_bounds_what_it_selected() -> None:
    """20 best of 400 by another score may lie anywhere in the range; by their own values, above the next one."""
    rng = np.random.default_rng(4)
    values = rng.normal(0.5, 0.1, 400).clip(-1, 1)
    widths = []
    for ranks in (values, rng.random(400)):
        found = mean_of_top(values, ranks, 20, Bounded(-1, 1))
        widths.append(found.high - found.low)
    assert widths[0] < widths[1] / 3


def test_the_mean_of_the_top_has_none_where_it_cannot() -> None:
    values = np.random.default_rng(0).standard_normal(400)
    few = mean_of_top(values, values, 20, Unbounded("mean"))
    assert few.value == pytest.approx(np.sort(values)[-20:].mean())
    assert few.low is None
    assert few.reason is not None
    tied = mean_of_top(np.linspace(0, 1, 10), np.repeat([0.0, 1.0], 5), 3, Bounded(0, 1))
    assert tied.low is None
    assert "tie" in tied.reason
    assert (few.n, tied.n) == (20, 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: interval([0.0, 0.5], Binary()),
        lambda: interval([0.0, 1.5], Bounded(0, 1)),
        lambda: interval([], Unbounded()),
        lambda: interval([1.0, math.nan], Unbounded()),
        lambda: interval([0.0, 1.0], Binary(), level=1.0),
        lambda: interval([0.0], Bounded(1, 1)),
        lambda: mean_of_top([1.0, 2.0], [1.0, 2.0], 3, Unbounded()),
    ],
)
def test_nonsense_is_refused(call) -> None:
    with pytest.raises(ValueError, match=r"must|needed"):
        call()
