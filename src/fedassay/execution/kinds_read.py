"""Remarks of an audit of captured messages on their kinds: in doubt, inferred, or of no use to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedassay.contracts.registry import attack_facts
from fedassay.exchange.inference.infer import Inferred
from fedassay.exchange.transcript import Transcript
from fedassay.records.record import CellRecord, Finding
from fedassay.support.text import encodable

_MOST = 6
"""Fields that one sentence names."""


def with_readings(cell: CellRecord, transcript: Transcript, inferred: Sequence[Inferred]) -> CellRecord:
    """The cell of captured messages, its findings marked where they rest on inferred kinds.

    Args:
        cell: As the audits left it.
        transcript: The messages as they were attacked.
        inferred: Inferences on their fields; empty where declarations were trusted.
    """
    taken = [each for each in inferred if each.read_as is not None]
    findings = tuple(_marked(finding, taken) for finding in cell.findings)
    notes = (*_doubts(inferred), *_silence(findings, transcript, bool(inferred)), *cell.notes)
    return cell.model_copy(update={"findings": findings, "notes": notes})


def _marked(finding: Finding, taken: Sequence[Inferred]) -> Finding:
    """A finding with its reading, where its attack reads a kind that was inferred."""
    if finding.attack is None or finding.verdict == "not_run":
        return finding
    reads = frozenset().union(*attack_facts(finding.attack).alternatives)
    fields = [each for each in taken if each.read_as in reads]
    if not fields:
        return finding
    named = ", ".join(f"{each.field} as {each.read_as}" for each in fields[:_MOST])
    words = encodable(f"kinds inferred from the arrays: {named}")
    return finding.model_copy(update={"reading": "inferred", "assumptions": (*finding.assumptions, words)})


def _doubts(inferred: Sequence[Inferred]) -> Iterator[str]:
    """One warning for every declaration that its arrays contradict."""
    for each in inferred:
        if each.status == "contradicts":
            yield encodable(each.text)


def _silence(findings: Sequence[Finding], transcript: Transcript, looked: bool) -> Iterator[str]:
    """Remarks on fields that no attack could read, and on inputs that would make an attack possible."""
    if any(finding.attack is not None and finding.verdict != "not_run" for finding in findings):
        return
    held = {
        name: f"{name} {item.shape}, {item.kind}"
        for message in transcript.from_clients()
        for name, item in message.fields.items()
    }
    named = "; ".join(list(held.values())[:_MOST])
    more = f"; and {len(held) - _MOST} more" if len(held) > _MOST else ""
    how = "declared kinds alone were read" if not looked else "shapes, ranks, signs and sums were looked at"
    yield encodable(f"No attack could read these messages. Looked at: {named}{more}; {how}.")
    yield (
        "An attack becomes possible with kinds by name (kinds={'w': 'gradient'}), the model that the server sent "
        "(recorder.sent('server', model, receiver=client)), candidates (--gallery FOLDER), or a second capture "
        "(--again SECOND)."
    )
