"""A run in Markdown, short enough for a pull request."""

from __future__ import annotations

from fedassay.records.record import Metric, RunRecord
from fedassay.reports.answer.answer import Answer, answer
from fedassay.reports.decision.words import grounds
from fedassay.reports.document.escaping import escaped, markdown_table
from fedassay.reports.document.finding_tables import controls_sentence
from fedassay.reports.document.leakage import MEASURES
from fedassay.reports.document.mission.shown import shown
from fedassay.reports.document.mission.text import mission_markdown
from fedassay.reports.document.plan_notes import facts, name_of, rerun
from fedassay.reports.document.privacy_tables import utility_table
from fedassay.reports.document.rule_table import rule_table
from fedassay.reports.document.tables import Column, Value, as_metric
from fedassay.reports.gate.policy import Policy
from fedassay.reports.words.groups import asked_words, missing_name, several_deltas
from fedassay.reports.words.numbers import DASH, interval, short, significant, size
from fedassay.reports.words.sentences import sentence
from fedassay.reports.words.summary import lead, strip
from fedassay.reports.words.verdicts import LOOKS
from fedassay.support.epsilon import Epsilon
from fedassay.support.text import plain_lines

_ANSWER = (
    *("Answer", "Method", "ε", "of", "Worst finding"),
    *("Claimed ε", "Accounted ε", "Observed ε", "Accuracy", "Majority"),
)


def markdown(record: RunRecord, policy: Policy | None = None) -> str:
    """The answer, verdicts, key numbers, controls and errors as GitHub-flavoured Markdown."""
    found = answer(record, policy)
    parts = [f"## Privacy assay: {escaped(name_of(record))}", _answer(record, found), escaped(lead(record))]
    if (lacks := record.unfinished) is not None:
        total = len(lacks.cells) + len(record.cells)
        named = ", ".join(map(missing_name, lacks.cells))
        parts.insert(
            1,
            f"**Not finished: {len(lacks.cells)} of {total} cells are missing**, because {escaped(lacks.why)}: "
            f"{escaped(named)}. It goes on with `{lacks.command}`",
        )
    if record.errors:
        items = [
            f"- {escaped(error.cell)}, {escaped(error.stage)}: {escaped(error.message)}" for error in record.errors
        ]
        parts.append("**Parts of the run failed:**\n\n" + "\n".join(items))
    if (mission := shown(record)) is not None:
        parts.append(mission_markdown(mission))
    parts += [_policy(found), _verdicts(record), _numbers(record), escaped(controls_sentence(record))]
    about = "\n".join(f"- {name}: {escaped(value)}" for name, value in facts(record))
    parts.append(
        f"<details><summary>About this run</summary>\n\n{about}\n\n```sh\n{rerun(record)}\n```\n\n</details>"
    )
    return plain_lines("\n\n".join(part for part in parts if part) + "\n")


def _answer(record: RunRecord, found: Answer) -> str:
    """The answer, a row a method, what comes next, what it rests on."""
    out = [f"**{found.mark} {escaped(found.headline)}** {' '.join(map(escaped, found.sentences[1:]))}".strip()]
    if found.rows:
        rows = (
            (
                f"{row.mark} **{row.shown}**",
                *map(escaped, (row.name, row.shown_epsilon, row.of, row.brief)),
                *map(escaped, (row.claimed, row.accounted, row.observed, row.accuracy, row.majority)),
            )
            for row in found.rows
        )
        out += ["", markdown_table(_ANSWER, rows, right={2, 5, 6, 7, 8, 9})]
    beside = [*found.beside]
    beside += [f"{sweep.clause}." for sweep in found.sweeps]
    beside += grounds(record)
    takes = f" ({found.next.takes})" if found.next.takes else ""
    step = f"- Next: {escaped(found.next.what.rstrip('.') + takes)}. `{found.next.command}`"
    return "\n".join([*out, "", step, *(f"- {escaped(words)}" for words in beside if words)])


def _policy(found: Answer) -> str:
    """The policy rule by rule, folded."""
    rules = rule_table(found.decision, short=True)
    title = f"The policy {escaped(found.policy)}, rule by rule"
    return f"<details><summary>{title}</summary>\n\n{rules}\n\n</details>" if rules else ""


def _verdicts(record: RunRecord) -> str:
    deltas = several_deltas(record)
    rows = []
    for line in strip(record):
        look = LOOKS[line.verdict]
        asked = line.group.asked
        epsilon = asked_words(asked) + (f", δ = {short(asked.delta)}" if deltas else "")
        words = sentence(line.text)
        if line.seeds:
            words += f" On {line.seeds}."
        rows.append((f"{look.mark} **{look.word}**", escaped(line.group.name), epsilon, escaped(words)))
    heads = ("Verdict", "Method", "ε", "In words")
    return markdown_table(heads, rows, right={2}) if record.cells else "The run has no cell."


def _numbers(record: RunRecord) -> str:
    """Accuracy, bytes, leakage: the utility table's own columns and values."""
    if not record.cells:
        return ""
    table = utility_table(record)
    wanted = ("label", "epsilon", "accuracy", "bytes_up", *(measure.name for measure in MEASURES))
    columns = [(at, column) for at, column in enumerate(table.columns) if column.key in wanted]
    return markdown_table(
        [escaped(column.title) for _, column in columns],
        ([_value(column, row.values[at]) for at, column in columns] for row in table.rows),
        right=[place for place, (_, column) in enumerate(columns) if column.numeric],
    )


def _value(column: Column, value: Value) -> str:
    if column.kind == "bytes":
        return size(as_metric(value).value)
    if column.kind == "metric":
        return _metric(as_metric(value))
    return asked_words(value) if isinstance(value, Epsilon) else escaped(getattr(value, "text", str(value)))


def _metric(metric: Metric) -> str:
    if metric.value is None:
        return DASH
    return f"{significant(metric.value)} {escaped(interval(metric, count=False))}".strip()
