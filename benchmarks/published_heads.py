"""Who is in a scikit-learn model: the tables of docs/published-heads.md, one JSON object a line.

    python benchmarks/published_heads.py models [--data cifar10] [--draws 3] [--only ridge]
    python benchmarks/published_heads.py few [--data cifar10] [--draws 14]
    python benchmarks/published_heads.py table

`models` and `few` append one row a draw to `--rows`, and go on where they were stopped; `table` sums the rows up.
Models are fitted to 1,000 members with defaults after a `StandardScaler`, and read for 2,000 candidates in
float32: loss and penalty are known, and so is the number of members. Of two classes (labels below 5 and others)
the scaler is read alone, and beside the head. `null` is a model of 1,000 others.

`few` reads heads of two to eight records by the attack `head_reconstruction`, without a gallery: errors are
medians over records, relative to their length, of features and of features about the records' mean; `first` counts
the records that are nearest to what was found among all images of their class but the attacker's 1,000. The
attacker's class means are the baseline. Features are those of SqueezeNet at 64 pixels, kept under --cache;
intervals at 95 % are over draws (Student's).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import public_data
from gallery_attack import CLASSES, Pool, drawn, pool_of
from kept_rows import Job, run_parts
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from fedassay.attacks.gallery.heads import Inside, inside, inside_of
from fedassay.attacks.gallery.published import CERTAIN
from fedassay.attacks.head_reconstruction.attack import reconstructed
from fedassay.audits.stats.roc import auc
from fedassay.heads.estimators import SoftmaxEstimator
from fedassay.heads.linear import LinearHead
from fedassay.heads.penalised import PenalisedEstimator, head_of
from fedassay.heads.scaler import Scaler

MODELS: dict[str, tuple[Callable[[], Any], PenalisedEstimator]] = {
    "LogisticRegression": (LogisticRegression, PenalisedEstimator("softmax", 1.0)),
    "RidgeClassifier": (RidgeClassifier, PenalisedEstimator("least_squares", 1.0)),
    "one against the rest": (
        lambda: OneVsRestClassifier(LogisticRegression(solver="liblinear")),
        PenalisedEstimator("logistic", 1.0, bias_penalised=True),
    ),
    "LinearSVC": (LinearSVC, PenalisedEstimator("squared_hinge", 0.5, bias_penalised=True)),
}


def models(pool: Pool, draws: int) -> Iterator[Job]:
    """Every model, of members or (`null`) of others; and scalers with and without a head of two classes."""
    for draw in range(draws):
        for about in ("scaler alone", "two classes: head alone", "two classes: scaler and head"):
            yield Job({"model": about, "of": "members", "draw": draw}, partial(_of_two, pool, about, draw))
        for name in MODELS:
            for of in ("members", "null") if name in ("LogisticRegression", "RidgeClassifier") else ("members",):
                yield Job({"model": name, "of": of, "draw": draw}, partial(_of_model, pool, name, of, draw))


def _of_model(pool: Pool, name: str, of: str, draw: int) -> dict[str, Any]:
    members, others, further = drawn(pool, draw, (pool.members,) * 3)
    made_of = further if of == "null" else members
    rows, make, estimator = np.concatenate([members, others]), *MODELS[name]
    scaler = StandardScaler().fit(pool.features[made_of].astype(np.float64))
    model = make().fit(scaler.transform(pool.features[made_of].astype(np.float64)), pool.labels[made_of])
    inputs, labels = scaler.transform(pool.features[rows].astype(np.float64)), pool.labels[rows]
    head = sent(model)
    used = time.process_time()
    found = inside_of(estimator, head, inputs, labels, pool.members, np.random.default_rng(draw))
    return _judged(found, estimator, head, inputs, labels, used)


def _of_two(pool: Pool, about: str, draw: int) -> dict[str, Any]:
    members, others = drawn(pool, draw, (pool.members,) * 2)
    rows, labels = np.concatenate([members, others]), (pool.labels >= 5).astype(np.int64)
    features = pool.features[rows].astype(np.float64)
    fitted = StandardScaler().fit(features[: pool.members])
    scaler = Scaler(fitted.mean_, fitted.var_, pool.members)
    inputs = scaler.transform(features)
    head = sent(LogisticRegression().fit(inputs[: pool.members], labels[members]))
    estimator = PenalisedEstimator("softmax", 1.0)
    told, rng, used = scaler.equations(features), np.random.default_rng(draw), time.process_time()
    if about == "scaler alone":
        found = inside(lambda weights: (told,), len(rows), pool.members, rng)
    else:
        beside = (told,) if "scaler" in about else ()
        found = inside_of(estimator, head, inputs, labels[rows], pool.members, rng, beside)
    return _judged(found, estimator, head, inputs, labels[rows], used)


def few(pool: Pool, draws: int) -> Iterator[Job]:
    """Heads over all classes of a few records, each of a class of its own or, in `pairs`, two of each class."""
    for draw in range(draws):
        for size in (2, 3, 4, 5, 6, 8):
            yield Job({"records": size, "a class": 1, "draw": draw}, partial(_of_few, pool, size, 1, draw))
        yield Job({"records": 4, "a class": 2, "draw": draw}, partial(_of_few, pool, 4, 2, draw))


def _of_few(pool: Pool, size: int, each: int, draw: int) -> dict[str, Any]:
    (own,) = drawn(pool, draw, (1000,))
    rng, free = np.random.default_rng([draw, size]), np.ones(len(pool.labels), np.bool_)
    free[own] = False
    classes = np.sort(rng.permutation(CLASSES)[: size // each])
    rows = np.concatenate([rng.choice(np.flatnonzero(free & (pool.labels == c)), each, False) for c in classes])
    truth, estimator = pool.features[rows].astype(np.float64), SoftmaxEstimator(classes=CLASSES)
    head, used = estimator.fit(pool.features[rows], pool.labels[rows]), time.process_time()
    found = reconstructed(head, size, estimator, pool.records("attacker", own), rng, 32)
    means = np.array([pool.features[own][pool.labels[own] == label].mean(axis=0) for label in pool.labels[rows]])
    figures = {"n": size, "solved": int(found is not None), "cpu_seconds": round(time.process_time() - used, 1)}
    figures |= {
        "error_of_class_means": _off(means, truth),
        "first_of_class_means": _first(pool, free, means, rows),
    }
    if found is None:
        return figures
    labels, features, _ = found
    return figures | {
        "labels_right": int((labels == pool.labels[rows]).sum()),
        "error": _off(features, truth),
        "error_about_mean": _off(features - features.mean(axis=0), truth - truth.mean(axis=0)),
        "first": _first(pool, free, features, rows),
    }


def _off(found: Any, truth: Any) -> float:
    return float(np.median(np.linalg.norm(found - truth, axis=1) / np.linalg.norm(truth, axis=1)))


def _first(pool: Pool, free: Any, found: Any, rows: Any) -> int:
    """How many rows are the nearest to their own vector of all images of their class that the attacker lacks."""
    near = []
    for vector, row in zip(found, rows, strict=True):
        alike = np.flatnonzero(free & (pool.labels == pool.labels[row]))
        near.append(alike[np.linalg.norm(pool.features[alike] - vector, axis=1).argmin()] == row)
    return int(np.sum(near))


def sent(model: Any) -> LinearHead:
    """The model's head in float32."""
    if isinstance(model, OneVsRestClassifier):
        weights = np.concatenate([each.coef_ for each in model.estimators_])
        bias = np.concatenate([each.intercept_ for each in model.estimators_])
    else:
        weights, bias = model.coef_, model.intercept_
    return head_of(weights.astype(np.float32), bias.astype(np.float32), model.classes_)


