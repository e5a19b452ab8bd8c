"""The two steps of expectation-maximisation on a stack of equal-sized groups, by family.

Shapes: G groups, n records, d features, K components. Records travel in expanded form (`expand`):
`diag` [x, x^2] (G, n, 2d), `spherical` [x, |x|^2] (G, n, d + 1), `full` x (G, n, d).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fedassay.mixtures.packed import Family
from fedassay.support.types import Matrix

_NOTHING = -80.0
_LEAST = 2e-35
"""Just above e^-80."""
_LOG_TWO_PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class HostStack:
    """A `Stack` as NumPy arrays, covariances packed as messages carry them."""

    weights: Matrix
    means: Matrix
    covariances: Matrix


@dataclass(frozen=True)
class Stack:
    """Parameters of a stack of mixtures.

    Attributes:
        weights: Shape (G, K); 0 marks a component that has lost all its records.
        means: Shape (G, K, d).
        covariances: `diag` (G, K, d), `spherical` (G, K), `full` (G, K, d, d).
    """

    weights: torch.Tensor
    means: torch.Tensor
    covariances: torch.Tensor

    def put(self, rows: torch.Tensor, other: Stack, chosen: torch.Tensor) -> Stack:
        """Overwrite the groups `rows` by the `chosen` ones of another stack; returns itself."""
        self.weights[rows] = other.weights[chosen]
        self.means[rows] = other.means[chosen]
        self.covariances[rows] = other.covariances[chosen]
        return self

    def numpy(self, rows: torch.Tensor) -> HostStack:
        """A copy of the parameters of some groups, in float64 on the host."""
        covariances = self.covariances[rows]
        if covariances.ndim == 4:
            lower = torch.tril_indices(covariances.shape[-1], covariances.shape[-1])
            covariances = covariances[:, :, lower[0], lower[1]]
        chosen = (self.weights[rows], self.means[rows], covariances)
        return HostStack(*(part.double().cpu().numpy() for part in chosen))


def working_elements(family: Family, size: int, components: int, width: int) -> int:
    """Numbers that one group of a stack holds while it is fitted."""
    if family == "full":
        return 2 * size * width + components * (3 * width * width + size * width)
    return 3 * size * width + size * size + 4 * components * width


def expand(records: torch.Tensor, family: Family) -> torch.Tensor:
    """Records with the squares that the family's sufficient statistics need."""
    if family == "diag":
        width = records.shape[2]
        expanded = records.new_empty((*records.shape[:2], 2 * width))
        expanded[:, :, :width] = records
        torch.mul(records, records, out=expanded[:, :, width:])
        return expanded
    if family == "spherical":
        return torch.cat([records, records.square().sum(2, keepdim=True)], 2)
    return records


def maximise(features: torch.Tensor, responsibilities: torch.Tensor, family: Family, floor: float) -> Stack:
    """M-step: the likeliest parameters given responsibilities (G, K, n)."""
    mass = responsibilities.sum(2)
    safe = mass.clamp_min(torch.finfo(mass.dtype).tiny)
    weights = mass / features.shape[1]
    shares = responsibilities / safe[:, :, None]
    if family == "full":
        means = torch.bmm(shares, features)
        groups, parts, size = shares.shape
        width = features.shape[2]
        weighted = shares.sqrt()[:, :, :, None] * (features[:, None] - means[:, :, None])
        flat = weighted.reshape(groups * parts, size, width)
        covariances = torch.bmm(flat.transpose(1, 2), flat).reshape(groups, parts, width, width)
        covariances.diagonal(dim1=2, dim2=3).add_(floor)
        return Stack(weights, means, covariances)
    moments = torch.bmm(shares, features)
    if family == "diag":
        means, squares = moments.chunk(2, 2)
        return Stack(weights, means, (squares - means.square()).clamp_min_(floor))
    means = moments[:, :, :-1]
    variances = (moments[:, :, -1] - means.square().sum(2)) / means.shape[2]
    return Stack(weights, means, variances.clamp_min_(floor))


def joint_log_density(features: torch.Tensor, stack: Stack, family: Family) -> torch.Tensor:
    """log(weight) + log density of each record under each component, shape (G, K, n)."""
    width = stack.means.shape[2]
    if family == "full":
        quadratic, log_det = _full_terms(features, stack)
    elif family == "diag":
        terms = features.new_empty((*stack.means.shape[:2], 2 * width))
        shifted, precision = terms[:, :, :width], terms[:, :, width:]
        torch.reciprocal(stack.covariances, out=precision)
        torch.mul(stack.means, precision, out=shifted)
        constant_part = (stack.means * shifted).sum(2)
        shifted *= -2
        log_det = stack.covariances.log().sum(2) + constant_part
        quadratic = torch.bmm(terms, features.transpose(1, 2))
    else:
        precision = stack.covariances.reciprocal()[:, :, None]
        quadratic = torch.bmm(torch.cat([-2 * stack.means * precision, precision], 2), features.transpose(1, 2))
        log_det = width * stack.covariances.log() + (stack.means.square() * precision).sum(2)
    constant = stack.weights.log() - 0.5 * (width * _LOG_TWO_PI + log_det)
    return quadratic.mul_(-0.5).add_(constant[:, :, None])


def normalise(joint: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log density (G, n) and responsibilities (G, K, n) from joint log densities, which are overwritten."""
    highest = joint.amax(1, keepdim=True)
    joint -= highest
    # Below e^-80 nothing is left in float32, and exponentials that underflow are ten times slower.
    shares = torch.threshold_(joint.clamp_min_(_NOTHING).exp_(), _LEAST, 0.0)
    total = shares.sum(1, keepdim=True)
    return (highest + total.log())[:, 0], shares.div_(total)


def _full_terms(features: torch.Tensor, stack: Stack) -> tuple[torch.Tensor, torch.Tensor]:
    """Mahalanobis terms (G, K, n) and log determinants (G, K)."""
    factors = torch.linalg.cholesky(stack.covariances)
    centred = features[:, None] - stack.means[:, :, None]
    solved = torch.linalg.solve_triangular(factors, centred.transpose(2, 3), upper=False)
    log_det = 2 * factors.diagonal(dim1=2, dim2=3).log().sum(2)
    return solved.square().sum(2), log_det
