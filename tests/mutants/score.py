"""Break methods and attacks one way at a time, and see what the audits say: `make mutants`.

    python tests/mutants/score.py [RESULT.json] [--only REGEX] [--jobs 2] [--keep FOLDER] [--all] [--blind]

Every entry of the catalogue runs in a copy of the package with nothing but its edits changed, on the smallest
plan of its method, through the command line. A leaky method is found where `dp_claim` or `ledger` calls its claim
`unsound` or `unsupported`, for the right reason where that reason names what the entry says; an honest variation
is flagged where either does. Exit status 1 if a leaky method is not found for the right reason, or an honest one
is flagged or could not be judged, or an edit changes nothing of what is sent.

A broken attack is found where none of the findings that it concerns reads `no_leak_found`, on a plan where some of
them are conclusive as long as nothing is broken; exit status 1 if one is not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import yaml
from broken import Said, outcome_of_attack, said_in
from catalogue import UNCHANGED, Mutant, mutants, plan_of, unchanged, unjudged
from copies import edited, pristine

LIMIT = 120.0
"""Processor seconds that one plan may take."""

CLAIMS = ("dp_claim", "ledger")
BAD = ("unsound", "unsupported")
Seen = Callable[[Sequence["Judged"]], None]
VERDICTS = ("leak", "no_leak_found", "sound", "not_refuted", "unsupported", "unsound", "inconclusive", "not_run")


@dataclass(frozen=True)
class Judged:
    """What the audits said of one entry.

    Attributes:
        name: Of the entry.
        kind: `leaky`, `honest` or `attack`.
        fault: Its class.
        scope: What the fault is confined to.
        blind: Whether it was written without a look at the audits.
        verdict: The worst verdict of the audits of claims in any cell, or `error` where the run failed.
        outcome: Of leaky ones `found`, `wrong reason`, `missed`, `inconclusive`, `error`, or `no effect` where the
            messages are those of the method as it is; of honest ones `passed`, `flagged`, `inconclusive` or
            `error`; of broken attacks `found`, `missed`, `no effect`, `no baseline` or `error`, and `passed` of
            the code as it is, where something is conclusive for each of its plan's entries.
        reasons: Those of that verdict, or the end of what a failed run printed.
        seconds: Time taken.
        sent: Digest of the transcripts that the run wrote.
        findings: Of broken attacks, and of the same plans without an edit: all that the run found.
    """

    name: str
    kind: str
    fault: str
    scope: str
    blind: bool
    verdict: str
    outcome: str
    reasons: tuple[str, ...]
    seconds: float
    sent: str = ""
    findings: tuple[Said, ...] = ()

    @property
    def right(self) -> bool:
        """Whether this is what must be said of it."""
        return self.outcome in ("found", "passed")


def run_all(
    entries: Sequence[Mutant], folder: Path, jobs: int, *, keep: bool = False, seen: Seen | None = None
) -> list[Judged]:
    """Run and judge entries, `jobs` at once.

    Args:
        entries: Which; of broken attacks the plan without an edit is run as well.
        folder: An empty folder for copies and runs.
        jobs: Processes.
        keep: Leave them there.
        seen: Given what was judged so far, after every entry.
    """
    entries = _with_baselines(entries)
    package = pristine(folder / "pristine")
    workers: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
    started = [_worker() for _ in range(jobs)]
    for worker in started:
        workers.put(worker)

    def one(entry: Mutant) -> Judged:
        worker, own = workers.get(), folder / re.sub(r"\W+", "-", entry.name)
        try:
            return _judged(entry, package, own, worker)
        finally:
            workers.put(worker)
            if not keep:
                shutil.rmtree(own, ignore_errors=True)

    try:
        with ThreadPoolExecutor(jobs) as pool:
            found: list[Judged] = []
            so_far: list[Judged] = []
            for done, judged in enumerate(pool.map(one, entries), 1):
                found.append(judged)
                so_far = _against_baselines(entries[:done], _effective(entries[:done], found))
                print(f"{done}/{len(entries)} {judged.name}: {so_far[-1].outcome}", file=sys.stderr, flush=True)
                if seen is not None:
                    seen(so_far)
            return so_far
    finally:
        for worker in started:
            assert worker.stdin is not None
            worker.stdin.close()
            worker.wait()


def _with_baselines(entries: Sequence[Mutant]) -> list[Mutant]:
    """The plans of broken attacks without an edit, by which these are judged, and then the other entries."""
    bare = {entry.plan: unchanged(entry.plan, "attack") for entry in entries if entry.kind == "attack"}
    names = {entry.name for entry in bare.values()}
    return [*bare.values(), *(entry for entry in entries if entry.name not in names)]


def _against_baselines(entries: Sequence[Mutant], found: Sequence[Judged]) -> list[Judged]:
    """The outcomes of broken attacks, which the same plan without an edit decides on."""
    attacks = [pair for pair in zip(entries, found, strict=True) if pair[0].kind == "attack"]
    intact = {entry.plan: judged.findings for entry, judged in attacks if entry.fault == UNCHANGED}
    out = {}
    for entry, judged in attacks:
        if judged.verdict == "error":
            continue
        if entry.fault == UNCHANGED:
            tried = [other for other, _ in attacks if other.plan == entry.plan and other.fault != UNCHANGED]
            nothing = [
                other.name
                for other in tried
                if outcome_of_attack(other.concern, (), judged.findings)[0] == "no baseline"
            ]
            outcome = "no baseline" if nothing else "passed"
            out[entry.name] = replace(judged, outcome=outcome, reasons=tuple(nothing))
        else:
            outcome, verdict, reasons = outcome_of_attack(
                entry.concern, judged.findings, intact.get(entry.plan, ())
            )
            out[entry.name] = replace(judged, outcome=outcome, verdict=verdict, reasons=tuple(reasons))
    return [out.get(judged.name, judged) for judged in found]


def _effective(entries: Sequence[Mutant], found: Sequence[Judged]) -> list[Judged]:
    """Take no edit for a leak that changes nothing of what is sent, where the method as it is has run as well.

    One that was found leaks beside the messages, as in the communication that a run reports.
    """
    bare = {
        entry.plan: judged.sent for entry, judged in zip(entries, found, strict=True) if entry.fault == UNCHANGED
    }
    return [
        replace(judged, outcome="no effect")
        if entry.kind == "leaky"
        and judged.outcome != "found"
        and judged.sent
        and judged.sent == bare.get(entry.plan)
        else judged
        for entry, judged in zip(entries, found, strict=True)
    ]


def _worker() -> subprocess.Popen[str]:
    folder = Path(__file__).resolve().parent
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return subprocess.Popen(
        [sys.executable, str(folder / "worker.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def _judged(entry: Mutant, package: Path, folder: Path, worker: subprocess.Popen[str]) -> Judged:
    """Run one entry in its own folder."""
    start = time.monotonic()
    folder.mkdir()
    copy = edited(package, entry.edits, folder)
    plan, output, log = folder / "plan.yaml", folder / "run", folder / "log.txt"
    plan.write_text(yaml.safe_dump(plan_of(entry.plan), sort_keys=False), encoding="utf-8")
    where = {"package": copy, "plan": plan, "output": output, "log": log, "cache": folder / "cache"}
    task = {**{name: str(path) for name, path in where.items()}, "limit": LIMIT}
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps(task) + "\n")
    worker.stdin.flush()
    status = json.loads(worker.stdout.readline())["status"]
    record = output / "record.json"
    seconds = time.monotonic() - start
    if not record.exists():
        said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        return _of(entry, "error", (f"exit status {status}", said), seconds)
    content = json.loads(record.read_text(encoding="utf-8"))
    if entry.kind == "attack":
        ran = _of(
            entry,
            "error" if content["errors"] else "ran",
            tuple(str(error)[-2000:] for error in content["errors"]),
            seconds,
        )
        return replace(ran, findings=said_in(content))
    judged = _of(entry, *verdict_of(content), seconds)
    return replace(judged, sent=_digest(output / "transcripts"))


def _digest(folder: Path) -> str:
    """Of all files of a folder, by name; empty where there is none."""
    digest = hashlib.sha256()
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        digest.update(f"{path.relative_to(folder)}:".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest() if files else ""


def verdict_of(record: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The worst verdict of the audits of claims in a run's record, and its reasons."""
    if record["errors"]:
        return "error", tuple(str(error)[-2000:] for error in record["errors"])
    findings = [item for cell in record["cells"] for item in cell["findings"] if item["audit"] in CLAIMS]
    for verdict in (*BAD, "inconclusive", "not_run", "not_refuted", "sound"):
        if any(item["verdict"] == verdict for item in findings):
            alike = BAD if verdict in BAD else (verdict,)
            return verdict, tuple(dict.fromkeys(item["reason"] for item in findings if item["verdict"] in alike))
    return "error", ("no finding of dp_claim or ledger",)


