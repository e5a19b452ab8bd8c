"""Several runs on one page, aligned by method and epsilon, with what changed between their plans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from fedassay.records.record import Metric, RunRecord, Verdict, epsilon_metric
from fedassay.reports.answer.answer import answer
from fedassay.reports.document.html import render
from fedassay.reports.document.leakage import MEASURES
from fedassay.reports.document.mission.shown import side_by_side
from fedassay.reports.document.mission.table import mission_tables
from fedassay.reports.document.mission.text import mission_latex, mission_markdown
from fedassay.reports.document.output import write_page
from fedassay.reports.document.plan_notes import facts, name_of, plan_of
from fedassay.reports.document.privacy_tables import bytes_over_seeds, leakage_over_seeds, utility_over_seeds
from fedassay.reports.document.private import notice
from fedassay.reports.gate.baseline import differences
from fedassay.reports.words.groups import Group, asked_words, groups
from fedassay.reports.words.numbers import DASH, interval, short, significant, size
from fedassay.reports.words.summary import Line, strip
from fedassay.support.epsilon import Epsilon, largest
from fedassay.support.errors import PlanError
from fedassay.support.text import plain_lines

Run = tuple[Path, RunRecord]
Key = tuple[str, str, Epsilon]

_ABSENT = "absent"

_MOST_ROWS = 60
"""Rows of methods by epsilon that a page of several runs has room for."""

_FEW = 3
"""Number of changes for the worse that the head of the page has room for."""


@dataclass(frozen=True)
class Change:
    """A key of the plan with its value in every run."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class ComparedRun:
    """One figure of one run: as printed, its interval, and how it moved from the first run that has it."""

    text: str
    detail: str
    moved: str


@dataclass(frozen=True)
class Measure:
    """One figure of a release over all runs; a run without the release or the figure has a dash."""

    title: str
    entries: tuple[ComparedRun, ...]


@dataclass(frozen=True)
class Aligned:
    """A method entry at one epsilon, over all runs.

    Attributes:
        name: Name of the release.
        lines: Its verdict line in every run; None where the run has no such release.
        measures: Its figures in every run.
        verdict_changed: Whether the runs that have it disagree.
    """

    name: str
    lines: tuple[Line | None, ...]
    measures: tuple[Measure, ...]
    verdict_changed: bool


FORMATS = {"html": "compare.html", "md": "compare.md", "latex": "compare.tex", "csv": "compare.csv"}
"""The formats of a comparison, each with the file that it is written to."""


def write_comparison(runs: Sequence[Run], output: Path, format: str = "html") -> Path:
    """Write the comparison of several runs to a file.

    Args:
        runs: Paths as given, with their records; at least two.
        output: The file; `-` for standard output.
        format: `html` for the page; `md`, `latex` or `csv` for methods by epsilon alone, of all runs in one table.

    Returns:
        The file written.

    Raises:
        PlanError: Fewer than two runs, or the file cannot be written.
    """
    if len(runs) < 2:
        raise PlanError(f"compare: given {len(runs)} run; two or more are needed")
    write_page(comparison(runs) if format == "html" else _table(runs, format), output)
    return output


def _table(runs: Sequence[Run], format: str) -> str:
    """Methods by epsilon, of all runs.

    Raises:
        PlanError: No run has images.
    """
    named = list(zip(run_names(runs), [record for _, record in runs], strict=True))
    data = side_by_side(named)
    if data is None:
        raise PlanError(f"compare --format {format}: no run has images; allowed: html, or runs that audit images")
    if format == "csv":
        return mission_tables(named).csv()
    if format == "md":
        return plain_lines(mission_markdown(data)) + "\n"
    return mission_latex(data, ", ".join(run_names(runs)))


