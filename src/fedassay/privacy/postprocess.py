"""Post-processing of noised statistics: costs no privacy, and is said in the method's docstring.

Noise makes covariances indefinite, counts negative. Each function states its repair, so that no value is clamped
silently.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedassay.privacy.mechanisms import Moments
from fedassay.privacy.symmetric import Family, project_psd
from fedassay.support.types import Matrix


class Repaired(NamedTuple):
    """Usable counts (...,), means (..., d) and raw second moments."""

    counts: Matrix
    means: Matrix
    second: Matrix


def covariance_from_moments(release: Moments, family: Family = "full", *, floor: float = 0.0) -> Matrix:
    """Covariance M - mu mu^T of a noised mean and RAW second moment, eigenvalues raised to `floor`.

    Returns:
        (..., d, d) for full; (..., d) variances for diag; (...,) the variance per coordinate,
        (E||x||^2 - ||mu||^2) / d, for spherical.
    """
    mean, second = release
    if family == "full":
        return project_psd(second - mean[..., :, None] * mean[..., None, :], floor=floor)
    if family == "diag":
        return np.asarray(np.maximum(second - mean**2, floor), dtype=np.float64)
    trace = second - np.sum(mean**2, axis=-1)
    return np.asarray(np.maximum(trace / mean.shape[-1], floor), dtype=np.float64)


def covariance_from_release(release: Moments, family: Family = "full", *, floor: float = 0.0) -> Matrix:
    """Usable covariance of a noised mean and CENTRED covariance: FedPFT's projection (Theorem 4.1).

    Shapes as `covariance_from_moments`; a spherical release holds the trace, divided by d here.
    """
    if family == "full":
        return project_psd(release.second, floor=floor)
    if family == "diag":
        return np.asarray(np.maximum(release.second, floor), dtype=np.float64)
    return np.asarray(np.maximum(release.second / release.mean.shape[-1], floor), dtype=np.float64)


def moments_from_sums(
    counts: Matrix, sums: Matrix, second: Matrix, family: Family = "full", *, least: float = 1.0
) -> Repaired:
    """Means and raw second moments from noised sums, counts under `least` raised to it first.

    Args:
        counts: (...,).
        sums: (..., d).
        second: (..., d, d), (..., d) or (...,) by family.
        family: the part of the second moment in `second`.
        least: smallest count that is divided by, greater than 0.
    """
    if not least > 0:
        raise ValueError(f"least must be greater than 0, got {least}")
    usable = np.maximum(counts, least)
    extra = {"full": 2, "diag": 1, "spherical": 0}[family]
    divisor = usable.reshape(usable.shape + (1,) * extra)
    return Repaired(usable, sums / usable[..., None], second / divisor)