def _of(entry: Mutant, verdict: str, reasons: tuple[str, ...], seconds: float) -> Judged:
    return Judged(
        entry.name,
        entry.kind,
        entry.fault,
        entry.scope,
        entry.blind,
        verdict,
        outcome_of(entry, verdict, reasons),
        reasons,
        round(seconds, 1),
    )


def outcome_of(entry: Mutant, verdict: str, reasons: Sequence[str]) -> str:
    """What a verdict is worth for an entry; see `Judged.outcome`."""
    if entry.kind == "attack":
        return verdict
    if verdict in ("inconclusive", "not_run", "not_refuted"):
        return "inconclusive"
    if verdict in BAD:
        if entry.kind == "honest":
            return "flagged"
        # Reasons write class_counts as "class counts".
        words = [form for reason in reasons for form in (reason, reason.replace(" ", "_"))]
        return "found" if any(re.search(entry.reason, form) for form in words) else "wrong reason"
    if verdict == "sound":
        return "missed" if entry.kind == "leaky" else "passed"
    return "error"


def table(found: Sequence[Judged]) -> str:
    """One row an entry, and the score by class."""
    rows = [f"{'entry':46} {'class':32} {'verdict':13} {'found?':13} reason"]
    for item in found:
        said = " ".join(item.reasons).replace("\n", " ")[:90]
        rows.append(f"{item.name:46} {item.fault:32} {item.verdict:13} {item.outcome:13} {said}")
    rows += ["", f"{'class':40} {'of':>4} {'found':>6} {'wrong reason':>13} {'missed':>7} {'unclear':>8}"]
    leaky = [item for item in found if item.kind == "leaky"]
    for fault in dict.fromkeys(item.fault for item in leaky):
        rows.append(_counts(fault, [item for item in leaky if item.fault == fault]))
    rows.append(_counts("confined to a client, class, round ...", [item for item in leaky if item.scope != "all"]))
    rows.append(_counts("written blind", [item for item in leaky if item.blind]))
    rows.append(_counts("leaky methods", leaky))
    honest = [item for item in found if item.kind == "honest"]
    flagged = sum(item.outcome == "flagged" for item in honest)
    unclear = sum(item.outcome in ("inconclusive", "error") for item in honest)
    rows.append(f"honest variations: {len(honest)}, flagged {flagged}, not judged {unclear}")
    return "\n".join([*rows, *_attacks(found)])


