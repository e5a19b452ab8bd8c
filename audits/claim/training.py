"""Is the DP-SGD of a run what its releases declare: its noise, its clipping, its sampling, its number of steps.

No attack can see that from outside for less than the price of hundreds of trainings. So the steps are measured
while they are taken (`fedassay.nets.step_log`), and held against what was declared:

- noise: the squares of what was added over declared variance are chi-squared, with as many degrees of freedom as
  numbers were noised, often millions; less noise than declared is told from chance to a fraction of a percent;
- clipping: the sum over k clipped gradients is at most k times as long as each may be;
- sampling: the records that came into the steps are binomial at the declared rate;
- steps: no more than declared.

A contradiction says that the accounted epsilon is not that of this training. Its absence is no lower bound on
epsilon, and no attack: what trains elsewhere, at a real client, is not measured here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.stats import binom, chi2

from fedassay.exchange.transcript import Transcript
from fedassay.nets.private_steps import PrivateSteps
from fedassay.nets.step_log import Measured, StepLog

LEVEL = 1e-9
"""Of each test, far below every correction for the number of bounds in a run; power is no concern here."""

_ROUNDING = 1e-3
"""Relative; sums and noise are float32."""


@dataclass(frozen=True)
class TrainingFacts:
    """What the measured steps say.

    Attributes:
        broken: What contradicts the declaration, in words; empty: nothing.
        shown: What was measured, in words.
        noise: The noise added, root mean square over the declared deviation: of the steps with the least.
        low: End of its interval, at `LEVEL`.
        high: The other end.
        coordinates: Numbers that noise was added to in these steps.
    """

    broken: str
    shown: str
    noise: float
    low: float
    high: float
    coordinates: int


def training_facts(log: StepLog, transcript: Transcript) -> TrainingFacts | None:
    """Hold measured steps of DP-SGD against what was declared of them.

    Args:
        log: The steps of the run, by what was declared when they began.
        transcript: Its releases declare as well, to the ledger.

    Returns:
        None where no noised step was measured (no DP-SGD here, or all of it was found again from a checkpoint).
    """
    taken = {steps: found for steps, found in log.items() if found.steps and steps.noise_multiplier > 0}
    if not taken:
        return None
    broken = [words for steps, found in taken.items() for words in _contradictions(steps, found)]
    for multiplier, rate in sorted(_declared(transcript)):
        if not any(math.isclose(multiplier, s.noise_multiplier) and rate == s.sampling_rate for s in taken):
            broken.append(
                f"a release declares noise multiplier {multiplier:.4g} at sampling rate {rate:.4g}, and no such "
                "step was taken"
            )
    ratios = {steps: _noise(steps, found) for steps, found in taken.items()}
    least = min(ratios, key=lambda steps: ratios[steps][0])
    total = sum(found.steps for found in taken.values())
    sampled, offered = (sum(getattr(found, name) for found in taken.values()) for name in ("sampled", "offered"))
    noise, low, high = ratios[least]
    return TrainingFacts(
        "; ".join(broken),
        f"{total:,} steps were measured as they were taken: noise {noise:.4g} of the declared "
        f"[{low:.4g}, {high:.4g}], {sampled:,} of {offered:,} records sampled, no sum longer than clipping allows",
        noise,
        low,
        high,
        taken[least].coordinates,
    )


def _contradictions(steps: PrivateSteps, found: Measured) -> list[str]:
    words = []
    noise, _, high = _noise(steps, found)
    if high < 1 - _ROUNDING:
        words.append(
            f"the noise of its DP-SGD steps is {noise:.4g} of the declared (at most {high:.4g}; "
            f"{found.coordinates:,} numbers)"
        )
    if found.longest > 1 + _ROUNDING:
        words.append(
            f"a step's sum is {found.longest:.4g} times as long as gradients that are clipped to norm "
            f"{steps.norm:g} can make it"
        )
    if binom.sf(found.sampled - 1, found.offered, steps.sampling_rate) < LEVEL:
        words.append(
            f"{found.sampled:,} of {found.offered:,} records came into its steps, more than the declared sampling "
            f"rate {steps.sampling_rate:.4g} explains"
        )
    if found.steps > found.trainings * steps.steps:
        words.append(f"{found.steps:,} steps were taken where {found.trainings * steps.steps:,} were declared")
    return words


def _noise(steps: PrivateSteps, found: Measured) -> tuple[float, float, float]:
    """Deviation of what was added over the declared one, and the ends of its interval."""
    variance = found.squares / (steps.noise_multiplier * steps.norm) ** 2
    freedom = found.coordinates
    low, high = (math.sqrt(variance / chi2.ppf(level, freedom)) for level in (1 - LEVEL, LEVEL))
    return math.sqrt(variance / freedom), low, high


def _declared(transcript: Transcript) -> set[tuple[float, float]]:
    """Noise multiplier and sampling rate of every DP-SGD release of the clients."""
    releases = (item.release for message in transcript.from_clients() for item in message.fields.values())
    return {
        (release.noise_multiplier, release.sampling_rate)
        for release in releases
        if release.mechanism == "dp_sgd" and release.noise_multiplier and release.sampling_rate and release.steps
    }
