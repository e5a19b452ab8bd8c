"""Read files of a deployed system as a transcript, with one sentence on the reading.

    read = read_files(Path("round_3"), Corrections(aggregate=True))
    read.transcript.save(Path("captured"))

A folder of files is read as one capture. Every array is taken to be exact, since no file says otherwise. Its
kind is inferred from its algebra (`fedassay.exchange.inference`), unless a correction gives it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path, PurePath

from fedassay.exchange.inference.derived import derived_from
from fedassay.exchange.inference.populations import populations_of
from fedassay.exchange.kinds import FieldKind, facts_of, kinds
from fedassay.exchange.message import AGGREGATE, SERVER
from fedassay.exchange.release import NoClaim
from fedassay.exchange.transcript import MANIFEST, Transcript
from fedassay.recorders.files import models
from fedassay.recorders.files.by_class import IDS, by_class, with_ids
from fedassay.recorders.files.by_name import by_name, turned
from fedassay.recorders.files.classes import classes_of, named, texts_of
from fedassay.recorders.files.formats import ENDINGS, Leaf, read_file
from fedassay.recorders.files.grouping import Arrays, messages_of, without_settings
from fedassay.recorders.files.mixtures import mixtures_of
from fedassay.recorders.files.quantised import Scaled, scaled
from fedassay.recorders.files.records import KINDS, records_of
from fedassay.recorders.files.results import published, without_results
from fedassay.recorders.plain import Declared, Kept, is_whole
from fedassay.support import limits
from fedassay.support.errors import DataError, PlanError
from fedassay.support.reading import read_regular, regular_size
from fedassay.support.text import cut, shown

_METHOD = "captured files"
_NAMED = 6
_BESIDE_MODELS = re.compile(
    r"(adapter_|generation_|preprocessor_)?config\.json|tokenizer.*\.json|special_tokens_map\.json|vocab\.json|"
    r"trainer_state\.json|training_args\.bin|(optimizer|scheduler)\.(pt|bin)|rng_state.*\.pth|.*\.index\.json"
)
"""Files that Hugging Face writes beside the weights of a model."""
_IGNORED = (".md", ".txt", ".log", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".png", ".jpg", ".pdf", ".py")


@dataclass(frozen=True)
class Corrections:
    """The user's statements about files, which replace inferred ones.

    Attributes:
        kinds: Kinds of arrays, by name.
        clients: Number of clients. 1: all arrays are one message; the first side of every array: each row is a
            client's.
        aggregate: Whether the arrays are sums over clients, and the server saw nothing else.
        downlink: File of the model that the server sent before.
        classes: Number of classes.
        scale: Factor of numbers before they were rounded to whole ones.
        modulus: Modulus M of these whole numbers.
    """

    kinds: Mapping[str, FieldKind] = field(default_factory=dict)
    clients: int | None = None
    aggregate: bool = False
    downlink: Path | None = None
    classes: int | None = None
    scale: float | None = None
    modulus: int | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that count nothing."""
        for name, least in (("clients", 1), ("classes", 1), ("modulus", 2)):
            number = getattr(self, name)
            if number is not None and not (is_whole(number) and number >= least):
                raise PlanError(f"{name}: given {shown(number)}; allowed: {least} or more, a whole number")

    @property
    def given(self) -> bool:
        """Whether the user gave any correction."""
        return self != Corrections()

    @property
    def options(self) -> str:
        """The options of the command line that say the same."""
        words = [word for name, kind in self.kinds.items() for word in ("--kinds", f"{name}={kind}")]
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name != "kinds" and value not in {None, False}:
                words += [f"--{each.name}"] if value is True else [f"--{each.name}", str(value)]
        return shlex.join(words)


@dataclass(frozen=True)
class Read:
    """Transcript of files, with a sentence on its reading.

    Attributes:
        transcript: The messages.
        text: A sentence on the reading.
        sha256: Hash of the files' names and contents.
    """

    transcript: Transcript
    text: str
    sha256: str


