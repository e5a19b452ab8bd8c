"""Consistency of a record with everything that can be computed again from it.

Totals and ledgers are accounted again, from the transcripts where the run keeps them; the verdict on a claim, its
numbers and the coverage follow from the findings; digests of plan and cells follow from plan and cells. A
contradiction shows an edit. Only a signature shows edits without a contradiction.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedassay.contracts.registry import audit_facts, judges_the_claim
from fedassay.exchange.recount import Recounted, recounted, unlike
from fedassay.exchange.transcript import MANIFEST, Transcript, load_transcript
from fedassay.records.basis import KEYED, cells_digest, entry_digest, plan_digest
from fedassay.records.digests import file_digest
from fedassay.records.record import CellRecord, Finding, RunRecord
from fedassay.reports.answer.captured import is_captured
from fedassay.support.epsilon import exceeds
from fedassay.support.errors import DataError

_EXCEEDS = 1 + 1e-6
_SAYS = ("leak", "no_leak_found", "sound", "not_refuted", "unsupported", "unsound")


@dataclass
class Recomputed:
    """Results of the computation.

    Attributes:
        problems: Contradictions, one clause each.
        missing: Files that the run should keep and does not.
        open: Values that could not be computed again, since the record lacks their inputs.
    """

    problems: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)


def recomputed(record: RunRecord, folder: Path | None) -> Recomputed:
    """Compute again what can be.

    Args:
        record: The record.
        folder: The run folder, for its transcripts; None: there is none.
    """
    found = Recomputed()
    found.problems += _of_the_run(record)
    for cell in record.cells:
        name = cell.key or cell.label
        found.problems += [f"{name}: {problem}" for problem in _of_the_cell(cell, record)]
        try:
            again = recounted(cell, _transcript(cell, folder, found))
        except DataError as error:
            found.problems.append(f"{name}: {error}")
            continue
        if again is not None:
            found.problems += [f"{name}: {problem}" for problem in (*again.problems, *_claims(cell, again))]
        elif cell.ledger or cell.privacy.accounted is not None:
            found.open.append(f"{name}: the record does not hold the releases that were accounted")
        if cell.basis is None:  # of an older fedassay, or made by hand
            found.open.append(f"{name}: the record does not say what the cell stands on")
    return found


def _transcript(cell: CellRecord, folder: Path | None, found: Recomputed) -> Transcript | None:
    """The transcript that a run keeps of a cell."""
    if folder is None or cell.released is None or not cell.released.transcript:
        return None
    name = f"transcripts/{cell.key}/{MANIFEST}"
    if not os.path.lexists(folder / name):
        found.missing.append(f"{name} is not there")
        return None
    if file_digest(folder, name) != cell.released.transcript:
        raise DataError(f"{name} is not the transcript of this cell")
    return load_transcript(folder / "transcripts" / cell.key)


def _of_the_run(record: RunRecord) -> Iterator[str]:
    """Contradictions between the cells and their run."""
    known = [cell for cell in record.cells if cell.basis is not None]
    if not known:
        return
    keys = [cell.key for cell in record.cells]
    if twice := [key for key, times in Counter(keys).items() if times > 1]:
        yield f"the cell {twice[0]} is there {len(twice) + 1} times"
    if any(cell.basis and cell.basis.cells != cells_digest(keys) for cell in known):
        yield "the cells are others than those that the run had"
    if any(cell.basis and cell.basis.plan != plan_digest(record.plan) for cell in known):
        yield "the plan is not the one that the cells were run with"
    if record.redacted:
        digests = (digest for cell in known if cell.basis for digest in cell.basis.data.values())
        if not all(digest.startswith(KEYED) for digest in digests):
            yield "the record says that it is redacted, and holds digests of data that are not keyed"
        if any(finding.pictures for cell in record.cells for finding in cell.findings):
            yield "the record says that it is redacted, and names pictures"


def _of_the_cell(cell: CellRecord, record: RunRecord) -> Iterator[str]:
    """Contradictions within one cell."""
    if cell.basis is None:
        return
    entry = entry_digest(
        *(cell.method, cell.label, cell.params, cell.epsilon, cell.delta, cell.adjacency, cell.unit, cell.seed)
    )
    if entry != cell.basis.entry:
        yield "method, parameters, privacy or seed are not those that the cell was run with"
    # A redacted record keeps no transcript; any other names the one of every cell that a method was run for.
    kept = cell.released is not None and cell.released.transcript
    if not (kept or record.redacted or cell.released is None or is_captured(record)):
        yield "the record names no transcript of the cell"
    audits = {finding.audit for finding in cell.findings}
    if lost := [name for name in _audits_of(record) if name not in audits]:
        yield f"there is no finding of {lost[0]}, which the plan asks for"
    for finding in cell.findings:
        yield from (f"{finding.audit}: {problem}" for problem in _of_the_finding(finding))
    yield from _verdict(cell)
    for row in cell.coverage:
        spoke = any(row.attack in (each.audit, each.attack) and each.verdict in _SAYS for each in cell.findings)
        if row.status == "conclusive" and not spoke:
            yield f"{row.attack} is given as conclusive, and no finding of it is"


def _audits_of(record: RunRecord) -> Iterator[str]:
    """Names of the audits of a plan; those of captured messages are not all put to them."""
    entries = record.plan.get("audits") or () if isinstance(record.plan, dict) else ()
    for entry in () if is_captured(record) else entries:
        yield next(iter(entry), "") if isinstance(entry, Mapping) else str(entry)


def _of_the_finding(finding: Finding) -> Iterator[str]:
    """A verdict needs its controls and its test; an estimate lies in its interval."""
    positive, negative = finding.controls.positive, finding.controls.negative
    held = positive is not None and positive.caught and negative is not None and not negative.flagged
    if finding.verdict in ("leak", "no_leak_found"):
        if not held:
            yield f"the verdict {finding.verdict} without a control that was caught and one that was not flagged"
        if finding.test is not None and finding.test.rejects != (finding.verdict == "leak"):
            yield f"the verdict {finding.verdict} is not what its test says"
    for name, metric in (*finding.metrics.items(), *finding.baseline.items()):
        low = -math.inf if metric.low is None else metric.low
        high = math.inf if metric.high is None else metric.high
        slack = 1e-9 * max(1.0, abs(metric.value or 0.0))
        if metric.value is not None and not low - slack <= metric.value <= high + slack:
            yield f"{name} lies outside of its own interval"


def _verdict(cell: CellRecord) -> Iterator[str]:
    """The cell's verdict on its claim is that of the audit that judges it, and is none that its numbers refute."""
    privacy = cell.privacy
    judged = next((finding for finding in cell.findings if judges_the_claim(finding.audit)), None)
    accounted = privacy.accounted is not None
    if judged is not None and accounted:
        observed = judged.metrics.get("observed")
        if judged.verdict != privacy.verdict:
            yield f"the verdict on the claim is {privacy.verdict}, and {judged.audit} says {judged.verdict}"
        if unlike(privacy.observed, None if observed is None else observed.value):
            yield f"observed is not what {judged.audit} found"
    elif judged is None and privacy.verdict != "not_run":
        yield f"the verdict on the claim is {privacy.verdict}, and no audit judged it"
    for verdict in [privacy.verdict, *(each.verdict for each in cell.findings if _of_claims(each))]:
        if verdict in ("sound", "not_refuted"):
            yield from _sound(cell, verdict.replace("_", " "))


