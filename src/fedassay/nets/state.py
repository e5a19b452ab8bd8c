"""The trained state of a network as one vector: its parameters, and the statistics of batch normalisation.

Statistics that stay as they were loaded (those of a pretrained network in evaluation mode) are not included: its
module marks them by `keeps_statistics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def moving_statistics(module: nn.Module) -> list[Tensor]:
    """Running means and variances that training moves, in the order of the modules; usually none."""
    return list(_statistics(module))


def _statistics(module: nn.Module) -> Iterator[Tensor]:
    if getattr(module, "keeps_statistics", False):
        return
    if isinstance(module, _BatchNorm) and module.running_mean is not None and module.running_var is not None:
        yield from (module.running_mean, module.running_var)
    for child in module.children():
        yield from _statistics(child)


def state_of(module: nn.Module) -> list[Tensor]:
    """All parameters, then the statistics that training moves; to be changed in place."""
    return [*module.parameters(), *moving_statistics(module)]


def read_tensors(tensors: Sequence[Tensor]) -> NDArray[np.float32]:
    """Tensors as one vector."""
    return torch.cat([each.detach().flatten().cpu() for each in tensors]).numpy().astype(np.float32)


@torch.no_grad()
def write_tensors(tensors: Sequence[Tensor], values: NDArray[np.float32]) -> None:
    """Replace tensors by the parts of a vector."""
    parts = np.split(values, np.cumsum([each.numel() for each in tensors])[:-1])
    for each, part in zip(tensors, parts, strict=True):
        each.copy_(torch.tensor(part).view_as(each))