def as_dict(runs: Sequence[Run]) -> dict[str, Any]:
    """The comparison for JSON: what changed in the plans, what became worse, and every release in every run."""
    return {
        "runs": list(run_names(runs)),
        "answers": [answer(record).as_dict() for _, record in runs],
        "changes": [
            {"key": change.key, "values": list(change.values)} for change in changes([r for _, r in runs])
        ],
        "differences": [
            {"worse": each.worse, "words": each.words} for each in differences(runs[-1][1], runs[0][1])
        ],
        "releases": [
            {
                "name": item.name,
                "verdicts": [None if line is None else line.verdict for line in item.lines],
                "said": [None if line is None else line.text for line in item.lines],
                "measures": {
                    measure.title: [
                        f"{entry.text} {entry.detail}" if measure.title.endswith("ε") else entry.text
                        for entry in measure.entries
                    ]
                    for measure in item.measures
                },
                "verdict_changed": item.verdict_changed,
            }
            for item in align(runs)
        ],
    }


def comparison(runs: Sequence[Run]) -> str:
    """Several runs on one HTML page."""
    aligned = align(runs)
    return render(
        "compare.html.j2",
        notice=notice([record for _, record in runs], ()),
        names=run_names(runs),
        mission=side_by_side(list(zip(run_names(runs), [record for _, record in runs], strict=True))),
        most=_MOST_ROWS,
        runs=[("" if record.redacted else path, record, facts(record)) for path, record in runs],
        changes=changes([record for _, record in runs]),
        aligned=aligned,
        lead=_lead(aligned, runs),
    )


def run_names(runs: Sequence[Run]) -> tuple[str, ...]:
    """A name for every run: its plan's, with its folder where plans share a name and none is redacted."""
    plain = [name_of(record) for _, record in runs]
    folders = [(path if path.is_dir() else path.parent).resolve().name for path, _ in runs]
    redacted = any(record.redacted for _, record in runs)
    named = [
        name if plain.count(name) == 1 or redacted else f"{name} ({folder})"
        for name, folder in zip(plain, folders, strict=True)
    ]
    return tuple(name if named.count(name) == 1 else f"{number}. {name}" for number, name in enumerate(named, 1))


def align(runs: Sequence[Run]) -> tuple[Aligned, ...]:
    """Releases by label, method and epsilon, with what it is of: one of another kind is another release."""
    found: dict[Key, list[tuple[Group, Line] | None]] = {}
    deltas = len({group.asked.delta for _, record in runs for group in groups(record)}) > 1
    for number, (_, record) in enumerate(runs):
        for line in strip(record):
            group = line.group
            key = (group.label, group.method, group.asked)
            found.setdefault(key, [None] * len(runs))[number] = (group, line)
    return tuple(_aligned(key, held, deltas) for key, held in found.items())


def _aligned(key: Key, held: Sequence[tuple[Group, Line] | None], deltas: bool) -> Aligned:
    label, method, asked = key
    name = label if label == method else f"{label} ({method})"
    name += f", ε = {asked_words(asked)}" + (f", δ = {short(asked.delta)}" if deltas else "")
    present = [group for group, _ in filter(None, held)]
    measures = [
        _measure("Accuracy", [None if item is None else utility_over_seeds(item[0], "accuracy") for item in held]),
        _measure("Bytes up", [None if item is None else bytes_over_seeds(item[0], "bytes_up") for item in held]),
        *(
            _measure(title, [None if item is None else _privacy(map(read, item[0].cells)) for item in held])
            for title, read in (("Claimed ε", attrgetter("claimed")), ("Accounted ε", attrgetter("accounted")))
        ),
        *(
            _measure(
                measure.title,
                [None if item is None else leakage_over_seeds(item[0], measure.name) for item in held],
            )
            for measure in MEASURES
            if any(leakage_over_seeds(group, measure.name).value is not None for group in present)
        ),
    ]
    verdicts: set[Verdict] = {line.verdict for _, line in filter(None, held)}
    lines = tuple(None if item is None else item[1] for item in held)
    return Aligned(name, lines, tuple(measures), len(verdicts) > 1)


def _privacy(found: Iterable[Epsilon | None]) -> Metric:
    """The largest epsilon over seeds."""
    worst = largest(found)
    return epsilon_metric(worst, reason="not claimed" if worst is None else "")


