"""Asks the oracles about changes of the package, one process for each: reads and answers as `worker.py` does.

    python tests/mutants/generated/asked.py PACKAGE methods|attacks

A task is {out, log, limit, what, file, source, ...}; what is found is written to `out` as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from cells import CASES, configured, pairs, runner  # noqa: E402
from cripples import CELLS, ready  # noqa: E402
from leaks import in_common, judge, strength  # noqa: E402
from patched import forgetting, patch  # noqa: E402
from places import traced  # noqa: E402
from worker import serve  # noqa: E402


def _child(task: dict[str, Any]) -> None:
    """One question; never returns."""
    status = 70
    try:
        log = os.open(task["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        warnings.simplefilter("ignore")
        # What was computed without the change, an attacker's model, may not be found again.
        os.environ["FEDASSAY_CACHE"] = str(Path(task["out"]).with_name("cache"))
        if "source" in task:
            patch(task["file"], task["source"])
        found = QUESTIONS[task["what"]](task)
        Path(task["out"]).write_text(json.dumps(found), encoding="utf-8")
        status = 0
    except BaseException:  # noqa: BLE001 - whatever happens, the child may not go on as its parent
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _method(task: dict[str, Any]) -> tuple[Any, list[Any]]:
    adjacency = CASES[task["case"]]
    return runner(*configured(task["case"]), adjacency), pairs(adjacency)


def _digests(run: Any, pairs: list[Any]) -> list[str]:
    return [run(side, root, False).digest for pair in pairs for side in pair for root in range(2)]


def _lines(task: dict[str, Any]) -> dict[str, Any]:
    """What a cell runs, and its transcripts as they are."""
    run, pairs = _method(task)
    digests = _digests(run, pairs)
    lines = traced(Path(sys.argv[1]), lambda: [run(side, 0, False) for pair in pairs for side in pair])
    return {"lines": lines, "digests": digests, "strength": [strength(in_common(run, pair)) for pair in pairs]}


def _leak(task: dict[str, Any]) -> dict[str, Any]:
    """Whether a method leaks more than it claims."""
    run, pairs = _method(task)
    if task["remembers"]:
        run = forgetting(run, task["file"])
    try:
        if _digests(run, pairs) == task["digests"]:
            return {"status": "equal"}
        found = judge(run, pairs, task["strength"])
    except Exception as error:  # noqa: BLE001 - whatever a fault breaks
        return {"status": "crash", "why": repr(error)[:200]}
    return {"status": "leaks" if found.leaks else "unseen", **vars(found)}


def _attack_lines(task: dict[str, Any]) -> dict[str, Any]:
    """What an attack runs on its target, its score and what it returns as it is."""
    run, found = READY[task["case"]], []
    lines = traced(Path(sys.argv[1]), lambda: found.append(run()))
    score, digest = found[0]
    return {"lines": lines, "score": score, "digest": digest}


def _cripple(task: dict[str, Any]) -> dict[str, Any]:
    """Whether an attack is crippled on its target."""
    run = READY[task["case"]]
    if task["remembers"]:
        run = forgetting(run, task["file"])
    try:
        score, digest = run()
    except Exception as error:  # noqa: BLE001 - whatever a fault breaks
        return {"status": "crash", "why": repr(error)[:200]}
    if digest == task["digest"]:
        return {"status": "equal"}
    return {"status": "crippled" if score <= task["score"] / 2 else "unseen", "score": score}


QUESTIONS = {"lines": _lines, "leak": _leak, "attack lines": _attack_lines, "cripple": _cripple}
READY: dict[str, Any] = {}
"""Attacks on their targets, made by the package as it is."""


def _warm() -> None:
    """Import the package and run every cell of a kind once, so that no question has to."""
    sys.path.insert(0, str(Path(sys.argv[1]).parent))
    package = importlib.import_module("fedassay")
    if not Path(str(package.__file__)).is_relative_to(sys.argv[1]):
        raise RuntimeError(f"{package.__file__} was imported, not the copy in {sys.argv[1]}")
    if sys.argv[2] == "attacks":
        with tempfile.TemporaryDirectory() as folder:
            os.environ["FEDASSAY_CACHE"] = folder
            for name, cell in CELLS.items():
                READY[name] = ready(cell)
                READY[name]()
        return
    for case in CASES:
        run, sides = _method({"case": case})
        run(sides[0][0], 0, False)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    _warm()
    serve(_child)
