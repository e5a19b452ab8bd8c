"""CLIP's and masked autoencoders' encoders: tiny files of the published layouts against references written out."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fedassay.backbones import build
from fedassay.backbones.base import BackboneRequest, BackboneSize, Preprocess, to_input
from fedassay.backbones.clip import CLIP, OPEN_CLIP, OPENAI
from fedassay.backbones.mae import MAE
from fedassay.backbones.vision_transformer import Shape, VisionTransformer, image_encoder
from fedassay.support.errors import DataError, PlanError
from fedassay.support.registry import size_of
from fedassay.support.torchvision import import_torchvision

WIDTH, LAYERS, HEADS, PATCH, SIDE, OUT = 16, 2, 2, 4, 8, 6
_SMALL: dict[str, Any] = {"width": WIDTH, "layers": LAYERS, "heads": HEADS, "patch": PATCH, "side": SIDE}


def _ask(name: str, weights: str | Path) -> BackboneRequest:
    return BackboneRequest(name, str(weights), None, (12, 12, 3), 10, None, 0, "cpu", Path("."))


def _images() -> Any:
    return np.random.default_rng(0).integers(0, 256, size=(3, 12, 12, 3), dtype=np.uint8)


def _clip_state() -> dict[str, Tensor]:
    """An image encoder in OpenAI's layout, among what its files hold of the text encoder."""
    draw = torch.Generator().manual_seed(0)

    def tensor(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw) * 0.3

    state = {
        "visual.class_embedding": tensor(WIDTH),
        "visual.positional_embedding": tensor(1 + (SIDE // PATCH) ** 2, WIDTH),
        "visual.proj": tensor(WIDTH, OUT),
        "visual.conv1.weight": tensor(WIDTH, 3, PATCH, PATCH),
        "positional_embedding": tensor(77, 8),
        "text_projection": tensor(8, OUT),
        "logit_scale": torch.tensor(4.6),
        "input_resolution": torch.tensor(SIDE),
        "transformer.resblocks.0.ln_1.weight": tensor(8),
        "token_embedding.weight": tensor(100, 8),
    }
    for name in ("ln_pre", "ln_post"):
        state |= {f"visual.{name}.weight": 1 + tensor(WIDTH), f"visual.{name}.bias": tensor(WIDTH)}
    for layer in range(LAYERS):
        start = f"visual.transformer.resblocks.{layer}"
        for name in ("ln_1", "ln_2"):
            state |= {f"{start}.{name}.weight": 1 + tensor(WIDTH), f"{start}.{name}.bias": tensor(WIDTH)}
        for name, outputs, inputs in (
            ("attn.in_proj_", 3 * WIDTH, WIDTH),
            ("attn.out_proj.", WIDTH, WIDTH),
            ("mlp.c_fc.", 4 * WIDTH, WIDTH),
            ("mlp.c_proj.", WIDTH, 4 * WIDTH),
        ):
            state |= {f"{start}.{name}weight": tensor(outputs, inputs), f"{start}.{name}bias": tensor(outputs)}
    return state


def _normal(x: Any, state: dict[str, Any], name: str) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * state[f"{name}.weight"] + state[f"{name}.bias"]


def _gelu(x: Any) -> Any:
    from scipy.special import erf

    return x * (1 + erf(x / np.sqrt(2))) / 2


def _clip_features(state: dict[str, Tensor], images: Tensor, activation: Callable[[Any], Any]) -> Any:
    """The encoder written out in NumPy, in float64, head by head."""
    s = {key.removeprefix("visual."): value.double().numpy() for key, value in state.items() if "visual" in key}
    rows = []
    for image in images.double().numpy():
        tokens = [s["class_embedding"]]
        for top in range(0, SIDE, PATCH):
            for left in range(0, SIDE, PATCH):
                patch = image[:, top : top + PATCH, left : left + PATCH]
                tokens.append((s["conv1.weight"] * patch).sum(axis=(1, 2, 3)))
        x = _normal(np.stack(tokens) + s["positional_embedding"], s, "ln_pre")
        for layer in range(LAYERS):
            at = f"transformer.resblocks.{layer}"
            given = _normal(x, s, f"{at}.ln_1") @ s[f"{at}.attn.in_proj_weight"].T + s[f"{at}.attn.in_proj_bias"]
            mixed = []
            for query, key, value in zip(*(np.split(p, HEADS, 1) for p in np.split(given, 3, 1)), strict=True):
                scores = np.exp(query @ key.T / np.sqrt(WIDTH // HEADS))
                mixed.append(scores / scores.sum(axis=1, keepdims=True) @ value)
            together = np.concatenate(mixed, axis=1)
            x = x + together @ s[f"{at}.attn.out_proj.weight"].T + s[f"{at}.attn.out_proj.bias"]
            inner = activation(
                _normal(x, s, f"{at}.ln_2") @ s[f"{at}.mlp.c_fc.weight"].T + s[f"{at}.mlp.c_fc.bias"]
            )
            x = x + inner @ s[f"{at}.mlp.c_proj.weight"].T + s[f"{at}.mlp.c_proj.bias"]
        rows.append(_normal(x[0], s, "ln_post") @ s["proj"])
    return np.stack(rows)


def _seen(module: nn.Module) -> Tensor:
    first = next(part for part in module.modules() if isinstance(part, Preprocess))
    found: Tensor = first(to_input(_images()))
    return found


@pytest.mark.parametrize(
    ("shape", "activation"),
    [(OPENAI, lambda x: x / (1 + np.exp(-1.702 * x))), (OPEN_CLIP, _gelu)],
    ids=["openai", "open_clip"],
)
def test_clip_is_the_encoder_written_out(tmp_path: Path, shape: Shape, activation: Callable[[Any], Any]) -> None:
    state = _clip_state()
    torch.save(state, tmp_path / "clip.pt")
    backbone = image_encoder(
        _ask("clip_vit_b_32", tmp_path / "clip.pt"), replace(shape, **_SMALL, output=OUT), CLIP
    )
    expected = _clip_features(state, _seen(backbone.module), activation)
    assert backbone.width == OUT
    assert np.abs(backbone.extract(_images()) - expected).max() < 1e-5
    pixels = to_input(_images()).requires_grad_()
    backbone.module(pixels).square().sum().backward()
    assert pixels.grad is not None
    assert pixels.grad.abs().sum() > 0


def _in_transformers_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    found = {"text_model.final_layer_norm.weight": torch.zeros(8), "logit_scale": torch.tensor(4.6)}
    at, inside = "vision_model.embeddings", "vision_model.encoder.layers"
    found[f"{at}.position_ids"] = torch.arange(5)[None]
    found[f"{at}.class_embedding"] = state["visual.class_embedding"]
    found[f"{at}.position_embedding.weight"] = state["visual.positional_embedding"]
    found[f"{at}.patch_embedding.weight"] = state["visual.conv1.weight"]
    found["visual_projection.weight"] = state["visual.proj"].T.contiguous()
    for kind in ("weight", "bias"):
        found[f"vision_model.pre_layrnorm.{kind}"] = state[f"visual.ln_pre.{kind}"]
        found[f"vision_model.post_layernorm.{kind}"] = state[f"visual.ln_post.{kind}"]
        for layer in range(LAYERS):
            ours = f"visual.transformer.resblocks.{layer}"
            for name, part in zip("qkv", state[f"{ours}.attn.in_proj_{kind}"].chunk(3), strict=True):
                found[f"{inside}.{layer}.self_attn.{name}_proj.{kind}"] = part.clone()
            for theirs, name in (
                ("self_attn.out_proj", "attn.out_proj"),
                ("layer_norm1", "ln_1"),
                ("layer_norm2", "ln_2"),
                ("mlp.fc1", "mlp.c_fc"),
                ("mlp.fc2", "mlp.c_proj"),
            ):
                found[f"{inside}.{layer}.{theirs}.{kind}"] = state[f"{ours}.{name}.{kind}"]
    return found


def test_every_layout_of_a_clip_file_is_the_same_network(tmp_path: Path) -> None:
    state = {name: value.half().float() for name, value in _clip_state().items()}
    torch.save(state, tmp_path / "plain.pt")
    save_file(state, tmp_path / "open_clip_model.safetensors")
    torch.save({"state_dict": {f"module.{name}": value for name, value in state.items()}}, tmp_path / "run.pt")
    torch.save({name: value.half() for name, value in state.items()}, tmp_path / "half.pt")
    save_file(_in_transformers_names(state), tmp_path / "model.safetensors")
    torch.save({k.removeprefix("visual."): v for k, v in state.items() if "visual." in k}, tmp_path / "tower.pt")
    shape = replace(OPENAI, **_SMALL, output=OUT)
    files = ("plain.pt", "open_clip_model.safetensors", "run.pt", "half.pt", "model.safetensors", "tower.pt")
    prints = {image_encoder(_ask("clip_vit_b_32", tmp_path / name), shape, CLIP).fingerprint for name in files}
    assert len(prints) == 1
    gelu = image_encoder(_ask("open_clip_vit_b_32", tmp_path / "plain.pt"), replace(shape, quick_gelu=False), CLIP)
    assert gelu.fingerprint not in prints


def _mae_checkpoint() -> tuple[nn.Module, dict[str, Tensor]]:
    """torchvision's vision transformer with random weights, and these as the authors' checkpoints name them."""
    torch.manual_seed(0)
    model = import_torchvision().models.VisionTransformer(SIDE, PATCH, LAYERS, HEADS, WIDTH, 4 * WIDTH)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape) * 0.3
    model.heads = nn.Identity()
    theirs = model.state_dict()
    state = {
        "cls_token": theirs["class_token"],
        "pos_embed": theirs["encoder.pos_embedding"],
        "patch_embed.proj.weight": theirs["conv_proj.weight"],
        "patch_embed.proj.bias": theirs["conv_proj.bias"],
        "norm.weight": theirs["encoder.ln.weight"],
        "norm.bias": theirs["encoder.ln.bias"],
        "mask_token": torch.zeros(1, 1, 8),
        "decoder_embed.weight": torch.zeros(8, WIDTH),
    }
    for layer in range(LAYERS):
        at = f"encoder.layers.encoder_layer_{layer}"
        for kind in ("weight", "bias"):
            for ours, name in (
                ("norm1.", "ln_1."),
                ("norm2.", "ln_2."),
                ("attn.qkv.", "self_attention.in_proj_"),
                ("attn.proj.", "self_attention.out_proj."),
                ("mlp.fc1.", "mlp.0."),
                ("mlp.fc2.", "mlp.3."),
            ):
                state[f"blocks.{layer}.{ours}{kind}"] = theirs[f"{at}.{name}{kind}"]
    return model.eval(), state


def test_a_masked_autoencoder_is_torchvisions_transformer(tmp_path: Path) -> None:
    model, state = _mae_checkpoint()
    torch.save({"model": state}, tmp_path / "mae_pretrain.pth")
    save_file(state, tmp_path / "mae.safetensors")
    found = [
        image_encoder(_ask("mae_vit_b_16", tmp_path / name), Shape(**_SMALL), MAE)
        for name in ("mae_pretrain.pth", "mae.safetensors")
    ]
    assert found[0].fingerprint == found[1].fingerprint
    with torch.no_grad():
        expected = model(_seen(found[0].module)).numpy()
    assert np.abs(found[0].extract(_images()) - expected).max() < 1e-4 * np.abs(expected).max()


def test_weights_of_another_network_are_named(tmp_path: Path) -> None:
    """A tiny file is none of ViT-B's, another layout is no file of this network, and code is not run."""
    state, (_, mae) = _clip_state(), _mae_checkpoint()
    torch.save(state, tmp_path / "clip.pt")
    torch.save({"model": mae}, tmp_path / "mae.pth")
    torch.save({"resblocks.weight": torch.zeros(3)}, tmp_path / "other.pt")
    with pytest.raises(
        DataError, match=r"as clip_vit_b_32: does not fit .*wrong shapes: visual\.\S+ \(16,\) where"
    ):
        build(_ask("clip_vit_b_32", tmp_path / "clip.pt"))
    with pytest.raises(DataError, match=r"wrong shapes: .*\(768,"):
        build(_ask("mae_vit_b_16", tmp_path / "mae.pth"))
    shape = replace(OPENAI, **_SMALL, output=OUT)
    for name in ("mae.pth", "other.pt"):
        with pytest.raises(DataError, match=r"missing class_embedding, .*unexpected \S+"):
            image_encoder(_ask("clip_vit_b_32", tmp_path / name), shape, CLIP)
    del state["visual.transformer.resblocks.1.attn.in_proj_bias"]
    torch.save(state, tmp_path / "clip.pt")
    with pytest.raises(DataError, match=r"missing transformer\.resblocks\.1\.attn\.in_proj_bias$"):
        image_encoder(_ask("clip_vit_b_32", tmp_path / "clip.pt"), shape, CLIP)
    with zipfile.ZipFile(tmp_path / "ViT-B-32.pt", "w") as archive:
        archive.writestr("clip/code/__torch__.py", "import os")
        archive.writestr("clip/data.pkl", b"")
    with pytest.raises(
        DataError, match=r"ViT-B-32\.pt: a TorchScript archive, which holds code; allowed: its state"
    ):
        image_encoder(_ask("clip_vit_b_32", tmp_path / "ViT-B-32.pt"), shape, CLIP)


@pytest.mark.parametrize("name", ["clip_vit_b_32", "open_clip_vit_b_32", "mae_vit_b_16"])
def test_plans_say_what_they_need(name: str) -> None:
    with pytest.raises(
        PlanError, match=rf"backbone\.weights: 'imagenet' given; {name} takes random, the path of a"
    ):
        build(_ask(name, "imagenet"))
    request = replace(_ask(name, "random"), input_size=32)
    with pytest.raises(PlanError, match=rf"backbone\.input_size: 32 given; {name} cuts 224 pixels"):
        build(request)


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [("clip_vit_b_32", OPENAI, 87_849_216), ("mae_vit_b_16", Shape(), 85_798_656)],
)
def test_the_published_sizes(name: str, shape: Shape, parameters: int) -> None:
    """Parameters of CLIP's visual tower, and of timm's and the authors' ViT-B/16 without a head."""
    with torch.device("meta"):
        model = VisionTransformer(shape)
        width = model(torch.zeros(2, 3, 224, 224)).shape[1]
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    size = size_of("backbone", name)
    assert isinstance(size, BackboneSize)
    assert size.features == width
