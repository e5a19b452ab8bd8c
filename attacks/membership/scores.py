"""From signals of one target and of shadow releases to membership scores: LiRA and RMIA.

A signal is any statistic of (release, record) that tends to be higher where the record is a member. The signals of
the same record under releases with or without it show its difficulty, which one threshold for all records ignores.

- `lira_online`, `lira_offline`: Carlini et al., "Membership Inference Attacks From First Principles" (2022),
  algorithm 1 and section VI-C. Several signals of one record are one Gaussian vector.
- `rmia`: Zarifzadeh, Liu and Shokri, "Low-Cost High-Power Membership Inference Attacks" (2024), equations 3,
  6 and 7: the share of population records that the candidate's likelihood ratio beats.
"""

from __future__ import annotations

import numpy as np

from fedassay.support.types import Bools, Ints, Matrix

_EACH = 32
"""Shadows on either side from which every candidate gets variances of its own (Carlini et al., section VI-B)."""
_SHRINKAGE = 1e-3


def lira_online(target: Matrix, shadows: Matrix, included: Bools) -> Matrix:
    """Log-likelihood ratio of "in" over "out", each a Gaussian fitted to the candidate's shadow signals.

    Args:
        target: Signals under the audited release, shape (n, k).
        shadows: Signals under the shadow releases, shape (S, n, k).
        included: Whether each candidate was in each shadow, shape (S, n); every candidate at least twice in and
            twice out counts, others score 0.

    Returns:
        Shape (n,).
    """
    inside, outside = included[..., None], ~included[..., None]
    n_in, n_out = inside.sum(axis=0), outside.sum(axis=0)
    usable = (n_in >= 2) & (n_out >= 2)
    mean_in = np.where(inside, shadows, 0.0).sum(axis=0) / np.maximum(n_in, 1)
    mean_out = np.where(outside, shadows, 0.0).sum(axis=0) / np.maximum(n_out, 1)
    rest_in = np.where(inside, shadows - mean_in, 0.0)
    rest_out = np.where(outside, shadows - mean_out, 0.0)
    if min(int(n_in.min()), int(n_out.min())) >= _EACH and target.shape[1] == 1:
        spread_in = (rest_in**2).sum(axis=0) / (n_in - 1)
        spread_out = (rest_out**2).sum(axis=0) / (n_out - 1)
        floor = _SHRINKAGE * (spread_in.mean() + spread_out.mean()) + 1e-12
        score = _log_normal(target - mean_in, spread_in + floor) - _log_normal(
            target - mean_out, spread_out + floor
        )
        return np.asarray(score[:, 0])
    log_in = _log_gaussian(target - mean_in, _pooled(rest_in, n_in))
    log_out = _log_gaussian(target - mean_out, _pooled(rest_out, n_out))
    return np.where(usable[:, 0], log_in - log_out, 0.0)


def lira_offline(target: Matrix, shadows: Matrix, included: Bools | None = None) -> Matrix:
    """Distance of a candidate's signal above those of releases without it, in standard deviations.

    One-sided: the mean over the signals of (x - mean) / s, with s pooled over the candidates. The average effect
    of inclusion on all candidates is subtracted from shadows that hold a candidate, so that its mean rests on all
    shadows. Where enough are without it, its mean and s are its own, of those alone.

    Args:
        target: Shape (n, k).
        shadows: Shape (S, n, k), S at least 2.
        included: Whether each candidate was in each shadow, shape (S, n); None: in none.

    Returns:
        Shape (n,), NaN for a candidate that fewer than two shadows are without.
    """
    outside = np.ones(shadows.shape[:2], np.bool_) if included is None else ~included
    if included is not None:
        # Candidates are compared with different shadows: what one does to all signals alike must not tell them.
        shadows = shadows - shadows.mean(axis=1, keepdims=True) + shadows.mean(axis=(0, 1))
    counts = outside.sum(axis=0)
    if counts.min() >= _EACH:
        mean = np.where(outside[..., None], shadows, 0.0).sum(axis=0) / counts[:, None]
        squares = np.where(outside[..., None], shadows - mean, 0.0) ** 2
        variance = squares.sum(axis=0) / (counts[:, None] - 1)
    else:
        alike = shadows - ~outside[..., None] * _shift(shadows, outside)
        mean = alike.mean(axis=0)
        variance = np.broadcast_to(alike.var(axis=0, ddof=1).mean(axis=0), mean.shape)
    floor = _SHRINKAGE * variance.mean(axis=0) + 1e-12
    scores = ((target - mean) / np.sqrt(variance + floor)).mean(axis=1)
    return np.where(counts >= 2, scores, np.nan)


