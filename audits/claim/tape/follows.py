"""The third question: does everything else follow from the releases alone?

The method runs again with the outputs that its mechanisms gave out. On the same records the transcript must be the
same to the bit, else nothing can be said. Then on other ones: every record of every client is another one, labels
and numbers too where they are not public, and hidden coins fall otherwise. What still differs in the transcript
depends on records in a way that no mechanism covers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.claim.tape.answers import Answer, Attempt, Fault, answered, listed
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import Outcome
from fedassay.data.records import Records
from fedassay.exchange.transcript import Message, Transcript
from fedassay.privacy.tape import Tape
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import NotRunError
from fedassay.support.seeds import Seeds

_MORE = 5
"""Records that a client has more, where the number is private."""
OTHERS = 7
"""Replays on other records: a bit that falls either way is the same in all of them less than once in 100."""
_SMALLEST = 1 - 0.05 ** (1 / OTHERS)


class Followed(NamedTuple):
    """The answer, and what the replays show of the noise besides.

    Attributes:
        answer: To the third question.
        repeated: In words, whose noise comes back where it must not; empty: nobody's.
    """

    answer: Answer
    repeated: str = ""


def follows(context: AuditContext, adjacency: Adjacency, skipped: frozenset[str]) -> Followed:
    """Is the transcript a function of what the mechanisms gave out?

    Args:
        context: Of the run, with its tape.
        adjacency: Says what is public.
        skipped: Fields of which something else is known: noise that was not drawn from `task.mechanism`.

    Raises:
        NotRunError: There is no method that could be run again.
    """
    first = context.outcome.transcript
    remembered: list[Fault] = []
    try:
        if unlike := _unlike_alone(context, skipped):
            return Followed(unlike)
    except NotRunError as error:
        remembered = [Fault("", f"what the method remembers could not be looked for: {error}", "crashed")]
    same, replayed = context.replay(context.clients, context.tape, "")
    compared = first
    found = differences(first, same.transcript, skipped)
    if found and context.io.device != "cpu":
        # What was computed on another device is compared with itself on the CPU.
        compared = same.transcript
        again, replayed = context.replay(context.clients, context.tape, "")
        found = differences(compared, again.transcript, skipped)
    past = _past_the_mechanism(context, same.transcript, found, skipped)
    if past:
        skipped, found = skipped | {fault.field for fault in found}, []
    if not past:
        found = found + _beside(context.outcome, same)
    faults = found + _faults_of(replayed)
    if faults:
        words = f"on the same records with the same outputs it is not the same: {listed(f.words for f in faults)}"
        return Followed(Answer("rest", "crashed", words, faults[0].field))
    faults, repeated, odd = [], "", 0
    for number in range(OTHERS):
        try:
            other, replay, fell = _replayed(context, adjacency, number)
        except _FailsOnOthersError as failure:
            return Followed(Answer("rest", "failed", f"on other records it fails ({failure})"))
        odd += fell
        faults += differences(compared, other.transcript, skipped) + _beside(same, other) + _faults_of(replay)
        repeated = repeated or _repeated(context.tape, replayed, replay)
        if faults:
            break
    kept = " (but their labels, which are public)" if adjacency == "replace_one_same_label" else ""
    records = sum(len(client) for client in context.clients)
    tried = (
        f"with the mechanisms' outputs kept, {len(first.messages):,} messages are the same to the bit when all "
        f"{records:,} records{kept} and all hidden coins are others, in {OTHERS} replays, each in a process that "
        f"never ran the method; what shows in {100 * _SMALLEST:.0f} % of such replays would be missed once in 20"
    )
    if odd:
        tried += f"; on {odd} more, with clients of no or few records, the method fails"
    return Followed(answered("rest", [*past, *faults, *remembered], tried), repeated)


class _FailsOnOthersError(Exception):
    """The method fails on usual records that are not the clients'."""


def _replayed(context: AuditContext, adjacency: Adjacency, number: int) -> tuple[Outcome, Tape, bool]:
    """A replay on other records, and whether the method failed on odd ones, so that these are usual ones.

    A method that cannot run where a client holds nothing gives nothing away by that; one that fails on records
    like its own does.

    Raises:
        _FailsOnOthersError: It fails on usual records, too.
    """
    coins = f"other coins{number or ''}"
    attempt = Attempt()
    with attempt:
        outcome, tape = context.replay(other_records(context, adjacency, number), context.tape, coins)
        return outcome, tape, False
    if number:
        attempt = Attempt()
        with attempt:
            usual = other_records(context, adjacency, number, odd=False)
            outcome, tape = context.replay(usual, context.tape, coins)
            return outcome, tape, True
    raise _FailsOnOthersError(attempt.failure)


