"""What every method with a form of its own that gives records away owes: the same networks, and records by heart.

Controls stand on it: a release that is said to give its records away must do so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from fedassay.audits.stats.roc import auc
from fedassay.contracts.method import HasLeakiestForm, Method, MethodInput, Outcome
from fedassay.data.records import Records
from fedassay.exchange.models import ScoringGenerator
from fedassay.support.registry import entries, lookup
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]

PARAMETERS: dict[str, dict[str, object]] = {"fedpft": {"components": 1}, "fedpft_chain": {"components": 1}}
SLOW = {"feddiff", "fedcvae", "dense", "co_boosting"}
"""Methods that train generators, or distil."""
TRAINS = {"epochs", "local_epochs", "learning_rate", "rate", "decay", "label_dropout", "dropout"}
"""What a form that gives records away may change: how long and how hard it trains, never what is trained."""


def _made(name: str) -> Method:
    made: Method = lookup("method", name)(**PARAMETERS.get(name, {}))
    return made


EXPOSES = [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
    for name in sorted(entries("method"))
    if isinstance(_made(name), HasLeakiestForm)
]


def test_those_that_send_what_they_train_say_how_it_gives_records_away() -> None:
    assert {"feddiff", "fedcvae", "fedavg", "fedproto", "ensemble", "dense", "ccvr", "fedpft"} <= {
        str(param.values[0]) for param in EXPOSES
    }


def _changed(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    """Names of the parameters that differ, at any depth."""
    assert before.keys() == after.keys()
    names: set[str] = set()
    for name, value in before.items():
        other = after[name]
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            names |= _changed(value, other)
        elif value != other:
            names.add(name)
    return names


@pytest.mark.parametrize("name", EXPOSES)
def test_only_training_differs(name: str) -> None:
    method = _made(name)
    assert isinstance(method, HasLeakiestForm)
    form = method.leakiest_form()
    assert type(form) is type(method)
    assert _changed(method.model_dump(), form.model_dump()) <= TRAINS  # type: ignore[attr-defined]


def _dealt(task: MethodInput) -> MethodInput:
    """A client of one record a label, dealt at random so that only the records tell them; the others hold none."""
    first, *others = task.clients
    labels = np.random.default_rng(1).permutation(task.classes)
    features = first.features[: task.classes]
    held = replace(first.take(np.arange(task.classes)), labels=labels, extract=lambda _: features)
    nothing = (other.take(np.zeros(0, np.int64)) for other in others)
    return replace(task, clients=(held, *nothing))


def _same_fields(one: Outcome, other: Outcome) -> bool:
    """Whether messages hold the same fields, of the same kinds and shapes."""
    shapes = [
        [
            (message.sender, {name: (item.kind, item.values.shape) for name, item in message.fields.items()})
            for message in outcome.transcript.messages
        ]
        for outcome in (one, other)
    ]
    return shapes[0] == shapes[1]


@pytest.mark.parametrize("name", EXPOSES)
def test_a_few_records_are_held_by_heart(name: str, make_task: MakeTask) -> None:
    task = _dealt(make_task(clients=2, records=40))
    method = _made(name)
    assert isinstance(method, HasLeakiestForm)
    outcome = method.leakiest_form().run(task)
    # Of ten labels that were dealt at random nine are told by chance once in a hundred million times.
    assert min(_told(outcome, task)) >= 0.9


def _told(outcome: Outcome, task: MethodInput) -> list[float]:
    """How well the client's records are told from what it sent, from the head, or from what was trained on both.

    Accuracies on labels that were dealt at random, and AUCs of generators' losses.
    """
    members = task.clients[0]
    told = [
        _area(generator, members, task.test)
        for generator in outcome.generators.values()
        if isinstance(generator, ScoringGenerator)
    ]
    own = [(number, model) for (sender, number), model in outcome.networks.items() if sender == members.name]
    if own:
        last = max(own, key=lambda each: each[0])[1]
        told.append(float((last.scores(members).argmax(axis=1) == members.labels).mean()))
    if not told:
        assert outcome.model is not None
        told.append(float((outcome.model.predict(members) == members.labels).mean()))
    return told


def _area(generator: ScoringGenerator, members: Records, others: Records) -> float:
    """How well members are told from as many others of the same labels, by their losses: an AUC."""
    rows = np.concatenate([np.flatnonzero(others.labels == label)[:2] for label in np.unique(members.labels)])
    losses = [
        np.mean(generator.losses(records, (0.1, 0.25, 0.5), Seeds(0)), axis=1)
        for records in (members, others.take(rows))
    ]
    area = auc(-losses[1], -losses[0]).value
    assert area is not None
    return area


@pytest.mark.long
@pytest.mark.parametrize("name", [param for param in EXPOSES if not param.marks])
def test_what_is_sent_is_of_the_same_form(name: str, make_task: MakeTask) -> None:
    task = make_task(clients=2, records=40)
    method = _made(name)
    assert isinstance(method, HasLeakiestForm)
    assert _same_fields(method.run(task), method.leakiest_form().run(task))
