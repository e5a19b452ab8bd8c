"""What the tape of every private method owes: draws for each noised field, and a transcript that follows."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from fedassay.audits.claim.tape.coverage import coverage
from fedassay.audits.claim.tape.worst_case import WorstCase
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import declared
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyClaim, Release
from fedassay.exchange.transcript import SERVER, Message, Transcript
from fedassay.nets.dp_sgd.tape import trainings
from fedassay.privacy.tape import Draw, ExternalMechanism, Key, Tape, TapeEntry, on_grid, taped
from fedassay.support.adjacency import Adjacency
from fedassay.support.registry import entries, lookup
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
SAME: Adjacency = "replace_one_same_label"


@dataclass(frozen=True)
class Case:
    """A private method.

    Attributes:
        name: As registered.
        adjacency: Under which it runs.
        parameters: Its parameters.
        trained: Networks are trained on the records by DP-SGD.
        honest: What it declares covers all that it sends.
    """

    name: str
    adjacency: Adjacency
    parameters: dict[str, object] = field(default_factory=dict)
    trained: bool = False
    honest: bool = True

    def __str__(self) -> str:
        said = ",".join(f"{key}={value}" for key, value in self.parameters.items() if not isinstance(value, dict))
        return f"{self.name}-{self.adjacency}-{said}"

    def run(self, task: MethodInput) -> Outcome:
        outcome = lookup("method", self.name)(**self.parameters).run(task)
        assert isinstance(outcome, Outcome)
        return outcome


def _each(name: str, adjacency: Adjacency, *parameters: dict[str, object], **rest: bool) -> list[Case]:
    return [Case(name, adjacency, given, **rest) for given in parameters]


CENTRAL: dict[str, object] = {"noise": "central", "secure_aggregation": "all"}
FEDLOG: dict[str, object] = {"rounds": 2, "local_epochs": 1, "width": 6}
AVERAGED: dict[str, object] = {"local_epochs": 2}
CASES = [
    *_each("fedcgs", "add_remove", {}, {"transport": "float16"}, {"expansion": 30}, CENTRAL),
    *_each("fedcgs", "replace_one", {}, {"secure_aggregation": "all"}, CENTRAL),
    *_each("fedcgs", SAME, {}, {"counts": "exact"}, {**CENTRAL, "counts": "exact"}),
    *_each("fedcgs", "add_remove", {"counts": "exact"}, honest=False),
    *(
        case
        for adjacency in get_args(Adjacency)
        for case in (
            *_each("afl", adjacency, {}, {"transport": "float64", "remove_ridge": False}),
            *_each("fed3r", adjacency, {}, {"mechanism": "assembled"}, {"random_features": 12}),
            *_each("gh_ofl", adjacency, {}, {"head": "nb", "moments": "diagonal"}, {"head": "lda", "sketch": 9}),
            *_each("one_shot_ridge", adjacency, {}, {"mechanism": "classical"}, {"secure_aggregation": "all"}),
            *_each("fedcof", adjacency, {}),
            *_each("fedncm", adjacency, {}),
            *_each("fedsgd", adjacency, {}, {"body": {"name": "mlp", "hidden": 8}}),
        )
    ),
    *(
        case
        for name in ("fedpft", "fedpft_chain")
        for case in (
            *_each(name, SAME, *({"components": 1, "covariance": kind} for kind in ("diag", "full", "spherical"))),
            *_each(name, SAME, {"components": 1, "nonnegative": True, "transport": "float32"}),
            *_each(name, SAME, *({"components": 1, "mechanism": kind} for kind in ("paper", "second_moment"))),
            *_each(name, SAME, {"components": 3}, {"components": 2, "covariance": "full", "dp_steps": 3}),
            *_each(name, "add_remove", {"components": 1, "counts": "noised", "covariance": "full"}),
            *_each(name, "replace_one", {"components": 1, "counts": "noised"}),
            *_each(name, "add_remove", {"components": 3, "counts": "noised", "dp_steps": 3}),
            *_each(name, "add_remove", {"components": 1, "mechanism": "paper"}, {"components": 2}, honest=False),
        )
    ),
    *(
        case
        for kind in ("tight", "paper", "released_code")
        for case in _each(
            "fedlog",
            "add_remove",
            *(
                {**FEDLOG, **more, "mechanism": kind}
                for more in ({}, {"noise": "central"}, {"variant": "c"}, {"variant": "c", "noise": "central"})
            ),
        )
    ),
    *_each("fedlog", SAME, FEDLOG),
    # What a private body gives away goes into the mechanism: no replay shows it, the sensitivity does.
    *_each("fedlog", "add_remove", {**FEDLOG, "body": "private"}),
    *_each("fedlog", "add_remove", {**FEDLOG, "counts": "exact"}, honest=False),
    *_each("fedlog", "add_remove", {**FEDLOG, "body": "dp_sgd"}, trained=True),
    *_each("fedproto", "add_remove", {"rounds": 2, "local_epochs": 1}, trained=True),
    *_each("ccvr", "add_remove", {"fedavg": AVERAGED}, trained=True),
    *_each("fedcvae", "add_remove", {"hidden": 16, "local_epochs": 1}, trained=True),
    *(
        case
        for kind in ("none", "gaussian", "pydp")
        for case in _each(
            "feddiff",
            "add_remove",
            {"steps": 2, "fmf": kind, "dp_sgd": {"epochs": 1}, "classifier": {"epochs": 1}},
            trained=True,
        )
    ),
    *_each(
        "feddiff",
        SAME,
        {"steps": 2, "fmf": "gaussian", "dp_sgd": {"epochs": 1}, "classifier": {"epochs": 1}},
        trained=True,
    ),
    *_each(
        "fedavg",
        "add_remove",
        AVERAGED,
        {**AVERAGED, "share": "body", "schedule": "body"},
        {**AVERAGED, "proximal": 0.1, "server": {}, "rounds": 2, "optimizer": {"name": "sgd", "momentum": 0.9}},
        trained=True,
    ),
    *_each("fedavg_heads", "add_remove", {"rounds": 2, "local_epochs": 1, "proximal": 0.1}, trained=True),
    *_each("fedbe", "add_remove", {"epochs": 1, "dp_sgd": {"epochs": 2}}, trained=True),
    *_each(
        "co_boosting", "add_remove", {"networks": {"bodies": "mlp", "local_epochs": 2}, "rounds": 2}, trained=True
    ),
    *_each("ensemble", "add_remove", {}, trained=True),
    *_each("average", "add_remove", {}, trained=True),
    *_each("dense", "add_remove", {"networks": {"bodies": "mlp", "local_epochs": 2}, "rounds": 2}, trained=True),
    *_each("knowledge_distillation", "add_remove", {}, trained=True),
]
HONEST = [case for case in CASES if case.honest and not case.trained]


def _task(make_task: MakeTask, case: Case, **more: object) -> MethodInput:
    clients = 2 if case.name == "knowledge_distillation" else 3
    return make_task(clients=clients, records=90, epsilon=5.0, adjacency=case.adjacency, **more)


def _others(task: MethodInput) -> MethodInput:
    """The same work with every record of every client replaced, and what else is not public."""
    rng = np.random.default_rng(7)
    adjacency = task.privacy.adjacency

    def other(client: Records) -> Records:
        size = len(client)
        if adjacency == "add_remove":
            size = 0 if client.name == "client/1" else size + 5
        images = rng.integers(0, 256, (size, *client.images.shape[1:]), dtype=np.uint8)
        labels = client.labels if adjacency == SAME else rng.integers(0, task.classes, size)
        return Records(client.name, images, labels, task.backbone.extract)

    return replace(task, clients=tuple(other(client) for client in task.clients))


_FIRST: dict[int, tuple[MethodInput, Outcome, Tape]] = {}


def _first(case: Case, make_task: MakeTask, *, last: bool = False) -> tuple[MethodInput, Outcome, Tape]:
    """The task of a case, and its run with its tape: once for all tests that look at them, until the last one."""
    if id(case) not in _FIRST:
        task = _task(make_task, case)
        with taped() as tape:
            outcome = case.run(task)
        _FIRST[id(case)] = task, outcome, tape
    return _FIRST.pop(id(case)) if last else _FIRST[id(case)]


def _sent(transcript: Transcript) -> list[object]:
    """All that can be read off a transcript."""
    messages = [
        (
            message.round,
            message.sender,
            message.receiver,
            message.serialized,
            [(name, item.kind, item.release, item.additive, item.secure) for name, item in message.fields.items()],
        )
        for message in transcript.messages
    ]
    return [*messages, transcript.claim, transcript.notes]


def _recomputed(draw: Draw, root: Seeds) -> np.ndarray:
    """What the draw should have given out, from the stream of its key: written here again, on purpose."""
    if draw.scale == 0:
        return draw.exact
    key = draw.key
    rng = root.numpy(key.sender, key.round, key.field, key.cell, key.part, key.step)
    if draw.layout == "entries":
        return draw.exact + on_grid(rng.standard_normal(draw.shape) * draw.scale, draw.grid)
    width = draw.shape[-1]
    row, column = np.triu_indices(width)
    normals = rng.standard_normal((*draw.shape[:-2], len(row)))
    off = 1.0 if draw.layout == "mirrored" else 1 / math.sqrt(2)
    upper = normals * (draw.scale * np.where(row == column, 1.0, off))
    noise = np.zeros(draw.shape)
    noise[..., row, column] = noise[..., column, row] = upper
    return draw.exact + on_grid(noise, draw.grid)


def _of_field(tape: Tape, message: Message, name: str, release: Release, cell: str) -> list[TapeEntry]:
    """The draws that protect a field's cell, by the rule of `fedassay.privacy.tape`."""

    def belongs(key: Key) -> bool:
        if (key.sender, key.round, key.field) != (message.sender, message.round, release.group or name):
            return False
        return (key.cell if key.cell in release.cells else "all") == cell

    return [entry for key, entry in tape.draws.items() if belongs(key)]


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_noised_field_has_draws_of_its_scale(case: Case, make_task: MakeTask) -> None:
    task, outcome, tape = _first(case, make_task)
    assert not tape.faults
    assert not tape.lacks
    used: set[Key] = set()
    for message in outcome.transcript.messages:
        if message.sender == SERVER:
            continue
        whole = any(
            item.kind == "class_counts" and item.release.mechanism == "exact" for item in message.fields.values()
        )
        for name, item in message.fields.items():
            release = item.release
            if release.mechanism == "pure":
                (sealed,) = _of_field(tape, message, name, release, "all")
                assert isinstance(sealed, ExternalMechanism)
                assert (sealed.pure_epsilon,) == release.pure_epsilon
                used.add(sealed.key)
            if release.mechanism != "gaussian":
                continue
            assert release.noise_scale is not None
            for cell, scale in zip(release.cells, release.noise_scale, strict=True):
                found = [each for each in _of_field(tape, message, name, release, cell) if isinstance(each, Draw)]
                noised = [draw for draw in found if draw.scale > 0]
                assert noised, (name, cell)
                for draw in noised:
                    assert draw.scale * math.sqrt(release.shares) == pytest.approx(scale, rel=1e-12)
                assert all(draw.key.part == "counts" and whole for draw in found if draw.scale == 0)
                used |= {draw.key for draw in found}
    assert used == set(tape.draws)
    for entry in tape.draws.values():
        if isinstance(entry, Draw):
            np.testing.assert_array_equal(entry.out, _recomputed(entry, task.noise))


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in CASES if case.honest], ids=str)
def test_a_transcript_follows_from_the_releases_alone(case: Case, make_task: MakeTask) -> None:
    task, first, tape = _first(case, make_task, last=case.trained)
    assert tape.draws or case.trained
    assert bool(trainings(tape)) == case.trained
    assert all(entry.facts.failures == () for entry in trainings(tape).values())
    with taped(answers=tape) as same:
        again = case.run(task)
    assert _sent(again.transcript) == _sent(first.transcript)
    assert not same.faults
    with taped(answers=tape) as replay:
        other = case.run(_others(task))
    assert not replay.faults
    assert [m.serialized for m in other.transcript.messages] == [m.serialized for m in first.transcript.messages]
    assert _sent(other.transcript) == _sent(first.transcript)
    moved = [key for key, draw in replay.draws.items() if isinstance(draw, Draw) and not _equal(draw, tape, key)]
    assert moved or not tape.draws


