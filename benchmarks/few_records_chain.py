"""Set-level reconstruction, membership and partial reconstruction in a chain: the table of docs/few_records.md.

    FEDASSAY_DATA=... FEDASSAY_WEIGHTS=... python benchmarks/few_records_chain.py [--seeds 20] [--data cifar10]

SqueezeNet's features at 64 pixels, as in few_records.py. Each seed is one class of a client, whose mixture with
diagonal covariances the project's own EM fits. Candidates are samples of the mixture and what `few_records`
recovers of three components; `partial_reconstruction` keeps a tenth, at least five. Beside what it keeps: all
candidates, the same number of them nearest to the truth (nobody can choose these without it), and what it keeps of
a release of other records of the class, held against the same truth. Intervals at 95 % are by seed.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
from few_records import OWN, Matrix, Trial, mixture, names
from gram_limits import CLASSES, Pool, load
from numpy.typing import NDArray

from fedassay.attacks.few_records.attack import FewRecords
from fedassay.attacks.partial_reconstruction import SAMPLES, PartialReconstruction
from fedassay.audits.stats.typed_intervals import Bounded, Unbounded, interval
from fedassay.contracts.attack import Knowledge
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource, concatenated, sources
from fedassay.support.errors import NothingToReadError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

NEAR = 0.1
"""Relative error below which a vector is a record for most purposes."""

KEPT = 5
"""Vectors that are kept at least."""


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


def chained(pool: Pool, trial: Trial, seed: int, sweeps: int) -> tuple[Matrix, Matrix]:
    """All candidates of a release, and those that the chain keeps."""
    own = pool.features[:OWN].astype(np.float32)
    attacker = Records("attacker", np.zeros((OWN, 1, 1, 1), np.uint8), pool.labels[:OWN], lambda _: own)
    knowledge = Knowledge(attacker, CLASSES, None, False, Seeds(seed), "cpu", SILENT)
    recovered: tuple[VectorSource, ...] = ()
    with suppress(NothingToReadError):
        recovered = FewRecords(sweeps=sweeps, limit=3, own_components=1).run(trial.view, knowledge).vectors
    drawn = [part for part in sources(trial.view, knowledge.seeds.numpy("sources")) if part.name == SAMPLES]
    kept = PartialReconstruction(at_least=KEPT).run(trial.view, replace(knowledge, recovered=recovered))
    whole = concatenated([*drawn, *recovered]).vectors.astype(np.float64)
    return whole, kept.vectors[0].vectors.astype(np.float64)


def main() -> None:
    """Print a line for each number of components and records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--data", default="cifar10", choices=("cifar10", "fashion_mnist"))
    parser.add_argument("--sweeps", type=int, default=20)
    given = parser.parse_args()
    pool = load(given.data, signed=False)
    for records, components in ((20, 10), (60, 10), (60, 50), (200, 50)):
        arms = {name: Arm() for name in ("kept", "all candidates", "nearest candidates", "other records' release")}
        for seed in range(given.seeds):
            trial = mixture(pool, records, components, seed, "diag")
            whole, kept = chained(pool, trial, seed, given.sweeps)
            arms["kept"].add(kept, pool, trial)
            arms["all candidates"].add(whole, pool, trial)
            order = np.argsort(distances(whole, pool, trial.rows), kind="stable")
            arms["nearest candidates"].add(whole[order[: len(kept)]], pool, trial)
            other = others_of(pool, trial, records, components, seed)
            arms["other records' release"].add(chained(pool, other, seed, given.sweeps)[1], pool, trial)
        print(f"{given.data}, K = {components} on {records} a class, {given.seeds} seeds")
        for name, arm in arms.items():
            print(f"  {name}: {arm.words()}", flush=True)


def others_of(pool: Pool, trial: Trial, records: int, components: int, seed: int) -> Trial:
    """A release of records of the same class of which the trial holds none, as far as the pool goes."""
    rest = np.setdiff1d(np.arange(len(pool.labels)), trial.rows)
    # The attacker's images stay where they are: the trial holds none of them.
    smaller = Pool(pool.features[rest], pool.labels[rest])
    found = mixture(smaller, records, components, seed, "diag")
    return Trial(found.view, found.label, rest[found.rows])


if __name__ == "__main__":
    main()
