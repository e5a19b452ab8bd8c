"""From claimed, accounted and observed epsilon to what a verdict on the claim stands on, in plain words.

- `inconclusive`: a control failed (`fedassay.audits.verdict`).
- `unsound`: the claim is disproved: a lower bound at confidence 1 - 0.05/m exceeds it (m the number of
  bounds in the run), or what left is not what was declared: one of the three questions to the run with its tape
  failed (`fedassay.audits.claim.tape`).
- `unsupported`: what leaves adds up to more than is claimed, or an attack shows more than what is declared
  adds up to, or a question could not be asked.
- `not_refuted`: neither, and the three questions passed, but how far a record can move what is sent is known for
  the neighbours that were tried alone (`fedassay.audits.claim.tape.worst_case`).
- `sound`: the worst case is known as well.

The Gaussian-DP estimate rests on normal scores, which is tested but not known. Where the ledger supports a
claim, an estimate above both is a contradiction, and the claim falls. Where the ledger rejects the claim
already, the estimate computes with the ledger's own law; so it counts as a disproof of its own only from
10 % above the claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from fedassay.audits.claim.bounds import Observation
from fedassay.audits.claim.tape.questions import TapeAnswers
from fedassay.audits.evidence import ControlResult, Ground, LedgerVerdict, RunsVerdict, TapeVerdict
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.registry import declared
from fedassay.exchange.colluders import colluders_of
from fedassay.exchange.ledger import Accounted
from fedassay.exchange.release import PrivacyClaim
from fedassay.exchange.transcript import MessageField, Transcript
from fedassay.support.adjacency import UNIT_WORDS
from fedassay.support.epsilon import exceeds, numbers
from fedassay.support.registry import entries

_SLACK = 1 + 1e-6  # rounding of calibration and accounting
_MARGIN = 1.1  # of an estimate that assumes the law of its scores


def ground_of(
    claim: PrivacyClaim,
    accounted: Accounted,
    observation: Observation | None,
    why: str,
    asked: TapeAnswers,
    context: AuditContext,
) -> Ground:
    """Return the grounds of the verdict on a claim.

    Args:
        claim: The claim.
        accounted: The ledger's total, at the delta and under the adjacency of the claim.
        observation: The result of an attack, with its controls, or None.
        why: Reason why there is no observation.
        asked: The answers to the questions about the releases.
        context: Its transcript's field names, and the number of bounds in the run.
    """
    ledger = ledger_words(claim, accounted, context.outcome.transcript)
    controls = () if observation is None else controls_of(observation)
    if asked.failed:
        return TapeVerdict("unsound", disproved(asked.failed, claim, accounted, ledger), *controls)
    if observation is None:
        if exceeds_claim(accounted, claim):
            return LedgerVerdict("unsupported", f"{ledger}; no attack tested it: {why}")
        verdict: Literal["sound", "not_refuted", "unsupported", "unsound"] = "sound"
        reason = f"{ledger}; this rests on the ledger and the run's tape, no attack tested it: {why}"
    else:
        verdict, reason = _observed(claim, accounted, observation, ledger, context.num_tests)
    left = asked.open if verdict == "sound" else None
    if left is not None and left.verdict != "not_refuted":
        return TapeVerdict(left.verdict, f"{left.reason}; {reason}", *controls)
    if verdict == "sound":
        reason = f"{reason}; {asked.passed}{_secrecy(context)}"
    if left is not None:
        verdict, reason = "not_refuted", f"{left.reason}; {reason}"
    if observation is None:
        return LedgerVerdict("sound" if left is None else "not_refuted", reason)
    return RunsVerdict(verdict, reason, ledger, *controls_of(observation))


def refuted(claim: PrivacyClaim, accounted: Accounted, observation: Observation | None, tests: int) -> bool:
    """Whether measured runs refute, with controls that hold, what the ledger does not support either.

    Nothing else can save such a claim, and why it falls is known. Where the ledger is content with it, what is not
    as declared is still to be found.
    """
    if observation is None or not observation.positive.above or observation.negative.above:
        return False
    return exceeds_claim(accounted, claim) and _observed(claim, accounted, observation, "", tests)[0] == "unsound"


def disproved(found: str, claim: PrivacyClaim, accounted: Accounted, ledger: str) -> str:
    """Words on a disproof; the ledger's words follow only where the accounted total exceeds the claim."""
    return f"{found}; {ledger}" if exceeds_claim(accounted, claim) else found


def _secrecy(context: AuditContext) -> str:
    """Noise that everybody can draw again protects nothing outside of an experiment."""
    if context.tape.root is None or context.tape.root.seed is None:
        return ""
    return (
        f"; the noise follows from the seed {context.tape.root.seed} and is no secret: such messages are for tests"
    )


