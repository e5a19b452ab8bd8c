"""The three questions: honest methods pass, faults planted in methods are found, each by the right question."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contexts import with_runs

import fedassay.contracts.method as contract
import fedassay.methods.fedcgs.method as fedcgs
import fedassay.methods.fedlog.method as fedlog
import fedassay.methods.fedpft.private as fedpft
import fedassay.privacy.mechanisms as mechanisms
import fedassay.privacy.tape as mechanism
from fedassay.audits.claim.ledger_claim import accounted_for
from fedassay.audits.claim.tape.answers import Answer
from fedassay.audits.claim.tape.coverage import coverage
from fedassay.audits.claim.tape.questions import TapeAnswers, _signature, ask
from fedassay.contracts.audit import AuditContext, Replayed, Rerun
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.exchange.release import PrivacyClaim, derived, public
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import NotRunError
from fedassay.support.registry import lookup
from fedassay.support.seeds import Seeds

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]
Patch = Callable[[pytest.MonkeyPatch], None]
SAME: Adjacency = "replace_one_same_label"


@dataclass(frozen=True)
class Case:
    """A private method with its parameters."""

    name: str
    adjacency: Adjacency
    parameters: dict[str, Any]


CGS = Case("fedcgs", "add_remove", {})
CGS_SAME = Case("fedcgs", SAME, {})
PFT = Case("fedpft", SAME, {"components": 1, "covariance": "diag"})
SUMS = Case("fedpft", "add_remove", {"components": 1, "counts": "noised"})
EM = Case("fedpft", "add_remove", {"components": 2, "counts": "noised", "dp_steps": 2})
LOG = Case("fedlog", "add_remove", {"rounds": 2, "local_epochs": 1, "width": 6})
ONE_ROUND = Case("fedlog", "add_remove", {**LOG.parameters, "rounds": 1})
AVG = Case("fedavg", "add_remove", {"local_epochs": 2})

HONEST = [
    CGS,
    CGS_SAME,
    Case("fedcgs", "replace_one", {"noise": "central", "secure_aggregation": "all"}),
    PFT,
    SUMS,
    EM,
    Case("fedpft_chain", SAME, {"components": 1}),
    LOG,
    AVG,
]


def _context(case: Case, make_task: MakeTask, make_context: MakeContext, method: object = None) -> AuditContext:
    task = make_task(clients=3, records=90, epsilon=1.0, adjacency=case.adjacency)
    return make_context(task, method or lookup("method", case.name)(**case.parameters))


FEW = 4
"""Replays on neighbours in tests of the third question, which is asked before these and by replays of its own."""


def _asked(context: AuditContext, replays: int | None = None) -> TapeAnswers:
    claim = context.outcome.transcript.claim
    assert isinstance(claim, PrivacyClaim)
    return ask(claim, accounted_for(claim, context), context, replays)


def _failed(asked: TapeAnswers) -> dict[str, Answer]:
    return {answer.question: answer for answer in asked.of("failed")}


@pytest.mark.long
@pytest.mark.parametrize("case", HONEST, ids=str)
def test_honest_methods_pass(case: Case, make_task: MakeTask, make_context: MakeContext) -> None:
    asked = _asked(_context(case, make_task, make_context))
    assert [answer.status for answer in asked.answers] == ["passed"] * 4, asked.answers
    assert asked.open is None


@pytest.mark.long
@pytest.mark.parametrize("records", [3, 7])
@pytest.mark.parametrize("case", [CGS, CGS_SAME, PFT, ONE_ROUND], ids=str)
def test_clients_of_one_record_can_be_asked(
    case: Case, records: int, make_task: MakeTask, make_context: MakeContext
) -> None:
    task = make_task(clients=3, records=records, epsilon=1.0, adjacency=case.adjacency)
    asked = _asked(make_context(task, lookup("method", case.name)(**case.parameters)))
    assert [answer.status for answer in asked.answers] == ["passed"] * 4, asked.answers


def _half_in_the_mechanism(patch: pytest.MonkeyPatch) -> None:
    whole = mechanism.scaled_noise
    patch.setattr(mechanism, "scaled_noise", lambda *given: whole(*given) / 2)


def _streams_forget_parts(patch: pytest.MonkeyPatch) -> None:
    whole = mechanism.Key.path.fget  # type: ignore[attr-defined]
    patch.setattr(mechanism.Key, "path", property(lambda key: whole(key)[:4]))


def _one_root(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(contract.MethodInput, "noise", property(lambda _task: Seeds(0).child("noise")))


def _root_without_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(contract.MethodInput, "noise", property(lambda task: task.seeds.child("noise", task.parameters)))


def _root_without_parameters(patch: pytest.MonkeyPatch) -> None:
    def root(task: MethodInput) -> Seeds:
        return task.seeds.child("noise", *(int(client.images.sum()) for client in task.clients))

    patch.setattr(contract.MethodInput, "noise", property(root))


def _sums_as_they_are(patch: pytest.MonkeyPatch) -> None:
    whole = fedcgs.noised_sums
    patch.setattr(
        fedcgs, "noised_sums", lambda exact, *rest, **more: whole(exact, *rest, **more)._replace(sums=exact.sums)
    )


def _half_the_scale_of_sums(patch: pytest.MonkeyPatch) -> None:
    whole = fedcgs.noised_sums

    def halved(exact: Any, sigmas: Any, noise: Any, **more: Any) -> Any:
        return whole(exact, (sigmas[0], sigmas[1] / 2, sigmas[2]), noise, **more)

    patch.setattr(fedcgs, "noised_sums", halved)


def _own_noise_of_a_fixed_seed(patch: pytest.MonkeyPatch) -> None:
    def own(exact: Any, sigmas: Any, noise: Any, **more: Any) -> Any:
        return mechanisms.noised_sums(exact, sigmas, mechanism.FreeNoise(np.random.default_rng(0)), **more)

    patch.setattr(fedcgs, "noised_sums", own)


def _no_clip(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("fedassay.methods.fedcgs.transform.clip_features", lambda f, **_: np.asarray(f, np.float64))


def _clip_per_coordinate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "fedassay.methods.fedcgs.transform.clip_features", lambda f, **_: np.clip(np.asarray(f, np.float64), -1, 1)
    )


def _no_clip_in_class_nine(patch: pytest.MonkeyPatch) -> None:
    whole = fedcgs.statistics

    def some(features: Any, labels: Any, classes: int, weights: Any) -> Any:
        grown = np.where((labels == 9)[:, None], 3 * features, features)
        return whole(grown, labels, classes, weights)

    patch.setattr(fedcgs, "statistics", some)


def _second_moment_as_it_is(patch: pytest.MonkeyPatch) -> None:
    whole = fedpft.release_mean_second_moment

    def some(features: Any, **more: Any) -> Any:
        exact = mechanisms.moments(mechanisms.clip_features(features), more["family"])
        return whole(features, **more)._replace(second=exact.second)

    patch.setattr(fedpft, "release_mean_second_moment", some)


def _half_the_sensitivity(patch: pytest.MonkeyPatch) -> None:
    whole = fedpft.class_sums

    def half(*given: Any, **more: Any) -> Any:
        return replace(whole(*given, **more), sensitivity=whole(*given, **more).sensitivity / 2)

    patch.setattr(fedpft, "class_sums", half)


def _one_step_charged(patch: pytest.MonkeyPatch) -> None:
    whole = fedpft.dp_em_sensitivity
    patch.setattr(fedpft, "dp_em_sensitivity", lambda width, k, _steps, **more: whole(width, k, 1, **more))


def _one_noise_for_all_steps(patch: pytest.MonkeyPatch) -> None:
    whole = mechanism.NoiseMechanism.at
    patch.setattr(mechanism.NoiseMechanism, "at", lambda self, *, cell=None, step=None: whole(self, cell=cell))


def _fedlog_without_clip(patch: pytest.MonkeyPatch) -> None:
    def released(features: Any, labels: Any, classes: int, *, sigma: float, noise: Any, **_: Any) -> Any:
        exact = mechanisms.fedlog_sums(np.asarray(features, np.float64), labels, classes)
        return noise.add("T", exact, sigma)

    patch.setattr(fedlog, "release_fedlog_sums", released)


def _changed(edit: Callable[[Message, MethodInput], Message]) -> Patch:
    """FedCGS whose messages are edited after they were made."""

    def patched(patch: pytest.MonkeyPatch) -> None:
        whole = fedcgs.FedCGS.run

        def run(self: Any, task: MethodInput) -> Outcome:
            outcome = whole(self, task)
            sent = tuple(edit(m, task) if m.sender != "server" else m for m in outcome.transcript.messages)
            return replace(outcome, transcript=replace(outcome.transcript, messages=sent))

        patch.setattr(fedcgs.FedCGS, "run", run)

    return patched


def _records_of(message: Message, task: MethodInput) -> Any:
    return next(client for client in task.clients if client.name == message.sender)


def _extra_field(message: Message, task: MethodInput) -> Message:
    extra = MessageField(_records_of(message, task).features, "features", derived())
    return replace(message, fields={**message.fields, "help": extra})


def _low_bits(message: Message, task: MethodInput) -> Message:
    """One bit of one image in the last bit of one number, of one client alone."""
    if message.sender != "client/1":
        return message
    item = message.fields["B"]
    bits = item.values.astype(np.float64).copy()
    raw = bits.view(np.uint64)
    raw[3] = (raw[3] & ~np.uint64(255)) | np.uint64(int(_records_of(message, task).images.sum()) % 256)
    return replace(message, fields={**message.fields, "B": replace(item, sent=bits)})


def _shape(message: Message, task: MethodInput) -> Message:
    item = message.fields["A"]
    rows = int(_records_of(message, task).images.sum()) % 7
    sent = np.concatenate([item.values, np.zeros((rows, item.shape[1]), item.dtype)])
    return replace(message, fields={**message.fields, "A": replace(item, sent=sent)})


def _dtype(message: Message, task: MethodInput) -> Message:
    item = message.fields["A"]
    kind = np.float32 if int(_records_of(message, task).images.sum()) % 2 else np.float64
    return replace(message, fields={**message.fields, "A": replace(item, sent=item.values.astype(kind))})


def _fails_on_some(message: Message, task: MethodInput) -> Message:
    if int(_records_of(message, task).images[..., 0, 0].max()) > 200:
        raise ValueError("cannot be sent")
    return message


FAULTS: dict[str, tuple[Case, Patch, str, str]] = {
    "half of the noise in the mechanism": (CGS, _half_in_the_mechanism, "noise", "N"),
    "half of the noise of DP-EM": (EM, _half_in_the_mechanism, "noise", "class_counts"),
    "streams forget parts of their names": (CGS, _streams_forget_parts, "noise", ""),
    "one root for all runs": (CGS, _one_root, "noise", ""),
    "the root forgets the records": (PFT, _root_without_records, "noise", ""),
    "the root forgets the parameters": (CGS, _root_without_parameters, "noise", ""),
    "half of the scale of class sums": (CGS_SAME, _half_the_scale_of_sums, "noise", "A"),
    "noise of a fixed seed, outside of the mechanism": (CGS, _own_noise_of_a_fixed_seed, "noise", "N"),
    "the same noise in every step": (EM, _one_noise_for_all_steps, "noise", ""),
    "no clip": (CGS, _no_clip, "sensitivity", ""),
    "no clip, same label": (CGS_SAME, _no_clip, "sensitivity", ""),
    "clip per coordinate": (CGS, _clip_per_coordinate, "sensitivity", ""),
    "no clip in one class": (CGS_SAME, _no_clip_in_class_nine, "sensitivity", ""),
    "half of the sensitivity": (SUMS, _half_the_sensitivity, "sensitivity", ""),
    "one step of DP-EM charged": (EM, _one_step_charged, "sensitivity", "means"),
    "FedLog without its clip": (LOG, _fedlog_without_clip, "sensitivity", "counts"),
    "class sums as they are": (CGS, _sums_as_they_are, "rest", "A"),
    "second moment as it is": (PFT, _second_moment_as_it_is, "rest", "covariances"),
    "a field of features, declared derived": (CGS, _changed(_extra_field), "rest", "help"),
    "images in low bits, of one client": (CGS, _changed(_low_bits), "rest", "B"),
    "a shape that depends on records": (CGS_SAME, _changed(_shape), "rest", "A"),
    "a type that depends on records": (CGS_SAME, _changed(_dtype), "rest", "A"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found_by_the_right_question(
    name: str, make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, patch, question, field = FAULTS[name]
    patch(monkeypatch)
    context = _context(case, make_task, make_context)
    failed = _failed(_asked(context, FEW if question == "rest" else None))
    assert question in failed, failed
    assert field in failed[question].field


def test_a_failure_on_other_records_is_a_difference(
    make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digits have dark corners, and inverted ones do not."""
    _changed(_fails_on_some)(monkeypatch)
    failed = _failed(_asked(_context(CGS_SAME, make_task, make_context), FEW))
    assert "cannot be sent" in failed["rest"].words


