"""The state of an interrupted training run, in one safetensors file.

It holds the inputs of the next step (weights, their moving average, the optimiser's state, the random generator,
the step), so that a resumed run continues bit for bit. It also holds the findings of a watched training so far.
Writing is atomic; a file that is damaged or belongs to another run counts as absent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from fedassay.support.atomic import write_bytes

KEPT_EVERY = 100
"""Steps between two checkpoints of a run: each takes as long as several steps of a small network."""

_FACTS, _MEMORY = "facts.", "optimizer."
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class TrainingState:
    """The state that a training step reads and changes.

    Attributes:
        parameters: The network's parameters by name.
        average: Their moving average; empty where there is none.
        best: The moving average at its best step on the records held out; empty where nothing is selected.
        best_loss: Its loss there, a scalar.
        best_step: The number of steps done then.
        optimizer: Over `parameters`, in the same order.
        generator: Source of the run's random numbers; None where every step has streams of its own.
    """

    parameters: dict[str, nn.Parameter]
    average: dict[str, Tensor]
    best: dict[str, Tensor]
    best_loss: Tensor
    best_step: int
    optimizer: torch.optim.Optimizer
    generator: torch.Generator | None


def write_checkpoint(
    path: Path, fingerprint: str, step: int, state: TrainingState, facts: Mapping[str, Tensor] | None = None
) -> None:
    """Write the state after `step` steps of the run named by `fingerprint`, whole or not at all.

    Args:
        path: The file.
        fingerprint: Name of the run.
        step: Steps done.
        state: The state.
        facts: Findings about these steps; None: the training was not watched.
    """
    tensors = {"best_loss": state.best_loss}
    if state.generator is not None:
        tensors["generator"] = state.generator.get_state()
    tensors |= {f"{_FACTS}{name}": each for name, each in (facts or {}).items()}
    for name, parameter in state.parameters.items():
        tensors[f"weights.{name}"] = parameter.detach()
        # Moments of Adam and AdamW, SGD's buffer where it has momentum.
        memory = state.optimizer.state[parameter].items()
        tensors |= {f"{_MEMORY}{kind}.{name}": value for kind, value in memory if isinstance(value, Tensor)}
    tensors |= {f"average.{name}": each for name, each in state.average.items()}
    tensors |= {f"best.{name}": each for name, each in state.best.items()}
    run = {"fingerprint": fingerprint, "step": step, "best_step": state.best_step}
    host = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(path, save(host, metadata={"run": json.dumps(run)}))


def read_checkpoint(path: Path, fingerprint: str, state: TrainingState) -> tuple[int, dict[str, Tensor]]:
    """Restore the state of the run named by `fingerprint` in place.

    Returns:
        The number of steps done, 0 where there is no sound checkpoint of this run, and what is known about them.
    """
    if not path.exists():
        return 0, {}
    try:
        with safe_open(path, framework="pt") as kept:
            run = json.loads((kept.metadata() or {}).get("run", "{}"))
            tensors = {name: kept.get_tensor(name) for name in kept.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        _log.warning("checkpoint %s is damaged, training starts anew: %s", path, error)
        return 0, {}
    if run.get("fingerprint") != fingerprint:
        _log.warning("checkpoint %s belongs to another run, training starts anew", path)
        return 0, {}
    step = int(run["step"])
    with torch.no_grad():
        for name, parameter in state.parameters.items():
            parameter.copy_(tensors[f"weights.{name}"])
        _remember(state, tensors)
        for kind, weights in (("average", state.average), ("best", state.best)):
            for name, each in weights.items():
                each.copy_(tensors[f"{kind}.{name}"])
    state.best_step = int(run["best_step"])
    state.best_loss.copy_(tensors["best_loss"])
    if state.generator is not None:
        state.generator.set_state(tensors["generator"])
    facts = {name.removeprefix(_FACTS): each for name, each in tensors.items() if name.startswith(_FACTS)}
    return step, facts


def _remember(state: TrainingState, tensors: Mapping[str, Tensor]) -> None:
    """Restore the optimiser's state of every parameter."""
    fused = bool(state.optimizer.defaults.get("fused"))
    for key, value in tensors.items():
        if not key.startswith(_MEMORY):
            continue
        kind, name = key.removeprefix(_MEMORY).split(".", 1)
        parameter = state.parameters[name]
        if value.shape == parameter.shape and kind != "step":
            # In the weight's own layout, which on a GPU may be channels last: fused AdamW asks for one layout.
            own = torch.empty_like(parameter, requires_grad=False).copy_(value)
        else:
            own = value.to(parameter.device if fused else "cpu")
        state.optimizer.state[parameter][kind] = own
