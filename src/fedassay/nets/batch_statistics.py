"""Distance of a batch from the statistics kept by batch normalisations: a prior on images without images.

The distance of DeepInversion (Yin et al., CVPR 2020, equation 4), as DENSE takes it (Zhang et al., NeurIPS 2022,
equation 3).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class KeptStatistics:
    """Watches the batch normalisations of some networks in evaluation mode.

    Args:
        networks: Those that are given the same batches.

    Attributes:
        layers: Number of batch normalisations in all; without any there is no distance.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        self._networks = len(networks)
        self._away: dict[nn.Module, Tensor] = {}
        found = [each for network in networks for each in network.modules() if isinstance(each, _BatchNorm)]
        kept = [each for each in found if each.running_mean is not None]
        self.layers = len(kept)
        self._hooks = [layer.register_forward_pre_hook(self._look) for layer in kept]

    def distance(self) -> Tensor:
        """Of the batch that went through last: summed over layers, averaged over networks.

        Each layer adds the L2 distance between the batch's means and the kept ones, and that of the variances.
        """
        total = torch.stack(list(self._away.values())).sum() / self._networks
        self._away = {}
        return total

    def close(self) -> None:
        """Look no more."""
        for hook in self._hooks:
            hook.remove()

    def _look(self, layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        if not torch.is_grad_enabled():
            return
        assert isinstance(layer, _BatchNorm)
        assert layer.running_mean is not None
        assert layer.running_var is not None
        rows = given[0].transpose(0, 1).flatten(1)
        mean, variance = rows.mean(dim=1), rows.var(dim=1, correction=0)
        self._away[layer] = (layer.running_mean - mean).norm() + (layer.running_var - variance).norm()
