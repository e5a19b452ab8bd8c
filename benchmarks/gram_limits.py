"""What Gram matrices give away, with intervals: the tables of docs/gram_factorization.md.

    python benchmarks/gram_limits.py PART [--seeds 20] [--data cifar10] [--weights imagenet]

Parts: `share` (records with a relative error below 1e-3, by client size, type and hidden counts), `ratio` (more
records than features), `phase` (zeros and n / d on synthetic features, against the counting bound), `dense`
(signed features), `ridge` (AFL as its authors' code accumulates it), `noise`, `certificates` (how many vectors the
audit's rule certifies, and how many of those are wrong) and `attribution` (whose records are that come back from
sums over clients). A line is printed as soon as it
is measured; intervals at 95 % are of records, by client, since a client's are not independent
(`audits.stats.persons`). `--sizes`, `--counts`, `--zeros`, `--over` and `--widths` choose rows. No client is begun
after `--limit` seconds of processor time of a row; one that ended so says "limit".
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import public_data
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedassay.attacks.gram.attack import GramFactorization
from fedassay.audits.message.certified import CLIENTS, WRONG, Recovered, fit, recovered
from fedassay.audits.stats.persons import share_interval
from fedassay.audits.stats.typed_intervals import Bounded, interval
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.data.records import Records
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.message import AGGREGATE, SERVER, Message, MessageField
from fedassay.exchange.release import Release, exact, public
from fedassay.exchange.view import ThreatModel, View
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.privacy.mechanisms import clip_features, release_shared_sums
from fedassay.privacy.sensitivities import shared_sums as shared_sums_sensitivity
from fedassay.privacy.tape import FreeNoise
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]

CLASSES = 10
EXACT = 1e-3
SCALE = 128.0
"""Features are divided by it: the squares of SqueezeNet's do not fit into float16."""

MOST = 8000
"""Training images that are taken."""

HELD = 6400
"""Images of the attacker's; clients are drawn from the others."""


@dataclass(frozen=True)
class Pool:
    """Features with labels: the attacker's first, then those that clients are drawn from."""

    features: Matrix
    labels: Labels

    def client(self, size: int, seed: int) -> tuple[Matrix, Labels]:
        """A client's features and labels."""
        rng = np.random.default_rng(seed)
        rows = HELD + rng.choice(len(self.features) - HELD, size, replace=False)
        return self.features[rows], self.labels[rows]

    @property
    def attacker(self) -> Records:
        """The attacker's own records."""
        own = self.features[:HELD].astype(np.float32)
        return Records("attacker", np.zeros((HELD, 1, 1, 1), np.uint8), self.labels[:HELD], lambda _: own)


@dataclass(frozen=True)
class Asked:
    """Which rows are measured, and for how long.

    Attributes:
        seeds: Clients a row.
        limit: Seconds of processor time after which no client of a row is begun.
        sizes: Records a client, of `share`.
        counts: Whether they are sent, of `share` and `ratio`.
        zeros: Shares of zeros, of `phase`.
        over: Values of n / d, of `phase` and `ratio`; None: each part's own.
        widths: Features, of `ratio`.
    """

    seeds: int
    limit: float
    sizes: tuple[int, ...]
    counts: tuple[bool, ...]
    zeros: tuple[float, ...]
    over: tuple[float, ...] | None
    widths: tuple[int, ...]


def sent(fields: dict[FieldKind, Any], dtype: Any, release: Release | None = None) -> Message:
    """A message of these arrays; counts stay whole."""
    made = {
        kind: MessageField(
            np.asarray(values, np.int64 if kind == "class_counts" else dtype), kind, release or exact()
        )
        for kind, values in fields.items()
    }
    return Message(0, "client/0", SERVER, made)


def sums(features: Matrix, labels: Labels, *, counts: bool) -> dict[FieldKind, Any]:
    """What FedCGS sends."""
    member = (labels[:, None] == np.arange(CLASSES)).astype(np.float64)
    fields: dict[FieldKind, Any] = {"class_sums": member.T @ features, "second_moment": features.T @ features}
    return {**fields, "class_counts": member.sum(axis=0)} if counts else fields


def attacked(messages: tuple[Message, ...], own: Records | None = None, **parameters: Any) -> AttackResult:
    """The registered attack on a view of these messages."""
    knowledge = Knowledge(own, CLASSES, None, False, Seeds(0), "cpu", SILENT)
    return GramFactorization(max_records=1024, **parameters).run(View(messages, CLASSES, ThreatModel()), knowledge)


