"""Processes that never ran a method, in which audits run it: what the first run remembers is not there.

One process is forked before the first run and runs nothing itself. For every question it forks another one, which
runs the method once, with temporary and cache folders of its own, and ends. So a question knows neither the first
run nor another question, nor its place in their order. Of the tape it gets what came out of the mechanisms and
never what went in: a method that reads the recorder finds there what everybody sees.

Calibrating noise takes longer than most runs, and so does the import of some libraries. So before the first
question about a cell the method is run on the cell's own records in such a process, which says only what it
calibrated and imported; the one that forks does the same, and every question finds it alike.

What is not kept apart: files outside of the two folders, the network and the clock.

Where a process is killed twice, the error of memory is one that no audit takes for an answer.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import os
import pickle
import random
import shutil
import sys
import sysconfig
import tempfile
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from fedassay.contracts.audit import Replayed, Rerun
from fedassay.contracts.content import content_digest
from fedassay.contracts.method import Outcome
from fedassay.data.records import Records
from fedassay.exchange.transcript import Message
from fedassay.execution.forks import NO_MEMORY, gather, in_child, prepare, reply, server, was_killed
from fedassay.privacy.calibrations import calibrate, calibrated
from fedassay.privacy.tape import Draw, ExternalMechanism, Tape, taped
from fedassay.support.devices import seed_draws
from fedassay.support.errors import is_of_the_machine
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images


class Work(NamedTuple):
    """A method that can be run in such a process.

    Attributes:
        known: Records that both processes have; they are named, not sent, and their features are sent once.
        run: From records of every client, what names other coins (None: nothing differs from the first run) and
            the seeds of the cell to the outcome.
        rehearse: Runs it on the cell's own records, before anything is asked; None: it calibrates nothing.
    """

    known: tuple[Records, ...]
    run: Callable[[Sequence[Records], str | None, Seeds], Outcome]
    rehearse: Callable[[], object] | None = None


_LATE = ("torch._dynamo",)
"""Modules that torch imports at the first step of an optimiser: 800, and every question would import them
again."""

_LIBRARIES = (*map(sysconfig.get_path, ("purelib", "platlib", "stdlib")), str(Path(np.__file__).parents[1]))
"""Folders of libraries: those of this environment, and the one that holds NumPy, a user's or the system's."""

_MOST_IMPORTED = 2000
"""Modules at most that are imported after a rehearsal; diffusers and what it needs are some 250."""

_RAN: list[bool] = []
"""Not empty where this process has run a method."""


def note_run() -> None:
    """Note that this process runs a method now: what is forked from it afterwards may remember."""
    _RAN[:] = [True]


def can_be_apart() -> bool:
    """Whether a process that is forked now never ran a method."""
    return not _RAN and hasattr(os, "fork")


def forget_runs() -> None:
    """Take this process for a new one: each test stands for a process of its own."""
    _RAN.clear()


class Apart:
    """A process forked here and now, which has to be before the first run.

    Args:
        make: From the name of a cell to its work, called in the forked process when the cell is first asked about.
    """

    def __init__(self, make: Callable[[str], Work]) -> None:
        self._told: set[tuple[str, int]] = set()
        self._asked = ""
        self._sent: list[object] = []
        self._run: tuple[Tape, Tape] | None = None
        self._status: int | None = None
        self._here, self._process = server(lambda there: _serve(there, make))
        self.close = weakref.finalize(self, _end, self._here, self._process)
        """Ends that process, once; what holds a reference keeps it from ending by itself."""

    @property
    def ended(self) -> bool:
        """Whether that process was found to have ended: nothing can be asked any more."""
        return self._status is not None

    def ask(self, cell: str, known: Sequence[Records], question: Rerun) -> Replayed:
        """Run the method once, in a process of its own.

        Args:
            cell: Name of the cell.
            known: As `Work.known`, of this process.
            question: The run that is asked for.

        Raises:
            MemoryError: A process was killed, or found no memory.
            Exception: The error that the method raised.
        """
        try:
            for number, records in enumerate(known):
                if "features" in records.__dict__ and (cell, number) not in self._told:
                    self._told.add((cell, number))
                    self._here.send(("features", cell, (number, records.features)))
            self._tell_trainings(cell, question.answers)
            own = replace(question, answers=self._outputs(cell, question.answers))
            self._here.send(("ask", cell, _packed(own, [*known, *self._sent])))
            said = self._here.recv_bytes()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise self._gone() from None
        found = _Unpacker(said, _outs(question.answers)).load()
        if isinstance(found, BaseException):
            raise found
        assert isinstance(found, Replayed)
        return found

    def _tell_trainings(self, cell: str, answers: Tape | None) -> None:
        """Send the trainings of a tape once: their weights are most of it, and the same for every question."""
        if cell != self._asked:
            self._asked, self._sent, self._run = cell, [], None
            self._here.send(("forget", cell, None))
        for entry in () if answers is None else answers.trainings.values():
            if not any(entry is each for each in self._sent):
                self._send_once(cell, entry)

    def _outputs(self, cell: str, answers: Tape | None) -> Tape | None:
        """Outputs of a tape's mechanisms; those of the run, which most questions are about, are sent once."""
        if answers is not None and answers.root is not None and self._run is None:
            own = _outputs(answers)
            self._run = (answers, own)
            self._send_once(cell, own)
        return self._run[1] if self._run is not None and answers is self._run[0] else _outputs_or_none(answers)

    def _send_once(self, cell: str, thing: object) -> None:
        """Send what questions about a cell name afterwards."""
        self._here.send(("know", cell, _packed(thing, self._sent)))
        self._sent.append(thing)

    def _gone(self) -> Exception:
        """Return the cause of a silent process: killed or out of memory, or ended."""
        if self._status is None:
            _, self._status = os.waitpid(self._process, 0)
        if was_killed(self._status) or os.waitstatus_to_exitcode(self._status) == NO_MEMORY:
            return MemoryError("the process that runs methods again was killed, or found no memory")
        return RuntimeError("the process that runs methods again has ended")


