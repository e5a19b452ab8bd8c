"""What an audit is given, and what it gives back.

An audit gets an `AuditContext`, with which it runs its controls without any room importing another: the same
method on other records. An audit of an attack gets the attack's result and an `AttackedContext`, with which it
also runs the same attack on another view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, TypeVar, cast

from fedassay.contracts.attack import AttackResult
from fedassay.contracts.component import Configured
from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.method import Outcome
from fedassay.data.records import Records
from fedassay.exchange.ledger import Accounted
from fedassay.exchange.message import Message
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.view import View
from fedassay.privacy.tape import Tape
from fedassay.records.pictures import write_grid
from fedassay.records.record import Finding, Picture, PictureColumn
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images

if TYPE_CHECKING:
    from fedassay.contracts.membership import MembershipGame
    from fedassay.similarity.metrics import Similarity

T = TypeVar("T")

Look = Callable[[Tape], object]
"""What is asked of the tape of a replay where it was made; module-level, so that it can be sent there."""


class Replayed(NamedTuple):
    """What a run gave that an audit asked for.

    Attributes:
        outcome: None where the run ended with its last message.
        tape: Its draws.
        looked: What was looked up of its tape where it was made.
        model: Digest of the model that came back; see `fedassay.contracts.content`.
    """

    outcome: Outcome | None
    tape: Tape
    looked: object = None
    model: str = ""

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was sent."""
        if self.outcome is not None:
            return self.outcome.transcript.messages
        return tuple(message for message in self.tape.sent if isinstance(message, Message))

    @property
    def whole(self) -> Outcome:
        """The outcome of a run that went to its end."""
        assert self.outcome is not None
        return self.outcome


class Replay(Protocol):
    """The method again, with the cell's own seeds and the outputs that its mechanisms gave out before."""

    def __call__(
        self,
        clients: Sequence[Records],
        answers: Tape,
        other: str = "",
        *,
        look: Look | None = None,
        brief: bool = False,
    ) -> Replayed:
        """Run it.

        Args:
            clients: Records of every client, in their order.
            answers: The tape whose outputs are given out.
            other: See `MethodInput.replayed`.
            look: What is asked of the tape where it was made.
            brief: Whether the run may end with its last message.

        Raises:
            NotRunError: There is no method that could be run again.
        """
        ...


@dataclass(frozen=True)
class AuditIO:
    """Where an audit computes, and where it leaves what it makes.

    Attributes:
        device: `cpu` or `cuda`.
        progress: Where long steps report.
        folder: Run folder; pictures and arrays go under artifacts/ there.
        prefix: What names the pictures of this audit: the key of the cell, the labels of the audit and the attack.
        cache: Results that cells of one run share (control results), by content key.
    """

    device: str
    progress: Progress
    folder: Path
    prefix: tuple[str, ...]
    cache: dict[str, object]

    def once(self, key: str, make: Callable[[], T]) -> T:
        """What `make` gives, made once for all cells of a run.

        Args:
            key: All that it hangs on, how few trials are enough included: which cell or audit asks first must
                decide nothing.
            make: Makes it. What it raises is raised again for whoever asks next.
        """
        if key not in self.cache:
            self.cache[key] = make()
        return cast(T, self.cache[key])

    def grid(
        self, name: Sequence[str], title: str, rows: Mapping[str, Images], columns: Sequence[PictureColumn]
    ) -> Picture:
        """Write a grid of pictures; see `write_grid`. `name` tells it from others of the same audit and attack."""
        return write_grid(self.folder, (*self.prefix, *name), title, rows, columns)


