"""Records that two clients send, and branches that only rare records switch on; honest likes pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fedassay.audits.claim.ledger_claim import accounted_for
from fedassay.audits.claim.tape.overlap import codes
from fedassay.audits.claim.tape.questions import TapeAnswers, ask
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.data.records import Records, joined
from fedassay.exchange.release import PrivacyClaim
from fedassay.exchange.transcript import Message
from fedassay.heads.linear import FeatureModel, LinearHead
from fedassay.privacy.secure_sums import SecureSum
from fedassay.privacy.tape import NoiseSource
from fedassay.support.adjacency import Adjacency
from fedassay.support.registry import lookup
from fedassay.support.types import Floats, Images

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]
Clients = tuple[Records, ...]


@dataclass(frozen=True)
class Edited:
    """A method whose clients' records are edited before it runs, and their messages afterwards."""

    name: str
    parameters: dict[str, Any]
    clients: Callable[[Clients], Clients] = lambda clients: clients
    sent: Callable[[Message, Records], Message] = lambda message, _records: message
    given: Callable[[Outcome, Clients], Outcome] = lambda outcome, _clients: outcome

    def run(self, task: MethodInput) -> Outcome:
        own = replace(task, clients=self.clients(task.clients))
        outcome = lookup("method", self.name)(**self.parameters).run(own)
        assert isinstance(outcome, Outcome)
        held = {client.name: client for client in task.clients}
        messages = tuple(
            self.sent(message, held[message.sender]) if message.sender in held else message
            for message in outcome.transcript.messages
        )
        found = replace(outcome, transcript=replace(outcome.transcript, messages=messages))
        return self.given(found, task.clients)


@pytest.fixture
def asked_of(make_task: MakeTask, make_context: MakeContext) -> Callable[..., TapeAnswers]:
    def asked(
        method: Edited,
        adjacency: Adjacency = "add_remove",
        clients: int = 3,
        records: int = 60,
        replays: int | None = None,
    ) -> TapeAnswers:
        task = make_task(clients=clients, records=records, epsilon=2.0, adjacency=adjacency)
        context = make_context(task, method)
        claim = context.outcome.transcript.claim
        assert isinstance(claim, PrivacyClaim)
        return ask(claim, accounted_for(claim, context), context, replays)

    return asked


def _failed(asked: TapeAnswers) -> dict[str, str]:
    return {answer.question: answer.words for answer in asked.of("failed")}


def _named(records: Records, name: str) -> Records:
    return records.take(np.arange(len(records)), name)


def _backup(clients: Clients) -> Clients:
    """The last client sends what the first one's records give, with noise of its own."""
    return (*clients[:-1], _named(clients[0], clients[-1].name))


def _pooled(clients: Clients) -> Clients:
    """The two smallest sites both send the sums over the records of both."""
    both = joined("both", clients[:2])
    return (_named(both, clients[0].name), _named(both, clients[1].name), *clients[2:])


def _gossip(clients: Clients) -> Clients:
    """Every client adds its neighbour's first ten records to its own."""
    others = [*clients[1:], clients[0]]
    return tuple(
        _named(joined("", [own, other.take(np.arange(min(10, len(other))))]), own.name)
        for own, other in zip(clients, others, strict=True)
    )


def _lent(clients: Clients) -> Clients:
    """Every client adds three records from the middle of its neighbour's to its own."""
    others = [*clients[1:], clients[0]]
    return tuple(
        _named(joined("", [own, other.take(np.arange(9, 12))]), own.name)
        for own, other in zip(clients, others, strict=True)
    )


def _proxy(clients: Clients) -> Clients:
    """Every client sends for the one after it, and nobody sends its own records."""
    return tuple(_named(other, own.name) for own, other in zip(clients, (*clients[1:], clients[0]), strict=True))


