"""What limits the list in a head: its size, noise, early stopping; and how often a list is false.

    python benchmarks/head_limits.py PART [--data cifar10] [--draws 10] [--only '"members": 500']
    python benchmarks/head_limits.py table

A part appends one row a draw to `--rows`, and goes on where it was stopped; `table` sums the rows up.

- `sizes`: heads of 200 to 5,000 members, and twice as many candidates. Peak memory is that of the process so far.
- `null`: heads of 200 others (`null`) or of half of the candidates (`members`), read for `--members` twice as many
  candidates; and lists with one name wrong (`one wrong`), of which the certificate is asked.
- `private`: heads at finite epsilon and delta 1e-5, read by the head, by the loss and by what the clients sent.
- `stopped`: softmax heads after a number of steps.
- `left`: the record that left between two ridge heads, and whether it is `nearest` among 3,000 other images.

Features are those of SqueezeNet at 64 pixels, kept under --cache; with `--width` a fixed random projection of
them. The loss is the head's own: squared for ridge, else the cross-entropy. Intervals at 95 % are over draws
(Student's).
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import public_data
import torch
from gallery_attack import CLASSES, CLIENTS, Pool, asked, drawn, judged, pool_of
from kept_rows import Job, run_parts
from numpy.typing import NDArray
from published_heads import MODELS, sent
from scipy.special import log_softmax
from sklearn.preprocessing import StandardScaler

from fedassay.attacks.gallery.answers import Answer, Kept
from fedassay.attacks.gallery.attack import KEY, Gallery
from fedassay.attacks.gallery.heads import inside_of
from fedassay.attacks.gallery.published import CERTIFIED, answer_of_head, distance
from fedassay.attacks.membership.attack import Membership
from fedassay.audits.membership.ceiling import highest_auc
from fedassay.audits.stats.roc import auc
from fedassay.contracts.membership import visible
from fedassay.contracts.method import Method, MethodInput
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.view import ThreatModel
from fedassay.heads.estimating import Estimator
from fedassay.heads.estimators import GaussianEstimator, RidgeEstimator, SoftmaxEstimator
from fedassay.heads.gaussian import RIDGE
from fedassay.heads.linear import LinearHead, train_head
from fedassay.heads.penalised import PenalisedEstimator
from fedassay.methods.baselines.average import Average
from fedassay.methods.closed_forms.one_shot_ridge import OneShotRidge
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.methods.shared.local_heads import HeadDpSgd
from fedassay.privacy.gaussian import mu_of
from fedassay.support.errors import FedassayError
from fedassay.support.optimisation import Minibatches, Optimizer
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

Ints = NDArray[np.int64]
Matrix = NDArray[np.float64]

HEADS: dict[str, Estimator] = {
    "FedCGS": GaussianEstimator("total", RIDGE),
    "one-shot ridge": RidgeEstimator(0.01),
    **{name: MODELS[name][1] for name in ("LogisticRegression", "RidgeClassifier")},
}
DELTA = 1e-5


def _head(pool: Pool, name: str, made_of: Ints, rows: Ints) -> tuple[LinearHead, Matrix]:
    """A head in float32 of some records, and its inputs for others; scikit-learn's stand behind a scaler."""
    own, features = pool.features[made_of].astype(np.float64), pool.features[rows].astype(np.float64)
    if name in MODELS:
        scaler = StandardScaler().fit(own)
        return sent(MODELS[name][0]().fit(scaler.transform(own), pool.labels[made_of])), scaler.transform(features)
    head = HEADS[name].fit(own, pool.labels[made_of])
    return LinearHead(head.classes, head.weights.astype(np.float32), head.bias.astype(np.float32)), features


