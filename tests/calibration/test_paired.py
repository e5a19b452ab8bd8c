"""Sign-flip test: its size where gains are symmetric, its power, and what it says where they are not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import wilcoxon

from fedassay.audits.stats.below_baseline import auc_below_half, below_baseline
from fedassay.audits.stats.paired import paired_test, sign_flip, smallest_pairs
from fedassay.audits.stats.permutation import gap


def _signed(magnitudes):
    return lambda rng, n: magnitudes(rng, n) * rng.choice([-1.0, 1.0], n)


SYMMETRIC = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "lognormal magnitudes": _signed(lambda rng, n: rng.lognormal(sigma=2, size=n)),
    "unequal spreads": _signed(lambda rng, n: rng.standard_normal(n) * 10.0 ** -np.arange(n)),
    "5 % ones": _signed(lambda rng, n: (rng.random(n) < 0.05).astype(float)),
}


def sizes(law, n: int, runs: int, levels=(0.05, 0.0025)) -> list[float]:
    rng = np.random.default_rng([n, runs])
    found = np.array([sign_flip(law(rng, n), rng, tests=20).p for _ in range(runs)])
    return [float(np.mean(found <= level)) for level in levels]


@pytest.mark.parametrize("n", [5, 20])
@pytest.mark.parametrize("law", SYMMETRIC)
def test_the_size_is_nominal_for_symmetric_gains(law: str, n: int) -> None:
    for size, level in zip(sizes(SYMMETRIC[law], n, 800), (0.05, 0.0025), strict=True):
        assert size <= level + 3 * math.sqrt(level / 800)


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 20, 100])
@pytest.mark.parametrize("law", SYMMETRIC)
def test_the_size_is_nominal_in_many_runs(law: str, n: int) -> None:
    for size, level in zip(sizes(SYMMETRIC[law], n, 4000), (0.05, 0.0025), strict=True):
        assert size <= level + 3 * math.sqrt(level / 4000)


@pytest.mark.slow
def test_what_left_skewness_does_is_what_the_module_says() -> None:
    """Minus a centred lognormal has mean 0 and is not symmetric: rejected beyond the level, except of 5 pairs."""

    def law(rng, n):
        return math.exp(0.5) - rng.lognormal(size=n)

    assert sizes(law, 5, 2000, (0.0025,)) == [0.0]
    assert sizes(law, 20, 2000, (0.0025,))[0] == pytest.approx(0.06, abs=0.02)
    assert sizes(law, 100, 2000, (0.0025,))[0] == pytest.approx(0.02, abs=0.012)


def test_few_pairs_cannot_reject() -> None:
    assert [smallest_pairs(level) for level in (0.5, 0.05, 0.03125, 0.01, 0.0025)] == [1, 5, 5, 7, 9]
    for level in (0.05, 0.01, 0.0025):
        n, rng = smallest_pairs(level), np.random.default_rng(0)
        best = sign_flip(np.arange(1.0, n + 1), rng)
        assert best.p == best.smallest == 2.0**-n <= level
        assert sign_flip(np.arange(1.0, n), rng).p > level


def test_all_exchanges_of_few_pairs_are_gone_through() -> None:
    """Signed ranks make it Wilcoxon's test, whose exact p-value is tabled."""
    rng = np.random.default_rng(3)
    for n in (4, 9, 13):
        ranks = rng.permutation(np.arange(1.0, n + 1)) * rng.choice([-1, 1], n)
        found = sign_flip(ranks, rng)
        assert found.exact
        assert found.p == pytest.approx(wilcoxon(ranks, alternative="greater", method="exact").pvalue)


def test_drawn_exchanges_agree_with_all_of_them() -> None:
    rng = np.random.default_rng(4)
    ranks = np.arange(1.0, 31) * rng.choice([-1, 1], 30, p=[0.3, 0.7])
    found = sign_flip(ranks, rng, draws=40_000)
    assert not found.exact
    assert found.smallest == pytest.approx(1 / 40_001)
    truth = wilcoxon(ranks, alternative="greater", method="exact").pvalue
    assert found.p == pytest.approx(truth, abs=4 * math.sqrt(truth / 40_000))


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_units_do_not_matter(scale: float) -> None:
    gains = np.array([0.1, 0.2, -0.05, 0.3, 0.1, 0.25, 0.2, 0.1])
    assert sign_flip(scale * gains, np.random.default_rng(0)).p == 2 / 256 == pytest.approx(0.0078125)


