"""Attacks that are asked for again run once on equal views, and again where anything differs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from fedassay.contracts.attack import AttackResult, Knowledge
from fedassay.contracts.facts import AttackFacts
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.release import derived, exact
from fedassay.exchange.transcript import Message, MessageField
from fedassay.exchange.view import ThreatModel, View
from fedassay.execution.repeated import content, run_once
from fedassay.plan.schema import Component
from fedassay.support.progress import SILENT
from fedassay.support.seeds import Seeds

VECTORS = VectorSource("v", np.zeros((1, 2), np.float32), np.zeros(1, np.int64), ("a",), np.zeros(1, np.int64))
KNOWLEDGE = Knowledge(None, 3, None, True, Seeds(0), "cpu", SILENT)


@dataclass
class Counting:
    """An attack that counts its runs."""

    gives: tuple[Any, ...] = ("vectors",)
    takes: tuple[Any, ...] = ()
    depth: int = 1
    runs: list[View] = field(default_factory=list)

    @property
    def facts(self) -> AttackFacts:
        return AttackFacts(gives=self.gives, takes=self.takes)

    def model_dump(self, mode: str) -> dict[str, int]:
        return {"depth": self.depth}

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        self.runs.append(view)
        return AttackResult("counting", notes=(str(len(self.runs)),))


def component(build: Counting, label: str = "counting") -> Component[Any]:
    return Component("counting", label, build, {})


def seen(value: float = 1.0, *, sender: str = "client/0", kind: Any = "class_sums", release: Any = None) -> View:
    item = MessageField(np.full((3, 2), value), kind, release or exact())
    return View((Message(0, sender, "server", {"sums": item}),), 3, ThreatModel())


def test_equal_views_are_attacked_once() -> None:
    attack, shared = Counting(), dict[str, object]()
    first = run_once(component(attack), seen(), KNOWLEDGE, shared)
    assert run_once(component(attack), seen(), KNOWLEDGE, shared) is first
    assert len(attack.runs) == 1


@pytest.mark.parametrize(
    "other",
    [
        seen(2.0),
        seen(sender="client/1"),
        seen(kind="class_means"),
        seen(release=derived("otherwise")),
        replace(seen(), threat=ThreatModel(view="aggregate")),
        replace(seen(), messages=()),
        replace(seen(), classes=4),
        replace(seen(), cohorts={0: ("client/0",)}),
    ],
)
def test_another_view_is_attacked_anew(other: View) -> None:
    attack, shared = Counting(), dict[str, object]()
    first = run_once(component(attack), seen(), KNOWLEDGE, shared)
    assert run_once(component(attack), other, KNOWLEDGE, shared) is not first
    assert content(other) != content(seen())


@pytest.mark.parametrize(
    "carried", [{"models": {("client/0", 0): object()}}, {"generators": {"client/0": object()}}]
)
def test_views_with_networks_are_attacked_anew(carried: dict[str, Any]) -> None:
    attack, shared = Counting(), dict[str, object]()
    for _ in range(2):
        run_once(component(attack), replace(seen(), **carried), KNOWLEDGE, shared)
    assert len(attack.runs) == 2


def test_another_attack_runs_by_itself() -> None:
    shared = dict[str, object]()
    results = [
        run_once(component(Counting(depth=depth), label), seen(), KNOWLEDGE, shared)
        for depth, label in ((1, "counting"), (2, "counting"), (1, "another"))
    ]
    assert len({id(result) for result in results}) == 3


@pytest.mark.parametrize(
    ("attack", "knowledge"),
    [
        (Counting(gives=("scores",)), KNOWLEDGE),
        (Counting(takes=("vectors",)), KNOWLEDGE),
        (Counting(), replace(KNOWLEDGE, recovered=(VECTORS,))),
    ],
)
def test_what_follows_from_more_than_the_view_always_runs(attack: Counting, knowledge: Knowledge) -> None:
    shared = dict[str, object]()
    for _ in range(2):
        run_once(component(attack), seen(), knowledge, shared)
    assert len(attack.runs) == 2
    assert not shared
