"""Draw faults, ask the oracles which of them count, and audit those: the score of the audits on faults of nobody.

    python tests/mutants/generated/generate.py RESULT.jsonl [--number 150] [--seed 0]

Every fault is one change that `operators` makes at random in code that a private method runs. It counts where
`leaks` refutes the method's claim from its transcripts. It is then audited under the same claim by the ordinary path,
and found where a claim is called `unsound` or `unsupported`. Every fault that was tried is a line of the result; a
result that is there is gone on with.
"""

from __future__ import annotations

import argparse
import json
import os
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
from catalogue import plan_of, plans  # noqa: E402
from cells import CASES, configured  # noqa: E402
from copies import edited, pristine  # noqa: E402
from leaks import DELTA, EPSILON  # noqa: E402
from places import Drawn, Lines, drawn  # noqa: E402
from score import BAD, verdict_of  # noqa: E402

LIMIT = 240.0
"""Processor seconds of one question or plan."""
FOLDERS = (("methods/", 0.55), ("privacy/", 0.35), ("exchange/", 0.03), ("mixtures/", 0.07))
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


def audited(server: Server, package: Path, folder: Path, case: str) -> dict[str, Any]:
    """What the audits of claims say of a package on a cell's plan."""
    plan, output, log = folder / "plan.yaml", folder / "run", folder / "audit.txt"
    plan.write_text(yaml.safe_dump(claimed_plan(case), sort_keys=False), encoding="utf-8")
    task = {"package": package, "plan": plan, "output": output, "log": log, "cache": folder / "cache"}
    status = server.ask({**task, "limit": LIMIT})
    record = output / "record.json"
    if not record.exists():
        return {"verdict": "error", "reasons": [f"{status}: {log.read_text(errors='replace')[-600:]}"]}
    verdict, reasons = verdict_of(json.loads(record.read_text(encoding="utf-8")))
    return {"verdict": verdict, "reasons": [reason[:600] for reason in reasons]}


def claimed_plan(case: str) -> dict[str, Any]:
    """A cell's plan, under the claim that the oracle refutes."""
    plan = plan_of(case if case in plans() else "fedncm")
    method, parameters = configured(case)
    plan["methods"] = [{method: parameters}]
    plan["privacy"] = {**plan["privacy"], "epsilon": [EPSILON], "delta": DELTA, "adjacency": CASES[case]}
    return plan


def main() -> int:
    """Draw, ask, audit; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path, help="JSON lines.")
    parser.add_argument("--number", type=int, default=150, help="Of faults that count.")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    done = _read(given.result)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        package = pristine(folder / "pristine")
        oracle, audits = Server(HERE / "asked.py", str(package)), Server(HERE.parent / "worker.py")
        try:
            cells = {case: asked(oracle, folder, what="lines", case=case) for case in CASES}
            lines: dict[str, Lines] = {case: held["lines"] for case, held in cells.items()}
            for fault in drawn(package, lines, FOLDERS, given.seed):
                if sum(item["status"] == "leaks" for item in done.values()) >= given.number:
                    break
                if fault.name in done:
                    continue
                own = folder / "one"
                own.mkdir()
                found = _one(fault, package, own, cells[fault.case]["digests"], oracle, audits)
                shutil.rmtree(own)
                done[fault.name] = found
                with given.result.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(found) + "\n")
                print(fault.name, found["status"], found.get("verdict", ""), file=sys.stderr, flush=True)
        finally:
            oracle.stop()
            audits.stop()
    print(summary(list(done.values())))
    return 0


def _one(
    fault: Drawn, package: Path, folder: Path, digests: list[str], oracle: Server, audits: Server
) -> dict[str, Any]:
    question = {"what": "leak", "case": fault.case, "digests": digests, "remembers": fault.operator == REMEMBERS}
    changed = {"file": fault.file, "source": fault.applied((package / fault.file).read_text(encoding="utf-8"))}
    found = {**asdict(fault), **asked(oracle, folder, **question, **changed)}
    if found["status"] == "leaks":
        copy = edited(package, (fault.edit,), folder)
        found |= audited(audits, copy, folder, fault.case)
    return found


def _read(result: Path) -> dict[str, dict[str, Any]]:
    if not result.exists():
        return {}
    rows = [json.loads(line) for line in result.read_text(encoding="utf-8").splitlines()]
    return {row["name"]: row for row in rows}


def summary(rows: list[dict[str, Any]]) -> str:
    """Counts by status, and of those that count by operator and verdict."""
    told = [", ".join(f"{count} {status}" for status, count in Counter(row["status"] for row in rows).items())]
    counted = [row for row in rows if row["status"] == "leaks"]
    for operator in sorted({row["operator"] for row in counted}):
        own = Counter(row["verdict"] for row in counted if row["operator"] == operator)
        told.append(f"{operator}: " + ", ".join(f"{count} {verdict}" for verdict, count in own.items()))
    found = sum(row["verdict"] in BAD for row in counted)
    told.append(f"found {found} of {len(counted)}")
    return "\n".join(told)


if __name__ == "__main__":
    sys.exit(main())
