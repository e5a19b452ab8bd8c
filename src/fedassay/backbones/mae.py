"""The encoder of a masked autoencoder ViT-B/16 (He et al. 2022), from the authors' checkpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from fedassay.backbones.base import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Backbone,
    BackboneRequest,
    BackboneSize,
    Weights,
)
from fedassay.backbones.vision_transformer import Pretraining, Shape, image_encoder
from fedassay.support.registry import register

_SIZE = BackboneSize(768, 3.5e10, 224, 224, Weights(("random",), file=True, needed=True), channels=3)

_NAMES = (
    (r"cls_token", "class_embedding"),
    (r"pos_embed", "positional_embedding"),
    (r"patch_embed\.proj\.(\w+)", r"conv1.\1"),
    (r"norm\.(\w+)", r"ln_post.\1"),
    (r"blocks\.(\d+)\.norm([12])\.(\w+)", r"transformer.resblocks.\1.ln_\2.\3"),
    (r"blocks\.(\d+)\.attn\.qkv\.(\w+)", r"transformer.resblocks.\1.attn.in_proj_\2"),
    (r"blocks\.(\d+)\.attn\.proj\.(\w+)", r"transformer.resblocks.\1.attn.out_proj.\2"),
    (r"blocks\.(\d+)\.mlp\.fc1\.(\w+)", r"transformer.resblocks.\1.mlp.c_fc.\2"),
    (r"blocks\.(\d+)\.mlp\.fc2\.(\w+)", r"transformer.resblocks.\1.mlp.c_proj.\2"),
)
_PASSED_OVER = ("decoder_", "mask_token", "head.")
"""The decoder, and the classifier of a network that was tuned on."""


@register("backbone", "mae_vit_b_16", size=_SIZE)
def mae_vit_b_16(request: BackboneRequest) -> Backbone:
    """A masked autoencoder's ViT-B/16, 768 features: the last class token, normalised; weights from a path.

    Images are resized (bicubic) and cropped to 224 pixels, and normalised with ImageNet's mean and deviation. The
    class token after the last normalisation is what the authors' linear probes read; nothing is masked.

    Weights: the path of a checkpoint of the authors (`mae_pretrain_vit_base.pth`: `model` with `patch_embed.proj`,
    `blocks.0...`), of a state dict of that layout, or the same as `.safetensors`; a decoder in it is passed over.
    Or `random`.

    Raises:
        DataError: The file is missing, broken or another network's.
    """
    return image_encoder(request, Shape(), MAE)


def in_our_names(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The encoder's tensors of a checkpoint, and the names that they have there.

    Returns:
        Tensors under the names of `VisionTransformer`, and from these names to the file's.
    """
    found: dict[str, Tensor] = {}
    names: dict[str, str] = {}
    for name, value in state.items():
        if name.startswith(_PASSED_OVER):
            continue
        ours = next((re.sub(old, new, name) for old, new in _NAMES if re.fullmatch(old, name)), name)
        # One token for all images, and positions for all: files keep axes for the batch.
        batched = {"cls_token": 2, "pos_embed": 1}.get(name, 0)
        found[ours], names[ours] = value[(0,) * batched] if value.ndim == 3 and batched else value, name
    return found, names


MAE = Pretraining(IMAGENET_MEAN, IMAGENET_STD, in_our_names, "images without labels")
