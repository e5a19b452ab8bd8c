"""The tape of an interrupted run: draws in safetensors beside the arrays made from them.

A resumed run puts them back, so that its tape is whole. The root of the noise is never written, only a name that
follows from it: a resumed run that has another root (without a seed each run draws its own) knows that it cannot
recompute these draws, and its tape says so.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedassay.privacy.tape import Draw, ExternalMechanism, Key, Tape, TapeEntry, running_tape
from fedassay.support.atomic import write_bytes
from fedassay.support.seeds import Seeds

_log = logging.getLogger(__name__)
_Entry = TypeVar("_Entry")


def keep_draws(path: Path, run: str, root: Seeds, chosen: Callable[[Key], bool]) -> None:
    """Keep the chosen draws of the running tape in a file; nothing where nothing is taped.

    Args:
        path: The file.
        run: Fingerprint of the run that the draws belong to, besides the root.
        root: Root of the noise streams: `MethodInput.noise`.
        chosen: Selects the draws to keep.
    """
    tape = running_tape()
    if tape is None:
        return
    arrays: dict[str, NDArray[np.float64]] = {}
    lines: list[dict[str, object]] = []
    for key, entry in tape.draws.items():
        if chosen(key):
            number = str(len(lines))
            line: dict[str, object] = {"key": asdict(key)}
            if isinstance(entry, Draw):
                arrays[f"{number}.exact"] = entry.exact
                line |= {"scale": entry.scale, "layout": entry.layout, "grid": entry.grid}
            else:
                line |= {"library": entry.library, "pure_epsilon": entry.pure_epsilon, "bounds": entry.bounds}
            arrays[f"{number}.out"] = entry.out
            lines.append(line)
    about = {"run": run, "root": _name_of(root), "draws": json.dumps(lines)}
    # Not ascontiguousarray, which makes a vector of a scalar.
    write_bytes(path, save({name: np.array(each, order="C") for name, each in arrays.items()}, metadata=about))


def restore_draws(path: Path, run: str, root: Seeds) -> None:
    """Put the draws of a file back on the running tape, or note there what is missing; see `keep_draws`."""
    tape = running_tape()
    if tape is None:
        return
    about, entries = kept_entries(tape, path, run, "draws", "numpy", _entry)
    if about and about.get("root") != _name_of(root):
        tape.lacks.append(
            f"{path.name}: the root that an interrupted run drew its noise from is not known any more"
        )
    for entry in entries:
        tape.write(entry)


def kept_entries(
    tape: Tape,
    path: Path,
    run: str,
    what: str,
    framework: str,
    entry: Callable[[dict[str, Any], Callable[[str], Any], str], _Entry],
) -> tuple[dict[str, str], list[_Entry]]:
    """The metadata and the entries of a file; both empty where it cannot be read, which is noted on the tape.

    Args:
        tape: The running tape.
        path: The file.
        run: Fingerprint of the run that they must belong to.
        what: Their name, under which the metadata lists them.
        framework: Of the arrays.
        entry: Makes one from its line, the arrays and its number.
    """
    try:
        with safe_open(path, framework=framework) as kept:
            about = kept.metadata() or {}
            if about.get("run") != run:
                raise OSError("it belongs to another run")
            lines = json.loads(about[what])
            return about, [entry(line, kept.get_tensor, str(number)) for number, line in enumerate(lines)]
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        _log.warning("%s cannot be read: %s", path, error)
        tape.lacks.append(f"{path.name}: the {what} of an interrupted run were not kept with it")
    return {}, []


def _entry(line: dict[str, object], tensor: Callable[[str], NDArray[np.float64]], number: str) -> TapeEntry:
    given = dict(line)
    named = given.pop("key")
    assert isinstance(named, dict)
    out = tensor(f"{number}.out")
    out.flags.writeable = False
    if "library" in given:
        given["bounds"] = tuple(given["bounds"])  # type: ignore[arg-type]
        return ExternalMechanism(Key(**named), out=out, **given)  # type: ignore[arg-type]
    return Draw(Key(**named), exact=tensor(f"{number}.exact"), out=out, **given)  # type: ignore[arg-type]


def _name_of(root: Seeds) -> str:
    """Return a name that two equal roots share and that reveals nothing of their streams."""
    return str(root.integer("name of this root"))
