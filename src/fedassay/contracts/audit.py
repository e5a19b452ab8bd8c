"""Inputs and results of an audit.

An audit gets an `AuditContext`. It provides reruns of the same method on other records, so that the audit can run
its controls without one room importing another. An audit of an attack gets the attack's result and an
`AttackedContext`, which also provides runs of the same attack on another view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
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
from fedassay.privacy.tape import ExternalMechanism, Key, Tape, TapeEntry
from fedassay.records.pictures import write_grid
from fedassay.records.record import Finding, Picture, PictureColumn
from fedassay.support.errors import NotRunError
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images

if TYPE_CHECKING:
    from fedassay.backbones.base import Backbone
    from fedassay.contracts.membership import MembershipGame
    from fedassay.similarity.metrics import Similarity

T = TypeVar("T")

Look = Callable[[Tape], object]
"""A query on the tape of a replay, run where the tape is recorded; module-level, so that it can be sent there."""


class Replayed(NamedTuple):
    """The results of a rerun for an audit.

    Attributes:
        outcome: None where the run ended with its last message.
        tape: The draws of the run.
        looked: The answer to the query on its tape (`Look`), made where the tape was recorded.
        model: Digest of the returned model; see `fedassay.contracts.content`.
    """

    outcome: Outcome | None
    tape: Tape
    looked: object = None
    model: str = ""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that the run sent."""
        if self.outcome is not None:
            return self.outcome.transcript.messages
        return tuple(message for message in self.tape.sent if isinstance(message, Message))

    @property
    def whole(self) -> Outcome:
        """The outcome of a run that went to its end."""
        assert self.outcome is not None
        return self.outcome


@dataclass(frozen=True)
class Rerun:
    """One requested run of the method with a tape.

    Attributes:
        clients: Records of every client, in their order.
        answers: The tape with the outputs that are returned again; None: the run draws its own.
        other: See `MethodInput.replayed`; None: nothing differs from the first run.
        seeds: Of the cell.
        look: A query on the tape, run where the tape is recorded; None: none.
        brief: Whether the run may end after its last draw and message; see `fedassay.privacy.tape.Tape`.
        stirred: Whether the global generators, which start equal in every process that never ran the method, are
            seeded from `seeds`.
        apart: Whether only such a process may run it.
    """

    clients: tuple[Records, ...]
    answers: Tape | None
    other: str | None
    seeds: Seeds
    look: Look | None = None
    brief: bool = False
    stirred: bool = False
    apart: bool = False


@dataclass(frozen=True)
class AuditIO:
    """The device, the progress display and the output folder of an audit.

    Attributes:
        device: `cpu` or `cuda`.
        progress: The display that long steps report to.
        folder: Run folder; pictures and arrays go under artifacts/ there.
        prefix: First parts of the names of this audit's pictures: the key of the cell, the labels of the audit and
            the attack.
    """

    device: str
    progress: Progress
    folder: Path
    prefix: tuple[str, ...]

    def grid(
        self, name: Sequence[str], title: str, rows: Mapping[str, Images], columns: Sequence[PictureColumn]
    ) -> Picture:
        """Write a grid of pictures; see `write_grid`. `name` is unique within this audit and attack."""
        return write_grid(self.folder, (*self.prefix, *name), title, rows, columns)


@dataclass(frozen=True)
class CellData:
    """The records and the feature extractor that a cell's attacks and audits may use.

    Attributes:
        clients: The clients' true records; none where they are unknown.
        test: Records that accuracy is measured on.
        fresh: Records of the private distribution that no client holds; at least one.
        control: Records in no other role, from which controls are made; may be empty.
        attacker: The adversary's own records; empty where it has none.
        backbone: The frozen feature extractor, or None.
        classes: Number of classes C.
        shared: Results that cells of one run share, by content key.
        gallery: Candidates that the plan or `--gallery` gives, or None.
    """

    clients: tuple[Records, ...]
    test: Records
    fresh: Records
    control: Records
    attacker: Records
    backbone: Backbone | None
    classes: int
    shared: dict[str, object] = field(default_factory=dict)
    gallery: Records | None = None

    @property
    def encode(self) -> Callable[[Images], Floats]:
        """Features of images, shape (n, d), under the plan's backbone.

        Calling it raises `NotRunError` without one.
        """
        return _no_backbone if self.backbone is None else self.backbone.extract

    def once(self, key: str, make: Callable[[], T]) -> T:
        """Return the result of `make`, computed once for all cells of a run.

        Args:
            key: Everything that the result depends on, the least number of trials included: the result must not
                depend on which cell or audit asks first.
            make: Computes the result. An error is raised again for the next caller.
        """
        if key not in self.shared:
            self.shared[key] = make()
        return cast(T, self.shared[key])


def _no_backbone(images: Images) -> Floats:
    raise NotRunError("no backbone was given to compute features of images with")


