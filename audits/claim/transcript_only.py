"""A claim over captured messages: the ledger's total, and whether the declared noise can be there.

Captured messages have no tape and cannot be drawn again. A field that cannot hold its declared noise, or has too
little of it between captures of the same records, makes the claim `unsound`. Otherwise the claim is `inconclusive`
where the noise was not measured, and `sound` where all of it was: then only the declared sensitivities are taken
on trust, and the reason says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedassay.audits.claim.captured_again import MeasuredNoise, measured_noise
from fedassay.audits.claim.declared_noise import FieldNoise, declared_noise
from fedassay.audits.claim.judging import disproved, exceeds_claim, ledger_words
from fedassay.audits.claim.ledger_claim import claim_words, ledger_figures, not_audited, whose, worst_of
from fedassay.audits.evidence import Figures, Ground, LedgerVerdict, Subject, TapeVerdict
from fedassay.audits.verdict import conclude_claim
from fedassay.exchange.ledger import Accounted
from fedassay.exchange.release import PrivacyClaim
from fedassay.exchange.transcript import Transcript
from fedassay.records.record import Finding, Metric
from fedassay.support.adjacency import UNIT_WORDS

_NOT_DRAWN_AGAIN = "captured messages cannot be drawn again on neighbouring records"
_HOW = "captures of the same records measure it (fedassay audit --again)"
_UNMEASURABLE = {"pure", "dp_sgd"}


def captured_claim(
    audit: str, transcript: Transcript, accounted: Accounted, again: Sequence[Transcript] = ()
) -> Finding:
    """One finding on the claim of a captured transcript.

    Args:
        audit: Name of the audit that gives it.
        transcript: The messages and their claim.
        accounted: The ledger's total at the delta and under the adjacency of the claim.
        again: The same messages captured again, of the same records.

    Raises:
        DataError: The captures do not match.
    """
    claim = transcript.claim
    figures = ledger_figures(claim, accounted, _NOT_DRAWN_AGAIN)
    if refused := not_audited(audit, claim, figures):
        return refused
    assert isinstance(claim, PrivacyClaim)
    held = declared_noise(transcript)
    measured = measured_noise((transcript, *again)) if again else ()
    assumptions = (
        claim_words(claim),
        f"accounted: everything that leaves, {worst_of(claim)}, on the sensitivities and the noise that the "
        "transcript declares",
        *whose(transcript),
        *(("captures: of the same records, with noise drawn anew for each",) if again else ()),
    )
    figures = Figures({**figures.metrics, **_figures(held, measured)}, assumptions=assumptions)
    return conclude_claim(Subject(audit), _ground(claim, accounted, transcript, held, measured), figures)


def _ground(
    claim: PrivacyClaim,
    accounted: Accounted,
    transcript: Transcript,
    held: Sequence[FieldNoise],
    measured: Sequence[MeasuredNoise],
) -> Ground:
    ledger = ledger_words(claim, accounted, transcript)
    missing = [field.words for field in held if field.outcome == "refuted"]
    missing += [field.words for field in measured if field.outcome == "too_little"]
    if missing:
        words = f"{'; '.join(missing)}: it was left out, or is less"
        return TapeVerdict("unsound", disproved(words, claim, accounted, ledger))
    if exceeds_claim(accounted, claim):
        return LedgerVerdict("unsupported", f"{ledger}; no attack tested it: {_NOT_DRAWN_AGAIN}")
    odd = [field.words for field in measured if field.outcome == "too_much"]
    if odd:
        words = f"{'; '.join(odd)}: the captures are not of the same records, or carry more noise"
        return TapeVerdict("inconclusive", f"{words}, so nothing was measured; {ledger}")
    left = _not_measured(transcript, measured)
    if not measured:
        can = any(field.outcome == "not_refuted" for field in held)
        aside = " (the messages can hold it, which proves nothing)" if can else ""
        return TapeVerdict("inconclusive", f"{ledger}; that the noise was added was not tested{aside}: {_HOW}")
    if left:
        return TapeVerdict("inconclusive", f"{ledger}; {'; '.join(left)}")
    shown = "; ".join(field.words for field in measured)
    # Messages show the noise that was drawn, never what another record would have put into it.
    return LedgerVerdict(
        "not_refuted",
        f"{ledger}; {shown}; that {UNIT_WORDS[claim.unit]} moves no more than the declared sensitivity was not "
        "tested",
    )


def _not_measured(transcript: Transcript, measured: Sequence[MeasuredNoise]) -> list[str]:
    """Protections of the transcript that were not measured, in words."""
    left = [field.words for field in measured if field.outcome == "not_measured"]
    others = {
        name: item.release.mechanism
        for message in transcript.from_clients()
        for name, item in message.fields.items()
        if item.release.mechanism in _UNMEASURABLE and item.size
    }
    return left + [f"the noise of {name} ({mechanism}) was not measured" for name, mechanism in others.items()]


def _figures(held: Sequence[FieldNoise], measured: Sequence[MeasuredNoise]) -> dict[str, Metric]:
    """The smallest p-value of "the noise is there", and the share of declared noise with the least upper end.

    The smallest share over fields would be that of the field with the fewest draws.
    """
    found: dict[str, Metric] = {}
    tested = [field for field in held if field.outcome != "not_tested"]
    if tested:
        least = min(tested, key=lambda field: field.log10_p)
        found["noise_p"] = Metric(
            value=10 ** max(least.log10_p, -300.0),
            n=sum(field.draws for field in tested),
            reason=f"of {least.field}: that its entries carry the declared noise, corrected for all blocks",
        )
    shares = [field for field in measured if field.high is not None]
    if shares:
        worst = min(shares, key=lambda field: (field.outcome != "too_little", field.high or 0.0))
        found["noise_measured"] = Metric(
            value=worst.ratio,
            low=worst.low,
            high=worst.high,
            n=worst.draws,
            reason=f"of {worst.field}: noise between captures over the declared",
        )
    return found
