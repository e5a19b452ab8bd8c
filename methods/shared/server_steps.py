"""The server's step on the global parameters, from the clients' average: to their mean, or by Yogi's step."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedassay.support.types import Frozen


class Server(Frozen):
    """FedYogi's server; defaults are those of Beitollahi et al. 2024, appendix D.

    Attributes:
        name: `yogi`: Reddi et al., "Adaptive Federated Optimization", ICLR 2021, algorithm 2.
        learning_rate: eta.
        beta1: Decay of the mean of the updates.
        beta2: Rate at which the second moment follows their squares.
        tau: Added to the root of the second moment.
        start: The second moment before the first round.
    """

    name: Literal["yogi"] = "yogi"
    learning_rate: float = Field(default=0.01, gt=0, allow_inf_nan=False)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.99, ge=0, lt=1)
    tau: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    start: float = Field(default=1e-6, ge=0, allow_inf_nan=False)


ServerKey = Annotated[Server | None, Field(exclude_if=lambda given: given is None)]
"""The type of a key `server` with default None: the clients' mean."""


class ServerSteps:
    """The global parameters over the rounds of a run: a function of the messages.

    Args:
        server: None: the clients' mean as it is.
        start: The parameters before the first round, shape (p,).
        parameters: Number of parameters at the start of the vector; the statistics of batch normalisation behind
            them are averaged.
    """

    def __init__(self, server: Server | None, start: NDArray[np.float32], parameters: int) -> None:
        self._server, self._parameters = server, parameters
        self.current = start
        self._mean = np.zeros(parameters)
        self._second = np.full(parameters, 0.0 if server is None else server.start)

    def move(self, averaged: NDArray[np.float32]) -> NDArray[np.float32]:
        """Take a round's step towards the clients' mean, shape (p,); the parameters after it."""
        if self._server is not None:
            averaged = averaged.copy()
            averaged[: self._parameters] = self._yogi(self._server, averaged[: self._parameters])
        self.current = averaged
        return self.current

    def _yogi(self, server: Server, averaged: NDArray[np.float32]) -> NDArray[np.float64]:
        before = self.current[: self._parameters].astype(np.float64)
        update = averaged - before
        square = update**2
        self._mean = server.beta1 * self._mean + (1 - server.beta1) * update
        self._second = self._second - (1 - server.beta2) * square * np.sign(self._second - square)
        moved = before + server.learning_rate * self._mean / (np.sqrt(self._second) + server.tau)
        return np.asarray(moved, dtype=np.float64)
