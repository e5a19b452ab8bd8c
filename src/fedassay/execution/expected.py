"""Expected error of private statistics before any data are touched: each method's noise beside its statistic.

Every method is run by itself on made-up records of the size that is asked for, and its tape holds the inputs and
the scales of its noise. The error is that of the pooled statistic: the root of the expected squared norm of all
clients' noise, which is known from scales and shapes, over the norm of the sum of their statistics. At 1 noise and
statistic are equally large, and above nothing of use is left.

Made-up records have non-negative features of norm 1, around one random centre a class. Accuracy on them is that of
a real backbone of that width that separates classes as well; errors hardly depend on them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from torch import nn

from fedassay.backbones.base import Backbone
from fedassay.contracts.facts import MethodFacts
from fedassay.contracts.method import Method, MethodInput
from fedassay.contracts.registry import declared
from fedassay.contracts.sizes import Sizes
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.store import Spool
from fedassay.privacy.tape import Draw, Layout, Tape, taped
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import FedassayError
from fedassay.support.progress import SILENT
from fedassay.support.registry import entries
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats

MOST_SECONDS = 5.0
"""Methods that a dry run estimates to take longer at this size are left out: they train networks."""

_APART, _SPREAD = 0.3, 1.5
"""Distances between class centres, and of a record from its own, before all are brought to norm 1."""
_PROBE = 4
"""Records, features and clients of a run that shows whether a method noises a statistic at all."""


@dataclass(frozen=True)
class Size:
    """Sizes that are known before there are data.

    Attributes:
        records: Of each client.
        width: Features.
        classes: Number of classes.
        clients: Number of clients.
    """

    records: int
    width: int
    classes: int
    clients: int


@dataclass(frozen=True)
class Expected:
    """Expected accuracy and error of a method under noise.

    Attributes:
        method: Registered name.
        epsilon: Asked for.
        adjacency: Its relation.
        sigma: The largest noise scale of a number.
        errors: Relative error of each part of the statistic, over all clients.
        accuracy: On made-up records, with noise.
        plain: The same without.
        why: Reason why there is no estimate; empty where there is one.
    """

    method: str
    epsilon: float
    adjacency: Adjacency
    sigma: float = math.nan
    errors: tuple[tuple[str, float], ...] = ()
    accuracy: float = math.nan
    plain: float = math.nan
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The estimate as a JSON object; what is not known is null."""
        figures = {"sigma": self.sigma, "accuracy": self.accuracy, "accuracy_without_noise": self.plain}
        return {
            "method": self.method,
            "epsilon": self.epsilon,
            "adjacency": self.adjacency,
            **{name: None if math.isnan(value) else value for name, value in figures.items()},
            "errors": dict(self.errors),
            "why": self.why,
        }


def expected(
    size: Size,
    epsilons: Sequence[float],
    delta: float,
    methods: Sequence[str] = (),
    adjacency: Adjacency | None = None,
    seed: int = 0,
) -> list[Expected]:
    """Estimate the accuracy and error under noise, method by method and epsilon by epsilon.

    Args:
        size: Of the data.
        epsilons: Finite.
        delta: In (0, 1).
        methods: Registered names; empty: all with a private statistic that takes seconds.
        adjacency: The relation; None: each method's own choice.
        seed: Of the made-up records and of the noise.

    Raises:
        PlanError: There is no such method.
    """
    task = _made_up(size, seed)
    names = methods
    if not methods:
        probe = _made_up(Size(_PROBE, _PROBE, 2, 2), seed)
        quick = (name for name in entries("method") if _is_quick(name, size))
        names = tuple(name for name in quick if not _of(name, probe, 1.0, delta, adjacency).why)
    return [_of(name, task, epsilon, delta, adjacency) for name in names for epsilon in epsilons]


def _is_quick(name: str, size: Size) -> bool:
    facts = cast("MethodFacts", declared("method", name).facts)
    if not facts.private_form or facts.cost is None:
        return False
    held = size.records * size.clients
    sizes = Sizes(held, 0, held, held, 0, size.clients, size.classes, (1, size.width, 1), size.width, 0.0)
    method = declared("method", name).component()
    return bool(facts.cost(method.model_dump(mode="json"), sizes, True) < MOST_SECONDS)


