"""FedLog's first round on neighbours of a client's records, the body trained again on each of them.

The sensitivity of T holds the body fixed (Yu et al. 2026, Theorem 4). With `body: private` it is not: one record
more changes the order and the make-up of the minibatches, and with them the features of every record of the
client. Where head, initialisation and the order of minibatches come from a public seed, the trained body is a
function of the records alone. The first round's T is then one of two known matrices plus Gaussian noise,
independently of later rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedassay.contracts.method import Retrained
from fedassay.data.records import Records
from fedassay.methods.fedlog.private import Protection
from fedassay.privacy.mechanisms import release_fedlog_sums
from fedassay.privacy.reruns import Experiment, flat_rows
from fedassay.privacy.sensitivities import Neighbours
from fedassay.privacy.tape import FreeNoise
from fedassay.privacy.variants import distances

Features = Callable[[int, Records], NDArray[np.float32]]
"""A client's position and its records to their features under the body that is trained on them."""

_CONDITION = (
    "the seed of the first head, of the bodies' start and of the order of minibatches is public, as the plan "
    "has it: the adversary trains the body again; only the first round is looked at"
)


def retraining(features: Features, protected: Protection, batch: int) -> Retrained:
    """The first round's T as a mechanism on neighbours that an audit chooses.

    Args:
        features: Trains a client's body in the first round and applies it; deterministic.
        protected: The noise.
        batch: Records of a minibatch: one record more than a multiple of it adds a step to every epoch.
    """
    clip, counts = protected.statistic.clip, protected.statistic.counts

    def experiment(client: int, without: Records, within: Records) -> Experiment:
        # The client's other classes have rows of nothing but noise on either side.
        held = np.union1d(without.labels, within.labels)

        @lru_cache(maxsize=2)
        def trained(shape: tuple[int, ...], images: bytes, labels: bytes) -> NDArray[np.float32]:
            pixels = np.frombuffer(images, np.uint8).reshape(shape)
            known = Records(without.name, pixels, np.frombuffer(labels, np.int64), without.extract)
            return features(client, known)

        def release(
            x: NDArray[np.float64],
            y: NDArray[np.int64],
            sigmas: tuple[float, ...],
            rng: np.random.Generator,
            reruns: int,
        ) -> tuple[NDArray[np.float64], ...]:
            fitted = trained(x.shape, x.astype(np.uint8).tobytes(), held[y].tobytes())
            statistic = release_fedlog_sums(
                fitted, y, len(held), clip=clip, sigma=sigmas[0], noise=FreeNoise(rng, (reruns,))
            )
            number = np.full((reruns, 1), float(len(y)))
            return (statistic, number) if counts else (statistic,)

        pair = Neighbours(
            without.images.astype(np.float64),
            np.searchsorted(held, without.labels).astype(np.int64),
            within.images.astype(np.float64),
            np.searchsorted(held, within.labels).astype(np.int64),
        )
        sigmas = (protected.scale,) + (0.0,) * counts
        found = Experiment(pair, math.nan, sigmas, release, (flat_rows,) * len(sigmas))
        apart = distances(found)
        mu = math.inf if any(apart[1:]) else apart[0] / protected.scale
        return Experiment(pair, mu, sigmas, release, found.flatten)

    return Retrained(experiment, protected.sensitivity, batch, _CONDITION)
