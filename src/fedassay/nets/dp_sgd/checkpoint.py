"""Private trainings of an interrupted run: entries in safetensors beside the arrays made from them.

The root of the noise is never written. Findings about the steps were made while these were taken, so they hold for
any root of a resumed run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from fedassay.nets.dp_sgd.facts import TrainingFacts
from fedassay.nets.dp_sgd.steps import PrivateSteps
from fedassay.nets.dp_sgd.tape import TrainingEntry, trainings
from fedassay.nets.dp_sgd.updates import Updates
from fedassay.privacy.tape import Key, running_tape
from fedassay.privacy.tape_checkpoint import kept_entries
from fedassay.support.atomic import write_bytes
from fedassay.support.seeds import Seeds

_KEPT = "private trainings"
_PLAIN = [each.name for each in fields(TrainingFacts) if each.name != "kept"]


def keep_trainings(path: Path, run: str, chosen: Callable[[Key], bool]) -> None:
    """Keep the chosen trainings of the running tape in a file; none where nothing is taped.

    Args:
        path: The file.
        run: Fingerprint of the run that the trainings belong to.
        chosen: Selects the trainings to keep.
    """
    tape = running_tape()
    if tape is None:
        return
    tensors: dict[str, Tensor] = {}
    lines: list[dict[str, Any]] = []
    for key, entry in trainings(tape).items():
        if chosen(key):
            number = len(lines)
            lines.append(
                {
                    "key": asdict(key),
                    "declared": asdict(entry.declared),
                    "updates": asdict(entry.updates),
                    "start": entry.start,
                    "facts": {name: getattr(entry.facts, name) for name in _PLAIN},
                    "names": list(entry.weights),
                    "kept": list(entry.facts.kept),
                }
            )
            for name, each in entry.weights.items():
                tensors[f"{number}.weights.{name}"] = torch.from_numpy(each.copy())
            for step, weights in entry.facts.kept.items():
                tensors |= {f"{number}.{step}.{name}": each.contiguous() for name, each in weights.items()}
    write_bytes(path, save(tensors, metadata={"run": run, _KEPT: json.dumps(lines)}))


def restore_trainings(path: Path, run: str, root: Seeds) -> None:
    """Put the trainings of a file back on the running tape, and note missing ones there.

    Args:
        path: The file.
        run: Fingerprint of the run that the trainings must belong to.
        root: Root of the noise streams of the resumed run.
    """
    tape = running_tape()
    if tape is None:
        return
    for entry in kept_entries(tape, path, run, _KEPT, "pt", partial(_entry, root=root))[1]:
        if entry.facts.partial:
            tape.lacks.append(f"{entry.key}: {entry.facts.partial}")
        tape.trainings[entry.key] = entry


def _entry(line: dict[str, Any], tensor: Callable[[str], Tensor], number: str, root: Seeds) -> TrainingEntry:
    names = line["names"]
    facts = TrainingFacts(**line["facts"])
    kept = {step: {name: tensor(f"{number}.{step}.{name}") for name in names} for step in line["kept"]}
    return TrainingEntry(
        Key(**line["key"]),
        PrivateSteps(**line["declared"]),
        Updates(**line["updates"]),
        line["start"],
        {name: tensor(f"{number}.weights.{name}").numpy() for name in names},
        replace(facts, failures=tuple(facts.failures), kept=kept),
        root,
        None,
    )