def _of(name: str, task: MethodInput, epsilon: float, delta: float, asked: Adjacency | None) -> Expected:
    facts = cast("MethodFacts", declared("method", name).facts)
    adjacency = asked or facts.adjacency
    method = cast("Method", declared("method", name).component())

    def at(target: float) -> tuple[float, Tape]:
        privacy = PrivacyTarget(epsilon=target, delta=delta, adjacency=adjacency)
        with taped() as tape:
            outcome = method.run(replace(task, privacy=privacy, spool=Spool()))
        if outcome.model is None:
            return math.nan, tape
        return float(np.mean(outcome.model.predict(task.test) == task.test.labels)), tape

    try:
        accuracy, tape = at(epsilon)
        draws = [draw for draw in tape.draws.values() if isinstance(draw, Draw) and draw.scale]
        if not draws:
            return Expected(name, epsilon, adjacency, why="its noise is that of training, by DP-SGD")
        plain, _ = at(math.inf)
    # A method's own error says what it cannot do with features alone, or at this epsilon.
    except (FedassayError, ValueError, RuntimeError) as error:
        return Expected(name, epsilon, adjacency, why=str(error).partition("\n")[0] or type(error).__name__)
    return Expected(name, epsilon, adjacency, max(draw.scale for draw in draws), errors_of(draws), accuracy, plain)


def errors_of(draws: Sequence[Draw]) -> tuple[tuple[str, float], ...]:
    """Relative error of each part of a statistic, pooled over clients.

    Draws of one part and cell of several clients are added up, as a server does; cells of a part stand apart.
    """
    noise: dict[str, float] = defaultdict(float)
    exact: dict[str, dict[tuple[str, int, int], Floats]] = defaultdict(dict)
    for draw in draws:
        key = draw.key
        part, cell = key.part or key.field, (key.cell, key.round, key.step)
        noise[part] += draw.scale**2 * freedom(draw.shape, draw.layout)
        exact[part][cell] = exact[part].get(cell, np.zeros(draw.shape)) + draw.exact
    return tuple(
        (part, math.sqrt(noise[part] / max(sum(float(np.sum(each**2)) for each in cells.values()), 1e-300)))
        for part, cells in exact.items()
    )


def freedom(shape: tuple[int, ...], layout: Layout) -> float:
    """The expected squared norm of noise of scale 1: its numbers, of a matrix half of them."""
    if layout == "symmetric":
        side = shape[-1]
        return math.prod(shape[:-2]) * side * (side + 1) / 2
    return float(math.prod(shape))


def _made_up(size: Size, seed: int) -> MethodInput:
    rng = np.random.default_rng(seed)
    common, own = (
        np.abs(rng.standard_normal((1, size.width))),
        np.abs(rng.standard_normal((size.classes, size.width))),
    )
    centres = _unit((1 - _APART) * common + _APART * own)

    def records(name: str, count: int) -> Records:
        labels = np.arange(count, dtype=np.int64) % size.classes
        around = _SPREAD * np.abs(rng.standard_normal((count, size.width))) / math.sqrt(size.width)
        features = _unit(centres[labels] + around).astype(np.float32)
        # Records differ in what stands for their images: noise streams are named by it.
        images = np.frombuffer(np.arange(count, dtype="<u4").tobytes(), np.uint8).reshape(count, 1, 4, 1)
        return Records(name, images, labels, lambda _images: features)

    backbone = Backbone(
        "made up", size.width, nn.Identity(), (1, 4, 1), "cpu", "made-up features", "nothing", f"made up {seed}"
    )
    return MethodInput(
        clients=tuple(records(f"client/{number}", size.records) for number in range(size.clients)),
        test=records("test", max(200, 20 * size.classes)),
        public=records("public", max(200, 20 * size.classes)),
        classes=size.classes,
        backbone=backbone,
        privacy=PrivacyTarget(epsilon=math.inf, delta=1e-5, adjacency="add_remove"),
        seeds=Seeds(seed),
        device="cpu",
        progress=SILENT,
    )


def _unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))
