"""FedCGS: class sums and one second moment from every client, a head without training.

Source: Guan, Zhou and Gu, "Capture Global Feature Statistics for One-Shot Federated Learning", AAAI 2025, arXiv
2503.06962.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from fedassay.contracts.facts import EVERY_UNIT, Given, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Sizes
from fedassay.data.records import Records
from fedassay.exchange.counts import MAX_DRAWN, remark
from fedassay.exchange.release import Release, exact
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.heads.estimating import Estimator
from fedassay.heads.estimators import GaussianEstimator
from fedassay.heads.gaussian import (
    RIDGE,
    GaussianHead,
    GlobalMoments,
    Statistics,
    aggregate,
    gaussian_head,
    moments,
    statistics,
)
from fedassay.heads.linear import FeatureModel, LinearHead
from fedassay.methods.fedcgs.generated import generated_head
from fedassay.methods.fedcgs.personal import Personalize, fine_tune, prototype_messages
from fedassay.methods.fedcgs.transform import Transform, make_transform
from fedassay.methods.shared.heads import HeadTraining, broadcast, by_server
from fedassay.methods.shared.personalized import personalized_accuracy
from fedassay.mixtures.packed import at_limit, pack_lower, to_transport, unpack_lower
from fedassay.plan import rates as rate
from fedassay.privacy import reruns
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.privacy.mechanisms import Sums, noised_sums
from fedassay.privacy.reruns import Experiment
from fedassay.privacy.secure_sums import SecureSum, secure_sum
from fedassay.privacy.sensitivities import shared_sums as shared_sums_sensitivity
from fedassay.privacy.tape import NoiseMechanism
from fedassay.support.errors import DataError, PlanError
from fedassay.support.types import Parameters

_GROUP = "statistics"

_SOURCE = "joint Gaussian mechanism on (N, A, B), analytic calibration; the paper has no private form"
"""The source of a private run's claim."""


@dataclass(frozen=True)
class _Noise:
    """The joint Gaussian mechanism on (N, A, B).

    Attributes:
        scale: Standard deviation on A and B that the mechanism is accounted with.
        sensitivity: Exact joint L2 sensitivity, rounding included where noise is divided.
        counts: Whether N is noised with the rest.
        divided: Division of the noise, where only the secure sum carries it whole.
    """

    scale: float
    sensitivity: float
    counts: bool
    divided: SecureSum | None

    def added(self, exact: Sums, noise_mechanism: NoiseMechanism) -> Sums:
        """One client's release."""
        noise = noise_mechanism if self.divided is None else self.divided.shares(noise_mechanism)
        return noised_sums(exact, (self.scale if self.counts else 0.0, self.scale, self.scale), noise, full=True)


def _seconds(given: Given, sizes: Sizes, private: bool) -> float:
    width = given["expansion"] or sizes.width
    seconds = 2.0 * sizes.private * width**2 / rate.DENSE_FLOPS + width**3 / rate.DENSE_FLOPS
    personal = given.get("personalize")
    if personal is not None:
        seconds += 3 * sizes.backbone * sizes.private * personal["epochs"] / rate.CONVOLUTION_FLOPS
    return seconds


