"""What is observed of DP-SGD whose every step is seen, beside what is accounted and what is ideal.

    python benchmarks/dp_sgd_observed.py            # 20,000 canaries at epsilon 1, 4 and 8, and 200 null runs
    python benchmarks/dp_sgd_observed.py --small    # seconds; what the tests run

A linear head, 200 steps, sampling rate 0.2, noise calibrated to epsilon at delta 1e-5 under add_remove. Canaries
with orthogonal gradients go through the shipped training (`fedassay.nets.dp_sgd`) in several runs; each has a coin
of its own, so that together they are one run of all of them (each coin moves one of the runs alone).

- conditional: 95 % lower bound on DP-SGD's own law (`audits.stats.sampled_gaussian_bound`).
- free: 95 % one-run lower bound, which assumes nothing.
- ideal: the same free bound, by the same guesses, of a Gaussian mechanism of the accounted epsilon: medians of
  `--repeats` draws of either, ours with the repeats drawn from the declared law in canary coordinates.
- null runs: 40 steps of DP-SGD that are what they declare, at epsilon 1.29, with 500 canaries. A claim is false
  where a bound is above the accounted epsilon; and, with coins drawn anew after the run, where it is above 0.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from fedassay.audits.claim.canary_scores import CanaryScores
from fedassay.audits.claim.guesses import pairs_of_guesses
from fedassay.audits.claim.seen_steps import (
    Seen,
    Steps,
    bounds_of_seen,
    simulated,
    steps_of_rounds,
    trained_on,
)
from fedassay.audits.stats.one_run_weighted import weighted_bound, weighted_right
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.privacy.accounting import calibrate_noise_multiplier
from fedassay.privacy.gaussian import mu_of
from fedassay.support.seeds import Seeds

DELTA, RATE, LEVEL = 1e-5, 0.2, 0.95
Bounds = tuple[float, float]


def declared(epsilon: float, steps: int) -> Steps:
    noise = calibrate_noise_multiplier(epsilon, DELTA, sampling_rate=RATE, steps=steps)
    private = PrivateSteps(noise, RATE, steps, norm=1.0, batch=100.0)
    return steps_of_rounds([private], Updates(rate=1e-2), "add_remove", DELTA, "the client")


def values(seen: Seen, steps: Steps) -> Bounds:
    conditional, free = bounds_of_seen(seen, steps, DELTA, LEVEL)
    return conditional.epsilon or 0.0, free.epsilon or 0.0


def shipped(steps: Steps, canaries: int, runs: int, seed: int) -> Seen:
    """Canaries that went through `runs` trainings of the shipped code, as one."""
    parts = [trained_on(steps.rounds, steps, canaries // runs, Seeds(seed).child(run)) for run in range(runs)]
    return Seen(
        CanaryScores.joined([part.scores for part in parts]), np.concatenate([part.included for part in parts])
    )


def ideal(steps: Steps, canaries: int, seed: int) -> float:
    """The free bound of a Gaussian mechanism of the same epsilon, all of whose error one score has."""
    rng = np.random.default_rng([seed, 1])
    included = rng.random(canaries) < 0.5
    scores = rng.standard_normal(canaries) + mu_of(steps.epsilon, DELTA) * included
    pairs = pairs_of_guesses(canaries, steps.epsilon, DELTA, 1 - LEVEL)
    right = weighted_right(scores, included, pairs)
    return weighted_bound([2 * pair for pair in pairs], right, canaries, DELTA, 1 - LEVEL)


def observed(epsilon: float, steps: int, canaries: int, runs: int, repeats: int) -> dict[str, object]:
    """One row: the shipped code's bounds, and medians of repeats."""
    known = declared(epsilon, steps)
    conditional, free = values(shipped(known, canaries, runs, seed=0), known)
    again = np.array(
        [values(simulated(known.rounds, known.adjacency, canaries, Seeds(seed)), known) for seed in range(repeats)]
    )
    allowed = float(np.median([ideal(known, canaries, seed) for seed in range(repeats)]))
    middle = np.median(again, axis=0)
    return {
        "epsilon": epsilon,
        "accounted": round(known.epsilon, 4),
        "conditional": round(conditional, 3),
        "conditional_of_accounted": round(conditional / known.epsilon, 3),
        "conditional_of_accounted_median_and_least": [
            round(float(each) / known.epsilon, 3) for each in (middle[0], again[:, 0].min())
        ],
        "free": round(free, 3),
        "free_of_accounted_median": round(float(middle[1]) / known.epsilon, 3),
        "ideal_free": round(allowed, 3),
        "free_of_ideal": round(free / allowed, 3),
        "free_of_ideal_median": round(float(middle[1]) / allowed, 3),
        "repeats_with_free_at_least_.9_of_ideal": round(float((again[:, 1] >= 0.9 * allowed).mean()), 3),
    }


def null_runs(canaries: int, runs: int) -> dict[str, object]:
    """False claims among trainings by the shipped code, which are what they declare."""
    private = PrivateSteps(noise_multiplier=4.0, sampling_rate=RATE, steps=40, norm=0.5, batch=20.0)
    known = steps_of_rounds([private], Updates(rate=1e-2), "add_remove", DELTA, "the client")
    above, anew = np.zeros(2, int), np.zeros(2, int)
    for seed in range(runs):
        seen = trained_on(known.rounds, known, canaries, Seeds(seed))
        above += np.array(values(seen, known)) > known.epsilon
        coins = np.random.default_rng([seed, 2]).random(canaries) < 0.5
        anew += np.array(values(Seen(seen.scores, coins), known)) > 0
    return {
        "null_runs": runs,
        "canaries": canaries,
        "accounted": round(known.epsilon, 4),
        "above_accounted": dict(zip(("conditional", "free"), above.tolist(), strict=True)),
        "above_0_with_new_coins": dict(zip(("conditional", "free"), anew.tolist(), strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0, 4.0, 8.0])
    parser.add_argument("--null", type=int, default=200, help="null runs; 0: none")
    asked = parser.parse_args()
    steps, canaries, runs, repeats = (20, 1000, 2, 3) if asked.small else (200, 20_000, 4, asked.repeats)
    for epsilon in asked.epsilons[:1] if asked.small else asked.epsilons:
        print(json.dumps(observed(epsilon, steps, canaries, runs, repeats)), flush=True)
    if asked.null:
        number = 5 if asked.small else asked.null
        print(json.dumps(null_runs(500, number)), flush=True)


if __name__ == "__main__":
    main()
