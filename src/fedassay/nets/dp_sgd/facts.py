"""Findings about the steps of a private training, made when it has ended; and the weights kept for questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True, eq=False)
class TrainingFacts:
    """Facts about one training, gathered by `fedassay.nets.dp_sgd.watch`.

    Attributes:
        failures: Contradictions of the declaration, one sentence for each kind; empty: none.
        shown: The tests that were made, in words.
        p_values: P-values of noise and sampling, by test; for streams that cannot be computed again.
        records: Number of records.
        steps: Steps that were seen.
        noise: Root mean square of the added noise over the declared deviation, over all steps.
        coordinates: Numbers that noise was added to, over all steps.
        partial: Reason why not all steps were seen; empty: all were.
        kept: The weights before tested steps, by step and parameter name, as many as there was room for.
    """

    failures: tuple[str, ...]
    shown: str
    p_values: Mapping[str, float]
    records: int
    steps: int
    noise: float
    coordinates: int
    partial: str = ""
    kept: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)
