"""Fed3R (Fani et al., ICML 2024, arXiv 2406.01116): recursive ridge regression from Gram and label matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedassay.contracts.facts import EVERY_UNIT, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.data.records import Records
from fedassay.exchange.public_map import PublicMap, fourier_features, separating_bandwidth
from fedassay.exchange.transcript import Message
from fedassay.heads.linear import LinearHead
from fedassay.heads.ridge import ridge_weights, rows_of_norm_one, without_bias
from fedassay.methods.closed_forms.ridge_sums import Transport, added, noised_ridge_sums, ridge_sums_message
from fedassay.methods.closed_forms.statistics import (
    GROUP,
    FeatureMap,
    JointNoise,
    Sent,
    joint_noise,
    outcome_of,
    seconds_of_moments,
    total_noise,
)
from fedassay.privacy import reruns
from fedassay.privacy.mechanisms import release_shared_sums
from fedassay.privacy.reruns import Experiment
from fedassay.privacy.sensitivities import ridge_sums as ridge_sums_sensitivity
from fedassay.privacy.sensitivities import shared_sums as shared_sums_sensitivity
from fedassay.support.errors import PlanError
from fedassay.support.types import Matrix, Parameters

_SOURCE = "joint Gaussian mechanism on what is sent, analytic calibration; the paper has no private form"


@register("method", "fed3r")
class Fed3R(Parameters):
    """Clients send A = Z^T Z and b = Z^T Y, Z the features with a constant column; one ridge at the server.

    The head is (A + ridge I)^-1 b, its columns scaled to norm 1 without their bias, as in the authors' `fed3r.py`.
    The constant column makes the first moments part of A, and the class counts part of b. With `random_features`,
    Z is made of sqrt(2 / D) cos(W x + c), W and c from a public seed, which approximates a Gaussian kernel
    (Fed3R-RF; the released code has none). The server sends W and c beside the head: they protect nothing. A
    malicious server (`threat.server`) sends a W with entries so large that no two records look similar
    (`separating_bandwidth`).

    Private runs clip features to norm 1, the constant left out. `joint` noises (A, b) as they are: with the
    constant the sensitivity is sqrt(6), or sqrt(12) where a record is replaced. `assembled` noises the counts N,
    class sums and second moment without the constant (sqrt(3), sqrt(4.5) or sqrt(6)) and makes A and b of these:
    nothing is noised twice.

    Random features have norm at most sqrt(2) and about 1 in the mean, so that clipping them to 1 lowers the
    sensitivity from sqrt(12) to sqrt(6) and shortens them by little. These sensitivities stay exact, though z lies
    on a surface of as many dimensions as x. The cosines along almost every line in x come arbitrarily near to
    every point of the cube [-1, 1]^D (Kronecker). The scaled cube holds every unit vector without an entry above
    sqrt(2 / D), the worst pairs among them. With D at most the width of x they are attained.

    Attributes:
        ridge: The paper's lambda.
        random_features: Number D of random features; 0: none.
        bandwidth: Bandwidth of the Gaussian kernel that they approximate.
        mechanism: The statistics that a private run noises.
        transport: Data type of A and b in messages.
        secure_aggregation: Whether the server sees individual messages (`none`) or only sums over the clients
            (`all`).
    """

    facts: ClassVar[MethodFacts] = MethodFacts(
        units=EVERY_UNIT, cost=seconds_of_moments, malicious="broadcast", sends=("class_sums", "second_moment")
    )

    ridge: float = Field(default=0.01, gt=0, allow_inf_nan=False)
    random_features: int = Field(default=0, ge=0)
    bandwidth: float = Field(default=3.0, gt=0, allow_inf_nan=False)
    mechanism: Literal["joint", "assembled"] = "joint"
    transport: Transport = "float32"
    secure_aggregation: Literal["none", "all"] = "none"

    def run(self, task: MethodInput) -> Outcome:
        """One round: Gram and label matrices up, head down.

        Raises:
            DataError: No client has a record.
        """
        task.require_records("fed3r")
        noise, features = joint_noise(task, self._sensitivity(task)), self._features(task)
        messages = task.spool.keep_all(self._message(client, features, noise, task) for client in task.clients)
        width = self._width(task)
        sent = Sent(
            "fed3r",
            messages,
            _SOURCE,
            len(task.clients) * float(width * width + task.classes * width),
            np.dtype(self.transport).itemsize,
            noise,
            {} if noise is None else {"statistics": self._experiment(noise)},
        )
        return outcome_of(sent, lambda: self._solve(messages, noise, task), features, task)

    def _width(self, task: MethodInput) -> int:
        """With the constant."""
        return (self.random_features or task.backbone.width) + 1

    def _features(self, task: MethodInput) -> FeatureMap:
        project: PublicMap | None = None
        if self.random_features:
            rng, bandwidth = task.seeds.numpy("random features"), self.bandwidth
            if task.adversary is not None:
                bandwidth = separating_bandwidth(task.adversary.features)
            project = fourier_features(task.backbone.width, self.random_features, bandwidth, rng)
        elif task.adversary is not None:
            raise PlanError(
                "fed3r: threat.server malicious without random features leaves the server no choice; allowed: "
                "random_features above 0"
            )
        return FeatureMap(project, constant=True, clip=task.privacy.private)

    def _sensitivity(self, task: MethodInput) -> float:
        adjacency, classes, width = task.privacy.adjacency, task.classes, self._width(task)
        if self.mechanism == "assembled":
            return shared_sums_sensitivity(width - 1, adjacency=adjacency, classes=classes).sensitivity
        return ridge_sums_sensitivity(width, adjacency=adjacency, classes=classes, constant=True).sensitivity

    def _experiment(self, noise: JointNoise) -> Experiment:
        target = noise.target
        if self.mechanism == "assembled":
            return reruns.beside_constant(
                reruns.shared_sums(adjacency=target.adjacency, sigmas=(noise.scale,) * 3, unit=target.unit)
            )
        return reruns.ridge_sums(
            adjacency=target.adjacency, sigmas=(noise.scale,) * 2, constant=True, unit=target.unit
        )

    def _message(
        self, client: Records, features: FeatureMap, noise: JointNoise | None, task: MethodInput
    ) -> Message:
        if noise is not None and self.mechanism == "assembled":
            gram, sums = _assembled(features(client.features), client, noise, task)
        else:
            gram, sums = noised_ridge_sums(client, features, noise, task)
        secure = self.secure_aggregation == "all"
        return ridge_sums_message(client.name, gram, sums, noise, self.transport, secure=secure)

    def _solve(
        self, messages: Sequence[Message], noise: JointNoise | None, task: MethodInput
    ) -> tuple[LinearHead, tuple[str, ...]]:
        gram, sums = added(messages)
        kept = np.flatnonzero(np.abs(sums).max(axis=1) > 0).astype(np.int64)
        solved = ridge_weights(gram, sums[kept], self.ridge, noise=total_noise(noise, task))
        # The constant feature carries the bias.
        return without_bias(kept, rows_of_norm_one(solved, beside=1)), ()


def _assembled(rows: Matrix, client: Records, noise: JointNoise, task: MethodInput) -> tuple[Matrix, Matrix]:
    """A and b from noised counts, class sums and second moment of features (n, d) without their constant."""
    counts, sums, second = release_shared_sums(
        rows[:, :-1],
        client.labels,
        task.classes,
        sigmas=(noise.scale,) * 3,
        noise=task.mechanism(client.name, 0, GROUP),
        weights=task.weights(client),
    )
    first = sums.sum(axis=0)
    gram = np.block([[second, first[:, None]], [first[None], np.full((1, 1), counts.sum())]])
    return gram, np.concatenate([sums, counts[:, None]], axis=1)
