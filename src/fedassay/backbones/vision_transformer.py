"""The image encoder that CLIP and masked autoencoders share: a vision transformer (Dosovitskiy et al. 2021).

Blocks normalise before attention and before the perceptron. Modules are named as in OpenAI's and open_clip's
files; other layouts are renamed to these (`clip`, `mae`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedassay.backbones.base import Backbone, BackboneRequest, Input, check_size, finish, initialised
from fedassay.support.errors import DataError
from fedassay.support.paths import find
from fedassay.support.weights import assign, load_state


@dataclass(frozen=True)
class Shape:
    """The size of a vision transformer.

    Attributes:
        width: Width of every token.
        layers: Number of blocks.
        heads: Attention heads of a block.
        patch: Side of a patch, in pixels.
        side: Side of the images, in pixels; there are (side / patch)^2 patches.
        output: Width of a linear projection of the last class token; None: there is none.
        quick_gelu: The activation is x sigmoid(1.702 x), as in OpenAI's CLIP, and not GELU itself.
        norm_first: Tokens are normalised before the first block as well.
        patch_bias: Patches are embedded with a bias.
        eps: Of every normalisation.
    """

    width: int = 768
    layers: int = 12
    heads: int = 12
    patch: int = 16
    side: int = 224
    output: int | None = None
    quick_gelu: bool = False
    norm_first: bool = False
    patch_bias: bool = True
    eps: float = 1e-6


class QuickGelu(nn.Module):
    """x sigmoid(1.702 x)."""

    def forward(self, x: Tensor) -> Tensor:
        """Elementwise."""
        return x * torch.sigmoid(1.702 * x)


class Perceptron(nn.Module):
    """The two layers of a block, four times as wide between them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.c_fc = nn.Linear(shape.width, 4 * shape.width)
        self.activation = QuickGelu() if shape.quick_gelu else nn.GELU()
        self.c_proj = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, tokens, width) to the same shape."""
        out: Tensor = self.c_proj(self.activation(self.c_fc(x)))
        return out


class Block(nn.Module):
    """Attention and a perceptron, each added to its own input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(shape.width, shape.eps)
        self.attn = nn.MultiheadAttention(shape.width, shape.heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(shape.width, shape.eps)
        self.mlp = Perceptron(shape)

    def forward(self, x: Tensor) -> Tensor:
        """(n, tokens, width) to the same shape."""
        normal = self.ln_1(x)
        x = x + self.attn(normal, normal, normal, need_weights=False)[0]
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class Blocks(nn.Module):
    """The blocks, under the name that files give them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.resblocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))

    def forward(self, x: Tensor) -> Tensor:
        """(n, tokens, width) to the same shape."""
        out: Tensor = self.resblocks(x)
        return out


class VisionTransformer(nn.Module):
    """Images to the normalised class token of the last block, projected where the network has a projection."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        tokens = 1 + (shape.side // shape.patch) ** 2
        spread = shape.width**-0.5
        self.conv1 = nn.Conv2d(3, shape.width, shape.patch, stride=shape.patch, bias=shape.patch_bias)
        self.class_embedding = nn.Parameter(spread * torch.randn(shape.width))
        self.positional_embedding = nn.Parameter(spread * torch.randn(tokens, shape.width))
        self.ln_pre = nn.LayerNorm(shape.width, shape.eps) if shape.norm_first else nn.Identity()
        self.transformer = Blocks(shape)
        self.ln_post = nn.LayerNorm(shape.width, shape.eps)
        self.proj = None if shape.output is None else nn.Parameter(spread * torch.randn(shape.width, shape.output))

    def forward(self, images: Tensor) -> Tensor:
        """(n, 3, side, side) normalised images to (n, output) or (n, width)."""
        patches = self.conv1(images).flatten(2).transpose(1, 2)
        first = self.class_embedding.repeat(len(images), 1, 1)
        tokens = torch.cat([first, patches], dim=1) + self.positional_embedding
        found: Tensor = self.ln_post(self.transformer(self.ln_pre(tokens))[:, 0])
        return found if self.proj is None else found @ self.proj


@dataclass(frozen=True)
class Pretraining:
    """The differences between families of these networks.

    Attributes:
        mean: Mean of the training images of each channel, in [0, 1].
        std: Likewise their deviation.
        names: From a file's tensors to those under the names of `VisionTransformer`, and from these names to the
            file's.
        seen: The training data of files of this family.
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    names: Callable[[Mapping[str, Tensor]], tuple[dict[str, Tensor], dict[str, str]]]
    seen: str


def image_encoder(request: BackboneRequest, shape: Shape, pretraining: Pretraining) -> Backbone:
    """Images, resized (bicubic) and cropped to the side of a vision transformer, to its features.

    Raises:
        DataError: The file of weights is missing, broken or another network's.
    """
    check_size(request)
    own = Input(shape.side, 3, pretraining.mean, pretraining.std, crop=shape.side, interpolation="bicubic")
    preprocess = request.preprocess(own)
    if request.weights == "random":
        model = initialised(lambda: VisionTransformer(shape), request.seed)
        description, seen = "random weights", "nothing"
    else:
        file = load_state(find(str(request.weights), request.base, "backbone.weights"))
        state, names = pretraining.names(file)
        model = _loaded(shape, state, names, f"backbone.weights: {request.weights} as {request.name}")
        description, seen = f"weights of {request.weights}", f"{pretraining.seen} (file {request.weights})"
    return finish(request, nn.Sequential(preprocess, model), f"{request.name}, {description}", seen)


def _loaded(shape: Shape, state: Mapping[str, Tensor], names: Mapping[str, str], where: str) -> VisionTransformer:
    """A vision transformer with weights of a file.

    Args:
        shape: Shape of the network.
        state: Its tensors, under this module's names; half precision is widened.
        names: This module's names to those in the file, for errors.
        where: The file and the network, for errors.

    Raises:
        DataError: Weights are missing, of other shapes, or not finite.
    """
    if not state:
        raise DataError(f"{where}: holds no tensor of such an image encoder")
    # Nothing is drawn for weights that the file brings.
    with torch.device("meta"):
        model = VisionTransformer(shape)
    model = model.to_empty(device="cpu")
    assign(model, state, where, names)
    return model
