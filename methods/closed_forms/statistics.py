"""Common parts of the closed forms: the features in their statistics, one joint noise, and the end of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.contracts.facts import Given
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.sizes import Sizes
from fedassay.exchange.public_map import PublicMap
from fedassay.exchange.release import PrivacyTarget, Release, derived, exact
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.heads.estimating import Estimator
from fedassay.heads.linear import FeatureModel, Head, LinearHead
from fedassay.heads.quadratic import QuadraticHead
from fedassay.methods.shared.heads import broadcast, by_server
from fedassay.plan import rates as rate
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.privacy.mechanisms import clip_beside_constant, clip_features
from fedassay.privacy.reruns import Experiment
from fedassay.support.errors import DataError
from fedassay.support.types import Floats, Matrix

GROUP = "statistics"
"""Group of the joint release, and the mechanism that its noise comes from."""

_CLIPPED = "features are clipped to norm 1 before the statistics are taken"


@dataclass(frozen=True)
class FeatureMap:
    """Features as statistics and head see them.

    Attributes:
        project: A public map of features (n, d) to others (n, k); None: the backbone's own.
        constant: Whether a last feature that is 1 for every record is appended.
        clip: Whether features are clipped to norm 1, the constant one left out.
    """

    project: PublicMap | None = None
    constant: bool = False
    clip: bool = False

    def __call__(self, features: Floats) -> Matrix:
        """Map features (n, d)."""
        rows = np.asarray(features, np.float64) if self.project is None else self.project(features)
        if self.constant:
            rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
            return clip_beside_constant(rows) if self.clip else rows
        return clip_features(rows) if self.clip else rows


@dataclass(frozen=True)
class JointNoise:
    """One noise scale for all fields of a client's message.

    Attributes:
        scale: Standard deviation, isometric.
        sensitivity: Joint L2 sensitivity that it is calibrated to.
        target: The run's.
    """

    scale: float
    sensitivity: float
    target: PrivacyTarget

    def release(self, note: str = "") -> Release:
        """Return the release of each of its fields."""
        return self.target.gaussian(self.scale, self.sensitivity, group=GROUP, note=note)


def joint_noise(task: MethodInput, sensitivity: float) -> JointNoise | None:
    """The Gaussian mechanism of a sensitivity at the plan's epsilon, by analytic calibration; None at infinity."""
    privacy = task.privacy
    if not privacy.private:
        return None
    scale = calibrate_sigma(privacy.epsilon, privacy.delta, sensitivity)
    return JointNoise(scale, sensitivity, privacy)


def release_of(noise: JointNoise | None, note: str = "") -> Release:
    """Return the release of a field of the statistics."""
    return exact() if noise is None else noise.release(note)


@dataclass(frozen=True)
class Sent:
    """The messages of a run's clients.

    Attributes:
        method: Name of the method.
        messages: One a client.
        source: The source of a private run's claim.
        parameters: Numbers that all clients send by the paper's count.
        itemsize: Bytes of each number.
        noise: The joint noise, or None.
        mechanisms: The noised statistic, for audits that rerun it.
    """

    method: str
    messages: Sequence[Message]
    source: str
    parameters: float
    itemsize: int
    noise: JointNoise | None
    mechanisms: Mapping[str, Experiment]


def outcome_of(
    sent: Sent,
    solve: Callable[[], tuple[Head, tuple[str, ...]]],
    features: FeatureMap,
    task: MethodInput,
    estimator: Estimator | None = None,
) -> Outcome:
    """Solve for the head, send it down beside the public map of features, and note the steps taken.

    The messages are an audit's subject even without a head: where noise has made the statistics useless, there is
    none, and a note says so.

    Args:
        sent: The clients' messages.
        solve: Returns the head, and notes on it.
        features: Map from features to the head's inputs.
        task: The run.
        estimator: Equations that the head solves, up to its noise; None: none are known.

    Raises:
        DataError: Without noise, the head cannot be solved for.
    """
    model: FeatureModel | None = None
    names = [client.name for client in task.clients]
    mapped = [] if features.project is None else features.project.broadcast(names)
    down: list[Message] = []
    try:
        head, notes = solve()
    except DataError as error:
        if sent.noise is None:
            raise
        notes = (f"no head: the noise has drowned the statistics ({error})",)
    else:
        model, down = FeatureModel(head, features), _down(head, task)
    return Outcome(
        Transcript(
            sent.method,
            task.classes,
            (*mapped, *sent.messages, *down),
            task.privacy.claim(sent.source),
            () if sent.noise is None else (_CLIPPED,),
        ),
        model,
        communication={
            "paper_parameters_up": sent.parameters,
            "paper_bytes_up": sent.parameters * sent.itemsize,
        },
        mechanisms=sent.mechanisms,
        notes=notes,
        estimators=by_server(estimator if model is not None else None),
    )


def _down(head: Head, task: MethodInput) -> list[Message]:
    """The server's messages that carry the head."""
    if isinstance(head, LinearHead):
        return broadcast(head, task.clients)
    assert isinstance(head, QuadraticHead)
    fields = {
        "head_classes": MessageField(head.classes.astype(np.int32), "other", derived()),
        "head_priors": MessageField(head.priors.astype(np.float32), "head", derived()),
        "head_means": MessageField(head.means.astype(np.float32), "head", derived()),
        "head_covariances": MessageField(head.covariances.astype(np.float32), "head", derived()),
    }
    return [Message(0, SERVER, client.name, fields) for client in task.clients]


def received(messages: Sequence[Message], name: str) -> list[Matrix]:
    """A field of every message, in float64."""
    return [message.fields[name].values.astype(np.float64) for message in messages]


def total_noise(noise: JointNoise | None, task: MethodInput) -> float:
    """Standard deviation of the noise on sums over all clients."""
    return 0.0 if noise is None else noise.scale * float(np.sqrt(len(task.clients)))


def seconds_of_moments(given: Given, sizes: Sizes, private: bool) -> float:
    """Seconds of second moments over all records, and of solving once."""
    width = given.get("random_features") or given.get("sketch") or sizes.width
    return float((2.0 * sizes.private * width**2 + width**3) / rate.DENSE_FLOPS)


def seconds_of_means(given: Given, sizes: Sizes, private: bool) -> float:
    """Seconds of class means, and of solving once."""
    return float((2.0 * sizes.private * sizes.width + sizes.classes * sizes.width**2) / rate.DENSE_FLOPS)
