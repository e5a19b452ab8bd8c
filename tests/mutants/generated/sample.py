"""Writes the faults that count as entries of the catalogue: a sample for `make mutants`, the others for `--all`.

    python tests/mutants/generated/sample.py METHODS.jsonl ATTACKS.jsonl

The sample is drawn by seed from the faults that were found, evenly over kinds of changes; what is in it stays
there as long as it counts. The results are those of `generate.py`. Survivors are no entries: `survivors.toml` says
of each why it is one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np  # noqa: E402
from catalogue import BASE, GENERATED, mutants, plans  # noqa: E402
from cripples import CELLS  # noqa: E402

SAMPLE, METHODS = 40, 28
"""Entries of the sample, and how many of them are of methods, where there are so many."""
WHOLE = ("gram", "algebra-sums", "labels", "membership", "gallery", "gallery-ridge", "attributes")
WHOLE = (*WHOLE, "inversion", "gradients", "diffusion")
"""Cells of attacks where all that the shipped attack finds is a leak: an entry needs no narrower concern."""
HEAD = """# Made by `python tests/mutants/generated/sample.py`; change that.
# Faults that operators on the syntax tree made at random, that an oracle counted, and that the audits found.
"""


def evenly(rows: Sequence[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """So many rows, one of each operator in turn, in a seeded order."""
    shuffled = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))]
    turns: dict[str, int] = {}
    order = []
    for row in shuffled:
        turns[row["operator"]] = turns.get(row["operator"], 0) + 1
        order.append((turns[row["operator"]], len(order), row))
    return [row for _, _, row in sorted(order, key=lambda item: item[:2])[:number]]


def written(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a file of the catalogue."""
    cells = sorted({row["case"] for row in rows if row["status"] == "crippled"})
    parts = [HEAD, *(_plan(case) for case in cells)]
    parts += [
        _entry(row) for row in sorted(rows, key=lambda row: (row["status"], row["file"], row["line"], row["name"]))
    ]
    return "\n".join(parts)


def _plan(case: str) -> str:
    own = {key: value for key, value in CELLS[case].plan.items() if key == "data" or value != BASE.get(key)}
    lines = [f"[plan.{GENERATED}-{case}]"]
    lines += [f"{key} = {_value(value)}" for key, value in own.items() if key != "data"]
    lines += [f"data = {_value({key: value for key, value in own['data'].items() if key != 'name'})}", ""]
    return "\n".join(lines)


def _entry(row: dict[str, Any]) -> str:
    leaks = row["status"] == "leaks"
    what = f"{row['operator'].capitalize()}: {_line(row['old'])} is {_line(row['new'])}."
    lines = ["[[mutant]]", f"name = {_value(_name(row))}"]
    lines += ["fault = " + _value(f"{GENERATED}: {row['operator']}")]
    if leaks:
        lines += [f"leaks = {_value(what)}", f"plan = {_value(row['case'])}", "reason = '.'", "blind = true"]
    else:
        cell = CELLS[row["case"]]
        lines += ['kind = "attack"', f"breaks = {_value(what)}", "plan = " + _value(f"{GENERATED}-{row['case']}")]
        lines += [f"attack = {_value(cell.attack)}", f"audit = {_value(cell.audit)}"]
    edit = row["edit"]
    lines += ["[[mutant.edit]]", f"file = {_value(edit['file'])}"]
    lines += [f"old = {_text(edit['old'])}", f"new = {_text(edit['new'])}", ""]
    return "\n".join(lines)


def _name(row: dict[str, Any]) -> str:
    return f"{GENERATED}: {row['case']}: {row['name']}"


def _line(text: str) -> str:
    short = " ".join(text.split())
    return short if len(short) <= 60 else short[:57] + "..."


def _text(text: str) -> str:
    """A literal of several lines where it can be one."""
    return _value(text) if "'''" in text or text.endswith("'") or text.startswith("\n") else f"'''{text}'''"


def _value(value: Any) -> str:
    """A value of TOML on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    if isinstance(value, float) and value == float("inf"):
        return "inf"
    return json.dumps(value)


def main() -> int:
    """Write both files; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", type=Path)
    parser.add_argument("attacks", type=Path)
    given = parser.parse_args()
    kept = {entry.name for entry in mutants() if entry.name.startswith(GENERATED)}
    chosen: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for file, most in ((given.methods, METHODS), (given.attacks, SAMPLE)):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        fit = [row for row in rows if row.get("outcome") == "found" and row["case"] in {*plans(), *WHOLE}]
        # A crippled attack whose plan reads `leak` as before may have had no effect there.
        fit = [row for row in fit if row["verdict"] != "leak"]
        once: dict[tuple[str, ...], dict[str, Any]] = {}
        for row in fit:  # Of a change that was drawn again, the name stays that is in the sample.
            key = (row["case"], row["edit"]["new"], row["edit"]["old"])
            if key not in once or _name(row) in kept:
                once[key] = row
        unlike = list(once.values())
        before = [row for row in unlike if _name(row) in kept]
        further = evenly([row for row in unlike if row not in before], SAMPLE)
        sample = [*before, *further][: min(most, SAMPLE - len(chosen))]
        chosen += sample
        others += [row for row in unlike if row not in sample]
    (HERE.parent / f"{GENERATED}.toml").write_text(written(chosen), encoding="utf-8")
    (HERE / "others.toml").write_text(written(others), encoding="utf-8")
    print(f"{len(chosen)} in the sample, {len(others)} others")
    return 0


if __name__ == "__main__":
    sys.exit(main())
