"""Tables of findings: reconstruction with its baseline rows, and every other audit's figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedassay.records.record import CellRecord, Finding, Metric, NegativeControl, PositiveControl, RunRecord
from fedassay.reports.document.audits import shows_images
from fedassay.reports.document.tables import Column, Name, Row, Ruling, Table, Value
from fedassay.reports.words.groups import Group, in_order, several_deltas, several_seeds
from fedassay.reports.words.metrics import hint, ordered, title_in
from fedassay.reports.words.summary import attacks_on, selection_words
from fedassay.reports.words.things import source_words
from fedassay.support.epsilon import Epsilon

Found = tuple[CellRecord, Finding]

_SOURCE_HINT = "The vectors or fields that the attack read in the messages."
_SELECTION_HINT = "The images or vectors that are scored."
_LIMIT_HINT = "Smallest leak that a run of this size would have found with the stated power: a 95 % bound."
_NO_BASELINE = Metric(value=None, reason="the baseline does not give it")


def found(record: RunRecord, audits: Iterable[str] | None = None) -> tuple[Found, ...]:
    """Findings with their cells, in the record's order; all of them where no audit is named."""
    wanted = None if audits is None else set(audits)
    return tuple(
        (cell, finding)
        for cell in in_order(record)
        for finding in (attacks_on(cell) if wanted is None else cell.findings)
        if wanted is None or finding.audit in wanted
    )


def every(record: RunRecord) -> tuple[Found, ...]:
    """Every finding with its cell, those on claims among them, in the record's order."""
    return tuple((cell, finding) for cell in in_order(record) for finding in cell.findings)


def cell_columns(record: RunRecord, seed: bool = True) -> tuple[Column, ...]:
    """The columns that name a cell; on the page only those that tell cells apart."""
    columns = (
        Column("label", "Method"),
        Column("method", "Backend", hidden=True),
        Column("epsilon", "ε", "parameter", "Asked of the method; ∞ is no noise."),
        Column("delta", "δ", "parameter", hidden=not several_deltas(record)),
        # On the page they stand below the epsilon that they are of.
        Column("epsilon_adjacency", "Relation", "code", hidden=True),
        Column("epsilon_unit", "Unit", hidden=True),
    )
    return (*columns, Column("seed", "Seed", hidden=not several_seeds(record))) if seed else columns


def cell_values(cell: CellRecord) -> tuple[Value, ...]:
    """The values of `cell_columns`."""
    return (*_entry_values(cell.label, cell.method, cell.asked), "none" if cell.seed is None else str(cell.seed))


def group_values(group: Group) -> tuple[Value, ...]:
    """The values of `cell_columns` without a seed."""
    return _entry_values(group.label, group.method, group.asked)


def _entry_values(label: str, method: str, asked: Epsilon) -> tuple[Value, ...]:
    return (
        Name(label, "" if label == method else method),
        method,
        asked,
        asked.delta,
        asked.adjacency,
        asked.unit,
    )


def findings_table(
    record: RunRecord, name: str, caption: str, findings: Sequence[Found], always: Sequence[str] = ()
) -> Table:
    """One group of rows per finding: what was measured and, beneath it, the baseline.

    Args:
        record: Record of the findings.
        name: Name of the CSV.
        caption: Caption of the table.
        findings: The findings.
        always: Metrics that get a column even where nothing was measured.
    """
    # Reasons that repeat numbers are left out on the page where a verdict was reached.
    in_numbers = all(shows_images(finding.audit) for _, finding in findings)
    names = ordered([*always, *(key for _, finding in findings for key in (*finding.metrics, *finding.baseline))])
    columns = (
        *cell_columns(record),
        Column("audit", "Audit", hidden=len({finding.audit for _, finding in findings}) < 2),
        Column("attack", "Attack", hidden=len({finding.attack for _, finding in findings}) < 2),
        Column("source", "Source", hint=_SOURCE_HINT, hidden=all(f.source is None for _, f in findings)),
        Column(
            "selection",
            "Selection",
            hint=_SELECTION_HINT,
            hidden=all(f.selection is None for _, f in findings),
        ),
        Column("verdict", "Verdict", "verdict"),
        # Where every source has figures of its own, the words say more than a row of dashes: they come first.
        Column("reason", "In words", hidden=in_numbers),
        *(Column(key, title_in(record, key), "metric", hint(key)) for key in names),
        Column("limit", "Smallest leak", "metric", _LIMIT_HINT, hidden=all(f.limit is None for _, f in findings)),
        Column("limit_metric", "Its metric", hidden=True),
        Column("n", "n", "count", "Observations behind every figure of the row.", page_only=True),
    )
    groups = []
    for cell, finding in findings:
        who = (*cell_values(cell), finding.audit, finding.attack or "")
        what = _what(finding)
        n, measured = _common(_values(finding, names))
        unsaid = in_numbers and finding.verdict in {"inconclusive", "not_run"}
        ruling = Ruling(finding.verdict, finding.reason if unsaid else "")
        rows = [Row((*who, *what, ruling, finding.reason, *measured, *_limit(finding), n), "measured")]
        if finding.baseline:
            n, held = _common(tuple(finding.baseline.get(key) or _NO_BASELINE for key in names))
            # A gain is over the baseline: the baseline itself has none.
            values = ("" if key.endswith("_gain") else value for key, value in zip(names, held, strict=True))
            rows.append(Row((*who, *what, "", "", *values, "", "", n), "baseline"))
        groups.append(tuple(rows))
    return Table(name, caption, columns, tuple(groups), roles=True)


