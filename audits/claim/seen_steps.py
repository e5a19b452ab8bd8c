"""Lower bounds on epsilon from DP-SGD with visible steps: orthogonal gradient canaries in one training.

No attack on trained weights sees the releases of DP-SGD. The adversary of differential privacy does: it sees the
noised sum of every step, and knows all records but one. So canaries with orthogonal clipped gradients
(`fedassay.nets.dp_sgd.canaries`) go through the run's own private training, under the steps that it declares; each
is in by a fair coin of its own (with either sign of its gradient where the claim is about replacing), and the
auditor guesses all coins from the sums. One training so tries as many neighbours as there are canaries (Steinke,
Nasr and Jagielski, "Privacy Auditing with One (1) Training Run", 2023; Nasr et al. 2023).

Two bounds. Conditional on DP-SGD's law, from the share of right guesses (`audits.stats.sampled_gaussian_bound`).
And free of assumptions (`audits.stats.one_run_weighted`): it holds whatever clipping, sampling and noise really
do, which is its purpose. Its scores share the error (`canary_scores.SHARES`); the guessed coins, and the weight of
each guess, follow from the declaration, before anything is seen (`guesses`).

It does not test the method's own network and records: canaries show the steps at their worst, not the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.claim.bounds import (
    AGAINST,
    ENOUGH,
    TOO_LITTLE,
    WITH_ENOUGH,
    WITH_TOO_LITTLE,
    Bounds,
    Observation,
    ObservedControl,
)
from fedassay.audits.claim.canary_scores import CanaryScores
from fedassay.audits.claim.guesses import one_run_of_all
from fedassay.audits.stats.epsilon_bound import EpsilonBound
from fedassay.audits.stats.sampled_gaussian_bound import refuted_by_guesses, sampled_gaussian_bound
from fedassay.exchange.release import PrivacyClaim
from fedassay.nets.dp_sgd.canaries import train_on_canaries
from fedassay.nets.dp_sgd.mechanism import TrainingMechanism
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.dp_sgd.tape import TrainingEntry, trainings
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.privacy.accounting import compose
from fedassay.privacy.events import SubsampledGaussianEvent
from fedassay.privacy.gaussian import mu_of
from fedassay.privacy.tape import Key, Tape
from fedassay.records.record import Limit
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import NotRunError
from fedassay.support.seeds import Seeds

FEWEST = 100
"""Canaries below which hardly anything can be shown."""
_LEVEL = 0.95
_SIMULATED = 4e6
"""Canaries' sums that are drawn for a limit of detection, at one noise."""


@dataclass(frozen=True)
class Steps:
    """The private steps that one client's records go through in a run.

    Attributes:
        name: Name of the steps, in words.
        rounds: The declared steps of each round; noise and rate are the same in all.
        updates: The optimiser.
        adjacency: Of the claim.
        epsilon: Accounted epsilon of these alone, at the claim's delta.
    """

    name: str
    rounds: tuple[PrivateSteps, ...]
    updates: Updates
    adjacency: Adjacency
    epsilon: float

    @property
    def number(self) -> int:
        """Number of steps in all rounds."""
        return sum(each.steps for each in self.rounds)

    def with_noise(self, share: float) -> tuple[PrivateSteps, ...]:
        """The rounds with so much of their noise."""
        return tuple(
            PrivateSteps(share * each.noise_multiplier, each.sampling_rate, each.steps, each.norm, each.batch)
            for each in self.rounds
        )


@dataclass(frozen=True, eq=False)
class Seen:
    """Canaries after a training.

    Attributes:
        scores: Scores that were seen of them.
        included: Their coins, (m,).
    """

    scores: CanaryScores
    included: NDArray[np.bool_]


