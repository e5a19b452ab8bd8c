"""The other head that FedCGS's statistics can give: a linear one, trained on features drawn from them."""

from __future__ import annotations

import math

import numpy as np

from fedassay.contracts.method import MethodInput
from fedassay.heads.gaussian import GlobalMoments
from fedassay.heads.linear import LinearHead
from fedassay.methods.shared.heads import HeadTraining
from fedassay.privacy.symmetric import psd_root


def generated_head(found: GlobalMoments, records: float, training: HeadTraining, task: MethodInput) -> LinearHead:
    """Train a softmax head on features of the aggregated Gaussians ("Linear" in Guan et al. 2025, figure 2).

    Class j gets round(pi_j * records) draws of N(mu_j, Sigma), at least one. The paper calls this the upper
    bound of FedPFT: FedPFT draws from the clients' own statistics instead of the global ones.

    Args:
        found: Means, priors and the covariance that all classes share.
        records: Total number of features to draw: the aggregated count.
        training: Settings of the head's training.
        task: Seeds, device and progress.
    """
    rng = task.seeds.numpy("generated")
    root = psd_root(found.covariance)
    features, labels = [], []
    for mean, prior, number in zip(found.means, found.priors, found.classes, strict=True):
        size = max(1, math.floor(prior * max(records, 1.0) + 0.5))
        features.append(mean + rng.standard_normal((size, len(mean))) @ root.T)
        labels.append(np.full(size, number, np.int64))
    return training.fit(np.concatenate(features), np.concatenate(labels), task)