def _faint(clients: Clients) -> Clients:
    """Every client adds a thousandth of the direction of its neighbour's first record to its own."""

    def added(own: Records, other: Records) -> Records:
        def features(_images: Images) -> Floats:
            found = own.features.copy()
            if len(found) and len(other):
                first = np.nan_to_num(other.features[0], posinf=0.0, neginf=0.0)
                found[0] += 1e-3 * first / max(np.linalg.norm(first), 1e-9)
            return found

        return Records(own.name, own.images, own.labels, features, own.groups)

    return tuple(added(own, other) for own, other in zip(clients, (*clients[1:], clients[0]), strict=True))


def _by_classes_held(clients: Clients) -> Clients:
    """Every client leaves out as many records as there are classes at all clients together."""
    held = len(np.unique(np.concatenate([client.labels for client in clients])))
    return tuple(client.take(np.arange(held, len(client))) for client in clients)


def _without_copies(after: bool) -> Callable[[Clients], Clients]:
    """A client leaves out the records that the client before it, or after it, has a copy of."""

    def edited(clients: Clients) -> Clients:
        nothing = clients[0].take(np.zeros(0, np.int64))
        others = (*clients[1:], nothing) if after else (nothing, *clients[:-1])
        known = [{image.tobytes() for image in other.images} for other in others]
        return tuple(
            own.take(np.flatnonzero([image.tobytes() not in seen for image in own.images]))
            for own, seen in zip(clients, known, strict=True)
        )

    return edited


def test_codes_tell_every_pair_of_clients_apart() -> None:
    for number in range(1, 40):
        found = list(codes(number))
        assert len(found) == 2 * max(0, number - 1).bit_length()
        for one in range(number):
            assert all(any(one in c and other not in c for c in found) for other in range(number) if other != one)


@pytest.mark.parametrize(
    ("name", "adjacency", "clients", "edit"),
    [
        ("one_shot_ridge", "replace_one", 3, _backup),
        ("gh_ofl", "add_remove", 4, _pooled),
        ("fedcof", "add_remove", 5, _gossip),
        ("fedncm", "replace_one", 3, _lent),
        ("fed3r", "replace_one_same_label", 3, _backup),
    ],
)
def test_records_that_two_clients_send_are_found(
    name: str, adjacency: Adjacency, clients: int, edit: Any, asked_of: Callable[..., TapeAnswers]
) -> None:
    asked = asked_of(Edited(name, {}, edit), adjacency, clients, 20 * clients)
    words = _failed(asked)["sensitivity"]
    assert "above the declared" in words
    assert "client/0" in words or "client/1" in words


def test_records_that_others_send_within_what_is_charged_leave_the_claim_open(
    asked_of: Callable[..., TapeAnswers],
) -> None:
    asked = asked_of(Edited("fedncm", {}, _faint), "replace_one")
    assert not _failed(asked), asked.answers
    assert asked.open is not None
    assert asked.open.verdict == "not_refuted"
    assert "but what these release adds up to epsilon" in asked.open.reason


def test_the_last_record_of_a_class_that_moves_all_clients_is_found(asked_of: Callable[..., TapeAnswers]) -> None:
    asked = asked_of(Edited("fedncm", {}, _by_classes_held), "replace_one", 4, 80)
    assert "the only record of class" in _failed(asked)["sensitivity"]


@pytest.mark.parametrize(
    ("name", "adjacency", "after"), [("one_shot_ridge", "add_remove", True), ("fedcof", "replace_one", False)]
)
def test_a_client_that_leaves_out_what_another_one_holds_is_found(
    name: str, adjacency: Adjacency, after: bool, asked_of: Callable[..., TapeAnswers]
) -> None:
    asked = asked_of(Edited(name, {}, _without_copies(after)), adjacency, 4, 80)
    assert "a record that every client has a copy of" in _failed(asked)["sensitivity"]


