"""What components of few records give away: the tables of docs/fedpft.md.

    python benchmarks/few_records.py PART [--seeds 20] [--data cifar10]

Parts: `exact` (components of 2, 3, 4 and 8 records drawn at random, by family and type) and `mixtures` (the
project's own EM: K components on 20, 60 and 200 records of a class; `--components` of those of 2 to 8 records are
attacked, drawn at random). Diagonal covariances go to `few_records` and full ones to `gram_factorization`; of
spherical ones the means are read.

SqueezeNet's features at 64 pixels; the attacker has 4,000 images, clients' images are others. A line is printed as
soon as it is measured. Errors are relative to the record's length, medians with the range over seeds' medians. A
vector names a record where the nearest image of its class, among all that the attacker does not have, is one of
the client's; beside it, how many different records are named for each vector. Intervals at 95 % are by seed.
Seconds are of a processor.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import public_data
from gram_limits import CLASSES, EXACT, Pool, load
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedassay.attacks.few_records.attack import FewRecords
from fedassay.attacks.few_records.components import WHOLE, components
from fedassay.attacks.few_records.law import ClassLaw, class_law
from fedassay.attacks.few_records.search import search
from fedassay.attacks.gram.attack import GramFactorization
from fedassay.audits.stats.typed_intervals import Bounded, interval
from fedassay.contracts.attack import Knowledge
from fedassay.data.records import Records
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import exact
from fedassay.exchange.view import ThreatModel, View
from fedassay.mixtures import Family, fit_mixtures
from fedassay.support.errors import NothingToReadError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

Matrix = NDArray[np.float64]

OWN = 4000
"""Images of the attacker's."""

MOST = 8
"""Records of a component of few."""

TOGETHER = 24
"""Components that are annealed side by side."""

PARTS: tuple[FieldKind, ...] = ("mixture_means", "mixture_covariances", "mixture_weights")
"""What a message sends of every component."""


@dataclass(frozen=True)
class Trial:
    """One message of one class.

    Attributes:
        view: What is seen.
        label: The class.
        rows: The images behind it.
    """

    view: View
    label: int
    rows: NDArray[np.int64]


def message(label: int, counts: Matrix, means: Matrix, covariances: Matrix, dtype: str) -> View:
    """A view of components, each with its number of records for its weight."""
    total = float(counts.sum())
    fields = {
        "class_ids": MessageField(np.array([label]), "class_ids", exact()),
        "counts": MessageField(np.array([round(total)]), "class_counts", exact()),
        "components": MessageField(np.array([len(counts)]), "component_counts", exact()),
        "weights": MessageField((counts / total).astype(dtype), "mixture_weights", exact()),
        "means": MessageField(means.astype(dtype), "mixture_means", exact()),
        "covariances": MessageField(covariances.astype(dtype), "mixture_covariances", exact()),
    }
    return View((Message(0, "client/0", SERVER, fields),), CLASSES, ThreatModel())


def one_component(pool: Pool, size: int, seed: int, family: Family, dtype: str) -> Trial:
    """Four components of `size` records of one class, drawn at random."""
    rng, label = np.random.default_rng(seed), seed % CLASSES
    usable = OWN + np.flatnonzero(pool.labels[OWN:] == label)
    rows = rng.choice(usable, (4, size), replace=False)
    groups = [pool.features[each] for each in rows]
    means = np.array([group.mean(axis=0) for group in groups])
    if family == "spherical":
        covariances = np.array([group.var(axis=0).mean() for group in groups])
    elif family == "full":
        covariances = np.array([np.cov(group.T, bias=True) for group in groups])
    else:
        covariances = np.array([group.var(axis=0) for group in groups])
    return Trial(message(label, np.full(4, float(size)), means, covariances, dtype), label, rows.ravel())


def mixture(pool: Pool, records: int, number: int, seed: int, family: Family) -> Trial:
    """A mixture that the project's own EM fits to records of one class, in float16 as FedPFT sends it."""
    rng, label = np.random.default_rng(seed), seed % CLASSES
    usable = OWN + np.flatnonzero(pool.labels[OWN:] == label)
    rows = rng.choice(usable, records, replace=False)
    fitted, _ = fit_mixtures(
        [pool.features[rows].astype(np.float32)], number, family, [np.random.default_rng(seed)]
    )
    counts = fitted.weights * records
    return Trial(message(label, counts, fitted.means, fitted.covariances, "float16"), label, rows)


