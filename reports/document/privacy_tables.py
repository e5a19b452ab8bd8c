"""Tables of claims, of what privacy costs, of every field that leaves, and of measured time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedassay.contracts.registry import claim_audit, judges_the_claim
from fedassay.exchange.run_ledger import together
from fedassay.records.record import CellRecord, LedgerRow, Metric, RunRecord, epsilon_metric
from fedassay.reports.document.ceiling import EXPLAINED, ceiling
from fedassay.reports.document.finding_tables import cell_columns, cell_values, group_values
from fedassay.reports.document.leakage import MEASURES, leakage
from fedassay.reports.document.tables import Column, Row, Ruling, Table, Value
from fedassay.reports.words.allowed import KAPPA
from fedassay.reports.words.claims import claims, ledger_stands
from fedassay.reports.words.groups import Group, groups, in_order, over_seeds
from fedassay.reports.words.metrics import hint, title, utility, utility_names
from fedassay.reports.words.numbers import short, significant
from fedassay.reports.words.summary import strip
from fedassay.support.epsilon import Epsilon


def verdicts_table(record: RunRecord) -> Table:
    """The verdict strip as a table."""
    columns = (
        *cell_columns(record, seed=False),
        Column("verdict", "Verdict", "verdict"),
        Column("seeds", "Seeds"),
        Column("text", "In words"),
    )
    rows = tuple(
        (
            Row(
                (
                    *group_values(line.group),
                    Ruling(line.verdict),
                    line.seeds,
                    line.text,
                )
            ),
        )
        for line in strip(record)
    )
    return Table("verdicts", "Verdicts", columns, rows)


_FALLEN = "it does not hold: noise, sensitivity or the rest of what is sent is not as declared"


def claims_table(record: RunRecord) -> Table:
    """Claimed, accounted and observed epsilon of every cell."""
    columns = (
        *cell_columns(record),
        Column("verdict", "Claim", "verdict"),
        *(Column(key, title(key), "metric", hint(key)) for key in ("claimed", "accounted", "observed", "mu")),
        Column("ceiling", f"Reconstruction ceiling, κ = {KAPPA:.0%}", "metric", EXPLAINED),
        Column(
            "accounted_stated",
            title("accounted_stated"),
            "metric",
            hint("accounted_stated"),
            hidden=all(c.accounted_stated in {None, c.accounted} for c in record.cells),
        ),
        Column("exact_fields", "Leaves exactly", "flag"),
        # Two columns of words would leave none of them room: the page has it as a footnote.
        Column("reason", "In words", hidden=True),
    )
    groups = []
    for cell in in_order(record):
        privacy = cell.privacy
        why = privacy.reason or "not measured"
        claimed, fallen = claims(cell), not ledger_stands(cell)
        values: tuple[Value, ...] = (
            *cell_values(cell),
            Ruling(privacy.verdict, privacy.reason),
            _epsilon(cell.claimed if claimed else None, cell, "nothing is claimed"),
            _epsilon(None if fallen else cell.accounted, cell, _FALLEN if fallen else why),
            _epsilon(cell.observed, cell, _observed_reason(cell)),
            _or_reason(privacy.mu, "not everything that leaves is a Gaussian release"),
            _or_reason(
                None if fallen else ceiling(privacy.mu),
                _FALLEN if fallen else "a closed form exists for Gaussian releases only",
            ),
            _epsilon(cell.accounted_stated, cell, "the source states no sensitivity of its own"),
            ", ".join(privacy.exact_fields),
            privacy.reason,
        )
        broken = (
            claimed and bool(privacy.exact_fields) and cell.accounted is not None and not cell.accounted.finite
        )
        groups.append((Row(values, "exact" if broken else ""),))
    caption = "Claimed, accounted and observed epsilon"
    return Table("claims", caption, columns, tuple(groups), note=_together(record))


def _together(record: RunRecord) -> str:
    """Sentence on the composition of all private cells, if all are published; empty for fewer than two."""
    totals = together(record.cells) if all(map(ledger_stands, record.cells)) else ()
    if not totals:
        return ""
    said = "; ".join(each.clause for each in totals)
    return (
        "Each line is for one run published alone. All private runs together, of the same records and with "
        f"independent noise, give away {said}, at δ = {short(totals[0].kind.delta)}."
    )


QUESTIONS = {
    "noise": "Was the noise added?",
    "sensitivity": "Is the sensitivity what was declared?",
    "rest": "Does everything else follow from the releases?",
    "worst_case": "Is the worst case known?",
}


def tape_table(record: RunRecord) -> Table | None:
    """Table of the tape's questions on the claim of every cell; None where none were asked."""
    columns = (
        *cell_columns(record),
        Column("question", "Question"),
        Column("status", "Answer"),
        Column("field", "Field", "code"),
        Column("p", "p", "metric", "Smallest p-value of the noise, corrected for its blocks."),
        Column("words", "In words"),
    )
    groups = tuple(
        tuple(
            Row(
                (
                    *cell_values(cell),
                    QUESTIONS[answer.question],
                    answer.status.replace("_", " "),
                    answer.field,
                    _or_reason(answer.p, "nothing here is left to chance"),
                    answer.words,
                ),
                "exact" if answer.status == "failed" else "",
            )
            for answer in cell.tape
        )
        for cell in in_order(record)
        if cell.tape
    )
    return Table("tape", "Is what left what was declared", columns, groups) if groups else None