@pytest.mark.long
def test_a_record_that_is_trained_on_twice_is_found(asked_of: Callable[..., TapeAnswers]) -> None:
    def twice(clients: Clients) -> Clients:
        return tuple(_named(joined("", [own, own]), own.name) for own in clients)

    words = _failed(asked_of(Edited("average", {"dp_sgd": {"epochs": 2}}, twice)))["sensitivity"]
    assert "changes 2 of" in words


@pytest.mark.long
@pytest.mark.parametrize("name", ["average", "knowledge_distillation"])
def test_a_record_that_two_private_trainings_take_is_found(
    name: str, asked_of: Callable[..., TapeAnswers]
) -> None:
    # The last client of a distillation is its destination, which sends nothing: the first two share records.
    method = Edited(name, {"dp_sgd": {"epochs": 2}}, lambda clients: (*_backup(clients[:2]), *clients[2:]))
    assert "adds up to epsilon" in _failed(asked_of(method))["sensitivity"]


def test_a_client_that_sends_for_another_is_charged_once(asked_of: Callable[..., TapeAnswers]) -> None:
    """Each record is sent by one client alone, though not by its own: nothing adds up."""
    asked = asked_of(Edited("fedncm", {}, _proxy))
    assert not _failed(asked), asked.answers
    assert "together within what is charged" in asked.passed
    assert asked.open is None, asked.open


def _exact(field: str) -> Callable[[Message, Records], Message]:
    """A field with the records' features in its first numbers."""

    def sent(message: Message, records: Records) -> Message:
        item = message.fields[field]
        values = item.values.copy()
        values.reshape(-1)[:] = np.resize(np.nan_to_num(records.features).sum(axis=0), values.size)
        return replace(message, fields={**message.fields, field: replace(item, sent=values)})

    return sent


def _where(rare: Callable[[Records], bool], leak: Any) -> Any:
    return lambda message, records: leak(message, records) if len(records) and rare(records) else message


def _made_finite(clients: Clients) -> Clients:
    return tuple(
        Records(own.name, own.images, own.labels, lambda _i, own=own: np.nan_to_num(own.features), own.groups)
        for own in clients
    )


def _lone(records: Records) -> bool:
    return bool((np.bincount(records.labels) == 1).any() and len(np.unique(records.labels)) == 2)


RARE: dict[str, tuple[str, Adjacency, str, Callable[[Records], bool]]] = {
    "a blank image": ("fed3r", "add_remove", "b", lambda r: bool((r.images.max(axis=(1, 2, 3)) == 0).any())),
    "a saturated image": (
        "one_shot_ridge",
        "replace_one_same_label",
        "b",
        lambda r: bool((r.images.min(axis=(1, 2, 3)) == 255).any()),
    ),
    "a long vector": (
        "fedcof",
        "replace_one",
        "sums",
        lambda r: bool((np.linalg.norm(r.features, axis=1) > 40).any()),
    ),
    "a vector of zeros": ("fedncm", "replace_one", "sums", lambda r: not np.abs(r.features).max(axis=1).all()),
    "one image again and again": (
        "fedncm",
        "replace_one_same_label",
        "sums",
        lambda r: len(np.unique(r.images.reshape(len(r), -1), axis=0)) == 1,
    ),
    "no number": ("fedncm", "add_remove", "counts", lambda r: not np.isfinite(r.features).all()),
    "a record alone in its class": ("fedncm", "replace_one", "counts", _lone),
    "two records": ("fed3r", "add_remove", "b", lambda r: len(r) == 2),
    "one record of each class": ("fedcof", "add_remove", "sums", lambda r: bool(np.bincount(r.labels).max() == 1)),
}


@pytest.mark.parametrize("name", RARE)
def test_what_only_a_rare_record_switches_on_is_found(name: str, asked_of: Callable[..., TapeAnswers]) -> None:
    method, adjacency, field, rare = RARE[name]

    asked = asked_of(Edited(method, {}, _made_finite, _where(rare, _exact(field))), adjacency)
    assert "depends on records beside its noise" in _failed(asked)["rest"], asked.answers