class Told:
    """How many records lie alone in their component, with one to seven others, or in larger ones."""

    def __init__(self) -> None:
        self.alone: list[float] = []
        self.few: list[float] = []

    def add(self, view: View, total: int) -> None:
        """Count the components of one message."""
        (sent,) = view.from_clients()
        weights = sent.of_kind("mixture_weights")
        assert weights is not None
        counts = weights.astype(np.float64) * total
        whole = np.where(np.abs(counts - np.rint(counts)) <= WHOLE, np.rint(counts), 0)
        self.alone.append(float((whole == 1).sum() / total))
        self.few.append(float(whole[(whole > 1) & (whole <= MOST)].sum() / total))

    def words(self) -> str:
        """Shares of the records, in the mean over seeds with intervals."""
        alone, few = (interval(np.array(each), Bounded(0, 1)) for each in (self.alone, self.few))
        return (
            f"alone {alone.value:.2f} [{alone.low:.2f}, {alone.high:.2f}], "
            f"in components of 2 to {MOST} {few.value:.2f} [{few.low:.2f}, {few.high:.2f}]"
        )


def thinned(view: View, parts: int, seed: int) -> View:
    """The view with at most so many of its components of few records, drawn at random; the others are left out."""
    (sent,) = view.from_clients()
    read = {kind: np.asarray(sent.of_kind(kind)) for kind in PARTS}
    total = float(np.asarray(sent.of_kind("class_counts"))[0])
    counts = read["mixture_weights"].astype(np.float64) * total
    near = np.rint(counts)
    usable = np.flatnonzero((np.abs(counts - near) <= WHOLE) & (near >= 2) & (near <= MOST))
    chosen = np.sort(np.random.default_rng(seed).permutation(usable)[:parts])
    means, covariances = read["mixture_means"][chosen], read["mixture_covariances"][chosen]
    label = int(np.asarray(sent.of_kind("class_ids"))[0])
    return message(label, near[chosen], means, covariances, str(means.dtype))


def searched(views: Sequence[View], law: ClassLaw, sweeps: int, starts: int = 8) -> list[Recovered | None]:
    """The attack's search on the components of many views at once, those of equal size side by side.

    It is what the registered attack does, but for its random streams, the question of trust, and time: steps of
    many components take hardly longer than those of one.
    """
    parts = [(place, part) for place, view in enumerate(views) for part in components(view, MOST)[0]]
    found: dict[int, list[Matrix]] = {}
    for size in range(2, MOST + 1):
        own = [(place, part) for place, part in parts if part.records == size]
        for first in range(0, len(own), TOGETHER):
            block = own[first : first + TOGETHER]
            rng = np.random.default_rng((size, first))
            for (place, _), each in zip(
                block,
                search([part for _, part in block], law, rng, starts=starts, sweeps=sweeps),
                strict=True,
            ):
                found.setdefault(place, []).append(each.records)
    made: list[Recovered | None] = []
    for place in range(len(views)):
        groups = found.get(place, [])
        if not groups:
            made.append(None)
            continue
        means = [np.repeat(group.mean(axis=0)[None], len(group), axis=0) for group in groups]
        made.append(Recovered(np.concatenate(groups), np.concatenate(means), None))
    return made


def law_of(pool: Pool) -> ClassLaw:
    """The law of the attacker's images."""
    return class_law(pool.features[:OWN], pool.labels[:OWN], CLASSES)


@dataclass(frozen=True)
class Recovered:
    """Vectors of one trial.

    Attributes:
        found: Shape (k, d).
        means: What was sent in the place of each, the mean of its component; shape (k, d).
        trusted: Which may be trusted; None where nobody asked.
    """

    found: Matrix
    means: Matrix
    trusted: NDArray[np.bool_] | None


def by_attack(pool: Pool, view: View, seed: int, sweeps: int, own: int) -> Recovered | None:
    """The registered attack's vectors; None where it finds no component to work on."""
    records = pool.features[:OWN].astype(np.float32)
    attacker = Records("attacker", np.zeros((OWN, 1, 1, 1), np.uint8), pool.labels[:OWN], lambda _: records)
    knowledge = Knowledge(attacker, CLASSES, None, False, Seeds(seed), "cpu", SILENT)
    try:
        result = FewRecords(sweeps=sweeps, own_components=own).run(view, knowledge)
    except NothingToReadError:
        return None
    found, sizes = result.vectors[0].vectors.astype(np.float64), result.scores["records"].astype(int)
    return Recovered(found, _means(found, sizes), result.scores["trusted"] > 0)


