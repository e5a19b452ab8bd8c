"""FedPFT's guarantee on the accuracy of each client (Beitollahi et al. 2024, Theorem 6.1), and its vacuous cases.

For any head h, a client's 0-1 loss on its own features is at most

    E_c[2 l - l^2 + (1 - l) sqrt(KL / 2)],   KL = H - L,

l the loss of h on samples of the client's mixture of class c, L the mean log-likelihood per record under
that mixture and H = E[log p], minus the differential entropy of the class's features. A finite set of
features has no density, so the theorem is about dequantized features, with noise added.

The noise is added to known records here, so p is known too: it is the mixture of one Gaussian around every record.
H - L is then the mean of log p - log q over draws from p, without bias and with a standard error. A
nearest-neighbour estimate of the entropy would be biased by an unknown amount in tens of dimensions. The bound
holds for the features with that noise on them, and is as good as the draws: the estimate of KL is raised by two
standard errors.

The bound is 1 or more, hence vacuous, where sqrt(KL / 2) >= 1 - l, that is from KL = 2 (1 - l)^2 nats on. With
some hundred records in tens of dimensions, log p at a record is nearly always further than that above the log
density of a mixture of a few components. The noise that would close the gap is as large as the classes themselves.

Source: Beitollahi et al. 2024, "Parametric Feature Transfer", Theorem 6.1 and appendix C.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedassay.mixtures import Mixtures, log_density, sample_mixtures
from fedassay.support.types import Floats, Ints, Matrix

DEQUANTIZATION = 0.1
"""Standard deviation of the noise, relative to the class's (the root of its mean variance per feature)."""

_DRAWS = 1000


@dataclass(frozen=True)
class ClassGap:
    """Distance of a mixture from the class it was fitted to.

    Attributes:
        divergence: KL(p || q) of dequantized features p and mixture q, in nats, at least 0.
        error: Standard error of the estimate.
        log_likelihood: L = E[log q] in nats, per record.
    """

    divergence: float
    error: float
    log_likelihood: float


@dataclass(frozen=True)
class Guarantee:
    """Theorem 6.1 for one client.

    Attributes:
        loss_bound: The right-hand side as printed; it may exceed 1.
        synthetic_loss: Loss of the head on samples of the client's mixtures, by the client's class shares.
        divergence: KL by the client's class shares, in nats.
    """

    loss_bound: float
    synthetic_loss: float
    divergence: float

    @property
    def vacuous(self) -> bool:
        """Whether the bound says nothing: no loss is above 1."""
        return self.loss_bound >= 1


def class_gap(
    records: Floats,
    mixtures: Mixtures,
    group: int,
    generator: np.random.Generator,
    *,
    noise: float = DEQUANTIZATION,
    draws: int = _DRAWS,
) -> ClassGap:
    """Estimate KL(p || q) between dequantized records and a mixture.

    Args:
        records: Features of one class, shape (n, d), n >= 1.
        mixtures: Holds the mixture q.
        group: Index of the group.
        generator: Source of randomness.
        noise: Relative standard deviation of the dequantization, above 0; see `DEQUANTIZATION`.
        draws: Draws from p, at least 2.

    Raises:
        ValueError: No records, or a number out of range.
    """
    if records.ndim != 2 or len(records) < 1 or not 0 < noise < math.inf or draws < 2:
        raise ValueError(
            f"class_gap: records {records.shape}, noise {noise}, draws {draws}; at least one record, noise "
            "above 0 and two draws are needed"
        )
    rows = np.asarray(records, dtype=np.float64)
    spread = float(np.sqrt(rows.var(axis=0).mean()))
    if spread == 0:
        # One record, or equal ones: the mixture's own width is all the scale there is.
        spread = math.sqrt(_mean_variance(mixtures, group))
    scale = noise * spread
    width = rows.shape[1]
    drawn = rows[generator.integers(len(rows), size=draws)] + scale * generator.standard_normal((draws, width))
    known = _around(drawn, rows, scale)
    fitted = log_density(mixtures, group, drawn)
    gaps = known - fitted
    return ClassGap(
        max(0.0, float(gaps.mean())),
        float(gaps.std(ddof=1) / math.sqrt(draws)),
        float(fitted.mean()),
    )


def guarantee(
    predict: Callable[[Floats], Ints],
    features: Floats,
    labels: Ints,
    mixtures: Mixtures,
    classes: Ints,
    generator: np.random.Generator,
    *,
    noise: float = DEQUANTIZATION,
    draws: int = _DRAWS,
) -> Guarantee:
    """Theorem 6.1 for a client.

    Args:
        predict: The head: features (n, d) to classes (n,).
        features: The client's own features, shape (n, d), n >= 1.
        labels: Their classes, shape (n,).
        mixtures: The mixtures that the server samples for this client.
        classes: The class of each mixture. A class of the client's without one counts with loss 1.
        generator: Source of randomness.
        noise: As in `class_gap`.
        draws: Draws for each class, for the divergence and for the loss.

    Raises:
        ValueError: The client has no records.
    """
    if not len(labels):
        raise ValueError("guarantee: a client without records has no loss to bound")
    present, counts = np.unique(labels, return_counts=True)
    bounds, losses, gaps = np.ones(len(present)), np.ones(len(present)), np.full(len(present), math.inf)
    _, rows, groups = np.intersect1d(present, classes, return_indices=True)
    for row, group in zip(rows.tolist(), groups.tolist(), strict=True):
        label = present[row]
        gap = class_gap(features[labels == label], mixtures, group, generator, noise=noise, draws=draws)
        sampled, _ = sample_mixtures(mixtures.select([group]), np.array([draws]), generator)
        losses[row] = float(np.mean(predict(sampled) != label))
        gaps[row] = gap.divergence + 2 * gap.error
        bounds[row] = loss_bound(losses[row], gaps[row])
    shares = counts / counts.sum()
    return Guarantee(float(shares @ bounds), float(shares @ losses), float(shares @ gaps))


def loss_bound(synthetic_loss: float, divergence: float) -> float:
    """2 l - l^2 + (1 - l) sqrt(KL / 2): the term of one class.

    Args:
        synthetic_loss: l, in [0, 1].
        divergence: KL = H - L in nats, at least 0.
    """
    if not (0 <= synthetic_loss <= 1 and divergence >= 0):
        raise ValueError(
            f"loss_bound: the loss must lie in [0, 1] and the divergence be at least 0, "
            f"given {synthetic_loss}, {divergence}"
        )
    right = 1 - synthetic_loss
    return 1 - right**2 + right * math.sqrt(divergence / 2)


def _around(drawn: Matrix, rows: Matrix, scale: float) -> Matrix:
    """Log density of the mixture of equal spheres around `rows`, at `drawn`, shape (m,)."""
    from scipy.spatial.distance import cdist
    from scipy.special import logsumexp

    width = rows.shape[1]
    joint = -cdist(drawn, rows, "sqeuclidean") / (2 * scale**2)
    constant = math.log(len(rows)) + width * (math.log(scale) + 0.5 * math.log(2 * math.pi))
    return np.asarray(logsumexp(joint, axis=1) - constant, dtype=np.float64)


def _mean_variance(mixtures: Mixtures, group: int) -> float:
    own = mixtures.select([group])
    if own.family == "full":
        from fedassay.mixtures.packed import diagonal_index

        return float(own.covariances[:, diagonal_index("full", own.width)].mean())
    return float(own.covariances.mean())
