"""Every row of the performance table: runs the scripts one after the other, each in a process of its own.

    python benchmarks/run_all.py [--full] [--only NAME]... [--without SET] [--output FOLDER]

Writes FOLDER/bench.json (machine facts and a list of {row, ratio, target, met, ...}) and FOLDER/bench.md, the same
as a table; FOLDER is runs/ by default. A script that fails becomes a row that is not met, with its last line.
`--without avx512` measures as on a processor without these instructions: fedassay, torch and its libraries are
told so by their variables, what peers bring along is not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedassay.support.atomic import write_text
from fedassay.support.processor import VARIABLE, instruction_sets

SCRIPTS = (
    "ssim_search",
    "memorization_search",
    "nearest_streamed",
    "mixture_fits",
    "mixture_fits_overlapping",
    "fedcgs_statistics",
    "mechanism_reruns",
    "epsilon_bounds",
    "head_posterior",
    "layer_inversion",
    "sequential_refutation",
    "dp_sgd_step",
    "dp_sgd_networks",
    "cold_start",
    "quickstart",
    "sweep_sharing",
    "dry_run_accuracy",
)
LONG = ("standard_battery",)
"""A quarter of an hour: run with `--full`, and where it is named."""
PACKAGES = ("numpy", "scipy", "torch", "scikit-learn", "scikit-image", "opacus", "faiss-cpu", "torchmetrics",
            "jax-privacy", "breaching", "Privacy-Meter")  # fmt: skip
HERE = Path(__file__).resolve().parent

WITHOUT = {
    "bf16": {VARIABLE: "bf16", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
    "vnni": {VARIABLE: "bf16,vnni", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "avx512": {
        VARIABLE: "bf16,vnni",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
}
"""Variables that switch a set of instructions off with all later ones; each is read when a process starts."""


def machine(without: str | None = None) -> dict[str, Any]:
    """What the numbers were measured on, with the instruction sets that were found there.

    Args:
        without: Of `WITHOUT`, what is switched off in the processes of the rows.
    """
    processor = ""
    if Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return {
        "processor": processor or platform.machine(),
        "instruction_sets": instruction_sets(),
        "switched_off": without,
        "cores": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "packages": versions,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def run_script(name: str, full: bool, without: str | None = None) -> dict[str, Any]:
    """The row of one script, of a process without a set of `WITHOUT`; a failure is a row as well."""
    started = time.perf_counter()
    command = [sys.executable, str(HERE / f"{name}.py"), *(["--full"] if full else [])]
    environment = {**os.environ, **WITHOUT.get(without or "", {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    took = round(time.perf_counter() - started, 1)
    facts = {"script": name, "script_seconds": took, "load_average": round(os.getloadavg()[0], 1)}
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"row": name, "ratio": None, "target": None, "met": False, "error": reason, **facts}
    row: dict[str, Any] = json.loads(done.stdout)
    return {**row, **facts}


def table(facts: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table, the machine below."""
    lines = [
        "| row | peer | ratio | of processor time | target | met | peak MiB |",
        "|---|---|---:|---:|---|---|---:|",
    ]
    for row in rows:
        peak = row.get("peak_mib", row.get("peak_mib_of_process"))
        of_cpu = row.get("ratio_of_cpu", row.get("ratio_of_free_cores"))
        cells = (row["row"], row.get("peer", row.get("error")), row["ratio"], of_cpu, row["target"])
        said = ["-" if value is None else str(value) for value in cells]
        lines.append("| " + " | ".join([*said, "yes" if row["met"] else "no", str(peak or "-")]) + " |")
    packages = ", ".join(f"{name} {number}" for name, number in facts["packages"].items() if number)
    off = facts["switched_off"]
    sets = ", ".join(facts["instruction_sets"]) or "none that is asked for"
    sets += f"; switched off: {off} and later" if off else ""
    lines += [
        "",
        f"{facts['processor']} (instruction sets found: {sets}), "
        f"{facts['cores']} cores, {facts['threads']} thread(s), Python {facts['python']}; "
        f"{packages}. Load average {facts['load_average']:.1f} at the start.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", action="append", choices=(*SCRIPTS, *LONG), metavar="NAME")
    parser.add_argument("--without", choices=tuple(WITHOUT), metavar="SET", help=" or ".join(WITHOUT))
    parser.add_argument("--output", type=Path, default=Path("runs"))
    given = parser.parse_args()
    facts, rows = machine(given.without), []
    for name in given.only or (*SCRIPTS, *(LONG if given.full else ())):
        rows.append(run_script(name, given.full, given.without))
        print(json.dumps(rows[-1]), flush=True)
        # After every row: an interrupted run keeps what it has measured.
        held = {"machine": facts, "full": given.full, "rows": rows}
        write_text(
            given.output / "bench.json", json.dumps(held, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        )
        write_text(given.output / "bench.md", table(facts, rows))
    print(table(facts, rows))
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
