"""Recording what a Flower app sends, as a transcript that `fedassay audit` reads.

On the server, wrap the grid that the strategy runs on; every message of every strategy and custom loop goes
through it:

    recorder = Recorder(Path("captured"), classes=10, declared={"arrays.sums": Declared("class_sums", exact())})
    strategy.start(grid=recorder.grid(grid), initial_arrays=arrays, num_rounds=1)
    recorder.save()

On a client, add a mod: `ClientApp(mods=[client_mod(Path("captured"), classes=10)])`. It records what leaves that
client only, into a folder of its own, and so is no matter of trust in the server.

Every array, metric and configuration value of a reply becomes one field, named `<record>.<key>`: the number of
examples of a client leaves as much as its arrays do. What is not declared counts as exact: a function of the
records that no mechanism protects. Flower itself is an optional extra (`pip install 'fedassay[flower]'`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.release import Claim, NoClaim, Release, derived, exact
from fedassay.exchange.shapes import shape_problem
from fedassay.exchange.transcript import (
    MANIFEST,
    SERVER,
    FieldKind,
    Message,
    MessageField,
    Transcript,
    load_transcript,
)
from fedassay.support.errors import DataError

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.app import Message as FlowerMessage
    from flwr.clientapp.typing import ClientAppCallable, Mod
    from flwr.serverapp import Grid


@dataclass(frozen=True)
class Declared:
    """What the arrays of one name are, and how they are protected.

    Attributes:
        kind: See `fedassay.exchange.transcript`; attacks on messages go by it.
        release: The mechanism, its noise and its sensitivity.
        additive: Whether the server needs no more than the sum over the clients.
        secure: Whether it travels under secure aggregation.
    """

    kind: FieldKind
    release: Release
    additive: bool = False
    secure: bool = False


@dataclass
class Recorder:
    """Keeps the messages of one Flower run.

    Attributes:
        folder: Where `save` writes the transcript.
        classes: Number of classes.
        declared: What fields are, by name (`<record>.<key>`); others are exact, and `parameters` where they are
            arrays, `other` where they are metrics or configuration.
        method: Free text: the system and its version.
        claim: What is claimed about the clients' messages.
        received: Whether to keep what the server sends as well. It counts as computed from initial values
            that hold no record, and from what the clients sent.
    """

    folder: Path
    classes: int
    declared: Mapping[str, Declared] = field(default_factory=dict)
    method: str = "a Flower app"
    claim: Claim = field(default_factory=NoClaim)
    received: bool = False
    _messages: list[Message] = field(default_factory=list, repr=False)
    _notes: dict[str, None] = field(default_factory=dict, repr=False)
    _rounds: dict[int, int] = field(default_factory=dict, repr=False)

    def grid(self, grid: Grid) -> Grid:
        """A grid that does what `grid` does and records the messages that pass."""
        return _recording_grid(grid, self)

    def sent(self, message: FlowerMessage) -> None:
        """Note a message on its way to a client; it names the round that the reply belongs to."""
        node = int(message.metadata.dst_node_id)
        named = _round_of(message)
        self._rounds[node] = self._rounds.get(node, 0) + 1 if named is None else named
        if self.received:
            self._keep(message, SERVER, f"client/{node}", self._rounds[node])

    def reply(self, message: FlowerMessage) -> None:
        """Keep a client's reply. One that reports an error carries nothing and is noted."""
        node = int(message.metadata.src_node_id)
        number = self._rounds.get(node, 0)
        if message.has_error():
            self._notes[f"client/{node} reported an error in round {number}"] = None
            return
        self._keep(message, f"client/{node}", SERVER, number)

    def save(self) -> Path:
        """Write what was recorded so far.

        Returns:
            The folder.

        Raises:
            DataError: Nothing was recorded.
        """
        if not self._messages:
            raise DataError(f"{self.folder}: no client has replied yet, so there is no transcript to write")
        transcript = Transcript(self.method, self.classes, tuple(self._messages), self.claim, tuple(self._notes))
        transcript.save(self.folder)
        return self.folder

    def resume(self) -> None:
        """Go on with the transcript that the folder holds, if it holds one."""
        if (self.folder / MANIFEST).is_file():
            before = load_transcript(self.folder)
            self._messages = list(before.messages)
            self._notes = dict.fromkeys(before.notes)

    def _keep(self, message: FlowerMessage, sender: str, receiver: str, number: int) -> None:
        fields = {}
        for name, values, default in _values(message):
            if values.dtype.kind in "fc" and not np.isfinite(values).all():
                self._notes[f"{name} of {sender} in round {number} held NaN or infinity and was left out"] = None
                continue
            about = self.declared.get(name)
            if sender == SERVER:
                fields[name] = MessageField(values, "other", derived("computed by the server"))
            elif about is None:
                fields[name] = MessageField(values, default, exact(note="not declared, so taken to be exact"))
            else:
                fields[name] = MessageField(values, about.kind, about.release, about.additive, about.secure)
        kept = Message(number, sender, receiver, fields)
        problem = shape_problem(kept, self.classes)
        if problem:
            # A wrong declaration must not end a training that runs; the report shows the note.
            self._notes[f"not what was declared, so audited without its kinds: {sender}: {problem}"] = None
            kept = Message(number, sender, receiver, {n: replace(f, kind="other") for n, f in fields.items()})
        if fields:
            self._messages.append(kept)


