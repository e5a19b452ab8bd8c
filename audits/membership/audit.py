"""Audit of membership: can members be distinguished from others, and better than a claim allows?

Truth joined to the scores of the attack `membership`, one finding for each thing it looked at and each test;
beside them, the informed adversary who knows every record but one (`informed`), and, where asked for,
canaries planted into one private training run (`canaries`), the risk of single records or persons (`worst_record`)
and of whole clients (`clients`).

Positive controls: the method's own run without privacy on control records that it is known to give away
(`nonprivate_runs`), asked by the same attack in the same view; and releases that give membership away to the same
test whatever the method (`controls`), of the attack alone. Negative control: the same questions about releases of
the same method that were computed from either half of every client's records, to which the client's other half are
strangers, too. Where members and strangers are not of one distribution (a client's own domain, a test set of other
origin), any release of that client's distribution distinguishes them, and the control is flagged. Where clients
are too small to be halved, the release is computed from fresh records; at last, the truth is shuffled among the
candidates of each client and label.

Where records carry a person's identity, persons are tested instead of records (`trials`). A claim on records then
allows what group privacy makes of it for that many records of one person.

Verdict. Without a claim, `leak` where members are inferred better than by chance. Under a claim of (epsilon,
delta), `leak` where a lower bound shows more than the claim allows: a claim permits some membership inference, and
says how much. The verdict is `inconclusive` where members are inferred at all but so few candidates could not show
more whatever leaks. So is silence where the method cannot be run on control records, or does worse than chance.
Silence comes with the smallest leak that would have been found (`detection_limit`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedassay.audits.evidence import ControlResult, Figures, Subject
from fedassay.audits.membership import ceiling
from fedassay.audits.membership.canaries import canary_finding
from fedassay.audits.membership.clients import Hold, client_finding, property_finding
from fedassay.audits.membership.controls import WORDS, leaking, non_members, pooled_blocks
from fedassay.audits.membership.detection_limit import Size, detectable
from fedassay.audits.membership.facts import MEMBERSHIP
from fedassay.audits.membership.informed import informed_findings
from fedassay.audits.membership.judging import (
    REPLACED,
    REPLACED_PERSON,
    Basis,
    Positives,
    finding,
    membership,
)
from fedassay.audits.membership.noised import noised_control
from fedassay.audits.membership.nonprivate import LOOKS, NonPrivateRuns, nonprivate_runs
from fedassay.audits.membership.properties import property_of
from fedassay.audits.membership.separation import Allowed, Separation, allowed_of, separate_one_release
from fedassay.audits.membership.transcript_only import solved_control
from fedassay.audits.membership.trials import Trials, person_metrics, trials_of
from fedassay.audits.membership.worst_record import worst_record_finding
from fedassay.audits.simulation import fresh_clients
from fedassay.audits.stats.below_baseline import auc_below_half
from fedassay.audits.stats.resampling import ALONE
from fedassay.audits.stats.roc import auc
from fedassay.audits.verdict import inconclusive, not_run, with_harm
from fedassay.contracts.attack import AttackResult, given_up
from fedassay.contracts.audit import AttackedContext
from fedassay.contracts.facts import AuditFacts
from fedassay.contracts.membership import half_of_each, is_member, visible
from fedassay.contracts.registry import register
from fedassay.data.records import Records
from fedassay.exchange.release import Claim
from fedassay.exchange.transcript import SERVER, kinds_in
from fedassay.records.facts import Obstacle
from fedassay.records.record import Finding, Limit, Metric
from fedassay.support.errors import FedassayError, NotRunError
from fedassay.support.types import Bools, Parameters

Separating = Callable[[NDArray[np.floating], Bools, NDArray[np.str_], int], Separation]
"""Judges scores of members and strangers, in groups, of a control that is looked at so many times."""

_FEWEST = 4
"""Members and strangers that a test takes, at least."""
_PERSONS = (
    "persons are distinguished, each by the mean score of its records (up to {}): records of one person are no "
    "trials of their own"
)
_FOLLOWS = (
    "the model follows from the seen messages, which are attacked as well, and holds nothing "
    "beyond them; by the model alone the attack is too weak"
)
_PROMISING = 0.5
"""Two-sided p-value above which a control that was missed is not asked again of more members."""
_NO_ANSWER = "the attack gave no answer, as it does on the method's own run on control records"
_ENOUGH = 5
"""Members and strangers of one client from which on a test of that client alone can reject."""


@dataclass(frozen=True, eq=False)
class _Negative:
    """The attack on releases to which all candidates are strangers.

    Attributes:
        scores: By source and test, NaN for candidates that were not asked about.
        blocks: The exchangeable group of each candidate.
        words: The release, in words.
    """

    scores: Mapping[str, NDArray[np.floating]]
    blocks: NDArray[np.str_]
    words: str


@dataclass(frozen=True, eq=False)
class _Answers:
    """The attack's answers about the audited release and about both controls.

    Attributes:
        result: On the audited release.
        truth: Whether each candidate is a member, shape (n,).
        blocks: The exchangeable group of each, shape (n,).
        trials: Units that tests distinguish.
        positives: On a release that gives members away, by source.
        negative: On releases to which all are strangers; None where none could be made.
        own: On what the method makes of control records without privacy; in words why there is none.
    """

    result: AttackResult
    truth: Bools
    blocks: NDArray[np.str_]
    trials: Trials
    positives: Mapping[str, AttackResult]
    negative: _Negative | None
    own: NonPrivateRuns | str


@register("audit", "membership")
class MembershipAudit(Parameters):
    """Distinguish members from non-members, and test whether that exceeds the claim of privacy."""

    facts: ClassVar[AuditFacts] = MEMBERSHIP
    trials: int = Field(default=30, ge=0)
    """Trials of the informed adversary against exact releases, three runs of the method each; 0: not tried."""
    releases: int = Field(default=4000, ge=0)
    """Releases on either side for the informed adversary against noised statistics; 0: not tried."""
    canaries: int = Field(default=0, ge=0)
    """Records planted at random into one run of a private training; 0: none."""
    records: int = Field(default=0, ge=0)
    """Maximum number of records of the smallest client with a measured risk of their own (persons, where
    `data.groups` identifies them), each swapped for a stranger by a coin in each of `record_runs`; 0: none."""
    record_runs: int = Field(default=100, ge=16)
    """Runs of the method for that, and as many again for its control."""
    clients: int = Field(default=0, ge=0)
    """Maximum number of clients with a measured risk of their own, the smallest first, each swapped as a whole for
    strangers by a coin in every one of `client_runs`; 0: none."""
    client_tests: tuple[Hold, ...] = Field(default=("own",), min_length=1)
    """Records that these clients hold: their `own` records; `canaries`, records of one outlying image; or records
    with a `property`, a share of one class, or without it."""
    client_runs: int = Field(default=200, ge=16)
    """Runs of the method for each of these, and as many again for its control."""
    property_label: int | None = Field(default=None, ge=0)
    """The class of a `property`; none: the one that the adversary and the test role have most records of."""
    property_share: float = Field(default=0.5, gt=0, le=1)
    """The share of a client's records that is of this class where it has the property."""

    def assess(self, result: AttackResult, context: AttackedContext) -> list[Finding]:
        """One finding for each source and test, then the informed adversary and the canaries."""
        if not context.game.questions:
            raise NotRunError("there are no candidates: no record outside the clients shares a label with theirs")
        truth, blocks = _truth(context)
        own: NonPrivateRuns | str = "nothing was scored"
        if result.scores:
            try:
                own = nonprivate_runs(context)
            except NotRunError as error:
                own = error.why
        # The negative release takes a run of the method, which would be wasted where nothing was scored.
        asked = _Answers(
            result,
            truth,
            blocks,
            trials_of(context.game),
            {source: self._positive(source, context) for source in {key.split("/")[0] for key in result.scores}},
            self._negative(context, truth, blocks) if result.scores else None,
            own,
        )
        findings = [self._finding(key, asked, context) for key in result.scores]
        if _follows(findings, context):
            findings = [_asked_elsewhere(each) if _by_model_alone(each) else each for each in findings]
        findings += _unanswered(asked)
        if "named" in result.artifacts:
            # The informed adversary is asked once, beside the attack that scores one at a time.
            return findings
        findings += informed_findings(context, trials=self.trials, releases=self.releases)
        if self.canaries:
            findings.append(canary_finding(context, self.canaries))
        if self.records:
            findings.append(worst_record_finding(context, self.records, self.record_runs))
        if self.clients:
            findings += [self._of_clients(hold, context) for hold in dict.fromkeys(self.client_tests)]
        return findings

    def _of_clients(self, hold: Hold, context: AttackedContext) -> Finding:
        """Finding on the inference of whole clients."""
        if hold != "property":
            return client_finding(context, hold, self.clients, self.client_runs)
        try:
            asked = property_of(context, self.clients, self.property_label, self.property_share)
        except NotRunError as error:
            return not_run(membership("clients", hold), error.why)
        return property_finding(context, asked, self.client_runs)

    def _finding(self, key: str, asked: _Answers, context: AttackedContext) -> Finding:
        """Judge one test on one source."""
        source, test = key.split("/")
        trials, scored = asked.trials, asked.result.scores[key]
        scores, truth, blocks = trials.scores(scored), trials.any(asked.truth), trials.first(asked.blocks)
        if min(int((~np.isnan(scores) & truth).sum()), int((~np.isnan(scores) & ~truth).sum())) < _FEWEST:
            subject = membership(source, test, asked.result.attack)
            return not_run(subject, "fewer than 4 members or strangers could be scored")
        allowed, remarks = _allowed(context.outcome.transcript.claim, trials)
        delta = 0.0 if allowed is None else allowed.delta
        rng = context.seeds.numpy("membership", key)

        def separation(
            values: NDArray[np.floating], members: Bools, groups: NDArray[np.str_], looks: int = 1
        ) -> Separation:
            scored, tests = np.asarray(values, np.float64), looks * context.num_tests
            return separate_one_release(scored, members, groups, rng, delta=delta, tests=tests)

        ours = separation(scores, truth, blocks)
        leaking = asked.positives[source].scores.get(key)
        if leaking is None:
            attack_only = ControlResult(WORDS[source], False, "it could not be attacked", detail="AUC")
        else:
            attack_only = separation(trials.scores(leaking), truth, blocks).control(WORDS[source])
        own = asked.own if isinstance(asked.own, str) else self._looked(key, asked.own, separation, context)
        judged = [] if isinstance(own, str) else [each for _, each in own]
        solved = _solved(asked.result, context)
        words = "the truth shuffled among the candidates of each client and label"
        if asked.negative is not None and key in asked.negative.scores:
            words, groups = asked.negative.words, trials.first(asked.negative.blocks)
            silent = separation(trials.scores(asked.negative.scores[key]), truth, groups)
        else:
            silent = separation(scores, _shuffled(truth, blocks, rng), blocks)
        made = finding(
            membership(source, test, asked.result.attack),
            ours,
            allowed,
            positives=Positives(
                own if isinstance(own, str) else tuple(control for control, _ in own), (attack_only, *solved)
            ),
            silent=(silent, words),
            basis=Basis(
                REPLACED_PERSON if trials.person else REPLACED,
                (
                    *remarks,
                    "candidates: as many members as strangers (test role), client by client and label by label; "
                    "the adversary knows the method and how many records of each class a client has",
                    f"levels are 0.05 over {context.num_tests}, the number of tests in the run",
                    *ceiling.words(context),
                ),
                also={
                    **_beside(key, asked, context),
                    **ceiling.figures(asked.result, truth=asked.truth, context=context),
                },
            ),
            limit=lambda against: _limit(ours, silent, judged, against, rng),
        )
        return with_harm(made, ceiling.harm_of(made, asked.result, asked.truth))

    def _looked(
        self, key: str, own: NonPrivateRuns, separation: Separating, context: AttackedContext
    ) -> list[tuple[ControlResult, Separation | None]]:
        """The end-to-end controls; of all members that can be had where the first ones leave one open."""
        found = self._own(key, own, separation)
        if not any(_open(*each) for each in found):
            return found
        try:
            return self._own(key, nonprivate_runs(context, more=True), separation)
        except NotRunError:
            return found

    def _own(
        self, key: str, own: NonPrivateRuns, separation: Separating
    ) -> list[tuple[ControlResult, Separation | None]]:
        """The end-to-end controls, by client size and part of a message, and what they show."""
        controls: list[tuple[ControlResult, Separation | None]] = []
        for size, part in own.asked(key.split("/", maxsplit=1)[0]):
            rows, words = own.sizes == size, own.words(size, part)
            scores = own.scores.get((part, key), np.full(len(rows), np.nan))[rows]
            members = own.members[rows]
            scored = ~np.isnan(scores)
            if min((scored & members).sum(), (scored & ~members).sum()) < _FEWEST:
                missed = ControlResult(words, False, "it could not be attacked", detail="AUC", end_to_end=True)
                controls.append((missed, None))
                continue
            shown = separation(scores, members, own.blocks[rows], LOOKS)
            control = replace(shown.control(words, end_to_end=True), alone=shown.p <= ALONE / LOOKS)
            senders, labels = own.senders[rows], own.labels[rows]
            if control.caught and (untold := _untold(scores, members, senders) or _alone(scores, members, labels)):
                shown_too = f"{control.shown}, but not those of {untold}"
                control = replace(control, detected=False, alone=False, shown=shown_too)
            controls.append((control, shown))
        return controls

    def _positive(self, source: str, context: AttackedContext) -> AttackResult:
        """The attack on a release that gives the same candidates away, shared by cells that differ in epsilon."""
        key = f"membership/{source}/{context.attack_key}/{context.method_key}"

        def attacked() -> AttackResult:
            try:
                return context.attack(*leaking(source, context))
            except NotRunError:
                # An attack on sums of a method's own networks has nothing to read in raw features.
                return AttackResult("")

        return context.data.once(key, attacked)

    def _negative(self, context: AttackedContext, truth: Bools, blocks: NDArray[np.str_]) -> _Negative | None:
        """The same questions about releases to which all candidates are strangers; None where there are none."""
        for ask in (self._halves, self._fresh):
            try:
                return ask(context, truth, blocks)
            except FedassayError:
                continue
        return None

    def _halves(self, context: AttackedContext, truth: Bools, blocks: NDArray[np.str_]) -> _Negative:
        """A release of each half of every client's records, asked about the other half."""
        rng = context.seeds.numpy("membership", "halves")
        candidates, _ = pooled_blocks(context.game)
        first = [half_of_each(client.labels, rng, client.groups) for client in context.data.clients]
        second = [
            np.setdiff1d(np.arange(len(client)), rows)
            for client, rows in zip(context.data.clients, first, strict=True)
        ]
        if not all(len(rows) for rows in (*first, *second)):
            raise NotRunError("a client is too small to be halved")
        scores: dict[str, NDArray[np.floating]] = {}
        groups, free = [""] * len(truth), np.ones(len(truth), np.bool_)
        for number, half in enumerate((first, second)):
            clients = tuple(client.take(rows) for client, rows in zip(context.data.clients, half, strict=True))
            asked = non_members(candidates, clients, truth, blocks, free, rng)
            for key, values in self._asked(clients, context, number).scores.items():
                scores.setdefault(key, np.full(len(truth), np.nan))[asked] = values[asked]
            for row in np.flatnonzero(asked):
                groups[row] = f"{number}/{blocks[row]}"
            free &= ~asked
        if min((~free & truth).sum(), (~free & ~truth).sum()) < _FEWEST:
            raise NotRunError("too few candidates are strangers to a half of the clients' records")
        words = "releases of either half of every client's records, asked about the other half"
        return _Negative(scores, np.array(groups, np.str_), words)

    def _fresh(self, context: AttackedContext, truth: Bools, blocks: NDArray[np.str_]) -> _Negative:
        """A release of fresh records."""
        clients = fresh_clients(context, context.data.fresh.without(pooled_blocks(context.game)[0]))
        scores = self._asked(clients, context, 0).scores
        return _Negative(scores, blocks, "the same questions about a release computed from fresh records")

    def _asked(self, clients: tuple[Records, ...], context: AttackedContext, number: int) -> AttackResult:
        outcome = context.method.run_on(clients, context.seeds.child("membership", "negative", number))
        return context.attack(visible(outcome, context.view.threat), context.game)


