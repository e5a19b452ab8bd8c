"""The facts that a component declares of itself: all that the rest of the package needs to know of it.

A component's class carries its facts as the class attribute `facts`. They hold no array and need no network, so
that a report, a policy or a listing reads them quickly. Reports need the facts of an audit: these may be in a
module of their own beside the audit, which is read without an import of the audit (`fedassay.contracts.registry`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedassay.contracts.sizes import Load, Planned, Sizes
from fedassay.exchange.kinds import vector_kinds
from fedassay.support.adjacency import Adjacency, Unit
from fedassay.support.metrics import MetricFacts

ResultKind = Literal["reconstructions", "inversions", "vectors", "scores", "counts", "remarks", "values"]
"""The kinds of result that an attack can give, and an audit can judge.

| kind | in an `AttackResult` |
|---|---|
| `reconstructions` | `reconstructions`: images made by an adversary with images of the same distribution |
| `inversions` | `reconstructions`: images made from the backbone alone |
| `vectors` | `vectors`: recovered features of single records |
| `scores` | `scores`: `source/test`, one score a candidate of the membership game |
| `counts` | artifacts `histograms`, `senders`, `evidence`: label histograms |
| `values` | `scores`: by source, how well a record with each value of an attribute fits what is seen |
| `remarks` | facts that follow from the messages by the rules of `fedassay.exchange.statistics` |
"""

Readable = str
"""An input that an attack reads from a view: a kind of field, `vectors` for every kind with rows in feature space,
or a `model` or `generator` that the messages carry."""

AttackNeed = Literal["attacker_records", "backbone_gradients", "membership_game", "attributes", "malicious_server"]
"""A need of an attack beyond messages; an attack without needs runs on any captured transcript."""

AuditNeed = Literal["generator", "known_members", "another_run"]
"""A need of an audit beyond the result of an attack."""

NEED_WORDS: Mapping[AuditNeed, str] = {
    "generator": "it needs a generator that can be sampled and the records that it was trained on",
    "known_members": "it needs records with known membership",
    "another_run": "it needs the clients' records, or another run of the method",
}
"""The missing need, in words, where an audit cannot run."""

ATTACK_NEED_WORDS: Mapping[AttackNeed, str] = {
    "attacker_records": "records of the attacker's own (data.split.attacker)",
    "backbone_gradients": "a backbone whose gradients the attacker has (threat.backbone: white_box)",
    "membership_game": "records with known membership",
    "attributes": "a sensitive attribute of the records (data.attributes)",
    "malicious_server": "a server that chooses what it sends out (threat.server: malicious)",
}
"""The needs of attacks beyond messages, in words."""

Given = Mapping[str, Any]
"""Parameters of a component as a record holds them, defaults filled in."""

MethodCost = Callable[[Given, Sizes, bool], float]
"""Seconds of a method at one cell, from its parameters, the sizes, and whether epsilon is finite."""

Cost = Callable[[Given, Sizes, Load], float]
"""Seconds of an attack or an audit over the cells of one seed."""

Holds = Callable[[Given, Sizes], float]
"""Bytes that an attack holds at its largest, from its parameters and the sizes."""


EVERY_UNIT: tuple[Unit, ...] = ("record", "person", "client")
"""The units of privacy of a method with noised statistics that are sums over records."""


@dataclass(frozen=True)
class MethodFacts:
    """The facts that a method declares.

    Attributes:
        private_form: Whether it supports a finite epsilon.
        adjacency: The relation of its epsilon where a plan names none.
        units: The units of privacy that its private form supports.
        cost: Seconds at one cell; None: a dry run names it as not estimated.
        malicious: The choice of a malicious server. `broadcast`: the method's own broadcast
            (`MethodInput.adversary`); `backbone`: the backbone that computes the summed features; `body`: the
            initial weights of the method's own networks, of `width` - 1 features, in place of a backbone; empty:
            none.
        sends: The adversary's view of a client without noise, from which the applicable attacks are known before a
            run; empty: they are known only when it runs.
        own_features: Whether its messages without noise hold features of its own networks, not of the backbone.
    """

    private_form: bool = True
    adjacency: Adjacency = "add_remove"
    units: tuple[Unit, ...] = ("record",)
    cost: MethodCost | None = None
    malicious: Literal["", "broadcast", "backbone", "body"] = ""
    sends: tuple[Readable, ...] = ()
    own_features: bool = False


@dataclass(frozen=True)
class AttackFacts:
    """The facts that an attack declares.

    Attributes:
        gives: The kinds of its results, which decide on the audits that judge them.
        needs: Its needs beyond messages.
        takes: The kinds of results of earlier attacks that it uses.
        reads: Its inputs from a view, as alternatives: each is one input, or several that are all required. The
            attack applies to a view that has one alternative; for each attack that applies, a record says whether
            it was run. Empty: unknown before it has run.
        features_of: The networks that must have made its vectors: the `backbone`, or a `public_body` that every
            party can train; empty: any.
        cost: Seconds over the cells of a seed; None: a dry run names it as not estimated.
        holds: Bytes that it holds beside images, features and messages; None: few.
        stronger: A key with several names as values, each of which makes a stronger attack than the one before it.
        takes_gallery: Whether it needs no more than a gallery of candidates, without knowledge of which are
            members.
    """

    gives: tuple[ResultKind, ...]
    needs: tuple[AttackNeed, ...] = ()
    takes: tuple[ResultKind, ...] = ()
    reads: tuple[Readable | tuple[Readable, ...], ...] = ()
    features_of: tuple[Literal["backbone", "public_body"], ...] = ()
    cost: Cost | None = None
    holds: Holds | None = None
    stronger: str = ""
    takes_gallery: bool = False

    def applies(self, seen: Collection[str]) -> bool:
        """Whether it can read a view that shows these kinds of input."""
        return any(each <= set(seen) for each in self.alternatives)

    @property
    def alternatives(self) -> tuple[frozenset[str], ...]:
        """Its alternative inputs, each a set of kinds that are all required, with `vectors` replaced by kinds."""
        found: list[frozenset[str]] = []
        for each in self.reads:
            if each == "vectors":
                found += [frozenset((kind,)) for kind in vector_kinds()]
            else:
                found.append(frozenset((each,) if isinstance(each, str) else each))
        return tuple(found)


@dataclass(frozen=True)
class ReportSection:
    """The place of an audit's findings in a report.

    Attributes:
        section: `claim`: its verdict is the cell's verdict on the claim. `images`: the section of images, for one
            audit; other audits there, and those of `attacks`, each have a section of their own. `accounts`: beside
            the ledger.
        title: Its heading; empty: its name.
        order: Rank within its section, the lowest first; ties by name.
        always: Whether the section of a run without it says so.
    """

    section: Literal["claim", "images", "attacks", "accounts"] = "attacks"
    title: str = ""
    order: int = 100
    always: bool = False


@dataclass(frozen=True)
class SarifRule:
    """The rule that code-scanning tools show a finding under.

    Attributes:
        text: The rule, in one sentence.
        taxa: The classes that a finding belongs to: a weakness of the Common Weakness Enumeration (`CWE-359`,
            exposure of private personal information), a technique of MITRE ATLAS (`AML.T0024.000`), a risk of
            OWASP's Machine Learning Security Top 10 (`ML04`).
        help: Advice where the rule is broken, in one or two sentences.
        severity: Severity for code-scanning tools, from 0 to 10.
    """

    text: str
    taxa: tuple[str, ...] = ("CWE-359",)
    help: str = "Send less, add noise that the ledger accounts for, or do not deploy."
    severity: float = 7.5


def _none(_given: Given) -> int:
    return 0


def _nothing(_given: Given, _planned: Planned) -> str:
    return ""


Threat = Literal[
    "membership_inference", "attribute_inference", "model_inversion", "data_reconstruction", "regurgitation"
]
"""The kinds of test that regulators ask for (EDPB Opinion 28/2024, section 3.2)."""


@dataclass(frozen=True)
class AuditFacts:
    """The facts that an audit declares.

    Attributes:
        judges: The kinds of attack results that it judges; empty: it needs no attack.
        needs: Its needs beyond those.
        metrics: The metrics of its findings; a policy can bound these.
        place: The place of its findings in a report.
        rule: Its SARIF rule; None: one made of its name.
        threats: The threats that it tests, in the terms of regulators.
        tests_per_cell: One-sided tests in a cell, for each entry of an attack that it judges.
        more_tests: Further tests in a cell that its parameters ask for.
        cost: Seconds over the cells of a seed; None: a dry run names it as not estimated.
        foresee: A sentence on questions that its silence cannot decide in a plan, and on a remedy; empty: there
            are none.
    """

    judges: tuple[ResultKind, ...] = ()
    needs: tuple[AuditNeed, ...] = ()
    metrics: tuple[MetricFacts, ...] = ()
    place: ReportSection = ReportSection()
    rule: SarifRule | None = None
    threats: tuple[Threat, ...] = ()
    tests_per_cell: int = 1
    more_tests: Callable[[Given], int] = _none
    cost: Cost | None = None
    foresee: Callable[[Given, Planned], str] = _nothing

    def judge(self, attack: AttackFacts) -> bool:
        """Whether it judges a kind of result that the attack gives."""
        return bool(set(self.judges) & set(attack.gives))


Facts = MethodFacts | AttackFacts | AuditFacts


def in_words(kinds: Iterable[str]) -> str:
    """Kinds of results as a sentence names them."""
    return " or ".join(kinds)
