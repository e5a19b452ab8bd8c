"""Declared noise, measured: the method runs again on the same records with other seeds, so variation is noise.

This does not depend on how a method draws its noise. Every run is in a process that never ran the method, its
first run is one of them, and beneath the noise lie the same records; so the deviations between runs are held
against the declared scale (`fedassay.audits.claim.captured_again`). Different hidden coins add to them and never
subtract: too little noise refutes a declaration, and too much means that nothing was measured.

Noise that was drawn from the noise mechanism is computed again exactly, and later processing of it reduces no
protection: there the measurement refutes no claim. It does decide how much noise attacks and rules may assume.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fedassay.audits.claim.captured_again import MeasuredNoise, measured_noise
from fedassay.audits.claim.declared_noise import LEVEL, declared_noise
from fedassay.audits.claim.tape.answers import Attempt
from fedassay.audits.claim.tape.coverage import coverage
from fedassay.contracts.audit import AuditContext
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import Message, MessageField, Transcript
from fedassay.support.errors import DataError, NotRunError

FEWEST, MOST = 3, 12
"""Runs beside the first one: as many as tell three quarters of the noise from all of it, within these."""
_WANTED = 0.75
_ADDED = ("gaussian", "pure")
_NONE = 1e-3
"""Share of the declared noise that counts as no noise."""


@dataclass(frozen=True)
class Measured:
    """Measured noise of a cell from runs on the same records.

    Attributes:
        fields: One result for every field that declares Gaussian noise.
        still: Such fields that are the same to the bit in every run, as sent by some client, and by whom.
        runs: Number of runs, the first included; 0: none could be compared.
        reason: Reason why none could be; empty otherwise.
        status: Status of the question by that reason.
    """

    fields: Mapping[str, MeasuredNoise] = field(default_factory=dict)
    still: Mapping[str, str] = field(default_factory=dict)
    runs: int = 0
    reason: str = ""
    status: Literal["not_asked", "crashed"] = "not_asked"

    def words(self, name: str) -> str:
        """Result for a field, in one clause; empty: none."""
        found = self.fields.get(name)
        if found is None or found.ratio is None:
            why = self.reason or "it is not Gaussian"
            return f"nor could it be measured ({found.reason if found else why})"
        share = (
            f"{found.ratio:.3g} of the declared scale [{found.low:.3g}, {found.high:.3g}] in {self.runs} runs on "
            "the same records"
        )
        if found.outcome == "as_declared":
            return f"its noise was measured, not computed again: {share}; below {found.limit:.2g} would be found"
        if found.outcome == "too_much":
            return f"it varies more than its noise, so that this was not measured: {share}"
        return f"it varies less than its noise would, in {found.where}: {share}"


def measured(context: AuditContext) -> Measured:
    """Measure the declared noise of a cell, once for all that ask.

    Args:
        context: Of the run.
    """
    shared, key = context.data.shared, f"noise measured of {context.io.prefix[0]}"
    kept = shared.get(key)
    if not isinstance(kept, Measured):
        shared[key] = kept = _measured(context)
    return kept


def _measured(context: AuditContext) -> Measured:
    first = _noised(context.outcome.transcript)
    if not first.messages:
        return Measured(reason="no field declares noise that is added")
    undrawn = _undrawn(context)
    runs, found = [first], Measured()
    attempt = Attempt()
    try:
        with attempt:
            while len(runs) <= (MOST if undrawn else FEWEST):
                again = context.reseeded(context.seeds.child("tape", "fresh", len(runs)))
                runs.append(_noised(replace(context.outcome.transcript, messages=again.messages)))
                if len(runs) > FEWEST:
                    found = _compared(runs, LEVEL / max(1, context.num_tests))
                    # The number of runs depends on the count of numbers, never on their values.
                    if not any(_is_coarse(found.fields.get(name)) for name in undrawn):
                        break
    except (NotRunError, DataError) as error:
        return Measured(reason=str(error))
    if attempt.failure:
        return Measured(reason=f"a run with other seeds failed ({attempt.failure})", status="crashed")
    return found


def _compared(runs: Sequence[Transcript], level: float) -> Measured:
    still = _still(runs)
    try:
        fields = {each.field: each for each in measured_noise(runs, level=level)}
    except DataError as error:
        return Measured(still=still, runs=len(runs), reason=f"runs with other seeds do not match: {error}")
    return Measured(fields, still, len(runs))


def _is_coarse(found: MeasuredNoise | None) -> bool:
    """Whether more runs would tell what these do not."""
    return found is not None and found.limit is not None and found.limit < _WANTED


def _undrawn(context: AuditContext) -> set[str]:
    """Fields with noise on no tape."""
    cells = coverage(context.outcome.transcript, context.tape)
    return {name for covered in cells if not covered.draws for name in covered.fields}


def _noised(transcript: Transcript) -> Transcript:
    """The messages of clients that declare noise which is added to values."""
    kept = tuple(
        message
        for message in transcript.from_clients()
        if any(item.release.mechanism in _ADDED and item.size for item in message.fields.values())
    )
    return replace(transcript, messages=kept)


def _still(runs: Sequence[Transcript]) -> dict[str, str]:
    """Fields that are the same to the bit in every run, and who sends them."""
    found: dict[str, str] = {}
    for number, message in enumerate(runs[0].messages):
        for name, item in message.fields.items():
            if item.release.mechanism not in _ADDED or not item.size:
                continue
            others = [run.messages[number].fields.get(name) for run in runs[1:] if number < len(run.messages)]
            if others and all(other is not None and _same(item, other) for other in others):
                found.setdefault(name, f"{message.sender} in round {message.round}")
    return found


def _same(one: MessageField, other: MessageField) -> bool:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return one.values.tobytes() == other.values.tobytes()


def unbelieved(context: AuditContext) -> dict[str, float]:
    """By field, the share of its declared noise that attacks and rules may believe, where that is not all of it.

    Where a field's noise is less, it is the measured share, and none where hardly any was found. Where it is on no
    tape and was not measured, no noise can be assumed. For captured messages only a refuted declaration is not
    believed.

    Args:
        context: Of the run, or of captured messages.
    """
    transcript = context.outcome.transcript
    if not context.data.clients:
        refuted = [each for each in declared_noise(transcript) if each.outcome == "refuted"]
        return dict.fromkeys((each.field for each in refuted), 0.0)
    if not _noised(transcript).messages:
        return {}
    undrawn, found = _undrawn(context), measured(context)
    shares: dict[str, float] = {}
    for name in {name for m in transcript.from_clients() for name in m.fields}:
        own = found.fields.get(name)
        if name in found.still:
            shares[name] = 0.0
        elif own is not None and own.ratio is not None and own.outcome == "too_little":
            shares[name] = own.ratio if own.where == "all messages" else 0.0
        elif name in undrawn and (own is None or own.outcome != "as_declared"):
            shares[name] = 0.0
    return shares


def as_believed(transcript: Transcript, shares: Mapping[str, float]) -> Transcript:
    """A transcript with such shares of the noise in the declarations of its fields."""
    if not shares:
        return transcript
    return replace(transcript, messages=tuple(_with_shares(message, shares) for message in transcript.messages))


def _with_shares(message: Message, shares: Mapping[str, float]) -> Message:
    fields = {
        name: _with_share(item, shares[name]) if name in shares else item for name, item in message.fields.items()
    }
    return replace(message, fields=fields)


def _with_share(item: MessageField, share: float) -> MessageField:
    release = item.release
    if release.mechanism != "gaussian" or release.noise_scale is None:
        return item
    if share < _NONE:
        return replace(
            item, release=exact(release.depends_on, "noise is declared and was not found"), doubted=True
        )
    scales = tuple(share * scale for scale in release.noise_scale)
    return replace(item, release=release.model_copy(update={"noise_scale": scales, "group": None}))
