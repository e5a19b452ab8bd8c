"""Features of records as audits compare them: the method's encoder, and the nearest feature without an attack."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import OnFeatures
from fedassay.data.records import Records
from fedassay.similarity.metrics import Similarity
from fedassay.similarity.nearest import top_k_l2
from fedassay.support.types import Floats, Images, Matrix

_FEW = 5


def encoder(context: AuditContext) -> Callable[[Records], Matrix] | None:
    """Return the map from records to the features that the method summed; None for networks of its own."""
    model = context.outcome.model
    if model is not None and not isinstance(model, OnFeatures):
        return None
    transform = None if model is None else model.transform

    def encode(records: Records) -> Matrix:
        features = records.features if transform is None else transform(records.features)
        return np.asarray(features, np.float64)

    return encode


def nearest_feature(vectors: Floats, attacker: Records, truth: Images, similarity: Similarity) -> Images:
    """Return the attacker's reconstruction of each vector without a generator, shape (n, H, W, C).

    The attacker's image with the nearest feature (L2), or the mean of the five nearest, whichever is
    closer to the truth over all vectors: SSIM rewards smooth images, and an average needs no generator.
    """
    few = min(_FEW, len(attacker))
    found = top_k_l2(vectors, attacker.features, few, device=similarity.device).indices
    single = attacker.images[found[:, 0]]
    average = np.rint(attacker.images[found].mean(axis=1)).astype(np.uint8)
    scores = [similarity.measure(truth, images)["ssim"].mean() for images in (single, average)]
    return average if scores[1] > scores[0] else single
