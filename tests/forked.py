"""The command line, and Python, in processes of their own that start at once: forked from one that imported all.

What a command prints, its exit code, its environment and its folder are those of a fresh interpreter; only the
seconds of its imports are saved. A command whose PYTHONPATH is another imports fedassay itself anew, with what
other packages register there. Three things are the server's for all of its life: the seed of hashes, the
libraries' threads and kernels, and `sitecustomize`; what is about those starts an interpreter of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import runpy
import select
import shlex
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_PROGRAM = '#!/bin/sh\nexec {python} -IS {client} {name} "$@"\n'

_CLIENT = """\
import json, os, socket, sys
name, *args = sys.argv[1:]
if name == "fedassay":
    args = ["-m", "fedassay", *args]
elif args[:1] not in (["-c"], ["-m"]):
    os.execv(sys.executable, [sys.executable, *args])
asked = {"args": args, "hook": "", "cwd": os.getcwd(), "environment": dict(os.environ)}
with socket.socket(socket.AF_UNIX) as server:
    server.connect(SOCKET)
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(json.dumps(asked).encode() + b"\\n")
    code = int(server.makefile().readline())
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def fedassay(
    *args: str | Path, hook: str = "", cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end; as `python`, with the arguments of the command."""
    return python("-m", "fedassay", *args, hook=hook, cwd=cwd, environment=environment)


def python(
    *args: str | Path, hook: str = "", cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python to its end.

    Args:
        args: Of the interpreter: `-c CODE ...` or `-m MODULE ...`.
        hook: Python that is executed first, to break the package at a chosen place.
        cwd: Folder that the command is run in.
        environment: All of its variables; None: this process's.

    Returns:
        Exit code, negative for a signal, and what was printed.
    """
    asked = {
        "args": [str(arg) for arg in args],
        "hook": hook,
        "cwd": str(cwd or Path.cwd()),
        "environment": dict(os.environ if environment is None else environment),
    }
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as nothing:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(_server())
            socket.send_fds(server, [b"."], [stream.fileno() for stream in (nothing, out, err)])
            server.sendall(json.dumps(asked).encode() + b"\n")
            with server.makefile() as answer:
                code = int(answer.readline())
        said = []
        for stream in (out, err):
            stream.seek(0)
            said.append(stream.read().decode("utf-8", "backslashreplace").replace("\r\n", "\n"))
    return subprocess.CompletedProcess(asked["args"], code, *said)


def programs(folder: Path) -> None:
    """Write the programs `fedassay` and `python` of a folder for PATH, for scripts of a shell."""
    client = folder / ".client.py"
    client.write_text(f"SOCKET = {_server()!r}\n{_CLIENT}", encoding="utf-8")
    for name in ("fedassay", "python"):
        words = {"python": sys.executable, "client": str(client), "name": name}
        text = _PROGRAM.format(**{word: shlex.quote(value) for word, value in words.items()})
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)


@cache
def _server() -> str:
    """The socket of the process that forks; it ends with this one."""
    folder = tempfile.TemporaryDirectory(prefix="forked-")
    path = str(Path(folder.name, "socket"))
    listening = subprocess.Popen(
        [sys.executable, __file__, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert listening.stdin is not None
    assert listening.stdout is not None
    atexit.register(folder.cleanup)
    atexit.register(listening.wait)
    # Its standard input may be open in forks of this process, and then closing it would not end it.
    atexit.register(listening.terminate)
    assert listening.stdout.readline() == "listening\n"
    return path


def _serve(path: str) -> None:
    """Answer each connection with an exit code, until standard input ends."""
    from warmed import warm

    from fedassay.execution.forks import gather

    warm()
    gather()
    sys.path.pop(0)  # The folder of this file.
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        print("listening", flush=True)
        while sys.stdin not in select.select([sys.stdin, server], [], [])[0]:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _answer(connection)
            connection.close()
            with contextlib.suppress(ChildProcessError):  # Those that have answered, and their processor time.
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _answer(connection: socket.socket) -> None:
    """Fork the command, and send how it ended."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile() as line:
        asked = json.loads(line.readline())
    child = os.fork()
    if child == 0:
        connection.close()
        _run(asked, streams)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _run(asked: dict[str, Any], streams: list[int]) -> None:
    """The command, and its end."""
    os.chdir(asked["cwd"])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    _take(asked["environment"])
    code: object = 0
    try:
        exec(asked["hook"], {"__name__": "hook"})
        _interpret(*asked["args"])
    except SystemExit as error:
        code = error.code
        if not isinstance(code, int | None):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:  # noqa: BLE001 - an interpreter would print it, too
        code = 1
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


def _take(environment: dict[str, str]) -> None:
    """Take an environment over, and what it says of where modules are."""
    before, path = os.environ.get("PYTHONPATH", ""), environment.get("PYTHONPATH", "")
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    if path == before:
        return
    old = before.split(os.pathsep)
    sys.path[:] = [*filter(None, path.split(os.pathsep)), *(name for name in sys.path if name not in old)]
    for name in [name for name in sys.modules if name.partition(".")[0] == "fedassay"]:
        del sys.modules[name]


def _interpret(kind: str, text: str, *args: str) -> None:
    """What the interpreter does with `-c TEXT` or `-m TEXT`."""
    sys.path.insert(0, "")
    if kind == "-m":
        sys.argv = [text, *args]
        runpy.run_module(text, run_name="__main__", alter_sys=True)
        return
    sys.argv = ["-c", *args]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    exec(compile(text, "<string>", "exec"), main.__dict__)


if __name__ == "__main__":
    _serve(sys.argv[1])
