"""How numbers are printed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.records.record import Metric, unmeasured
from fedassay.reports.words.numbers import DASH, duration, interval, short, significant, size

_SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-")


def read(text: str) -> float:
    """A printed number as a number again."""
    return float(text.translate(_SUPERSCRIPTS).replace(",", "").replace(" × 10", "e"))


@given(st.floats(min_value=1e-30, max_value=1e30))
def test_three_significant_figures_lose_at_most_half_a_unit(value: float) -> None:
    assert read(significant(value)) == pytest.approx(value, rel=0.005001)
    assert read(significant(-value)) == pytest.approx(-value, rel=0.005001)


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_a_parameter_reads_back(value: float) -> None:
    text = short(value)
    if text.startswith("10") and text[2:3] in set("⁻⁰¹²³⁴⁵⁶⁷⁸⁹") - {""}:
        text = f"1 × {text}"
    assert read(text) == pytest.approx(value, rel=0.005001)


def test_what_is_no_number_is_a_dash_and_never_zero() -> None:
    assert significant(None) == DASH
    assert significant(math.nan) == DASH
    assert size(None) == DASH
    assert significant(0.0) == "0"


def test_rounding_up_to_the_next_power_keeps_three_figures() -> None:
    assert significant(0.9996) == "1.00"
    assert significant(99.96) == "100"
    assert significant(0.00099999) == "0.00100"


def test_interval_has_the_decimals_of_its_estimate() -> None:
    assert interval(Metric(value=19.93, low=19.4, high=20.456, n=300)) == "[19.4, 20.5] n = 300"
    assert interval(Metric(value=0.012, low=-0.003, high=0.027)) == "[−0.0030, 0.0270]"
    assert interval(Metric(value=8.9, low=8.9)) == "at least 8.90"
    assert interval(Metric(value=1.0, high=math.inf)) == "at most ∞"
    assert interval(unmeasured("no weights")) == ""


@pytest.mark.parametrize(("seconds", "words"), [(99.6, "1 min 40 s"), (3599.6, "1 h 0 min"), (0.5, "0.500 s")])
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_sizes_change_unit_before_they_show_four_figures() -> None:
    assert size(999) == "999 B"
    assert size(999.6) == "1.00 kB"
    assert size(2.5e15) == "2,500 TB"