def _sound(cell: CellRecord, given: str) -> Iterator[str]:
    # An observed epsilon may lie above the claim: verdicts use levels that are corrected for the whole run.
    if cell.privacy.claimed is None:
        yield f"a claim is given as {given}, and nothing is claimed"
    if any(answer.status == "failed" for answer in cell.tape):
        yield f"a claim is given as {given}, and a question to the run's tape failed"


def _of_claims(finding: Finding) -> bool:
    """Whether a finding adds up the ledger."""
    facts = audit_facts(finding.audit)
    return facts is not None and facts.place.section in ("claim", "accounts")


def _claims(cell: CellRecord, again: Recounted) -> Iterator[str]:
    """Findings on the claim, held against the accounting that was done again."""
    for finding in filter(_of_claims, cell.findings):
        claim = None if again.claim is None else again.claim.bare
        for name, value in (("accounted", again.claimed.epsilon), ("claimed", claim)):
            metric = finding.metrics.get(name)
            if metric is not None and unlike(metric.value, value):
                yield f"{finding.audit}: {name} is not what was released adds up to"
        # A claim of pure privacy is one at every delta.
        claimed = None if again.claim is None else again.claim.at_delta(again.claimed.total.delta)
        total = again.claimed.total
        more = claimed is not None and claimed.kind == total.kind and exceeds(total, claimed, _EXCEEDS)
        if finding.verdict in ("sound", "not_refuted") and more:
            given = finding.verdict.replace("_", " ")
            yield f"{finding.audit}: a claim is given as {given}, and what was released adds up to more"
