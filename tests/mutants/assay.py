"""How good is this assay? docs/assay.md from the result of `make mutants`, and of the sweep of honest methods.

    python tests/mutants/score.py runs/mutants.json
    python tests/mutants/specificity.py runs/specificity.json
    python tests/mutants/generated/generate.py methods runs/methods.jsonl --seed 6
    python tests/mutants/generated/generate.py attacks runs/attacks.jsonl --seed 3
    python tests/mutants/assay.py runs/mutants.json [runs/specificity.json] \\
        [--generated runs/methods.jsonl runs/attacks.jsonl] > docs/assay.md

Without a result, the page says of each figure that it was not measured. Nothing on it is written by hand. With
`--kept PAGE --sweep runs/specificity.json` only the sweep is measured again, and with `--kept PAGE` beside both
results all but the faults by a generator: all other figures are those of that page, with the revisions that stand
there.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from catalogue import GENERATED, UNCHANGED

sys.path.append(str(Path(__file__).resolve().parent / "generated"))

from cripples import CELLS

from fedassay.audits.ladder import LADDER
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.support.environment import describe

UNMEASURED = "not measured"
COMMANDS = "The head of `tests/mutants/assay.py` has the commands."
DRAWN = "Generated faults: "
TITLE = "# How good is this assay?"
HEAD = (
    TITLE,
    "This page is for those who rely on a verdict: which situation leads to which verdict, how often leaks are "
    "found (sensitivity), how often honest methods are left alone (specificity), and how small a leak would be "
    "found (limit of detection). `tests/mutants/assay.py` makes it.",
)
SENSITIVITY = (
    "## Sensitivity",
    "Shipped code is broken on purpose, one fault at a time (`tests/mutants/*.toml`). A leaking method is "
    "found if its claim is called unsound or unsupported for the right reason. A broken attack is found if "
    "nothing that it concerns reads `no_leak_found`, where the unbroken attack was conclusive. Other faults "
    "may be missed. Missed and unjudged faults have rows of their own.",
)
FAULTS = (
    "## Faults by a generator",
    "`tests/mutants/generated/operators.py` makes one small change at random in code that runs. A fault of a "
    "method counts if a classifier that shares no code with the audits distinguishes two neighbouring data "
    "sets beyond a claim of (.05, .5), at the level of one in a million (`leaks.py`). A fault of an attack "
    "counts if it costs half of the raw score on the truth (`cripples.py`). Methods that train networks were "
    "not tried. A kind of change has a row of its own if one of its faults was missed when it was drawn.",
)
NOTICED = (
    "### Would the tests notice?",
    "The same changes in the folders that claims and verdicts rest on, each run through that folder's own "
    "tests (`tests/mutants/generated/rooms.py`). Equivalent changes alter nothing that a user can ask for "
    "(`rooms.toml` has the reasons). Tests for what was missed were added after each draw: the last draw says "
    "most about the tests of today.",
)
ROOMS = Path(__file__).resolve().parent / "generated" / "rooms.toml"
SURVIVORS = Path(__file__).resolve().parent / "generated" / "survivors.toml"
SPECIFICITY = (
    "## Specificity",
    "Findings on honest methods at finite epsilon must not be `leak`, `unsound` or `unsupported` "
    "(`tests/mutants/specificity.py`). Fields that leave exactly are leaks and no false alarms. The nominal "
    "rate of a whole run is 5 %. A finding does not apply if nothing of its kind is sent; the last two columns "
    "leave it out.",
)
LIMITS = (
    "## Limits of detection",
    "The smallest leak that a run would have found with probability .95, over findings of the sweep that read "
    "`no_leak_found` (`tests/calibration/test_detection.py` plants such leaks). It falls with the number of "
    "records, and every report prints its own.",
)
HONEST = "honest variations of methods"
SITUATIONS = (
    "## One situation, one verdict",
    "An audit measures five arms: the audited release; end-to-end controls, which are known leaks that go the "
    "whole way of the result; controls of the attack alone; a negative control; and, where clients may differ, "
    "other data of the same clients. The first situation that applies decides "
    "(`tests/audits/test_situations.py` puts every audit into every situation).",
)
PRINCIPLE = (
    "Levels are corrected for the tests of the run where a leak or a flagged control is at stake; a planted "
    "leak is caught at .01 by itself."
)


def situations() -> str:
    """The table of situations, as the ladder has it."""
    rows = [(str(place), rung.when, f"`{rung.verdict}`") for place, rung in enumerate(LADDER, 1)]
    table = _table(("", "situation", "verdict"), rows)
    return "\n\n".join((*SITUATIONS, table, PRINCIPLE))


def page(
    mutants: Sequence[dict[str, Any]],
    sweep: dict[str, Any] | None,
    versions: str,
    drawn: Sequence[dict[str, Any]] = (),
    kept: str = "",
) -> str:
    """The page.

    Args:
        mutants: Rows of `score.py`; empty: not measured.
        sweep: The result of `specificity.py`, or None.
        versions: Of what the figures were measured with; empty: not measured.
        drawn: Rows of `generated/generate.py`, of methods and of attacks.
        kept: A page whose figures stand in place of those that mutants or drawn faults do not give; empty: none.
    """
    whole = kept and not mutants
    parts = [*HEAD, situations(), *SENSITIVITY]
    parts += [_between(kept, SENSITIVITY[-1], FAULTS[0])] if whole else [_sensitivity(mutants)]
    parts += [FAULTS[0], _between(kept, FAULTS[0], NOTICED[0]), *noticed()] if kept else faults(drawn)
    parts += [*SPECIFICITY, _specificity(_honest(mutants, kept), sweep)]
    if alarms := (sweep or {"alarms": []})["alarms"]:
        rows = [
            (each["plan"].removeprefix("specificity-"), each["cell"].replace(" |", ","), each["reason"])
            for each in alarms
        ]
        parts += [_table(("false alarm on", "method, epsilon, delta, seed", "says"), rows)]
    parts += [*LIMITS, _limits((sweep or {"limits": []})["limits"])]
    parts += ["## Measured with", versions or UNMEASURED]
    if sweep:
        parts.append(f"Sweep of honest methods (data and seed of each run): {', '.join(sweep['runs'])}.")
    if kept:
        said = _between(kept, "## Measured with", COMMANDS)
        parts.append(_said_of(said) if whole else said[said.index(DRAWN) :])
    return "\n\n".join((*parts, COMMANDS)) + "\n"


def _between(text: str, start: str, end: str) -> str:
    """What stands between two passages of a page."""
    return text.split(start, 1)[1].split(end, 1)[0].strip()


def _said_of(measured: str) -> str:
    """What a page was measured with, said of all but its sweep."""
    mark = "All but the sweep of honest methods: "
    return mark + measured.rsplit(mark, maxsplit=1)[-1]


def faults(drawn: Sequence[dict[str, Any]]) -> list[str]:
    """What became of generated faults, and why each survivor is one."""
    rows: list[tuple[str, ...]] = []
    survivors: list[tuple[str, ...]] = []
    mended: list[tuple[str, ...]] = []
    argued = tomllib.loads(SURVIVORS.read_text(encoding="utf-8"))
    # The same change may be drawn again under another seed.
    drawn = list({(row["case"], *row["edit"].values()): row for row in drawn}.values())
    for status, words in (("leaks", "methods that leak"), ("crippled", "crippled attacks")):
        own = [row for row in drawn if (row["case"] in CELLS) == (status == "crippled")]
        counted = [row for row in own if row["status"] == status]
        missed = [row for row in counted if row["outcome"] != "found" or "first" in row]
        for operator in sorted({row["operator"] for row in missed}):
            rows.append(_drawn(words, operator, [row for row in own if row["operator"] == operator], status))
        rows.append(_drawn(f"**{words}**", "all", own, status) if own else (words, *[UNMEASURED] * 8))
        for row in counted:
            if row["outcome"] == "found" and "first" in row:
                mended.append((f"`{row['name']}`", row["verdict"]))
            if row["outcome"] != "found":
                survivors.append((f"`{row['name']}`", row["verdict"], argued.get(row["name"], "not argued")))
    head = ("which", "change", "tried", "error", "nothing changed", "not seen", "count", "found by", "not found")
    told = [*FAULTS, _table(head, rows)]
    if mended:
        told += ["Not found when they were drawn, and found since what they showed was mended:"]
        told += [_table(("fault", "verdict"), mended)]
    if survivors:
        told += ["Those that were not found:", _table(("fault", "verdict", "why"), survivors)]
    return [*told, *noticed()]


def noticed() -> list[str]:
    """What share of changes the tests of rooms notice."""
    rows: list[tuple[str, ...]] = []
    for room, held in tomllib.loads(ROOMS.read_text(encoding="utf-8")).items():
        judged = held["drawn"] - held["unclear"] - len(held["equivalent"])
        of_all = (str(held["drawn"]), str(len(held["equivalent"])), str(held["unclear"]))
        rows.append((f"`{room}/`", "all", *of_all, _share(held["before"], judged)))
        if "last" in held:
            last = held["last"]
            fit = last["drawn"] - last["equivalent"] - last["unclear"]
            of_last = tuple(str(last[name]) for name in ("drawn", "equivalent", "unclear"))
            rows.append((f"`{room}/`", "last", *of_last, _share(last["noticed"], fit)))
    head = ("folder", "draws", "drawn", "equivalent", "unclear", "noticed, of the others")
    return [*NOTICED, _table(head, rows)]


def _share(count: int, judged: int) -> str:
    least = clopper_pearson(count, judged, side="lower").low
    return f"{count} of {judged} ({100 * count / judged:.0f} %; at least {100 * float(least):.0f} %)"


def _drawn(words: str, operator: str, rows: Sequence[dict[str, Any]], status: str) -> tuple[str, ...]:
    """One row of generated faults."""
    of = Counter("crash" if row["status"] == "failed" else row["status"] for row in rows)
    verdicts = Counter(row["verdict"] for row in rows if row["status"] == status and row["outcome"] == "found")
    found = sum(verdicts.values())
    counts = (len(rows), of["crash"], of["equal"], of["unseen"], of[status])
    told = ", ".join(f"{count} `{verdict}`" for verdict, count in sorted(verdicts.items()))
    return (words, operator, *map(str, counts), told or "0", _bounded(of[status] - found, of[status]))


def _sensitivity(mutants: Sequence[dict[str, Any]]) -> str:
    rows, told = [], []
    for kind, words in (("leaky", "methods that leak"), ("attack", "broken attacks")):
        own = [item for item in mutants if item["kind"] == kind and item["fault"] != UNCHANGED]
        own = [item for item in own if not item["fault"].startswith(GENERATED)]
        of = {fault: [item for item in own if item["fault"] == fault] for fault in {item["fault"] for item in own}}
        for fault in sorted(of):
            if any(item["outcome"] != "found" for item in of[fault]):
                rows.append(_found(words, fault, of[fault]))
        rows.append(_found(f"**{words}**", "all", own))
        told.append(f"{len(of)} of {words}")
    table = _table(("what", "fault", "tried", "found", "missed", "could not be judged"), rows)
    return f"{table}\n\nKinds of faults: {', '.join(told)}."


def _found(words: str, fault: str, items: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    if not items:
        return (words, fault, *[UNMEASURED] * 4)
    outcomes = [item["outcome"] for item in items]
    found, missed = outcomes.count("found"), outcomes.count("missed") + outcomes.count("wrong reason")
    judged = found + missed
    return (words, fault, str(len(items)), str(found), _bounded(missed, judged), str(len(items) - judged))


def _bounded(count: int, judged: int) -> str:
    """A count with the largest share that it is compatible with (one-sided, 95 %), where any was judged."""
    if not judged:
        return f"{count} of 0"
    most = clopper_pearson(count, judged, side="upper").high
    return f"{count} of {judged} (at most {100 * float(most):.3g} %)"


def _honest(mutants: Sequence[dict[str, Any]], kept: str) -> tuple[str, ...]:
    """The row of honest variations."""
    if kept and not mutants:
        row = next(line for line in kept.splitlines() if line.startswith(f"| {HONEST} |"))
        return tuple(cell.strip() for cell in row.strip("|").split("|"))
    honest = [item for item in mutants if item["kind"] == "honest"]
    flagged = sum(item["outcome"] == "flagged" for item in honest)
    unclear = sum(item["outcome"] in ("inconclusive", "error") for item in honest)
    return HONEST, *(_alarms(len(honest), flagged, unclear, 0) if honest else (UNMEASURED,) * 4)


def _specificity(honest: tuple[str, ...], sweep: dict[str, Any] | None) -> str:
    rows: list[tuple[str, ...]] = [honest]
    audits = sorted((sweep or {"audits": {}})["audits"].items())
    keys = ("findings", "alarms", "undecided", "idle")
    for audit, count in audits:
        rows.append((f"findings of {audit}", *_alarms(*(count[key] for key in keys))))
    if audits:
        totals = (sum(count[key] for _, count in audits) for key in keys)
        rows.append(("**findings of honest methods**", *_alarms(*totals)))
    if sweep is None:
        rows.append(("findings of honest methods", *[UNMEASURED] * 4))
    head = ("what", "number", "do not apply", "false alarms, of those judged", "could not be judged")
    return _table(head, rows)


def _alarms(total: int, alarms: int, unclear: int, idle: int) -> tuple[str, str, str, str]:
    """Findings, those that do not apply, false alarms among those that were judged, and the share that was not."""
    asked = total - idle
    share = f"{unclear} of {asked} ({100 * unclear / asked:.0f} %)" if asked else "0"
    return str(total), str(idle), _bounded(alarms, asked - unclear), share


def _limits(limits: Sequence[Sequence[Any]]) -> str:
    held: dict[tuple[str, ...], list[float]] = {}
    for *kind, value in limits:
        held.setdefault(tuple(kind), []).append(value)
    alike: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for (audit, metric, thing, planted), values in sorted(held.items()):
        spread = tuple(f"{each:.3g}" for each in _spread(values))
        alike.setdefault((audit, metric, _of(thing), *spread), []).append((_words(planted), len(values)))
    rows = [
        (audit, metric, thing, ", ".join(words for words, _ in of), str(sum(count for _, count in of)), *spread)
        for (audit, metric, thing, *spread), of in alike.items()
    ]
    rows = rows or [(UNMEASURED,) * 8]
    head = ("audit", "measured in", "of", "planted", "findings", "smallest", "median", "largest")
    return _table(head, rows)


def _of(thing: str) -> str:
    """The unit in the plural, or that there is none."""
    return {"canary": "canaries", "class": "classes"}.get(thing, f"{_words(thing)}s") if thing else "a run"


def _words(identifier: str) -> str:
    return identifier.replace("_", " ") or "not said"


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return min(values), statistics.median(values), max(values)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _versions(revision: str) -> str:
    import numpy
    import torch

    parts = [f"Python {platform.python_version()}", f"numpy {numpy.__version__}", f"torch {torch.__version__}"]
    return ", ".join([*([f"revision {str(revision)[:12]}"] if revision else []), *parts]) + "."


def main() -> int:
    """Print the page; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mutants", nargs="?", type=Path, help="What score.py wrote.")
    parser.add_argument("specificity", nargs="?", type=Path, help="What specificity.py wrote.")
    parser.add_argument("--revision", default="", help="That was measured; left out: the one that is checked out.")
    parser.add_argument("--sweep", type=Path, help="As `specificity`, where there is no file of mutants.")
    parser.add_argument("--kept", type=Path, help="A page whose figures stand but for those of the sweep.")
    parser.add_argument("--generated", nargs=2, type=Path, default=(), help="What generate.py wrote: both kinds.")
    parser.add_argument("--drawn-with", default="", help="Revision and seeds of these, in words.")
    given = parser.parse_args()
    drawn = [
        json.loads(line) for file in given.generated for line in file.read_text(encoding="utf-8").splitlines()
    ]
    revision = given.revision or str(describe("cpu", [], datetime.now(UTC)).get("git_revision", ""))
    mutants, sweep = (
        None if path is None else json.loads(path.read_text(encoding="utf-8"))
        for path in (given.mutants, given.specificity or given.sweep)
    )
    measured = _versions(revision) if mutants or sweep else ""
    if given.drawn_with:
        measured += f"\n\n{DRAWN}{given.drawn_with}."
    if given.kept and (drawn or not sweep):
        parser.error("--kept takes a sweep, and no --generated")
    kept = given.kept.read_text(encoding="utf-8") if given.kept else ""
    sys.stdout.write(page(mutants or [], sweep, measured, drawn, kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