def _observed_reason(cell: CellRecord) -> str:
    audit = next((finding for finding in cell.findings if judges_the_claim(finding.audit)), None)
    if audit is not None:
        metric = audit.metrics.get("observed")
        if metric is not None and metric.value is None and metric.reason:
            return metric.reason
        return audit.reason
    return cell.privacy.reason or f"the plan has no {claim_audit()} audit"


def _epsilon(found: Epsilon | None, cell: CellRecord, reason: str) -> Metric:
    """An epsilon in a row that names its own kind; the kind stands with the epsilon where it is another one."""
    if found is None:
        return Metric(value=None, reason=reason)
    named = not found.finite or (cell.asked.finite and found.kind == cell.asked.kind)
    metric = epsilon_metric(found)
    return metric.model_copy(update={"unit": ""}) if named else metric


def _or_reason(value: float | None, reason: str) -> Metric:
    return Metric(value=value) if value is not None else Metric(value=None, reason=reason)


def utility_table(record: RunRecord) -> Table:
    """Accuracy, bytes and leakage of every method entry and epsilon, over its seeds."""
    names = utility_names(record.cells)
    measures = [m for m in MEASURES if any(leakage(c, m).value is not None for c in record.cells)]
    several = any(len(group.cells) > 1 for group in groups(record))
    columns = (
        *cell_columns(record, seed=False),
        *(Column(name, title(name), "metric", hint(name)) for name in names),
        Column("bytes_up", "Bytes up", "bytes", "Sent by all clients together, as serialized."),
        Column("bytes_down", "Bytes down", "bytes", "Sent by the server, once for every receiver."),
        *(Column(measure.name, measure.title, "metric", measure.definition) for measure in measures),
        Column("n", "Seeds", "count", hidden=not several, page_only=True),
    )
    rows = (
        Row(
            (
                *group_values(group),
                *(utility_over_seeds(group, name) for name in names),
                *(bytes_over_seeds(group, key) for key in ("bytes_up", "bytes_down")),
                *(leakage_over_seeds(group, measure.name) for measure in measures),
                len(group.cells) if len(group.cells) > 1 else "",
            )
        )
        for group in groups(record)
    )
    note = "Over several seeds: the mean, with the range over seeds in brackets." if several else ""
    return Table("utility", "What privacy costs", columns, tuple((row,) for row in rows), note=note)


def utility_over_seeds(group: Group, name: str) -> Metric:
    """A utility figure of a group: over seeds, or with its own interval for a single seed."""
    if len(group.cells) == 1:
        return utility(group.cells[0], name)
    missing = utility(group.cells[0], name).reason
    return over_seeds(group.cells, lambda cell: cell.utility.get(name), missing)


def bytes_over_seeds(group: Group, name: str) -> Metric:
    """`bytes_up` or `bytes_down` of a group, over seeds."""
    return over_seeds(group.cells, lambda cell: cell.communication.get(name), "not recorded")


