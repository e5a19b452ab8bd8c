"""What a Flower app's clients return becomes a transcript; needs the real flwr (`make test-flower`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

flwr = pytest.importorskip("flwr", reason="flwr is not installed: pip install 'fedassay[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.clientapp.mod import LocalDpMod  # noqa: E402
from flwr.serverapp import Grid  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402

from fedassay.exchange.release import exact  # noqa: E402
from fedassay.exchange.transcript import SERVER, load_transcript  # noqa: E402
from fedassay.recorders.files.reading import Corrections, read_files  # noqa: E402
from fedassay.recorders.flower import Declared, Recorder, client_mod  # noqa: E402
from fedassay.support.errors import DataError  # noqa: E402

NODES = (11, 22, 33)


@pytest.fixture(autouse=True)
def _in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are stamped with the run of the process; what a SuperLink sets is set here."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # in older versions the grid stamps them
        return
    for name, value in (("_run_id", 1), ("_node_id", 1), ("_task_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)


class InProcess(Grid):
    """Hands messages to a ClientApp in this process, as a SuperLink would."""

    def __init__(self, app: ClientApp) -> None:
        self.app = app
        self.contexts = {
            node: Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})
            for node in NODES
        }
        self.pushed: dict[str, Message] = {}

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return NODES

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        for message in messages:
            self.pushed[str(len(self.pushed))] = message
        return list(self.pushed)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._answer(self.pushed.pop(name)) for name in list(message_ids)]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        del timeout
        return [self._answer(message) for message in messages]

    def _answer(self, message: Message) -> Message:
        return self.app(message, self.contexts[message.metadata.dst_node_id])


def _app(mods: list[Any] | None = None, fails: int | None = None) -> ClientApp:
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        if context.node_id == fails:
            return Message(Error(0, "out of memory"), reply_to=message)
        weights = message.content["arrays"].to_numpy_ndarrays()  # type: ignore[union-attr]
        arrays = ArrayRecord([weight + context.node_id for weight in weights])
        metrics = MetricRecord({"num-examples": context.node_id, "loss": 0.5})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": context.node_id, "accuracy": [0.25, 0.75]})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def _started(recorder: Recorder, app: ClientApp, rounds: int = 2) -> Any:
    initial = ArrayRecord([np.zeros((2, 3), np.float32), np.zeros(3, np.float32)])
    strategy = FedAvg(min_train_nodes=3, min_evaluate_nodes=3, min_available_nodes=3)
    return strategy.start(grid=recorder.grid(InProcess(app)), initial_arrays=initial, num_rounds=rounds)


def test_fedavg_is_recorded_and_not_disturbed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "t", classes=10, method="FedAvg on Flower")
    result = _started(recorder, _app())
    plain = FedAvg(min_train_nodes=3, min_evaluate_nodes=3, min_available_nodes=3)
    initial = ArrayRecord([np.zeros((2, 3), np.float32), np.zeros(3, np.float32)])
    alone = plain.start(grid=InProcess(_app()), initial_arrays=initial, num_rounds=2)
    for ours, theirs in zip(result.arrays.to_numpy_ndarrays(), alone.arrays.to_numpy_ndarrays(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)  # clients are averaged in random order
    read = load_transcript(recorder.save())
    # Two rounds of training and of evaluation, three clients each.
    assert [message.round for message in read.messages] == [1] * 6 + [2] * 6
    assert {message.sender for message in read.messages} == {"client/11", "client/22", "client/33"}
    first = next(message for message in read.messages if message.sender == "client/22")
    assert set(first.fields) == {"arrays.0", "arrays.1", "metrics.num-examples", "metrics.loss"}
    np.testing.assert_array_equal(first.fields["arrays.0"].values, np.full((2, 3), 22, np.float32))
    assert first.fields["arrays.0"].kind == "parameters"
    assert first.fields["metrics.num-examples"].values == 22
    assert {item.release.mechanism for item in first.fields.values()} == {"exact"}


def test_the_strategy_on_the_page_of_files_keeps_what_clients_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[2] / "docs/howto/audit-a-file.md"
    (block,) = re.findall(r"<!-- needs flwr -->\n```python\n(.*?)```", page.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(block, scope)
    strategy = scope["Kept"](min_train_nodes=3, min_evaluate_nodes=3, min_available_nodes=3)
    initial = ArrayRecord([np.zeros((2, 3), np.float32), np.zeros(3, np.float32)])
    strategy.start(grid=InProcess(_app(fails=33)), initial_arrays=initial, num_rounds=2)
    messages = read_files(tmp_path, Corrections()).transcript.messages
    assert [(message.round, message.sender) for message in messages] == [
        (number, f"client/{node}") for number in (1, 2) for node in (11, 22)
    ]
    np.testing.assert_array_equal(messages[1].fields["0"].values, np.full((2, 3), 22, np.float32))


def test_what_is_declared_is_audited_as_that(tmp_path: Path) -> None:
    from fedassay.execution.captured import AuditOptions, audit_transcript

    rng = np.random.default_rng(0)
    features = np.maximum(rng.normal(size=(8, 40)), 0)
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = ArrayRecord({"B": Array(features.T @ features), "A": Array(features.sum(axis=0)[None])})
        content = RecordDict({"stats": arrays, "metrics": MetricRecord({"num-examples": 8})})
        return Message(content, reply_to=message)

    declared = {
        "stats.B": Declared("second_moment", exact(), additive=True),
        "stats.A": Declared("class_sums", exact(), additive=True),
    }
    recorder = Recorder(tmp_path / "t", classes=1, declared=declared)
    sent = [
        Message(RecordDict({"config": ConfigRecord({"server-round": 1})}), dst_node_id=11, message_type="train")
    ]
    grid = recorder.grid(InProcess(app))
    assert len(list(grid.pull_messages(grid.push_messages(sent)))) == 1
    out, record = audit_transcript(recorder.save(), None, tmp_path / "out", AuditOptions(quiet=True))
    assert out == tmp_path / "out"
    assert not record.errors
    found = {finding.source: finding for finding in record.cells[0].findings}
    assert found["gram_factorization"].reason.startswith("8 of 8")


SITES = 3


@pytest.fixture
def as_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the identity that `_in_a_run` pretends, and with modules of this file found by other processes."""
    monkeypatch.undo()
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")


