"""One-shot federated ridge regression (Alsulaimawi 2026, arXiv 2601.08216): a Gram matrix and a moment matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedassay.contracts.facts import EVERY_UNIT, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.exchange.transcript import Message
from fedassay.heads.estimators import RidgeEstimator
from fedassay.heads.linear import LinearHead
from fedassay.heads.ridge import ridge_weights, without_bias
from fedassay.methods.closed_forms.ridge_sums import Transport, added, noised_ridge_sums, ridge_sums_message
from fedassay.methods.closed_forms.statistics import (
    FeatureMap,
    JointNoise,
    Sent,
    joint_noise,
    outcome_of,
    seconds_of_moments,
    total_noise,
)
from fedassay.privacy import reruns
from fedassay.privacy.paper_formulas import classical_sigma
from fedassay.privacy.sensitivities import ridge_sums as ridge_sums_sensitivity
from fedassay.support.types import Parameters

_SOURCES = {
    "tight": "noise once per client on (G, h) jointly, analytic Gaussian mechanism",
    "classical": "noise once per client on G and h, each by the classical Gaussian mechanism at all of epsilon",
}


@register("method", "one_shot_ridge")
class OneShotRidge(Parameters):
    """Clients send G = X^T X and h = X^T Y once; the server solves (sum G + ridge I) W = sum h.

    The solution is that of the pooled records, for every partition. The paper adds noise once per client, and says
    that a single round avoids composition. Features are clipped to norm 1 in private runs. There are two
    calibrations. `tight` is that of the joint release (G, h). `classical` treats the two as separate releases,
    each of sensitivity 1 (under add_remove) with the whole budget and sqrt(2 ln(1.25 / delta)) / epsilon: one
    round, but two releases, and a formula that is proven for epsilon below 1 alone.

    Attributes:
        ridge: Added to the diagonal of the summed Gram matrix.
        mechanism: The calibration of the noise.
        transport: Data type of G and h in messages.
        secure_aggregation: Whether the server sees individual messages (`none`) or only sums over the clients
            (`all`).
    """

    facts: ClassVar[MethodFacts] = MethodFacts(
        units=EVERY_UNIT, cost=seconds_of_moments, sends=("class_sums", "second_moment")
    )

    ridge: float = Field(default=0.01, gt=0, allow_inf_nan=False)
    mechanism: Literal["tight", "classical"] = "tight"
    transport: Transport = "float64"
    secure_aggregation: Literal["none", "all"] = "none"

    def run(self, task: MethodInput) -> Outcome:
        """One round: Gram and moment matrices up, head down.

        Raises:
            DataError: No client has a record.
        """
        task.require_records("one_shot_ridge")
        noise, features = self._noise(task), FeatureMap(clip=task.privacy.private)
        secure = self.secure_aggregation == "all"
        messages = task.spool.keep_all(
            ridge_sums_message(
                client.name,
                *noised_ridge_sums(client, features, noise, task),
                noise,
                self.transport,
                secure=secure,
            )
            for client in task.clients
        )
        width = task.backbone.width
        sent = Sent(
            "one_shot_ridge",
            messages,
            _SOURCES[self.mechanism],
            len(task.clients) * float(width * (width + 1) // 2 + task.classes * width),
            np.dtype(self.transport).itemsize,
            noise,
            {}
            if noise is None
            else {
                "statistics": reruns.ridge_sums(
                    adjacency=noise.target.adjacency, sigmas=(noise.scale, noise.scale), unit=noise.target.unit
                )
            },
        )
        estimator = RidgeEstimator(self.ridge, total_noise(noise, task))
        return outcome_of(sent, lambda: self._solve(messages, noise, task), features, task, estimator)

    def _noise(self, task: MethodInput) -> JointNoise | None:
        privacy = task.privacy

        def sensitivity(*weights: float) -> float:
            sums, gram = weights
            return ridge_sums_sensitivity(
                task.backbone.width,
                adjacency=privacy.adjacency,
                classes=task.classes,
                weights=(sums, gram),
            ).sensitivity

        joint = sensitivity(1.0, 1.0)
        if self.mechanism == "tight" or not privacy.private:
            return joint_noise(task, joint)
        each = max(sensitivity(1.0, 0.0), sensitivity(0.0, 1.0))
        scale = classical_sigma(privacy.epsilon, privacy.delta, each)
        return JointNoise(scale, joint, privacy)

    def _solve(
        self, messages: Sequence[Message], noise: JointNoise | None, task: MethodInput
    ) -> tuple[LinearHead, tuple[str, ...]]:
        gram, sums = added(messages)
        kept = np.flatnonzero(np.abs(sums).max(axis=1) > 0).astype(np.int64)
        weights = ridge_weights(gram, sums[kept], self.ridge, noise=total_noise(noise, task))
        return without_bias(kept, weights), ()