def leakage_over_seeds(group: Group, name: str) -> Metric:
    """A leakage measure of a group: over seeds, or with its own interval for a single seed."""
    measure = next(measure for measure in MEASURES if measure.name == name)
    if len(group.cells) == 1:
        return leakage(group.cells[0], measure)
    first = leakage(group.cells[0], measure)
    # The cells of a group are of one kind.
    found = over_seeds(group.cells, lambda cell: leakage(cell, measure).value, first.reason)
    return found.model_copy(update={"unit": first.unit})


_LEDGER = (
    Column("field", "Field", "code"),
    Column("kind", "Kind", "code"),
    Column("direction", "Way"),
    Column("protection", "Protection", "flag"),
    Column("mechanism", "Mechanism", "code", hidden=True),
    Column("sensitivity", "L2 sensitivity", hint="Smallest to largest over the messages and their parts."),
    Column("noise", "Noise σ", hint="Standard deviation per coordinate, smallest to largest."),
    Column("group", "Joint release", "code", "Fields of one noise draw on one joint statistic share a name."),
    Column("adjacency", "Adjacency", "code"),
    Column("unit", "Unit"),
    Column("shape", "Shape", "code"),
    Column("dtype", "Type", "code"),
    Column("messages", "Messages", "count"),
    Column("bytes", "Bytes", "bytes", "Of the field's values over all messages."),
    Column("note", "Note"),
)


def ledger_table(record: RunRecord, cells: Sequence[CellRecord], alone: bool = False) -> Table:
    """Every field that leaves a client or the server, one row per field.

    Args:
        record: The run.
        cells: The cells of the fields.
        alone: Whether the table is of one method entry and seed, named above it.
    """
    named = (
        replace(c, hidden=c.hidden or c.key in {"label", "seed"}) if alone else c for c in cell_columns(record)
    )
    groups = tuple((_ledger_row(cell, row),) for cell in cells for row in cell.ledger)
    return Table("ledger", "Every field that is sent", (*named, *_LEDGER), groups, roles=True)


def _ledger_row(cell: CellRecord, row: LedgerRow) -> Row:
    values = (
        *cell_values(cell),
        row.field,
        row.kind,
        row.direction,
        protection(row),
        row.mechanism,
        _range(row.sensitivity),
        _noise(row),
        row.group or "",
        row.adjacency or "",
        row.unit,
        row.shape,
        row.dtype,
        row.messages,
        Metric(value=row.nbytes),
        row.note,
    )
    return Row(values, "exact" if leaves_exactly(row) else "")


def leaves_exactly(row: LedgerRow) -> bool:
    """Whether a client sends the field unprotected and nothing makes it public."""
    return row.exact and row.direction == "up" and not row.public_under_adjacency


def protection(row: LedgerRow) -> str:
    """Protection of a field, in words."""
    if row.exact:
        words = "EXACT" if row.direction == "up" else "exact"
        if row.public_under_adjacency:
            words = "exact, public under this adjacency"
    else:
        words = {
            "gaussian": "Gaussian noise",
            "pure": "pure-DP noise",
            "dp_sgd": "DP-SGD",
            "public": "depends on no private record",
            "derived": "computed from other fields",
        }.get(row.mechanism, row.mechanism)
    return f"{words}, under secure aggregation" if row.secure else words


def _noise(row: LedgerRow) -> str:
    if row.dp_sgd:
        return ", ".join(f"{key.replace('_', ' ')} {short(value)}" for key, value in row.dp_sgd.items())
    return _range(row.noise_scale)


def _range(ends: tuple[float, float] | None) -> str:
    if ends is None:
        return ""
    low, high = (significant(end) for end in ends)
    return low if low == high else f"{low} to {high}"


def seconds_table(record: RunRecord) -> Table:
    """Measured seconds per stage of every cell."""
    stages = list(dict.fromkeys(stage for cell in record.cells for stage in cell.seconds))
    columns = (*cell_columns(record), *(Column(stage, stage, "seconds") for stage in stages))
    rows = tuple(
        (Row((*cell_values(cell), *(cell.seconds.get(stage) for stage in stages))),) for cell in record.cells
    )
    return Table("seconds", "Measured time by stage", columns, rows)
