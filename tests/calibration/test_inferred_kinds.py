"""Kinds of undeclared fields: right in at least 95 of 100 renamed transcripts, and never wrong without a word.

Transcripts of the registered methods, at several sizes, backbones and types, are stripped of what they declare:
names, order, kinds and releases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from fedassay.contracts.method import MethodInput
from fedassay.exchange.inference.infer import infer_kinds
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, Transcript
from fedassay.support.registry import lookup

MakeTask = Callable[..., MethodInput]


@dataclass(frozen=True)
class Case:
    """A method on records.

    Attributes:
        method: As registered.
        parameters: Its own.
        records: What `make_task` is asked for.
    """

    method: str
    parameters: dict[str, object] = field(default_factory=dict)
    records: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        said = [f"{key}={value}" for key, value in (*self.parameters.items(), *self.records.items())]
        return " ".join((self.method, *said))

    def transcript(self, make_task: MakeTask) -> Transcript:
        found: Transcript = (
            lookup("method", self.method)(**self.parameters).run(make_task(**self.records)).transcript
        )
        return found


FEW = {"clients": 3, "records": 60}
MANY = {"clients": 2, "records": 400}
SKEWED = {"clients": 4, "records": 120, "labels_of": [0, 2, 3, 7], "seed": 3}
SIGNED = {"clients": 3, "records": 90, "backbone": "small_cnn"}
RECTIFIED = {"clients": 3, "records": 300, "backbone": "small_cnn_rectified", "seed": 1}
LARGE = {"clients": 2, "records": 900, "backbone": "small_cnn_rectified", "seed": 2}
SIZES = (FEW, MANY, SKEWED, SIGNED, RECTIFIED, LARGE)

CLOSED = [
    Case(name, parameters, records)
    for name, variants in {
        "afl": ({}, {"transport": "float64", "gamma": 100.0}),
        "fed3r": ({}, {"random_features": 30}),
        "gh_ofl": ({}, {"transport": "float32", "head": "lda"}),
        "one_shot_ridge": ({}, {"transport": "float32"}),
        "fedcof": ({},),
        "fedncm": ({"transport": "float64"},),
        "fedcgs": ({}, {"transport": "float32"}),
    }.items()
    for parameters in variants
    for records in SIZES
]
TRAINED = [
    *(
        Case(name, {"components": size, "covariance": family, "transport": transport}, records)
        for name, size, family, transport in (
            ("fedpft", 1, "diag", "float16"),
            ("fedpft", 3, "diag", "float32"),
            ("fedpft", 2, "full", "float16"),
            ("fedpft", 2, "spherical", "float16"),
            ("fedpft_chain", 2, "diag", "float16"),
        )
        for records in (FEW, MANY, SKEWED, RECTIFIED)
    ),
    *(Case("raw_features", {"transport": kind}, size) for kind in ("float32", "float16") for size in SIZES[:3]),
    *(Case("fedcgs", {"transport": "float16"}, size) for size in (FEW, MANY)),
    *(Case("gh_ofl", {"head": "nb", "moments": "diagonal"}, size) for size in (FEW, SIGNED)),
    *(
        Case(name, {"rounds": 1, "local_epochs": 1}, size)
        for name in ("fedlog", "fedproto")
        for size in (FEW, MANY)
    ),
    *(Case("ccvr", {"fedavg": {"local_epochs": 1}}, size) for size in (FEW, MANY)),
    *(Case(name, {}, size) for name in ("ensemble", "average") for size in (FEW, SIGNED)),
    Case("fedavg", {"local_epochs": 1}, FEW),
    Case("knowledge_distillation", {}, {"clients": 2, "records": 60}),
    Case("fedcvae", {"hidden": 32, "local_epochs": 1, "batch": 16}, FEW),
    Case("feddiff", {"epochs": 1, "steps": 2, "fmf": "gaussian"}, FEW),
    Case("centralized", {}, FEW),
]


def _stripped(transcript: Transcript, rng: np.random.Generator) -> tuple[Transcript, dict[str, str]]:
    """Without anything that is declared, and the true kind of every new name."""
    names: dict[str, str] = {}
    true: dict[str, str] = {}
    messages = []
    for message in transcript.messages:
        if message.sender == SERVER:
            continue
        order = [list(message.fields)[place] for place in rng.permutation(len(message.fields))]
        for name in order:
            key = f"{sorted(message.fields)}{name}"
            names.setdefault(key, f"t{rng.integers(10**9)}")
            true[names[key]] = message.fields[name].kind
        fields = {
            names[f"{sorted(message.fields)}{name}"]: replace(message.fields[name], kind="other", release=exact())
            for name in order
        }
        messages.append(Message(message.round, message.sender, message.receiver, fields))
    return Transcript("captured", transcript.classes, tuple(messages)), true


def _judged(case: Case, make_task: MakeTask, rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """What was not told of a stripped transcript, and what was told wrongly."""
    transcript, true = _stripped(case.transcript(make_task), rng)
    untold, wrong = [], []
    for found in infer_kinds(transcript):
        kind = true[found.field]
        if found.reading.kind not in (None, "other") and found.reading.kind != kind:
            wrong.append(f"{case}: {kind}: {found.text}")
        elif kind != "other" and found.reading.kind != kind:
            untold.append(f"{case}: {kind}: {found.text}")
    return untold, wrong


def _all(cases: list[Case], make_task: MakeTask) -> Iterator[tuple[list[str], list[str]]]:
    rng = np.random.default_rng(5)
    return (_judged(case, make_task, rng) for case in cases)


@pytest.mark.parametrize("name", sorted({case.method for case in CLOSED}))
def test_kinds_of_closed_forms_are_told(name: str, make_task: MakeTask) -> None:
    cases = [case for case in CLOSED if case.method == name][:3]
    judged = list(_all(cases, make_task))
    assert [sentence for _, wrong in judged for sentence in wrong] == []
    assert [sentence for untold, _ in judged for sentence in untold] == []


@pytest.mark.slow
def test_kinds_are_right_in_95_of_100_renamed_transcripts(make_task: MakeTask) -> None:
    cases = [*CLOSED, *TRAINED]
    assert len(cases) >= 100
    judged = list(_all(cases, make_task))
    told = "\n".join(sentence for untold, wrong in judged for sentence in (*wrong, *untold))
    assert not any(wrong for _, wrong in judged), told
    right = sum(not untold for untold, _ in judged)
    assert right >= 0.95 * len(cases), f"{right} of {len(cases)}\n{told}"