def errors(result: AttackResult, truth: Matrix, relative_to: Matrix | None = None) -> Matrix:
    """Relative error of every true record that is not 0, 1 where nothing was matched to it; shape (n,)."""
    found = np.asarray(result.artifacts["vectors"], np.float64)
    truth = truth[np.linalg.norm(truth, axis=1) > 0]
    norms = np.linalg.norm(truth if relative_to is None else truth - relative_to, axis=1)
    measured = np.ones(len(truth))
    if len(found):
        apart = np.linalg.norm(found[:, None] - truth, axis=2) / norms
        rows, columns = linear_sum_assignment(np.minimum(apart, 1e6))
        measured[columns] = apart[rows, columns]
    return measured


def row(name: str, asked: Asked, client: Callable[[int], tuple[Matrix, tuple[float, ...]]]) -> None:
    """Measure and print a row: how many records came back, with an interval by client, and the median error.

    Args:
        name: What the row begins with.
        asked: How many clients, and for how long.
        client: Errors of a client's records from its seed, and numbers whose means are printed as well.
    """
    start, parts, others, seed = time.process_time(), [], [], 0
    while seed < asked.seeds and time.process_time() - start < asked.limit:
        errors_, numbers = client(seed)
        parts.append(errors_)
        others.append(numbers)
        seed += 1
    everything = np.concatenate(parts)
    hits, clients = everything < EXACT, f"{seed} (limit)" if seed < asked.seeds else str(seed)
    low, high = share_interval(hits, np.repeat(np.arange(seed), [len(part) for part in parts]))
    means = "".join(f"{mean:.2f} | " for mean in np.mean(others, axis=0))
    print(
        f"| {name} | {means}{clients} | {hits.sum()}/{len(hits)} = {hits.mean():.3f} | "
        f"{low:.3f} to {high:.3f} | {(everything < 0.1).mean():.3f} | {np.median(everything):.1e} | "
        f"{time.process_time() - start:.0f} |",
        flush=True,
    )


def share(pool: Pool, asked: Asked) -> None:
    """Records recovered by client size, type and hidden counts."""
    for size in asked.sizes:
        for dtype in (np.float64, np.float32, np.float16):
            for counts in asked.counts:

                def client(seed: int, size: int = size, dtype: Any = dtype, counts: bool = counts) -> Any:
                    features, labels = pool.client(size, seed)
                    return errors(attacked((sent(sums(features, labels, counts=counts), dtype),)), features), ()

                row(f"{size} | {np.dtype(dtype).name} | {'sent' if counts else 'hidden'}", asked, client)


def ratio(pool: Pool, asked: Asked) -> None:
    """More records than features, on the most active columns, counts sent and hidden."""
    active = np.argsort(-(pool.features[:HELD] > 0).mean(axis=0))[32:]
    for width in asked.widths:
        columns = np.random.default_rng(0).permutation(active)[:width]
        for over in asked.over or (1.1, 1.3, 1.5, 2.0):
            for counts in asked.counts:

                def client(seed: int, over: float = over, columns: Any = columns, counts: bool = counts) -> Any:
                    features, labels = pool.client(round(over * len(columns)), seed)
                    features = features[:, columns]
                    fields = sums(features, labels, counts=counts)
                    found = errors(attacked((sent(fields, np.float64),)), features)
                    return found, (float((features == 0).mean()), counting(features, fields))

                row(f"{len(columns)} | {over} | {'sent' if counts else 'hidden'}", asked, client)


def counting(features: Matrix, fields: dict[FieldKind, Any]) -> float:
    """Unknowns over equations, nnz(F) / (nnz(vech B) + nnz(A)): above 1 nothing can be determined."""
    second = np.asarray(fields["second_moment"])
    equations = (second[np.tril_indices(len(second))] != 0).sum() + (np.asarray(fields["class_sums"]) != 0).sum()
    return float((features > 0).sum() / equations)