def _solved(result: AttackResult, context: AttackedContext) -> list[ControlResult]:
    """Controls of an attack that solves sums: exact sums, and noised ones where messages are noised."""
    if "named" not in result.artifacts:
        return []
    noised = [noised_control(context)] if context.view.protected else []
    return [solved_control(context), *noised]


def _allowed(claim: Claim, trials: Trials) -> tuple[Allowed | None, tuple[str, ...]]:
    """Return the claim's allowance for a trial, None where nothing is claimed of it; and remarks on trials."""
    allowed, remark = allowed_of(claim, trials.most, person=trials.person)
    return allowed, (*((_PERSONS.format(trials.most),) if trials.person else ()), *remark)


def _beside(key: str, asked: _Answers, context: AttackedContext) -> dict[str, Metric]:
    """Figures beside those of a test of persons."""
    if not asked.trials.person:
        return {}
    senders = np.concatenate([[name] * len(each) for name, each in context.game.questions.items()])
    rng = context.seeds.numpy("membership", "persons", key)
    return person_metrics(asked.result.scores[key], asked.truth, senders, asked.trials, rng)


def _unanswered(asked: _Answers) -> list[Finding]:
    """Findings on a release without an answer, or on sources that the attack answers elsewhere or gave up."""
    result = asked.result
    if not result.scores:
        return [not_run(membership(None, None, result.attack), "; ".join(result.notes))]
    scored = {key.split("/")[0] for key in result.scores}
    known = set() if isinstance(asked.own, str) else {key.split("/")[0] for _, key in asked.own.scores}
    notes = given_up(result, scored)
    findings = [
        inconclusive(
            membership(source, None, result.attack),
            "; ".join((_NO_ANSWER, *notes.get(source, ()))),
        )
        for source in sorted(known - scored)
    ]
    others = {source: own for source, own in notes.items() if source not in known}
    return findings + [
        not_run(membership(source, None, result.attack), "; ".join(own)) for source, own in others.items()
    ]


