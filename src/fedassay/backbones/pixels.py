"""The identity: pixels as features."""

from __future__ import annotations

from torch import nn

from fedassay.backbones.base import (
    Backbone,
    BackboneRequest,
    BackboneSize,
    Input,
    Weights,
    check_size,
    finish,
)
from fedassay.support.registry import register


@register("backbone", "pixels", size=BackboneSize(None, 0.0, 1, weights=Weights()))
def pixels(request: BackboneRequest) -> Backbone:
    """The pixels themselves in [0, 1], flattened channel by channel: no network, nothing learned, no weights."""
    check_size(request)
    module = nn.Sequential(request.preprocess(Input()), nn.Flatten())
    return finish(request, module, "pixels in [0, 1], flattened", "nothing")
