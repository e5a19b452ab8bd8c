"""The two pages that somebody signs, and the same form as Markdown with every place in the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from fedassay.records.coverage import not_fully_tested
from fedassay.records.facts import HARMS, HarmKind
from fedassay.records.record import Finding
from fedassay.reports.document.html import render
from fedassay.reports.document.markdown import escaped
from fedassay.reports.document.plan_notes import name_of
from fedassay.reports.evidence.form import Source, form, looked_for, of_persons
from fedassay.reports.evidence.lines import Line, Status, from_findings
from fedassay.reports.evidence.release import Release
from fedassay.reports.evidence.risk import SCALE, Risk, risks
from fedassay.reports.words.claims import claim_clause
from fedassay.reports.words.sentences import sentence
from fedassay.support.text import plain_lines

_SOUGHT: dict[HarmKind, str] = {
    "pictures": "Images of people rebuilt",
    "exact": "Features or records taken out exactly",
    "named": "Persons named as members",
    "members": "Likely members",
    "attributes": "Labels, and what clients are like",
    "counts": "How many records there are",
}
"""What was looked for, the worst first."""

ATTRIBUTE = "A sensitive attribute of a person"
"""Beside these: of persons, and over what anybody could have guessed."""


@dataclass(frozen=True)
class Pages:
    """What both pages say.

    Attributes:
        title: Name of the run.
        release: What it is about.
        claim: What is claimed, and what became of it.
        tested: What was looked for, and what was found or may have been missed.
        open: Which attacks that apply were not conclusive; empty where all were.
        risks: What was found, on the scale.
        sources: The form.
    """

    title: str
    release: Release
    claim: str
    tested: tuple[Line, ...]
    open: str
    risks: tuple[Risk, ...]
    sources: tuple[Source, ...]

    def brief(self, line: Line) -> str:
        """An answer of the form, as the second page says it: what the first page says is not said again."""
        if line.status == "not tested":
            return ""
        for tested in self.tested:
            if tested.answer and tested.answer in line.answer:
                return f"Page 1: {tested.question[:1].lower()}{tested.question[1:]}."
        return line.answer

    def counts(self) -> dict[Status, int]:
        """How many questions of the form came out how."""
        every = [line.status for source in self.sources for line in source.lines]
        return {status: every.count(status) for status in get_args(Status)}


def pages(release: Release) -> Pages:
    """Everything that the pages say of a release."""
    cell = release.option.group.cells[0]
    return Pages(
        name_of(release.record),
        release,
        sentence(claim_clause(cell)),
        _tested(release),
        sentence(not_fully_tested(release.option.group.cells)),
        risks(release),
        form(release),
    )


def _tested(release: Release) -> tuple[Line, ...]:
    """What was looked for: every harm, the worst first, and attributes of persons."""
    own = of_persons()

    def looks(kind: HarmKind) -> Callable[[Finding], bool]:
        of_kind = looked_for(kind)
        return lambda finding: of_kind(finding) and not own(finding)

    rows = tuple(from_findings(release, "", _SOUGHT[kind], looks(kind)) for kind in HARMS)
    return (*rows, from_findings(release, "", ATTRIBUTE, own))


def html(found: Pages, record_digest: str) -> str:
    """Both pages, to be read in a browser, printed and signed.

    Args:
        found: What they say.
        record_digest: SHA-256 of the record that they speak of.
    """
    return render(
        "evidence.html.j2",
        pages=found,
        answer=found.release.answer,
        release=found.release,
        digest=record_digest,
        environment=found.release.record.environment,
        scale=SCALE,
    )


def markdown(found: Pages) -> str:
    """The form with every place in the record."""
    parts = [
        f"# Evidence: {escaped(found.title)}, {escaped(found.release.name)}",
        f"**{escaped(found.release.answer.text)}**",
        "Every answer names the places in record.json that it is made of (JSON pointers), or is left to a person.",
        "## What was tested",
        _table(found.tested),
        f"## Risk\n\n{escaped(SCALE)}",
        _risks(found.risks),
    ]
    for source in found.sources:
        parts += [f"## {escaped(source.name)}", f"Read: `{source.read}`", _table(source.lines)]
    return plain_lines("\n\n".join(parts) + "\n")


def _table(lines: tuple[Line, ...]) -> str:
    rows = ["| | Question | Status | Answer | In the record |", "|---|---|---|---|---|"]
    rows += [
        f"| {escaped(line.clause)} | {escaped(line.question)} | {line.status} | {escaped(line.answer)} "
        f"| {_where(line.pointers)} |"
        for line in lines
    ]
    return "\n".join(rows)


def _risks(found: tuple[Risk, ...]) -> str:
    if not found:
        return "No harm was found."
    rows = ["| Level | Found | Who could do it | What it takes | In the record |", "|---|---|---|---|---|"]
    rows += [
        f"| {risk.level} | {escaped(risk.found)} | {escaped(risk.who)} | {escaped(risk.takes)} "
        f"| {_where(risk.pointers)} |"
        for risk in found
    ]
    return "\n".join(rows)


def _where(pointers: tuple[str, ...]) -> str:
    if not pointers:
        return "–"
    shown = ", ".join(f"`{pointer}`" for pointer in pointers[:3])
    return shown + (f" and {len(pointers) - 3} more" if len(pointers) > 3 else "")
