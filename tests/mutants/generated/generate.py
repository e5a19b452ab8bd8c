"""Draw faults, ask the oracles which of them count, and audit those: the score of the audits on faults of nobody.

    python tests/mutants/generated/generate.py methods|attacks RESULT.jsonl [--number 150] [--seed 0]
        [--cases REGEX] [--again]

Every fault is one change that `operators` makes at random in code that a private method, or an attack, runs. One
of a method counts where `leaks` refutes the claim from transcripts; it is then audited under the same claim by the
ordinary path, and found where a claim is called `unsound` or `unsupported`. One of an attack counts where
`cripples` sees half of the attack's score gone; it is found where the attack's findings do not read
`no_leak_found`. Every fault that was tried is a line of the result; a result that is there is gone on with.
`--again` draws nothing and audits those that were not found once more, as the audits are now; what they said
before stays in the line.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import yaml  # noqa: E402
from broken import Said, outcome_of_attack, said_in  # noqa: E402
from catalogue import Concern, Edit, plan_of, plans  # noqa: E402
from cells import CASES, configured  # noqa: E402
from copies import edited, pristine  # noqa: E402
from cripples import CELLS  # noqa: E402
from leaks import DELTA, EPSILON  # noqa: E402
from places import RELEVANT, Drawn, Lines, drawn  # noqa: E402
from score import BAD, verdict_of  # noqa: E402

LIMIT = 240.0
"""Processor seconds of one question or plan."""
REMEMBERS = "remember the first answer"


class Server:
    """A process that answers tasks as `worker.py` does, one at a time."""

    def __init__(self, script: Path, *arguments: str) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, task: dict[str, Any]) -> int:
        """Its exit status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(task, default=str) + "\n")
        self._process.stdin.flush()
        return int(json.loads(self._process.stdout.readline())["status"])

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def asked(server: Server, folder: Path, **question: Any) -> dict[str, Any]:
    """What an oracle finds; `failed` with the end of its log where it finds nothing."""
    out, log = folder / "out.json", folder / "log.txt"
    out.unlink(missing_ok=True)
    status = server.ask({"out": out, "log": log, "limit": LIMIT, **question})
    if not out.exists():
        return {"status": "failed", "why": f"{status}: {log.read_text(errors='replace')[-300:]}"}
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def planned(
    server: Server, package: Path, folder: Path, plan: dict[str, Any]
) -> tuple[dict[str, Any] | None, str]:
    """The record of a plan's run by a package, or None with the end of what was printed."""
    file, output, log = folder / "plan.yaml", folder / "run", folder / "audit.txt"
    file.write_text(yaml.safe_dump(plan, sort_keys=False), encoding="utf-8")
    task = {"package": package, "plan": file, "output": output, "log": log, "cache": folder / "cache"}
    status = server.ask({**task, "limit": LIMIT})
    record = output / "record.json"
    if not record.exists():
        return None, f"{status}: {log.read_text(errors='replace')[-600:]}"
    return json.loads(record.read_text(encoding="utf-8")), ""


def claimed_plan(case: str) -> dict[str, Any]:
    """A cell's plan, under the claim that the oracle refutes."""
    plan = plan_of(case if case in plans() else "fedncm")
    method, parameters = configured(case)
    plan["methods"] = [{method: parameters}]
    plan["privacy"] = {**plan["privacy"], "epsilon": [EPSILON], "delta": DELTA, "adjacency": CASES[case]}
    return plan


class Methods:
    """Private methods: the oracle of leaks, and the audits of claims.

    Attributes:
        counts: The status of faults that count.
    """

    counts = "leaks"
    folders = (("methods/", 0.45), ("privacy/", 0.55))
    words = RELEVANT

    def __init__(self, oracle: Server, audits: Server, package: Path, folder: Path) -> None:
        self._oracle, self._audits = oracle, audits
        self._cells = {case: asked(oracle, folder, what="lines", case=case) for case in CASES}

    @property
    def lines(self) -> dict[str, Lines]:
        """What each cell runs."""
        return {case: held["lines"] for case, held in self._cells.items()}

    def ask(self, fault: Drawn, source: str, folder: Path) -> dict[str, Any]:
        """What the oracle says of a changed file."""
        held = self._cells[fault.case]
        question = {"what": "leak", "case": fault.case, "digests": held["digests"], "strength": held["strength"]}
        remembers = fault.operator == REMEMBERS
        return asked(self._oracle, folder, **question, remembers=remembers, file=fault.file, source=source)

    def audit(self, fault: Drawn, package: Path, folder: Path) -> dict[str, Any]:
        """What the audits of claims say of a changed package."""
        record, why = planned(self._audits, package, folder, claimed_plan(fault.case))
        verdict, reasons = ("error", (why,)) if record is None else verdict_of(record)
        outcome = "found" if verdict in BAD else "missed" if verdict == "sound" else verdict
        return {"verdict": verdict, "outcome": outcome, "reasons": [reason[:600] for reason in reasons]}


