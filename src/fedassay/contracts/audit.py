"""What attacks and audits are given: knowledge for attacks, a context for audits.

An attack gets a `View` and its `Knowledge`, nothing else; truth is joined afterwards by the audit.
An audit gets the attack's result and a `AuditContext`, with which it runs its controls without any room
importing another: the same attack on another view, the same method on other records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fedassay.contracts.method import MethodInput, Outcome
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource
from fedassay.exchange.ledger import Accounted
from fedassay.exchange.release import PrivacyTarget
from fedassay.exchange.view import ThreatModel, View
from fedassay.records.record import Finding
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images

if TYPE_CHECKING:
    from fedassay.backbones.base import Backbone
    from fedassay.contracts.membership import MembershipGame
    from fedassay.privacy.tape import Tape
    from fedassay.similarity.metrics import Similarity


@dataclass(frozen=True)
class Knowledge:
    """What the adversary knows besides what it sees.

    Attributes:
        attacker: Its own labelled images, from no private record; None where the plan gives it none.
        classes: Number of classes C.
        backbone: The feature extractor; `white_box` says whether gradients through it are allowed.
        white_box: See `backbone`.
        seeds: Random streams of the attack.
        device: `cpu` or `cuda`.
        progress: Where long steps report.
        recovered: Feature vectors that other attacks of the same cell recovered.
        scratch: Folder for checkpoints that a resumed run may use, or None.
        game: Records whose membership is asked, and shadow releases of the method; None where nobody asks.
    """

    attacker: Records | None
    classes: int
    backbone: Backbone | None
    white_box: bool
    seeds: Seeds
    device: str
    progress: Progress
    recovered: tuple[VectorSource, ...] = ()
    scratch: Path | None = None
    game: MembershipGame | None = None


@dataclass(frozen=True)
class Reconstruction:
    """Images reconstructed from vectors.

    Attributes:
        source: The vectors; row i of `images` was made from vector i.
        images: Shape (n, k, H, W, C), uint8: k samples a vector.
    """

    source: VectorSource
    images: Images


@dataclass(frozen=True)
class AttackResult:
    """What an attack computed; no verdict.

    Attributes:
        attack: Registered name.
        reconstructions: Images, by source.
        vectors: Feature vectors recovered from the view.
        scores: Per-trial scores by name.
        artifacts: Other arrays by name.
        notes: Fallbacks and limits met.
    """

    attack: str
    reconstructions: tuple[Reconstruction, ...] = ()
    vectors: tuple[VectorSource, ...] = ()
    scores: Mapping[str, Floats] = field(default_factory=dict)
    artifacts: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Attack(Protocol):
    """An attack; its fields are its plan parameters.

    Raises `fedassay.support.errors.NotRunError` with the reason where the view lacks what it requires.
    """

    def run(self, view: View, knowledge: Knowledge) -> AttackResult:
        """Attack what is visible."""
        ...


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
        prefix: Unique file-name prefix of this cell.
        shared: Results that cells of one run share (control results), by content key.
        game: The membership questions that the attack was asked, or None.
        ask: Runs the audited attack on another view and another game.
        tape: The tape of the run of the method; None where nothing was taped.
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
    prefix: str
    shared: dict[str, object] = field(default_factory=dict)
    game: MembershipGame | None = None
    ask: Callable[[View, MembershipGame], AttackResult] | None = None
    tape: Tape | None = None

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


class Audit(Protocol):
    """An audit; its fields are its plan parameters.

    Registered classes set `reads` (ClassVar): the name of the attack whose result they read, or None.
    """

    def assess(self, result: AttackResult | None, context: AuditContext) -> list[Finding]:
        """Join the truth, run the controls, and give one finding per source and selection."""
        ...
