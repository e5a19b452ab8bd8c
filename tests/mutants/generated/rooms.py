"""Would the tests of a room notice? Faults drawn over all its functions, each run through the tests that cover it.

    python tests/mutants/generated/rooms.py privacy RESULT.json [--number 60] [--seed 0] [--only NAME-REGEX]

First every test of the room runs once, and the lines that it runs are noted. A fault is `noticed` where a test
that runs its line fails, `survives` where all of them pass, is `unclear` where they do not end within `LIMIT`, and
`not run` where no test runs that line, which counts as not noticed. `--by-import` saves the first run where that
takes long: all tests of the files that import the changed module are run. `--only` runs again what a result holds
under such names, as the code and the tests are now.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np  # noqa: E402
from catalogue import Edit  # noqa: E402
from copies import edited, pristine  # noqa: E402
from operators import OPERATORS, compiles  # noqa: E402
from places import Drawn, as_edit, changes_of  # noqa: E402
from worker import serve  # noqa: E402

ROOT = HERE.parents[2]
LIMIT = 90
"""Processor seconds that the tests of one fault may take."""
ENDED = 124
"""Exit status of tests that took longer."""

ROOMS: dict[str, tuple[str, ...]] = {
    "privacy": ("tests/privacy", "tests/calibration/test_noise_blocks.py"),
    "audits/stats": (
        "tests/calibration",
        "tests/audits/test_decisions.py",
        "tests/audits/test_detection_limit.py",
    ),
    "exchange": ("tests/exchange",),
}
"""Rooms of the package, and their own tests."""


class _Covered:
    """Notes what each test runs of a room, and how long it takes."""

    def __init__(self, room: str) -> None:
        self.room = room
        self.found: dict[str, Any] = {}
        self._lines: dict[str, set[int]] = {}

    def _local(self, frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            self._lines.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
        return self._local

    def _begun(self, frame: Any, event: str, _: Any) -> Any:
        code = frame.f_code
        return self._local if self.room in code.co_filename and code.co_name != "<module>" else None

    def pytest_collectstart(self, collector: Any) -> None:
        self._start_over()

    def pytest_collectreport(self, report: Any) -> None:
        """What a module runs as it is imported, all of its tests rest on."""
        self._note(report.nodeid.split("::")[0], 0.0)

    def pytest_runtest_setup(self, item: Any) -> None:
        for name, module in list(sys.modules.items()):
            if name.startswith("fedassay"):
                for held in vars(module).values():
                    if callable(getattr(held, "cache_clear", None)):
                        held.cache_clear()
        self._start_over()

    def pytest_runtest_call(self, item: Any) -> None:
        """What fixtures run, all tests of the module may rest on."""
        self._note(item.nodeid.split("::")[0], 0.0)
        self._start_over()

    def pytest_runtest_teardown(self, item: Any) -> None:
        self._note(item.nodeid, time.process_time() - self._start)

    def _start_over(self) -> None:
        self._lines, self._start = {}, time.process_time()
        sys.settrace(self._begun)

    def _note(self, name: str, seconds: float) -> None:
        sys.settrace(None)
        held = self.found.setdefault(name, {"seconds": 0.0, "lines": {}})
        held["seconds"] += seconds
        for file, lines in self._lines.items():
            own = file.split("/fedassay/", 1)[1]
            held["lines"][own] = sorted({*held["lines"].get(own, ()), *lines})
        self._lines = {}


def _child(task: dict[str, Any]) -> None:
    """Tests against one copy, in a process of its own; never returns."""
    status = 70
    try:
        log = os.open(task["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        above = str(Path(task["package"]).parent)
        sys.path.insert(0, above)
        os.environ["PYTHONPATH"] = above
        os.chdir(ROOT)
        pytest = importlib.import_module("pytest")
        asked = ["-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", *task["tests"]]
        plugin = _Covered(f"/fedassay/{task['room']}/") if "out" in task else None
        status = int(pytest.main(asked, plugins=[] if plugin is None else [plugin]))
        if not Path(str(importlib.import_module("fedassay").__file__)).is_relative_to(task["package"]):
            raise RuntimeError("the tests imported another package")
        if plugin is not None:
            Path(task["out"]).write_text(json.dumps(plugin.found), encoding="utf-8")
    except BaseException:  # noqa: BLE001 - whatever happens, the child may not go on as its parent
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def faults(package: Path, room: str, seed: int) -> Iterator[Drawn]:
    """Faults of all functions of a room: an operator, then any of its changes."""
    rng, seen = np.random.default_rng(seed), set()
    files = sorted(path.relative_to(package).as_posix() for path in (package / room).rglob("*.py"))
    while True:
        operator = OPERATORS[rng.integers(len(OPERATORS))]
        open_to = [
            (file, change)
            for file in files
            for change in changes_of(package / file)
            if change.operator == operator
        ]
        file, change = open_to[rng.integers(len(open_to))]
        source = (package / file).read_text(encoding="utf-8")
        key = (file, change.start, change.end, change.new)
        if key in seen or not compiles(change.applied(source)):
            continue
        seen.add(key)
        name = f"{operator}: {file}:{change.line}:{change.start} {len(seen)}"
        old = source[change.start : change.end]
        yield Drawn(name, operator, file, change.line, "", old, change.new, as_edit(file, source, change))


def covering(tests: dict[str, Any], file: str, line: int) -> list[str]:
    """The tests that run a line, or whose module does as it begins, the quickest first."""
    running = {name for name, held in tests.items() if line in held["lines"].get(file, ())}
    found = [
        (held["seconds"], name)
        for name, held in tests.items()
        if "::" in name and (name in running or name.split("::")[0] in running)
    ]
    return [name for _, name in sorted(found)]


def importing(room: str, file: str) -> list[str]:
    """The test files of a room that import a module, by its name, the shortest first."""
    stem = re.compile(rf"\b{re.escape(room.rsplit('/', maxsplit=1)[-1])}(\.| import .*\b){Path(file).stem}\b")
    files = [
        path
        for each in ROOMS[room]
        for path in ([ROOT / each] if each.endswith(".py") else (ROOT / each).rglob("test_*.py"))
    ]
    own = [path for path in files if stem.search(path.read_text(encoding="utf-8"))]
    return [path.relative_to(ROOT).as_posix() for path in sorted(own, key=lambda path: path.stat().st_size)]


def main() -> int:
    """Draw and test; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("room", choices=sorted(ROOMS))
    parser.add_argument("result", type=Path)
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--by-import", action="store_true")
    given = parser.parse_args()
    from generate import Server

    rows: list[dict[str, Any]] = json.loads(given.result.read_text()) if given.result.exists() else []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        package = pristine(folder / "pristine")
        server = Server(HERE / "rooms.py", "--serve")
        try:
            task = {"room": given.room, "limit": 900, "log": folder / "log.txt"}
            out = folder / "covered.json"
            tests = {}
            if not given.by_import:
                if server.ask({**task, "package": package, "tests": ROOMS[given.room], "out": out}):
                    print((folder / "log.txt").read_text()[-3000:])
                    return 1
                tests = json.loads(out.read_text(encoding="utf-8"))
            if given.only:
                todo = [_again(row) for row in rows if re.search(given.only, row["name"])]
                rows = [row for row in rows if not re.search(given.only, row["name"])]
            else:
                known = {row["name"] for row in rows}
                drawn = (
                    fault
                    for _, fault in zip(range(given.number), faults(package, given.room, given.seed), strict=False)
                )
                todo = [fault for fault in drawn if fault.name not in known]
            for fault in todo:
                own = folder / "one"
                own.mkdir()
                copy = edited(package, (fault.edit,), own)
                lines = {fault.line} | set(range(fault.line, fault.line + fault.old.count("\n") + 1))
                found = (name for line in sorted(lines) for name in covering(tests, fault.file, line))
                names = importing(given.room, fault.file) if given.by_import else list(dict.fromkeys(found))
                outcome = "not run"
                if names:
                    status = server.ask({**task, "limit": LIMIT, "package": copy, "tests": names})
                    outcome = "unclear" if status == ENDED else "noticed" if status else "survives"
                shutil.rmtree(own)
                rows.append({**asdict(fault), "outcome": outcome, "tests": len(names)})
                given.result.write_text(json.dumps(rows, indent=1), encoding="utf-8")
                print(
                    f"{outcome:9} {fault.name}: {fault.old[:70]!r} -> {fault.new[:70]!r}",
                    file=sys.stderr,
                    flush=True,
                )
        finally:
            server.stop()
    print(dict(Counter(row["outcome"] for row in rows)))
    return 0


def _again(row: dict[str, Any]) -> Drawn:
    held = {name: row[name] for name in ("name", "operator", "file", "line", "case", "old", "new")}
    return Drawn(**held, edit=Edit(**row["edit"]))


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve(_child)
    else:
        sys.exit(main())