def _answered(
    pool: Pool, name: str, made_of: Ints, rows: Ints, own: Ints, draw: int
) -> tuple[Answer, LinearHead, Matrix]:
    every, decoys = np.concatenate([rows, own]), np.arange(len(rows) + len(own)) >= len(rows)
    head, inputs = _head(pool, name, made_of, every)
    held = Kept(pool.records("gallery", every), (~decoys).astype(np.int64), decoys, {})
    told = answer_of_head(HEADS[name], head, inputs, held, len(rows) / 2, np.random.default_rng(draw))
    return told, head, inputs[: len(rows)]


def _loss(estimator: Estimator, head: LinearHead, inputs: Matrix, labels: Ints) -> Matrix:
    """Minus the loss of each record, shape (n,)."""
    if isinstance(estimator, RidgeEstimator) or getattr(estimator, "loss", "") == "least_squares":
        return np.asarray(-(estimator.equations(head, inputs, labels, None).residuals ** 2).sum(axis=1))
    scores = log_softmax(head.scores(inputs), axis=1)
    return np.asarray(scores[np.arange(len(labels)), np.searchsorted(head.classes, labels)])


def sizes(pool: Pool, draws: int) -> Iterator[Job]:
    """Heads of more and more members."""
    for size in (200, 500, 800, 1000, 2000, 5000):
        for name in HEADS if 2 * size <= len(pool.labels) else ():
            for draw in range(draws):
                yield Job({"head": name, "members": size, "draw": draw}, partial(_of_size, pool, name, size, draw))