def _asked_elsewhere(made: Finding) -> Finding:
    figures = Figures(made.metrics, made.baseline, made.assumptions, series=made.series)
    subject = Subject(made.audit, made.attack, made.source, made.selection)
    return not_run(subject, f"{_FOLLOWS}: {made.reason}", figures, Obstacle(kind="asked_elsewhere"))


def _by_model_alone(finding: Finding) -> bool:
    return finding.source == "model" and finding.rule == "positive_control_missed"


def _follows(findings: Sequence[Finding], context: AttackedContext) -> bool:
    """Whether the model is computed from sums that the adversary sees, and that the attack is caught on, too."""
    seen = context.view.from_clients()
    kinds = kinds_in(seen)
    sent = any(sender != SERVER for sender, _ in context.view.models) or kinds & {"parameters", "gradient", "head"}
    of_messages = [finding for finding in findings if finding.source == "messages"]
    working = bool(of_messages) and all(finding.rule != "positive_control_missed" for finding in of_messages)
    return not sent and bool(seen) and working


def _open(control: ControlResult, shown: Separation | None) -> bool:
    """Whether the attack may yet catch a missed control with more members."""
    return not control.caught and shown is not None and shown.p <= _PROMISING and shown.value > 0.5


def _untold(scores: NDArray[np.floating], members: Bools, senders: NDArray[np.str_]) -> str:
    """Return a client with undetected members, scored worse than the other clients' members; empty: there is none.

    Only clients with enough members for a test of their own are tested, at 5 % over all of them.
    """
    known, names = ~np.isnan(scores), np.unique(senders)
    for sender in names:
        (inside, outside), others = (
            tuple(scores[whose & part & known] for part in (members, ~members))
            for whose in (senders == sender, senders != sender)
        )
        if min(len(inside), len(outside)) < _ENOUGH or auc_below_half(inside, outside) <= 0.05:
            continue
        own = auc(outside, inside, confidence=1 - 0.1 / len(names))
        rest = auc(*others[::-1]) if min(map(len, others)) > 1 else None
        if rest is not None and own.high is not None and rest.value is not None and own.high < rest.value:
            return str(sender)
    return ""