def _equal(draw: Draw, tape: Tape, key: Key) -> bool:
    first = tape.draws[key]
    return isinstance(first, Draw) and np.array_equal(first.exact, draw.exact)


@pytest.mark.parametrize("case", [case for case in CASES if not case.honest], ids=str)
def test_what_leaves_beside_the_releases_changes_the_transcript(case: Case, make_task: MakeTask) -> None:
    task, first, tape = _first(case, make_task, last=True)
    with taped(answers=tape) as replay:
        other = case.run(_others(task))
    assert replay.faults or _sent(other.transcript) != _sent(first.transcript)


@pytest.mark.long
@pytest.mark.parametrize("case", HONEST, ids=str)
def test_runs_that_differ_share_no_noise(case: Case, make_task: MakeTask) -> None:
    """Streams of clients, rounds, steps, seeds, epsilons, records and parameters have unlike identities."""
    task, _, first = _first(case, make_task, last=True)
    one = task.clients[0]
    images = one.images.copy()
    images[0, 0, 0, 0] ^= 1
    variants = [
        _task(make_task, case, seed=1),
        replace(task, privacy=task.privacy.model_copy(update={"epsilon": 4.0})),
        replace(task, parameters="others"),
        replace(task, clients=(replace(one, images=images), *task.clients[1:])),
    ]
    standard: dict[bytes, tuple[int, Key]] = {}
    tapes = [first]
    for variant in variants:
        with taped() as tape:
            case.run(variant)
        tapes.append(tape)
    for number, tape in enumerate(tapes):
        for key, draw in tape.draws.items():
            if isinstance(draw, Draw) and draw.scale:
                values = np.asarray((draw.out - draw.exact) / draw.scale).reshape(-1)[:2].round(7).tobytes()
                assert values not in standard, (number, key, standard[values])
                standard[values] = (number, key)


