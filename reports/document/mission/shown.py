"""The mission's table as its readers see it: eight columns, each number beside its yardstick.

Page, Markdown and LaTeX print the same entries; the CSV and the data frame (`table.py`) hold full precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedassay.contracts.metrics import SSIM, likeness_metrics
from fedassay.records.record import Metric, RunRecord, Verdict
from fedassay.reports.document.audits import title_of
from fedassay.reports.document.mission.lines import (
    Line,
    Strongest,
    copies_of,
    image_audits,
    lines,
    members_of,
    missing_groups,
)
from fedassay.reports.document.mission.reasons import UNFINISHED, unmeasured
from fedassay.reports.words.groups import kinds_of, several_deltas
from fedassay.reports.words.metrics import title_in
from fedassay.reports.words.numbers import DASH, interval, short, significant
from fedassay.reports.words.verdicts import LOOKS
from fedassay.support.epsilon import Epsilon
from fedassay.support.metrics import MetricFacts

_IMAGES = 2
"""Kinds of attacks on images that eight columns have room for; the CSV has all."""

LOOKALIKES = "look-alikes"
LARGEST = "largest class"
SAMPLES = "nearest samples"


@dataclass(frozen=True)
class Part:
    """One number of an entry.

    Attributes:
        text: The number with its unit; a dash where there is none.
        interval: Its 95 % interval.
        beside: Comparison: look-alikes, or the largest class; empty for neither.
        why: Reason why there is no number, in two words.
    """

    text: str
    interval: str = ""
    beside: str = ""
    why: str = ""


@dataclass(frozen=True)
class Entry:
    """One cell of the table.

    Attributes:
        parts: Its numbers, of images one for each figure of likeness; empty where there is none.
        why: Reason why nothing is decided, or no number is there, in two words; empty where something is decided.
        reason: The whole reason, and which attack it was.
        count: Observations behind its numbers, as words; empty where there are none, or the heading says it.
        verdict: Of the finding; None where there is none.
        name: Name of the number, where it differs from the column's heading.
    """

    parts: tuple[Part, ...] = ()
    why: str = ""
    reason: str = ""
    count: str = ""
    verdict: Verdict | None = None
    name: str = ""

    @property
    def badge(self) -> bool:
        """Whether its verdict is said as such."""
        return self.verdict is not None and self.name == LOOKS[self.verdict].word


@dataclass(frozen=True)
class Heading:
    """The head of a column.

    Attributes:
        title: Title of the table.
        parts: The figures of every entry.
        beside: Values that these are compared with.
        about: Facts on every entry, such as its number of observations.
    """

    title: str
    parts: tuple[str, ...] = ()
    beside: str = ""
    about: str = ""


@dataclass(frozen=True)
class ShownLine:
    """A row: a method, its epsilon, and an entry below every other heading."""

    method: str
    shown_epsilon: str
    first: bool
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Shown:
    """The table.

    Attributes:
        headings: Of all columns, the method's and the epsilon's first.
        rows: In the record's order.
        note: Description of the numbers, and advice on reading them.
    """

    headings: tuple[Heading, ...]
    rows: tuple[ShownLine, ...]
    note: str


def shown(record: RunRecord) -> Shown | None:
    """The mission's table of a run; None where the run has no images."""
    found = of_lines([(record, line) for line in lines(record)])
    return None if found is None else replace(found, rows=_with_missing(record, found.rows))


def _with_missing(record: RunRecord, rows: tuple[ShownLine, ...]) -> tuple[ShownLine, ...]:
    """The rows, and one for each method and epsilon that a stopped run did not come to."""
    out = [*rows]
    deltas = several_deltas(record)
    for label, asked in missing_groups(record):
        same = [at for at, row in enumerate(out) if row.method == label]
        entries = tuple(Entry(why=UNFINISHED) for _ in rows[0].entries)
        row = ShownLine(label, _epsilon(asked, deltas), not same, entries)
        out.insert(same[-1] + 1 if same else len(out), row)
    return tuple(out)


def side_by_side(runs: Sequence[tuple[str, RunRecord]]) -> Shown | None:
    """The tables of several runs in one: of each method entry the rows of every run; None without images.

    Args:
        runs: Each with what to call it.
    """
    held = [(name, record, line) for name, record in runs for line in lines(record)]
    order = list(dict.fromkeys(line.group.label for _, _, line in held))
    held.sort(key=lambda item: order.index(item[2].group.label))
    names = [f"{line.group.name}, {name}" for name, _, line in held]
    return of_lines([(record, line) for _, record, line in held], names)