def phase(pool: Pool, asked: Asked) -> None:
    """Synthetic features of width 32: share of clients whose records come back, by zeros and n / d."""
    del pool
    width, member = 32, 4
    for zeros in asked.zeros:
        for over in asked.over or (0.5, 1.1, 1.3, 1.5, 2.0, 2.5):

            def client(seed: int, zeros: float = zeros, over: float = over) -> Any:
                rng = np.random.default_rng(seed)
                size = round(over * width)
                features = rng.lognormal(0, 1, width) * rng.exponential(1, (size, width))
                features *= rng.random((size, width)) >= zeros
                fields = sums(features, np.arange(size) % member, counts=True)
                return errors(attacked((sent(fields, np.float64),)), features), (counting(features, fields),)

            row(f"{zeros} | {over}", asked, client)


def ridge(pool: Pool, asked: Asked) -> None:
    """AFL: W and C in float32, accumulated record by record as the authors' code does; no counts."""
    for gamma in (0.1, 1.0, 100.0):
        for size in (8, 16, 32):

            def client(seed: int, gamma: float = gamma, size: int = size) -> Any:
                features, labels = pool.client(size, seed)
                moment = gamma * np.eye(features.shape[1], dtype=np.float32)
                products = np.zeros((CLASSES, features.shape[1]), np.float32)
                for record, label in zip((SCALE * features).astype(np.float32), labels, strict=True):
                    moment += np.outer(record, record)
                    products[label] += record
                weights = np.linalg.solve(moment.astype(np.float64), products.T.astype(np.float64)).T
                fields: dict[FieldKind, Any] = {"ridge_weights": weights, "regularised_gram": moment}
                return errors(attacked((sent(fields, np.float32),)), SCALE * features), ()

            row(f"{gamma} | {size}", asked, client)


def dense(pool: Pool, asked: Asked) -> None:
    """Signed features, whole and through a public projection, against what needs no message."""
    own = pool.features[:HELD]
    for projected in (0, 256):
        matrix = np.random.default_rng(1).standard_normal((own.shape[1], projected)) / math.sqrt(own.shape[1])
        for size in (4, 8, 16):
            turned, nearest = [], []

            def client(
                seed: int,
                size: int = size,
                projected: int = projected,
                matrix: Matrix = matrix,
                turned: list[Matrix] = turned,
                nearest: list[Matrix] = nearest,
            ) -> Any:
                whole, labels = pool.client(size, seed)
                features, mine = (whole @ matrix, own @ matrix) if projected else (whole, own)
                messages = (sent(sums(features, labels * 0, counts=True), np.float64),)
                if projected:
                    field = MessageField(matrix, "projection", public())
                    messages = (Message(0, SERVER, "client/0", {"R": field}), *messages)
                turned.append(_turned(features, seed))
                nearest.append(_nearest(features, mine))
                found = attacked(messages, pool.attacker, trust=1e9)
                return errors(found, features, features.mean(axis=0)), ()

            row(f"{projected or 'none'} | {size}", asked, client)
            others = [float(np.median(np.concatenate(each))) for each in (turned, nearest)]
            print(f"| random rotation {others[0]:.2f}, client mean 1, nearest own {others[1]:.2f} |", flush=True)


def _turned(features: Matrix, seed: int) -> Matrix:
    """Errors of vectors with the same second moment and sum, rotated at random."""
    rng, size = np.random.default_rng(seed), len(features)
    basis = np.linalg.qr(np.column_stack([np.ones(size), rng.standard_normal((size, size - 1))]))[0][:, 1:]
    turn = np.linalg.qr(rng.standard_normal((size - 1, size - 1)))[0]
    mean = features.mean(axis=0)
    other = mean + basis @ turn @ basis.T @ (features - mean)
    apart = np.linalg.norm(other[:, None] - features, axis=2) / np.linalg.norm(features - mean, axis=1)
    rows, columns = linear_sum_assignment(apart)
    return np.asarray(apart[rows, columns])


def _nearest(features: Matrix, own: Matrix) -> Matrix:
    squares = (features**2).sum(axis=1)[:, None] + (own**2).sum(axis=1) - 2 * features @ own.T
    apart = np.sqrt(np.maximum(squares, 0)).min(axis=1)
    return np.asarray(apart / np.linalg.norm(features - features.mean(axis=0), axis=1))


