"""What regulators and standards ask, answered from the record or left to a person.

Sources: EDPB, Opinion 28/2024 on certain data protection aspects related to the processing of personal
data in the context of AI models (December 2024), section 3.2; ISO/IEC 27559:2022, Privacy enhancing data
de-identification framework; NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees
(2025); ICO, Anonymisation guidance, "How do we ensure anonymisation is effective?" (the motivated intruder).
The questions are in our words; whoever signs reads the sources.
"""

from __future__ import annotations

from fedassay.contracts.facts import Threat
from fedassay.contracts.registry import every_audit, judges_the_claim
from fedassay.records.record import CellRecord, RunRecord
from fedassay.reports.evidence.lines import Line, by_person, from_cells, from_plan
from fedassay.reports.words.groups import cell_name
from fedassay.reports.words.numbers import short, significant, with_kind


def crosswalk(record: RunRecord) -> dict[str, tuple[Line, ...]]:
    """The questions of each source, in its order, with their answers."""
    return {
        "EDPB Opinion 28/2024: may the model be called anonymous?": _edpb(record),
        "ISO/IEC 27559:2022: de-identification framework": _iso(record),
        "NIST SP 800-226: evaluating a differential privacy guarantee": _nist(record),
        "ICO: the motivated intruder": _ico(record),
    }


def _edpb(record: RunRecord) -> tuple[Line, ...]:
    return (
        by_person("Which personal data is the model trained on, and on which legal basis?"),
        from_plan(record, "Which data was the assay run on?", "data"),
        from_cells(record, "Which measures reduce what a model can hold (design)?", "/params", _measures),
        _tested(record, "Was inference of membership and attributes tested?", "membership_inference"),
        _tested(record, "Was inversion of the model tested?", "model_inversion"),
        _tested(record, "Was reconstruction of training data tested?", "data_reconstruction"),
        _tested(record, "Was regurgitation of training data tested?", "regurgitation"),
        from_cells(
            record,
            "What was not tested, and why?",
            "/coverage",
            _untested,
            "every attack that applies was conclusive in every cell",
        ),
        by_person("Which means are reasonably likely to be used, by whom, beyond those that were tested?"),
        by_person("Is there a data protection impact assessment, and the data protection officer's advice?"),
    )


def _iso(record: RunRecord) -> tuple[Line, ...]:
    return (
        from_plan(record, "Context: who sees what is sent?", "threat"),
        by_person("Context: which contracts, controls and purposes bind whoever receives it?"),
        from_cells(record, "Data: what leaves a client?", "/ledger", _fields),
        from_cells(record, "Data: which of it leaves exactly?", "/privacy/exact_fields", _exact, "nothing"),
        from_cells(record, "Identifiability: what did attacks find?", "/findings", _leaks),
        from_cells(record, "Mitigation: which noise was added?", "/ledger", _noise, "none"),
        by_person("Governance: who answers for it, and when is it assessed again?"),
    )


def _nist(record: RunRecord) -> tuple[Line, ...]:
    return (
        from_cells(
            record, "Privacy parameters: epsilon and delta?", "/privacy/claimed", _claimed, "none is claimed"
        ),
        from_cells(record, "Unit of privacy?", "/unit", lambda cell: f"one {cell.unit}"),
        from_cells(record, "Neighbouring data sets?", "/adjacency", lambda cell: cell.adjacency),
        from_cells(record, "Is the guarantee what the mechanism gives?", "/privacy/accounted", _accounted),
        from_cells(record, "Was the implementation tested?", "/privacy/verdict", _claim, "no claim was tested"),
        from_cells(record, "Utility?", "/utility", _utility),
        by_person("Is utility alike for every group of people?"),
        from_cells(record, "Are hyper-parameters and earlier releases charged?", "/ledger", lambda cell: _CHARGED),
        from_cells(record, "Is the noise secret?", "/seed", _secret, "nothing is noised"),
        by_person("Security of the deployed system, access to raw data, and how data was collected?"),
    )


