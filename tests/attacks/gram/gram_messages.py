"""Synthetic features, messages of their sums, and the attack on them, for the tests of Gram factorization."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedassay.attacks.gram.attack import GramFactorization
from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import Message, MessageField, Transcript
from fedassay.exchange.view import ThreatModel, view
from fedassay.mixtures.packed import pack_lower
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

Matrix = NDArray[np.float64]
KNOWLEDGE = Knowledge(None, 10, None, False, Seeds(0), "cpu", SILENT)
CLASSES = 4


def sparse(n: int, width: int = 96, zeros: float = 0.6, seed: int = 0) -> tuple[Matrix, NDArray[np.int64]]:
    """Features after a rectifier: non-negative, heavy-tailed, a given share of exact zeros."""
    rng = np.random.default_rng(seed)
    scale = rng.lognormal(0, 1, width)
    features = scale * rng.exponential(1, (n, width)) * (rng.random((n, width)) >= zeros)
    return features, np.arange(n) % CLASSES


def message(
    features: Matrix,
    labels: NDArray[np.int64],
    *,
    dtype: type = np.float64,
    packed: bool = False,
    leave_out: tuple[str, ...] = (),
    number: int = 0,
    secure: bool = False,
    sender: str = "client/0",
) -> Message:
    member = (labels[:, None] == np.arange(CLASSES)).astype(float)
    second = features.T @ features
    values: dict[str, tuple[Any, Any]] = {
        "N": (member.sum(axis=0).astype(np.int32), "class_counts"),
        "A": ((member.T @ features).astype(dtype), "class_sums"),
        "B": ((pack_lower(second) if packed else second).astype(dtype), "second_moment"),
    }
    fields = {
        name: MessageField(item, kind, exact(), additive=True, secure=secure)
        for name, (item, kind) in values.items()
        if name not in leave_out
    }
    return Message(number, sender, "server", fields)


def attacked(*messages: Message, **parameters: Any) -> AttackResult:
    seen = view(Transcript("captured", CLASSES, messages), ThreatModel())
    return GramFactorization(**parameters).run(seen, KNOWLEDGE)


def errors(found: Matrix, truth: Matrix) -> Matrix:
    """Relative error of every true record's best match."""
    assert len(found) == len(truth)
    apart = np.linalg.norm(found[:, None] - truth, axis=2) / np.linalg.norm(truth, axis=1)
    rows, columns = linear_sum_assignment(apart)
    return np.asarray(apart[rows, columns])


def vectors(result: AttackResult) -> Matrix:
    return np.asarray(result.artifacts["vectors"], np.float64)
