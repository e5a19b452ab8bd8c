"""AFL (He et al., CVPR 2025, arXiv 2405.16240): ridge weights and a regularised Gram matrix from every client."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedassay.contracts.facts import EVERY_UNIT, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.data.records import Records
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.heads.estimators import RidgeEstimator
from fedassay.heads.linear import LinearHead
from fedassay.heads.ridge import ridge_weights, without_bias
from fedassay.methods.closed_forms.ridge_sums import noised_ridge_sums
from fedassay.methods.closed_forms.statistics import (
    FeatureMap,
    JointNoise,
    Sent,
    joint_noise,
    outcome_of,
    received,
    release_of,
    seconds_of_moments,
    total_noise,
)
from fedassay.mixtures.packed import pack_lower, to_transport, unpack_lower
from fedassay.privacy import reruns
from fedassay.privacy.sensitivities import ridge_sums as ridge_sums_sensitivity
from fedassay.support.types import Matrix, Parameters

_SOURCE = "joint Gaussian mechanism on X^T X and X^T Y, analytic calibration; the paper has no private form"


@register("method", "afl")
class AFL(Parameters):
    """Clients send ridge weights and a regularised Gram matrix; the server adds them up (AFL).

    Client k sends C_k = X^T X + gamma I and W_k = C_k^-1 X^T Y. The absolute aggregation law turns K of them into
    W = (sum C_k)^-1 sum C_k W_k, for every partition; removing K gamma leaves (C - K gamma I)^-1 C W, ordinary
    least squares. Where that is singular the ridge stays, and a note says so. The authors' code accumulates in
    float32 and also sends C_k^-1, which follows from C_k.

    Private runs clip features to norm 1 and noise (X^T X, X^T Y) jointly; C_k and W_k are computed from the noised
    sums, and the server's C_k W_k gives the noised X^T Y back. There is no count, and none follows.

    Attributes:
        gamma: Ridge of every client; 1 in the paper.
        remove_ridge: Whether the server removes K gamma again.
        transport: Data type of C_k and W_k in messages.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(
        units=EVERY_UNIT, cost=seconds_of_moments, sends=("regularised_gram", "ridge_weights")
    )

    gamma: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    remove_ridge: bool = True
    transport: Literal["float32", "float64"] = "float32"

    def run(self, task: MethodInput) -> Outcome:
        """One round: weights and Gram matrices up, head down.

        Raises:
            DataError: No client has a record.
        """
        task.require_records("afl")
        width, privacy = task.backbone.width, task.privacy
        sensitivity = ridge_sums_sensitivity(width, adjacency=privacy.adjacency, classes=task.classes).sensitivity
        noise = joint_noise(task, sensitivity)
        messages = task.spool.keep_all(self._message(client, noise, task) for client in task.clients)
        sent = Sent(
            "afl",
            messages,
            _SOURCE,
            len(task.clients) * float(width * width + task.classes * width),
            np.dtype(self.transport).itemsize,
            noise,
            {}
            if noise is None
            else {
                "statistics": reruns.ridge_sums(
                    adjacency=privacy.adjacency, sigmas=(noise.scale, noise.scale), unit=noise.target.unit
                )
            },
        )
        return outcome_of(
            sent,
            lambda: self._solve(messages, noise, task),
            FeatureMap(clip=noise is not None),
            task,
            RidgeEstimator(self._left(messages, noise), total_noise(noise, task)),
        )

    def _message(self, client: Records, noise: JointNoise | None, task: MethodInput) -> Message:
        gram, sums = noised_ridge_sums(client, FeatureMap(), noise, task)
        regularised = gram + self.gamma * np.eye(len(gram))
        # Noise may leave the matrix indefinite, but hardly ever singular: W carries the noised sums all the same.
        weights = np.linalg.solve(regularised, sums.T).T
        release = release_of(noise, "computed from noised X^T X and X^T Y")
        clip = noise is not None
        return Message(
            0,
            client.name,
            SERVER,
            {
                "W": MessageField(
                    to_transport(weights, self.transport, "afl: weights", clip=clip), "ridge_weights", release
                ),
                "C": MessageField(
                    to_transport(pack_lower(regularised), self.transport, "afl: Gram matrix", clip=clip),
                    "regularised_gram",
                    release,
                ),
            },
        )

    def _solve(
        self, messages: list[Message], noise: JointNoise | None, task: MethodInput
    ) -> tuple[LinearHead, tuple[str, ...]]:
        grams, left = [unpack_lower(gram) for gram in received(messages, "C")], self._left(messages, noise)
        # C_k W_k is the client's X^T Y: the absolute aggregation law, of all clients at once.
        sums = np.sum(
            [weights @ gram for weights, gram in zip(received(messages, "W"), grams, strict=True)], axis=0
        )
        added = len(messages) * self.gamma
        together = np.sum(grams, axis=0) - (added - left) * np.eye(len(grams[0]))
        kept = np.flatnonzero(np.abs(sums).max(axis=1) > 0)
        kept_on = self.remove_ridge and left > 0
        notes = ("the ridge was not removed: without it the Gram matrix is singular",) if kept_on else ()
        weights = ridge_weights(together, sums[kept], 0.0, noise=total_noise(noise, task))
        return without_bias(kept.astype(np.int64), weights), notes

    def _left(self, messages: list[Message], noise: JointNoise | None) -> float:
        """The ridge that the server leaves in the sum of the Gram matrices."""
        added = len(messages) * self.gamma
        if not self.remove_ridge:
            return added
        together = np.sum([unpack_lower(gram) for gram in received(messages, "C")], axis=0)
        plain = together - added * np.eye(len(together))
        removed = noise is not None or _regular(plain, together, np.dtype(self.transport))
        return 0.0 if removed else added


def _regular(plain: Matrix, sent: Matrix, transport: np.dtype[np.floating]) -> bool:
    """Whether the Gram matrix without its ridge has more in every direction than rounding in transport leaves."""
    values = np.linalg.eigvalsh(plain)
    return bool(values[0] > len(plain) * float(np.finfo(transport).eps) * np.abs(sent).max())
