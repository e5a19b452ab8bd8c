"""DP-SGD of persons: the unit that is sampled and clipped is a person, its gradient the mean over its records.

A person takes the place that a record has in the loop, in the watch and on the tape: a row of the training set
that holds all of its records. Its loss is the mean of theirs, so its gradient is the mean of theirs, which is
clipped as one. Persons with fewer records than others are filled up with their first record, of weight 0 there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedassay.nets.dp_sgd.clipped_sums import Objective, RecordStreams, Rows
from fedassay.nets.dp_sgd.tape import Training
from fedassay.support.types import Ints

_NOBODY = -1
"""Label of padding in a row."""


def by_persons(training: Training, places: Ints | None) -> Training:
    """The training of records as one of persons; `places`: see `side_by_side`, None: as it is."""
    if places is None:
        return training
    inputs, labels = side_by_side(training.inputs, training.labels, places)
    return replace(
        training, inputs=inputs, labels=labels, objective=of_persons(training.objective, places.shape[1])
    )


def side_by_side(inputs: Tensor, labels: Tensor, places: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Records as rows of persons.

    Args:
        inputs: Inputs of the records, (n, ...).
        labels: Shape (n,).
        places: Of each person's records, (U, m), -1 where it has fewer than m and at least one.

    Returns:
        Inputs (U, m, ...) and labels (U, m), -1 where a row is filled up.
    """
    own = np.where(places < 0, places[:, :1], places)
    index = torch.from_numpy(own).to(labels.device)
    empty = torch.from_numpy(places < 0).to(labels.device)
    return inputs[index.to(inputs.device)], labels[index].masked_fill(empty, _NOBODY)


def of_persons(objective: Objective, most: int) -> Objective:
    """The loss of persons from that of records.

    Args:
        objective: The loss of single records.
        most: m, records in a row of `side_by_side`.
    """

    def rows(inputs: Tensor, labels: Tensor, streams: RecordStreams) -> Rows:
        held = labels >= 0
        weights = held * (most / held.sum(dim=1, keepdim=True).clamp(min=1))
        given = objective.rows(inputs.flatten(0, 1), labels.clamp(min=0).flatten(), streams.spread(most))
        return (*given, weights.float().flatten().repeat_interleave(objective.draws).to(given[0].device))

    def losses(network: Any, *given: Tensor) -> Tensor:
        return objective.losses(network, *given[:-1]) * given[-1]

    return Objective(rows, losses, objective.draws * most, max(1, objective.together // most))
