"""Expectation-maximisation for Gaussian mixtures of many groups at once.

Groups of equal size and equal number of components are stacked, and each step is a few batched matrix products
over the stack: E-step log densities as [x^2, x] times [precision, -2 mean precision], M-step moments as
responsibilities times [x, x^2]. There is no padding: a group's numbers are computed from its own records by the
same operations for every stack, and a group that has converged is frozen and leaves the stack. The result does
therefore not depend on how groups are batched: to the bit on one thread, to rounding where the batched products of
the linear algebra library share several.

Records are centred by the group's mean and divided by the group's scale first (the root of the mean
variance per feature; for one record or equal records the root of their mean square), which makes the
fit equivariant to shift and scale and keeps the expanded squares accurate.

Covariance floor: `floor` times the squared scale. `diag` and `spherical`: variances are kept at or
above it, which is the exact maximiser under that constraint, so the likelihood never decreases.
`full`: it is added to the diagonal (raising eigenvalues instead would need an eigendecomposition per
component and step); the likelihood is monotone up to that perturbation.

Source: Dempster, Laird and Rubin 1977; FedPFT (Beitollahi et al. 2024, section 4.1) fits one mixture per class
and client.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedassay.mixtures.densities import Stack, expand, joint_log_density, maximise, normalise, working_elements
from fedassay.mixtures.kmeans import draw, initial_assignments
from fedassay.mixtures.packed import Family, Mixtures
from fedassay.support.types import Bools, Floats, Ints, Matrix

FLOOR = 1e-3
"""Default covariance floor relative to the group's mean variance per feature."""

_TOLERANCE = 1e-3
"""A fit ends when the mean log-likelihood rises by less, in nats per record."""

_STEPS = 100
"""Expectation-maximisation steps at most; 0 would give the clusters of the initialisation."""

_CHUNK = 1 << 22
"""Numbers held by one stack at most; 16 MiB: longer stacks outgrow the cache, shorter ones pay for calls."""


@dataclass(frozen=True)
class FitReport:
    """The result of the fit of each group; every array has shape (P,).

    Attributes:
        log_likelihood: Mean log density per record under the fitted mixture, in nats.
        converged: Whether the mean log-likelihood rose by less than the tolerance in the last step.
        iterations: Expectation-maximisation steps of the restart that was chosen.
        floor: The covariance floor in squared feature units.
    """

    log_likelihood: Matrix
    converged: Bools
    iterations: Ints
    floor: Matrix