def _norms(records: Records) -> Any:
    return np.linalg.norm(records.features.astype(np.float64), axis=1)


def _divided(by: Callable[[Records], float]) -> Callable[[Clients], Clients]:
    """Every client divides its features by a number that follows from its own records, before they are clipped."""

    def edited(clients: Clients) -> Clients:
        return tuple(
            Records(own.name, own.images, own.labels, lambda _i, own=own: own.features / np.float32(by(own)))
            if len(own)
            else own
            for own in clients
        )

    return edited


FOLLOWING: dict[str, tuple[str, Adjacency, Callable[[Records], float]]] = {
    "the median norm, rounded": ("fedcof", "add_remove", lambda r: max(1.0, round(float(np.median(_norms(r)))))),
    "a power of two above the largest norm": (
        "one_shot_ridge",
        "replace_one_same_label",
        lambda r: 2.0 ** np.ceil(np.log2(max(1e-3, float(_norms(r).max())))),
    ),
    "the lower quartile, rounded": (
        "fedncm",
        "replace_one",
        lambda r: max(1.0, float(np.rint(np.quantile(_norms(r), 0.25)))),
    ),
    "the number of records in tens": ("fed3r", "add_remove", lambda r: 4.0 * (1 + len(r) // 10)),
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_scales_that_follow_from_records_are_found_where_they_are_rounded(
    name: str, asked_of: Callable[..., TapeAnswers]
) -> None:
    method, adjacency, by = FOLLOWING[name]
    words = _failed(asked_of(Edited(method, {}, _divided(by)), adjacency, records=90))
    assert "above the declared" in words["sensitivity"]


def _to_one_length(clients: Clients) -> Clients:
    """A client of one or two records scales their features to the number ten."""

    def scaled(own: Records) -> Records:
        def features(_images: Images) -> Floats:
            return (own.features / np.maximum(_norms(own).mean(), 1e-9) * 10).astype(np.float32)

        return Records(own.name, own.images, own.labels, features, own.groups)

    return tuple(scaled(own) if 0 < len(own) < 3 else own for own in clients)


@pytest.mark.parametrize("name", ["fedncm", "fed3r"])
def test_what_moves_too_far_at_clients_of_two_records_alone_is_found(
    name: str, asked_of: Callable[..., TapeAnswers]
) -> None:
    assert "above the declared" in _failed(asked_of(Edited(name, {}, _to_one_length)))["sensitivity"]


def test_a_public_scale_is_none(asked_of: Callable[..., TapeAnswers]) -> None:
    asked = asked_of(Edited("fedcof", {}, _divided(lambda _records: 4.0)))
    assert [answer.status for answer in asked.answers[:3]] == ["passed"] * 3, asked.answers


def _head_of_records(outcome: Outcome, clients: Clients) -> Outcome:
    """The nearest exact means beside noised messages."""
    classes = [np.concatenate([own.features[own.labels == c] for own in clients]) for c in range(10)]
    means = np.array([each.mean(axis=0) if len(each) else np.zeros(each.shape[1]) for each in classes], np.float32)
    head = LinearHead(np.arange(10), means, -(means**2).sum(axis=1) / 2)
    return replace(outcome, model=FeatureModel(head))


def _a_little_of_one_record(outcome: Outcome, clients: Clients) -> Outcome:
    """One weight of the honest head moves in its last digits, and predicts as before."""
    model = outcome.model
    assert isinstance(model, FeatureModel)
    assert isinstance(model.head, LinearHead)
    weights = model.head.weights.copy()
    weights[0, 0] *= 1 + 1e-6 * float(clients[0].images.astype(np.int64).sum() % 97)
    return replace(outcome, model=replace(model, head=replace(model.head, weights=weights)))


def _behind_a_function(outcome: Outcome, clients: Clients) -> Outcome:
    model = outcome.model
    assert isinstance(model, FeatureModel)
    mean = np.mean([own.features.mean(axis=0) for own in clients if len(own)], axis=0)
    return replace(outcome, model=replace(model, transform=lambda features: features - mean))


def _accuracy_on_records(outcome: Outcome, clients: Clients) -> Outcome:
    hits = [float(np.mean(outcome.model.predict(own) == own.labels)) for own in clients if len(own)]  # type: ignore[union-attr]
    return replace(outcome, utility={**outcome.utility, "accuracy_on_train": float(np.mean(hits))})


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("fedcof", _head_of_records, "the model that comes back"),
        ("one_shot_ridge", _a_little_of_one_record, "the model that comes back"),
        ("fed3r", _behind_a_function, "the model that comes back"),
        ("gh_ofl", _accuracy_on_records, "the reported utility"),
    ],
)
def test_a_model_and_figures_that_do_not_follow_from_the_messages_are_found(
    name: str, given: Any, words: str, asked_of: Callable[..., TapeAnswers]
) -> None:
    # What follows from the messages is asked before neighbours are replayed.
    assert words in _failed(asked_of(Edited(name, {}, given=given), replays=4))["rest"]


def test_what_stays_at_clients_is_said_to_have_no_claim(asked_of: Callable[..., TapeAnswers]) -> None:
    def given(outcome: Outcome, clients: Clients) -> Outcome:
        return replace(_accuracy_on_records(outcome, clients), stays=frozenset({"accuracy_on_train"}))

    asked = asked_of(Edited("fedncm", {}, given=given))
    assert [answer.status for answer in asked.answers[:3]] == ["passed"] * 3, asked.answers
    assert "no claim covers what stays at clients (accuracy_on_train)" in asked.passed


@pytest.mark.long
@pytest.mark.parametrize("grid", ["public", "none"])
def test_shares_of_a_sums_noise_lie_on_a_public_grid(
    grid: str, asked_of: Callable[..., TapeAnswers], monkeypatch: pytest.MonkeyPatch
) -> None:
    if grid == "none":
        monkeypatch.setattr(SecureSum, "shares", lambda self, mechanism: _InFloatingPoint(self, mechanism))
    asked = asked_of(Edited("fedlog", {"rounds": 1, "noise": "central"}), replays=4)
    noise = next(answer for answer in asked.answers if answer.question == "noise")
    assert (noise.status, "not rounded to a public grid" in noise.words) == (
        ("passed", False) if grid == "public" else ("not_asked", True)
    ), noise.words


@dataclass(frozen=True)
class _InFloatingPoint:
    """Shares of a sum's noise as they are."""

    of: SecureSum
    mechanism: NoiseSource

    def add(self, part: str, exact: Any, scale: Any, **others: Any) -> Any:
        return self.mechanism.add(part, exact, scale / np.sqrt(self.of.clients), **others)


def test_a_method_that_refuses_rare_records_is_no_leak(asked_of: Callable[..., TapeAnswers]) -> None:
    def refused(clients: Clients) -> Clients:
        for client in clients:
            if len(client) and not np.isfinite(client.features).all():
                raise ValueError(f"{client.name}: features must be finite")
        return clients

    asked = asked_of(Edited("fedncm", {}, refused))
    assert [answer.status for answer in asked.answers[:3]] == ["passed"] * 3, asked.answers
    assert "the method refuses a record that is no number" in asked.passed


def test_a_method_that_refuses_long_records_has_a_known_worst_case(
    asked_of: Callable[..., TapeAnswers],
) -> None:
    def refused(clients: Clients) -> Clients:
        for client in clients:
            if len(client) and not _norms(client).max() < 1e3:
                raise ValueError(f"{client.name}: features out of range")
        return clients

    asked = asked_of(Edited("fedncm", {}, refused))
    assert [answer.status for answer in asked.answers] == ["passed"] * 4, asked.answers