def test_the_choice_of_the_best_is_part_of_the_test() -> None:
    """Each side chooses its own best twenty of 200; nothing is won by choosing."""
    rng, small = np.random.default_rng(5), []
    for _ in range(300):
        first, second = rng.beta(5, 2, size=(2, 200)) * rng.beta(9, 1, size=200)
        small.append(paired_test(first, second, rng, top=20, draws=300).p <= 0.05)
    assert 0.01 <= np.mean(small) <= 0.05 + 3 * math.sqrt(0.05 / 300)


def test_a_real_gain_is_found_by_the_ranks_that_chose_it() -> None:
    rng = np.random.default_rng(6)
    base, ranks = rng.random(200), rng.random((2, 200))
    found = paired_test(base + 0.5, base, rng, ranks=(ranks[0], ranks[0]), top=20)
    assert found.value == pytest.approx(0.5)
    assert found.p <= 0.001
    # Both sides choose the same pairs: only these can be exchanged, so that few of them cannot reject.
    few = paired_test(base + 0.5, base, rng, ranks=(ranks[0], ranks[0]), top=4)
    assert few.p == few.smallest == 2.0**-4
    whole = paired_test(base + 0.05 * rng.random(200), base, rng)
    assert whole.p <= 0.001


def test_smallest_p_of_groups_is_stated() -> None:
    rng = np.random.default_rng(7)
    found = gap(np.array([9.0, 8.0]), np.array([1.0, 2.0]), rng)
    assert found.smallest == pytest.approx(1 / 6)
    assert gap(rng.random(50), rng.random(50), rng).smallest == pytest.approx(1 / 2001)


@pytest.mark.long
@pytest.mark.parametrize("n", [5, 20, 100])
def test_an_area_below_one_half_is_flagged_at_its_level(n: int) -> None:
    rng, runs = np.random.default_rng(n), 1000
    for scores in (rng.standard_normal((runs, 2, n)), rng.integers(0, 3, (runs, 2, n)).astype(float)):
        small = np.mean([auc_below_half(*pair) <= 0.025 for pair in scores])
        assert small <= 0.025 + 3 * math.sqrt(0.025 / runs)
    assert auc_below_half(rng.random(n) + 2, rng.random(n)) <= 0.005
    assert auc_below_half(rng.random(n), rng.random(n) + 2) >= 0.99


def test_an_attack_below_its_baseline_is_flagged() -> None:
    rng = np.random.default_rng(8)
    ours, base = 0.29 + 0.1 * rng.standard_normal((2, 40))
    assert below_baseline(ours, base + 0.5, rng).p <= 0.001
    assert below_baseline(ours + 0.5, base, rng).p >= 0.99
    ranks = (-np.arange(40.0), np.arange(40.0))
    chosen = below_baseline(np.arange(40.0), np.arange(40.0), rng, ranks=ranks, top=5)
    assert chosen.value == pytest.approx(35.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda rng: paired_test(np.zeros(3), np.zeros(4), rng),
        lambda rng: sign_flip(np.array([1.0, math.nan]), rng),
        lambda rng: paired_test(np.zeros(3), np.zeros(3), rng, top=4),
        lambda rng: smallest_pairs(0.0),
    ],
)
def test_nonsense_is_refused(call) -> None:
    with pytest.raises(ValueError, match=r"must|needed"):
        call(np.random.default_rng(0))


def test_a_test_that_stops_early_errs_no_more_often_than_the_level() -> None:
    """At 100 tests a run draws 6,000 arrangements, or the first 500 where 20 of these are as high."""
    rng, seen = np.random.default_rng(12), []
    for _ in range(1500):
        first, second = rng.normal(size=(2, 30))
        seen.append(paired_test(first, second, rng, tests=100, draws=500).p)
    shares = {level: float(np.mean(np.array(seen) <= level)) for level in (0.5, 0.2, 0.05, 0.01)}
    assert all(share <= level + 3.5 * np.sqrt(level / 1500) for level, share in shares.items()), shares
    assert shares[0.5] > 0.4
    clear = paired_test(first + 2, second, rng, tests=100, draws=500)
    assert clear.p <= 0.05 / 100
    assert clear.smallest == pytest.approx(1 / 6_001)
