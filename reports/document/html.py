"""The HTML report: one file, nothing fetched, seven sections."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedassay.records.record import RunRecord, Verdict
from fedassay.reports.answer.answer import answer
from fedassay.reports.answer.rows import MARKS
from fedassay.reports.decision.checklist import checklist
from fedassay.reports.decision.standard import check_command
from fedassay.reports.decision.words import grounds
from fedassay.reports.document.audits import image_audit
from fedassay.reports.document.contact import sheet_of
from fedassay.reports.document.content import contents, section_five
from fedassay.reports.document.figures.epsilons import epsilons
from fedassay.reports.document.finding_figures import folded_of
from fedassay.reports.document.finding_tables import controls_sentence, found
from fedassay.reports.document.mission.shown import shown
from fedassay.reports.document.mission.strips import strips
from fedassay.reports.document.pictures import galleries, headline_picture
from fedassay.reports.document.plan_notes import (
    absent,
    assumptions,
    data_facts,
    facts,
    papers,
    plan_yaml,
    rerun,
    stated,
    warnings,
)
from fedassay.reports.document.privacy_tables import leaves_exactly, ledger_table
from fedassay.reports.document.private import notice
from fedassay.reports.document.tables import Printed, Table, printed
from fedassay.reports.gate.policy import Policy
from fedassay.reports.words.groups import asked_words, cell_name, missing_name, several_deltas, several_seeds
from fedassay.reports.words.harm_words import harm_clause
from fedassay.reports.words.harms import leaks
from fedassay.reports.words.naming import slug
from fedassay.reports.words.numbers import short, significant
from fedassay.reports.words.sentences import capital
from fedassay.reports.words.summary import lead, strip
from fedassay.reports.words.verdicts import LOOKS
from fedassay.support.text import plain_lines

_MOST = 160
"""Methods and lines of verdicts that a page holds, as `tables` does rows; the CSV files have all."""
_LEDGERS = 40
"""Largest number of method entries with their ledgers on one page."""
_ROWS = 6
"""Rows of the figure of epsilons on the first screen."""


def page(run: Path, record: RunRecord, policy: Policy | None = None) -> str:
    """The report of a run.

    Args:
        run: The run folder; only the pictures that the record names are read from it.
        record: The record to report.
        policy: Policy of the decision; None: the shipped one that fits.
    """
    content, found = contents(record), answer(record, policy)
    pictures = {
        name: galleries(run, record, name) for name in (image_audit(), *(n for n, _ in section_five(record)))
    }
    contact = sheet_of(run, record)
    sections = [
        {
            "name": name,
            "title": title,
            "table": _printed(content.table(slug(name))),
            "figures": content.attacks[name],
            "galleries": pictures[name],
            "folded": [printed(table) for table in folded_of(record, name)],
        }
        for name, title in section_five(record)
    ]
    return render(
        "report.html.j2",
        record=record,
        plan=record.plan if isinstance(record.plan, dict) else {},
        facts=facts(record),
        answer=found,
        policy=checklist(found.decision),
        capital=capital,
        check_command=check_command,
        missing_name=missing_name,
        mission=shown(record),
        strips=strips(run, record),
        picture=headline_picture(run, record),
        claims=epsilons(record, [option.group for option in found.decision.options][:_ROWS], "claims"),
        grounds=grounds(record),
        lead=lead(record),
        lines=strip(record),
        deltas=several_deltas(record),
        content=content,
        table=lambda name: _printed(content.table(name)),
        reconstruction=pictures[image_audit()],
        notice=notice(
            [record], chain.from_iterable(pictures.values()), 0 if contact is None else contact.pictures
        ),
        contact=contact,
        audits=sections,
        ledgers=_ledgers(record),
        unlisted=max(0, len({cell.label for cell in record.cells if cell.ledger}) - _LEDGERS),
        most=_MOST,
        digest=lambda audit: digest(record, audit),
        controls=controls_sentence(record),
        data=data_facts(record),
        assumptions=assumptions(record),
        papers=papers(record),
        stated=stated(record),
        warnings=warnings(record),
        plan_yaml=plan_yaml(record),
        rerun=rerun(record),
        absent=lambda audit: absent(record, audit),
    )


def _printed(table: Table | None) -> Printed | None:
    return None if table is None or not table.groups else printed(table)


def _ledgers(record: RunRecord) -> list[tuple[str, list[str], Printed]]:
    """One ledger for each of the first method entries, from its first seed: name, exact fields, table."""
    out = []
    for label in list(dict.fromkeys(cell.label for cell in record.cells if cell.ledger))[:_LEDGERS]:
        cells = [cell for cell in record.cells if cell.label == label]
        first = [cell for cell in cells if cell.seed == cells[0].seed]
        table = ledger_table(record, first, alone=True)
        if table.groups:
            exact = list(dict.fromkeys(row.field for cell in first for row in cell.ledger if leaves_exactly(row)))
            out.append((label, exact, printed(table)))
    return out


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("fedassay.reports.document", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    tones = {word: tone for word, (_, tone, _) in MARKS.items()}
    environment.globals.update(
        looks=LOOKS,
        tones=tones,
        short=short,
        number=significant,
        zip=zip,
        asked_words=asked_words,
    )
    environment.filters["markup"] = Markup
    return environment


def render(template: str, **context: object) -> str:
    """Render a page of this room: its styles and script inlined, and allowed by their hashes alone."""
    environment = _environment()
    style, form, script = _source("style.css"), _source("evidence.css"), _source("page.js")
    text = environment.get_template(template).render(
        style=Markup(style),
        script=Markup(script),
        style_hash=_digest(style),
        form=Markup(form),
        form_hash=_digest(form),
        script_hash=_digest(script),
        **context,
    )
    return plain_lines(text)


@cache
def _source(name: str) -> str:
    loader = _environment().loader
    assert loader is not None
    return loader.get_source(_environment(), name)[0]


def _digest(source: str) -> str:
    """A source's hash as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode("ascii")


_FEW = 6
"""Leaks that are said in words; the table has all."""


@dataclass(frozen=True)
class Digest:
    """The findings of an audit at a glance.

    Attributes:
        counts: Number of findings with each verdict, the heaviest first.
        leaks: Leaks in words, the worst first, each with the releases that it was found in.
        further: Number of further ones.
    """

    counts: tuple[tuple[Verdict, int], ...]
    leaks: tuple[tuple[str, str], ...]
    further: int


def digest(record: RunRecord, audit: str) -> Digest:
    """Digest of an audit's findings in all cells of a run."""
    findings = found(record, [audit])
    verdicts = [finding.verdict for _, finding in findings]
    deltas, seeds = several_deltas(record), several_seeds(record)
    named: dict[str, list[str]] = {}
    for leak in leaks(record.cells):
        if leak.finding.audit == audit:
            named.setdefault(harm_clause(leak), []).append(cell_name(leak.cell, deltas, seeds))
    said = tuple((words, "; ".join(dict.fromkeys(cells))) for words, cells in named.items())
    return Digest(
        counts=tuple((verdict, verdicts.count(verdict)) for verdict in LOOKS if verdict in verdicts),
        leaks=said[:_FEW],
        further=max(0, len(said) - _FEW),
    )