def by_algebra(pool: Pool, view: View, seed: int) -> Recovered | None:
    """What `gram_factorization` makes of full covariances; None where it gives nothing back."""
    knowledge = Knowledge(None, CLASSES, None, False, Seeds(seed), "cpu", SILENT)
    result = GramFactorization().run(view, knowledge)
    if not result.vectors:
        return None
    found, target = np.asarray(result.artifacts["vectors"], np.float64), result.artifacts["target"].astype(int)
    return Recovered(found, _averaged(found, target), None)


def by_means(view: View) -> Recovered | None:
    """One variance for all features leaves the means, one for each component."""
    (sent,) = view.from_clients()
    means = np.asarray(sent.of_kind("mixture_means"), np.float64)
    return Recovered(means, means, None) if len(means) else None


def _means(found: Matrix, sizes: NDArray[np.int64]) -> Matrix:
    """The mean of each vector's component; those of one component stand together."""
    starts = [0]
    while starts[-1] < len(found):
        starts.append(starts[-1] + int(sizes[starts[-1]]))
    return _averaged(found, np.repeat(np.arange(len(starts) - 1), np.diff(starts)))


def _averaged(found: Matrix, group: Matrix) -> Matrix:
    means = found.copy()
    for each in np.unique(group):
        means[group == each] = found[group == each].mean(axis=0)
    return means


def row(name: str, pool: Pool, trials: Iterator[tuple[Trial, Recovered | None, float]], told: Told) -> None:
    """Hold what was found against the truth, and print."""
    errors, plain, named, by_mean, trusted, wrong, seconds, vectors, of = [], [], [], [], 0, 0, 0.0, 0, 0
    exact_ones, n, chance = 0, 0, []
    different: tuple[list[float], list[float]] = ([], [])
    for trial, result, taken in trials:
        seconds += taken
        of += len(trial.rows)
        n += 1
        if result is None:
            continue
        found, truth = result.found, pool.features[trial.rows]
        gaps = np.linalg.norm(found[:, None] - truth, axis=2) / np.linalg.norm(truth, axis=1)
        rows, columns = linear_sum_assignment(gaps)
        known = np.linalg.norm(result.means[rows] - truth[columns], axis=1) / np.linalg.norm(
            truth[columns], axis=1
        )
        errors.append(float(np.median(gaps[rows, columns])))
        plain.append(float(np.median(known)))
        exact_ones += int((gaps[rows, columns] < EXACT).sum())
        gallery = OWN + np.flatnonzero(pool.labels[OWN:] == trial.label)
        chance.append(len(trial.rows) / len(gallery))
        for vectors_of, shares_of, numbers in (
            (found, named, different[0]),
            (result.means, by_mean, different[1]),
        ):
            right, number = names(vectors_of, gallery, pool, trial.rows)
            shares_of.append(right)
            numbers.append(number / len(found))
        if result.trusted is not None:
            kept = result.trusted[rows]
            trusted += int(kept.sum())
            wrong += int((gaps[rows, columns] >= known)[kept].sum())
        vectors += len(found)
    shares = f"{told.words()}; " if told.alone else ""
    if not errors:
        print(f"{name}: {shares}nothing to read in {of} records of {n} seeds", flush=True)
        return
    share, mean, ours, theirs = (interval(np.array(each), Bounded(0, 1)) for each in (named, by_mean, *different))
    print(
        f"{name}: {shares}{vectors} vectors of {len(errors)} of {n} seeds, {exact_ones} below {EXACT:g}, "
        f"error {np.median(errors):.3f} [{min(errors):.3f}, {max(errors):.3f}], "
        f"component mean {np.median(plain):.3f}; named {share.value:.2f} [{share.low:.2f}, {share.high:.2f}], "
        f"by the mean {mean.value:.2f} [{mean.low:.2f}, {mean.high:.2f}], chance {np.mean(chance):.2f}; "
        f"different records named, of the vectors {ours.value:.2f} [{ours.low:.2f}, {ours.high:.2f}], "
        f"by the mean {theirs.value:.2f} [{theirs.low:.2f}, {theirs.high:.2f}]; "
        f"trusted {trusted}, farther than the mean {wrong}; "
        f"{seconds / max(1, vectors):.2f} s a vector",
        flush=True,
    )


