"""Can members be told from others, and better than a claim allows?

Truth joined to the scores of the attack `membership`, one finding for each thing it looked at and each test;
beside them, the informed adversary who knows every record but one (`informed`), and, where asked for,
canaries planted into one private training run (`canaries`).

Positive control: a release that gives membership away to the same test (`controls`). Negative control:
the same questions about releases of the same method that were computed from either half of every client's records,
to which the client's other half are strangers, too. Where members and strangers are not of one distribution (a
client's own domain, a test set of other origin), any release of that client's distribution tells them apart, and
the control is flagged. Where clients are too small to be halved, the release is computed from fresh records; at
last, the truth is shuffled among the candidates of each client and label.

Verdict. Without a claim, `leak` where members are told better than by chance. Under a claim of (epsilon, delta),
`leak` where a lower bound shows more than the claim allows: a claim permits some membership inference, and says
how much. Where so few candidates could not show more whatever leaks, and members are told at all, `inconclusive`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedassay.audits.membership.canaries import canary_finding
from fedassay.audits.membership.controls import WORDS, leaking, pooled_blocks, strangers, without
from fedassay.audits.membership.informed import informed_findings
from fedassay.audits.membership.roc import Told, allowed_by, told_in_one_release
from fedassay.audits.membership.verdict import finding, not_run
from fedassay.audits.simulation import fresh_clients
from fedassay.contracts.audit import AttackedContext, AttackResult, AuditContext
from fedassay.contracts.membership import half_of_each, is_member, visible
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyClaim
from fedassay.records.record import Finding
from fedassay.support.errors import FedassayError, NotRunError
from fedassay.support.registry import register
from fedassay.support.types import Parameters

Bools = NDArray[np.bool_]


_FEWEST = 4
"""Members and strangers that a test takes, at least."""


@dataclass(frozen=True, eq=False)
class _Negative:
    """The attack on releases to which all candidates are strangers.

    Attributes:
        scores: By source and test, NaN for candidates that were not asked about.
        blocks: The exchangeable group of each candidate.
        words: What was released.
    """

    scores: Mapping[str, NDArray[np.floating]]
    blocks: NDArray[np.str_]
    words: str


@register("audit", "membership")
class MembershipAudit(Parameters):
    """Are members told from others, and better than the claim of privacy allows."""

    reads: ClassVar[tuple[str, ...]] = ("membership",)
    tests_per_cell: ClassVar[int] = 13

    trials: int = Field(default=30, ge=0)
    """Of the informed adversary against exact releases: three runs of the method each; 0: not tried."""
    releases: int = Field(default=4000, ge=0)
    """Of the informed adversary against noised statistics: releases on either side; 0: not tried."""
    canaries: int = Field(default=0, ge=0)
    """Records planted at random into one run of a private training; 0: none."""

    def assess(self, result: AttackResult, context: AttackedContext) -> list[Finding]:
        """One finding for each source and test, then the informed adversary and the canaries."""
        if not context.game.questions:
            raise NotRunError("there are no candidates: no record outside the clients shares a label with theirs")
        truth, blocks = _truth(context)
        # The method runs again for it, which is for nothing where nothing was scored.
        negative = self._negative(context, truth, blocks) if result.scores else None
        positives = {
            source: self._positive(source, context) for source in {key.split("/")[0] for key in result.scores}
        }
        found = []
        for key in result.scores:
            source, test = key.split("/")
            found.append(self._finding(source, test, result, positives[source], negative, truth, blocks, context))
        if not found:
            found.append(not_run(None, None, "; ".join(result.notes)))
        found += informed_findings(context, trials=self.trials, releases=self.releases)
        if self.canaries:
            found.append(canary_finding(context, self.canaries))
        return found

    def _finding(
        self,
        source: str,
        test: str,
        result: AttackResult,
        positive: AttackResult,
        negative: _Negative | None,
        truth: Bools,
        blocks: NDArray[np.str_],
        context: AuditContext,
    ) -> Finding:
        key = f"{source}/{test}"
        scores = result.scores[key]
        if min(int((~np.isnan(scores) & truth).sum()), int((~np.isnan(scores) & ~truth).sum())) < _FEWEST:
            return not_run(source, test, "fewer than 4 members or strangers could be scored")
        claim = context.outcome.transcript.claim
        allowed = allowed_by(claim, replaced=True) if isinstance(claim, PrivacyClaim) else None
        delta = 0.0 if allowed is None else allowed.delta
        rng = context.seeds.numpy("membership", key)

        def told(values: NDArray[np.floating], members: Bools, groups: NDArray[np.str_]) -> Told:
            given = np.asarray(values, np.float64)
            return told_in_one_release(given, members, groups, rng, delta=delta, tests=context.bounds)

        ours = told(scores, truth, blocks)
        leaks = told(positive.scores[key], truth, blocks) if key in positive.scores else None
        words = "the truth shuffled among the candidates of each client and label"
        if negative is not None and key in negative.scores:
            words = negative.words
            silent = told(negative.scores[key], truth, negative.blocks)
        else:
            silent = told(scores, _shuffled(truth, blocks, rng), blocks)
        return finding(
            source,
            test,
            ours,
            (leaks, WORDS[source]),
            (silent, words),
            allowed,
            adjacency="for one replaced record of the same label",
            assumptions=(
                "candidates: as many members as strangers (test role), client by client and label by label; the "
                "adversary knows the method and how many records of each class a client has",
                f"levels are 0.05 over {context.bounds}, the number of tests in the run",
            ),
        )

    def _positive(self, source: str, context: AttackedContext) -> AttackResult:
        """The attack on a release that gives the same candidates away."""
        return context.attack(*leaking(source, context))

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
        first = [half_of_each(client.labels, rng) for client in context.clients]
        second = [
            np.setdiff1d(np.arange(len(client)), rows) for client, rows in zip(context.clients, first, strict=True)
        ]
        if not all(len(rows) for rows in (*first, *second)):
            raise NotRunError("a client is too small to be halved")
        scores: dict[str, NDArray[np.floating]] = {}
        groups, free = [""] * len(truth), np.ones(len(truth), np.bool_)
        for number, half in enumerate((first, second)):
            clients = tuple(client.take(rows) for client, rows in zip(context.clients, half, strict=True))
            asked = strangers(candidates, clients, truth, blocks, free, rng)
            found = self._asked(clients, context, number).scores
            for key, values in found.items():
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
        clients = fresh_clients(context, without(context.fresh, pooled_blocks(context.game)[0]))
        scores = self._asked(clients, context, 0).scores
        return _Negative(scores, blocks, "the same questions about a release computed from fresh records")

    def _asked(self, clients: tuple[Records, ...], context: AttackedContext, number: int) -> AttackResult:
        outcome = context.rerun(clients, context.seeds.child("membership", "negative", number))
        return context.attack(visible(outcome, context.view.threat), context.game)


def _truth(context: AttackedContext) -> tuple[Bools, NDArray[np.str_]]:
    clients = {client.name: client for client in context.clients}
    members = [is_member(asked, clients[name]) for name, asked in context.game.questions.items()]
    return np.concatenate(members), pooled_blocks(context.game)[1]


def _shuffled(truth: Bools, blocks: NDArray[np.str_], rng: np.random.Generator) -> Bools:
    """The truth with members drawn anew within every block."""
    shuffled = truth.copy()
    for block in np.unique(blocks):
        rows = np.flatnonzero(blocks == block)
        shuffled[rows] = truth[rng.permutation(rows)]
    return shuffled