def rmia(
    target: Matrix,
    shadows: Matrix,
    population: Matrix,
    population_shadows: Matrix,
    *,
    gamma: float = 1.0,
    offline_scale: float | None = None,
) -> Matrix:
    """Share of population records z with [p(x|t) / p(x)] / [p(z|t) / p(z)] > gamma.

    p(x) is the mean over the shadows: with half of them holding x as it is; from shadows without x,
    ((1 + a) p_out(x) + 1 - a) / 2 with a = `offline_scale`, for probabilities in [0, 1]. The share is made
    continuous within ties by the candidate's own ratio, which changes no order between records that differ.

    Args:
        target: Log-likelihoods of the candidates under the release, shape (n,).
        shadows: Under the shadows, shape (S, n).
        population: Of the population records under the release, shape (m,).
        population_shadows: Under the shadows, shape (S, m).
        gamma: At least 1.
        offline_scale: None: the shadows hold the candidates half of the time, or the likelihoods are no
            probabilities.

    Returns:
        Shape (n,).
    """
    ours = target - _log_prior(shadows, offline_scale)
    theirs = np.sort(population - _log_prior(population_shadows, offline_scale))
    share = np.searchsorted(theirs, ours - np.log(gamma), side="left") / len(theirs)
    # Below 1 / m in all: orders the candidates that beat equally many population records.
    order = np.argsort(np.argsort(ours, kind="stable"), kind="stable")
    return np.asarray(share + 0.5 * order / (len(ours) * len(theirs)))


def _log_prior(shadows: Matrix, offline_scale: float | None) -> Matrix:
    from scipy.special import logsumexp

    mean = logsumexp(shadows, axis=0) - np.log(len(shadows))
    if offline_scale is None:
        return np.asarray(mean)
    return np.asarray(np.log(((1 + offline_scale) * np.exp(mean) + 1 - offline_scale) / 2))


def _shift(shadows: Matrix, outside: Bools) -> Matrix:
    """Effect of inclusion on signals (S, n, k), the same for all candidates: least squares, shape (k,)."""
    inside = outside.mean(axis=0) - outside
    weight = float((inside**2).sum())
    return np.asarray(np.einsum("sn,snk->k", inside, shadows) / (weight or 1.0))


def _pooled(rest: Matrix, counts: Ints) -> Matrix:
    """Covariance (k, k) of the residuals (S, n, k), pooled over the candidates."""
    flat = rest.reshape(-1, rest.shape[2])
    freedom = float(np.maximum(counts - 1, 0).sum())
    found = flat.T @ flat / max(freedom, 1.0)
    scale = np.diag(found).copy()
    return np.asarray(found + np.diag(_SHRINKAGE * scale + 1e-12))


def _log_gaussian(rest: Matrix, covariance: Matrix) -> Matrix:
    solved = np.linalg.solve(covariance, rest.T).T
    return np.asarray(-((rest * solved).sum(axis=1) + np.linalg.slogdet(covariance)[1]) / 2)


def _log_normal(rest: Matrix, variance: Matrix) -> Matrix:
    return np.asarray(-(rest**2 / variance + np.log(variance)) / 2)
