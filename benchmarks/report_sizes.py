"""What a report costs: processor seconds and megabytes of the page, by the number of cells of the run.

    python benchmarks/report_sizes.py RUN [--cells 50 200 500 1000] [--wide] [--save FOLDER]

RUN is a finished run. Its cells are repeated under further labels, epsilons and seeds, and their figures moved by
up to a percent, so that no two are alike: 1,000 cells have 40 labels at five epsilons with five seeds each.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedassay.records.record import CellRecord, Finding, Metric, RunRecord, load_record
from fedassay.reports import render
from fedassay.support.terminal import say

EPSILONS = (math.inf, 16.0, 8.0, 4.0, 1.0)
SEEDS = 5


def repeated(record: RunRecord, cells: int, wide: bool = False) -> RunRecord:
    """A record of so many cells, made of those of another; `wide`: each has a label of its own."""
    rng = np.random.default_rng(0)
    free = [cell for cell in record.cells if math.isinf(cell.epsilon)]
    private = [cell for cell in record.cells if math.isfinite(cell.epsilon)] or free
    made: list[CellRecord] = []
    labels = cells if wide else math.ceil(cells / (len(EPSILONS) * SEEDS))
    others = [(math.inf, 0)] if wide else list(itertools.product(EPSILONS, range(SEEDS)))
    for label, (epsilon, seed) in itertools.islice(itertools.product(range(labels), others), cells):
        pool = free if math.isinf(epsilon) else private
        made.append(_changed(pool[label % len(pool)], label, epsilon, seed, rng))
    return record.model_copy(update={"cells": tuple(made), "errors": ()})


def _changed(cell: CellRecord, label: int, epsilon: float, seed: int, rng: np.random.Generator) -> CellRecord:
    name = f"{cell.label}, variant {label}"
    finite = math.isfinite(epsilon)
    privacy = cell.privacy.model_copy(
        update={"claimed": epsilon, "accounted": epsilon * 0.99} if finite and cell.privacy.accounted else {}
    )
    return cell.model_copy(
        update={
            "label": name,
            "epsilon": epsilon,
            "seed": seed,
            "key": f"{label}-{epsilon}-{seed}",
            "basis": None,
            "released": None,
            "privacy": privacy,
            "findings": tuple(_moved(finding, rng) for finding in cell.findings),
        }
    )


def _moved(finding: Finding, rng: np.random.Generator) -> Finding:
    return finding.model_copy(
        update={"metrics": {name: _shifted(metric, rng) for name, metric in finding.metrics.items()}}
    )


def _shifted(metric: Metric, rng: np.random.Generator) -> Metric:
    factor = 1 + 0.01 * rng.random()
    values: dict[str, Any] = {
        name: getattr(metric, name) * factor
        for name in ("value", "low", "high")
        if getattr(metric, name) is not None
    }
    return metric.model_copy(update=values)


def main() -> None:
    """Print a row a size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--cells", type=int, nargs="+", default=[50, 200, 500, 1000])
    parser.add_argument("--wide", action="store_true", help="each cell has a label of its own")
    parser.add_argument("--save", type=Path, help="write the pages here")
    given = parser.parse_args()
    record = load_record(given.run)
    for cells in given.cells:
        large = repeated(record, cells, given.wide)
        started = time.process_time()
        text = render(given.run, large, "html")
        seconds = time.process_time() - started
        say(f"{cells:>5} cells  {seconds:6.1f} s  {len(text.encode()) / 1e6:6.2f} MB")
        if given.save is not None:
            given.save.mkdir(parents=True, exist_ok=True)
            (given.save / f"report-{cells}.html").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