def names(vectors: Matrix, gallery: NDArray[np.int64], pool: Pool, own: NDArray[np.int64]) -> tuple[float, int]:
    """Share of vectors whose nearest image of the gallery is one of the client's, and how many these are."""
    near = gallery[np.linalg.norm(vectors[:, None] - pool.features[gallery], axis=2).argmin(axis=1)]
    right = near[np.isin(near, own)]
    return len(right) / len(near), len(np.unique(right))


def exact_part(pool: Pool, given: argparse.Namespace) -> None:
    """Components of a known number of records drawn at random, by family and type."""
    for size, family, dtype in (
        *((size, "diag", "float32") for size in (2, 3, 4, 8)),
        (2, "diag", "float64"),
        (2, "diag", "float16"),
        *((size, "full", "float32") for size in (2, 3, 4, 8)),
        *((2, "full", dtype) for dtype in ("float64", "float16")),
        *((size, "spherical", "float32") for size in (2, 3, 4, 8)),
    ):
        if family not in given.families:
            continue

        def trials(
            size: int = size, family: Family = family, dtype: str = dtype
        ) -> Iterator[tuple[Trial, Recovered | None, float]]:
            for seed in range(given.seeds):
                trial = one_component(pool, size, seed, family, dtype)
                yield trial, *timed(pool, trial.view, seed, family, given)

        row(f"{public_data.called(given.data)}, {size} records, {family}, {dtype}", pool, trials(), Told())


def timed(
    pool: Pool, view: View, seed: int, family: Family, given: argparse.Namespace
) -> tuple[Recovered | None, float]:
    """The attack that applies to a family, and its processor seconds."""
    begun = time.process_time()
    if family == "diag":
        found = by_attack(pool, view, seed, given.sweeps, given.own)
    else:
        found = by_algebra(pool, view, seed) if family == "full" else by_means(view)
    return found, time.process_time() - begun


def mixtures_part(pool: Pool, given: argparse.Namespace) -> None:
    """Components as the project's own EM makes them."""
    law = law_of(pool)
    for family in given.families:
        for records, number in ((r, k) for r in given.records for k in given.numbers if k < r):
            told, trials = Told(), []
            for seed in range(given.seeds):
                trials.append(mixture(pool, records, number, seed, family))
                told.add(trials[-1].view, records)
            views = [thinned(trial.view, given.components, seed) for seed, trial in enumerate(trials)]
            begun = time.process_time()
            if family == "diag":
                found = searched(views, law, given.sweeps)
            else:
                found = [_otherwise(pool, view, seed, family) for seed, view in enumerate(views)]
            taken = (time.process_time() - begun) / len(views)
            name = f"{public_data.called(given.data)}, K = {number} on {records} a class, {family}, float16"
            row(name, pool, ((trial, each, taken) for trial, each in zip(trials, found, strict=True)), told)


def _otherwise(pool: Pool, view: View, seed: int, family: Family) -> Recovered | None:
    """What full or spherical components give; None where the view has none."""
    (sent,) = view.from_clients()
    if not len(np.asarray(sent.of_kind("mixture_means"))):
        return None
    return by_algebra(pool, view, seed) if family == "full" else by_means(view)


def main() -> None:
    """Print the rows of a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("exact", "mixtures"))
    parser.add_argument("--seeds", type=int, default=20)
    public_data.add_arguments(parser)
    parser.add_argument("--sweeps", type=int, default=40)
    parser.add_argument(
        "--own", type=int, default=8, help="components of the attacker's own that tell what to trust"
    )
    parser.add_argument("--components", type=int, default=4, help="components of a mixture that are attacked")
    parser.add_argument("--records", type=int, nargs="+", default=[20, 60, 200], help="of a class, in mixtures")
    parser.add_argument("--numbers", type=int, nargs="+", default=[1, 10, 50], help="of components, in mixtures")
    parser.add_argument("--families", nargs="+", default=["diag", "full", "spherical"])
    given = parser.parse_args()
    pool = load(given.data, given.weights, signed=False)
    (exact_part if given.part == "exact" else mixtures_part)(pool, given)


if __name__ == "__main__":
    public_data.ended(main)
