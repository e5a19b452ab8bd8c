"""Classifiers with sent parameters, as receivers of a run's messages can evaluate them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedassay.data.records import Records
from fedassay.exchange.transcript import Message
from fedassay.methods.shared.local_networks import outputs
from fedassay.nets.state import state_of, write_tensors


@dataclass(frozen=True, eq=False)
class SentNetwork:
    """A classifier with the parameters that a message carries: a `fedassay.exchange.models.ScoringModel`.

    Attributes:
        module: The architecture; its own parameters do not matter and stay as they are.
        values: All its parameters, one after the other, and statistics of batch normalisation that were trained.
    """

    module: nn.Module
    values: NDArray[np.float32]

    def network(self) -> nn.Module:
        """A network of its own that holds these parameters, ready to be evaluated."""
        own = copy.deepcopy(self.module).eval()
        write_tensors(state_of(own), self.values)
        return own

    def scores(self, records: Records) -> NDArray[np.float64]:
        """Class scores (logits), shape (n, C)."""
        return outputs(self.network(), records.images).astype(np.float64)


def sent_networks(module: nn.Module, messages: Sequence[Message]) -> dict[tuple[str, int], SentNetwork]:
    """The network in every message that carries all parameters, by sender and round, the last one of each."""
    template = copy.deepcopy(module)
    return {
        (message.sender, message.round): SentNetwork(template, values.astype(np.float32))
        for message in messages
        if (values := message.of_kind("parameters")) is not None
    }
