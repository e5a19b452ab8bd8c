"""A run record in, pages out.

Every function here is pure: it reads a `RunRecord` and, for pictures only, the image files beside
it. An old run therefore renders again at any time, with no method, attack or audit installed.

| format | function | what it is |
|---|---|---|
| `html` | `fedassay.reports.document.html` | one self-contained page, the one a reviewer signs from |
| `md` | `fedassay.reports.document.markdown` | verdicts and key numbers for a pull request |
| `latex` | `fedassay.reports.document.latex` | methods by epsilon as a table for a paper |
| `json` | the record itself | |
| `csv` | `fedassay.reports.document.tables` | a folder: every table and the data behind every figure |
| `sarif` | `fedassay.reports.gate.sarif` | SARIF 2.1.0, for code-scanning tools |
| `junit` | `fedassay.reports.gate.junit` | JUnit XML, for CI systems |
| `evidence` | `fedassay.reports.evidence.folder` | a folder for a file: what regulators and registries ask |

`fedassay.reports.document.compare` puts several runs on one page; `fedassay.reports.gate.policy` decides whether a
run may pass. The data that figures need from audits is fixed in `fedassay.reports.document.series`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from fedassay.records.record import RunRecord
from fedassay.reports.document.output import ANOTHER, write_page
from fedassay.support.atomic import chosen_by_user
from fedassay.support.errors import PlanError
from fedassay.support.terminal import is_stream

if TYPE_CHECKING:
    from fedassay.reports.gate.policy import Policy

Format = Literal["html", "md", "latex", "json", "csv", "sarif", "junit", "evidence"]
FORMATS: tuple[str, ...] = get_args(Format)
"""The formats that `fedassay report` offers."""

_FOLDERS = ("csv", "evidence")

DEFAULT_NAMES = {
    "html": "report.html",
    "md": "report.md",
    "latex": "report.tex",
    "json": "report.json",
    "csv": "tables",
    "sarif": "report.sarif",
    "junit": "report.junit.xml",
    "evidence": "evidence",
}
"""File or folder that `fedassay report` writes for each format, beside the record."""


def default_name(format: str, redacted: bool = False) -> str:
    """File name that `fedassay report` uses for a format; `redacted`: beside pages that show everything."""
    name = DEFAULT_NAMES.get(format, format)
    if not redacted:
        return name
    stem, dot, suffix = name.partition(".")
    return f"{stem}.redacted{dot}{suffix}"


def render(run: Path, record: RunRecord, format: Format, policy: Policy | None = None) -> str:
    """One run as one document.

    Args:
        run: The run folder that the record's pictures are relative to, or its record.json.
        record: A record as `fedassay.records.record.load_record` gives it.
        format: One of `FORMATS` except `csv` and `evidence`, which are folders: see `write_report`.
        policy: Policy of the decision, and of SARIF and JUnit; None: the shipped one that fits
            for the decision, and none for these.

    Raises:
        PlanError: `format` is a folder of files, or unknown.
    """
    folder = run if run.is_dir() else run.parent
    if format == "html":
        from fedassay.reports.document.html import page

        return page(folder, record, policy)
    if format == "md":
        from fedassay.reports.document.markdown import markdown

        return markdown(record, policy)
    if format == "latex":
        from fedassay.reports.document.latex import latex

        return latex(record)
    if format == "json":
        return record.to_json()
    if format == "sarif":
        from fedassay.reports.gate.judging import judged
        from fedassay.reports.gate.sarif import sarif

        return sarif(record, None if policy is None else judged(record, policy), policy)
    if format == "junit":
        from fedassay.reports.gate.judging import judged
        from fedassay.reports.gate.junit import junit

        return junit(record, None if policy is None else judged(record, policy))
    if format in _FOLDERS:
        raise PlanError(f"format {format} is a folder of files: name a folder to write them to")
    raise PlanError(f"format {format!r} is unknown; allowed are {', '.join(FORMATS)}")


def write_tables(record: RunRecord, folder: Path) -> list[Path]:
    """Write every table of the report and the data behind every figure as CSV files.

    Returns:
        The files written, in the order of the report.
    """
    from fedassay.reports.document.content import contents

    return contents(record).write_csv(folder)


def table_names(record: RunRecord) -> list[str]:
    """The names of the files that `write_tables` writes."""
    from fedassay.reports.document.content import contents

    return list(contents(record).csv_files())


def write_report(
    record: RunRecord,
    run: Path,
    format: str,
    output: Path | None,
    policy: Policy | None = None,
    method: str | None = None,
    epsilon: float | None = None,
    pdf: bool = False,
) -> Path:
    """Write one format, whole or not at all: to a file, to standard output, or (`csv`, `evidence`) to a folder.

    Args:
        record: The record to report.
        run: Its run folder.
        format: One of `FORMATS`.
        output: Path, `-` for standard output; by default beside the record: report.html, tables/, and so on.
        policy: See `render`.
        method: Label or registered name of the method that evidence is about; other formats are about the run.
        epsilon: The epsilon of that release.
        pdf: Whether the pages of evidence are printed as PDF as well, where something is installed that prints.

    Returns:
        What was written.

    Raises:
        PlanError: The format is unknown, the output cannot be written, or evidence is asked of no one release.
    """
    if format != "evidence" and (method is not None or epsilon is not None):
        raise PlanError(f"method and epsilon choose what evidence is about; {format} is about the whole run")
    target = output or run / DEFAULT_NAMES.get(format, format)
    if format not in _FOLDERS:
        write_page(render(run, record, format, policy), target)  # type: ignore[arg-type]
        return target
    if is_stream(output):
        raise PlanError(f"-o {output}: format {format} is a folder of files; allowed: a folder, or another format")
    with chosen_by_user(target, ANOTHER):
        if format == "evidence":
            from fedassay.reports.evidence.folder import write_evidence

            write_evidence(record, target, policy, method, epsilon, pdf)
        else:
            write_tables(record, target)
    return target
