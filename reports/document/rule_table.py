"""Table of a policy's rules and their marks, in Markdown."""

from __future__ import annotations

from fedassay.reports.decision.checklist import MARKS, checklist
from fedassay.reports.decision.decision import Decision
from fedassay.reports.document.escaping import escaped, markdown_table
from fedassay.reports.gate.judgement import Mark
from fedassay.reports.words.sentences import sentence

_EXPLAINED: tuple[Mark, ...] = ("bounded by the claim", "not tested")
"""Marks that a table of characters is followed by."""


def rule_table(decision: Decision, short: bool = False) -> str:
    """Table of a policy's rules and their marks for each method; empty where it judges nothing of the run.

    Args:
        decision: The policy's decision on a run.
        short: Labels and characters for words, and rules that every method keeps on one line.
    """
    listed = checklist(decision)
    if not listed.lines:
        return ""
    open_ = [line for line in listed.lines if not short or set(line.found) != {"kept"}]
    heads = ("Rule", *map(escaped, listed.labels if short else listed.names))
    rows = (
        (
            escaped(sentence(f"{line.rule}: {line.why}" if line.why else line.rule)),
            *(line.characters if short else line.marks),
        )
        for line in open_
    )
    lines = [markdown_table(heads, rows)]
    if short and open_:
        shown = {mark for line in open_ for mark in line.found}
        key = [" ".join(MARKS[mark]) for mark in _EXPLAINED if mark in shown]
        lines += [f"\n{', '.join(key)}"] if key else []
    if kept := len(listed.lines) - len(open_):
        lines.append(f"\n✔ kept by all: {kept} rule{'s' * (kept != 1)}.")
    return "\n".join(lines)