def _ico(record: RunRecord) -> tuple[Line, ...]:
    return (
        from_plan(record, "What does the intruder see and know? (more than the guidance assumes)", "threat"),
        _tested(record, "Singling out: can a person's record be had from what is sent?", "data_reconstruction"),
        _tested(record, "Linking: can it be told whether a person's record took part?", "membership_inference"),
        by_person("Inference: what else could be learned by joining other sources?"),
        by_person("Who would be motivated, and what would they gain?"),
    )


_CHARGED = "the ledger adds up what this run sent; hyper-parameters and earlier releases are not charged"


def _tested(record: RunRecord, question: str, threat: Threat) -> Line:
    """What the audits of a threat concluded, with the findings that say so."""
    audits = [name for name, facts in every_audit().items() if threat in facts.threats]
    said: dict[str, None] = {}
    pointers = []
    for number, cell in enumerate(record.cells):
        for place, finding in enumerate(cell.findings):
            if finding.audit in audits:
                verdict = finding.verdict.replace("_", " ")
                said.setdefault(f"{finding.audit}, {cell_name(cell)}: {verdict}")
                pointers.append(f"/cells/{number}/findings/{place}/verdict")
    if not said:
        return Line(
            question,
            f"not tested: the run has no finding of {' or '.join(audits) or 'any audit of it'}",
            ("/plan",),
        )
    return Line(question, "; ".join(said), tuple(pointers))


def _measures(cell: CellRecord) -> str:
    noised = sorted({row.field for row in cell.ledger if row.noise_scale is not None or row.dp_sgd is not None})
    words = f"{cell.label} sends {len(cell.ledger)} fields instead of records"
    return f"{words}; noised: {', '.join(noised)}" if noised else words


def _untested(cell: CellRecord) -> str:
    if not cell.coverage:
        return f"{cell_name(cell)}: no attack that applies is on record"
    open_ = [f"{item.attack} ({item.reason})" for item in cell.coverage if item.status != "conclusive"]
    return f"{cell_name(cell)}: {', '.join(open_)}" if open_ else ""


def _fields(cell: CellRecord) -> str:
    return f"{cell.label}: {', '.join(dict.fromkeys(row.field for row in cell.ledger))}" if cell.ledger else ""


def _exact(cell: CellRecord) -> str:
    fields = cell.privacy.exact_fields
    return f"{cell_name(cell)}: {', '.join(fields)}" if fields else ""


def _leaks(cell: CellRecord) -> str:
    leaks = [finding for finding in cell.findings if finding.verdict == "leak"]
    if leaks:
        return f"{cell_name(cell)}: {'; '.join(finding.reason for finding in leaks)}"
    silent = sum(finding.verdict == "no_leak_found" for finding in cell.findings)
    return f"{cell_name(cell)}: {f'no leak in {silent} findings' if silent else 'nothing was concluded'}"


def _noise(cell: CellRecord) -> str:
    scales = [
        f"{row.field}: {row.mechanism}" for row in cell.ledger if row.mechanism in {"gaussian", "pure", "dp_sgd"}
    ]
    return f"{cell_name(cell)}: {', '.join(dict.fromkeys(scales))}" if scales else ""


def _claimed(cell: CellRecord) -> str:
    claimed = cell.claimed
    return (
        f"ε = {with_kind(claimed)}, δ = {short(claimed.delta)}" if claimed is not None and claimed.finite else ""
    )


def _accounted(cell: CellRecord) -> str:
    if cell.accounted is None:
        return ""
    return f"{cell_name(cell)}: the ledger adds up to ε = {with_kind(cell.accounted, significant)}"


def _claim(cell: CellRecord) -> str:
    tested = any(judges_the_claim(finding.audit) for finding in cell.findings)
    return f"{cell_name(cell)}: {cell.privacy.verdict.replace('_', ' ')}" if tested else ""


def _utility(cell: CellRecord) -> str:
    accuracy = cell.utility.get("accuracy")
    return "" if accuracy is None else f"{cell_name(cell)}: accuracy {significant(accuracy)}"


def _secret(cell: CellRecord) -> str:
    if not cell.asked.finite:
        return ""
    return "no: this run's noise follows from a seed" if cell.seed is not None else "yes: drawn from the system"