def steps_on(tape: Tape, claim: PrivacyClaim) -> Steps | None:
    """The private trainings of the client with the most steps; None where nothing is trained privately.

    Raises:
        NotRunError: Its rounds are noised or sampled differently.
    """
    senders: dict[str, list[TrainingEntry]] = {}
    for key, entry in trainings(tape).items():
        if entry.declared.noise_multiplier > 0:
            senders.setdefault(key.sender, []).append(entry)
    if not senders:
        return None
    sender = max(senders, key=lambda name: sum(entry.declared.steps for entry in senders[name]))
    rounds = tuple(entry.declared for entry in senders[sender])
    return steps_of_rounds(rounds, senders[sender][0].updates, claim.adjacency, claim.delta, sender)


def steps_of_rounds(
    rounds: Sequence[PrivateSteps], updates: Updates, adjacency: Adjacency, delta: float, sender: str
) -> Steps:
    """Steps with what they add up to.

    Raises:
        NotRunError: Rounds are noised or sampled differently.
    """
    if len({(each.noise_multiplier, each.sampling_rate) for each in rounds}) > 1:
        raise NotRunError(f"the rounds of {sender} are noised or sampled differently: no one canary score fits")
    number = sum(each.steps for each in rounds)
    first = rounds[0]
    event = SubsampledGaussianEvent(first.noise_multiplier, first.sampling_rate, number, adjacency)
    name = f"{number:,} steps of DP-SGD at {sender}"
    return Steps(name, tuple(rounds), updates, adjacency, compose([event], delta).epsilon)