def _attacks(found: Sequence[Judged]) -> list[str]:
    """The score of broken attacks by class, and the findings of their plans without an edit."""
    broken = [item for item in found if item.kind == "attack" and item.fault != UNCHANGED]
    if not broken:
        return []
    columns = ("found", "missed", "no effect", "no baseline", "error")
    rows = ["", f"{'broken attacks':40} {'of':>4} " + " ".join(f"{name:>11}" for name in columns)]
    faults = {fault: [item for item in broken if item.fault == fault] for fault in {item.fault for item in broken}}
    for name, items in (*sorted(faults.items()), ("broken attacks", broken)):
        counts = (sum(item.outcome == column for item in items) for column in columns)
        rows.append(f"{name:40} {len(items):4} " + " ".join(f"{count:11}" for count in counts))
    bare = [item for item in found if item.kind == "attack" and item.fault == UNCHANGED]
    findings = [finding for item in bare for finding in item.findings]
    verdicts = {verdict: sum(item.verdict == verdict for item in findings) for verdict in VERDICTS}
    told = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items() if count)
    rows.append(f"their {len(bare)} plans without an edit: {told}")
    return rows


def _counts(name: str, items: Sequence[Judged]) -> str:
    def of(*outcomes: str) -> int:
        return sum(item.outcome in outcomes for item in items)

    unclear = of("inconclusive", "error", "no effect")
    return f"{name:40} {len(items):4} {of('found'):6} {of('wrong reason'):13} {of('missed'):7} {unclear:8}"


def _write(result: Path | None, found: Sequence[Judged]) -> None:
    """Write what was judged so far: a run that is stopped leaves it."""
    if result is not None:
        result.write_text(json.dumps([asdict(item) for item in found], indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Run what is asked for, print the table, write the result; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", nargs="?", type=Path, help="A JSON file for the result.")
    parser.add_argument("--only", default="", help="A regular expression on names; default: all.")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--all", action="store_true", help="All generated faults, and not a sample of them.")
    parser.add_argument(
        "--blind", action="store_true", help="Entries of `blind/` alone: missed, or not judged yet."
    )
    parser.add_argument("--keep", type=Path, help="A new folder for copies and runs, which stay there.")
    given = parser.parse_args()
    if given.result is not None:
        # Where it goes is seen to before the hours that it takes.
        given.result.parent.mkdir(parents=True, exist_ok=True)
    held = unjudged() if given.blind else mutants(every=given.all)
    entries = [entry for entry in held if re.search(given.only, entry.name)]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = run_all(
            entries, folder.resolve(), given.jobs, keep=given.keep is not None, seen=partial(_write, given.result)
        )
    print(table(found))
    print(f"{time.monotonic() - start:.0f} s")
    return 0 if all(item.right for item in found) else 1


if __name__ == "__main__":
    sys.exit(main())
