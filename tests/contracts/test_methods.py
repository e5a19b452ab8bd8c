"""What every registered method owes: declared releases, measured bytes, reproducible runs, no NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedassay.contracts.membership import visible
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.exchange.ledger import account, exact_fields, ledger_rows
from fedassay.exchange.recount import recounted, released
from fedassay.exchange.release import NoClaim, PrivacyClaim, PrivacyTarget
from fedassay.exchange.store import Spool
from fedassay.exchange.transcript import SERVER, load_transcript, shape_problem
from fedassay.exchange.view import ThreatModel
from fedassay.execution.coverage import seen_kinds
from fedassay.records.record import CellPrivacy, CellRecord
from fedassay.support.adjacency import Adjacency
from fedassay.support.registry import entries, lookup

# Parameters that make a method quick enough for a contract; the method's own tests use its defaults.
QUICK: dict[str, dict[str, object]] = {
    "fedpft": {"components": 1},
    "fedpft_chain": {"components": 1},
    "fedcvae": {"hidden": 64, "local_epochs": 40, "batch": 16, "learning_rate": 5e-3},
    "feddiff": {"epochs": 60, "steps": 10, "dp_sgd": {"epochs": 1}},
    "dense": {"networks": {"bodies": "mlp"}, "rounds": 20},
    "co_boosting": {"networks": {"bodies": "mlp"}, "rounds": 15},
    "fedkt": {"partitions": 1, "teachers": 2},
    "fedavg_heads": {"rounds": 3, "local_epochs": 10},
}
# For what does not ask whether anything was learned: bytes, budgets and declarations need few steps.
FEW: dict[str, dict[str, object]] = QUICK | {
    "average": {"dp_sgd": {"epochs": 2}},
    "ccvr": {"fedavg": {"local_epochs": 2}},
    "co_boosting": {"networks": {"bodies": "mlp", "local_epochs": 2}, "rounds": 2},
    "dense": {"networks": {"bodies": "mlp", "local_epochs": 2}, "rounds": 2},
    "ensemble": {"dp_sgd": {"epochs": 2}},
    "fedavg": {"local_epochs": 2},
    "fedavg_heads": {"rounds": 2, "local_epochs": 2},
    "fedbe": {"epochs": 1, "dp_sgd": {"epochs": 2}},
    "fedcvae": {"hidden": 16, "local_epochs": 2, "classifier": {"local_epochs": 2}},
    "feddiff": {"epochs": 2, "steps": 4, "classifier": {"epochs": 2}, "dp_sgd": {"epochs": 1, "draws": 1}},
    "fedproto": {"rounds": 2, "local_epochs": 1},
    "knowledge_distillation": {"epochs": 2, "dp_sgd": {"epochs": 2}},
}
METHODS = sorted(entries("method"))


def _run(name: str, task: MethodInput, parameters: dict[str, dict[str, object]] = FEW) -> Outcome:
    outcome = lookup("method", name)(**parameters.get(name, {})).run(task)
    assert isinstance(outcome, Outcome)
    return outcome


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_a_plain_run(name: str, make_task: Callable[..., MethodInput], tmp_path: Path) -> None:
    task = make_task()
    outcome = _run(name, task, QUICK)
    transcript = outcome.transcript
    assert transcript.classes == 10
    assert isinstance(transcript.claim, NoClaim)
    assert all(shape_problem(message, 10) is None for message in transcript.messages)
    senders = {message.sender for message in transcript.messages}
    assert senders <= {SERVER, *(client.name for client in task.clients)}
    # A dry run says by these which attacks will apply, to a run without privacy or to a private one.
    facts, kinds = lookup("method", name).facts, seen_kinds(visible(outcome, ThreatModel()))
    if not set(facts.sends) <= kinds:
        private = replace(task, privacy=PrivacyTarget(epsilon=8.0, delta=1e-5, adjacency=facts.adjacency))
        kinds |= seen_kinds(visible(_run(name, private, QUICK), ThreatModel()))
    assert set(facts.sends) <= kinds
    transcript.save(tmp_path)
    again = load_transcript(tmp_path)
    assert again.bytes_up == transcript.bytes_up == _measured(tmp_path, transcript.bytes_down)
    if transcript.bytes_up:
        # Nothing is noised at inf, so whatever leaves is accounted as unbounded.
        assert account(transcript, "add_remove", 1e-5).epsilon == math.inf
        assert exact_fields(transcript, "add_remove")
        assert ledger_rows(transcript, "add_remove")
    if outcome.model is not None:
        predicted = outcome.model.predict(task.test)
        assert predicted.shape == (len(task.test),)
        assert (predicted == task.test.labels).mean() > 0.5, "give QUICK settings that train it far enough"


def _measured(folder: Path, down: int) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors")) - down


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_bytes_wherever_they_wait(
    name: str, make_task: Callable[..., MethodInput], tmp_path: Path
) -> None:
    here = _run(name, make_task())
    on_disk = _run(name, replace(make_task(), spool=Spool(tmp_path, limit=0)))
    first, second = here.transcript, on_disk.transcript
    assert [m.serialized for m in first.messages] == [m.serialized for m in second.messages]
    assert (first.bytes_up, first.bytes_down) == (second.bytes_up, second.bytes_down)
    assert ledger_rows(first, "add_remove") == ledger_rows(second, "add_remove")
    assert here.utility == on_disk.utility
    if name != "centralized":
        # Its messages are the records, which are in memory anyway.
        kept = all(message.stored is not None for message in second.from_clients())
        assert kept, "pass messages through task.spool.keep_all"


@pytest.fixture(scope="module", params=METHODS)
def private(request: pytest.FixtureRequest, make_task: Callable[..., MethodInput]) -> Outcome:
    """A run of a method at epsilon 5, under the adjacency that it declares."""
    factory = lookup("method", request.param)
    if not factory.facts.private_form:
        pytest.skip(f"{request.param} has no private form")
    return _run(request.param, make_task(epsilon=5.0, adjacency=factory.facts.adjacency))


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one", "replace_one_same_label"])
def test_what_a_record_keeps_of_the_releases_adds_up_to_the_same(private: Outcome, adjacency: Adjacency) -> None:
    """`check` accounts again from it, and must refuse no run that nobody changed."""
    transcript = private.transcript
    accounted = account(transcript, adjacency, 1e-5)
    cell = CellRecord(
        **{"method": "m", "label": "m", "params": {}, "params_given": {}, "utility": {}, "seed": 0},
        epsilon=5.0,
        delta=1e-5,
        adjacency=adjacency,
        communication={"bytes_up": transcript.bytes_up, "bytes_down": transcript.bytes_down},
        privacy=CellPrivacy(
            claimed=transcript.claim.epsilon if isinstance(transcript.claim, PrivacyClaim) else None,
            accounted=accounted.epsilon,
            accounted_stated=accounted.epsilon_stated,
            mu=accounted.mu,
            exact_fields=accounted.exact_fields,
            verdict="not_run",
        ),
        ledger=ledger_rows(transcript, adjacency),
        released=released(transcript),
    )
    read = CellRecord.model_validate_json(cell.model_dump_json())
    for messages in (None, transcript):
        again = recounted(read, messages)
        assert again is not None
        assert again.problems == ()
    assert len(read.model_dump_json()) < 50_000


def test_a_private_run_claims_what_was_asked(private: Outcome) -> None:
    claim = private.transcript.claim
    assert isinstance(claim, PrivacyClaim)
    adjacency = lookup("method", private.transcript.method).facts.adjacency
    assert (claim.epsilon, claim.delta, claim.adjacency) == (5.0, 1e-5, adjacency)
    for message in private.transcript.messages:
        for field_name, item in message.fields.items():
            if item.values.dtype.kind == "f":
                assert np.isfinite(item.values).all(), field_name
    assert account(private.transcript, adjacency, 1e-5).epsilon <= 5.0 * (1 + 1e-6)


def test_no_field_under_a_finite_epsilon_is_exact_by_default(private: Outcome) -> None:
    assert exact_fields(private.transcript, lookup("method", private.transcript.method).facts.adjacency) == ()
