"""What an audit is given, and what it gives back.

An audit gets the attack's result and an `AuditContext`, with which it runs its controls without any room importing
another: the same attack on another view, the same method on other records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from fedassay.contracts.attack import AttackResult
from fedassay.contracts.component import Configured
from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.data.records import Records
from fedassay.exchange.ledger import Accounted
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.view import ThreatModel, View
from fedassay.records.record import Finding
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds

if TYPE_CHECKING:
    from fedassay.backbones.base import Backbone
    from fedassay.contracts.membership import MembershipGame
    from fedassay.nets.step_log import StepLog
    from fedassay.similarity.metrics import Similarity


@dataclass(frozen=True)
class AuditContext:
    """What an audit may do and know.

    Attributes:
        task: The cell's work: true records of every client, test and public records, seeds.
        outcome: What the method gave back.
        view: What the adversary saw.
        threat: Under which threat model.
        attacker: The adversary's own records, or None.
        fresh: Records of the private distribution that no client holds: the data set's attacker role.
        method: Label of the method entry.
        attack: Runs the audited attack on another view; None for audits that need no attack.
        attack_key: Label and parameters of that attack, to share its control results under.
        rerun: Runs the method on other clients' records with other seeds.
        similarity: The image metrics of this plan.
        accounted: What the ledger says about the cell.
        bounds: Number of lower bounds in the whole run, m, for the correction of confidence levels.
        folder: Run folder; pictures and arrays go under artifacts/ there.
        prefix: What names the pictures of this audit: the key of the cell, the labels of the audit and the attack.
        shared: Results that cells of one run share (control results), by content key.
        game: The membership questions that the attack was asked, or None.
        ask: Runs the audited attack on another view and another game.
        steps: What the steps of DP-SGD in the run of the method did.
    """

    task: MethodInput
    outcome: Outcome
    view: View
    threat: ThreatModel
    attacker: Records | None
    fresh: Records
    method: str
    attack: Callable[[View], AttackResult] | None
    attack_key: str
    rerun: Callable[[Sequence[Records], Seeds], Outcome]
    similarity: Similarity
    accounted: Accounted
    bounds: int
    folder: Path
    prefix: tuple[str, ...]
    shared: dict[str, object] = field(default_factory=dict)
    game: MembershipGame | None = None
    ask: Callable[[View, MembershipGame], AttackResult] | None = None
    steps: StepLog = field(default_factory=dict)

    @property
    def clients(self) -> tuple[Records, ...]:
        """The clients' true records."""
        return self.task.clients

    @property
    def test(self) -> Records:
        """Records that accuracy is measured on."""
        return self.task.test

    @property
    def public(self) -> Records | None:
        """Records that everybody may use, or None."""
        return self.task.public

    @property
    def classes(self) -> int:
        """Number of classes C."""
        return self.task.classes

    @property
    def backbone(self) -> Backbone:
        """The frozen feature extractor."""
        return self.task.backbone

    @property
    def privacy(self) -> PrivacyTarget:
        """What the plan asks for."""
        return self.task.privacy

    @property
    def seeds(self) -> Seeds:
        """Random streams of the cell."""
        return self.task.seeds

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""
        return self.task.device

    @property
    def progress(self) -> Progress:
        """Where long steps report."""
        return self.task.progress

    def records(self, sender: str) -> Records | None:
        """The true records of a sender, or None for the aggregate."""
        return next((client for client in self.task.clients if client.name == sender), None)


class Audit(Configured, Protocol):
    """An audit; its fields are its plan parameters."""

    facts: ClassVar[AuditFacts]

    def assess(self, result: AttackResult | None, context: AuditContext) -> list[Finding]:
        """Join the truth, run the controls, and give one finding per source and selection.

        Raises:
            NotRunError: What the audit needs is not there; the message says what.
        """
        ...