@pytest.mark.parametrize("seed", [0, None])
def test_a_resumed_run_has_a_whole_tape_or_says_what_it_lacks(
    make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int | None
) -> None:
    case = Case("fedlog", "add_remove", {**FEDLOG, "rounds": 3})
    task = replace(_task(make_task, case), scratch=tmp_path, seeds=Seeds(seed))
    with taped() as whole:
        first = case.run(replace(task, scratch=None))
    _interrupted(monkeypatch, "fedassay.methods.fedlog.method.map_head", 3, lambda: case.run(task))
    # Another process draws another root where there is no seed.
    with taped() as resumed:
        again = case.run(replace(task, seeds=Seeds(seed)))
    assert set(resumed.draws) == set(whole.draws)
    assert not resumed.faults
    assert len(resumed.lacks) == (0 if seed == 0 else 2)
    if seed == 0:
        assert _sent(again.transcript) == _sent(first.transcript)
        _same_tape(resumed, whole)
    # What was interrupted while nothing was taped has no draws to come back.
    for path in tmp_path.glob("*.tape.*"):
        path.unlink()
    with taped() as late:
        case.run(task)
    assert len(late.lacks) == 3


@pytest.mark.long
def test_a_resumed_generator_has_its_draws(
    make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(case for case in CASES if case.parameters.get("fmf") == "pydp")
    task = replace(_task(make_task, case), scratch=tmp_path)
    kept: list[Tape] = []

    def run() -> None:
        with taped() as tape:
            kept.append(tape)
            case.run(task)

    _interrupted(monkeypatch, "fedassay.methods.shared.sent_generators.draws", 1, run)
    with taped() as resumed:
        case.run(task)
    assert not resumed.lacks
    assert len(resumed.draws) == 6
    # PyDP has no seed: these can only be the interrupted run's own.
    _same_tape(resumed, kept[0])


def _interrupted(monkeypatch: pytest.MonkeyPatch, name: str, call: int, run: Callable[[], object]) -> None:
    """Run, on a tape where there is none yet, until a function is called for the n-th time."""
    module, function = name.rsplit(".", 1)
    whole, calls = getattr(importlib.import_module(module), function), count(1)

    def killed(*given: object, **named: object) -> object:
        if next(calls) == call:
            raise KeyboardInterrupt
        return whole(*given, **named)

    monkeypatch.setattr(name, killed)
    with taped(), pytest.raises(KeyboardInterrupt):
        run()
    monkeypatch.undo()


def _same_tape(one: Tape, other: Tape) -> None:
    assert set(one.draws) == set(other.draws)
    for key, entry in one.draws.items():
        first = other.draws[key]
        np.testing.assert_array_equal(entry.out, first.out)
        if isinstance(entry, Draw):
            assert isinstance(first, Draw)
            np.testing.assert_array_equal(entry.exact, first.exact)


def test_simulations_on_neighbours_may_share_their_noise(make_task: MakeTask) -> None:
    task = make_task(epsilon=5.0)
    other = replace(task, clients=task.clients[:2])
    assert task.noise != other.noise
    assert replace(task, simulated=True).noise == replace(other, simulated=True).noise != task.noise
    # Hidden coins are tossed alike on neighbours, and are of another kind than noise and public randomness.
    assert task.hidden_randomness == other.hidden_randomness
    assert len({repr(root._root) for root in (task.hidden_randomness, task.noise, task.seeds)}) == 3


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in CASES if case.honest], ids=str)
def test_the_worst_case_of_every_private_method_is_known(
    case: Case, make_task: MakeTask, make_context: Callable[..., AuditContext]
) -> None:
    """Sums over records, or the method's own worst neighbours: what a claim needs to be `sound`."""
    context = make_context(_task(make_task, case), lookup("method", case.name)(**case.parameters))
    claim = context.outcome.transcript.claim
    assert isinstance(claim, PrivacyClaim)
    asked = WorstCase(context, coverage(context.outcome.transcript, context.tape), claim).answer()
    # A body that is trained on the records moves every feature: its claim falls by other questions.
    known = case.parameters.get("body") != "private"
    assert (asked.status == "passed") is known, asked.words


def test_every_private_method_is_here() -> None:
    private = {name for name in entries("method") if declared("method", name).component.facts.private_form}
    assert {case.name for case in CASES} == private
