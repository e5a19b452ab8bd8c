"""The third question: does everything else follow from the releases alone?

The method runs again with the outputs that its mechanisms gave out. On the same records everything must be the
same to the bit, else nothing can be said. Then on other ones: every record of every client is another one, labels
and numbers too where they are not public, and hidden coins fall otherwise; and on records at the boundary of what
a client can hold (`fedassay.audits.claim.tape.rare`). What still differs depends on records in a way that no
mechanism covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fedassay.audits.claim.tape.answers import Answer, Attempt, Fault, answered, listed
from fedassay.audits.claim.tape.compared import (
    beside,
    differences,
    faults_of,
    of_clients,
    unlike_messages,
    unlike_outcomes,
)
from fedassay.audits.claim.tape.others import other_records
from fedassay.audits.claim.tape.rare import World, alone, boundary_worlds
from fedassay.audits.claim.tape.replays import Replays
from fedassay.contracts.audit import Replayed
from fedassay.exchange.transcript import Transcript
from fedassay.privacy.tape import Tape
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import NotRunError

OTHERS = 7
"""Replays on other records: a bit that falls either way is the same in all of them less than once in 100."""
_SMALLEST = 1 - 0.05 ** (1 / OTHERS)

_WHOLE = 1
"""Replays on other records that go to the end of the method where most end with the last message."""


class Followed(NamedTuple):
    """The answer, and further evidence of the replays.

    Attributes:
        answer: To the third question.
        repeated: Senders, in words, with noise that comes back where it must not; empty: none.
        skipped: Fields that no replay may compare, since other evidence covers them.
    """

    answer: Answer
    repeated: str = ""
    skipped: frozenset[str] = frozenset()


def follows(replays: Replays, adjacency: Adjacency, skipped: frozenset[str]) -> Followed:
    """Test whether every output of a run follows from the outputs of its mechanisms.

    Args:
        replays: Of the run.
        adjacency: The relation, which decides what is public.
        skipped: Fields with other evidence: noise that was not drawn from `task.mechanism`.

    Raises:
        NotRunError: There is no method that could be run again.
    """
    context = replays.context
    first = context.outcome.transcript
    remembered: list[Fault] = []
    try:
        if unlike := _unlike_alone(replays, skipped):
            return Followed(unlike)
    except NotRunError as error:
        remembered = [Fault("", f"what the method remembers could not be looked for: {error}", "crashed")]
    same, replayed = replays.same.whole, replays.same.tape
    found = differences(first, same.transcript, skipped)
    if found and context.io.device != "cpu":
        # A run on another device is compared with itself on the CPU.
        again = replays(context.data.clients, whole=True)
        replayed, found = again.tape, differences(same.transcript, again.whole.transcript, skipped)
    past = _past_the_mechanism(replays, same.transcript, found, skipped)
    if past:
        skipped, found = skipped | {fault.field for fault in found}, []
    else:
        found = found + beside(context.outcome, same)
    faults = found + faults_of(replayed)
    if faults:
        words = f"on the same records with the same outputs it is not the same: {listed(f.words for f in faults)}"
        return Followed(Answer("rest", "crashed", words, faults[0].field))
    search = _Search(replays, adjacency, skipped)
    try:
        faults = search.others() or search.boundary()
    except _FailsOnOthersError as failure:
        return Followed(Answer("rest", "failed", f"on other records it fails ({failure})"))
    answer = answered("rest", [*past, *faults, *remembered], search.words())
    return Followed(answer, search.repeated, skipped)


class _FailsOnOthersError(Exception):
    """The method fails on usual records that are not the clients'."""


