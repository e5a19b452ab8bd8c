"""The page that somebody signs, the form behind it, and the same as Markdown with every place in the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import get_args

from fedassay.records.facts import HARMS, HarmKind
from fedassay.records.record import CellRecord, Finding
from fedassay.reports.document.escaping import escaped, markdown_table
from fedassay.reports.document.html import render
from fedassay.reports.document.plan_notes import name_of
from fedassay.reports.document.rule_table import rule_table
from fedassay.reports.evidence.form import Source, form, left_open, looked_for, of_persons, with_gallery
from fedassay.reports.evidence.lines import GIVES, RUN, Line, Sought, Status, from_findings
from fedassay.reports.evidence.release import Release
from fedassay.reports.evidence.risk import Risk, risks, spent_by
from fedassay.reports.words.claims import claim_clause, claims, refuted
from fedassay.reports.words.epsilon_scale import in_words
from fedassay.reports.words.harm_words import HARM_WORDS, SCALE
from fedassay.reports.words.sentences import capital, listed, sentence
from fedassay.reports.words.untested import gaps
from fedassay.support.text import plain_lines

ATTRIBUTE = "A sensitive attribute"
"""Beside these: of persons, and over what anybody could have guessed."""

_OPEN: dict[HarmKind, tuple[str, ...]] = {
    "attributes": ("class_counts", "labels"),
    "counts": ("class_counts", "labels", "other"),
}
"""Kinds of fields from which a harm is read off where they are sent as they are."""

_SHORT = 40
"""Characters of an answer that is said again rather than referred to."""

_A_PAGE, _A_RISK = 1_200, 60
"""Characters that the first page holds in its usual type, and those that a row of risks takes."""

_TERMS = {
    "ε": "ε (epsilon) bounds what one {unit} can change in what is sent: the smaller, the better the protection.",
    "AUC": "AUC: how well members are distinguished from others; 0.5 is guessing, 1 is every time.",
    "eatures": "Features: the numbers that a network computes of a record.",
    "false alarms": "False alarms: others who are taken for somebody who took part.",
}
"""Terms that the first page explains where it uses them."""


@dataclass(frozen=True)
class Pages:
    """Contents of the pages of evidence.

    Attributes:
        title: Name of the run.
        release: The release that they are about.
        claim: The claim, and its outcome.
        tested: The harms looked for, and those found or possibly missed.
        open: Names of attacks that apply and were not conclusive.
        risks: The risks found, on the scale.
        sources: The form.
    """

    title: str
    release: Release
    claim: str
    tested: tuple[Line, ...]
    open: tuple[str, ...]
    risks: tuple[Risk, ...]
    sources: tuple[Source, ...]

    def brief(self, line: Line) -> str:
        """An answer of the form, as the pages of the form say it: what the first page says is not said again."""
        if line.status == "not tested":
            return line.answer.partition(RUN)[0]
        for tested in self.tested:
            if tested.answer and tested.answer in line.answer:
                level = line.answer.split(tested.answer)[0].rstrip(":. ")
                page = f"{level}; see page 1" if level else "See page 1"
                return f"{page}, “{tested.question}”."
        if line.answer == self.claim:
            return "See page 1, “Claim”."
        first = next(
            (each for source in self.sources for each in source.lines if each.answer == line.answer), line
        )
        if first is not line and len(line.answer) > _SHORT:
            return f"As above: “{first.question}”"
        return line.answer

    @property
    def further(self) -> str:
        """Sentence on applying attacks that were not conclusive, unless rows of the first page name them all."""
        tried = {place: finding.attack for place, finding in self.release.findings()}
        left_out = {
            f"/cells/{number}/coverage/{place}": row.attack
            for number, cell in self.release.cells
            for place, row in enumerate(cell.coverage)
        }
        named: dict[Status, Mapping[str, str | None]] = {"not decided": tried, "not tested": left_out}
        shown = {named.get(line.status, {}).get(place) for line in self.tested for place in line.pointers}
        return "" if set(self.open) <= shown else left_open(self.cells)

    @property
    def cells(self) -> tuple[CellRecord, ...]:
        """The cells of the release."""
        return tuple(self.release.option.group.cells)

    @property
    def disproved(self) -> bool:
        """Whether the claim is disproved."""
        return any(refuted(cell) for cell in self.cells)

    @property
    def worst_first(self) -> list[Line]:
        """Tested harms in order: those found, those open, and last those not found; each the worst first."""
        order = ("found", "sent openly", "not decided", "not tested", "bounded by the claim", "nothing found")
        return sorted(self.tested, key=lambda line: order.index(line.shown))

    @property
    def harmless(self) -> str:
        """Sentence on a release without a found harm: how many of the harms were tested at all."""
        unsaid = sum(line.shown in ("not decided", "not tested") for line in self.tested)
        beyond = " beyond what the claim allows" if any(claims(cell) for cell in self.cells) else ""
        words = f"The tests that were made found no harm{beyond}."
        if not unsaid:
            return words
        were = "was" if unsaid == 1 else "were"
        return f"{words} {unsaid} of the {len(self.tested)} harms above {were} not tested, or not decided."

    @property
    def sought(self) -> dict[HarmKind, str]:
        """Names of the harms on the pages."""
        return {kind: named.asked for kind, named in HARM_WORDS.items()}

    @property
    def dense(self) -> bool:
        """Whether the first page has so much to say that it takes smaller type to stay one page."""
        said = [self.release.answer.text, self.claim, self.further, *(line.answer for line in self.tested)]
        return sum(map(len, said)) + _A_RISK * len(self.risks) > _A_PAGE

    @property
    def terms(self) -> str:
        """Explanations of the terms on the first page."""
        said = " ".join([self.claim, self.release.answer.text, *(line.answer for line in self.tested)])
        unit = self.release.option.group.asked.unit
        return " ".join(words.format(unit=unit) for term, words in _TERMS.items() if term in said)

    @property
    def scale(self) -> str:
        """Meaning of the spent epsilon for one person; empty where nothing bounds it."""
        cell = self.cells[0]
        words = in_words(spent_by(cell), cell.privacy.mu)
        if not words:
            return ""
        alone = " Somebody with several records has less." if cell.unit == "record" else ""
        known = "" if cell.seed is None else " It holds where the noise is secret; this run's follows from a seed."
        return f"{words}{alone}{known}"

    @property
    def ended(self) -> str:
        """Time at which the run ended, to the minute; empty where the record does not state it."""
        when = self.release.record.environment.get("finished")
        try:
            ended = datetime.fromisoformat(str(when)) if when else None
        except ValueError:
            return ""
        return "" if ended is None else f"{ended.day} {ended:%B %Y, %H:%M %Z}".strip()

    def counts(self) -> dict[Status, int]:
        """Number of questions of the form by status."""
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
        tuple(gaps(release.option.group.cells)),
        risks(release),
        form(release),
    )


def _tested(release: Release) -> tuple[Line, ...]:
    """Lines on the harms looked for: every harm, the worst first, and attributes of persons."""
    own = of_persons()

    def looks(kind: HarmKind) -> Callable[[Finding], bool]:
        of_kind = looked_for(kind)
        if kind == "named":
            return lambda finding: of_kind(finding) or with_gallery(finding)
        return lambda finding: of_kind(finding) and not own(finding)

    rows = [
        _openly(from_findings(release, "", HARM_WORDS[kind].asked, looks(kind), sought=GIVES[kind]), release, kind)
        for kind in HARMS
    ]
    return (*rows, from_findings(release, "", ATTRIBUTE, own, sought=Sought(("values",))))


def _openly(line: Line, release: Release, kind: HarmKind) -> Line:
    """A line of what is sent as it is, since the guarantee declares it public: nothing has to be found."""
    fields = {
        f"{row.field.replace('_', ' ')} ({row.kind.replace('_', ' ')})": f"/cells/{number}/ledger/{place}"
        for number, cell in release.cells
        for place, row in enumerate(cell.ledger)
        if row.direction == "up" and row.exact and row.public_under_adjacency and row.kind in _OPEN.get(kind, ())
    }
    if line.found or not fields:
        return line
    said = f"{listed(fields, limit=len(fields))} is sent as it is, which the guarantee declares public."
    return replace(
        line,
        status="answered",
        answer=capital(said),
        pointers=tuple(fields.values()),
        found=True,
        mark="sent openly",
    )


def html(found: Pages, record_digest: str) -> str:
    """All pages, to be read in a browser, printed and signed.

    Args:
        found: The pages.
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
        escaped(found.release.answer.failed),
        f"## Policy {escaped(found.release.policy.name)}",
        rule_table(found.release.answer.decision) or "It does not judge this release.",
        f"## Risk\n\n{escaped(SCALE)}",
        _risks(found.risks, found.harmless),
    ]
    for source in found.sources:
        read = f"Read: `{source.read}`" if source.read else ""
        parts += [f"## {escaped(source.name)}", read, _table(source.lines)]
    return plain_lines("\n\n".join(filter(None, parts)) + "\n")


def _table(lines: tuple[Line, ...]) -> str:
    rows = ["| | Question | Status | Answer | In the record |", "|---|---|---|---|---|"]
    rows += [
        f"| {escaped(line.clause)} | {escaped(line.question)} | {line.status} | {escaped(line.answer)} "
        f"| {_where(line.pointers)} |"
        for line in lines
    ]
    return "\n".join(rows)


def _risks(found: tuple[Risk, ...], harmless: str) -> str:
    if not found:
        return harmless
    heads = ("Severity", "Likelihood", "Found", "Who could do it", "What it takes", "In the record")
    rows = (
        (
            *(risk.level, risk.likelihood, escaped(risk.found), escaped(risk.who)),
            *(escaped(risk.takes), _where(risk.pointers)),
        )
        for risk in found
    )
    return markdown_table(heads, rows)


def _where(pointers: tuple[str, ...]) -> str:
    if not pointers:
        return "–"
    shown = ", ".join(f"`{pointer}`" for pointer in pointers[:3])
    return shown + (f" and {len(pointers) - 3} more" if len(pointers) > 3 else "")
