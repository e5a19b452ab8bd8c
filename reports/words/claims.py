"""Faults of a privacy claim and their reasons, by facts alone.

The true reason comes first: noise that is not in the messages, a record that moves a statistic farther than its
noise was sized for, something that is sent beside the ledger. Only then come the accounted total, or an attack's
result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedassay.contracts.registry import judges_the_claim
from fedassay.exchange.kinds import kinds
from fedassay.records.record import CellRecord
from fedassay.reports.words.numbers import beside, short, with_kind
from fedassay.reports.words.sentences import listed
from fedassay.support.epsilon import Epsilon, exceeds

_NOISE_LEVEL = 1e-3
"""p-value up to which captured messages refute that their noise is there."""

Fault = Literal["noise", "sensitivity", "rest", "exact", "observed", "accounted", "unstated"]

_ROUNDING = 1 + 1e-6
_BY_CHANCE = 1.01
"""Largest factor of a 95 % bound over the spent epsilon by chance, where noise is tight."""


@dataclass(frozen=True)
class ClaimFault:
    """Fault of a claim.

    Attributes:
        kind: `noise`: it is missing. `sensitivity`: a record moves more than is declared. `rest`: something else
            depends on records. `exact`: fields are sent without noise. `observed`: an attack shows more.
            `accounted`: what is sent adds up to more. `unstated`: only the record's sentence says.
        refuted: Whether the claim is disproved; it is only unsupported otherwise.
        claimed: The claimed epsilon.
        fields: Names of the fields that it is about.
        shown: The observed or accounted epsilon; None elsewhere.
        share: Of the noise that was found; None where unknown.
        scale: Declared scale of the missing noise, the smallest.
    """

    kind: Fault
    refuted: bool
    claimed: Epsilon
    fields: tuple[str, ...] = ()
    shown: Epsilon | None = None
    share: float | None = None
    scale: float | None = None


def claims(cell: CellRecord) -> bool:
    """Whether a cell claims a finite epsilon."""
    return cell.claimed is not None and cell.claimed.finite


def refuted(cell: CellRecord) -> bool:
    """Whether its claim is disproved: nothing below may be drawn from it then."""
    return claims(cell) and cell.privacy.verdict == "unsound"


def ledger_stands(cell: CellRecord) -> bool:
    """Whether what a cell's ledger adds up to is what is really spent, whatever was claimed.

    It rests on noise that is there, on sensitivities, and on nothing being sent beside it. A claim that is
    disproved for another reason was too small, and leaves it as it is.
    """
    if any(answer.status == "failed" for answer in cell.tape):
        return False
    if not refuted(cell) or cell.claimed is None:
        return True
    if _missing_noise(cell) is not None or not _more(cell.accounted, cell.claimed, _ROUNDING):
        return False
    return cell.accounted is None or not _more(cell.observed, cell.accounted, _BY_CHANCE)


def fault_of(cell: CellRecord) -> ClaimFault | None:
    """Return the fault of a cell's claim; None where it makes none, or it was not shown to be wrong."""
    privacy, claimed = cell.privacy, cell.claimed
    if not claims(cell) or claimed is None:
        return None
    over = _more(cell.accounted, claimed, _ROUNDING)
    if privacy.verdict not in ("unsound", "unsupported") and not (privacy.verdict == "not_run" and over):
        return None
    disproved = privacy.verdict == "unsound"
    found = _on_tape(cell, disproved) or (_missing_noise(cell) if disproved else None)
    if found is not None:
        return found
    if privacy.exact_fields and cell.accounted is not None and not cell.accounted.finite:
        return ClaimFault("exact", disproved, claimed, privacy.exact_fields)
    if disproved and _more(cell.observed, claimed):
        return ClaimFault("observed", disproved, claimed, shown=cell.observed)
    if over:
        return ClaimFault("accounted", disproved, claimed, shown=cell.accounted)
    return ClaimFault("unstated", disproved, claimed)


def _more(found: Epsilon | None, claimed: Epsilon, slack: float = 1.0) -> bool:
    """Whether what was found is of the claim's kind and more than it; nothing follows from another kind."""
    return found is not None and found.kind == claimed.kind and exceeds(found, claimed, slack)


def _on_tape(cell: CellRecord, disproved: bool) -> ClaimFault | None:
    """A question to the run that failed, or that could not be asked where nothing else is wrong with the claim."""
    status = "failed" if disproved else "not_asked"
    answers = [a for a in cell.tape if a.status == status and a.question != "worst_case"]
    if not answers or cell.claimed is None:
        return None
    if not disproved and _more(cell.accounted, cell.claimed, _ROUNDING):
        return None
    order: tuple[Fault, ...] = ("noise", "sensitivity", "rest")
    first = next(kind for kind in order if any(answer.question == kind for answer in answers))
    fields = tuple(dict.fromkeys(a.field for a in answers if a.question == first and a.field))
    scale = _scale(cell, fields) if first == "noise" else None
    return ClaimFault(first, disproved, cell.claimed, fields, scale=scale)