def observe_steps(steps: Steps, claim: PrivacyClaim, *, count: int, tests: int, seeds: Seeds) -> Observation:
    """Train on canaries, guess their coins, and run both controls.

    Args:
        steps: The steps that are seen.
        claim: Epsilon and delta.
        count: Canaries.
        tests: Lower bounds in the whole run.
        seeds: Of coins and noise.
    """
    # The noise with which these steps alone would come to the claim, were they Gaussian.
    needed = mu_of(steps.epsilon, claim.delta) / mu_of(claim.epsilon, claim.delta)
    weak, strong = steps.with_noise(needed / TOO_LITTLE), steps.with_noise(needed / ENOUGH)

    def bounds(seen: Seen) -> Bounds:
        shown, corrected = (
            bounds_of_seen(seen, steps, claim.delta, level) for level in (_LEVEL, 1 - 0.05 / tests)
        )
        return Bounds(shown, corrected, count // 2, certain=False)

    audited = bounds(trained_on(steps.rounds, steps, count, seeds.child("audited")))
    positive = bounds(trained_on(weak, steps, count, seeds.child("positive")))
    negative = bounds(simulated(strong, steps.adjacency, count, seeds.child("negative")))
    against = AGAINST.format(claim.epsilon)
    return Observation(
        about=f"{steps.name}, {count:,} gradient canaries",
        bounds=audited,
        positive=ObservedControl(
            f"the same steps {WITH_TOO_LITTLE}",
            positive,
            positive.judged > claim.epsilon,
            f"{against}; {count:,} canaries, which limits it",
        ),
        negative=ObservedControl(
            f"steps drawn by the auditor {WITH_ENOUGH}",
            negative,
            negative.judged > claim.epsilon,
            against,
        ),
        assumptions=(
            "the adversary sees the noised sum of every step and knows all records but one, not which were "
            "sampled; canaries have orthogonal gradients of full length in a linear head, trained by the run's "
            "own code",
            "DP-SGD's own law: canaries' sums are independent and Poisson-sampled Gaussian, of unknown noise; the "
            "one-run bound assumes nothing but the coins",
        ),
        remark=f"of {steps.name}, {steps.epsilon:.3g} by themselves",
        limit=_limit(steps, claim, count, 1 - 0.05 / tests, seeds),
    )


def trained_on(rounds: Sequence[PrivateSteps], steps: Steps, count: int, seeds: Seeds) -> Seen:
    """Canaries that went through the run's own training."""
    included, scores = _coins(count, seeds), _scores(rounds, steps.adjacency, count)
    signs = included.astype(np.int64) if steps.adjacency == "add_remove" else np.where(included, 1, -1)
    for number, private in enumerate(rounds):
        mechanism = TrainingMechanism(seeds.child("noise"), seeds.child("coins"), Key("canaries", number, "head"))
        train_on_canaries(signs, private, steps.updates, mechanism, scores.see)
    return Seen(scores, included)


def simulated(rounds: Sequence[PrivateSteps], adjacency: Adjacency, count: int, seeds: Seeds) -> Seen:
    """Canaries with sums drawn here, from the declared law, and by none of the audited code."""
    included, scores = _coins(count, seeds), _scores(rounds, adjacency, count)
    moved = np.where(included, 1.0, 0.0 if adjacency == "add_remove" else -1.0)
    rng = seeds.numpy("sums")
    for private in rounds:
        for _ in range(private.steps):
            taken = rng.random(count) < private.sampling_rate
            scores.see(taken * moved + private.noise_multiplier * rng.standard_normal(count))
    return Seen(scores, included)


def bounds_of_seen(seen: Seen, steps: Steps, delta: float, confidence: float) -> tuple[EpsilonBound, EpsilonBound]:
    """The conditional bound and the one that assumes nothing, at one confidence each."""
    count = len(seen.included)
    conditional = sampled_gaussian_bound(
        int(np.count_nonzero(seen.scores.guessed() == seen.included)),
        count,
        sampling_rate=steps.rounds[0].sampling_rate,
        steps=steps.number,
        adjacency=steps.adjacency,
        delta=delta,
        confidence=confidence,
    )

    free = one_run_of_all(
        seen.scores,
        seen.included,
        removed=steps.adjacency == "add_remove",
        epsilon=steps.epsilon,
        delta=delta,
        error=1 - confidence,
    )
    return conditional, EpsilonBound(free, confidence, "one run, weighted guesses")


def _coins(count: int, seeds: Seeds) -> NDArray[np.bool_]:
    return seeds.numpy("canaries").random(count) < 0.5


def _scores(rounds: Sequence[PrivateSteps], adjacency: Adjacency, count: int) -> CanaryScores:
    return CanaryScores(count, rounds[0].noise_multiplier, rounds[0].sampling_rate, adjacency)


def right_share(steps: Steps, noise_multiplier: float, seeds: Seeds) -> float:
    """The share of coins that are guessed rightly where steps have other noise than declared, by simulation.

    It is below the bound by total variation: guesses divide scores in the middle, and among sampled records the
    few easiest ones are less than half.
    """
    count = int(np.clip(_SIMULATED / steps.number, 2000, 20_000))
    rng = seeds.numpy("limit")
    included, scores = rng.random(count) < 0.5, _scores(steps.rounds, steps.adjacency, count)
    moved = np.where(included, 1.0, 0.0 if steps.adjacency == "add_remove" else -1.0)
    for _ in range(steps.number):
        taken = rng.random(count) < steps.rounds[0].sampling_rate
        scores.see(taken * moved + noise_multiplier * rng.standard_normal(count))
    return float(np.mean(scores.guessed() == included))


def _limit(steps: Steps, claim: PrivacyClaim, count: int, confidence: float, seeds: Seeds) -> Limit | None:
    """The smallest epsilon of these steps by themselves that would have refuted the claim, by their own law."""
    first = steps.rounds[0]
    found = refuted_by_guesses(
        claim.epsilon,
        delta=claim.delta,
        guesses=count,
        confidence=confidence,
        declared=SubsampledGaussianEvent(
            first.noise_multiplier, first.sampling_rate, steps.number, steps.adjacency
        ),
        right=lambda noise: right_share(steps, noise, seeds),
    )
    if found is None:
        return None
    return Limit(
        metric="epsilon",
        value=found,
        n=count,
        words=f"{count:,} canaries whose every step is seen would have refuted epsilon {found:.3g}",
    )