def _unlike_alone(context: AuditContext, skipped: frozenset[str]) -> Answer | None:
    """Why the first run cannot be believed: a process that never ran the method sends something else."""
    own, again = context.outcome, context.repeat(context.tape)
    if context.tape.lacks or context.io.device != "cpu":
        # A resumed run is no run that could be made again, nor is one whose sums were added on another device.
        return None
    found = [*differences(own.transcript, again.transcript, skipped), *_beside(own, again)]
    if not found:
        return None
    words = listed(fault.words for fault in found)
    return Answer(
        "rest",
        "crashed",
        f"in a process that never ran the method the same run sends something else: {words}",
        found[0].field,
    )


def _beside(first: Outcome, second: Outcome) -> list[Fault]:
    """What is not the same beside the transcript, in what a run reports."""
    found = []
    if dict(first.communication) != dict(second.communication):
        names = sorted(
            name
            for name in first.communication.keys() | second.communication.keys()
            if first.communication.get(name) != second.communication.get(name)
        )
        found.append(Fault("", f"the reported communication changes with the records: {', '.join(names)}"))
    if first.notes != second.notes:
        found.append(Fault("", "the reported notes change with the records"))
    return found


def _past_the_mechanism(
    context: AuditContext, same: Transcript, found: Sequence[Fault], skipped: frozenset[str]
) -> list[Fault]:
    """Fields that a replay on the same records changes, but not from one such replay to the next.

    A replay has another root of noise, and takes no step of a private training. So a noised statistic that changes
    has noise beside the noise mechanism, of which nothing is known; trained weights that change do not follow from
    what the training gave out. Whatever follows from such fields is left out.
    """
    if not found or not all(fault.field for fault in found):
        return []
    again, _ = context.replay(context.clients, context.tape, "")
    if differences(same, again.transcript, skipped):
        return []
    mechanisms = {
        name: item.release.mechanism for message in same.from_clients() for name, item in message.fields.items()
    }
    faults = []
    for name in dict.fromkeys(fault.field for fault in found):
        if mechanisms.get(name) in ("gaussian", "pure"):
            words = f"noise of {name} was not drawn from task.mechanism: another root changes it"
            faults.append(Fault(name, words, "not_asked"))
        elif mechanisms.get(name) == "dp_sgd":
            faults.append(Fault(name, f"{name} does not follow from what its private training gave out"))
    return faults


def _faults_of(tape: Tape) -> list[Fault]:
    return [Fault(fault.field, fault.words) for fault in tape.faults]


def _repeated(first: Tape, same: Tape, other: Tape) -> str:
    """Whether the root of noise forgets records, or parameters, which a replay changes by itself."""
    if first.root is None or same.root is None or other.root is None:
        return ""
    if same.root == other.root:
        return "on other records the same noise is drawn: messages on neighbouring records subtract"
    if first.root == same.root:
        return "with other parameters the same noise is drawn: messages of two such runs subtract"
    return ""


def differences(first: Transcript, second: Transcript, skipped: frozenset[str]) -> list[Fault]:
    """What is not the same in two transcripts, field by field."""
    found = []
    if len(first.messages) != len(second.messages):
        found.append(Fault("", f"{len(second.messages)} messages are sent where {len(first.messages)} were"))
    if (first.claim, first.notes, first.classes) != (second.claim, second.notes, second.classes):
        found.append(Fault("", "the claim or the notes of the transcript change with the records"))
    for own, other in _paired(first, second):
        found += _in_message(own, other, skipped)
    return found


def _paired(first: Transcript, second: Transcript) -> Iterator[tuple[Message, Message]]:
    """Messages in their order; where some are sent in one run alone, those that both send the same way."""
    if len(first.messages) == len(second.messages):
        yield from zip(first.messages, second.messages, strict=True)
        return
    waiting = list(second.messages)
    for own in first.messages:
        way = (own.round, own.sender, own.receiver)
        other = next((each for each in waiting if (each.round, each.sender, each.receiver) == way), None)
        if other is not None:
            waiting.remove(other)
            yield own, other


def _in_message(own: Message, other: Message, skipped: frozenset[str]) -> list[Fault]:
    way = (own.round, own.sender, own.receiver)
    where = f"of {own.sender} in round {own.round}"
    if way != (other.round, other.sender, other.receiver):
        return [
            Fault("", f"the message {where} is sent to {other.receiver} by {other.sender} in round {other.round}")
        ]
    if list(own.fields) != list(other.fields):
        changed = sorted(own.fields.keys() ^ other.fields.keys()) or list(own.fields)
        return [Fault(changed[0], f"the fields {where} change with the records: {', '.join(changed)}")]
    found = []
    for name in own.fields:
        if name in skipped:
            continue
        one, two = own.fields[name], other.fields[name]
        words = f"{name} {where}"
        if (one.shape, one.dtype) != (two.shape, two.dtype):
            found.append(Fault(name, f"{words} becomes {two.dtype} {two.shape} from {one.dtype} {one.shape}"))
        elif (one.kind, one.release, one.additive, one.secure) != (
            two.kind,
            two.release,
            two.additive,
            two.secure,
        ):
            found.append(Fault(name, f"what is declared of {words} changes with the records"))
        elif (size := _unlike(one.values, two.values)) > 0:
            found.append(
                Fault(
                    name, f"{words} depends on records beside its noise ({size:,} of {one.size:,} numbers change)"
                )
            )
    return found


