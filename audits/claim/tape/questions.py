"""The questions to a run with its tape, asked together: without them no claim is `sound`.

A failed question disproves the claim. One that could not be asked leaves it unsupported, one that crashed
inconclusive. Where all passed but the worst case is not known, the claim was not refuted and no more. What was
asked and passed is no proof: the words say what was tried.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from fedassay.audits.claim.tape.added import noise_answer
from fedassay.audits.claim.tape.answers import QUESTIONS, Answer, Attempt, Question, answered
from fedassay.audits.claim.tape.coverage import Covered, coverage
from fedassay.audits.claim.tape.declared import Declared
from fedassay.audits.claim.tape.exact import exact_answer
from fedassay.audits.claim.tape.farthest import PAIRS, Farthest, farthest
from fedassay.audits.claim.tape.follows import Followed, follows
from fedassay.audits.claim.tape.replays import Replays
from fedassay.audits.claim.tape.sensitivity import OF_TRAININGS, REPLAYS, Search
from fedassay.audits.claim.tape.worst_case import WorstCase
from fedassay.contracts.audit import AuditContext
from fedassay.exchange.ledger import Accounted
from fedassay.exchange.release import PrivacyClaim
from fedassay.exchange.transcript import MessageField
from fedassay.privacy.gaussian import mu_of
from fedassay.records.record import TapeAnswer
from fedassay.support.errors import NotRunError

_MANY = 400
"""From so many tests in a run on, cells that send alike share the answers about replays."""

_REPLAYED: tuple[Question, ...] = ("sensitivity", "rest", "worst_case")
"""Questions that the method is run again for."""

_SLACK = 1e-3
"""Rounding of what is moved."""

_REFUTED = "releases refute the claim, and the ledger does not support it: the run was not replayed"


class Open(NamedTuple):
    """State of a claim while a question has no answer, and the reason."""

    verdict: Literal["unsupported", "inconclusive", "not_refuted"]
    reason: str


@dataclass(frozen=True)
class TapeAnswers:
    """The answers of a cell.

    Attributes:
        answers: One for each question.
    """

    answers: tuple[Answer, ...]

    def of(self, status: str) -> tuple[Answer, ...]:
        """The answers with a status."""
        return tuple(answer for answer in self.answers if answer.status == status)

    @property
    def rows(self) -> tuple[TapeAnswer, ...]:
        """The answers for the record."""
        return tuple(
            TapeAnswer(question=a.question, status=a.status, field=a.field, p=a.p, words=a.words)
            for a in self.answers
        )

    @property
    def failed(self) -> str:
        """Words on the answers that disprove the claim; empty: none."""
        return "; ".join(answer.words for answer in self.of("failed"))

    @property
    def open(self) -> Open | None:
        """Consequence of an unanswered question for the claim; None where all passed."""
        if crashed := self.of("crashed"):
            return Open("inconclusive", _words(crashed))
        left = self.of("not_asked")
        if others := [answer for answer in left if answer.question != "worst_case"]:
            return Open("unsupported", _words(others))
        return Open("not_refuted", _words(left)) if left else None

    @property
    def passed(self) -> str:
        """Words on the trials that passed."""
        return "; ".join(answer.words for answer in self.of("passed"))


def _words(answers: Sequence[Answer]) -> str:
    return "; ".join(f"{QUESTIONS[answer.question]} is not known: {answer.words}" for answer in answers)


def ask(
    claim: PrivacyClaim,
    accounted: Accounted,
    context: AuditContext,
    replays: int | None = None,
    *,
    pairs: int = PAIRS,
    refuted: bool = False,
) -> TapeAnswers:
    """Ask the questions of a cell, once for all of its audits.

    Args:
        claim: The claim.
        accounted: The ledger's total, at the delta and under the adjacency of the claim.
        context: Of the run, with its tape.
        replays: On neighbouring records, at most; None: `REPLAYS`, or `OF_TRAININGS` where trainings are private.
        pairs: Of neighbours that are searched for the worst, where it is not known; 0: none.
        refuted: Whether the claim is refuted without replays: what takes these is not asked then.
    """
    if refuted:
        # Another audit may ask for all answers, and who asks first must decide nothing: these are not kept.
        cells = coverage(context.outcome.transcript, context.tape)
        noise = _safely("noise", lambda: noise_answer(context, cells))
        return TapeAnswers((noise, *(Answer(question, "not_asked", _REFUTED) for question in _REPLAYED)))
    shared, key = context.data.shared, name_of(context.io.prefix[0], claim, replays, pairs)
    kept = shared.get(key)
    if not isinstance(kept, TapeAnswers):
        most = replays or (OF_TRAININGS if context.tape.trainings else REPLAYS)
        shared[key] = kept = _asked(claim, accounted, context, most, pairs)
    return kept


def name_of(cell: str, claim: PrivacyClaim, replays: int | None = None, pairs: int = PAIRS) -> str:
    """Key that shares the answers of a cell, with the number of replays where a plan gives it."""
    asked = "" if replays is None else f"/{replays}"
    asked += "" if pairs == PAIRS else f"/{pairs} pairs"
    return f"tape of {cell}/{claim.model_dump_json()}{asked}"


def searched(context: AuditContext, claim: PrivacyClaim, pairs: int) -> Farthest:
    """The worst neighbours of a cell that a search finds, once for all who ask."""
    shared = context.data.shared
    key = f"farthest of {name_of(context.io.prefix[0], claim, None, pairs)}"
    kept = shared.get(key)
    if not isinstance(kept, Farthest):
        shared[key] = kept = farthest(context, claim, pairs)
    return kept


def _asked(claim: PrivacyClaim, accounted: Accounted, context: AuditContext, most: int, pairs: int) -> TapeAnswers:
    cells = coverage(context.outcome.transcript, context.tape)
    noise = _safely("noise", lambda: noise_answer(context, cells))
    if not context.tape.draws and not context.tape.trainings:
        return TapeAnswers((noise, *_without_tape(context, accounted, claim)))
    key = f"{most} replays, {pairs} pairs of {_signature(context, claim, cells)}"
    shared = context.data.shared
    if context.num_tests >= _MANY and isinstance(kept := shared.get(key), tuple):
        return TapeAnswers(
            (noise, *(replace(answer, words=f"{answer.words} (asked of a cell alike)") for answer in kept))
        )
    replays = Replays(context)
    followed = _followed(claim, accounted, replays, cells)
    if followed.repeated:
        noise = Answer("noise", "failed", followed.repeated, noise.field, noise.p)
    rest = followed.answer
    # Where a field leaves exactly, or something was found already, no more differences are looked for.
    compared = followed.skipped if rest.status == "passed" else None
    declared = Declared(context, cells, claim, accounted.mu)
    search = Search(replays, declared, replays=most, skipped=compared)
    sensitivity = _safely("sensitivity", search.answer)
    if search.rest:
        rest = answered("rest", search.rest, "")
    case = WorstCase(context, cells, claim, search.shared.uncharged)
    worst = _safely("worst_case", case.answer)
    if case.left and pairs and sensitivity.status == rest.status == "passed":
        sensitivity = _safely("sensitivity", lambda: _farther(context, claim, sensitivity, pairs))
    shared[key] = (sensitivity, rest, worst)
    return TapeAnswers((noise, sensitivity, rest, worst))


def _farther(context: AuditContext, claim: PrivacyClaim, passed: Answer, pairs: int) -> Answer:
    """The answer on sensitivity, after a search for the worst neighbours of what is no sum over records."""
    found, allowed = searched(context, claim, pairs), mu_of(claim.epsilon, claim.delta)
    if found.mu <= allowed * (1 + _SLACK):
        words = (
            f"a search over {found.tried:,} more neighbours moves it by at most {found.mu:.4g} standard "
            f"deviations of its noise, where the claim allows {allowed:.4g}"
        )
        return replace(passed, words=f"{passed.words}; {words}")
    words = (
        f"{found.words}: what is sent moves by {found.mu:.4g} standard deviations of its noise, where "
        f"epsilon {claim.epsilon:g} at delta {claim.delta:g} allows {allowed:.4g}: the declared sensitivity is "
        "that of other data"
    )
    return Answer("sensitivity", "failed", words)


def _followed(claim: PrivacyClaim, accounted: Accounted, replays: Replays, cells: Sequence[Covered]) -> Followed:
    """The third question, and the fields that leave exactly where the ledger knows some."""
    names = accounted.exact_fields
    undrawn = {name for covered in cells if not covered.draws for name in covered.fields}
    left = Answer("rest", "not_asked", f"{', '.join(names)}: declared to leave without noise")
    found = [Followed(left)]

    def asked() -> Answer:
        if names:
            return exact_answer(replays.context, claim.adjacency, names, claim.unit) or left
        found.append(follows(replays, claim.adjacency, frozenset(undrawn)))
        return found[-1].answer

    answer = _safely("rest", asked)
    return found[-1]._replace(answer=answer)


def _without_tape(context: AuditContext, accounted: Accounted, claim: PrivacyClaim) -> tuple[Answer, ...]:
    """Nothing was drawn from the noise mechanism: exact fields can be looked at all the same."""
    nothing = "no noise was drawn from task.mechanism"
    rest = Answer("rest", "not_asked", nothing)
    if accounted.exact_fields:
        rest = _safely(
            "rest", lambda: exact_answer(context, claim.adjacency, accounted.exact_fields, claim.unit) or rest
        )
    return (Answer("sensitivity", "not_asked", nothing), rest, Answer("worst_case", "not_asked", nothing))


def _safely(question: Question, asked: Callable[[], Answer]) -> Answer:
    """An answer, whatever happens: what cannot be run was not asked, and what fails has crashed."""
    attempt = Attempt()
    try:
        with attempt:
            return asked()
    except NotRunError as error:
        return Answer(question, "not_asked", str(error))
    return Answer(question, "crashed", f"it failed ({attempt.failure})")


def _signature(context: AuditContext, claim: PrivacyClaim, cells: Sequence[Covered]) -> str:
    """Common part of cells with equal messages: method, fields, sizes and mechanisms, not the scale of noise.

    Sizes of what is derived from releases are left out: a head has as many classes as noise has left.
    """
    transcript = context.outcome.transcript
    fields = [
        (message.round, message.sender, name, item.kind, str(item.dtype), _size(item), item.release.mechanism)
        for message in transcript.messages
        for name, item in message.fields.items()
    ]
    draws = sorted((key.path, entry.shape) for key, entry in context.tape.draws.items())
    alike = repr(
        (
            context.method_key,
            transcript.method,
            claim.adjacency,
            claim.unit,
            fields,
            draws,
            [covered.cell for covered in cells],
        )
    )
    return hashlib.sha256(alike.encode()).hexdigest()


def _size(item: MessageField) -> tuple[int, ...]:
    return () if item.release.mechanism == "derived" else item.shape