def _site_app(recorded: Path) -> ClientApp:
    """A site sends sums of its own eight records' features, and records what it sends."""
    app = ClientApp(mods=[client_mod(recorded, classes=1)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        site = int(context.node_config["partition-id"])
        features = np.maximum(np.random.default_rng(site).normal(size=(8, 40)), 0)
        arrays = ArrayRecord({"B": Array(features.T @ features), "A": Array(features.sum(axis=0)[None])})
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 8})})
        return Message(content, reply_to=message)

    return app


def test_an_app_in_flowers_simulation_is_recorded_and_audited(tmp_path: Path, as_started: None) -> None:
    pytest.importorskip("ray", reason="Flower's engine is not installed: pip install 'flwr[simulation]'")
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    from fedassay.execution.captured import AuditOptions, audit_transcript

    declared = {
        "arrays.B": Declared("second_moment", exact(), additive=True),
        "arrays.A": Declared("class_sums", exact(), additive=True),
    }
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        recorder = Recorder(tmp_path / "captured", classes=1, declared=declared, method="sums on Flower")
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=SITES, min_available_nodes=SITES)
        initial = ArrayRecord({"B": Array(np.zeros((40, 40))), "A": Array(np.zeros((1, 40)))})
        strategy.start(grid=recorder.grid(grid), initial_arrays=initial, num_rounds=1)
        recorder.save()

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, _site_app(tmp_path / "sites"), num_supernodes=SITES, backend_config=resources)
    read = load_transcript(tmp_path / "captured")
    assert len(read.messages) == SITES
    assert {message.round for message in read.messages} == {1}
    assert {name: item.kind for name, item in read.messages[0].fields.items()} == {
        "arrays.B": "second_moment",
        "arrays.A": "class_sums",
        "metrics.num-examples": "other",
    }
    # Each site recorded in its own process what the server got from it.
    for message in read.messages:
        (own,) = load_transcript(tmp_path / "sites" / message.sender.replace("/", "-")).messages
        for name, item in message.fields.items():
            np.testing.assert_array_equal(own.fields[name].values, item.values)
    _, record = audit_transcript(tmp_path / "captured", None, tmp_path / "out", AuditOptions(quiet=True))
    assert not record.errors
    told = {finding.source: finding for finding in record.cells[0].findings}
    assert told["gram_factorization"].verdict == "leak"
    assert f"{8 * SITES} of {8 * SITES}" in told["gram_factorization"].reason