NO_MORE = {
    "memory": MemoryError("the process of a rerun was killed twice"),
    "disk": OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "processes": OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)),
}


@pytest.mark.parametrize("name", NO_MORE)
@pytest.mark.parametrize("call", [1, 9, 20])
def test_a_machine_that_has_no_more_is_not_the_methods_failure(
    name: str, call: int, make_task: MakeTask, make_context: MakeContext
) -> None:
    """Nothing was found out: the cell says so and is tried again, instead of an answer with less behind it."""
    context = _context(CGS_SAME, make_task, make_context)
    calls = iter(range(1000))

    def fails(asked: Rerun) -> Replayed:
        if asked.other is not None and next(calls) == call:
            raise NO_MORE[name]
        return context.method.rerun(asked)

    with pytest.raises((MemoryError, OSError), match=re.escape(str(NO_MORE[name]))):
        _asked(with_runs(context, rerun=fails))


def test_numbers_of_records_that_leave_exactly_disprove(make_task: MakeTask, make_context: MakeContext) -> None:
    case = Case("fedlog", "add_remove", {**LOG.parameters, "counts": "exact", "body": "private", "rounds": 5})
    failed = _failed(_asked(_context(case, make_task, make_context), FEW))
    assert failed["rest"].field == "records"
    assert "[30]" in failed["rest"].words
    assert "[29]" in failed["rest"].words


