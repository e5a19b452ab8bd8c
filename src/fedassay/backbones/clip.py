"""CLIP's image encoder ViT-B/32 (Radford et al. 2021), from the files that people have of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fedassay.backbones.base import Backbone, BackboneRequest, BackboneSize, Weights
from fedassay.backbones.vision_transformer import Pretraining, Shape, image_encoder
from fedassay.support.registry import register

_WEIGHTS = Weights(("random",), file=True, needed=True)
_SIZE = BackboneSize(512, 8.8e9, 224, 224, _WEIGHTS, channels=3)
OPENAI = Shape(patch=32, output=512, quick_gelu=True, norm_first=True, patch_bias=False, eps=1e-5)
OPEN_CLIP = replace(OPENAI, quick_gelu=False)

_LAYER, _BLOCK = r"vision_model\.encoder\.layers\.(\d+)\.", r"transformer.resblocks.\1."
_TRANSFORMERS = (
    (r"vision_model\.embeddings\.class_embedding", "class_embedding"),
    (r"vision_model\.embeddings\.position_embedding\.weight", "positional_embedding"),
    (r"vision_model\.embeddings\.patch_embedding\.weight", "conv1.weight"),
    (r"vision_model\.pre_layrnorm\.(\w+)", r"ln_pre.\1"),
    (r"vision_model\.post_layernorm\.(\w+)", r"ln_post.\1"),
    (_LAYER + r"layer_norm([12])\.(\w+)", _BLOCK + r"ln_\2.\3"),
    (_LAYER + r"mlp\.fc1\.(\w+)", _BLOCK + r"mlp.c_fc.\2"),
    (_LAYER + r"mlp\.fc2\.(\w+)", _BLOCK + r"mlp.c_proj.\2"),
    (_LAYER + r"self_attn\.out_proj\.(\w+)", _BLOCK + r"attn.out_proj.\2"),
    (_LAYER + r"self_attn\.([qkv])_proj\.(\w+)", _BLOCK + r"attn.\2.\3"),
)
"""Names in files of the package transformers, and their equivalents in OpenAI's."""


@register("backbone", "clip_vit_b_32", size=_SIZE)
def clip_vit_b_32(request: BackboneRequest) -> Backbone:
    """CLIP's ViT-B/32 as OpenAI trained it, 512 features: what CLIP compares with text; weights from a path.

    Images are resized (bicubic) and cropped to 224 pixels, and normalised with CLIP's own mean and deviation. The
    features are not non-negative or of unit norm; a mechanism clips them as it clips any others.

    Weights: the path of a state dict (`torch.save` or `.safetensors`), or `random`. Layouts: that of OpenAI and of
        open_clip (`visual.conv1.weight`, ...), with the text encoder or without, or that of the package
        transformers (`vision_model.embeddings...`). OpenAI's own download is a TorchScript archive, which holds
        code and is not run: its state dict is accepted.

    Raises:
        DataError: The file is missing, broken or another network's.
    """
    return image_encoder(request, OPENAI, CLIP)


@register("backbone", "open_clip_vit_b_32", size=_SIZE)
def open_clip_vit_b_32(request: BackboneRequest) -> Backbone:
    """CLIP's ViT-B/32 with GELU, 512 features: open_clip's `ViT-B-32` as LAION and DataComp trained it.

    As `clip_vit_b_32` but for the activation, which cannot be read from files: with the other one features are
    wrong without an error. open_clip calls OpenAI's `ViT-B-32-quickgelu`.

    Weights: as for `clip_vit_b_32`.

    Raises:
        DataError: The file is missing, broken or another network's.
    """
    return image_encoder(request, OPEN_CLIP, CLIP)


def in_our_names(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The image encoder's tensors of a file, and the names that they have there.

    Args:
        state: Of OpenAI's, open_clip's or transformers' layout; text encoders are passed over.

    Returns:
        Tensors under the names of `VisionTransformer`, and from these names to the file's.
    """
    if any(name.startswith("vision_model.") for name in state):
        return _of_transformers(state)
    prefix = "visual." if any(name.startswith("visual.") for name in state) else ""
    own = {name: value for name, value in state.items() if name.startswith(prefix)}
    named = {name.removeprefix(prefix): value for name, value in own.items()}
    return named, {name: prefix + name for name in named}


def _of_transformers(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    found: dict[str, Tensor] = {}
    names: dict[str, str] = {}
    for name, value in state.items():
        # Numbers of positions, which files of older versions hold.
        if not name.startswith("vision_model.") or name.endswith("position_ids"):
            continue
        ours = next((re.sub(old, new, name) for old, new in _TRANSFORMERS if re.fullmatch(old, name)), name)
        found[ours], names[ours] = value, name
    if "visual_projection.weight" in state:
        found["proj"], names["proj"] = state["visual_projection.weight"].T, "visual_projection.weight"
    # Queries, keys and values are one matrix in OpenAI's files and three here.
    for ours in [name for name in found if re.search(r"\.attn\.q\.\w+$", name)]:
        start, _, kind = ours.rpartition(".q.")
        parts = [found.pop(f"{start}.{part}.{kind}", None) for part in "qkv"]
        kept = [part for part in parts if part is not None]
        if len(kept) == 3 and len({part.shape for part in kept}) == 1:
            found[f"{start}.in_proj_{kind}"] = torch.cat(kept)
            names[f"{start}.in_proj_{kind}"] = names[ours].replace("q_proj", "{q,k,v}_proj")
    return found, names


CLIP = Pretraining(
    mean=(0.48145466, 0.4578275, 0.40821073),
    std=(0.26862954, 0.26130258, 0.27577711),
    names=in_our_names,
    seen="pairs of images and texts",
)
