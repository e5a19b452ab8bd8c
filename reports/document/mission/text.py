"""The mission's table in Markdown and in LaTeX, from the entries that the page prints."""

from __future__ import annotations

from collections.abc import Sequence

from fedassay.contracts.metrics import likeness_metrics
from fedassay.reports.document.escaping import escaped, latex_escaped, markdown_table
from fedassay.reports.document.mission.shown import LOOKALIKES, Entry, Heading, Part, Shown


def mission_markdown(data: Shown) -> str:
    """GitHub-flavoured Markdown; an entry's numbers on lines of their own."""
    heads = [_markdown_head(head) for head in data.headings]
    rows = (
        [escaped(row.method), row.shown_epsilon, *(_markdown_entry(entry) for entry in row.entries)]
        for row in data.rows
    )
    return f"{markdown_table(heads, rows, right={1})}\n\n{escaped(data.note)}"


def _markdown_head(head: Heading) -> str:
    title = f"{head.title} ({', '.join(head.parts)})" if head.parts else head.title
    held = f"{title} / {head.beside}" if head.beside else title
    return escaped(f"{held}, {head.about}" if head.about else held)


def _markdown_entry(entry: Entry) -> str:
    parts = [_part(part) for part in entry.parts]
    if entry.name and parts:
        parts[0] = f"{entry.name}, observed {parts[0]}" if entry.badge else f"{entry.name} {parts[0]}"
    elif entry.name:
        parts = [entry.name]
    return "<br>".join(escaped(each) for each in (*parts, entry.count, entry.why) if each)


def _part(part: Part) -> str:
    if part.why:
        return part.why
    held = f"{part.text} / {part.beside}" if part.beside else part.text
    return f"{held} {part.interval}".strip()


def mission_latex(data: Shown, name: str) -> str:
    r"""A `table*` for `booktabs`: two lines a row, the numbers and below them what they are held against.

    Every figure of images has a column of its own. The preamble needs `\usepackage{booktabs}`.
    """
    widths = [max(1, len(head.parts)) for head in data.headings]
    spans, under, names = [], [], []
    at = 1
    for head, width in zip(data.headings, widths, strict=True):
        title = latex_escaped(", ".join(part for part in (head.title, head.about) if part))
        spans.append(rf"\multicolumn{{{width}}}{{c}}{{{title}}}" if width > 1 else title)
        if width > 1:
            under.append(rf"\cmidrule(lr){{{at}-{at + width - 1}}}")
        names += [latex_escaped(part) for part in head.parts] or [""]
        at += width
    body: list[str] = []
    for row in data.rows:
        method = latex_escaped(row.method) if row.first else ""
        columns = [[method], [latex_escaped(row.shown_epsilon)]]
        columns += [_latex_entry(entry) for entry in row.entries]
        if body:
            body.append(r"\addlinespace" if row.first else r"\addlinespace[1pt]")
        for line in range(max(map(len, columns))):
            cells = [
                _spread(column[line] if line < len(column) else "", width)
                for column, width in zip(columns, widths, strict=True)
            ]
            body.append(_latex_row(cells))
    parts = ", ".join(metric.title for metric in likeness_metrics())
    against = f"the largest class for accuracy, {LOOKALIKES} for {parts}"
    caption = latex_escaped(
        f"{name}: methods by epsilon. {data.note} Behind a stroke stands what a number is held against: {against}."
        " Intervals are 95 %; a leak is bold."
    )
    return "\n".join(
        [
            r"\begin{table*}",
            r"\centering\scriptsize\setlength{\tabcolsep}{2.5pt}",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{lr{'l' * (sum(widths) - 2)}}}",
            r"\toprule",
            _latex_row(spans),
            *under,
            *([_latex_row(names)] if any(names) else []),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table*}",
            "",
        ]
    )


def _spread(cell: str, width: int) -> str:
    """A cell over the columns of its heading, which it may fill by itself."""
    if width == 1 or " & " in cell or cell.startswith(r"\multicolumn"):
        return cell
    return rf"\multicolumn{{{width}}}{{l}}{{{cell}}}" if cell else " & " * (width - 1)


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_entry(entry: Entry) -> list[str]:
    """The lines of an entry, each over all of its columns: numbers, intervals, words."""
    words = latex_escaped("; ".join(part for part in (entry.count, entry.why) if part))
    width = len(entry.parts)
    if not entry.parts:
        return [latex_escaped(entry.name) or (rf"\emph{{{words}}}" if words else "--")]
    numbers = [_latex_number(part, bold=entry.verdict == "leak") for part in entry.parts]
    intervals = [rf"{{\tiny {latex_escaped(part.interval)}}}" if part.interval else "" for part in entry.parts]
    out = [latex_escaped(entry.name)] if entry.name else []
    out.append(" & ".join(numbers))
    if any(intervals):
        out.append(" & ".join(intervals))
    if words:
        out.append(rf"\multicolumn{{{width}}}{{l}}{{\emph{{{words}}}}}")
    return out


def _latex_number(part: Part, bold: bool) -> str:
    if part.why:
        return rf"\emph{{{latex_escaped(part.why)}}}"
    number = rf"\textbf{{{latex_escaped(part.text)}}}" if bold else latex_escaped(part.text)
    return f"{number} / {latex_escaped(part.beside)}" if part.beside else number
