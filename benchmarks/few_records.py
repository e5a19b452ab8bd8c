"""What components of few records give away: the tables of docs/few_records.md.

    FEDASSAY_DATA=... FEDASSAY_WEIGHTS=... python benchmarks/few_records.py PART [--seeds 20] [--data cifar10]

Parts: `exact` (components of 2, 3, 4 and 8 records, by family and type) and `mixtures` (the project's own EM: K
components on 20, 60 and 200 records of a class). SqueezeNet's features at 64 pixels; the attacker has 4,000
images, clients' images are others. A line is printed as soon as it is measured. Errors are relative to the
record's length, medians with the range over seeds' medians; a record is named where the nearest image of its class
among all that the attacker does not have is the record itself; intervals at 95 % are of vectors, by seed. Seconds
are of a processor.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from gram_limits import CLASSES, Pool, load
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedassay.attacks.few_records.attack import FewRecords
from fedassay.audits.stats.typed_intervals import Bounded, interval
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.data.records import Records
from fedassay.exchange.message import SERVER, Message, MessageField
from fedassay.exchange.release import exact
from fedassay.exchange.view import ThreatModel, View
from fedassay.mixtures import fit_mixtures
from fedassay.support.errors import NothingToReadError
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

Matrix = NDArray[np.float64]

OWN = 4000
"""Images of the attacker's."""


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


def attacked(pool: Pool, trial: Trial, seed: int, sweeps: int) -> AttackResult | None:
    """The registered attack; None where it finds no component to work on."""
    own = pool.features[:OWN].astype(np.float32)
    attacker = Records("attacker", np.zeros((OWN, 1, 1, 1), np.uint8), pool.labels[:OWN], lambda _: own)
    knowledge = Knowledge(attacker, CLASSES, None, False, Seeds(seed), "cpu", SILENT)
    try:
        return FewRecords(sweeps=sweeps).run(trial.view, knowledge)
    except NothingToReadError:
        return None


def one_component(pool: Pool, size: int, seed: int, family: str, dtype: str) -> Trial:
    """Four components of `size` records of one class, drawn at random."""
    rng, label = np.random.default_rng(seed), seed % CLASSES
    usable = OWN + np.flatnonzero(pool.labels[OWN:] == label)
    rows = rng.choice(usable, (4, size), replace=False)
    groups = [pool.features[each] for each in rows]
    means = np.array([group.mean(axis=0) for group in groups])
    if family == "spherical":
        covariances = np.array([group.var(axis=0).mean() for group in groups])
    else:
        covariances = np.array([group.var(axis=0) for group in groups])
    return Trial(message(label, np.full(4, float(size)), means, covariances, dtype), label, rows.ravel())


def mixture(pool: Pool, records: int, components: int, seed: int, dtype: str) -> Trial:
    """A mixture that the project's own EM fits to records of one class."""
    rng, label = np.random.default_rng(seed), seed % CLASSES
    usable = OWN + np.flatnonzero(pool.labels[OWN:] == label)
    rows = rng.choice(usable, records, replace=False)
    fitted, _ = fit_mixtures(
        [pool.features[rows].astype(np.float32)], components, "diag", [np.random.default_rng(seed)]
    )
    counts = fitted.weights * records
    return Trial(message(label, counts, fitted.means, fitted.covariances, dtype), label, rows)


def row(name: str, pool: Pool, trials: Iterator[Trial], sweeps: int) -> None:
    """Attack and print."""
    errors, plain, named, by_mean, trusted, wrong, seconds, vectors, of = [], [], [], [], 0, 0, 0.0, 0, 0
    for seed, trial in enumerate(trials):
        begun = time.process_time()
        result = attacked(pool, trial, seed, sweeps)
        seconds += time.process_time() - begun
        of += len(trial.rows)
        if result is None:
            continue
        found, sizes = result.vectors[0].vectors.astype(np.float64), result.scores["records"].astype(int)
        truth = pool.features[trial.rows]
        gaps = np.linalg.norm(found[:, None] - truth, axis=2) / np.linalg.norm(truth, axis=1)
        rows, columns = linear_sum_assignment(gaps)
        means, start = np.empty_like(found), 0
        while start < len(found):
            stop = start + sizes[start]
            means[start:stop] = found[start:stop].mean(axis=0)
            start = stop
        known = np.linalg.norm(means[rows] - truth[columns], axis=1) / np.linalg.norm(truth[columns], axis=1)
        errors.append(float(np.median(gaps[rows, columns])))
        plain.append(float(np.median(known)))
        gallery = OWN + np.flatnonzero(pool.labels[OWN:] == trial.label)
        others = pool.features[gallery]

        def names(vectors: Matrix, gallery: NDArray[np.int64], others: Matrix, own: NDArray[np.int64]) -> float:
            near = np.linalg.norm(vectors[:, None] - others, axis=2).argmin(axis=1)
            return float(np.isin(gallery[near], own).mean())

        named.append(names(found, gallery, others, trial.rows))
        by_mean.append(names(means, gallery, others, trial.rows))
        kept = result.scores["trusted"][rows] > 0
        trusted += int(kept.sum())
        wrong += int((gaps[rows, columns] >= known)[kept].sum())
        vectors += len(found)
    if not errors:
        print(f"{name}: nothing to read in {of} records", flush=True)
        return
    share, mean = (interval(np.array(each), Bounded(0, 1)) for each in (named, by_mean))
    print(
        f"{name}: {vectors} of {of} records, "
        f"error {np.median(errors):.3f} [{min(errors):.3f}, {max(errors):.3f}], "
        f"component mean {np.median(plain):.3f}; named {share.value:.2f} [{share.low:.2f}, {share.high:.2f}], "
        f"by the mean {mean.value:.2f} [{mean.low:.2f}, {mean.high:.2f}]; "
        f"trusted {trusted}, farther than the mean {wrong}; "
        f"{seconds / max(1, vectors):.2f} s a vector",
        flush=True,
    )


def main() -> None:
    """Print the rows of a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("exact", "mixtures"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--data", default="cifar10", choices=("cifar10", "fashion_mnist"))
    parser.add_argument("--sweeps", type=int, default=40)
    given = parser.parse_args()
    pool = load(given.data, signed=False)
    seeds = range(given.seeds)
    if given.part == "exact":
        for size, family, dtype in (
            *((size, "diag", "float32") for size in (2, 3, 4, 8)),
            (2, "diag", "float64"),
            (2, "diag", "float16"),
            (2, "spherical", "float32"),
        ):
            name = f"{given.data}, {size} records, {family}, {dtype}"
            row(name, pool, (one_component(pool, size, seed, family, dtype) for seed in seeds), given.sweeps)
        return
    for records in (20, 60, 200):
        for components in (1, 10, 50):
            if components < records:
                name = f"{given.data}, K = {components} on {records} a class, diag, float16"
                row(
                    name,
                    pool,
                    (mixture(pool, records, components, seed, "float16") for seed in seeds),
                    given.sweeps,
                )


if __name__ == "__main__":
    main()
