"""The folder of evidence: record, digests, statement, registry entries, crosswalk."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from fedassay.records.record import FILE, RunRecord
from fedassay.records.statement import STATEMENT, statement_text
from fedassay.reports.answer.answer import answer
from fedassay.reports.document.markdown import escaped
from fedassay.reports.document.plan_notes import name_of
from fedassay.reports.evidence.crosswalk import crosswalk
from fedassay.reports.evidence.lines import Line
from fedassay.reports.evidence.registry import entries
from fedassay.support.atomic import make_folder, write_text
from fedassay.support.text import plain_lines, plain_tree

DIGESTS = "SHA256SUMS"


def write_evidence(record: RunRecord, folder: Path) -> list[Path]:
    """Write the evidence of a run into a folder.

    Args:
        record: The run.
        folder: Where to; made if need be.

    Returns:
        The files written.
    """
    files = {
        FILE: record.to_json(),
        "registry.json": _json(entries(record)),
        "crosswalk.md": _page(record),
        "answer.json": _json(answer(record).as_dict()),
    }
    digests = {name: _digest(text.encode("utf-8")) for name, text in files.items()}
    files[STATEMENT] = statement_text(
        "evidence", dict(sorted(digests.items())), name=name_of(record), schema=record.schema_
    )
    files[DIGESTS] = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    make_folder(folder)
    for name, text in files.items():
        write_text(folder / name, text)
    return [folder / name for name in files]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _json(content: Any) -> str:
    return json.dumps(plain_tree(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _page(record: RunRecord) -> str:
    parts = [
        f"# Evidence: {escaped(name_of(record))}",
        f"**{escaped(answer(record).text)}**",
        "Every answer names the places in record.json that it is made of (JSON pointers), or is left to a person.",
    ]
    for source, lines in crosswalk(record).items():
        parts.append(f"## {escaped(source)}")
        rows = ["| Question | Answer | In the record |", "|---|---|---|"]
        rows += [f"| {escaped(line.question)} | {escaped(line.answer)} | {_where(line)} |" for line in lines]
        parts.append("\n".join(rows))
    return plain_lines("\n\n".join(parts) + "\n")


def _where(line: Line) -> str:
    if not line.pointers:
        return "–"
    shown = ", ".join(f"`{pointer}`" for pointer in line.pointers[:3])
    return shown + (f" and {len(line.pointers) - 3} more" if len(line.pointers) > 3 else "")
