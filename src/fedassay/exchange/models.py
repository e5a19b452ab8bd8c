"""Computations on a model in a message: classifiers score records, generators make images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from fedassay.data.records import Records
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images, Matrix

if TYPE_CHECKING:
    from torch import nn


class Generator(Protocol):
    """Something a method sent that generates images (a diffusion model, a decoder)."""

    def sample(self, count: int, seeds: Seeds, progress: Progress) -> Images:
        """`count` generated images, shape (count, H, W, C), uint8."""
        ...


@runtime_checkable
class ScoringModel(Protocol):
    """A classifier that says how sure it is."""

    def scores(self, records: Records) -> Matrix:
        """Class scores (logits), shape (n, C); -inf for a class that it does not know."""
        ...


@runtime_checkable
class SentModule(Protocol):
    """A network with known weights: its gradient can be computed of any input."""

    def network(self) -> nn.Module:
        """A network of its own, from images (n, channels, height, width), 0 to 255, to class scores (n, C)."""
        ...


SURE = 40.0
"""Largest logit of a probability; float64 knows no difference beyond."""


def label_logits(model: ScoringModel, records: Records) -> Matrix:
    """Logit of the probability that a classifier gives each record's own label, shape (n,), within +-`SURE`.

    Close to normal over models where the probability is not (Carlini et al., "Membership Inference Attacks From
    First Principles", 2022, section VI-A).
    """
    scores = model.scores(records)
    rows = np.arange(len(records))
    own, others = scores[rows, records.labels], scores.copy()
    others[rows, records.labels] = -np.inf
    with np.errstate(invalid="ignore"):
        top = others.max(axis=1, keepdims=True)
        rest = top[:, 0] + np.log(np.exp(others - top).sum(axis=1))
        return np.asarray(np.nan_to_num(own - rest, nan=0.0, posinf=SURE, neginf=-SURE).clip(-SURE, SURE))


@runtime_checkable
class ScoringGenerator(Protocol):
    """A generative model that says how well it explains a record."""

    def losses(self, records: Records, levels: Sequence[float], seeds: Seeds) -> Matrix:
        """Loss of each record at each noise level, lower where it is explained better.

        For a diffusion model: mean squared error of the predicted noise, conditioned on the label where the
        model is conditional. For a decoder: the deviance of a pixel at the best latent vector that is found
        (`fedassay.nets.latent_search`). Random numbers must come from `seeds` alone, the same for every model.

        Args:
            records: Images and labels.
            levels: Positions in the noise schedule, in (0, 1); 1 is pure noise. Each has a noise of its own, also
                where it is named twice.
            seeds: Of the noise that is added, or of the latent vectors that are tried.

        Returns:
            Shape (n, len(levels)), at least 0; (n, 1) where the model has no levels.
        """
        ...