def client_mod(
    folder: Path,
    classes: int,
    declared: Mapping[str, Declared] | None = None,
    method: str = "a Flower app",
    claim: Claim | None = None,
) -> Mod:
    """A mod for a ClientApp that records what the client returns, after all mods that come later in the list.

    Put it first, so that noise and compression of the other mods are in what it sees. Each client writes its own
    transcript into `folder/client-<node id>`; a client that is asked again appends to it.

    Args:
        folder: Holds a folder for each client.
        classes: Number of classes.
        declared: See `Recorder`.
        method: Free text.
        claim: What is claimed about the messages.
    """

    def mod(message: FlowerMessage, context: Context, call_next: ClientAppCallable) -> FlowerMessage:
        recorder = Recorder(
            folder / f"client-{context.node_id}", classes, declared or {}, method, claim or NoClaim()
        )
        recorder.resume()
        number = _round_of(message)
        reply = call_next(message, context)
        recorder._rounds[int(reply.metadata.src_node_id)] = (
            len(recorder._messages) + 1 if number is None else number
        )
        recorder.reply(reply)
        if recorder._messages:
            recorder.save()
        return reply

    return mod


def _recording_grid(grid: Grid, recorder: Recorder) -> Grid:
    # Subclassing needs the package, which is optional: so the class is made here.
    from flwr.serverapp import Grid as FlowerGrid

    class RecordingGrid(FlowerGrid):  # type: ignore[misc]
        """A grid whose messages are recorded on their way."""

        def set_run(self, run: Any) -> None:
            grid.set_run(run)

        @property
        def run(self) -> Any:
            return grid.run

        def create_message(self, *args: Any, **kwargs: Any) -> FlowerMessage:
            return grid.create_message(*args, **kwargs)

        def get_node_ids(self) -> Any:
            return grid.get_node_ids()

        def get_nodes(self) -> Any:
            return grid.get_nodes()

        def push_messages(self, messages: Iterable[FlowerMessage]) -> Any:
            return grid.push_messages(self._noted(messages))

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[FlowerMessage]:
            return self._kept(grid.pull_messages(message_ids))

        def send_and_receive(
            self, messages: Iterable[FlowerMessage], *, timeout: float | None = None
        ) -> Iterable[FlowerMessage]:
            return self._kept(grid.send_and_receive(self._noted(messages), timeout=timeout))

        def _noted(self, messages: Iterable[FlowerMessage]) -> list[FlowerMessage]:
            held = list(messages)
            for message in held:
                recorder.sent(message)
            return held

        def _kept(self, messages: Iterable[FlowerMessage]) -> list[FlowerMessage]:
            held = list(messages)
            for message in held:
                recorder.reply(message)
            return held

    return RecordingGrid()


def _round_of(message: FlowerMessage) -> int | None:
    """The round that a message names: in its configuration, as Flower's strategies do, or as its group."""
    for record in message.content.config_records.values():
        named = record.get("server-round")
        if isinstance(named, int) and not isinstance(named, bool) and named >= 0:
            return named
    group = message.metadata.group_id
    return int(group) if group.isdigit() else None


def _values(message: FlowerMessage) -> Iterable[tuple[str, NDArray[Any], FieldKind]]:
    """Everything in a message as named arrays; text and bytes as their bytes."""
    content = message.content
    for name, arrays in content.array_records.items():
        for key, array in arrays.items():
            yield f"{name}.{key}", np.asarray(array.numpy()), "parameters"
    for name, record in (*content.metric_records.items(), *content.config_records.items()):
        for key, value in record.items():
            yield f"{name}.{key}", _as_array(value), "other"


def _as_array(value: Any) -> NDArray[Any]:
    values = value if isinstance(value, list) else [value]
    if any(isinstance(item, str | bytes) for item in values):
        joined = b"\0".join(item.encode() if isinstance(item, str) else bytes(item) for item in values)
        return np.frombuffer(joined, np.uint8).copy()
    return np.asarray(value)