def _observed(
    claim: PrivacyClaim, accounted: Accounted, observation: Observation, ledger: str, tests: int
) -> tuple[Literal["sound", "not_refuted", "unsupported", "unsound"], str]:
    """Verdict and reason from measured runs where both controls hold."""
    bounds, shown = observation.bounds, _shown(observation)
    level = f"at confidence 1 - 0.05/{tests}"
    if bounds.certain:
        return "unsound", f"{ledger}; {shown}"
    judged, proven = map(claim.guarantee.like, (bounds.judged, bounds.proven))
    if exceeds(judged, accounted.total, _SLACK):
        return "unsound" if exceeds(judged, claim.guarantee) else "unsupported", (
            f"an attack shows at least {bounds.judged:.4g} {level}, more than the {accounted.total} that "
            f"the ledger adds up to: the mechanism is not what the method declares (claimed {claim.epsilon:g})"
        )
    if exceeds(proven, claim.guarantee) or exceeds(judged, claim.guarantee, _MARGIN):
        words = f"an attack shows at least {bounds.judged:.4g} {level}, above the claimed {claim.guarantee}"
        return "unsound", "; ".join(part for part in (words, observation.stopped, ledger) if part)
    if exceeds_claim(accounted, claim):
        return "unsupported", f"{ledger}; {shown}"
    total, seen = numbers([accounted.total, claim.guarantee.like(bounds.observed.epsilon or 0.0)])
    return "sound", f"{ledger}; {shown}, a gap of {max(total - seen, 0.0):.2g}"


def controls_of(observation: Observation) -> tuple[ControlResult, ControlResult]:
    """The positive and the negative control of measured runs."""
    positive, negative = (
        ControlResult(
            control.release,
            detected=control.above,
            shown=f"{control.release} show {control.bounds.judged:.3g}, a {control.detail}",
            value=control.bounds.observed.epsilon,
            n=2 * control.bounds.n,
            detail=control.detail,
        )
        for control in (observation.positive, observation.negative)
    )
    return positive, negative


def exceeds_claim(accounted: Accounted, claim: PrivacyClaim) -> bool:
    """Whether the ledger adds up to more than is claimed, rounding aside."""
    return exceeds(accounted.total, claim.guarantee, _SLACK)


def ledger_words(claim: PrivacyClaim, accounted: Accounted, transcript: Transcript) -> str:
    """Words on the ledger's total beside the claim, or on the reason why it is infinite."""
    if accounted.exact_fields:
        return _exact_words(accounted.exact_fields, claim, transcript)
    if not accounted.total.finite:
        return f"what leaves is unbounded: {accounted.reason}"
    if exceeds_claim(accounted, claim):
        stated = ""
        if accounted.total_stated != accounted.total:
            stated = f" ({accounted.epsilon_stated:.4g} on the source's own stated ones)"
        colluders = len(colluders_of(transcript.messages))
        shares = f", with {colluders} of the clients telling the server their noise" if colluders else ""
        return (
            f"what leaves adds up to {accounted.total} on exact sensitivities{stated}{shares}, above the claimed "
            f"{claim.epsilon:g} at delta {claim.delta:g}"
        )
    return f"what leaves adds up to {accounted.total}, within the claimed {claim.epsilon:g}"


def _exact_words(names: tuple[str, ...], claim: PrivacyClaim, transcript: Transcript) -> str:
    """Words on the fields that leave exactly, and on their meaning under the claim's adjacency."""
    fields = {name: item for message in transcript.messages for name, item in message.fields.items()}
    sent = [_field_words(name, fields[name]) for name in names if fields[name].size]
    # A field without values stands for a dependence on the records that no message shows.
    unsent = [_field_words(name, fields[name]) for name in names if not fields[name].size]
    clauses = []
    if sent:
        many = len(sent) > 1 or sent[0].rstrip(")").endswith("s")
        clauses.append(
            f"{listed(sent)} {'leave' if many else 'leaves'} exactly: under {claim.adjacency} "
            f"{UNIT_WORDS[claim.unit]} changes {'them' if many else 'it'}"
        )
    if unsent:
        clauses.append(f"no noise covers {listed(unsent)}")
    return f"{' and '.join(clauses)}, so no finite epsilon holds{_instead(names, claim, transcript)}"


def _instead(names: tuple[str, ...], claim: PrivacyClaim, transcript: Transcript) -> str:
    """Remedy for a finite total: the plan key where counts leave exactly, else the method's line."""
    own = entries("method").get(transcript.method)
    if own is None:
        return ""
    exact = [
        message.fields[name].release for message in transcript.messages for name in names if name in message.fields
    ]
    counts = declared("method", own.name).component.model_fields.get("counts")
    options = () if counts is None else get_args(counts.annotation)
    noised = next((option for option in options if option != "exact"), None)
    if noised is not None and all(release.depends_on != "records" for release in exact):
        public = (
            "; replace_one_same_label makes counts public" if claim.adjacency != "replace_one_same_label" else ""
        )
        return f": `counts: {noised}` in the entry of {own.name} noises them{public}"
    if own.module.startswith("fedassay."):
        return ""
    return ': in the method, give each a `Release(mechanism="gaussian", ...)` and its noise from `task.mechanism`'


def _field_words(name: str, item: MessageField) -> str:
    """A field's name in words, with what it holds where the name does not say so."""
    if item.kind == "other":
        return f'"{name}"'
    words = name.replace("_", " ")
    return words if item.kind == name else f"{words} ({item.kind.replace('_', ' ')})"


def _shown(observation: Observation) -> str:
    bounds = observation.bounds
    epsilon = bounds.observed.epsilon
    aside = "".join(f"; {part}" for part in (observation.stopped, observation.remark) if part)
    if bounds.certain:
        return (
            f"an attack distinguished all {2 * bounds.n:,} releases, which shows at least {epsilon:.3g} (95 %), "
            f"the most that so many can show{aside}"
        )
    if not epsilon:
        return f"an attack shows nothing (95 %{aside})"
    return f"an attack shows at least {epsilon:.3g} (95 %{aside})"


def listed(names: Sequence[str]) -> str:
    """Names as an English list."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
