"""What a component declares of itself: everything that the rest of the house needs to know of it.

A component's class carries one of these as its class attribute `facts`. They hold no array and need no network, so
a report, a policy or a listing reads them quickly: those of an audit, which reports need, may stand in a module of
their own beside the audit, which is then read without importing the audit (`fedassay.contracts.registry`).
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
"""What an attack gives, and what an audit can judge.

| kind | in an `AttackResult` |
|---|---|
| `reconstructions` | `reconstructions`: images made by somebody who has images of the same distribution |
| `inversions` | `reconstructions`: images made from the backbone alone |
| `vectors` | `vectors`: recovered features of single records |
| `scores` | `scores`: `source/test`, one score a candidate of the membership game |
| `counts` | artifacts `histograms`, `senders`, `evidence`: label histograms |
| `values` | `scores`: by source, how well a record with each value of an attribute fits what is seen |
| `remarks` | facts that follow from the messages by the rules of `fedassay.exchange.statistics` |
"""

Readable = str
"""What an attack reads of a view: a kind of fields, `vectors` for every kind whose rows are vectors of feature
space, or a `model` or `generator` that the messages carry."""

AttackNeed = Literal["attacker_records", "backbone_gradients", "membership_game", "attributes", "malicious_server"]
"""What an attack needs beside messages; one that needs nothing runs on any captured transcript."""

AuditNeed = Literal["generator", "known_members", "another_run"]
"""What an audit needs beside the result of an attack."""

NEED_WORDS: Mapping[AuditNeed, str] = {
    "generator": "it needs a generator that can be sampled and the records that it was trained on",
    "known_members": "it needs records of which it is known whether a client holds them",
    "another_run": "it needs the clients' records, or another run of the method",
}
"""What is missing where an audit cannot run, in words."""

ATTACK_NEED_WORDS: Mapping[AttackNeed, str] = {
    "attacker_records": "records of the attacker's own (data.split.attacker)",
    "backbone_gradients": "a backbone whose gradients the attacker has (threat.backbone: white_box)",
    "membership_game": "records of which it is known whether a client holds them",
    "attributes": "a sensitive attribute of the records (data.attributes)",
    "malicious_server": "a server that chooses what it sends out (threat.server: malicious)",
}
"""What an attack needs beside messages, in words."""

Given = Mapping[str, Any]
"""Parameters of a component as a record holds them, defaults filled in."""

MethodCost = Callable[[Given, Sizes, bool], float]
"""Seconds of a method at one cell, from its parameters, the sizes, and whether epsilon is finite."""

Cost = Callable[[Given, Sizes, Load], float]
"""Seconds of an attack or an audit over the cells of one seed."""


EVERY_UNIT: tuple[Unit, ...] = ("record", "person", "client")
"""What a method can give whose noised statistics are sums over records."""


@dataclass(frozen=True)
class MethodFacts:
    """What a method declares.

    Attributes:
        private_form: Whether it can be asked for a finite epsilon.
        adjacency: The relation that its epsilon speaks of where a plan names none.
        units: The units of privacy that its private form can give.
        cost: Seconds at one cell; None: a dry run names it as not estimated.
        malicious: What a malicious server chooses: `broadcast`, what the method itself sends out
            (`MethodInput.adversary`); `backbone`, whose features clients sum up; `body`, the start of the method's
            own networks, of `width` - 1 features, which stands in the place of a backbone; or nothing.
        sends: What the adversary sees of a client without noise, so that it is known before a run which attacks
            apply; empty: it is known when it runs.
        own_features: Whether what is sent without noise is of networks of the method's own, not of the backbone.
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
    """What an attack declares.

    Attributes:
        gives: The kinds of its results, which decide on the audits that judge them.
        needs: What it needs beside messages.
        takes: The kinds of results of earlier attacks that it goes on from.
        reads: What it reads of a view, each an alternative: one thing, or several that must all be there. It
            applies to what is sent where one alternative is seen; a record says of each that applies whether it
            was run. Empty: nobody knows before it has run.
        features_of: The networks whose features the vectors that it reads have to be: the `backbone`, or a
            `public_body` that everybody can train; empty: any.
        cost: Seconds over the cells of a seed; None: a dry run names it as not estimated.
        stronger: A key that is one of several names, each of which makes a stronger attack than the one before it.
        takes_gallery: Whether a gallery of candidates, without anybody's knowledge of who is in, is enough for it.
    """

    gives: tuple[ResultKind, ...]
    needs: tuple[AttackNeed, ...] = ()
    takes: tuple[ResultKind, ...] = ()
    reads: tuple[Readable | tuple[Readable, ...], ...] = ()
    features_of: tuple[Literal["backbone", "public_body"], ...] = ()
    cost: Cost | None = None
    stronger: str = ""
    takes_gallery: bool = False

    def applies(self, seen: Collection[str]) -> bool:
        """Whether it reads something of a view that shows these kinds of things."""
        return any(each <= set(seen) for each in self.alternatives)

    @property
    def alternatives(self) -> tuple[frozenset[str], ...]:
        """What it reads, each an alternative of which all must be there, with kinds in the place of `vectors`."""
        found: list[frozenset[str]] = []
        for each in self.reads:
            if each == "vectors":
                found += [frozenset((kind,)) for kind in vector_kinds()]
            else:
                found.append(frozenset((each,) if isinstance(each, str) else each))
        return tuple(found)


@dataclass(frozen=True)
class ReportSection:
    """Where the findings of an audit stand in a report.

    Attributes:
        section: `claim`: its verdict is the cell's verdict on the claim. `images`: the section of images, for one
            audit; of others there, and of `attacks`, each has a section of its own. `accounts`: beside the ledger.
        title: Its heading; empty: its name.
        order: Among those of its section, the lowest first; ties by name.
        always: Whether a run without it says so in its place.
    """

    section: Literal["claim", "images", "attacks", "accounts"] = "attacks"
    title: str = ""
    order: int = 100
    always: bool = False


@dataclass(frozen=True)
class SarifRule:
    """The rule that code-scanning tools show a finding under.

    Attributes:
        text: What must hold, in one sentence.
        taxa: What a finding is an instance of: a weakness of the Common Weakness Enumeration (`CWE-359`, exposure
            of private personal information), a technique of MITRE ATLAS (`AML.T0024.000`), a risk of OWASP's
            Machine Learning Security Top 10 (`ML04`).
        help: What to do where it does not hold, in one or two sentences.
        severity: As code-scanning tools order findings, from 0 to 10.
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
"""What regulators ask to be tested (EDPB Opinion 28/2024, section 3.2)."""


@dataclass(frozen=True)
class AuditFacts:
    """What an audit declares.

    Attributes:
        judges: The kinds of attack results that it judges; empty: it needs no attack.
        needs: What it needs beside those.
        metrics: The metrics that its findings hold; a policy can bound these.
        place: Where its findings stand in a report.
        rule: Its SARIF rule; None: one made of its name.
        threats: What it tests, in the words of regulators.
        tests_per_cell: One-sided tests in a cell, for each entry of an attack that it judges.
        more_tests: Tests in a cell that its parameters ask for beside those.
        cost: Seconds over the cells of a seed; None: a dry run names it as not estimated.
        foresee: What its silence will not decide in a plan, whatever is found, and what would; empty: nothing.
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
        """Whether it judges what the attack gives."""
        return bool(set(self.judges) & set(attack.gives))


Facts = MethodFacts | AttackFacts | AuditFacts


def in_words(kinds: Iterable[str]) -> str:
    """Kinds of results as a sentence names them."""
    return " or ".join(kinds)