def read_files(path: Path, said: Corrections, *, candidates: bool = False) -> Read:
    """Read a file, or every file of a folder, as the messages that they hold.

    Args:
        path: A file, or a folder without a transcript.json.
        said: The user's corrections.
        candidates: Whether candidates for membership are given as well.

    Raises:
        DataError: A file cannot be read, or its names do not show its sender.
        PlanError: A correction names an array, a client or a kind that does not exist.
    """
    files, left_out = _files(path)
    sent = messages_of(files, None if said.clients is None or _by_rows(files, said) else said.clients)
    left_out += without_settings(sent)
    texts = texts_of(sent)
    sent, keyed = by_class(sent)
    sent = _split(sent, path, said)
    sent, results = without_results(sent, said.clients)
    # Arrays with a kind of the user's keep their names.
    sent = {key: own if own.keys() & said.kinds.keys() else models.plain(own) for key, own in sent.items()}
    names = named(sent, texts)
    raw = None if said.kinds or said.aggregate or said.scale or said.modulus else records_of(sent)
    numbers = Scaled(*raw) if raw else scaled(sent, said.scale, said.modulus, said.kinds)
    sent = numbers.sent
    if not names and not raw:
        sent, names = with_ids(sent, {key: own.tolist() for key, own in texts.items()} | dict(keyed))
    if said.aggregate:
        sent = {
            (number, AGGREGATE if who != SERVER else who): arrays for (number, who), arrays in _one(sent, path)
        }
    if all(who == SERVER for _, who in sent):
        sent = published(sent)
    down = models.downlink(said.downlink, sent) if said.downlink is not None else {}
    _check_names(said.kinds, sent)
    sent = {key: _of_one_class(arrays, said.kinds) for key, arrays in sent.items()}
    declared = KINDS if raw else said.kinds
    classes = said.classes or len(names) or classes_of(sent, declared)
    sent, columns = (sent, "") if declared else turned(sent, classes)
    told = declared if not names else {IDS: IDS, **declared}
    kept = Kept(classes, {name: Declared(kind) for name, kind in told.items()})
    for (number, who), arrays in {**down, **sent}.items():
        sender = who if who in {SERVER, AGGREGATE} else f"client/{who}"
        # If the server's model is there, attacks read the change since that model.
        kinds = {name: models.kind_of(name, arrays) for name in arrays}
        kinds = {name: "parameters" if down and kind == "gradient" else kind for name, kind in kinds.items()}
        values = [(name, array, kinds[name]) for name, array in arrays.items()]
        kept.keep(values, sender, SERVER if sender != SERVER else "client", number)
    transcript = replace(kept.transcript(_METHOD, NoClaim()), class_names=names)
    untold = replace(transcript, messages=tuple(kept.messages))
    found = None if declared else mixtures_of(untold)
    found = found or derived_from(untold, names=True) or (None if declared else populations_of(untold))
    found = found or by_name(transcript)
    transcript = found.transcript
    if len(transcript.class_names) != transcript.classes:
        transcript = replace(transcript, class_names=())
    text = _understood(transcript, len(files), left_out, found.text)
    more = models.missing(transcript, said.downlink is not None, candidates)
    text = " ".join(part for part in (text, columns, results, numbers.text, more) if part)
    notes = (text, *(note for note in transcript.notes if note != found.text))
    return Read(replace(transcript, notes=notes), text, _digest(path, files, said.downlink))


def _of_one_class(arrays: Arrays, given: Mapping[str, FieldKind]) -> Arrays:
    """Add a side for one class to arrays of all records together, where their kind has a side for classes."""
    about = {name: facts_of(kind) for name, kind in given.items()}
    return {
        name: array[None]
        if name in about and about[name].first == "classes" and array.ndim < max(about[name].sides or 0, 1)
        else array
        for name, array in arrays.items()
    }


def _files(path: Path) -> tuple[dict[PurePath, list[Leaf]], list[str]]:
    """Read every file, by its path below the folder; return the names of files that are left out as well."""
    if not path.is_dir():
        return {PurePath(path.name): read_file(path)}, []
    found: dict[PurePath, Path] = {}
    left_out: list[str] = []
    total = 0
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        below = PurePath(folder).relative_to(path)
        if len(below.parts) > limits.FOLDERS_DEEP:
            raise DataError(f"{folder}: more than {limits.FOLDERS_DEEP} folders inside each other")
        for name in sorted(names):
            ending = Path(name).suffix.lower()
            if name.startswith(".") or ending in _IGNORED or _BESIDE_MODELS.fullmatch(name):
                left_out += [] if name.startswith(".") else [name]
                continue
            total += regular_size(Path(folder) / name, limits.MESSAGE_BYTES, follow=False)
            found[below / name] = Path(folder) / name
            if len(found) > limits.MESSAGES or total > limits.MESSAGE_BYTES:
                raise DataError(
                    f"{path}: holds more than is read; allowed: {limits.MESSAGES:,} files of "
                    f"{limits.MESSAGE_BYTES // limits.GIB} GiB together"
                )
    if not found:
        raise DataError(
            f"{path}: holds no {MANIFEST} and no file that is read; allowed: a transcript's folder "
            f"(docs/transcript.md), or files in {', '.join(ENDINGS)}"
        )
    return {below: read_file(file, follow=False) for below, file in found.items()}, left_out