def test_a_method_that_is_not_the_same_twice_is_inconclusive(
    make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def jitter(message: Message, _task: MethodInput) -> Message:
        item = message.fields["A"]
        sent = item.values + np.random.default_rng().standard_normal(item.shape)
        return replace(message, fields={**message.fields, "A": replace(item, sent=sent)})

    _changed(jitter)(monkeypatch)
    asked = _asked(_context(CGS, make_task, make_context))
    assert not asked.failed
    assert asked.open is not None
    assert asked.open.verdict == "inconclusive"


def test_noise_that_comes_from_elsewhere_is_not_asked(
    make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method of its own streams may be honest: nothing refutes it, and nothing supports it."""
    whole = fedcgs.FedCGS._message

    def message(self: Any, client: Any, task: MethodInput, transform: Any, noise: Any) -> Message:
        def own(exact: Any, sigmas: Any, _noise: Any, **more: Any) -> Any:
            source = mechanism.FreeNoise(task.noise.numpy("own", client.name))
            return mechanisms.noised_sums(exact, sigmas, source, **more)

        with monkeypatch.context() as inner:
            inner.setattr(fedcgs, "noised_sums", own)
            return whole(self, client, task, transform, noise)

    monkeypatch.setattr(fedcgs.FedCGS, "_message", message)
    asked = _asked(_context(CGS, make_task, make_context))
    assert not asked.failed
    assert asked.open is not None
    assert asked.open.verdict == "unsupported"


@pytest.mark.long
def test_a_release_by_class_that_names_no_class_is_told_which_line_to_write(
    make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise is drawn class by class, each under a part of its own, and no draw says of which class it is."""

    def at(own: Any, *, cell: str | None = None, step: int | None = None) -> Any:
        named = own.key.part if cell is None else cell
        return replace(own, key=replace(own.key, field=own.key.field, step=int(named.rpartition("/")[2])))

    monkeypatch.setattr(mechanism.NoiseMechanism, "at", at)
    asked = _asked(_context(PFT, make_task, make_context))
    assert asked.open is not None
    assert asked.open.verdict == "unsupported"
    assert '.at(cell="class/' in asked.open.reason
    assert "was not drawn" not in asked.open.reason


def test_the_answers_are_shared_by_the_audits_of_a_cell(make_task: MakeTask, make_context: MakeContext) -> None:
    context = _context(CGS, make_task, make_context)
    assert _asked(context) is _asked(context)


def _remembers_by_name(keep: dict[str, Any]) -> Callable[[Message, MethodInput], Any]:
    return lambda message, sent: keep.setdefault(message.sender, sent)


def _remembers_by_calls(keep: dict[str, Any]) -> Callable[[Message, MethodInput], Any]:
    def kept(message: Message, sent: Any) -> Any:
        keep[""] = keep.get("", 0) + 1
        return (
            keep.setdefault(f"{keep['']} of {message.sender}", sent)
            if keep[""] <= 3
            else keep[f"{_number(message)} of {message.sender}"]
        )

    return kept


def _number(message: Message) -> int:
    return int(message.sender.split("/")[1]) + 1


def _remembers_in_a_file(_keep: dict[str, Any]) -> Callable[[Message, MethodInput], Any]:
    def kept(message: Message, sent: Any) -> Any:
        path = Path(tempfile.gettempdir()) / f"{message.sender.replace('/', '-')}.npy"
        if not path.exists():
            np.save(path, sent)
        return np.load(path)

    return kept


def _remembers_in_a_cache(_keep: dict[str, Any]) -> Callable[[Message, MethodInput], Any]:
    waiting: list[Any] = []

    @lru_cache
    def first(_sender: str) -> Any:
        return waiting[-1]

    def kept(message: Message, sent: Any) -> Any:
        waiting.append(sent)
        return first(message.sender)

    return kept


@pytest.mark.long
@pytest.mark.parametrize(
    "memory", [_remembers_by_name, _remembers_by_calls, _remembers_in_a_file, _remembers_in_a_cache]
)
def test_a_method_that_remembers_its_first_run_is_found(
    memory: Callable[[dict[str, Any]], Callable[..., Any]],
    make_task: MakeTask,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Nine tenths of A leave exactly, and every later run sends what the first one did."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = memory({})

    def leaks(message: Message, task: MethodInput) -> Message:
        item = message.fields["A"]
        features = _records_of(message, task).features.astype(np.float64)
        exact = np.resize(features.sum(axis=0), item.shape)
        sent = np.asarray(0.9 * exact + 0.1 * item.values, dtype=item.dtype)
        return replace(message, fields={**message.fields, "A": replace(item, sent=kept(message, sent))})

    _changed(leaks)(monkeypatch)
    task = make_task(clients=3, records=90, epsilon=1.0, adjacency=CGS.adjacency)
    context = make_context(task, lookup("method", CGS.name)(**CGS.parameters), apart=True)
    assert "A" in _failed(_asked(context, FEW))["rest"].words
    assert not list(tmp_path.iterdir()) or memory is _remembers_in_a_file


def _nudged(message: Message) -> Message:
    item = message.fields["B"]
    sent = item.values.copy()
    sent.reshape(-1)[0] += 1e-3
    return replace(message, fields={**message.fields, "B": replace(item, sent=sent)})


def _reordered(message: Message) -> Message:
    return replace(message, fields=dict(reversed(message.fields.items())))


def _retyped(message: Message) -> Message:
    item = message.fields["N"]
    other = np.float64 if item.dtype != np.float64 else np.float32
    return replace(message, fields={**message.fields, "N": replace(item, sent=item.values.astype(other))})


def _extended(message: Message) -> Message:
    declared = MessageField(np.zeros(1), "other", public())
    return replace(message, fields={**message.fields, "flag": declared})


@pytest.mark.parametrize("client", ["client/0", "client/1", "client/2"])
@pytest.mark.parametrize("way", [_nudged, _reordered, _retyped, _extended])
def test_a_private_bit_of_one_client_is_found(
    client: str,
    way: Callable[[Message], Message],
    make_task: MakeTask,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bit(message: Message, task: MethodInput) -> Message:
        private = message.sender == client and int(_records_of(message, task).images.sum()) % 2
        return way(message) if private else message

    _changed(bit)(monkeypatch)
    assert "rest" in _failed(_asked(_context(CGS, make_task, make_context), FEW))


def test_a_count_that_is_rounded_is_found(
    make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty records or so, in thirty-twos: most other numbers of records give the same."""

    def rounded(message: Message, task: MethodInput) -> Message:
        count = np.array([len(_records_of(message, task)) // 32], np.int64)
        declared = MessageField(count, "other", public())
        return replace(message, fields={**message.fields, "size": declared})

    _changed(rounded)(monkeypatch)
    assert "size" in _failed(_asked(_context(CGS, make_task, make_context), FEW))["rest"].words


def test_without_a_process_apart_the_rest_is_left_open(make_task: MakeTask, make_context: MakeContext) -> None:
    context = _context(CGS, make_task, make_context)

    def nowhere(asked: Rerun) -> Replayed:
        if asked.apart:
            raise NotRunError("no fork here")
        return rerun(asked)

    rerun = context.method.rerun
    context = with_runs(context, rerun=nowhere)
    answer = next(answer for answer in _asked(context).answers if answer.question == "rest")
    assert answer.status == "crashed"
    assert "remembers" in answer.words


@pytest.mark.parametrize("place", ["communication", "notes"])
def test_what_a_run_reports_beside_its_messages_is_compared(
    place: str, make_task: MakeTask, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fedcgs.FedCGS.run

    def run(self: Any, task: MethodInput) -> Outcome:
        outcome, total = whole(self, task), float(sum(client.features.sum() for client in task.clients))
        own = {"notes": (*outcome.notes, str(total)), "communication": {**outcome.communication, "bytes": total}}
        return replace(outcome, **{place: own[place]})

    monkeypatch.setattr(fedcgs.FedCGS, "run", run)
    assert place in _failed(_asked(_context(CGS, make_task, make_context), FEW))["rest"].words


def test_cells_are_alike_whatever_classes_noise_has_left(make_task: MakeTask, make_context: MakeContext) -> None:
    """Under more noise fewer classes come out of the statistics, so that the head that is sent back is smaller."""
    alike, heads = set(), set()
    for epsilon in (20.0, 2.0):
        task = make_task(clients=18, records=40, epsilon=epsilon)
        context = make_context(task, lookup("method", "fedcgs")())
        transcript = context.outcome.transcript
        assert isinstance(transcript.claim, PrivacyClaim)
        heads |= {message.fields["head_bias"].shape for message in transcript.messages if message.sender == SERVER}
        alike.add(_signature(context, transcript.claim, coverage(transcript, context.tape)))
    assert len(heads) == 2, heads
    assert len(alike) == 1
