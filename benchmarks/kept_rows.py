"""Rows of a long measurement, kept one JSON object a line: what is there is not measured again.

A job is named by its settings, `draw` among them, and gives figures. A line is written when its job is done, so
that a measurement may be stopped at any time and goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import public_data
from scipy import stats

from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.support.errors import FedassayError

MEANS = (
    *("auc", "auc_alone", "auc_of_people", "auc_alone_of_people", "auc_loss", "auc_of_messages", "ceiling"),
    *("accuracy", "ssim", "ssim_of_nearest"),
)
"""Figures of which means over draws are given, with Student's intervals."""
COUNTS = ("n", "wrong", "members", "named", "wrongly_named", "nearest", "label_right")
"""Figures that are summed over draws."""


@dataclass(frozen=True)
class Job:
    """Settings that name a row, and what measures its figures."""

    settings: dict[str, Any]
    measure: Callable[[], dict[str, Any]]


def kept(path: Path) -> list[dict[str, Any]]:
    """The rows of a file; none where there is no file. A line that was cut off by a stop is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def measure(jobs: Iterable[Job], path: Path) -> None:
    """Measure the jobs whose rows are not in the file, and append each; a refusal of a method is a row."""
    done = {key_of(row["settings"]) for row in kept(path)}
    for job in jobs:
        if key_of(job.settings) in done:
            continue
        start, used = time.perf_counter(), time.process_time()
        try:
            figures = job.measure()
        except (FedassayError, ValueError) as error:
            figures = {"refused": " ".join(str(error).split())[:160]}
        figures.setdefault("job_seconds", round(time.perf_counter() - start, 3))
        figures.setdefault("job_cpu_seconds", round(time.process_time() - used, 3))
        line = json.dumps({"settings": job.settings, "figures": figures})
        with path.open("a") as file:
            # After a line that was cut off, a new one.
            file.write(line + "\n" if not file.tell() or _ended(path) else "\n" + line + "\n")
            file.flush()
            os.fsync(file.fileno())
        print(line, flush=True)


def key_of(settings: dict[str, Any]) -> str:
    """What a row is looked up by."""
    return json.dumps(settings, sort_keys=True)


def summaries(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for all draws of the same settings: means and intervals at 95 %, sums of counts."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        about = {key: value for key, value in row["settings"].items() if key != "draw"}
        groups.setdefault(key_of(about), []).append(row["figures"])
    return [json.loads(about) | _summary(figures) for about, figures in groups.items()]


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    refused = next((row["refused"] for row in rows if "refused" in row), None)
    if refused is not None:
        return {"refused": refused}
    out: dict[str, Any] = {"draws": len(rows)}
    for each in MEANS:
        values = [row[each] for row in rows if row.get(each) is not None]
        if values:
            half = 0.0 if len(values) < 2 else float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
            middle = float(np.mean(values))
            out[each] = [round(value, 4) for value in (middle, middle - half, middle + half)]
    out |= {
        each: int(sum(row.get(each, 0) for row in rows)) for each in COUNTS if any(each in row for row in rows)
    }
    if out.get("named"):
        out["wrong_names"] = share(out["wrongly_named"], out["named"])
    for each in ("whole", "certified", "named_anybody"):
        if any(each in row for row in rows):
            count = sum(bool(row.get(each)) for row in rows)
            out[each] = [count, *share(count, len(rows))[1:]]
    if any("peak_gib" in row for row in rows):
        out["peak_gib"] = max(row.get("peak_gib", 0.0) for row in rows)
    seconds = [row["cpu_seconds"] for row in rows if "cpu_seconds" in row]
    if seconds:
        out["cpu_seconds"] = [round(value, 2) for value in (min(seconds), float(np.median(seconds)), max(seconds))]
    return out


def share(count: int, total: int) -> list[float]:
    """A share with its Clopper-Pearson interval at 95 %."""
    band = clopper_pearson(np.array([count]), total)
    return [round(value, 5) for value in (count / total, float(band.low[0]), float(band.high[0]))]


def _ended(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


Rows = list[dict[str, Any]]


def run_parts(
    about: str | None,
    name: str,
    parts: Mapping[str, Callable[[Any, int], Iterator[Job]]],
    pool_of: Callable[[argparse.Namespace], Any],
    *,
    draws: int,
    members: int,
    options: Mapping[str, dict[str, Any]] | None = None,
    further: Callable[[Rows], Iterable[dict[str, Any]]] = lambda rows: (),
) -> None:
    """Measure a part that the command line names, or say what the rows of a file show.

    Args:
        about: What --help shows.
        name: Of the file of rows in the cache, without its ending.
        parts: Jobs of a pool for a number of draws, by the part's name.
        pool_of: Makes the pool of the options.
        draws: Of each job, if not given.
        members: Of the pool, if not given.
        options: Further options and how they are read.
        further: Lines of the table besides the summaries.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=(*parts, "table"))
    for option, read in (options or {}).items():
        parser.add_argument(option, **read)
    public_data.add_row_arguments(parser, draws=draws, members=members)
    given = parser.parse_args()
    path = given.rows or given.cache / f"{name}.jsonl"
    if given.part == "table":
        rows = kept(path)
        for line in (*summaries(rows), *further(rows)):
            print(json.dumps(line))
        return
    settings = {"part": given.part, "data": public_data.called(given.data)}
    jobs = (Job(settings | job.settings, job.measure) for job in parts[given.part](pool_of(given), given.draws))
    measure((job for job in jobs if re.search(given.only, key_of(job.settings))), path)
