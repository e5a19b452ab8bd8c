"""Recording the messages of any system, as a transcript that `fedassay audit` reads.

    with fedassay.record("captured", classes=10) as recorder:
        for client in clients:
            recorder.sent(client.name, client.message())

A message is a mapping of names to arrays: NumPy arrays, PyTorch tensors (a `state_dict`), numbers; or a list of
arrays, which are named by their place. The meaning of an array (`kinds`) and its protection (`declared`) are
stated by its name. An undeclared array counts as exact: a function of the records that no mechanism protects. Its
kind is then inferred from its own algebra (`fedassay.exchange.inference`), else it counts as model parameters. A
wrong declaration never ends a training: the transcript says what was wrong, and the array is audited without its
kind.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.inference.infer import infer_kinds
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.kinds import kinds as every_kind
from fedassay.exchange.release import Claim, NoClaim, Release, derived, exact
from fedassay.exchange.shapes import shape_problem
from fedassay.exchange.transcript import (
    AGGREGATE,
    MANIFEST,
    SERVER,
    Message,
    MessageField,
    Transcript,
    load_transcript,
)
from fedassay.support.errors import DataError, PlanError
from fedassay.support.text import shown

_OF_LABELS = ("labels", "class_ids", "class_counts")
"""Kinds with exact values that follow from the labels alone."""

_BY_ARRAYS = "not declared, so taken to be exact, and of the kind that its arrays tell"


@dataclass(frozen=True)
class Declared:
    """Kind of the arrays of one name, and their protection.

    Attributes:
        kind: See `fedassay.exchange.transcript`; attacks on messages go by it.
        release: The mechanism, its noise and its sensitivity; exact where it is not stated.
        additive: Whether the server needs no more than the sum over the clients.
        secure: Whether it travels under secure aggregation.
    """

    kind: FieldKind
    release: Release = field(default_factory=exact)
    additive: bool = False
    secure: bool = False


@dataclass
class Kept:
    """The messages of a run in progress, as every recorder keeps them.

    Attributes:
        classes: Number of classes.
        declared: Declarations of fields, by name.
        messages: In the order in which they were sent.
        notes: Notes for a reader of the transcript, once each.
        most_records: The most records that one person has at one client; None: not known.
    """

    classes: int
    declared: Mapping[str, Declared]
    messages: list[Message] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    most_records: int | None = None

    def keep(
        self, values: Iterable[tuple[str, NDArray[Any], FieldKind]], sender: str, receiver: str, number: int
    ) -> None:
        """Keep a message.

        Args:
            values: Its arrays by name, each with the kind that it has where none is declared.
            sender: The sender.
            receiver: The receiver.
            number: Its round.
        """
        fields = {}
        answered = any(each.round == number and each.sender != SERVER for each in self.messages)
        for name, array, default in values:
            if array.dtype.kind in "fc" and not np.isfinite(array).all():
                self.notes[f"{name} of {sender} in round {number} held NaN or infinity and was left out"] = None
                continue
            about = self.declared.get(name)
            if sender == SERVER:
                # Its model is what clients' updates are read against.
                fields[name] = MessageField(
                    array, _downwards(default), derived("computed by the server", answers=answered)
                )
            elif about is None:
                fields[name] = MessageField(array, default, exact(note="not declared, so taken to be exact"))
            else:
                fields[name] = MessageField(array, about.kind, about.release, about.additive, about.secure)
        kept = Message(number, sender, receiver, fields)
        problem = shape_problem(kept, self.classes)
        if problem:
            # A wrong declaration must not end a training that runs; the report shows the note.
            self.notes[f"not what was declared, so audited without its kinds: {sender}: {problem}"] = None
            kept = Message(number, sender, receiver, {n: replace(f, kind="other") for n, f in fields.items()})
        if fields:
            self.messages.append(kept)

    def save(self, folder: Path, method: str, claim: Claim) -> Path:
        """Write the transcript.

        Raises:
            DataError: Nothing was kept.
        """
        if not self.messages:
            raise DataError(f"{folder}: no message of a client was recorded, so there is no transcript to write")
        self.transcript(method, claim).save(folder)
        return folder

    def transcript(self, method: str, claim: Claim) -> Transcript:
        """Transcript of the kept messages; kinds of undeclared arrays are inferred."""
        messages, notes = self._with_kinds(), tuple(self.notes)
        return Transcript(method, self.classes, messages, claim, notes, most_records=self.most_records)

    def _with_kinds(self) -> tuple[Message, ...]:
        """The messages, undeclared parameters of clients of the kinds that their arrays tell."""
        messages = tuple(self.messages)
        told: dict[tuple[str, FieldKind], FieldKind | None] = {
            (each.field, each.declared): each.read_as
            for each in infer_kinds(Transcript("", self.classes, messages))
            if each.field not in self.declared and each.declared == "parameters" and each.as_sent
        }

        def of_kind(name: str, item: MessageField) -> MessageField:
            kind = told.get((name, item.kind))
            return item if kind is None else replace(item, kind=kind, release=exact(note=_BY_ARRAYS))

        def as_told(message: Message) -> Message:
            fields = {name: of_kind(name, item) for name, item in message.fields.items()}
            changed = replace(message, fields=fields)
            return message if message.sender == SERVER or shape_problem(changed, self.classes) else changed

        return tuple(map(as_told, messages))

    def resume(self, folder: Path) -> None:
        """Go on with the transcript that a folder holds, if it holds one."""
        if (folder / MANIFEST).is_file():
            before = load_transcript(folder)
            self.messages = list(before.messages)
            self.notes = dict.fromkeys(before.notes)


@dataclass
class Recorder:
    """Recorder of messages, which writes them as a transcript: the result of `fedassay.record`.

    As a context manager it saves at the end, also of a training that failed, if anything was recorded.

    Attributes:
        folder: Folder of the transcript.
        method: Free text: the system and its version.
        claim: The claim about the clients' messages.
        undeclared: The kind of undeclared arrays.
    """

    folder: Path
    method: str
    claim: Claim
    undeclared: FieldKind
    _kept: Kept = field(repr=False)

    def sent(self, sender: str | int, arrays: Any, round: int = 0, receiver: str | int = SERVER) -> None:
        """Keep what one party sends another.

        Args:
            sender: A client's name or number, or `server`.
            arrays: A mapping of names to arrays (NumPy, PyTorch or numbers), a list of arrays, or one array.
            round: The round, from 0.
            receiver: Likewise a name or number.

        Raises:
            DataError: Something in it is no array of numbers.
        """
        if round < 0:
            raise PlanError(f"record: round: given {round}; allowed: 0 or more")
        named = ((name, values, self.undeclared) for name, values in _named(arrays))
        self._kept.keep(named, _party(sender), _party(receiver), round)

    def summed(self, arrays: Any, clients: int, round: int = 0) -> None:
        """Keep the sum over clients that secure aggregation gives the server, which sees none of the parts.

        Args:
            arrays: As in `sent`.
            clients: Number of clients in the sum.
            round: The round, from 0.

        Raises:
            DataError: Something in it is no array of numbers.
        """
        self.sent(AGGREGATE, arrays, round)
        self._kept.notes[f"round {round}: sums over {clients} clients, which alone the server saw"] = None

    def save(self) -> Path:
        """Write what was recorded so far; returns the folder, for `fedassay.audit`.

        Raises:
            DataError: Nothing was recorded.
        """
        return self._kept.save(self.folder, self.method, self.claim)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or self._kept.messages:
            self.save()


def record(
    folder: str | os.PathLike[str],
    classes: int,
    *,
    kinds: Mapping[str, FieldKind] | None = None,
    declared: Mapping[str, Declared] | None = None,
    method: str = "a system of your own",
    claim: Claim | None = None,
    undeclared: FieldKind = "parameters",
    most_records: int | None = None,
) -> Recorder:
    """Record messages of your own system.

    Args:
        folder: Folder of the transcript.
        classes: Number of classes.
        kinds: Kinds of arrays, by name: `{"sums": "class_sums"}`; docs/transcript.md has the kinds. They count as
            exact.
        declared: Kinds with protections, for the protected arrays.
        method: The system and its version.
        claim: The claim about the clients' messages.
        undeclared: The kind of undeclared arrays; `fedassay.audit` infers their kinds from the arrays.
        most_records: The most records that one person has at one client: a claim for records is then held against
            that person. None: not known.

    Raises:
        PlanError: A kind that there is not, a name in `kinds` and `declared`, no class, or no record.
        DataError: The folder holds a transcript already.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> folder = tempfile.mkdtemp()
        >>> with record(folder, classes=10, kinds={"sums": "class_sums"}) as recorder:
        ...     for client in range(3):
        ...         recorder.sent(client, {"sums": np.ones((10, 64)), "loss": 0.3})
        >>> [message.sender for message in load_transcript(Path(folder)).messages]
        ['client/0', 'client/1', 'client/2']
    """
    path, said = Path(folder), dict(declared or {})
    for name, number in (("classes", classes), ("most_records", 1 if most_records is None else most_records)):
        if not is_whole(number) or number < 1:
            raise PlanError(f"record: {name}: given {shown(number)}; allowed: 1 or more, a whole number")
    known = every_kind()
    for name, kind in {**(kinds or {}), "": undeclared}.items():
        if kind not in known:
            where = f"kinds.{name}" if name else "undeclared"
            raise PlanError(f"record: {where}: given {shown(kind)}; allowed: {', '.join(known)}")
    for name, kind in (kinds or {}).items():
        if name in said:
            raise PlanError(f"record: {name}: given in kinds and in declared; allowed: one of them")
        said[name] = Declared(kind, exact("labels" if kind in _OF_LABELS else "records"))
    if (path / MANIFEST).exists():
        raise DataError(f"{path}: holds a transcript already; allowed: another folder")
    kept = Kept(classes, said, most_records=most_records)
    return Recorder(path, method, NoClaim() if claim is None else claim, undeclared, kept)


def is_whole(number: object) -> bool:
    """Whether an argument is a whole number; true and false are none."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _downwards(kind: FieldKind) -> FieldKind:
    """The kind of an array that the server sends: its model, or nothing that attacks read."""
    return "parameters" if kind == "parameters" else "other"


