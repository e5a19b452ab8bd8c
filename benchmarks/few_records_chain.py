"""Set-level reconstruction, membership and partial reconstruction in a chain: the table of docs/fedpft.md.

    python benchmarks/few_records_chain.py [--seeds 20] [--data cifar10]

SqueezeNet's features at 64 pixels, as in few_records.py. Each seed is one class of a client, whose mixture with
diagonal covariances the project's own EM fits. Candidates are samples of the mixture and what `few_records`
recovers of three components; `partial_reconstruction` keeps a tenth, at least five. Beside what it keeps: all
candidates, the same number of them nearest to the truth (nobody can choose these without it), and what it keeps of
a release of other records of the class, held against the same truth. Intervals at 95 % are by seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import public_data
from few_records import OWN, Matrix, Trial, law_of, mixture, names, searched, thinned
from gram_limits import CLASSES, Pool, load
from numpy.typing import NDArray

from fedassay.attacks.few_records.law import ClassLaw
from fedassay.attacks.partial_reconstruction import SAMPLES, best, ratios
from fedassay.audits.stats.typed_intervals import Bounded, Unbounded, interval
from fedassay.exchange.feature_sources import VectorSource, concatenated, sources
from fedassay.mixtures.population import Population, population_of

NEAR = 0.1
"""Relative error below which a vector is a record for most purposes."""

KEPT = 5
"""Vectors that are kept at least."""

COMPONENTS = 3
"""Components of few records of a release that are searched."""


@dataclass(frozen=True)
class Known:
    """What the attacker learns of its own images, once.

    Attributes:
        law: How features go together, for the search.
        people: What other records are like, for the likelihood ratio.
    """

    law: ClassLaw
    people: Population


@dataclass
class Arm:
    """Vectors of one kind, seed by seed.

    Attributes:
        errors: Median distance to the nearest record of the client, relative to its length.
        near: Share of the vectors that lie nearer than `NEAR` to one.
        named: Share whose nearest image of the class is one of the client's.
        vectors: How many in all.
    """

    errors: list[float] = field(default_factory=list)
    near: list[float] = field(default_factory=list)
    named: list[float] = field(default_factory=list)
    vectors: int = 0

    def add(self, vectors: Matrix, pool: Pool, trial: Trial) -> None:
        """Hold the vectors of one seed against the truth."""
        gallery = OWN + np.flatnonzero(pool.labels[OWN:] == trial.label)
        gaps = distances(vectors, pool, trial.rows)
        self.errors.append(float(np.median(gaps)))
        self.near.append(float((gaps < NEAR).mean()))
        self.named.append(names(vectors, gallery, pool, trial.rows)[0])
        self.vectors += len(vectors)

    def words(self) -> str:
        """The figures with intervals by seed."""
        error = interval(np.array(self.errors), Unbounded("median"))
        near, named = (interval(np.array(each), Bounded(0, 1)) for each in (self.near, self.named))
        return (
            f"{self.vectors} vectors, error {error.value:.3f} [{error.low or 0:.3f}, {error.high or 0:.3f}], "
            f"below {NEAR:g} {near.value:.2f} [{near.low:.2f}, {near.high:.2f}], named {named.value:.2f} "
            f"[{named.low:.2f}, {named.high:.2f}]"
        )


def distances(vectors: Matrix, pool: Pool, rows: NDArray[np.int64]) -> Matrix:
    """How far each vector is from the nearest of these records, relative to the record's length; shape (k,)."""
    truth = pool.features[rows]
    gaps = np.linalg.norm(vectors[:, None] - truth, axis=2) / np.linalg.norm(truth, axis=1)
    return np.asarray(gaps.min(axis=1))


def chained(pool: Pool, trials: Sequence[Trial], known: Known, sweeps: int) -> list[tuple[Matrix, Matrix]]:
    """Of each release all candidates, and those that the chain keeps."""
    views = [thinned(trial.view, COMPONENTS, seed) for seed, trial in enumerate(trials)]
    made = []
    for seed, (trial, found) in enumerate(zip(trials, searched(views, known.law, sweeps), strict=True)):
        parts = [part for part in sources(trial.view, np.random.default_rng(seed)) if part.name == SAMPLES]
        if found is not None:
            size = len(found.found)
            none, owner = np.full(size, -1), ("client/0",) * size
            vectors = found.found.astype(np.float32)
            parts.append(VectorSource("few_records", vectors, np.full(size, trial.label), owner, none))
        candidates = concatenated(parts)
        scores = ratios(trial.view, candidates, known.people)
        kept = best(candidates, scores, max(KEPT, round(0.1 * len(scores))))
        whole = candidates.vectors.astype(np.float64)
        made.append((whole, whole[kept]))
    return made


def main() -> None:
    """Print a line for each number of components and records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    public_data.add_arguments(parser)
    parser.add_argument("--sweeps", type=int, default=20)
    given = parser.parse_args()
    pool = load(given.data, given.weights, signed=False)
    known = Known(law_of(pool), population_of(pool.features[:OWN], pool.labels[:OWN], CLASSES))
    for records, number in ((20, 10), (60, 10), (60, 50)):
        arms = {name: Arm() for name in ("kept", "all candidates", "nearest candidates", "other records' release")}
        trials = [mixture(pool, records, number, seed, "diag") for seed in range(given.seeds)]
        others = [others_of(pool, trial, records, number, seed) for seed, trial in enumerate(trials)]
        found = chained(pool, [*trials, *others], known, given.sweeps)
        for trial, (whole, kept), (_, foreign) in zip(
            trials, found[: len(trials)], found[len(trials) :], strict=True
        ):
            arms["kept"].add(kept, pool, trial)
            arms["all candidates"].add(whole, pool, trial)
            order = np.argsort(distances(whole, pool, trial.rows), kind="stable")
            arms["nearest candidates"].add(whole[order[: len(kept)]], pool, trial)
            arms["other records' release"].add(foreign, pool, trial)
        print(f"{public_data.called(given.data)}, K = {number} on {records} a class, {given.seeds} seeds")
        for name, arm in arms.items():
            print(f"  {name}: {arm.words()}", flush=True)


def others_of(pool: Pool, trial: Trial, records: int, number: int, seed: int) -> Trial:
    """A release of records of the same class of which the trial holds none, as far as the pool goes."""
    rest = np.setdiff1d(np.arange(len(pool.labels)), trial.rows)
    # The attacker's images stay where they are: the trial holds none of them.
    smaller = Pool(pool.features[rest], pool.labels[rest])
    found = mixture(smaller, records, number, seed, "diag")
    return Trial(found.view, found.label, rest[found.rows])


if __name__ == "__main__":
    public_data.ended(main)