def of_lines(pairs: Sequence[tuple[RunRecord, Line]], names: Sequence[str] = ()) -> Shown | None:
    """The table of some rows.

    Args:
        pairs: Each row with the run that it is of.
        names: Name of the method of each row; none: its label.
    """
    if not pairs:
        return None
    records, found = [record for record, _ in pairs], [line for _, line in pairs]
    audits = image_audits()[:_IMAGES]
    counts = [_common([line.images[at] for line in found]) for at in range(len(audits))]
    headings = (
        Heading("Method"),
        Heading("ε"),
        Heading(_titled(records, "accuracy"), beside=LARGEST),
        *(
            Heading(
                title_of(audit),
                _parts(records) if counts[at] is not None else (),
                LOOKALIKES if counts[at] is not None else "",
                counts[at] or "",
            )
            for at, audit in enumerate(audits)
        ),
        Heading("Copies"),
        Heading("Members"),
        Heading("Claim", beside="observed ε"),
    )
    called = names or [line.group.name for line in found]
    deltas = len({line.group.asked.delta for line in found}) > 1
    rows = tuple(
        ShownLine(
            name,
            _epsilon(line.group.asked, deltas),
            at == 0 or called[at - 1] != name,
            (
                Entry((_number(line.accuracy, beside=line.majority),), reason=line.accuracy.reason),
                *(_images(record, line.images[at], told=bool(counts[at])) for at in range(len(audits))),
                _counted(line.copies, copies_of(line.copies)),
                _measured(line.members, members_of(line.members)),
                _claim(line),
            ),
        )
        for at, (record, line, name) in enumerate(zip(records, found, called, strict=True))
    )
    kinds = "; ".join(kinds_of((line.group.label, line.group.asked) for line in found))
    note = f"{kinds}. " if kinds else ""
    note += (
        f"Behind each figure of images stands what {LOOKALIKES} reach, which anybody has who never saw the "
        "messages. Of each kind the strongest attack is shown; an undecided number has its reason below it."
    )
    return Shown(headings, rows, note)


def _epsilon(asked: Epsilon, deltas: bool) -> str:
    words = short(asked.bare)
    return f"{words}, δ = {short(asked.delta)}" if deltas else words


def _number(metric: Metric, unit: bool = False, beside: Metric | None = None, why: str = "") -> Part:
    if metric.value is None:
        return Part(DASH, why=why)
    text = significant(metric.value) + (f" {metric.unit}" if unit and metric.unit else "")
    against = "" if beside is None or beside.value is None else significant(beside.value)
    return Part(text, interval(metric, count=False), against)


def _images(record: RunRecord, found: Strongest, told: bool) -> Entry:
    """The figures of images; `told`: the heading gives their number."""
    if not _measured_any(found):
        return Entry(why=found.why or unmeasured(record, SSIM.name), reason=_about(found))
    parts = tuple(
        _number(
            found.metrics.get(metric.name, _NONE),
            beside=found.baseline.get(metric.name),
            why=unmeasured(record, metric.name),
        )
        for metric in likeness_metrics()
    )
    count = "" if told else _count(found)
    # Samples of a generator are no leak for being alike: the verdict on copies stands in its own column.
    verdict, name = (found.verdict, "") if found.audit in image_audits() else (None, SAMPLES)
    return Entry(parts, found.why, _about(found), count, verdict, name)


def _counted(found: Strongest, lead: tuple[MetricFacts, Metric] | None) -> Entry:
    """The entry of a count and its total."""
    if lead is None:
        return Entry(why=found.why, reason=found.reason)
    facts, metric = lead
    if metric.value is None or metric.n is None or facts.unit or not metric.value.is_integer():
        return _measured(found, lead)
    counted = Part(f"{metric.value:,.0f} of {metric.n:,}")
    return Entry((counted,), found.why, found.reason, verdict=found.verdict)


def _measured(found: Strongest, lead: tuple[MetricFacts, Metric] | None) -> Entry:
    """One figure with its name."""
    if lead is None:
        return Entry(why=found.why, reason=found.reason)
    facts, metric = lead
    count = "" if metric.n is None else f"n = {metric.n:,}"
    return Entry((_number(metric, unit=True),), found.why, found.reason, count, found.verdict, facts.title)


def _claim(line: Line) -> Entry:
    if line.no_claim and line.claim == "not_run":
        return Entry(why=line.no_claim, reason=line.group.cells[0].privacy.reason)
    observed = line.observed.value
    seen = () if observed is None else (Part(f"≥ {significant(observed)}"),)
    return Entry(seen, "", line.group.cells[0].privacy.reason, "", line.claim, LOOKS[line.claim].word)


_NONE = Metric(value=None, reason="not measured")


def _about(found: Strongest) -> str:
    """The attack behind an entry, what it read, and what came of it."""
    if found.finding is None:
        return found.reason
    named = (found.finding.attack, found.finding.source, found.finding.selection)
    who = ", ".join(part.replace("_", " ") for part in named if part)
    return f"{who}: {found.reason}" if who else found.reason


def _count(found: Strongest) -> str:
    names = {metric.name for metric in likeness_metrics()}
    counts = {metric.n for name, metric in found.metrics.items() if name in names and metric.value is not None}
    held = next(iter(counts)) if len(counts) == 1 else None
    return "" if held is None else f"n = {held:,}"


def _common(found: Sequence[Strongest]) -> str | None:
    """The number of observations that all entries of a column share; empty where they differ, None without any."""
    counts = {_count(each) for each in found if _measured_any(each)}
    return None if not counts else next(iter(counts)) if len(counts) == 1 else ""


def _measured_any(found: Strongest) -> bool:
    return any(found.metrics.get(metric.name, _NONE).value is not None for metric in likeness_metrics())


def _titled(records: Sequence[RunRecord], name: str) -> str:
    """The header of a metric; runs of unlike trunks have one each."""
    return " / ".join(dict.fromkeys(title_in(record, name) for record in records))


def _parts(records: Sequence[RunRecord]) -> tuple[str, ...]:
    """The figures of images with their units."""
    names = [(_titled(records, metric.name), metric.unit) for metric in likeness_metrics()]
    return tuple(f"{name} ({unit})" if unit else name for name, unit in names)