def _by_rows(files: Mapping[PurePath, list[Leaf]], said: Corrections) -> bool:
    """Whether the given number of clients is the number of rows of every array of one file."""
    return (
        said.clients is not None
        and said.clients > 1
        and len(files) == 1
        and all(
            isinstance(leaf.values, str) or (leaf.values.ndim and len(leaf.values) == said.clients)
            for leaves in files.values()
            for leaf in leaves
        )
    )


def _split(sent: dict[tuple[int, str], Arrays], path: Path, said: Corrections) -> dict[tuple[int, str], Arrays]:
    """Split arrays into one message a client where the first side of every array is the number of clients."""
    senders = {who for _, who in sent if who not in {SERVER, AGGREGATE}}
    if said.clients is None or said.clients == len(senders):
        return sent
    if len(senders) <= 1 and all(
        array.ndim and len(array) == said.clients for arrays in sent.values() for array in arrays.values()
    ):
        return {
            (number, str(row)): {name: array[row] for name, array in arrays.items()}
            for (number, _), arrays in sent.items()
            for row in range(said.clients)
        }
    raise PlanError(
        f"--clients {said.clients}: given, but {path} holds messages of {len(senders)}; allowed: that number, 1 "
        "where all arrays are one message, or the first side of every array"
    )


def _one(sent: dict[tuple[int, str], Arrays], path: Path) -> list[tuple[tuple[int, str], Arrays]]:
    """Return the messages by round as sums over clients, one a round."""
    rounds = Counter(number for number, who in sent if who != SERVER)
    if rounds and max(rounds.values()) > 1:
        raise PlanError(
            f"--aggregate: given, but {path} holds messages of {max(rounds.values())} clients in one round; "
            "allowed: with one sum a round, or with --clients 1"
        )
    return list(sent.items())


def _check_names(given: Mapping[str, FieldKind], sent: Mapping[tuple[int, str], Arrays]) -> None:
    known = kinds()
    held = {name for arrays in sent.values() for name in arrays}
    for name, kind in given.items():
        if kind not in known:
            raise PlanError(f"--kinds {name}={shown(kind)}: no such kind; allowed: {', '.join(known)}")
        if name not in held:
            raise PlanError(f"--kinds {name}={kind}: no array is called so; allowed: {_listed(sorted(held))}")


def _understood(transcript: Transcript, files: int, left_out: list[str], told: str) -> str:
    """Return a sentence on clients, rounds and the kind of every array, and one on the evidence."""
    clients = {message.sender for message in transcript.from_clients()} - {AGGREGATE}
    rounds = {message.round for message in transcript.from_clients()}
    summed = any(message.sender == AGGREGATE for message in transcript.messages)
    who = (
        "the aggregate of all clients"
        if summed and not clients
        else f"{len(clients)} client{'s'[: len(clients) != 1]}"
    )
    held: dict[str, set[str]] = {}
    for message in transcript.from_clients():
        for name, item in message.fields.items():
            held.setdefault(name, set()).add(item.kind)
    names = [f"{name} ({' or '.join(sorted(own)).replace('_', ' ')})" for name, own in held.items()]
    down = (
        " after a model that the server sent"
        if len(list(transcript.from_clients())) < len(transcript.messages)
        else ""
    )
    text = (
        f"Read {files} file{'s'[: files != 1]} as {who} in {len(rounds)} round{'s'[: len(rounds) != 1]}{down}: "
        f"{_listed(names)}; {transcript.classes} class{'es'[: 2 * (transcript.classes != 1)]}."
    )
    text = f"{text} Left out: {_listed(left_out)}." if left_out else text
    return f"{text} Here {told}." if told else text


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(cut(name, 100) for name in names[:_NAMED]) + more


def _digest(path: Path, files: Mapping[PurePath, list[Leaf]], downlink: Path | None) -> str:
    """Return the SHA-256 of the names and contents of the files, by which a record identifies them."""
    whole = hashlib.sha256()
    places = {str(below): path / below if path.is_dir() else path for below in files}
    for name, place in {**places, **({} if downlink is None else {"downlink": downlink})}.items():
        content = read_regular(place, limits.MESSAGE_BYTES)
        whole.update(f"{name}:{hashlib.sha256(content).hexdigest()};".encode())
    return whole.hexdigest()