def _judged(
    found: Inside, estimator: PenalisedEstimator, head: LinearHead, inputs: Any, labels: Any, used: float
) -> dict[str, Any]:
    """How well the first half of the candidates is told from the second, and by the model's own loss alone."""
    seconds, size = time.process_time() - used, len(labels) // 2
    left = np.abs(estimator.equations(head, inputs, labels, None).residuals)
    if estimator.loss == "softmax":
        # Of the record's own class, whose residual is the sum of the others.
        loss = np.log(np.maximum(1 - left.sum(axis=1) / min(left.shape[1], 2), 1e-300))
    elif estimator.loss == "logistic":
        loss = np.log(np.maximum(1 - left, 1e-300)).sum(axis=1)
    else:
        loss = -(left**2).sum(axis=1)
    names = found.odds > CERTAIN
    return {
        "n": len(labels),
        "auc": auc(found.odds[size:], found.odds[:size]).value,
        "auc_loss": auc(loss[size:], loss[:size]).value,
        "named": int(names.sum()),
        "wrongly_named": int(names[size:].sum()),
        "first": float((np.argsort(-found.odds)[:size] < size).mean()),
        "cpu_seconds": round(seconds, 1),
    }


PARTS = {"models": models, "few": few}


def main() -> None:
    """Measure the models, or say what the rows of a file show."""
    run_parts(__doc__, "published_heads", PARTS, pool_of, draws=3, members=1000)


if __name__ == "__main__":
    public_data.ended(main)