def stir(seeds: Seeds) -> None:
    """Seed the global generators of Python, NumPy and torch: for methods that draw from these."""
    random.seed(seeds.integer("python"))
    np.random.seed(seeds.integer("numpy") % 2**32)  # noqa: NPY002
    seed_draws(seeds.integer("torch"), "cpu")


def replied(work: Work, question: Rerun) -> Replayed:
    """The reply to a question, made in this very process."""
    outcome: Outcome | None = None
    with taped(question.answers, brief=question.brief) as tape:
        outcome = work.run(question.clients, question.other, question.seeds)
    looked = None if question.look is None else question.look(tape)
    return Replayed(outcome, tape, looked, "" if outcome is None else content_digest(outcome.model))


def _end(connection: Connection, process: int) -> None:
    with contextlib.suppress(OSError):
        connection.send(None)
    connection.close()
    # It may have been seen to end before.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process, 0)


def _serve(asked: Connection, make: Callable[[str], Work]) -> NoReturn:
    """Fork a process for every question, until the asker ends."""
    prepare()
    works: dict[str, Work] = {}
    sent: list[object] = []
    new: set[str] = set()
    status = 0
    try:
        while True:
            try:
                asking = asked.recv()
            except (EOFError, OSError):
                break
            if asking is None:
                break
            kind, cell, given = asking
            if cell not in works:
                works[cell] = make(cell)
                new.add(cell)
            if kind == "features":
                number, features = given
                works[cell].known[number].__dict__["features"] = features
            elif kind == "forget":
                sent = []
            elif kind == "know":
                sent.append(_Unpacker(given, sent).load())
            else:
                work = works[cell]
                load = partial(_question, given, [*work.known, *sent])
                _prepare(work, load, first=cell in new)
                new.discard(cell)
                asked.send_bytes(reply(partial(_once, partial(_answered, work, load))))
    except BaseException as error:  # noqa: BLE001
        status = NO_MEMORY if is_of_the_machine(error) else 1
    finally:
        os._exit(status)


def _once(make: Callable[[], bytes]) -> tuple[bytes | None, int]:
    """Return the result of a function in a process forked for it, with folders of its own; see `in_child`."""
    folder = tempfile.mkdtemp(prefix="fedassay-apart-")
    try:
        return in_child(lambda: _inside(Path(folder), make))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _inside(folder: Path, make: Callable[[], bytes]) -> bytes:
    os.environ.update(dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder)))
    os.environ.update({"FEDASSAY_CACHE": str(folder / "cache"), "XDG_CACHE_HOME": str(folder / "caches")})
    tempfile.tempdir = None
    # The first run has already given its warnings.
    warnings.simplefilter("ignore")
    return make()


def _prepare(work: Work, load: Callable[[], Rerun], *, first: bool) -> None:
    """Import late modules, and before the first question of a cell calibrate and gather the memory."""
    # Before the first question and whatever the method: no question shows by it that others were asked.
    for name in _LATE:
        importlib.import_module(name)
    if first:
        _calibrate(work, load)
        # Everything that the questions of a cell find is there now, and a claim asks a hundred.
        gather()


def _calibrate(work: Work, load: Callable[[], Rerun]) -> None:
    """Calibrate what the method will; a rehearsal that fails says nothing, and each question does it by itself."""
    if work.rehearse is not None:
        found, _ = _once(partial(_rehearsed, work, load))
        if found:
            kept, modules = json.loads(found)
            calibrate(kept.encode())
            for name in modules[:_MOST_IMPORTED]:
                _import_library(name)