class Attacks:
    """Attacks: the oracle of crippled ones, and the audits that judge them; attributes as those of `Methods`."""

    counts = "crippled"
    folders = (("attacks/", 0.75), ("nets/", 0.1), ("exchange/", 0.1), ("mixtures/", 0.05))
    words = ""

    def __init__(self, oracle: Server, audits: Server, package: Path, folder: Path) -> None:
        self._oracle, self._audits = oracle, audits
        self._cells = {case: asked(oracle, folder, what="attack lines", case=case) for case in CELLS}
        self._intact: dict[str, tuple[Said, ...]] = {}
        for case, cell in CELLS.items():
            own = folder / f"intact-{case}"
            own.mkdir()
            record, why = planned(audits, package, own, cell.plan)
            self._intact[case] = () if record is None else said_in(record)
            told = Counter(item.verdict for item in self._intact[case] if item.attack == cell.attack)
            print(
                f"{case}: score {self._cells[case]['score']:.3g}, {dict(told)} {why}", file=sys.stderr, flush=True
            )

    @property
    def lines(self) -> dict[str, Lines]:
        """What each cell runs."""
        return {case: held["lines"] for case, held in self._cells.items()}

    def ask(self, fault: Drawn, source: str, folder: Path) -> dict[str, Any]:
        """What the oracle says of a changed file."""
        held = self._cells[fault.case]
        question = {"what": "cripple", "case": fault.case, "digest": held["digest"]}
        remembers = fault.operator == REMEMBERS
        given = {"remembers": remembers, "file": fault.file, "source": source}
        return asked(self._oracle, folder, **question, **given, score=held["score"])

    def audit(self, fault: Drawn, package: Path, folder: Path) -> dict[str, Any]:
        """What the audits say of a changed package."""
        cell = CELLS[fault.case]
        record, why = planned(self._audits, package, folder, cell.plan)
        if record is None or record["errors"]:
            return {
                "verdict": "error",
                "outcome": "error",
                "reasons": [why or str(record and record["errors"])[:600]],
            }
        concern, intact = Concern(attack=cell.attack, audit=cell.audit), self._intact[fault.case]
        # Where the attack as it is finds no leak there is none to miss: labels that the adjacency makes public.
        silent = {item.key for item in intact if item.verdict == "no_leak_found"}
        broken, intact = ([item for item in held if item.key not in silent] for held in (said_in(record), intact))
        outcome, verdict, reasons = outcome_of_attack(concern, broken, intact)
        # On the plan it may have no effect: what reads `leak` all the same is not silent.
        outcome = "found" if outcome == "no effect" else outcome
        return {"verdict": verdict, "outcome": outcome, "reasons": [reason[:600] for reason in reasons]}


def main() -> int:
    """Draw, ask, audit; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("methods", "attacks"))
    parser.add_argument("result", type=Path, help="JSON lines.")
    parser.add_argument("--number", type=int, default=150, help="Of faults that count.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", default="", help="Cells that are drawn from; left out: all.")
    parser.add_argument("--again", action="store_true", help="Audit what was not found once more.")
    given = parser.parse_args()
    done = _read(given.result)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        package = pristine(folder / "pristine")
        oracle, audits = Server(HERE / "asked.py", str(package), given.kind), Server(HERE.parent / "worker.py")
        try:
            kind = (Methods if given.kind == "methods" else Attacks)(oracle, audits, package, folder)
            if given.again:
                _again(kind, done, package, folder)
                rows = "".join(json.dumps(row) + "\n" for row in done.values())
                given.result.write_text(rows, encoding="utf-8")
                return 0
            lines = {case: held for case, held in kind.lines.items() if re.search(given.cases, case)}
            for fault in drawn(package, lines, kind.folders, given.seed, kind.words):
                if sum(item["status"] == kind.counts for item in done.values()) >= given.number:
                    break
                if fault.name in done:
                    continue
                own = folder / "one"
                own.mkdir()
                source = fault.applied((package / fault.file).read_text(encoding="utf-8"))
                found = {**asdict(fault), **kind.ask(fault, source, own)}
                if found["status"] == kind.counts:
                    found |= kind.audit(fault, edited(package, (fault.edit,), own), own)
                    if found["outcome"] == "error":  # Whoever runs it is told, as with other crashes.
                        found["status"] = "crash"
                shutil.rmtree(own)
                done[fault.name] = found
                with given.result.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(found) + "\n")
                print(fault.name, found["status"], found.get("outcome", ""), file=sys.stderr, flush=True)
        finally:
            oracle.stop()
            audits.stop()
    print(summary(list(done.values())))
    return 0


def _again(kind: Methods | Attacks, done: dict[str, dict[str, Any]], package: Path, folder: Path) -> None:
    """Audit what counts and was not found, and keep what was said of it at first."""
    for row in done.values():
        if row["status"] == kind.counts and row["outcome"] != "found":
            own = folder / "one"
            own.mkdir()
            given = {name: row[name] for name in ("name", "operator", "file", "line", "case", "old", "new")}
            fault = Drawn(**given, edit=Edit(**row["edit"]))
            row["first"] = row.get("first", row["outcome"])
            row.update(kind.audit(fault, edited(package, (fault.edit,), own), own))
            shutil.rmtree(own)
            print(fault.name, row["first"], row["outcome"], file=sys.stderr, flush=True)


def _read(result: Path) -> dict[str, dict[str, Any]]:
    if not result.exists():
        return {}
    rows = [json.loads(line) for line in result.read_text(encoding="utf-8").splitlines()]
    return {row["name"]: row for row in rows}


def summary(rows: list[dict[str, Any]]) -> str:
    """Counts by status, and of those that count by operator and verdict."""
    told = [", ".join(f"{count} {status}" for status, count in Counter(row["status"] for row in rows).items())]
    counted = [row for row in rows if row["status"] in (Methods.counts, Attacks.counts)]
    for operator in sorted({row["operator"] for row in counted}):
        own = Counter(row["outcome"] for row in counted if row["operator"] == operator)
        told.append(f"{operator}: " + ", ".join(f"{count} {outcome}" for outcome, count in own.items()))
    told.append(f"{len(counted)} count: {dict(Counter(row['outcome'] for row in counted))}")
    return "\n".join(told)


if __name__ == "__main__":
    sys.exit(main())