def _unlike(first: NDArray[np.generic], second: NDArray[np.generic]) -> int:
    """How many numbers are not the same to the bit."""
    if not first.size:
        return 0
    one = np.ascontiguousarray(first).reshape(-1).view(np.uint8).reshape(first.size, -1)
    two = np.ascontiguousarray(second).reshape(-1).view(np.uint8).reshape(first.size, -1)
    return int(np.count_nonzero((one != two).any(axis=1)))


def other_records(
    context: AuditContext, adjacency: Adjacency, replay: int = 0, *, odd: bool = True
) -> tuple[Records, ...]:
    """Every client with other records: inverted images and moved features of somebody else's records.

    Labels are kept where they are public, and the number of records is where that is public. From the second
    replay on, every client has another size and another kind of labels in each: none, 1, half, one more, twice as
    many; some classes empty, one class alone, skewed, swapped. Somebody always holds records. Without `odd` ones
    sizes and labels are as in the first replay.
    """
    rng = context.seeds.numpy("tape", "other records", *((replay,) if replay else ()))
    kind = replay if odd else 0
    return tuple(
        _another(client, number, context, adjacency, rng, kind) for number, client in enumerate(context.clients)
    )


def _size(own: int, number: int, replay: int) -> int:
    """How many records a client has in a replay where the number is private."""
    if replay == 0:
        return own + _MORE
    sizes = (own + 1, own // 2, 2 * own, 1, own + 1, 0)
    kind = (number + replay) % len(sizes)
    # The first client never has none: of nobody's records nothing is made.
    return max(1, sizes[kind]) if number == 0 else sizes[kind]


def _labels(client: Records, size: int, kind: int, classes: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Labels of one of several kinds."""
    if kind == 1:
        return np.full(size, rng.integers(classes), np.int64)
    if kind == 2:
        return rng.integers(0, max(1, classes // 2), size).astype(np.int64)
    if kind == 3:
        return np.minimum(rng.geometric(0.6, size) - 1, classes - 1).astype(np.int64)
    if kind == 4 and len(client):
        return ((np.resize(client.labels, size) + 1) % classes).astype(np.int64)
    return rng.integers(0, classes, size).astype(np.int64)


def _another(
    client: Records,
    number: int,
    context: AuditContext,
    adjacency: Adjacency,
    rng: np.random.Generator,
    replay: int,
) -> Records:
    size = _size(len(client), number, replay) if adjacency == "add_remove" else len(client)
    source = _source(client, context.clients, context.test)
    chosen = rng.integers(0, len(source), size)
    labels = client.labels
    if adjacency != "replace_one_same_label":
        kind = (number + replay) % 5 if replay else 0
        labels = _labels(client, size, kind, context.classes, rng)
    noise_of = _moved(source, chosen, int(rng.integers(1 << 62)))
    groups = client.groups
    if groups is not None:
        # Who comes to it is nobody that a client has.
        base = -1 - (_MORE + 2 * sum(map(len, context.clients))) * number
        groups = np.concatenate([groups[:size], base - np.arange(max(0, size - len(client)))])
    return Records(client.name, 255 - source.images[chosen], labels, noise_of, groups)


def _source(client: Records, clients: Sequence[Records], test: Records) -> Records:
    """Somebody else's records, in images of the same shape."""
    others = [each for each in clients if each.name != client.name and len(each)]
    like = [each for each in (*others, test) if each.images.shape[1:] == client.images.shape[1:]]
    return max(like, key=len) if like else client


def _moved(source: Records, chosen: NDArray[np.int64], seed: int) -> Callable[[object], NDArray[np.float32]]:
    """Features of records, moved at random: computed only where a method asks for features."""

    def features(_images: object) -> NDArray[np.float32]:
        own = source.features[chosen]
        if not len(own):
            return own
        noise = Seeds(0).numpy("tape", "features", seed).standard_normal(own.shape)
        spread = float(np.sqrt(np.mean(own.astype(np.float64) ** 2))) or 1.0
        return np.asarray(own + spread * noise, dtype=own.dtype)

    return features
