"""Linear equations of a message: the sums over records that it holds, block by block.

Sums, moments, class means beside counts, and the components of mixtures are linear in the indicators of
membership: a block is T = sum_i w_i phi(x_i, y_i), w_i 1 for the sender's records and 0 for all others.
`linear_blocks` reads the blocks of a message from the kinds of its fields, so that messages of any origin have
them. A method with fields of no such kind declares its own by `fedassay.contracts.method.Outcome.enters`.

| fields | blocks |
|---|---|
| `class_counts` | ones, by class |
| `class_sums`, or `class_means` or `mixture_means` (all of a class together) beside counts | features, by class |
| `second_moment`, `regularised_gram`, `inverse_gram` | products x x^T, over all records |
| `class_second_moments`, or class-wise covariances beside means and counts | products or squares, by class |
| `ridge_weights` beside a regularised moment | features, by class |
| `magnitude_mean` beside a number of records | half of the Fourier magnitudes of images, over all records |

A ridge that is only known up to its size is left out of the products (`free_ridge`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedassay.exchange.blocks import LinearBlock, Of
from fedassay.exchange.feature_sources import message_mixtures
from fedassay.exchange.kinds import facts_of
from fedassay.exchange.message import Message, MessageField
from fedassay.exchange.mixture_sums import MixtureSums, above_floor
from fedassay.exchange.ridge import regularised, square
from fedassay.exchange.spectra import halved
from fedassay.exchange.statistics import field_of, noise_of, roundoff
from fedassay.mixtures.packed import unpack_lower
from fedassay.support.types import Floats, Ints, Matrix


def linear_blocks(message: Message, classes: int, sizes: Ints | None = None) -> tuple[LinearBlock, ...]:
    """The blocks of a message by the kinds of its fields; none where nothing in it is a sum.

    Args:
        message: Of one sender, or the aggregate.
        classes: C.
        sizes: Records per class that the sender is known to have, shape (C,), where the message is silent.
    """
    ids = message.of_kind("class_ids")
    order = np.arange(classes) if ids is None else ids.astype(np.int64)
    reader = _Reader(message, classes, order, sizes)
    if order.size and (order.min() < 0 or order.max() >= classes):
        return ()
    mixtures = reader.mixtures()
    # Where components stand by themselves, the number of records of each says those of classes.
    counts = [] if any(block.of == "ones" for block in mixtures) else reader.counts()
    parts = (counts, reader.sums(), reader.moment(), reader.by_class(), mixtures, reader.images())
    return tuple(block for found in parts for block in found)


@dataclass(frozen=True, eq=False)
class _Reader:
    message: Message
    classes: int
    order: Ints
    sizes: Ints | None

    def counts(self) -> list[LinearBlock]:
        found = field_of(self.message, "class_counts")
        if found is None or found[1].shape != self.order.shape:
            return []
        values = found[1].values.astype(np.float64)
        return [self._block(found[0], "ones", 1, self._spread(values[:, None]), found[1], 1.0)]

    def sums(self) -> list[LinearBlock]:
        found = next((pair for pair in self.message.fields.items() if facts_of(pair[1].kind).sums), None)
        if found is not None and len(found[1].shape) == 2 and len(found[1].values) == len(self.order):
            return [self._block(found[0], "features", 1, self._spread(found[1].values), found[1], 1.0)]
        found, known = field_of(self.message, "class_means"), self._known()
        if found is not None and known is not None and len(found[1].values) == len(self.order):
            total = self._spread(found[1].values) * known[:, None]
            return [self._block(found[0], "features", 1, total, found[1], known)]
        found, ridge = field_of(self.message, "ridge_weights"), regularised(self.message)
        if found is None or ridge is None:
            return []
        # W C is the class sums whatever the ridge is; rounding of either reaches the product.
        total = self._spread(found[1].values.astype(np.float64) @ ridge.second)
        scale = float(np.sqrt(np.mean(total**2))) if total.size else 0.0
        own = LinearBlock(
            found[0], "features", 1, True, total,
            np.full(self.classes, noise_of(found[1])), np.full(self.classes, 8 * ridge.unit * scale),
        )  # fmt: skip
        return [own]

    def moment(self) -> list[LinearBlock]:
        found = field_of(self.message, "second_moment")
        if found is not None:
            return [self._block(found[0], "features", 2, square(found[1].values), found[1], 1.0, by_class=False)]
        ridge = regularised(self.message)
        if ridge is None:
            return []
        found = field_of(self.message, "regularised_gram") or field_of(self.message, "inverse_gram")
        assert found is not None
        plain = ridge.without(ridge.gamma)
        scale = ridge.unit * float(np.sqrt(np.mean(ridge.second**2)))
        error = np.array([noise_of(found[1])]), np.array([scale])
        return [LinearBlock(found[0], "features", 2, False, plain, *error, free_ridge=True)]

    def by_class(self) -> list[LinearBlock]:
        found = field_of(self.message, "class_second_moments")
        if found is not None:
            whole = self._unpacked(found[1])
            of: Of = "features" if whole.ndim == 3 else "squares"
            return [self._block(found[0], of, 2 if whole.ndim == 3 else 1, self._spread(whole), found[1], 1.0)]
        found, known, means = field_of(self.message, "class_covariances"), self._known(), self._means()
        if found is None or known is None or means is None:
            return []
        whole = self._unpacked(found[1])
        centres = means[:, :, None] * means[:, None, :] if whole.ndim == 3 else means**2
        total = known.reshape(-1, *(1,) * (whole.ndim - 1)) * self._spread(whole + centres)
        name: Of = "features" if whole.ndim == 3 else "squares"
        return [self._block(found[0], name, 2 if whole.ndim == 3 else 1, total, found[1], known)]

    def mixtures(self) -> list[LinearBlock]:
        """Means and covariances of mixtures, as sums of a class's records.

        One component is its class's mean and covariance; of several see `mixture_sums`.
        """
        means, known = field_of(self.message, "mixture_means"), self._known()
        mixed = message_mixtures(self.message)
        spread = field_of(self.message, "mixture_covariances")
        if means is None or spread is None or mixed is None or known is None:
            return []
        if len(mixed.components) != len(self.order) or not len(self.order):
            return []
        if (mixed.components > 1).any():
            return MixtureSums(self.message, mixed, self.order, known, self._scales).blocks()
        centres = means[1].values.astype(np.float64)
        first = self._block(means[0], "features", 1, self._spread(centres) * known[:, None], means[1], known)
        values = spread[1].values.astype(np.float64)
        if values.ndim == 1:
            norms = mixed.width * values + (centres**2).sum(axis=1)
            total = (self._spread(norms[:, None])) * known[:, None]
            return [first, self._block(spread[0], "norms", 1, total, spread[1], known * mixed.width)]
        if values.shape[1] == mixed.width:
            values, lost = above_floor(values, centres)
            total = self._spread(values + centres**2) * known[:, None]
            block = self._block(spread[0], "squares", 1, total, spread[1], known)
            rounding = np.hypot(block.rounding, known * self._spread(lost))
            return [first, replace(block, rounding=rounding)]
        whole = self._spread(unpack_lower(values) + centres[:, :, None] * centres[:, None, :])
        block = self._block(spread[0], "features", 2, whole * known[:, None, None], spread[1], known)
        # Covariances are fitted with something on their diagonal that the message does not name.
        return [first, replace(block, free_ridge=True)]

    def images(self) -> list[LinearBlock]:
        found, counts = field_of(self.message, "magnitude_mean"), self._known()
        if found is None or counts is None:
            return []
        size = float(counts.sum())
        if found[1].values.ndim != 3:
            return []
        values = halved(found[1].values[None]).ravel() * size
        block = self._block(found[0], "magnitudes", 1, values, found[1], size, by_class=False)
        # Noise is declared on the sum over half the spectrum, which is sent divided.
        return [replace(block, noise=np.array([noise_of(found[1])]))]

    def _known(self) -> Matrix | None:
        """Records per class, shape (C,)."""
        found = self.message.of_kind("class_counts")
        if found is not None and found.shape == self.order.shape:
            return np.maximum(self._spread(found.astype(np.float64)), 0.0)
        return None if self.sizes is None else self.sizes.astype(np.float64)

    def _means(self) -> Matrix | None:
        found, sums, known = self.message.of_kind("class_means"), self.message.of_kind("class_sums"), self._known()
        if found is not None:
            return found.astype(np.float64)
        if sums is None or known is None:
            return None
        return np.asarray(sums / np.maximum(known[self.order], 1.0)[:, None])

    def _unpacked(self, item: MessageField) -> Matrix:
        values = item.values.astype(np.float64)
        sums = field_of(self.message, "class_sums") or field_of(self.message, "class_means")
        if values.ndim == 2 and sums is not None and values.shape[1] != sums[1].shape[1]:
            return unpack_lower(values)
        return values

    def _spread(self, values: Floats) -> Matrix:
        whole = np.zeros((self.classes, *values.shape[1:]))
        whole[self.order] = values
        return whole

    def _scales(self, item: MessageField) -> Matrix:
        """Declared standard deviations of the noise on each class's part of a field, shape (C,)."""
        scales = np.full(self.classes, noise_of(item))
        declared = item.release.noise_scale if item.release.mechanism == "gaussian" else None
        if declared is not None and len(declared) == len(self.order):
            scales[self.order] = declared
        return scales

    def _block(
        self,
        name: str,
        of: Of,
        power: Literal[1, 2],
        total: Matrix,
        item: MessageField,
        factor: float | Matrix,
        *,
        by_class: bool = True,
    ) -> LinearBlock:
        """A block with the entries of a field, times a factor for each class."""
        size = self.classes if by_class else 1
        scales = self._scales(item) if by_class else np.full(size, noise_of(item))
        flat = total.reshape(size, -1)
        usual = np.sqrt(np.mean(flat**2, axis=1)) if flat.size else np.zeros(size)
        # A joint release over all classes noises the sums themselves, from which means are derived.
        lifted = scales * (factor if item.release.cells != ("all",) else 1.0)
        return LinearBlock(name, of, power, by_class, total, np.asarray(lifted), roundoff(item.values) * usual)