def _missing_noise(cell: CellRecord) -> ClaimFault | None:
    """Fault of captured messages with less noise than they declare, or none of it."""
    for finding in cell.findings:
        if not judges_the_claim(finding.audit):
            continue
        absent, measured = finding.metrics.get("noise_p"), finding.metrics.get("noise_measured")
        less = measured is not None and measured.high is not None and measured.high < 1
        if less or (absent is not None and absent.value is not None and absent.value <= _NOISE_LEVEL):
            share = measured.value if measured is not None and less else None
            assert cell.claimed is not None
            return ClaimFault("noise", True, cell.claimed, share=share, scale=_scale(cell, ()))
    return None


def noise_not_measured(cell: CellRecord) -> bool:
    """Whether captured messages could hold the noise that they declare, but their noise was not measured."""
    found = [finding.metrics for finding in cell.findings if judges_the_claim(finding.audit)]
    return any("noise_p" in metrics and "noise_measured" not in metrics for metrics in found)


def _scale(cell: CellRecord, fields: tuple[str, ...]) -> float | None:
    """The scale of the noise that fields declare; None: none, or where no field is named, unlike ones."""
    scales = {
        row.noise_scale[0]
        for row in cell.ledger
        if row.noise_scale is not None and (not fields or row.field in fields)
    }
    return min(scales, default=None) if fields or len(scales) == 1 else None


def fields_in_words(fields: Sequence[str]) -> str:
    """Fields by their names, as an object."""
    return f"the field{'s' if len(fields) > 1 else ''} {listed(map(_name, fields))}"


def _name(field: str) -> str:
    """Name a field: by its kind in words where it is called so, else as its sender does."""
    return field.replace("_", " ") if field in kinds() else field


def fault_clause(fault: ClaimFault) -> str:
    """A claim and why it does not stand, in one clause."""
    claim = f"claims ε = {with_kind(fault.claimed)}"
    shown = "" if fault.shown is None else beside(fault.shown, fault.claimed)
    named = f" in {listed(map(_name, fault.fields))}" if fault.fields else ""
    if fault.kind == "noise":
        return f"{claim}{_noise_clause(fault, named)}"
    if fault.kind == "sensitivity":
        why = "one record moves the statistics farther than the noise was sized for"
        return f"{claim}, but {why}{named}" if fault.refuted else f"{claim}, but how far one moves was not checked"
    if fault.kind == "rest":
        why = "something is sent that depends on records and has no noise"
        return f"{claim}, but {why}{named}" if fault.refuted else f"{claim}, but not all that is sent was checked"
    if fault.kind == "exact":
        return f"{claim}, but clients send {fields_in_words(fault.fields)} without noise"
    if fault.kind == "observed":
        return f"{claim}, but an attack shows at least {shown} (95 % bound)"
    if fault.kind == "accounted":
        if fault.shown is not None and not fault.shown.finite:
            return f"{claim}, but no finite ε holds for what is sent"
        return f"{claim}, but what is sent adds up to {shown}"
    return f"{claim}, but that is {'disproved' if fault.refuted else 'not supported'}"


def _noise_clause(fault: ClaimFault, named: str) -> str:
    """Rest of the clause on a claim with missing noise."""
    sized = "" if fault.scale is None else f" with noise of scale {short(fault.scale)}"
    if not fault.refuted:
        return f"{sized}, but whether the noise{named} was added could not be checked"
    if fault.share is not None and fault.share > 0.1:
        declared = "the noise that they declare" if fault.scale is None else "that noise"
        return f"{sized}, but the messages hold only {short(100 * fault.share)} % of {declared}"
    if not sized and not named:
        return ", but the messages do not hold the noise that they declare"
    return f"{sized}, but the messages hold no such noise{named}"


def above_claim(cell: CellRecord) -> bool:
    """Whether what an attack shows is above the claim, as one bound at 95 % in 20 is where noise is tight."""
    observed, claimed = cell.observed, cell.claimed
    if observed is None or claimed is None or observed.kind != claimed.kind:
        return False
    return exceeds(observed, claimed)


def claim_clause(cell: CellRecord) -> str:
    """Clause on a cell's claim and its outcome."""
    fault, privacy = fault_of(cell), cell.privacy
    if fault is not None:
        return fault_clause(fault)
    if not claims(cell) or cell.claimed is None:
        return "no privacy is claimed"
    claimed = f"ε = {with_kind(cell.claimed)}"
    if privacy.verdict == "sound":
        shown = "" if cell.observed is None else beside(cell.observed, cell.claimed)
        chance = ", which chance allows" if above_claim(cell) else ""
        attacked = f"; an attack shows at least {shown} (95 % bound){chance}" if shown else ""
        return f"the claim of {claimed} held in every test of it{attacked}"
    if privacy.verdict == "not_refuted":
        return f"the claim of {claimed} was not refuted, but the worst case of its mechanism is not known"
    if privacy.verdict == "inconclusive" and noise_not_measured(cell):
        return f"claims {claimed}, but whether its noise is in the messages was not measured"
    if privacy.verdict == "inconclusive":
        return f"claims {claimed}, which could not be judged"
    return f"claims {claimed}, which no audit tested"