@dataclass(frozen=True, kw_only=True)
class AuditContext:
    """What an audit may do and know, for simulated and for captured work alike.

    What does not exist is empty, not None: of captured messages nobody has the clients' records, and a rerun says
    why it is not possible.

    Attributes:
        clients: The clients' true records; none where nobody has them.
        test: Records that accuracy is measured on.
        fresh: Records of the private distribution that no client holds; at least one.
        control: Records in no other role, which controls are made of; empty where the plan gives them none.
        attacker: The adversary's own records; empty where the plan gives it none.
        classes: Number of classes C.
        encode: Features of images, shape (n, d), under the plan's backbone; raises `NotRunError` without one.
        method_key: Name and parameters of the method, without privacy, to share under what cells have in common.
        outcome: What the method gave back.
        view: What the adversary saw, and under which threat model.
        accounted: What the ledger says about the cell.
        tape: What the noise mechanisms of the method took in and gave out; empty where nothing was taped.
        privacy: What the plan asks for.
        num_tests: Number of lower bounds in the whole run, m, for the correction of confidence levels.
        similarity: The image metrics of this plan.
        seeds: Random streams of the cell.
        run_on: Runs the method on records of every client, in their order, with other seeds; raises `NotRunError`
            where that is not possible.
        run_nonprivate: Runs the method without privacy, in the form in which it gives records away most
            (`HasLeakiestForm`), on records of any clients: the release that an end-to-end positive control is made
            of. Raises `NotRunError` where that is not possible.
        replay: `run_on` with the cell's own seeds and the outputs that noise mechanisms gave out on a tape.
        repeat: The first run once more, in a process that never ran the method, with the tape's trainings and
            outputs of others' mechanisms; the last argument says whether it may end with its last message. Raises
            `NotRunError` where replays run in a process that may remember.
        reseeded: The first run with other seeds and the tape's trainings, up to its last message, on its own
            records and in a process that never ran the method. Raises `NotRunError` where there is none to run.
        io: Device, progress and files.
    """

    clients: tuple[Records, ...]
    test: Records
    fresh: Records
    control: Records
    attacker: Records
    classes: int
    encode: Callable[[Images], Floats]
    method_key: str
    outcome: Outcome
    view: View
    accounted: Accounted
    tape: Tape
    privacy: PrivacyTarget
    num_tests: int
    similarity: Similarity
    seeds: Seeds
    run_on: Callable[[Sequence[Records], Seeds], Outcome]
    run_nonprivate: Callable[[Sequence[Records], Seeds], Outcome]
    replay: Replay
    reseeded: Callable[[Seeds, Tape], Replayed]
    repeat: Callable[[Tape, bool], Replayed]
    io: AuditIO

    @property
    def release_key(self) -> str:
        """What cells have in common that differ in epsilon alone: method, adjacency and threat model."""
        return f"{self.method_key}/{self.privacy.adjacency}/{self.view.threat.model_dump_json()}"

    def records(self, sender: str) -> Records | None:
        """The true records of a sender; None for the aggregate, and where nobody has them."""
        return next((client for client in self.clients if client.name == sender), None)

    def attacked(self, attack: RunAttack, key: str, game: MembershipGame) -> AttackedContext:
        """The same context for an audit of an attack; for the arguments see `AttackedContext`."""
        same = {item.name: getattr(self, item.name) for item in fields(self)}
        return AttackedContext(**same, attack=attack, attack_key=key, game=game)


class RunAttack(Protocol):
    """The audited attack, on another view."""

    def __call__(
        self, view: View, game: MembershipGame | None = None, *, rerun_previous_attacks: bool = False
    ) -> AttackResult:
        """Attack a view.

        Args:
            view: What is seen.
            game: Ask these membership questions instead of the context's; None: the context's.
            rerun_previous_attacks: Run the attacks before this one on the view, too, and hand it the vectors that
                they recover.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class AttackedContext(AuditContext):
    """What an audit of an attack may do and know.

    Attributes:
        attack: Runs the audited attack on another view.
        attack_key: Label and parameters of that attack, to share its control results under.
        game: The membership questions that the attack was asked; without questions where there is nobody to ask
            about.
    """

    attack: RunAttack
    attack_key: str
    game: MembershipGame


class AttackAudit(Configured, Protocol):
    """An audit of attacks, which declares what kinds of results it judges; its fields are its plan parameters."""

    facts: ClassVar[AuditFacts]

    def assess(self, result: AttackResult, context: AttackedContext) -> list[Finding]:
        """Join the truth, run the controls, and give one finding per source and selection.

        Raises:
            NotRunError: What the audit needs is not there; the message says what.
        """
        ...


class RunAudit(Configured, Protocol):
    """An audit of a run, which judges no attack's result; its fields are its plan parameters."""

    facts: ClassVar[AuditFacts]

    def assess(self, result: None, context: AuditContext) -> list[Finding]:
        """Run the controls, and give one finding per source and selection.

        Raises:
            NotRunError: What the audit needs is not there; the message says what.
        """
        ...


Audit = AttackAudit | RunAudit
