"""GH-OFL (Turazza et al., ICLR 2026, arXiv 2602.01186): Gaussian heads from class-wise second moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fedassay.contracts.facts import EVERY_UNIT, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.data.records import Records
from fedassay.exchange.public_map import PublicMap, projection
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.heads.gaussian import GlobalMoments, Statistics, gaussian_head, moments
from fedassay.heads.linear import Head
from fedassay.heads.quadratic import QuadraticHead
from fedassay.methods.closed_forms.statistics import (
    GROUP,
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
from fedassay.privacy.mechanisms import Sums, class_sums, noised_sums
from fedassay.privacy.sensitivities import class_sums as class_sums_sensitivity
from fedassay.privacy.symmetric import Family, project_psd
from fedassay.support.errors import DataError
from fedassay.support.types import Floats, Matrix, Parameters

_SOURCE = "joint Gaussian mechanism on (N, A, S), analytic calibration; the paper has no private form"
_LEAST_VARIANCE = 1e-9


@register("method", "gh_ofl")
class GHOFL(Parameters):
    """Clients send class counts, sums and second moments; the server makes Gaussian heads of them (GH-OFL).

    These are the paper's heads in closed form: `qda`, a covariance a class; `lda`, one covariance of all records;
    `nb`, variances alone. Covariances are shrunk, (1 - a) Sigma + a trace / d I. The authors' clients send
    class-wise diagonals with one second moment of all records, and whole class-wise matrices for QDA; the whole
    matrices give both, and `moments` chooses. With `sketch`, statistics are of z = R^T f, R of independent N(0, 1
    / d) entries from a public seed, which the server sends beside the head. The paper regards that as privacy, but
    sketches are features, and their second moments are Gram matrices like the others.

    Private runs clip the (sketched) features to norm 1, and noise (N, A, S) jointly. Classes with a count below
    twice its noise are treated as absent.

    Attributes:
        head: The kind of head that the server computes.
        moments: Class-wise second moments: whole, or their diagonals, which give `nb` alone.
        sketch: Width of the projection; 0: none.
        shrinkage: a; .05 to .07 in the authors' code.
        transport: Data type of sums and second moments in messages.
        secure_aggregation: Whether the server sees individual messages (`none`) or only sums over the clients
            (`all`).
    """

    facts: ClassVar[MethodFacts] = MethodFacts(
        units=EVERY_UNIT, cost=seconds_of_moments, sends=("class_sums", "class_counts", "class_second_moments")
    )

    head: Literal["qda", "lda", "nb"] = "qda"
    moments: Literal["full", "diagonal"] = "full"
    sketch: int = Field(default=0, ge=0)
    shrinkage: float = Field(default=0.07, gt=0, le=1)
    transport: Literal["float64", "float32"] = "float64"
    secure_aggregation: Literal["none", "all"] = "none"

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.moments == "diagonal" and self.head != "nb":
            raise ValueError(
                f"gh_ofl: diagonal moments give no {self.head} head; allowed: head nb, or moments full"
            )
        return self

    def run(self, task: MethodInput) -> Outcome:
        """One round: counts, sums and second moments up, head down.

        Raises:
            DataError: No client has a record, or there are too few for a covariance.
        """
        task.require_records("gh_ofl")
        adjacency, family = task.privacy.adjacency, self._family
        width = self.sketch or task.backbone.width
        sensitivity = class_sums_sensitivity(width, adjacency=adjacency, classes=task.classes, family=family)
        noise = joint_noise(task, sensitivity.sensitivity)
        features = FeatureMap(self._sketch(task), clip=noise is not None)
        messages = task.spool.keep_all(self._message(client, features, noise, task) for client in task.clients)
        each = width * (width + 1) // 2 if self.moments == "full" else width
        sent = Sent(
            "gh_ofl",
            messages,
            _SOURCE,
            len(task.clients) * float(task.classes * (1 + width + each)),
            np.dtype(self.transport).itemsize,
            noise,
            {}
            if noise is None
            else {
                "statistics": reruns.class_sums(
                    adjacency=adjacency, sigmas=(noise.scale,) * 3, family=family, unit=noise.target.unit
                )
            },
        )
        return outcome_of(sent, lambda: self._solve(messages, noise, task), features, task)

    @property
    def _family(self) -> Family:
        return "full" if self.moments == "full" else "diag"

    def _sketch(self, task: MethodInput) -> PublicMap | None:
        if not self.sketch:
            return None
        return projection(task.backbone.width, self.sketch, task.seeds.numpy("sketch"))

    def _message(
        self, client: Records, features: FeatureMap, noise: JointNoise | None, task: MethodInput
    ) -> Message:
        own = class_sums(
            features(client.features), client.labels, task.classes, self._family, task.weights(client)
        )
        if noise is not None:
            mechanism = task.mechanism(client.name, 0, GROUP)
            own = noised_sums(own, (noise.scale,) * 3, mechanism, full=self.moments == "full")
        release, secure = release_of(noise), self.secure_aggregation == "all"

        def sent(values: Matrix) -> Floats:
            return to_transport(values, self.transport, "gh_ofl: moments", clip=noise is not None)

        second = pack_lower(own.second) if self.moments == "full" else own.second
        counts = own.counts.astype(np.int32) if noise is None else sent(own.counts)
        of_counts = exact("labels") if noise is None else release
        fields = {
            "N": MessageField(counts, "class_counts", of_counts, additive=True, secure=secure),
            "A": MessageField(sent(own.sums), "class_sums", release, additive=True, secure=secure),
            "S": MessageField(sent(second), "class_second_moments", release, additive=True, secure=secure),
        }
        return Message(0, client.name, SERVER, fields)

    def _solve(
        self, messages: Sequence[Message], noise: JointNoise | None, task: MethodInput
    ) -> tuple[Head, tuple[str, ...]]:
        counts, sums, second = (np.sum(received(messages, name), axis=0) for name in ("N", "A", "S"))
        whole = unpack_lower(second) if self.moments == "full" else second
        least = max(0.5, 2 * total_noise(noise, task))
        if self.head == "lda":
            found = moments(Statistics(counts, sums, whole.sum(axis=0)), "total", least=least)
            covariance = _usable(found.covariance, self.shrinkage, noise)
            kept = GlobalMoments(found.classes, found.priors, _inside(found.means, noise), covariance)
            return gaussian_head(kept, 0.0).head, ()
        return self._quadratic(Sums(counts, sums, whole), least, noise), ()

    def _quadratic(self, own: Sums, least: float, noise: JointNoise | None) -> QuadraticHead:
        kept = np.flatnonzero(own.counts > least)
        if not kept.size:
            raise DataError("gh_ofl: no class has a usable count")
        counts = own.counts[kept]
        means = _inside(own.sums[kept] / counts[:, None], noise)
        second = own.second[kept] / counts.reshape(-1, *(1,) * (own.second.ndim - 1))
        if self.head == "nb":
            variances = second if second.ndim == 2 else np.diagonal(second, axis1=1, axis2=2)
            found = np.maximum(variances - means**2, 0.0)
            found = (1 - self.shrinkage) * found + self.shrinkage * found.mean(axis=1, keepdims=True)
            spreads = np.maximum(found, _LEAST_VARIANCE)
        else:
            scatter = second - means[:, :, None] * means[:, None, :]
            spreads = np.array([_usable(each, self.shrinkage, noise) for each in scatter])
        return QuadraticHead(kept.astype(np.int64), counts / counts.sum(), means, spreads)


def _inside(means: Matrix, noise: JointNoise | None) -> Matrix:
    """Means, those of noised sums brought back into the unit ball."""
    if noise is None:
        return means
    return np.asarray(means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1.0))


def _usable(covariance: Matrix, shrinkage: float, noise: JointNoise | None) -> Matrix:
    """Shrunk towards a sphere of the same scale; of noised ones the nearest semi-definite matrix."""
    width = len(covariance)
    given = covariance if noise is None else project_psd(covariance)
    level = max(float(np.trace(given)) / width, _LEAST_VARIANCE)
    return np.asarray((1 - shrinkage) * given + shrinkage * level * np.eye(width))
