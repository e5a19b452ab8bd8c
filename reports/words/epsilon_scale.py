"""A scale for epsilon in words: the share of right guesses about one person, whatever an attacker does.

A guess between two equally likely data sets, after a release of one under (epsilon, delta), is right in at most
(e^epsilon + delta) / (1 + e^epsilon) of cases (Kairouz, Oh and Viswanath 2015, "The composition theorem for
differential privacy", Theorem 2.1, at equal prior probabilities); under mu-GDP in at most Phi(mu / 2) (Dong, Roth
and Su 2022, eq. 6). The words for ranges of epsilon are ours.
"""

from __future__ import annotations

import math

from fedassay.reports.words.numbers import short, with_kind
from fedassay.support.epsilon import Epsilon

_RANGES = ((1.0, "strong"), (3.0, "moderate"), (10.0, "weak"))
"""Largest epsilon of each word, in order; above the last one it is `_BEYOND`."""

_BEYOND = "close to none"

_NEARLY_ALL = 0.99
_ROUNDING = 1 + 1e-6


def right_at_most(epsilon: float, delta: float, mu: float | None = None) -> float:
    """The largest probability of a right guess between two equally likely data sets, in [0.5, 1].

    Args:
        epsilon: 0 or more; inf: no bound.
        delta: From 0 to 1.
        mu: Of Gaussian differential privacy, where the release has it; the smaller bound counts.
    """
    pair = min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))
    return pair if mu is None else min(pair, (1 + math.erf(mu / math.sqrt(8))) / 2)


def chance(spent: Epsilon | None, mu: float | None = None) -> str:
    """Clause on the share of right guesses about one person; empty where nothing is bounded.

    Args:
        spent: The spent epsilon of a release, of its own unit and relation; None: nothing is known to bound it.
        mu: See `right_at_most`.
    """
    if spent is None or not spent.finite:
        return ""
    share = right_at_most(spent.bare, spent.delta, mu)
    right = f"at most {math.ceil(100 * share - 1e-6)} %" if share <= _NEARLY_ALL else "nearly all"
    return f"of guesses at even odds about one {spent.unit}, {right} can be right, whatever the attack"


def in_words(spent: Epsilon | None, mu: float | None = None) -> str:
    """Meaning of an epsilon for one person, and the scale, in two sentences; empty where nothing is bounded."""
    if spent is None or not spent.finite:
        return ""
    word = next((word for most, word in _RANGES if spent.bare <= most * _ROUNDING), _BEYOND)
    scale = ", ".join(f"up to {short(most)} {each}" for most, each in _RANGES)
    return (
        f"At ε = {with_kind(spent)} and δ = {short(spent.delta)} protection is {word}: {chance(spent, mu)}. "
        f"Our scale: {scale}, above that {_BEYOND}."
    )