@dataclass
class _Search:
    """Replays on records that are not the clients', and what they show."""

    replays: Replays
    adjacency: Adjacency
    skipped: frozenset[str]
    repeated: str = ""
    odd: int = 0
    rare: int = 0
    refused: list[str] = field(default_factory=list)

    def others(self) -> list[Fault]:
        """Differences when every record of every client is replaced.

        Raises:
            _FailsOnOthersError: The method fails on usual records, too.
        """
        for number in range(OTHERS):
            replay = self._replayed(number)
            self.repeated = self.repeated or _repeated(
                self.replays.context.tape, self.replays.same.tape, replay.tape
            )
            if faults := self._unlike(replay):
                return faults
        return []

    def boundary(self) -> list[Fault]:
        """Differences when a client holds a record at the boundary of its domain, or hardly any record."""
        context = self.replays.context
        few = self.replays.trained
        for world in boundary_worlds(context, self.adjacency, few=few):
            attempt = Attempt()
            with attempt:
                if faults := self._in_world(world, whole=not few):
                    return faults
            if attempt.failure and len(world.kinds) == 1:
                self.refused += world.kinds.values()
            elif attempt.failure and not few:
                # Of several clients one may refuse, and what the others do would not be seen.
                for client in alone(world, context.data.clients):
                    attempt = Attempt()
                    with attempt:
                        if faults := self._in_world(client, whole=True):
                            return faults
                    if attempt.failure:
                        self.refused += client.kinds.values()
        return []

    def words(self) -> str:
        """Words on the trials, and on their limits."""
        context = self.replays.context
        records = sum(len(client) for client in context.data.clients)
        kept = " (but their labels, which are public)" if self.adjacency == "replace_one_same_label" else ""
        messages = len(context.outcome.transcript.messages)
        tried = (
            f"with the mechanisms' outputs kept, {messages:,} messages are the same to the bit when all "
            f"{records:,} records{kept} and all hidden coins are others, in {OTHERS} replays, each in a process "
            "that never ran the method; what shows in "
            f"{100 * _SMALLEST:.0f} % of such replays would be missed once in 20"
        )
        if self.odd:
            tried += f"; on {self.odd} more, with clients of no or few records, the method fails"
        if self.rare:
            tried += (
                f"; nor are they others in {self.rare} replays on rare records (blank, saturated, outsized, "
                "repeated, not finite, alone in their class), and what other rare records switch on was not seen"
            )
        if stays := context.outcome.stays:
            tried += f"; no claim covers what stays at clients ({', '.join(sorted(stays))})"
        if self.refused:
            tried += f"; the method refuses {', '.join(dict.fromkeys(self.refused))}"
        return tried

    def _in_world(self, world: World, *, whole: bool) -> list[Fault]:
        found = self._unlike(self.replays(world.clients, whole=whole))
        self.rare += 1
        return [replace(fault, words=f"with {world.words}: {fault.words}") for fault in found]

    def _replayed(self, number: int) -> Replayed:
        """A replay on other records; where the method fails on odd ones, on usual ones.

        A method that cannot run where a client holds nothing gives nothing away by that; one that fails on records
        like its own does.

        Raises:
            _FailsOnOthersError: It fails on usual records, too.
        """
        context, coins = self.replays.context, f"other coins{number or ''}"
        attempt, whole = Attempt(), not self.replays.trained or number < _WHOLE
        with attempt:
            return self.replays(other_records(context, self.adjacency, number), other=coins, whole=whole)
        if number:
            attempt = Attempt()
            with attempt:
                usual = other_records(context, self.adjacency, number, odd=False)
                found = self.replays(usual, other=coins, whole=whole)
                self.odd += 1
                return found
        raise _FailsOnOthersError(attempt.failure)

    def _unlike(self, replay: Replayed) -> list[Fault]:
        found = unlike_outcomes(self.replays.same, replay, self.skipped)
        return found + faults_of(replay.tape)


def _unlike_alone(replays: Replays, skipped: frozenset[str]) -> Answer | None:
    """Answer that refuses the first run if a process that never ran the method sends something else; or None."""
    context = replays.context
    own, again = context.outcome, context.repeat(brief=replays.trained and replays.brief)
    if context.tape.lacks or context.io.device != "cpu":
        # A resumed run cannot be repeated, nor can one with sums from another device.
        return None
    if again.outcome is None:
        found = unlike_messages(of_clients(own.transcript.messages), of_clients(again.messages), skipped)
    else:
        found = [*differences(own.transcript, again.outcome.transcript, skipped), *beside(own, again.outcome)]
    # Outputs of trainings were kept: whether their fields follow from them is tested next.
    trained = {
        name
        for message in own.transcript.from_clients()
        for name, item in message.fields.items()
        if item.release.mechanism == "dp_sgd"
    }
    found = [fault for fault in found if fault.field not in trained]
    if not found:
        return None
    words = listed(fault.words for fault in found)
    return Answer(
        "rest",
        "crashed",
        f"in a process that never ran the method the same run sends something else: {words}",
        found[0].field,
    )


def _past_the_mechanism(
    replays: Replays, same: Transcript, found: Sequence[Fault], skipped: frozenset[str]
) -> list[Fault]:
    """Fields that a replay on the same records changes, but not from one such replay to the next.

    A replay has another root of noise, and takes no step of a private training. So a noised statistic that changes
    has unknown noise beside the noise mechanism; trained weights that change do not follow from the outputs of the
    training. Everything that follows from such fields is left out.
    """
    if not found or not all(fault.field for fault in found):
        return []
    again = replays(replays.context.data.clients, whole=True).whole
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


def _repeated(first: Tape, same: Tape, other: Tape) -> str:
    """Whether the root of noise forgets records, or parameters, which a replay changes by itself."""
    if first.root is None or same.root is None or other.root is None:
        return ""
    if same.root == other.root:
        return "on other records the same noise is drawn: messages on neighbouring records subtract"
    if first.root == same.root:
        return "with other parameters the same noise is drawn: messages of two such runs subtract"
    return ""