def test_a_client_records_what_leaves_it_after_the_other_mods(tmp_path: Path) -> None:
    noise = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=0.5, delta=1e-5)
    app = _app(mods=[client_mod(tmp_path, classes=10), noise])
    recorder = Recorder(tmp_path / "server", classes=10)
    _started(recorder, app)
    at_server = load_transcript(recorder.save())
    for node in NODES:
        own = load_transcript(tmp_path / f"client-{node}")
        theirs = [message for message in at_server.messages if message.sender == f"client/{node}"]
        assert [message.round for message in own.messages] == [message.round for message in theirs]
        for ours, there in zip(own.messages, theirs, strict=True):
            assert ours.fields.keys() == there.fields.keys()
            for name in ours.fields:
                np.testing.assert_array_equal(ours.fields[name].values, there.fields[name].values)


def test_a_client_that_fails_is_noted(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "t", classes=10)
    grid = recorder.grid(InProcess(_app(fails=22)))
    content = RecordDict({"arrays": ArrayRecord([np.zeros(2)]), "config": ConfigRecord({"server-round": 4})})
    sent = [Message(content, dst_node_id=node, message_type="train") for node in NODES]
    assert len(list(grid.send_and_receive(sent))) == 3
    read = load_transcript(recorder.save())
    assert [message.sender for message in read.messages] == ["client/11", "client/33"]
    assert [message.round for message in read.messages] == [4, 4]
    assert read.notes == ("client/22 reported an error in round 4",)


def test_nan_and_wrong_declarations_are_noted_and_do_not_stop_the_run(tmp_path: Path) -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = ArrayRecord({"w": Array(np.full(3, np.nan)), "sums": Array(np.ones((4, 2)))})
        config = ConfigRecord({"site": "clinic ß", "key": b"\x00\x01"})
        return Message(RecordDict({"arrays": arrays, "about": config}), reply_to=message)

    recorder = Recorder(tmp_path / "t", classes=3, declared={"arrays.sums": Declared("class_sums", exact())})
    sent = [Message(RecordDict(), dst_node_id=11, message_type="train")]
    list(recorder.grid(InProcess(app)).send_and_receive(sent))
    read = load_transcript(recorder.save())
    message = read.messages[0]
    assert set(message.fields) == {"arrays.sums", "about.site", "about.key"}
    assert bytes(message.fields["about.site"].values).decode() == "clinic ß"
    assert message.fields["arrays.sums"].kind == "other"
    assert any("NaN" in note for note in read.notes)
    assert any("first side must be 3" in note for note in read.notes)


def test_what_the_server_sends_is_kept_where_asked(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "t", classes=10, received=True)
    _started(recorder, _app(), rounds=1)
    read = load_transcript(recorder.save())
    down = [message for message in read.messages if message.sender == SERVER]
    assert {message.receiver for message in down} == {f"client/{node}" for node in NODES}
    assert {item.release.mechanism for message in down for item in message.fields.values()} == {"derived"}


def test_nothing_recorded_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no message of a client was recorded"):
        Recorder(tmp_path / "t", classes=10).save()
