"""The mean magnitude that a FedDiff client sends beside its weights and its label histogram."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedassay.contracts.method import MethodInput
from fedassay.data.records import Records
from fedassay.exchange.spectra import magnitudes
from fedassay.methods.feddiff.magnitudes import mean_magnitude, noised_mean, pydp_bounds, pydp_means
from fedassay.methods.feddiff.private import Budget


def sent_magnitude(
    client: Records, budget: Budget | None, clip: float, count: float, task: MethodInput
) -> NDArray[np.float32]:
    """A client's mean magnitude, shape (H, W, C), float32.

    Args:
        client: Its records; without any and without privacy the mean is zeros.
        budget: None: exact.
        clip: L2 norm that magnitude vectors are clipped to.
        count: Sum of the histogram that the client sends; every receiver of the mean also knows it.
        task: Adjacency and seeds.
    """
    if budget is None:
        own = mean_magnitude(client.images) if len(client) else np.zeros(client.image_shape)
        return own.astype(np.float32)
    mechanism = task.mechanism(client.name, 0, "magnitude_mean")
    if budget.coordinates:
        shape, bounds = client.image_shape, pydp_bounds(client.images)
        values = magnitudes(client.images).reshape(len(client), math.prod(shape))
        release = partial(pydp_means, epsilon=budget.each, bounds=bounds)
        total = budget.coordinates * budget.each
        return mechanism.seal("mean", "PyDP", total, release, values, bounds).reshape(shape).astype(np.float32)
    weights = task.weights(client)
    # Where the number of records, or of persons, is private, the divisor must be as well.
    public = float(len(client) if weights is None else round(weights.sum()))
    divisor = count if task.privacy.adjacency == "add_remove" else public
    found = noised_mean(
        client.images, clip=clip, sigma=budget.magnitude, count=divisor, noise=mechanism, of_records=weights
    )
    return found.astype(np.float32)
