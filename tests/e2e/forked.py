"""The command line in processes of its own that start at once: forked from one that has imported everything.

What a command prints, its exit code, its environment and its folder are those of a fresh interpreter; only the
seconds of its imports are saved.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


def fedassay(
    *args: str | Path, hook: str = "", cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end.

    Args:
        args: Of the command line.
        hook: Python that is executed first, to break the package at a chosen place.
        cwd: Folder that the command is run in.
        environment: All of its variables; None: this process's.

    Returns:
        Exit code, negative for a signal, and what was printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked = {
            "args": [str(arg) for arg in args],
            "hook": hook,
            "cwd": str(cwd or Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
            "folder": folder,
        }
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        out, err = (Path(folder, name).read_text("utf-8") for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess(["fedassay", *asked["args"]], code, out, err)


@cache
def _server() -> subprocess.Popen[str]:
    """The process that forks; it ends with this one."""
    command = [sys.executable, __file__]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    assert server.stdin is not None
    atexit.register(server.stdin.close)
    return server


def _serve() -> None:
    """Read commands from standard input, one a line, and answer each with its exit code."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from warmed import warm

    warm()
    sys.path.pop(0)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(asked)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(asked: dict[str, Any]) -> None:
    """The child: the command, and its end."""
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    tempfile.tempdir = None
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(Path(asked["folder"], name), os.O_WRONLY | os.O_CREAT, 0o600), number)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    code: object = 1
    try:
        from fedassay.cli import main

        exec(asked["hook"], {"__name__": "hook"})
        sys.argv = ["fedassay", *asked["args"]]
        main()
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001 - an interpreter would print it, too
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    _serve()
