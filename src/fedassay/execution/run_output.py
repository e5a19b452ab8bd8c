"""Files of a run: all in its folder, or, redacted, nothing private that outlives it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedassay.records import manifest
from fedassay.records.record import RunRecord
from fedassay.records.statement import write_statement
from fedassay.reports import table_names, write_report, write_tables
from fedassay.reports.decision.standard import decision_on
from fedassay.support.cache import holds_private, private_elsewhere


@contextmanager
def output_folder(folder: Path, redact: bool) -> Iterator[Path]:
    """The folder that cells write transcripts, pictures and checkpoints into.

    Args:
        folder: The run folder.
        redact: Whether that is another, temporary one, which is gone with its private cache when the block ends.
    """
    if not redact and holds_private():
        yield folder
        return
    with private_elsewhere() as temporary:
        yield temporary / "work" if redact else folder


def write_unfinished(folder: Path, record: RunRecord, page: bool) -> None:
    """Write the record of a run that is not finished, and its page: nothing vouches for them.

    Args:
        folder: The run folder.
        record: Of the cells that are finished; it says which are missing.
        page: Whether the page and the tables are written as well.
    """
    record.save(folder)
    if page:
        manifest.note(folder, manifest.OF_THE_RUN, (f"tables/{name}" for name in table_names(record)))
        write_tables(record, folder / "tables")
        write_report(record, folder, "html", folder / "report.html")


def write_run(folder: Path, record: RunRecord) -> None:
    """Write the record of a finished run, its tables and its report, and last what vouches for them."""
    manifest.note(folder, manifest.OF_THE_RUN, (f"tables/{name}" for name in table_names(record)))
    write_tables(record, folder / "tables")
    record.save(folder)
    write_report(record, folder, "html", folder / "report.html")
    write_statement(folder, record, decision_on(record))