@register("method", "fedcgs")
class FedCGS(Parameters):
    """Clients send N, A and B; the server adds them up and solves for the head.

    Private runs clip features to norm 1, and noise (N, A, B) jointly. Post-processing then treats class
    counts below twice their noise as absent, brings class means back into the unit ball, projects an
    indefinite covariance, and adds to its diagonal the scale of the noise in it.

    Attributes:
        covariance: `total`, as in the paper, or pooled `within` classes.
        ridge: Relative to the mean variance; see `fedassay.heads.gaussian`. The paper's is 0.
        transport: Data type of A and B in messages (whole counts are integers).
        secure_aggregation: The fields that are seen only summed over the clients: none, N, or all.
        expansion: Width of the shared random features; 0: none.
        noise: The place of the noise: at every client (`local`), or once on the securely aggregated sum
            (`central`: every client adds a share of it).
        counts: Whether a private run noises N.
        generated: Train a linear head on features drawn from the aggregated Gaussians instead of solving for
            one (figure 2's "Linear"; see `generated`).
        personalize: One more round: the server sends the class means, and every client fine-tunes the whole
            model near them (equation 12). Nothing more leaves the clients. `accuracy` stays the global head's.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(
        units=EVERY_UNIT,
        cost=_seconds,
        malicious="backbone",
        sends=("class_sums", "class_counts", "second_moment"),
    )

    covariance: Literal["total", "within"] = "total"
    ridge: float = Field(default=RIDGE, ge=0, allow_inf_nan=False)
    transport: Literal["float64", "float32", "float16"] = "float64"
    secure_aggregation: Literal["none", "counts", "all"] = "none"
    expansion: int = Field(default=0, ge=0)
    noise: Literal["local", "central"] = "local"
    counts: Literal["noised", "exact"] = "noised"
    generated: HeadTraining | None = None
    personalize: Personalize | None = None

    def run(self, task: MethodInput) -> Outcome:
        """One round: statistics up, head down; then, if asked for, prototypes down and fine-tuning.

        Raises:
            PlanError: The expansion does not fit into memory, central noise is asked for without
                secure aggregation or in a transport that rounds, or personalization of expanded features.
            DataError: The aggregated covariance cannot be solved for; see `gaussian_head`. In a private run there
                is then no head, and a note says so.
        """
        if self.personalize is not None and self.expansion:
            raise PlanError(
                f"fedcgs: personalize with expansion {self.expansion}: prototypes are means of the backbone's own "
                "features; allowed: expansion 0"
            )
        width = self.expansion or task.backbone.width
        noise = self._noise(task, width)
        transform = make_transform(self.expansion, noise is not None, task)
        messages = task.spool.keep_all(self._message(client, task, transform, noise) for client in task.clients)
        received = aggregate(_received(message) for message in messages)
        model: FeatureModel | None = None
        further: list[Message] = []
        utility: dict[str, float] = {}
        try:
            found = self._moments(received, noise, task)
            solved = self._solve(found, received, noise, task)
        except DataError as error:
            if noise is None:
                raise
            # The messages of the clients are an audit's subject, even without a head.
            notes = [f"no head: the noise has drowned the statistics ({error})"]
        else:
            notes = self._remarks(solved, received, noise, task)
            personal, utility = self._personalized(solved.head, found, noise is not None, task)
            further = [*broadcast(solved.head, task.clients), *personal]
            model = FeatureModel(solved.head, transform)
        sent = len(task.clients) * float((task.classes + width) * width + task.classes)
        return Outcome(
            Transcript(
                "fedcgs",
                task.classes,
                (*messages, *further),
                task.privacy.claim(_SOURCE),
                () if noise is None else ("features are clipped to norm 1 before the statistics are taken",),
            ),
            model,
            utility=utility,
            communication={
                "paper_parameters_up": sent,
                "paper_bytes_up": sent * np.dtype(self.transport).itemsize,
            },
            mechanisms={} if noise is None else {"statistics": self._experiment(noise, task)},
            notes=(*_clipped(messages), *notes),
            estimators=by_server(self._estimator(noise, task) if model is not None else None),
            stays=frozenset(utility),
        )

    def _estimator(self, noise: _Noise | None, task: MethodInput) -> Estimator | None:
        """Return the equations that the head solves; None where it is trained on generated features."""
        if self.generated is not None:
            return None
        total = 0.0 if noise is None else self._total_noise(noise, task)
        return GaussianEstimator(self.covariance, self.ridge, total)

    def _remarks(
        self, solved: GaussianHead, received: Statistics, noise: _Noise | None, task: MethodInput
    ) -> list[str]:
        notes = []
        records = float(received.counts.sum())
        if self.generated is not None and self._drawn(records, noise) < records:
            notes.append(remark(records, MAX_DRAWN, "features"))
        if solved.projected:
            notes.append("the covariance was indefinite and was replaced by the nearest semi-definite one")
        absent = np.setdiff1d(np.arange(task.classes), solved.head.classes)
        if absent.size:
            notes.append(f"classes without a usable count are never predicted: {_listed(absent)}")
        return notes

    def _experiment(self, noise: _Noise, task: MethodInput) -> Experiment:
        return reruns.shared_sums(
            adjacency=task.privacy.adjacency,
            sigmas=(noise.scale if noise.counts else 0.0, noise.scale, noise.scale),
            nonnegative=bool(self.expansion),
            unit=task.privacy.unit,
        )

    def _moments(self, received: Statistics, noise: _Noise | None, task: MethodInput) -> GlobalMoments:
        """Means and covariance, the means of noised sums brought back into the unit ball."""
        if noise is None:
            return moments(received, self.covariance)
        # A class mean over a count that may be all noise would be all noise.
        total = self._total_noise(noise, task)
        found = moments(received, self.covariance, least=max(0.5, 2 * total) if noise.counts else 0.5)
        norms = np.linalg.norm(found.means, axis=1, keepdims=True)
        return replace(found, means=found.means / np.maximum(norms, 1.0))

    def _solve(
        self, found: GlobalMoments, received: Statistics, noise: _Noise | None, task: MethodInput
    ) -> GaussianHead:
        if self.generated is not None:
            records = self._drawn(float(received.counts.sum()), noise)
            drawn = generated_head(found, records, self.generated, task)
            return GaussianHead(drawn, projected=False)
        if noise is None:
            return gaussian_head(found, self.ridge)
        # Eigenvalues of the noise reach about sqrt(2 d) of its scale: lower ones are not covariance.
        size = max(1.0, float(received.counts.sum()))
        shift = self._total_noise(noise, task) * math.sqrt(received.sums.shape[1]) / size
        return gaussian_head(found, self.ridge, shift=shift)

    def _drawn(self, records: float, noise: _Noise | None) -> float:
        """Features that `generated` draws: as many as there were records; under noise these may be any number."""
        return min(records, MAX_DRAWN) if noise is not None and noise.counts else records

    def _total_noise(self, noise: _Noise, task: MethodInput) -> float:
        """Standard deviation of the noise on the sums over all clients."""
        return noise.scale * (1.0 if self.noise == "central" else math.sqrt(len(task.clients)))

    def _personalized(
        self, head: LinearHead, found: GlobalMoments, clip: bool, task: MethodInput
    ) -> tuple[list[Message], dict[str, float]]:
        """The second round: its messages, and accuracy on the clients' own distributions."""
        if self.personalize is None:
            return [], {}
        transform = Transform(None, clip)
        guesses = head.predict(transform(task.test.features))
        shared = personalized_accuracy([guesses] * len(task.clients), task.clients, task.test)
        own = fine_tune(self.personalize, head, found.means, task, clip=clip)
        figures = {"personalized_accuracy": own.mean, "personalized_accuracy_global": shared.mean}
        return prototype_messages(head.classes, found.means, task), {
            name: value for name, value in figures.items() if value is not None
        }

    def _noise(self, task: MethodInput, width: int) -> _Noise | None:
        privacy = task.privacy
        if not privacy.private:
            return None
        if self.noise == "central" and self.secure_aggregation != "all":
            raise PlanError(
                f"fedcgs: noise central with secure_aggregation {self.secure_aggregation}: the noise is on the "
                "sum only, so everything must be under secure aggregation; allowed: all"
            )
        if self.noise == "central" and self.transport != "float64":
            raise PlanError(
                f"fedcgs: noise central with transport {self.transport}: shares whose noise only the sum carries "
                "may not be rounded; allowed: float64"
            )
        counts = self.counts == "noised"
        sensitivity = shared_sums_sensitivity(
            width,
            adjacency=privacy.adjacency,
            classes=task.classes,
            nonnegative=bool(self.expansion),
            weights=(float(counts), 1.0, 1.0),
        ).sensitivity
        if self.noise == "local":
            scale = calibrate_sigma(privacy.epsilon, privacy.delta, sensitivity)
            return _Noise(scale, sensitivity, counts, None)
        divided = secure_sum(
            sensitivity,
            task.classes * (1 + width) + width * width,
            len(task.clients),
            lambda moved: calibrate_sigma(privacy.epsilon, privacy.delta, moved),
        )
        return _Noise(divided.scale, divided.sensitivity, counts, divided)

    def _message(self, client: Records, task: MethodInput, transform: Transform, noise: _Noise | None) -> Message:
        own = statistics(transform(client.features), client.labels, task.classes, task.weights(client))
        released = Sums(own.counts, own.sums, own.second)
        if noise is not None:
            released = noise.added(released, task.mechanism(client.name, 0, _GROUP))
        whole = noise is None or not noise.counts
        # If only the sum carries the noise, clipping single shares would not be post-processing of the sum.
        clip = noise is not None and noise.divided is None
        # A person or a client of several classes is a fraction of a count in each.
        counts = (
            released.counts.astype(np.int32)
            if whole and (noise is None or task.privacy.unit == "record")
            else to_transport(released.counts, self.transport, "N", clip=clip)
        )
        everything = self.secure_aggregation == "all"
        moved = _release(noise, task)
        return Message(
            0,
            client.name,
            SERVER,
            {
                "N": MessageField(
                    counts,
                    "class_counts",
                    exact("labels") if whole else moved,
                    additive=True,
                    secure=self.secure_aggregation != "none",
                ),
                "A": MessageField(
                    to_transport(released.sums, self.transport, "fedcgs: class sums", clip=clip),
                    "class_sums",
                    moved,
                    additive=True,
                    secure=everything,
                ),
                "B": MessageField(
                    to_transport(pack_lower(released.second), self.transport, "fedcgs: second moment", clip=clip),
                    "second_moment",
                    moved,
                    additive=True,
                    secure=everything,
                ),
            },
        )


def _clipped(messages: Sequence[Message]) -> tuple[str, ...]:
    """Says how many noised sums were clipped to the range of the transport, if any were."""
    moved = [item.values for message in messages for item in message.fields.values() if item.release.noise_scale]
    beyond = sum(at_limit(values) for values in moved if values.dtype.kind == "f")
    if not beyond:
        return ()
    return (f"{beyond} noised sums are beyond the range of {moved[0].dtype} and were clipped to it",)


def _release(noise: _Noise | None, task: MethodInput) -> Release:
    if noise is None:
        return exact()
    return task.privacy.gaussian(
        noise.scale,
        noise.sensitivity,
        group=_GROUP,
        shares=1 if noise.divided is None else noise.divided.clients,
        note="" if noise.divided is None else noise.divided.note,
    )


def _received(message: Message) -> Statistics:
    counts, sums, second = (message.fields[name].values.astype(np.float64) for name in ("N", "A", "B"))
    return Statistics(counts, sums, unpack_lower(second))


def _listed(classes: Sequence[int] | np.ndarray[tuple[int], np.dtype[np.int64]]) -> str:
    return ", ".join(str(int(number)) for number in classes)
