"""The scale for epsilon in words is a bound that holds, and one that a mechanism attains."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from fedassay.privacy.gaussian import delta_of
from fedassay.reports.words.epsilon_scale import chance, in_words, right_at_most
from fedassay.support.epsilon import Epsilon

EPSILONS = st.floats(0, 50)


def spent(epsilon: float, delta: float = 1e-5) -> Epsilon:
    return Epsilon(epsilon, delta, "add_remove", "person")


@given(EPSILONS, st.floats(0, 1))
def test_the_bound_lies_between_guessing_and_certainty_and_grows(epsilon: float, delta: float) -> None:
    share = right_at_most(epsilon, delta)
    assert 0.5 <= share <= 1
    assert share <= right_at_most(epsilon + 0.1, delta)
    assert share <= right_at_most(epsilon, min(1.0, delta + 0.01))


@given(EPSILONS)
def test_randomised_response_attains_it(epsilon: float) -> None:
    assert right_at_most(epsilon, 0.0) == pytest.approx(1 / (1 + math.exp(-epsilon)))


@given(st.floats(0.05, 6), st.floats(0, 8))
def test_no_guess_about_a_gaussian_release_is_right_more_often(mu: float, epsilon: float) -> None:
    """The best guess between N(0, 1) and N(mu, 1) is right with probability Phi(mu / 2)."""
    assert ndtr(mu / 2) <= right_at_most(epsilon, delta_of(mu, epsilon)) + 1e-9


@pytest.mark.parametrize(
    ("epsilon", "word", "right"),
    [
        (0.5, "strong", "at most 63 %"),
        (1.0000001, "strong", "at most 74 %"),
        (2, "moderate", "at most 89 %"),
        (3, "moderate", "at most 96 %"),
        (8, "weak", "nearly all"),
        (50, "close to none", "nearly all"),
    ],
)
def test_words(epsilon: float, word: str, right: str) -> None:
    words = in_words(spent(epsilon))
    assert f"protection is {word}: of guesses at even odds about one person, {right} can be right, what" in words
    assert "up to 1 strong, up to 3 moderate, up to 10 weak, above that close to none" in words


def test_a_gaussian_release_has_the_smaller_bound() -> None:
    mu = 0.964
    assert right_at_most(3, 1e-3, mu) == pytest.approx(ndtr(mu / 2))
    assert "at most 69 % can be right" in in_words(spent(3, 1e-3), mu)
    assert right_at_most(0.1, 0.0, 5.0) == right_at_most(0.1, 0.0)


def test_what_bounds_nothing_has_no_words() -> None:
    assert in_words(spent(math.inf)) == chance(spent(math.inf)) == ""
