"""Runs plans under copies of the package, one process for each, with the heavy libraries loaded once.

Reads one JSON object a line from standard input, {package, plan, output, log, cache, limit}, and answers each with
a line, {status}. The package itself is imported only after the fork, from the copy.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HEAVY = (
    "PIL.Image",
    "click",
    "dp_accounting.pld.privacy_loss_distribution",
    "jinja2",
    "jsonschema",
    "numpy",
    "pydantic",
    "safetensors.torch",
    "scipy.optimize",
    "scipy.spatial.distance",
    "scipy.stats",
    "sklearn.datasets",
    "sklearn.utils",
    "torch",
    # Torch's optimisers import it at their first step.
    "torch._dynamo",
    "torch.func",
    "yaml",
)


def serve(child: Callable[[dict[str, Any]], None]) -> None:
    """Serve until the input ends.

    Args:
        child: Does one task, in a process of its own that it ends.
    """
    gc.disable()
    for name in HEAVY:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
    _gather()
    answers = sys.stdout
    for line in sys.stdin:
        task = json.loads(line)
        status = _run(task, child)
        answers.write(json.dumps({"status": status}) + "\n")
        answers.flush()


def _gather() -> None:
    """As `fedassay.execution.forks.gather`, from that file alone: the package is not imported here."""
    file = Path(__file__).resolve().parents[2] / "src" / "fedassay" / "execution" / "forks.py"
    spec = importlib.util.spec_from_file_location("forks", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.gather()


def _run(task: dict[str, Any], work: Callable[[dict[str, Any]], None]) -> int:
    """One plan in a child; its exit status, or 124 where it took more than its limit of processor seconds.

    The limit is of the processor and not of the clock, so that a busy machine breaks no attack; a run that waits
    for something ends after ten times as long.
    """
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (int(task["limit"]), int(task["limit"])))
        work(task)
    end = time.monotonic() + 10 * task["limit"]
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return 124 if code == -signal.SIGKILL else code
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 124


def _child(task: dict[str, Any]) -> None:
    """Run the copy's command line; never returns."""
    status = 70
    try:
        log = os.open(task["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        # Nothing that a broken copy keeps may reach another one, or the user.
        os.environ |= {"FEDASSAY_CACHE": task["cache"], "FEDASSAY_ANEW": "1"}
        sys.path.insert(0, str(Path(task["package"]).parent))
        sys.argv = ["fedassay", "run", task["plan"], "-o", task["output"], "--quiet", "--device", "cpu"]
        cli = importlib.import_module("fedassay.cli")
        if not Path(str(cli.__file__)).is_relative_to(task["package"]):
            raise RuntimeError(f"{cli.__file__} was imported, not the copy in {task['package']}")
        try:
            cli.main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - whatever happens, the child may not go on as its parent
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve(_child)
