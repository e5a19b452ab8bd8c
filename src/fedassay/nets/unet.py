"""The convolutional denoiser: diffusers' U-Net, conditioned as in Beitollahi et al. 2024, appendix E.3.

The embedded condition is added to the time embedding, which every residual block turns into a scale
and a shift inside its second group normalisation (`resnet_time_scale_shift="scale_shift"`).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedassay.nets.denoiser import ConditionEmbedding

_GROUPS = 8
"""Most groups of a normalisation; fewer where the first level's channels are no multiple of it."""


class UNetDenoiser(nn.Module):
    """U-Net on images of any size: they are padded to a size that the levels can halve, and cropped back.

    Args:
        shape: (channels, height, width).
        condition_dim: Columns of the condition.
        width: Channels of the first level; a multiple of 8, or of 4 or 2 for fewer groups.
        blocks: Residual blocks of each level.
        multipliers: Channels of each level as multiples of `width`; one level or more.
        attention_levels: Levels, counted from 0 at full size, with self-attention.
        guided: The input has a first guess of the image below the noisy image, in as many channels.
        dropout: Dropout probability of an activation in training.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        condition_dim: int,
        *,
        width: int,
        blocks: int,
        multipliers: tuple[int, ...],
        attention_levels: tuple[int, ...],
        guided: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        # diffusers takes seconds to import, and torchvision must be mended before it.
        from fedassay.support.torchvision import import_torchvision

        import_torchvision()
        from diffusers.models.unets.unet_2d import UNet2DModel

        channels, height, width_pixels = shape
        down = ["AttnDownBlock2D" if i in attention_levels else "DownBlock2D" for i in range(len(multipliers))]
        up = ["AttnUpBlock2D" if i in attention_levels else "UpBlock2D" for i in range(len(multipliers))]
        self.net: Any = UNet2DModel(
            in_channels=channels * (2 if guided else 1),
            out_channels=channels,
            block_out_channels=tuple(width * multiplier for multiplier in multipliers),
            layers_per_block=blocks,
            down_block_types=tuple(down),
            up_block_types=tuple(reversed(up)),
            norm_num_groups=math.gcd(width, _GROUPS),
            attn_norm_num_groups=math.gcd(width, _GROUPS),
            add_attention=bool(attention_levels),
            resnet_time_scale_shift="scale_shift",
            class_embed_type="identity",
            dropout=dropout,
        )
        self.condition = ConditionEmbedding(condition_dim, 4 * width)
        factor = 2 ** (len(multipliers) - 1)
        self.size = (height, width_pixels)
        self.padding = (0, -width_pixels % factor, 0, -height % factor)
        nn.init.zeros_(self.net.conv_out.weight)
        nn.init.zeros_(self.net.conv_out.bias)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                module.register_forward_pre_hook(_as_the_weight)

    def forward(self, noisy: Tensor, timesteps: Tensor, condition: Tensor, keep: Tensor) -> Tensor:
        """Predict the training target; arguments and result as `FilmDenoiser.forward`."""
        padded = functional.pad(noisy, self.padding)
        embedded = self.condition(condition, keep)
        height, width = self.size
        predicted: Tensor = self.net(padded, timesteps, class_labels=embedded).sample
        return predicted[:, :, :height, :width].contiguous()


def _as_the_weight(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Make a convolution's input contiguous NCHW, or channels last where its weight is so.

    Attention emits channels-last tensors, on which Opacus's per-record gradients of a convolution
    are silently zero. Weights are channels last only where `fedassay.support.devices` has made them so.
    """
    weight: Any = module.weight
    usual = weight.is_contiguous() or not weight.is_contiguous(memory_format=torch.channels_last)
    layout = torch.contiguous_format if usual else torch.channels_last
    return tuple(tensor.contiguous(memory_format=layout) for tensor in inputs)
