"""Is the DP-SGD of a run what its releases declare: its noise, its clipping, its sampling, its number of steps.

No attack can see that from outside for less than the price of hundreds of trainings. So the steps are looked at
while they are taken (`fedassay.nets.dp_sgd.facts`), on the tape of the run. Exactly: coins, noise and weights
of every step are computed again from the declaration and the noised sums alone, and at a few steps every record
of the batch by itself. Statistically, for streams that are not what they seem: p-values of the noise and of the
sampling.

A contradiction says that the accounted epsilon is not that of this training. Its absence is no lower bound on
epsilon, and no attack: what trains elsewhere, at a real client, is not looked at here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from scipy.stats import chi2

from fedassay.exchange.transcript import MessageField, Transcript
from fedassay.nets.dp_sgd.tape import TrainingEntry, trainings
from fedassay.privacy.tape import Tape

LEVEL = 1e-9
"""Level of the test of all noise of a run, far below every correction for the number of tests."""

_ROUNDING = 1e-3


@dataclass(frozen=True)
class TrainingFacts:
    """Facts on the trainings of a run.

    Attributes:
        broken: Contradictions of the declaration, in words; empty: none.
        shown: The measurement, in words.
        lacks: Reason why not all of the steps were seen; empty: all were.
        noise: The noise added, root mean square over the declared deviation: of the training with the least.
        low: End of its interval, at `LEVEL`.
        high: The other end.
        coordinates: Numbers that noise was added to in that training.
    """

    broken: str
    shown: str
    lacks: str
    noise: float
    low: float
    high: float
    coordinates: int


def training_facts(tape: Tape | None, transcript: Transcript) -> TrainingFacts | None:
    """Hold the private trainings of a run against what was declared of them.

    Args:
        tape: Of the run of the method; None: nothing was taped.
        transcript: Its releases declare as well, to the ledger.

    Returns:
        None where no noised step was seen (no DP-SGD here, or all of it was found again from a checkpoint).
    """
    entries = [] if tape is None else list(trainings(tape).values())
    entries = [entry for entry in entries if entry.facts.steps and entry.declared.noise_multiplier > 0]
    if not entries:
        return None
    ratios = [_noise(entry) for entry in entries]
    least = min(range(len(entries)), key=lambda index: ratios[index][0])
    noise, low, high = ratios[least]
    broken = [f"{_name(entry)}: {words}" for entry in entries for words in entry.facts.failures]
    if high < 1 - _ROUNDING and not entries[least].facts.failures:
        broken.append(f"the noise of {_name(entries[least])} is {noise:.4g} of the declared (at most {high:.4g})")
    broken += _unlike_declared(entries, transcript)
    shown = f"{len(entries)} private training(s) seen as their steps were taken; {entries[least].facts.shown}"
    lacks = sorted({entry.facts.partial for entry in entries if entry.facts.partial})
    return TrainingFacts(
        "; ".join(broken), shown, "; ".join(lacks), noise, low, high, entries[least].facts.coordinates
    )


def _name(entry: TrainingEntry) -> str:
    return f"DP-SGD of {entry.key.sender} in round {entry.key.round}"


def _noise(entry: TrainingEntry) -> tuple[float, float, float]:
    """Deviation of what was added over the declared one, and the ends of its interval."""
    facts = entry.facts
    squares = facts.noise**2 * facts.coordinates
    low, high = (math.sqrt(squares / chi2.ppf(p, facts.coordinates)) for p in (1 - LEVEL, LEVEL))
    return facts.noise, low, high


def _unlike_declared(entries: Iterable[TrainingEntry], transcript: Transcript) -> list[str]:
    """Messages with releases that declare other steps than were taken."""
    words: dict[str, None] = {}
    for message in transcript.from_clients():
        own = [
            entry for entry in entries if (entry.key.sender, entry.key.round) == (message.sender, message.round)
        ]
        for item in message.fields.values():
            if item.release.mechanism == "dp_sgd" and own:
                words |= dict.fromkeys(_of_field(item, own))
    return list(words)


def _of_field(item: MessageField, own: list[TrainingEntry]) -> list[str]:
    release = item.release
    asked = (release.noise_multiplier or 0.0, release.sampling_rate or 0.0, release.steps or 0)
    alike = [
        entry
        for entry in own
        if math.isclose(asked[0], entry.declared.noise_multiplier)
        and asked[1:] == (entry.declared.sampling_rate, entry.declared.steps)
    ]
    if release.sampling != "poisson":
        return [f"a release declares {release.sampling} batches, and its training takes every record by a coin"]
    if not alike:
        return [
            f"a release declares noise multiplier {asked[0]:.4g} at sampling rate {asked[1]:.4g} over {asked[2]} "
            "steps, and no such step was taken"
        ]
    return []