def _import_library(name: str) -> None:
    """Import a module that lies where libraries are installed, if it can be."""
    with contextlib.suppress(Exception):
        spec = importlib.util.find_spec(name.partition(".")[0])
        origin = None if spec is None else spec.origin
        if origin is not None and any(Path(origin).is_relative_to(folder) for folder in _LIBRARIES):
            importlib.import_module(name)


def _rehearsed(work: Work, load: Callable[[], Rerun]) -> bytes:
    """Calibrations and imported modules of the method up to its last message, with the known trainings."""
    before = set(sys.modules)
    with contextlib.suppress(Exception):
        answers = load().answers or Tape()
        with taped(replace(answers, draws={}), brief=True):
            assert work.rehearse is not None
            work.rehearse()
        modules = [name for name in sys.modules if name not in before]
        return json.dumps((calibrated().decode(), modules)).encode()
    return b""


def _answered(work: Work, load: Callable[[], Rerun]) -> bytes:
    try:
        question = load()
        if question.stirred:
            stir(question.seeds)
        found = replied(work, question)
        outcome = None if found.outcome is None else _plain(found.outcome)
        # The asker already has the outputs of the mechanisms, which are half of the reply.
        return _packed(found._replace(outcome=outcome, tape=_plain_tape(found.tape)), _outs(question.answers))
    except Exception as error:  # noqa: BLE001
        try:
            pickle.loads(said := pickle.dumps(error))  # noqa: S301
        except Exception:  # noqa: BLE001
            said = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
        return said


def _outputs_or_none(tape: Tape | None) -> Tape | None:
    return None if tape is None else _outputs(tape)


def _outs(tape: Tape | None) -> list[Floats]:
    """Output of each mechanism, in the order of the tape."""
    return [] if tape is None else [entry.out for entry in tape.draws.values()]


def _outputs(tape: Tape) -> Tape:
    """A tape without what went in."""
    own = {
        key: replace(entry, exact=np.zeros_like(entry.out)) if isinstance(entry, Draw) else _unsealed(entry)
        for key, entry in tape.draws.items()
    }
    return Tape(draws=dict(own), trainings=tape.trainings, messages=tape.messages)


def _unsealed(entry: ExternalMechanism) -> ExternalMechanism:
    return replace(entry, mechanism=None, values=None)


def _plain(outcome: Outcome) -> Outcome:
    """Outcome reduced to the parts that audits compare, its arrays in memory."""
    messages = tuple(map(_read, outcome.transcript.messages))
    return Outcome(
        replace(outcome.transcript, messages=messages),
        None,
        utility=dict(outcome.utility),
        communication=dict(outcome.communication),
        notes=outcome.notes,
        stays=outcome.stays,
    )


def _read(message: Message) -> Message:
    fields = {name: replace(item, sent=item.values) for name, item in message.fields.items()}
    return Message(message.round, message.sender, message.receiver, fields)


def _plain_tape(tape: Tape) -> Tape:
    """A tape that can be sent: without mechanisms of others, and without trainings."""
    draws = {
        key: _unsealed(entry) if isinstance(entry, ExternalMechanism) else entry
        for key, entry in tape.draws.items()
    }
    sent: list[object] = [_read(each) for each in tape.sent if isinstance(each, Message)]
    return Tape(draws=dict(draws), faults=tape.faults, lacks=tape.lacks, root=tape.root, sent=sent)


class _Packer(pickle.Pickler):
    """Names the objects that both processes know, and sends other records with their features."""

    def __init__(self, stream: io.BytesIO, known: Sequence[object]) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        # The packing process holds all of these, so that no other object has the address of one.
        self._names = {id(each): number for number, each in enumerate(known)}

    def persistent_id(self, obj: object) -> int | None:
        return self._names.get(id(obj))

    def reducer_override(self, obj: object) -> Any:
        if not isinstance(obj, Records):
            return NotImplemented
        features: Floats | Exception
        try:
            features = obj.features
        except Exception as error:  # noqa: BLE001
            features = RuntimeError(f"{type(error).__name__}: {error}")
        return _records, (obj.name, obj.images, obj.labels, features, obj.groups)


def _packed(thing: object, known: Sequence[object]) -> bytes:
    stream = io.BytesIO()
    _Packer(stream, known).dump(thing)
    return stream.getvalue()


class _Unpacker(pickle.Unpickler):
    """Reads what `_Packer` wrote."""

    def __init__(self, given: bytes, known: Sequence[object]) -> None:
        super().__init__(io.BytesIO(given))
        self._known = known

    def persistent_load(self, pid: Any) -> object:
        return self._known[pid]


def _question(given: bytes, known: Sequence[object]) -> Rerun:
    question = _Unpacker(given, known).load()
    assert isinstance(question, Rerun)
    return question


def _records(name: str, images: Any, labels: Any, features: Floats | Exception, groups: Any) -> Records:
    def extract(_images: Images) -> Floats:
        if isinstance(features, Exception):
            raise features
        return features

    return Records(name, images, labels, extract, groups)