def _measure(title: str, metrics: Sequence[Metric | None]) -> Measure:
    first = next((metric for metric in metrics if metric is not None and metric.value is not None), None)
    entries = []
    seen = False
    for metric in metrics:
        if metric is None or metric.value is None:
            entries.append(ComparedRun(DASH, "" if metric is None else metric.reason, ""))
            continue
        text = size(metric.value) if title == "Bytes up" else significant(metric.value)
        detail = "" if title == "Bytes up" else f"{interval(metric)} {metric.unit}".strip()
        moved = first is not None and first.unit == metric.unit and seen
        entries.append(
            ComparedRun(text, detail, _moved(first.value, metric.value, title) if first and moved else "")
        )
        seen = True
    return Measure(title, tuple(entries))


def _moved(first: float | None, value: float, title: str) -> str:
    """Difference of a figure from the first run's; a ratio for bytes, a difference otherwise."""
    if first is None or first == value:
        return ""
    if math.isinf(first) or math.isinf(value):
        return "from unbounded" if math.isinf(first) else "to unbounded"
    if title == "Bytes up":
        return f"× {significant(value / first)}" if first else ""
    return f"{'+' if value > first else ''}{significant(value - first)}"


def _lead(aligned: Sequence[Aligned], runs: Sequence[Run]) -> str:
    """Number of releases, and changes for the worse from the first run to the last; another version first."""
    changed = differences(runs[-1][1], runs[0][1])
    versions = [each.words for each in changed if each.about == "version"]
    worse = [each.words for each in changed if each.worse]
    more = [f"{len(worse) - _FEW} more became worse."] if len(worse) > _FEW else []
    return " ".join([*versions, _count(aligned), *worse[:_FEW], *more])


def _count(aligned: Sequence[Aligned]) -> str:
    changed = sum(item.verdict_changed for item in aligned)
    shared = sum(None not in item.lines for item in aligned)
    words = f"{len(aligned)} release{'s' if len(aligned) != 1 else ''}, {shared} of them in every run. "
    if not changed:
        return words + "No verdict differs between runs that share a release."
    return words + f"The verdict differs on {changed}."


def changes(records: Sequence[RunRecord]) -> tuple[Change, ...]:
    """The plan keys with differing values, in the order in which they appear."""
    flat = [flattened(plan_of(record)) for record in records]
    keys = dict.fromkeys(key for plan in flat for key in plan if key != "name")
    found = (Change(key, tuple(plan.get(key, _ABSENT) for plan in flat)) for key in keys)
    return tuple(change for change in found if len(set(change.values)) > 1)


def flattened(plan: dict[str, Any]) -> dict[str, str]:
    """A plan as dotted keys; entries of methods, attacks and audits go by their label or name.

    Example:
        >>> flattened({"data": {"name": "digits"}, "methods": [{"fedpft": {"components": 10}}]})
        {'data.name': 'digits', 'methods.fedpft.components': '10'}
    """
    out: dict[str, str] = {}
    for key, value in plan.items():
        if key in {"methods", "attacks", "audits"} and isinstance(value, list | tuple):
            for entry, params in _entries(value):
                out |= _leaves(f"{key}.{entry}", params or {"": "with its defaults"})
        else:
            out |= _leaves(str(key), value)
    return out


def _entries(items: Sequence[Any]) -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = []
    for item in items:
        name, params = next(iter(item.items())) if isinstance(item, dict) and item else (str(item), {})
        label = params.get("label", name) if isinstance(params, dict) else name
        count = sum(taken == label or taken.startswith(f"{label}#") for taken, _ in out)
        out.append((f"{label}#{count + 1}" if count else str(label), params))
    return out


def _leaves(prefix: str, value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        below = (_leaves(f"{prefix}.{key}" if key else prefix, item) for key, item in value.items())
        return {key: words for leaves in below for key, words in leaves.items()}
    if isinstance(value, list | tuple):
        return {prefix: ", ".join("none" if item is None else str(item) for item in value)}
    return {prefix: "none" if value is None else str(value)}