def noise(pool: Pool, asked: Asked) -> None:
    """One joint Gaussian mechanism at epsilon 8, delta 1e-5."""
    width = pool.features.shape[1]
    sensitivity = shared_sums_sensitivity(
        width, adjacency="add_remove", classes=CLASSES, nonnegative=False, weights=(1.0, 1.0, 1.0)
    ).sensitivity
    sigma = calibrate_sigma(8.0, 1e-5, sensitivity)
    release = Release(
        mechanism="gaussian", adjacency="add_remove", noise_scale=(sigma,), sensitivity=(sensitivity,)
    )
    for size in (8, 32, 128):

        def client(seed: int, size: int = size) -> Any:
            features, labels = pool.client(size, seed)
            noise_mechanism = FreeNoise(np.random.default_rng(seed))
            noised = release_shared_sums(
                features, labels, CLASSES, sigmas=(sigma, sigma, sigma), noise=noise_mechanism
            )
            fields: dict[FieldKind, Any] = {"class_sums": noised.sums, "second_moment": noised.second}
            return errors(attacked((sent(fields, np.float64, release),)), clip_features(features)), ()

        row(f"{size}", asked, client)


def certificates(pool: Pool, asked: Asked) -> None:
    """The audit's rule for which vectors to trust: fitted on other clients, fixed, and held against the truth."""
    active = np.argsort(-(pool.features[:HELD] > 0).mean(axis=0))[32:]
    narrow = np.random.default_rng(0).permutation(active)[:32]
    everything = np.arange(pool.features.shape[1])
    cases = [(size, everything, dtype) for size in asked.sizes for dtype in (np.float64, np.float32, np.float16)]
    cases += [(round(over * len(narrow)), narrow, np.float64) for over in asked.over or (1.1, 1.3)]
    for size, columns, dtype in cases:
        for counts in asked.counts:
            start, found, seed = time.process_time(), [], 0
            while seed < asked.seeds and time.process_time() - start < asked.limit:
                features, labels = pool.client(size, seed)
                own = Records("client/0", _NO_IMAGES[:size], labels, lambda _, f=features[:, columns]: f)
                message = sent(sums(own.features, labels, counts=counts), dtype)
                found.append(recovered(attacked((message,)), own.name, own, lambda records: records.features))
                seed += 1
            name = f"{size} | {len(columns)} | {np.dtype(dtype).name} | {'sent' if counts else 'hidden'}"
            _certified(name, found, time.process_time() - start)


_NO_IMAGES = np.zeros((1024, 1, 1, 1), np.uint8)


def _certified(name: str, clients: list[Recovered], seconds: float) -> None:
    """Print a row: each client is judged by a certificate fitted on `CLIENTS` others, drawn at random."""
    taken, wrong, shares = [], [], []
    for number, client in enumerate(clients):
        others = np.delete(np.arange(len(clients)), number)
        rng = np.random.default_rng(number)
        drawn = rng.choice(others, min(CLIENTS, len(others)), replace=False)
        certified = fit([clients[other] for other in drawn]).certified(client.expected)
        taken.append(certified)
        wrong.append(client.errors[certified] > WRONG)
        shares.append(float(wrong[-1].mean()) if certified.any() else 0.0)
    held, bad = np.concatenate(taken), np.concatenate(wrong)
    off = np.concatenate([client.errors for client in clients]) > WRONG
    rate = interval(shares, Bounded(0, 1))
    parts = (f"{each.sum()}/{len(each)}" for each in (off, held, bad))
    print(
        f"| {name} | {len(clients)} | {' | '.join(parts)} | "
        f"{rate.value:.3f} | {rate.low:.3f} to {rate.high:.3f} | {seconds:.0f} |",
        flush=True,
    )


