"""Runs the command line on hostile input, each time in a process of its own, and says what came of it.

A server process imports everything once and forks a child for each attempt, which takes milliseconds where a fresh
interpreter takes seconds. The child is watched: its time, its memory, every file that it opens for writing, and
every program that it starts.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SECONDS = 10
"""Processor seconds after which an attempt hangs. What is refused takes no more than `REFUSAL`."""
WAITED = 20.0
"""Seconds after which an attempt hangs that waits for something other than a processor."""
REFUSAL = 2.0
"""Processor seconds within which a refusal has to come."""
MEGABYTES = 500
"""Memory that a refusal may take, libraries and all."""
_ADDRESS_SPACE = 6 << 30


@dataclass(frozen=True)
class Attempt:
    """What came of one command.

    Attributes:
        code: Exit code; negative: killed by that signal.
        said: What it printed.
        complained: What it printed on standard error.
        seconds: Processor time.
        megabytes: Largest memory, libraries and all.
        outside: What it wrote to, or started, beyond its output folder.
        hung: Whether it was stopped after `SECONDS`.
    """

    code: int
    said: str
    complained: str
    seconds: float
    megabytes: float
    outside: tuple[str, ...] = ()
    hung: bool = False

    @property
    def fault(self) -> str:
        """What is wrong with how the input was met; empty where it was met as it should be."""
        words = self.said + self.complained
        lines = self.complained.strip().splitlines()
        checks = {
            f"hung after {self.seconds:.0f} s of work": self.hung,
            f"killed by signal {-self.code}": self.code < 0 and not self.hung,
            f"traceback: {lines[-1] if lines else ''}": "Traceback (most recent call last)" in words,
            f"exit code {self.code}": self.code not in {0, 1, 2} and self.code >= 0,
            f"wrote outside: {self.outside[:3]}": bool(self.outside),
            "a raw control character was printed": re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", words) is not None,
            f"a crash inside a stage: {self._crash}": bool(self._crash),
        }
        if self.code == 2 and not self.hung:
            checks |= {
                f"refused in {len(lines)} lines": len(lines) > 1,
                "refused without a word": not lines and not self.said,
                f"refused after {self.seconds:.1f} s": self.seconds > REFUSAL,
                f"refused with {self.megabytes:.0f} MB": self.megabytes > MEGABYTES,
            }
        return "; ".join(words for words, wrong in checks.items() if wrong)

    @property
    def _crash(self) -> str:
        """An error that nobody raised on purpose: the runner names its type and the line of the code."""
        found = re.search(
            r"\b\w{1,40}(?:Error|Exception): .{0,200}\(\w{1,40}\.py:\d+\)", self.said + self.complained
        )
        return found[0] if found else ""


@dataclass
class Server:
    """The process that forks a child for each attempt; used as a context manager.

    Attributes:
        base: A folder of its own, which holds the cache.
    """

    base: Path
    _process: subprocess.Popen[str] | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "FEDASSAY_CACHE": str(self.base / "cache"),
            "HOME": str(self.base),
            "NO_COLOR": "1",
            "TMPDIR": str(self.base / "temporary"),
        }
        (self.base / "temporary").mkdir()
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def attempt(self, folder: Path, args: Sequence[str], outputs: Sequence[str] = ("out",)) -> Attempt:
        """Run `fedassay ARGS` in a folder.

        Args:
            folder: Where the command is run.
            args: Of the command line.
            outputs: What it may write to, relative to the folder.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        allowed = [str(folder / name) for name in outputs]
        asked = {
            "folder": str(folder),
            "args": [*args],
            "allowed": [*allowed, *(str(self.base / name) for name in ("cache", "temporary"))],
        }
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        logs = [(folder / f".{name}").read_text("utf-8", "backslashreplace") for name in ("stdout", "stderr")]
        outside = (folder / ".outside").read_text("utf-8", "backslashreplace").splitlines()
        for name in ("stdout", "stderr", "outside"):
            (folder / f".{name}").unlink()
        return Attempt(
            answer["code"], *logs, answer["seconds"], answer["megabytes"], tuple(outside), answer["hung"]
        )


def _serve() -> None:
    """Read attempts from standard input, one a line, and answer each in a line."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from warmed import warm

    warm()
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_watched(asked)), flush=True)


def _watched(asked: dict[str, Any]) -> dict[str, Any]:
    """Fork a child for an attempt and wait for its end."""
    child = os.fork()
    if child == 0:
        _run(asked)
    started, hung = time.monotonic(), False
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            break
        if not hung and time.monotonic() - started - _on_processor(child) > WAITED:
            hung = True
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)
    code = os.waitstatus_to_exitcode(status)
    hung |= code == -signal.SIGXCPU
    return {
        "code": code,
        "seconds": usage.ru_utime + usage.ru_stime,
        "megabytes": usage.ru_maxrss / 1024,
        "hung": hung,
    }


def _on_processor(process: int) -> float:
    """Seconds that a process has run or was ready to: on a busy machine it may wait long for its turn."""
    try:
        ran, ready, _ = Path(f"/proc/{process}/schedstat").read_text().split()
    except OSError:
        return 0.0  # a kernel that does not count
    return (int(ran) + int(ready)) / 1e9


def _run(asked: dict[str, Any]) -> None:
    """The child: the command line, watched."""
    folder = Path(asked["folder"])
    os.chdir(folder)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / f".{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    log = os.open(folder / ".outside", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    code: object = 1
    try:
        from fedassay.cli import main

        sys.argv = ["fedassay", *asked["args"]]
        _watch_writes(log, folder, asked["allowed"])
        main()
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001 - whatever it is, it is what was looked for
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "os.symlink", "os.link"}
_FOLDER = {"os.remove": 1, "os.rmdir": 1, "os.mkdir": 2, "os.rename": 2}
"""Where the arguments of a change name the folder that its path is relative to."""
_STARTS = {"subprocess.Popen", "os.exec", "os.system", "os.posix_spawn", "socket.connect"}
"""A fork alone is none: claims are asked about in forks of the command, and these are watched as it is."""


def _watch_writes(log: int, folder: Path, allowed: list[str]) -> None:
    """Log every change of the file system beyond the allowed folders, and every program started."""
    prefixes = tuple(os.path.realpath(path) for path in allowed)

    def hook(event: str, about: tuple[Any, ...]) -> None:
        if event in _STARTS:
            if about[0] in {"git", "uname"}:
                return  # the revision of our own source and the processor, which go into the record
            os.write(log, f"{event}: {str(about)[:200]!r}\n".encode("utf-8", "backslashreplace"))
            return
        writes = event == "open" and isinstance(about[2], int) and bool(about[2] & _WRITES)
        if not (writes or event in _CHANGES) or isinstance(about[0], int):
            return
        # What removes or makes something says relative to which open folder; -1: the working directory.
        base = about[_FOLDER[event]] if event in _FOLDER else -1
        start = os.readlink(f"/proc/self/fd/{base}") if base >= 0 else folder
        for path in about[:2] if event == "os.rename" else about[:1]:
            where = os.path.realpath(os.path.join(start, os.fsdecode(path)))
            if event == "os.mkdir" and os.path.isdir(where):
                continue  # it is there, and stays as it is
            if where != "/dev/null" and not any(
                where == prefix
                or where.startswith((prefix + os.sep, f"{os.path.dirname(prefix)}/.{os.path.basename(prefix)}."))
                for prefix in prefixes
            ):
                os.write(log, f"{event}: {where!r}\n".encode("utf-8", "backslashreplace"))

    sys.addaudithook(hook)


if __name__ == "__main__":
    _serve()
