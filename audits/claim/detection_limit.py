"""Limit of detection beside every `sound`: the false claim that a run would have found.

- For releases on neighbours: the smallest epsilon that this many would have refuted (`audits.stats.refuted`).
- For the noise on the tape: any difference from the noise of its own stream is found to the bit. For the streams:
  the smallest shortfall of their deviation that the test of so many numbers finds, as the epsilon that all
  releases then add up to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from scipy.stats import chi2

from fedassay.audits.claim.bounds import Observation
from fedassay.audits.claim.tape.blocks import LEVEL as OF_NOISE
from fedassay.audits.claim.tape.blocks import size_level
from fedassay.audits.claim.tape.streams import standardised
from fedassay.audits.claim.training import LEVEL as OF_TRAINING
from fedassay.audits.stats.detection import POWER
from fedassay.audits.stats.refuted import refuted_epsilon
from fedassay.contracts.audit import AuditContext
from fedassay.exchange.ledger import account
from fedassay.exchange.release import PrivacyClaim, Release
from fedassay.exchange.transcript import Transcript
from fedassay.nets.dp_sgd.tape import trainings
from fedassay.privacy.tape import Draw, Tape
from fedassay.records.record import Limit
from fedassay.support.epsilon import Epsilon


@dataclass(frozen=True)
class _Shortfall:
    """The noise that would have been found too small.

    Attributes:
        share: Of the declared deviation.
        numbers: Noised numbers that were tested.
        epsilon: Accounted epsilon of the messages with that share of its noise.
    """

    share: float
    numbers: int
    epsilon: Epsilon


def claim_limit(claim: PrivacyClaim, observation: Observation | None, context: AuditContext) -> Limit | str:
    """The limit of detection of a claim's audit; in words why there is none.

    Args:
        claim: The claim that was not refuted.
        observation: The bounds from releases on neighbours, or None.
        context: Of the run, with its tape.
    """
    short = _shortfall(claim, context)
    tape, of = _tape_words(short) if short is not None else "", claim.guarantee.kind.words
    if observation is not None and observation.limit is not None:
        words = "; ".join(part for part in (f"{observation.limit.words} ({of})", tape) if part)
        return observation.limit.model_copy(update={"words": words})
    if observation is not None:
        refuted = refuted_epsilon(
            claim.epsilon,
            delta=claim.delta,
            n=observation.bounds.n,
            confidence=1 - 0.05 / context.num_tests,
            gaussian=any(bound.mu is not None for bound in observation.bounds.corrected),
        )
        if refuted.smallest is not None:
            return Limit(
                metric="epsilon",
                value=refuted.smallest,
                n=2 * observation.bounds.n,
                shift=None if short is None else short.epsilon.bare,
                shift_metric="" if short is None else "epsilon of too little noise",
                words="; ".join(part for part in (f"{refuted.words} ({of})", tape) if part),
            )
    if short is not None:
        return Limit(metric="epsilon", value=short.epsilon.bare, n=short.numbers, words=tape)
    if observation is not None:
        return (
            f"no limit of detection: {2 * observation.bounds.n} releases cannot refute any epsilon at this level"
        )
    return "no limit of detection: no release was attacked, and no noise that could be tested is on the tape"


def _tape_words(short: _Shortfall) -> str:
    return (
        f"noise that is not that of its stream is found to the bit; {short.numbers:,} numbers of the streams "
        f"would have shown {short.share:.3g} of the declared deviation, which is epsilon {short.epsilon}"
    )


def _shortfall(claim: PrivacyClaim, context: AuditContext) -> _Shortfall | None:
    """The largest share of its declared deviation at which the noise of a run is found too small."""
    tested = _tested(context.tape, context.num_tests)
    if tested is None:
        return None
    numbers, level = tested
    share = math.sqrt(chi2.ppf(level, numbers) / chi2.ppf(POWER, numbers))
    if not 0 < share < 1:
        return None
    weakened = weaker(context.outcome.transcript, share)
    epsilon = account(weakened, claim.adjacency, claim.delta, claim.unit).total
    return _Shortfall(share, numbers, epsilon) if epsilon.finite else None


def _tested(tape: Tape, tests: int) -> tuple[int, float] | None:
    """Numbers of noise in the statistic, or the training, that has the fewest, and the level of its test."""
    sizes: dict[tuple[str, str], int] = {}
    for key, entry in tape.draws.items():
        if isinstance(entry, Draw) and entry.scale > 0:
            name = (key.field, key.part)
            sizes[name] = sizes.get(name, 0) + len(standardised(entry))
    steps = [entry.facts.coordinates for entry in trainings(tape).values() if entry.facts.coordinates]
    found = []
    if sizes:
        found.append((min(sizes.values()), size_level(OF_NOISE / max(1, tests), len(sizes))))
    if steps:
        found.append((min(steps), OF_TRAINING))
    return min(found, default=None)


def weaker(transcript: Transcript, share: float) -> Transcript:
    """The transcript that declares a share of its noise."""
    messages = tuple(
        replace(
            message,
            fields={
                name: replace(item, release=_weaker(item.release, share)) for name, item in message.fields.items()
            },
        )
        for message in transcript.messages
    )
    return replace(transcript, messages=messages)


def _weaker(release: Release, share: float) -> Release:
    scale, multiplier = release.noise_scale, release.noise_multiplier
    return release.model_copy(
        update={
            "noise_scale": None if scale is None else tuple(share * each for each in scale),
            "noise_multiplier": None if multiplier is None else share * multiplier,
        }
    )