def _of_size(pool: Pool, name: str, size: int, draw: int) -> dict[str, Any]:
    members, others, own = drawn(pool, draw, (size, size, min(1000, len(pool.labels) - 2 * size)))
    rows, used = np.concatenate([members, others]), time.process_time()
    told, head, inputs = _answered(pool, name, members, rows, own, draw)
    seconds = time.process_time() - used
    truth, odds, loss = np.arange(len(rows)) < size, told.weights[: len(rows)], None
    loss = _loss(HEADS[name], head, inputs, pool.labels[rows])
    names = told.names[: len(rows)]
    return {
        "n": len(rows),
        "auc": auc(odds[~truth], odds[truth]).value,
        "auc_loss": auc(loss[~truth], loss[truth]).value,
        "named": int(names.sum()),
        "wrongly_named": int((names & ~truth).sum()),
        "certified": told.whole,
        "equations_a_candidate": round(head.weights.size / len(rows), 2),
        "cpu_seconds": round(seconds, 2),
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def null(pool: Pool, draws: int) -> Iterator[Job]:
    """Heads of other people, of half of the candidates, and lists with one name wrong."""
    for draw in range(draws):
        for name in HEADS:
            for kind in ("null", "members", "one wrong"):
                about = {"head": name, "of": kind, "members": pool.members, "width": pool.features.shape[1]}
                yield Job(about | {"draw": draw}, partial(_null, pool, name, kind, draw))


def _null(pool: Pool, name: str, kind: str, draw: int) -> dict[str, Any]:
    size = pool.members
    left = len(pool.labels) - 3 * size
    members, others, further, own = drawn(pool, draw, (size, size, size, min(2 * size, left)))
    rows = np.concatenate([members, others])
    if kind == "one wrong":
        return {"certified": _of_list(pool, name, members, others, draw)}
    told, *_ = _answered(pool, name, further if kind == "null" else members, rows, own, draw)
    names = told.names[: len(rows)]
    wrong = names if kind == "null" else names & (np.arange(len(rows)) >= size)
    return {
        "n": len(rows),
        "named": int(names.sum()),
        "wrongly_named": int(wrong.sum()),
        "certified": told.whole,
        "named_anybody": bool(names.any()),
    }


def _of_list(pool: Pool, name: str, members: Ints, others: Ints, draw: int) -> bool:
    """Whether a list of the members is certified in which another record of her class stands for one of them."""
    rng = np.random.default_rng(draw)
    alike = others[pool.labels[others] == pool.labels[members[0]]]
    named = np.concatenate([[rng.choice(alike)], members[1:]])
    head, inputs = _head(pool, name, members, named)
    off = distance(HEADS[name], head, inputs, pool.labels[named], rng)
    return off is not None and off < CERTIFIED


PRIVATE: dict[str, tuple[Method, int]] = {
    "FedCGS": (FedCGS(secure_aggregation="all", noise="central"), CLIENTS),
    "one-shot ridge": (OneShotRidge(), 1),
    "DP-SGD, Adam": (Average(), 1),
    "DP-SGD, plain steps": (Average(dp_sgd=HeadDpSgd(optimizer=Optimizer(name="sgd"), learning_rate=0.02)), 1),
}


def private(pool: Pool, draws: int) -> Iterator[Job]:
    """Heads of noised statistics, and heads trained with noise."""
    for name in PRIVATE:
        for epsilon in (1.0, 4.0, 8.0, 20.0, 50.0):
            for draw in range(draws):
                about = {"method": name, "epsilon": epsilon, "members": pool.members, "draw": draw}
                yield Job(about, partial(_private, pool, name, epsilon, draw))


def _private(pool: Pool, name: str, epsilon: float, draw: int) -> dict[str, Any]:
    method, clients = PRIVATE[name]
    members, others, own = drawn(pool, draw, (pool.members, pool.members, 1000))
    parts = [pool.records(f"client/{i}", rows) for i, rows in enumerate(np.array_split(members, clients))]
    privacy = PrivacyTarget(epsilon=epsilon, delta=DELTA, adjacency="add_remove")
    task = MethodInput(tuple(parts), parts[0], None, CLASSES, pool.known, privacy, Seeds(draw), "cpu", SILENT)
    outcome = method.run(task)
    rows = np.random.default_rng(draw + 1).permutation(np.concatenate([members, others]))
    gallery, decoys, truth = pool.records("gallery", rows), pool.records("attacker", own), np.isin(rows, members)
    asks: dict[str, tuple[str, Any, str]] = {
        "auc": ("broadcast", Gallery(), KEY),
        "auc_loss": ("broadcast", Membership(shadows=0, tests=("loss",)), "model/loss"),
        "auc_of_messages": ("per_client", Gallery(), KEY),
    }
    found: dict[str, Any] = {"ceiling": highest_auc(mu_of(epsilon, DELTA)), "n": len(rows)}
    for figure, (view, attack, key) in asks.items():
        seen = visible(outcome, ThreatModel(view=view))
        try:
            result = asked(pool, seen, parts, gallery, decoys, attack)
        except FedassayError as error:
            found[f"{figure}_refused"] = " ".join(str(error).split())[:160]
            continue
        about = judged(result, key, truth)
        found[figure] = about["auc"]
        if figure == "auc":
            found |= {
                "named": about["named"],
                "wrongly_named": about["wrongly_named"],
                "certified": about["whole"],
            }
    if outcome.model is not None:
        found["accuracy"] = float((outcome.model.predict(decoys) == decoys.labels).mean())
    return found


TRAINED: dict[str, tuple[int | Minibatches, Estimator]] = {
    **{f"L-BFGS, {steps} steps": (steps, SoftmaxEstimator()) for steps in (5, 10, 20, 40, 80, 200)},
    **{
        f"Adam, {epochs} epochs": (Minibatches(epochs, 128, 1e-4), PenalisedEstimator("softmax", None))
        for epochs in (10, 100, 1000)
    },
}
"""Steps of L-BFGS at most, or minibatches, and the estimator that each is held to be."""


def stopped(pool: Pool, draws: int) -> Iterator[Job]:
    """Softmax heads by L-BFGS that stops after some steps, and by Adam for some epochs."""
    for name in TRAINED:
        for draw in range(draws):
            yield Job(
                {"trained": name, "members": pool.members, "draw": draw}, partial(_stopped, pool, name, draw)
            )


def _stopped(pool: Pool, name: str, draw: int) -> dict[str, Any]:
    members, others, own = drawn(pool, draw, (pool.members, pool.members, 1000))
    rows, (trained, estimator) = np.concatenate([members, others]), TRAINED[name]
    given = pool.features[members], pool.labels[members]
    if isinstance(trained, int):
        with patch("fedassay.heads.linear._STEPS", trained):
            head = train_head(*given)
    else:
        head = train_head(*given, minibatches=trained, generator=torch.Generator().manual_seed(draw))
    inputs, labels = pool.features[rows].astype(np.float64), pool.labels[rows]
    found = inside_of(estimator, head, inputs, labels, pool.members, np.random.default_rng(draw))
    loss, size = _loss(estimator, head, inputs, labels), pool.members
    return {
        "n": len(rows),
        "auc": auc(found.odds[size:], found.odds[:size]).value,
        "auc_loss": auc(loss[size:], loss[:size]).value,
        "accuracy": float((head.predict(pool.features[own]) == pool.labels[own]).mean()),
    }


def left(pool: Pool, draws: int) -> Iterator[Job]:
    """The record that left between two ridge heads, by the records' own Gram matrix or the moment of others."""
    for penalty in (0.01, 100.0):
        for size in (1000, 3000):
            for by in ("Gram", "own moment"):
                for draw in range(draws):
                    about = {"penalty": penalty, "members": size, "by": by, "draw": draw}
                    yield Job(about, partial(_left, pool, penalty, size, by, draw))


def _left(pool: Pool, penalty: float, size: int, by: str, draw: int) -> dict[str, Any]:
    members, own, others = drawn(pool, draw, (size, 3000, 3000))
    features, one = pool.features.astype(np.float64), members[0]
    before, after = (
        RidgeEstimator(penalty)
        .fit(features[rows], pool.labels[rows])
        .weights.astype(np.float32)
        .astype(np.float64)
        for rows in (members, members[1:])
    )
    rows = features[members if by == "Gram" else own]
    gram = rows.T @ rows * (size / len(rows)) + penalty * np.eye(rows.shape[1])
    # A record x of class y moves the head by (W x - e_y) x' (G + ridge)^-1, which has rank one.
    classes, sizes, directions = np.linalg.svd(after - before, full_matrices=False)
    towards, moved = gram @ directions[0], sizes[0] * classes[:, 0]
    parts = np.stack([after @ towards, -moved], axis=1)
    scales, *_ = np.linalg.lstsq(parts, np.eye(CLASSES))
    label = int(np.argmin(((parts @ scales - np.eye(CLASSES)) ** 2).sum(axis=0)))
    ahead, back = scales[:, label]
    found = towards * (np.sign(ahead) * np.sqrt(ahead / back) if ahead / back > 0 else ahead)
    truth, alike = features[one], own[pool.labels[own] == pool.labels[one]]
    near = np.linalg.norm(features[np.concatenate([[one], others])] - found, axis=1)
    return {
        "n": 1,
        "error": float(np.linalg.norm(found - truth) / np.linalg.norm(truth)),
        "error_of_class_mean": float(np.linalg.norm(features[alike].mean(axis=0) - truth) / np.linalg.norm(truth)),
        "label_right": int(label == pool.labels[one]),
        "nearest": int(near.argmin() == 0),
    }


PARTS: dict[str, Callable[[Pool, int], Iterator[Job]]] = {
    "sizes": sizes,
    "null": null,
    "private": private,
    "stopped": stopped,
    "left": left,
}


def _pool(given: argparse.Namespace) -> Pool:
    pool = pool_of(given)
    if given.width:
        mixed = np.random.default_rng(0).standard_normal((pool.features.shape[1], given.width))
        pool.features = (pool.features @ np.linalg.qr(mixed)[0]).astype(np.float32)
    return pool


def main() -> None:
    """Measure a part, or say what the rows of a file show."""
    width = {"type": int, "help": "of a random projection of features; none if not given"}
    run_parts(__doc__, "head_limits", PARTS, _pool, draws=10, members=500, options={"--width": width})


if __name__ == "__main__":
    public_data.ended(main)