def attribution(pool: Pool, asked: Asked) -> None:
    """Whose the records are that come back from sums over five clients, by what is seen beside the sums."""
    everybody, size = tuple(range(5)), asked.sizes[0]
    one_leaves, each_leaves = (everybody, everybody[:-1]), (everybody, *combinations(everybody, 4))
    cases: dict[str, tuple[tuple[tuple[int, ...], ...], FieldKind | None]] = {
        "one round": ((everybody,), None),
        "one client leaves": (one_leaves, None),
        "each client is away once": (each_leaves, None),
        "class counts seen": ((everybody,), "class_counts"),
        "class sums seen": ((everybody,), "class_sums"),
    }
    for name, (rounds, seen) in cases.items():
        start, single, right, whose, seed = time.process_time(), [], [], [], 0
        while seed < asked.seeds and time.process_time() - start < asked.limit:
            features, labels = pool.client(size * len(everybody), seed)
            owner = np.arange(len(features)) % len(everybody)
            result = attributed(features, labels, owner, rounds, seen)
            vectors = np.asarray(result.artifacts["vectors"])
            nearest = [int(np.linalg.norm(features - vector, axis=1).argmin()) for vector in vectors]
            possible = np.asarray(result.artifacts["possible"], np.bool_)
            told = possible.sum(axis=1) == 1
            single.append(told)
            right.append(possible[np.arange(len(nearest)), owner[nearest]][told])
            whose.append(np.full(int(told.sum()), seed))
            seed += 1
        told, hits = np.concatenate(single), np.concatenate(right)
        low, high = share_interval(hits, np.concatenate(whose)) if len(hits) else (math.nan, math.nan)
        print(
            f"| {name} | {seed} | {told.sum()}/{len(told)} = {told.mean():.3f} | {hits.sum()}/{len(hits)} | "
            f"{low:.3f} to {high:.3f} | {1 / len(everybody):.2f} | {time.process_time() - start:.0f} |",
            flush=True,
        )


def attributed(
    features: Matrix, labels: Labels, owner: Labels, rounds: tuple[tuple[int, ...], ...], seen: FieldKind | None
) -> AttackResult:
    """The attack on float32 sums over some of the clients each round, beside what is seen of each of them."""
    messages, cohorts = [], {}
    for number, cohort in enumerate(rounds):
        rows = np.isin(owner, cohort)
        whole = sent(sums(features[rows], labels[rows], counts=True), np.float32)
        messages.append(Message(number, AGGREGATE, SERVER, whole.fields))
        cohorts[number] = tuple(f"client/{client}" for client in cohort)
    for client in range(int(owner.max()) + 1) if seen else ():
        own = sums(features[owner == client], labels[owner == client], counts=True)
        alone = sent({seen: own[seen]}, np.float32) if seen else None
        messages += [Message(0, f"client/{client}", SERVER, alone.fields)] if alone else []
    knowledge = Knowledge(None, CLASSES, None, False, Seeds(0), "cpu", SILENT)
    view = View(tuple(messages), CLASSES, ThreatModel(), cohorts=cohorts)
    return GramFactorization(max_records=1024).run(view, knowledge)


PARTS: dict[str, Callable[[Pool, Asked], None]] = {
    "share": share,
    "ratio": ratio,
    "phase": phase,
    "ridge": ridge,
    "dense": dense,
    "noise": noise,
    "certificates": certificates,
    "attribution": attribution,
}


def load(data: str, weights: str, *, signed: bool) -> Pool:
    """SqueezeNet's features at 64 pixels; `signed`: those before its last rectifiers."""
    images, labels = public_data.training(data, MOST)
    made = public_data.backbone("squeezenet1_1", weights, public_data.SIZE, images, CLASSES)
    if signed:
        from torch import nn

        last = [part for part in made.module.modules() if hasattr(part, "expand1x1_activation")][-1]
        last.expand1x1_activation = last.expand3x3_activation = nn.Identity()
    return Pool(made.features(images).astype(np.float64) / SCALE, labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--limit", type=float, default=math.inf)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 8, 16, 32, 64, 128])
    parser.add_argument("--counts", choices=("sent", "hidden"), nargs="+", default=["sent", "hidden"])
    parser.add_argument("--zeros", type=float, nargs="+", default=[0.9, 0.8, 0.7, 0.6, 0.5])
    parser.add_argument("--over", type=float, nargs="+")
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128])
    public_data.add_arguments(parser)
    given = parser.parse_args()
    over = None if given.over is None else tuple(given.over)
    asked = Asked(
        given.seeds,
        given.limit,
        tuple(given.sizes),
        tuple(how == "sent" for how in given.counts),
        tuple(given.zeros),
        over,
        tuple(given.widths),
    )
    pool = (
        Pool(np.zeros((0, 1)), np.zeros(0, np.int64))
        if given.part == "phase"
        else load(given.data, given.weights, signed=given.part == "dense")
    )
    columns = "case | clients | below 1e-3 | 95 % | below .1 | median | s"
    print(f"\n### {given.part}, {public_data.called(given.data)}: {columns}\n")
    PARTS[given.part](pool, asked)


if __name__ == "__main__":
    public_data.ended(main)