def fit_mixtures(
    records: Sequence[Floats],
    components: int | Sequence[int],
    family: Family,
    generators: Sequence[np.random.Generator],
    *,
    floor: float = FLOOR,
    restarts: int = 1,
    precision: torch.dtype | None = None,
    device: str | torch.device = "cpu",
) -> tuple[Mixtures, FitReport]:
    """Fit one Gaussian mixture to each group of records.

    Args:
        records: One array of shape (n, d) per group, n >= 1, all of one width d.
        components: Components per group, one number for all or one each. A group with fewer records
            than that uses as many components as it has records (the report holds both numbers); one
            with fewer distinct records can end with fewer still.
        family: The covariance family.
        generators: One per group; the draws of a group depend on its sizes only.
        floor: Covariance floor, relative to the group's scale (see the module).
        restarts: Initialisations; the likeliest fit is kept.
        precision: Type of the computation; by default float32 for `diag` and `spherical` (twice as
            fast; the log-likelihood is right to about 1e-5 relative) and float64 for `full`.
        device: Device of the computation.

    Returns:
        The mixtures, in the order of the groups, and a report.

    Raises:
        ValueError: A group is empty or holds NaN, widths differ, or a number is out of range.
    """
    wanted = _check(records, components, generators, floor, restarts)
    kind = precision or (torch.float64 if family == "full" else torch.float32)
    order: dict[tuple[int, int], list[int]] = defaultdict(list)
    for group, array in enumerate(records):
        order[len(array), min(int(wanted[group]), len(array))].append(group)
    common = np.result_type(np.float32, *{array.dtype for array in records})
    fits: list[_Fit | None] = [None] * len(records)
    for (size, parts), members in order.items():
        each = restarts * working_elements(family, size, parts, records[0].shape[1])
        together = max(1, _CHUNK // each)
        for start in range(0, len(members), together):
            chunk = members[start : start + together]
            draws = [draw(generators[group], size, parts) for group in chunk for _ in range(restarts)]
            stacked = torch.as_tensor(np.stack([records[group] for group in chunk], dtype=common), device=device)
            standard, centre, scale = _standardise(stacked, kind)
            if restarts > 1:
                standard = standard.repeat_interleave(restarts, 0)
            features = expand(standard, family)
            found = _climb(features, initial_assignments(standard, draws), family, floor)
            _keep_best(found, chunk, restarts, centre, scale, floor, fits)
    return _collect([fit for fit in fits if fit is not None], wanted, records, family)


@dataclass
class _Found:
    """Fits of a whole stack, filled in as groups converge (standardised units)."""

    stack: Stack
    likelihood: torch.Tensor
    converged: torch.Tensor
    steps: torch.Tensor


@dataclass(frozen=True)
class _Fit:
    weights: Matrix
    means: Matrix
    covariances: Matrix
    likelihood: float
    converged: bool
    steps: int
    floor: float


def _climb(features: torch.Tensor, assigned: torch.Tensor, family: Family, floor: float) -> _Found:
    """Alternate E- and M-steps on a stack until every group has converged, or has taken all steps."""
    groups, device = features.shape[0], features.device
    active = torch.arange(groups, device=device)
    previous = torch.full((groups,), -torch.inf, device=device, dtype=features.dtype)
    found: _Found | None = None
    responsibilities = assigned
    for step in range(_STEPS + 1):
        stack = maximise(features, responsibilities, family, floor)
        joint = joint_log_density(features, stack, family)
        density, responsibilities = normalise(joint)
        likelihood = density.mean(1)
        settled = likelihood - previous < _TOLERANCE
        if found is None:
            settled = torch.zeros_like(settled)
            found = _Found(stack, likelihood, settled.clone(), torch.zeros_like(active))
        ends = torch.ones_like(settled) if step == _STEPS else settled
        if bool(ends.any()):
            rows = active[ends]
            together = len(rows) == groups
            found.stack = stack if together else found.stack.put(rows, stack, ends)
            found.likelihood[rows] = likelihood[ends]
            found.converged[rows] = settled[ends]
            found.steps[rows] = step
            if len(rows) == len(active):
                return found
            going = ~ends
            active, likelihood = active[going], likelihood[going]
            features, responsibilities = features[going], responsibilities[going]
        previous = likelihood
    raise AssertionError("every group ends at the last step")


def _keep_best(
    found: _Found,
    chunk: list[int],
    restarts: int,
    centre: torch.Tensor,
    scale: torch.Tensor,
    floor: float,
    fits: list[_Fit | None],
) -> None:
    """Choose the likeliest restart of each group and go back to feature units."""
    best = found.likelihood.reshape(len(chunk), restarts).argmax(1)
    rows = torch.arange(len(chunk), device=best.device) * restarts + best
    host = found.stack.numpy(rows)
    shift, unit = centre.double().cpu().numpy(), scale.double().cpu().numpy()
    host.means[...] *= unit
    host.means[...] += shift
    host.covariances[...] *= unit.reshape(-1, *(1,) * (host.covariances.ndim - 1)) ** 2
    likelihood = found.likelihood[rows].double().cpu().numpy() - shift.shape[-1] * np.log(unit[:, 0, 0])
    converged, steps = found.converged[rows].cpu().numpy(), found.steps[rows].cpu().numpy()
    for index, group in enumerate(chunk):
        # A slice where nothing has died: no copy.
        alive = slice(None) if host.weights[index].all() else host.weights[index] > 0
        fits[group] = _Fit(
            host.weights[index][alive] / host.weights[index].sum(),
            host.means[index][alive],
            host.covariances[index][alive],
            float(likelihood[index]),
            bool(converged[index]),
            int(steps[index]),
            floor * float(unit[index, 0, 0]) ** 2,
        )


def _collect(
    fits: list[_Fit], wanted: Ints, records: Sequence[Floats], family: Family
) -> tuple[Mixtures, FitReport]:
    mixtures = Mixtures(
        family,
        np.array([fit.weights.size for fit in fits], dtype=np.int64),
        np.array([len(array) for array in records], dtype=np.int64),
        np.concatenate([fit.weights for fit in fits]),
        np.concatenate([fit.means for fit in fits]),
        np.concatenate([fit.covariances for fit in fits]),
    )
    report = FitReport(
        np.array([fit.likelihood for fit in fits]),
        np.array([fit.converged for fit in fits]),
        np.array([fit.steps for fit in fits], dtype=np.int64),
        np.array([fit.floor for fit in fits]),
    )
    return mixtures, report


def _standardise(stacked: torch.Tensor, kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Standard records (G, n, d) of type `kind`, with centre (G, 1, d) and scale (G, 1, 1) of each group."""
    centre = stacked.mean(1, keepdim=True)
    standard = stacked - centre
    size = math.sqrt(stacked.shape[1] * stacked.shape[2])
    scale = torch.linalg.vector_norm(standard, dim=(1, 2), keepdim=True) / size
    # Equal records differ from their mean by rounding only: that is no scale.
    level = torch.linalg.vector_norm(centre, dim=(1, 2), keepdim=True) / math.sqrt(stacked.shape[2])
    scale = torch.where(scale > 64 * torch.finfo(stacked.dtype).eps * level, scale, level)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return standard.div_(scale).to(kind), centre, scale


def _check(
    records: Sequence[Floats],
    components: int | Sequence[int],
    generators: Sequence[np.random.Generator],
    floor: float,
    restarts: int,
) -> Ints:
    if not records or len(generators) != len(records):
        raise ValueError(
            f"fit_mixtures: {len(records)} groups and {len(generators)} generators; one generator per group"
        )
    wanted = np.broadcast_to(np.asarray(components, dtype=np.int64), (len(records),)).copy()
    if wanted.min() < 1 or restarts < 1 or not 0 < floor < math.inf:
        raise ValueError(
            "fit_mixtures: components and restarts must be at least 1 and the floor positive, "
            f"given {int(wanted.min())}, {restarts} and {floor}"
        )
    for group, array in enumerate(records):
        if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] != records[0].shape[-1]:
            raise ValueError(
                f"fit_mixtures: group {group} has shape {array.shape}; "
                f"at least one record of width {records[0].shape[-1]} is needed"
            )
        if not np.isfinite(array).all():
            raise ValueError(f"fit_mixtures: group {group} holds NaN or infinite values")
    return wanted