def _party(name: str | int) -> str:
    """`client/3` for a client's number or bare name; server, aggregate and names with a slash stay."""
    text = str(name)
    return text if text in {SERVER, AGGREGATE} or "/" in text else f"client/{text}"


def _named(arrays: Any) -> Iterable[tuple[str, NDArray[Any]]]:
    """The arrays of a message by name."""
    if isinstance(arrays, Mapping):
        for name, values in arrays.items():
            yield str(name), as_array(values, str(name))
    elif isinstance(arrays, Sequence) and not isinstance(arrays, str | bytes):
        for place, values in enumerate(arrays):
            yield str(place), as_array(values, str(place))
    else:
        yield "array", as_array(arrays, "array")


def as_array(values: Any, name: str) -> NDArray[Any]:
    """A copy of an array, a tensor on any device, or a number: later changes in place do not reach it.

    Raises:
        DataError: It is none of these.
    """
    given = type(values).__name__
    try:
        if hasattr(values, "detach"):
            tensor = values.detach().cpu()
            values = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
        array = np.array(values)
    except (ValueError, TypeError, RuntimeError):
        # Rows of different lengths, or a tensor that is sparse.
        array = np.array(None)
    if array.dtype.kind not in "biuf" or np.ma.is_masked(values):
        of = f" of {array.dtype}" if hasattr(values, "dtype") else ""
        raise DataError(f"record: {name}: given {given}{of}; allowed: an array of numbers, or a number")
    return array
