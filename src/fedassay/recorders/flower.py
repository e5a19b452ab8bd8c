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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.release import Claim, NoClaim
from fedassay.exchange.transcript import SERVER
from fedassay.recorders.plain import Declared, Kept

__all__ = ["Declared", "Recorder", "client_mod"]

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.app import Message as FlowerMessage
    from flwr.clientapp.typing import ClientAppCallable, Mod
    from flwr.serverapp import Grid


@dataclass
class Recorder:
    """Keeps the messages of one Flower run.

    Attributes:
        folder: Folder that `save` writes the transcript to.
        classes: Number of classes.
        declared: Declarations of fields, by name (`<record>.<key>`); others are exact, and `parameters` where they
            are arrays, `other` where they are metrics or configuration.
        method: Free text: the system and its version.
        claim: The claim about the clients' messages.
        received: Whether to keep what the server sends as well. It counts as computed from initial values
            that hold no record, and from what the clients sent.
    """

    folder: Path
    classes: int
    declared: Mapping[str, Declared] = field(default_factory=dict)
    method: str = "a Flower app"
    claim: Claim = field(default_factory=NoClaim)
    received: bool = False
    _kept: Kept = field(init=False, repr=False)
    _rounds: dict[int, int] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._kept = Kept(self.classes, self.declared)

    def grid(self, grid: Grid) -> Grid:
        """A grid that does what `grid` does and records the messages that pass."""
        return _recording_grid(grid, self)

    def sent(self, message: FlowerMessage) -> None:
        """Note a message on its way to a client; it names the round that the reply belongs to."""
        node = int(message.metadata.dst_node_id)
        named = _round_of(message)
        self._rounds[node] = self._rounds.get(node, 0) + 1 if named is None else named
        if self.received:
            self._kept.keep(_values(message), SERVER, f"client/{node}", self._rounds[node])

    def reply(self, message: FlowerMessage) -> None:
        """Keep a client's reply. One that reports an error carries nothing and is noted."""
        node = int(message.metadata.src_node_id)
        number = self._rounds.get(node, 0)
        if message.has_error():
            self._kept.notes[f"client/{node} reported an error in round {number}"] = None
            return
        self._kept.keep(_values(message), f"client/{node}", SERVER, number)

    def save(self) -> Path:
        """Write what was recorded so far.

        Returns:
            The folder.

        Raises:
            DataError: Nothing was recorded.
        """
        return self._kept.save(self.folder, self.method, self.claim)

    def resume(self) -> None:
        """Go on with the transcript that the folder holds, if it holds one."""
        self._kept.resume(self.folder)


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
        claim: The claim about the messages.
    """

    def mod(message: FlowerMessage, context: Context, call_next: ClientAppCallable) -> FlowerMessage:
        recorder = Recorder(
            folder / f"client-{context.node_id}", classes, declared or {}, method, claim or NoClaim()
        )
        recorder.resume()
        number = _round_of(message)
        reply = call_next(message, context)
        recorder._rounds[int(reply.metadata.src_node_id)] = (
            len(recorder._kept.messages) + 1 if number is None else number
        )
        recorder.reply(reply)
        if recorder._kept.messages:
            recorder.save()
        return reply

    return mod


def _recording_grid(grid: Grid, recorder: Recorder) -> Grid:
    # Subclassing needs the package, which is optional: so the class is made here.
    from flwr.serverapp import Grid as FlowerGrid

    class RecordingGrid(FlowerGrid):  # type: ignore[misc]
        """A grid that records messages on their way."""

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
            return grid.push_messages(_noted(messages, recorder.sent))

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[FlowerMessage]:
            return _noted(grid.pull_messages(message_ids), recorder.reply)

        def send_and_receive(
            self, messages: Iterable[FlowerMessage], *, timeout: float | None = None
        ) -> Iterable[FlowerMessage]:
            return _noted(grid.send_and_receive(_noted(messages, recorder.sent), timeout=timeout), recorder.reply)

    return RecordingGrid()


def _noted(messages: Iterable[FlowerMessage], note: Callable[[FlowerMessage], None]) -> list[FlowerMessage]:
    """The messages, after a note of each."""
    held = list(messages)
    for message in held:
        note(message)
    return held


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
