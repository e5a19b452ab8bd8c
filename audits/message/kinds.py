"""Kinds of results of an attack on messages, as its result shows them."""

from __future__ import annotations

from fedassay.contracts.attack import AttackResult


def says_counts(result: AttackResult) -> bool:
    """Whether it holds label histograms: artifacts `histograms` (S, C), `senders` and `evidence` (S,)."""
    return "histograms" in result.artifacts


def says_remarks(result: AttackResult) -> bool:
    """Whether it holds what the rules of `fedassay.exchange.statistics` say: artifact `rules` and its siblings."""
    return "rules" in result.artifacts


def is_approximate(result: AttackResult) -> bool:
    """Whether its vectors come back nearly, not exactly: it says how far apart searches ended, or the evidence."""
    return "apart" in result.scores or "evidence" in result.scores


def has_expected_errors(result: AttackResult) -> bool:
    """Whether independent runs say how far its vectors can be trusted: score `expected_error`, one a vector."""
    return "expected_error" in result.scores
