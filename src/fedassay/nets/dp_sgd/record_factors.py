"""Factors of the gradient of one record, for each kind of layer.

A layer that multiplies by its weight at T positions (the pixels of a convolution's output, the tokens of a linear
map) has the gradient sum_t g_t x_t' for a record. Here g_t is the gradient of the output, and x_t the input that
the weight multiplies, at position t. `Outer` keeps the two factors. Norms and weighted sums over records follow
from them in two ways; `Outer.settled` picks the cheaper one:

- the records' gradients themselves (`Each`): one batched product, then plain norms and sums;
- where positions are few and the weight is large, without these gradients: |sum_t g_t x_t'|^2 is the inner product
of the two Gram matrices over positions (Goodfellow 2015, "Efficient per-example gradient computations"; Li et al.
2022, "Large language models can be strong differentially private learners", section 4). The weighted sum is one
product over records and positions together (Bu et al. 2023, "Differentially private optimization on large model at
small cost"). The Gram matrices are float64: where positions cancel, as on an image of one colour before a
normalisation, a float32 norm could come out too small, and its record would be clipped too little.

Rows of a convolution's weight are ordered as in channels-last memory, (kernel height, kernel width, channels):
windows of a channels-last image are copied in long runs. Inputs may have any strides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_GRAM_PAYS = 8
"""Ratio of a gradient's entries to those of its factors from which Gram matrices are cheaper; measured on a
CPU."""


@dataclass(frozen=True, eq=False)
class Each:
    """Gradients of n records of one parameter.

    Attributes:
        rows: Shape (n, ...); of a convolution's weight in channels-last order.
    """

    rows: Tensor

    def norms(self) -> Tensor:
        """L2 norm of each record's gradient, (n,)."""
        norms: Tensor = torch.linalg.vector_norm(self.rows.flatten(1), dim=1)
        return norms

    def weighted(self, weights: Tensor) -> Tensor:
        """Sum over records, each times its weight: weights (n,) to the shape of one row."""
        return (weights @ self.rows.flatten(1)).view(self.rows.shape[1:])

    def each(self) -> Tensor:
        """The gradients, (n, ...)."""
        return self.rows

    def merged(self, draws: int) -> Each:
        """Add up `draws` consecutive rows: (n draws, ...) to (n, ...)."""
        if draws == 1:
            return self
        return Each(self.rows.reshape(len(self.rows) // draws, draws, *self.rows.shape[1:]).sum(dim=1))

    def settled(self) -> Each:
        """Itself."""
        return self


@dataclass(frozen=True, eq=False)
class Outer:
    """Factors of the gradients of n records of one weight, in groups g that share nothing.

    Attributes:
        gradients: Gradients of the outputs, (g, n, T, outputs of a group).
        inputs: (g, n, T, inputs of a group); of a convolution its windows, each in channels-last order.
    """

    gradients: Tensor
    inputs: Tensor

    def norms(self) -> Tensor:
        """L2 norm of each record's gradient, (n,)."""
        if self.gradients.shape[2] == 1:
            norms = torch.linalg.vector_norm(self.gradients, dim=(2, 3)) * torch.linalg.vector_norm(
                self.inputs, dim=(2, 3)
            )
            total: Tensor = torch.linalg.vector_norm(norms, dim=0)
            return total
        left, right = self.gradients.double(), self.inputs.double()
        squares = (left @ left.mT * (right @ right.mT)).sum(dim=(0, 2, 3))
        return squares.clamp(min=0).sqrt().to(self.inputs.dtype)

    def weighted(self, weights: Tensor) -> Tensor:
        """Sum over records, each times its weight: weights (n,) to (outputs, inputs of a group)."""
        if len(self.gradients) == 1 and self.gradients.shape[2] == 1:
            return (self.gradients[0, :, 0] * weights[:, None]).mT @ self.inputs[0, :, 0]
        scaled = self.gradients * weights[:, None, None]
        return (scaled.flatten(1, 2).mT @ self.inputs.flatten(1, 2)).flatten(0, 1)

    def each(self) -> Tensor:
        """The gradients, (n, outputs, inputs of a group)."""
        products = self.gradients.mT @ self.inputs
        return products.movedim(0, 1).flatten(1, 2)

    def merged(self, draws: int) -> Outer:
        """Make the positions of `draws` consecutive rows those of one record."""
        if draws == 1:
            return self
        groups, rows, positions, _ = self.gradients.shape
        lead = (groups, rows // draws, draws * positions)
        return Outer(*(t.reshape(*lead, t.shape[3]) for t in (self.gradients, self.inputs)))

    def settled(self) -> Outer | Each:
        """The cheaper form of the two."""
        positions, outputs, inputs = *self.gradients.shape[2:], self.inputs.shape[3]
        if _GRAM_PAYS * positions * (outputs + inputs) <= outputs * inputs:
            return self
        return Each(self.each())


Part = Each | Outer
Factors = Callable[[Any, Tensor, Tensor], Mapping[str, Part]]
"""(layer, its input, the gradient of its output) to the parts of its parameters, by their names in the layer."""


def add_parts(parts: Sequence[Part]) -> Part:
    """The gradient of a parameter that is used several times in one pass, the sum over its uses.

    Args:
        parts: One or more, for the same records in the same order.
    """
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, Outer) for part in parts):
        pairs = [(part.gradients, part.inputs) for part in parts if isinstance(part, Outer)]
        left, right = (torch.cat(tensors, dim=2) for tensors in zip(*pairs, strict=True))
        return Outer(left, right)
    first = parts[0].each()
    return Each(torch.stack([part.each().reshape(first.shape) for part in parts]).sum(dim=0))


def _conv2d(layer: nn.Conv2d, given: Tensor, gradient: Tensor) -> dict[str, Part]:
    windows = _windows(layer, given)
    n, height, width, groups = *windows.shape[:3], layer.groups
    left = gradient.permute(0, 2, 3, 1).reshape(n, height * width, groups, layer.out_channels // groups)
    split = windows.view(*windows.shape[:5], groups, layer.in_channels // groups)
    # Reshaping copies, once; groups come first.
    right = split.permute(5, 0, 1, 2, 3, 4, 6).reshape(groups, n, height * width, layer.weight[0].numel())
    parts: dict[str, Part] = {"weight": Outer(left.permute(2, 0, 1, 3), right)}
    if layer.bias is not None:
        parts["bias"] = Each(gradient.sum(dim=(2, 3)))
    return parts


def _windows(layer: nn.Conv2d, given: Tensor) -> Tensor:
    """Windows of the kernel at each position: (n, height, width, kernel height, kernel width, C), a view."""
    n, channels, height, width = given.shape
    # Right also where padding is given as a word.
    left, right, top, bottom = layer._reversed_padding_repeated_twice
    image = given.new_zeros(n, height + top + bottom, width + left + right, channels)
    image[:, top : top + height, left : left + width] = given.permute(0, 2, 3, 1)
    rows, columns = (
        image.shape[1 + axis] - layer.dilation[axis] * (layer.kernel_size[axis] - 1) for axis in (0, 1)
    )
    across, down, along, _ = image.stride()
    return image.as_strided(
        (n, -(-rows // layer.stride[0]), -(-columns // layer.stride[1]), *layer.kernel_size, channels),
        (
            across,
            down * layer.stride[0],
            along * layer.stride[1],
            down * layer.dilation[0],
            along * layer.dilation[1],
            1,
        ),
    )


def _linear(layer: nn.Linear, given: Tensor, gradient: Tensor) -> dict[str, Part]:
    left, right = _with_positions(gradient, 1), _with_positions(given, 1)
    parts: dict[str, Part] = {"weight": Outer(left[None], right[None])}
    if layer.bias is not None:
        parts["bias"] = Each(left.sum(dim=1))
    return parts


def _group_norm(layer: nn.GroupNorm, given: Tensor, gradient: Tensor) -> dict[str, Part]:
    normed = functional.group_norm(given, layer.num_groups, eps=layer.eps)
    left, right = gradient.unsqueeze(-1).flatten(2), normed.unsqueeze(-1).flatten(2)
    return {"weight": Each((left * right).sum(dim=2)), "bias": Each(left.sum(dim=2))}


def _layer_norm(layer: nn.LayerNorm, given: Tensor, gradient: Tensor) -> dict[str, Part]:
    last = len(layer.normalized_shape)
    normed = functional.layer_norm(given, layer.normalized_shape, eps=layer.eps)
    left, right = _with_positions(gradient, last), _with_positions(normed, last)
    return {"weight": Each((left * right).sum(dim=1)), "bias": Each(left.sum(dim=1))}


def _embedding(layer: nn.Embedding, given: Tensor, gradient: Tensor) -> dict[str, Part]:
    found = gradient.new_zeros(len(given), layer.num_embeddings, layer.embedding_dim)
    values = _with_positions(gradient, 1)
    found.scatter_add_(1, _with_positions(given, 0)[:, :, None].expand_as(values), values)
    return {"weight": Each(found)}


def _with_positions(tensor: Tensor, last: int) -> Tensor:
    """Merge the dimensions between the first and the last ones into one, also where there are none."""
    return tensor.unsqueeze(1).flatten(1, tensor.ndim - last)


KINDS: Mapping[type[nn.Module], Factors] = {
    nn.Conv2d: _conv2d,
    nn.Linear: _linear,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
    nn.Embedding: _embedding,
}
"""The layers with known per-record gradients. Exactly these classes: a subclass may compute something else."""


def is_known(layer: nn.Module, parameters: Iterable[str]) -> bool:
    """Whether `KINDS` gives the gradients of these of a layer's own parameters, with its options."""
    if type(layer) not in KINDS or not set(parameters) <= {"weight", "bias"}:
        return False
    if isinstance(layer, nn.Conv2d):
        return layer.padding_mode == "zeros"
    if isinstance(layer, nn.Embedding):
        return layer.padding_idx is None and layer.max_norm is None and not layer.scale_grad_by_freq
    return True
