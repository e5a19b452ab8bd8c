"""Every audit that attacks, walked on small releases of digits: one case for each of its ways to the ladder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from attacked import by_ratio
from contexts import with_data
from people import by_likelihood

from fedassay.attacks.gram.attack import GramFactorization
from fedassay.attacks.label_distribution import LabelDistribution
from fedassay.attacks.message_algebra import MessageAlgebra
from fedassay.audits.attribute_inference.audit import AttributeInference
from fedassay.audits.inversion.audit import InversionAudit
from fedassay.audits.membership.audit import MembershipAudit
from fedassay.audits.membership.canaries import canary_finding
from fedassay.audits.membership.worst_record import worst_record_finding
from fedassay.audits.memorization.audit import MemorizationAudit
from fedassay.audits.message.audit import MessageAudit
from fedassay.audits.reconstruction.audit import ReconstructionAudit
from fedassay.contracts.attack import Attack, AttackResult, Knowledge, Reconstruction
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.membership import MembershipGame, no_questions
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import VectorSource, sources
from fedassay.exchange.models import Generator
from fedassay.exchange.transcript import Transcript
from fedassay.exchange.view import View
from fedassay.methods.baselines.fedavg import FedAvg
from fedassay.methods.closed_forms.fedncm import FedNCM
from fedassay.methods.fedcgs.method import FedCGS
from fedassay.records.record import Finding
from fedassay.support.progress import SILENT, Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images

MakeTask = Callable[..., MethodInput]
MakeContext = Callable[..., AuditContext]
Change = Callable[[AuditContext], AuditContext]


class Drawing:
    """Draws from its images."""

    def __init__(self, images: Images) -> None:
        self.images = images

    def sample(self, count: int, seeds: Seeds, progress: Progress) -> Images:
        return self.images[np.arange(count) % len(self.images)]


class Recalling:
    """A method whose generators give back what they were trained on."""

    def run(self, task: MethodInput) -> Outcome:
        generators: dict[str, Generator] = {client.name: Drawing(client.images) for client in task.clients}
        return Outcome(Transcript("drawing", 10, ()), None, generators=generators)


def _pictures(source: VectorSource) -> Images:
    """Inverts features that are pixels in [0, 1]."""
    return np.rint(source.vectors.clip(0, 1) * 255).astype(np.uint8).reshape(-1, 1, 8, 8, 1)


def _images(audit: Any, context: AuditContext) -> list[Finding]:
    def attack(
        seen: View, game: MembershipGame | None = None, *, rerun_previous_attacks: bool = False
    ) -> AttackResult:
        made = tuple(Reconstruction(item, _pictures(item)) for item in sources(seen, np.random.default_rng(0)))
        left = {f"misfit/{item.source.name}": np.zeros(len(item.images)) for item in made}
        return AttackResult("by hand", reconstructions=made, scores=left)

    return list(audit.assess(attack(context.view), context.attacked(attack, "test", no_questions())))


def of_messages(attack: Attack, context: AuditContext) -> list[Finding]:
    knowledge = Knowledge(context.data.fresh, 10, None, False, Seeds(0), "cpu", SILENT)

    def attacked(
        seen: View, game: MembershipGame | None = None, *, rerun_previous_attacks: bool = False
    ) -> AttackResult:
        return attack.run(seen, knowledge)

    return MessageAudit().assess(attacked(context.view), context.attacked(attacked, "test", no_questions()))


def _members(context: AuditContext) -> list[Finding]:
    own = by_ratio(context)
    found = MembershipAudit(trials=0, releases=0).assess(own.attack(own.view), own)
    return [each for each in found if each.verdict != "not_run"]


class Case:
    """How one audit's way to the ladder is walked: `run(context)`, on what `context` makes."""

    def __init__(
        self, audit: str, context: Callable[..., AuditContext], run: Callable[[AuditContext], list[Finding]]
    ) -> None:
        self.audit, self.context, self.run = audit, context, run


def _of(method: Any, records: int = 60, clients: int = 3, bounds: int = 2, **given: Any) -> Callable[..., Any]:
    def make(make_task: MakeTask, make_context: MakeContext, folder: Path) -> AuditContext:
        task = make_task(clients=clients, records=records, **given)
        return make_context(task, method, bounds=bounds, folder=folder)

    return make


def _of_people(make_task: MakeTask, make_context: MakeContext, folder: Path) -> AuditContext:
    context: AuditContext = _of(FedNCM(), clients=12)(make_task, make_context, folder)
    roles = {
        role: _classes_known(getattr(context.data, role)) for role in ("test", "fresh", "control", "attacker")
    }
    return with_data(context, clients=tuple(map(_classes_known, context.data.clients)), **roles)


def _classes_known(records: Records) -> Records:
    """The same records, whose class is the attribute that is asked about."""
    return replace(records, attributes={"label": records.labels})


def _attributes(context: AuditContext) -> list[Finding]:
    return AttributeInference().assess(AttackResult("attribute_likelihood"), by_likelihood(context))


_PRIVATE = FedAvg.model_validate({"local_epochs": 4, "dp_sgd": {"sampling_rate": 0.25}})
CASES = {
    "reconstruction": Case(
        "reconstruction",
        _of(FedCGS(), records=120, clients=12),
        lambda context: _images(ReconstructionAudit(control_records=60, permutations=400, pictures=0), context),
    ),
    "inversion": Case(
        "inversion",
        _of(FedCGS()),
        lambda context: _images(InversionAudit(permutations=400, pictures=0), context),
    ),
    "memorization": Case(
        "memorization", _of(Recalling()), lambda context: MemorizationAudit(permutations=400).assess(None, context)
    ),
    "rules and vectors": Case("message", _of(FedCGS()), lambda context: of_messages(MessageAlgebra(), context)),
    "factored vectors": Case("message", _of(FedCGS()), lambda context: of_messages(GramFactorization(), context)),
    "histograms": Case(
        "message",
        _of(FedCGS(), clients=12, records=120),
        lambda context: of_messages(LabelDistribution(), context),
    ),
    "membership game": Case("membership", _of(FedCGS()), _members),
    "canaries": Case(
        "membership", _of(_PRIVATE, clients=1, epsilon=3.0), lambda context: [canary_finding(context, 60)]
    ),
    "attributes": Case("attribute_inference", _of_people, _attributes),
    "swaps": Case(
        "membership", _of(FedNCM(), clients=2), lambda context: [worst_record_finding(by_ratio(context), 6, 40)]
    ),
}
"""Every audit that attacks, by each of its ways to the ladder."""

WITHOUT_ALONE = {"swaps", "attributes"}
"""Ways with no control of the attack alone: the end-to-end control is the only one."""