class RunMethod(Protocol):
    """The audited method, on other records."""

    def run_on(self, clients: Sequence[Records], seeds: Seeds) -> Outcome:
        """The outcome on records of every client, in their order, with other seeds.

        Raises:
            NotRunError: There is no method here that could be run again.
        """
        ...

    def run_nonprivate(self, clients: Sequence[Records], seeds: Seeds) -> Outcome:
        """The outcome without privacy, in the method's leakiest form (`HasLeakiestForm`).

        An end-to-end positive control is made of this release.

        Args:
            clients: As many as one likes, of any names.
            seeds: Random streams.

        Raises:
            NotRunError: There is no method here that could be run again.
        """
        ...

    def rerun(self, asked: Rerun) -> Replayed:
        """Run the method with a tape, in a process where it never ran if there is such a process.

        Raises:
            NotRunError: There is no method to run again, or no such process for a run that needs it.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class AuditContext:
    """The data and operations that an audit may use, for simulated and for captured messages.

    A missing part is empty, not None: for captured messages the clients' records are unknown, and a rerun raises
    an error that says why it is impossible.

    Attributes:
        data: The cell's records and backbone.
        method: Runs the audited method on other records.
        method_key: Name and parameters of the method, without privacy: the key for results that cells share.
        outcome: The results of the method.
        view: The messages that the adversary saw, and the threat model.
        accounted: The totals of the cell's ledger.
        tape: Inputs and outputs of the method's noise mechanisms; empty where nothing was taped.
        privacy: The guarantee that the plan asks for.
        num_tests: Number of lower bounds in the whole run, m, for the correction of confidence levels.
        similarity: The image metrics of this plan.
        seeds: Random streams of the cell.
        io: Device, progress and files.
    """

    data: CellData
    method: RunMethod
    method_key: str
    outcome: Outcome
    view: View
    accounted: Accounted
    tape: Tape
    privacy: PrivacyTarget
    num_tests: int
    similarity: Similarity
    seeds: Seeds
    io: AuditIO

    @property
    def release_key(self) -> str:
        """Key shared by cells that differ in epsilon alone: method, adjacency and threat model."""
        return f"{self.method_key}/{self.privacy.adjacency}/{self.view.threat.model_dump_json()}"

    def replay(
        self,
        clients: Sequence[Records],
        answers: Tape,
        other: str = "",
        *,
        look: Look | None = None,
        brief: bool = False,
    ) -> Replayed:
        """Run the method on records of every client with the cell's own seeds; for the arguments see `Rerun`."""
        return self.method.rerun(Rerun(tuple(clients), answers, other, self.seeds, look, brief))

    def reseeded(self, seeds: Seeds) -> Replayed:
        """The first run with other seeds and its trainings, on its own records, up to its last message."""
        return self.method.rerun(
            Rerun(self.data.clients, self._without_draws(), None, seeds, brief=True, stirred=True)
        )

    def repeat(self, *, brief: bool) -> Replayed:
        """The first run once more, with its trainings and the outputs of external mechanisms.

        Raises:
            NotRunError: It would have to run in a process that may remember the first one.
        """
        known = self._without_draws(sealed=True)
        return self.method.rerun(Rerun(self.data.clients, known, None, self.seeds, brief=brief, apart=True))

    def _without_draws(self, *, sealed: bool = False) -> Tape:
        """The trainings of the tape, which take too long to be made again, and its number of messages.

        Args:
            sealed: Whether it also holds outputs of others' mechanisms, with noise that no seed brings back.
        """
        own: dict[Key, TapeEntry] = {
            key: entry for key, entry in self.tape.draws.items() if sealed and isinstance(entry, ExternalMechanism)
        }
        return Tape(draws=own, trainings=self.tape.trainings, messages=self.tape.messages)

    def records(self, sender: str) -> Records | None:
        """Return the true records of a sender; None for the aggregate, and where they are unknown."""
        return next((client for client in self.data.clients if client.name == sender), None)

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
            view: The messages that are seen.
            game: Ask these membership questions instead of the context's; None: the context's.
            rerun_previous_attacks: Run the attacks before this one on the view, too, and hand it the vectors that
                they recover.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class AttackedContext(AuditContext):
    """The data and operations that an audit of an attack may use.

    Attributes:
        attack: Runs the audited attack on another view.
        attack_key: Label and parameters of that attack: the key for its shared control results.
        game: The membership questions put to the attack; empty where there are no candidates.
    """

    attack: RunAttack
    attack_key: str
    game: MembershipGame


class AttackAudit(Configured, Protocol):
    """An audit of attacks; it declares the kinds of results that it judges. Its fields are its plan keys."""

    facts: ClassVar[AuditFacts]

    def assess(self, result: AttackResult, context: AttackedContext) -> list[Finding]:
        """Join the truth, run the controls, and give one finding per source and selection.

        Raises:
            NotRunError: An input of the audit is missing; the message names it.
        """
        ...


class RunAudit(Configured, Protocol):
    """An audit of a run, which judges no attack's result; its fields are its plan parameters."""

    facts: ClassVar[AuditFacts]

    def assess(self, result: None, context: AuditContext) -> list[Finding]:
        """Run the controls, and give one finding per source and selection.

        Raises:
            NotRunError: An input of the audit is missing; the message names it.
        """
        ...


Audit = AttackAudit | RunAudit