def _alone(scores: NDArray[np.floating], members: Bools, labels: NDArray[np.str_]) -> str:
    """Return the label that alone carries the leak, at 5 %, as a clause on all others; empty: there is none."""
    known = ~np.isnan(scores)
    for label in np.unique(labels):
        inside, outside = (scores[(labels != label) & part & known] for part in (members, ~members))
        if min(len(inside), len(outside)) >= _ENOUGH and auc_below_half(inside, outside) > 0.05:
            return f"labels other than {label}"
    return ""


def _limit(
    ours: Separation,
    silent: Separation,
    own: Sequence[Separation | None],
    against: Allowed | None,
    rng: np.random.Generator,
) -> Limit | str:
    """The smallest leak that this many candidates would have shown, of the verdict's own test."""
    positives = tuple((each.outside, each.inside) for each in own if each is not None)
    size = Size(len(ours.outside), len(ours.inside), ours.tests, against)
    return detectable(size, (silent.outside, silent.inside), positives, rng)


def _truth(context: AttackedContext) -> tuple[Bools, NDArray[np.str_]]:
    clients = {client.name: client for client in context.data.clients}
    members = [is_member(asked, clients[name]) for name, asked in context.game.questions.items()]
    return np.concatenate(members), pooled_blocks(context.game)[1]


def _shuffled(truth: Bools, blocks: NDArray[np.str_], rng: np.random.Generator) -> Bools:
    """The truth with members drawn anew within every block."""
    shuffled = truth.copy()
    for block in np.unique(blocks):
        rows = np.flatnonzero(blocks == block)
        shuffled[rows] = truth[rng.permutation(rows)]
    return shuffled