def _what(finding: Finding) -> tuple[Name, Name]:
    """Name the source and the selection of a finding, with plain words beneath."""
    source = source_words(finding.source) if finding.source else ""
    return _in_words(finding.source, source), _in_words(finding.selection, selection_words(finding.selection))


def _in_words(name: str | None, words: str) -> Name:
    """A name, and words beneath where they say more."""
    return Name(name or "", "" if words == (name or "").replace("_", " ") else words)


def _limit(finding: Finding) -> tuple[Metric, str]:
    """The smallest leak that would have been found, and what it is measured in."""
    limit = finding.limit
    if limit is None:
        return Metric(value=None, reason="no smallest leak was computed"), ""
    return Metric(value=limit.value, n=limit.n, reason=limit.words), limit.metric


def _common(metrics: tuple[Metric, ...]) -> tuple[int | str, tuple[Metric, ...]]:
    """The n that all measured metrics share, for a column of its own; empty where they differ."""
    counts = {metric.n for metric in metrics if metric.value is not None}
    shared = next(iter(counts)) if len(counts) == 1 else None
    return ("" if shared is None else shared), metrics


def _values(finding: Finding, names: Sequence[str]) -> tuple[Metric, ...]:
    """A finding's metrics; an absent one is a dash with the finding's own reason where it has one."""
    why = finding.reason if finding.verdict == "not_run" else "this audit does not give it for this source"
    return tuple(finding.metrics.get(key, Metric(value=None, reason=why)) for key in names)


def controls_table(record: RunRecord) -> Table:
    """The positive and the negative control of every finding that has any."""
    columns = (
        *cell_columns(record),
        Column("audit", "Audit"),
        Column("source", "Source", hint=_SOURCE_HINT),
        Column("selection", "Selection", hint=_SELECTION_HINT),
        Column("positive", "Positive control", "flag", "A release known to leak in this way: it must be caught."),
        Column("positive_value", "Value", "metric"),
        Column("positive_release", "What it is"),
        Column("negative", "Negative control", "flag", "A release that cannot leak so: it must not be flagged."),
        Column("negative_value", "Value", "metric"),
        Column("negative_release", "What it is"),
    )
    groups = []
    for cell, finding in every(record):
        positive, negative = finding.controls.positive, finding.controls.negative
        if positive is None and negative is None:
            continue
        missed = positive is not None and not positive.caught
        flagged = negative is not None and negative.flagged
        values: tuple[Value, ...] = (
            *cell_values(cell),
            finding.audit,
            *_what(finding),
            *_outcome(positive, "MISSED" if missed else "caught"),
            *_outcome(negative, "FLAGGED" if flagged else "not flagged"),
        )
        groups.append((Row(values, "failed" if missed or flagged else "passed"),))
    return Table("controls", "Controls of every audit, run beside it", columns, tuple(groups), roles=True)


def _outcome(control: PositiveControl | NegativeControl | None, words: str) -> tuple[str, Metric, str]:
    """Outcome of a control, its value, and its release; "none" where there was no such control."""
    if control is None:
        return "none", Metric(value=None, reason="the audit ran no such control"), ""
    why = "the control has no single number" if control.value is None else ""
    release = f"{control.release}: {control.detail}" if control.detail else control.release
    return words, Metric(value=control.value, n=control.n, reason=why), release


def controls_sentence(record: RunRecord) -> str:
    """Number of controls with the right outcome: the power behind every "no leak found"."""
    outcomes = [
        good
        for _, finding in every(record)
        for control, good in (
            (
                finding.controls.positive,
                finding.controls.positive is not None and finding.controls.positive.caught,
            ),
            (
                finding.controls.negative,
                finding.controls.negative is not None and not finding.controls.negative.flagged,
            ),
        )
        if control is not None
    ]
    if not outcomes:
        return "No audit ran, so there are no controls."
    bad = outcomes.count(False)
    if not bad:
        return (
            f"All {len(outcomes)} controls came out as they must: known leaks were caught, impossible ones were "
            "not flagged."
        )
    return (
        f"{outcomes.count(True)} of {len(outcomes)} controls came out as they must. {bad} did not: what they "
        "guard is undecided."
    )
