"""Protection of FedLog's messages: the noise on T, the training of bodies, and the claims for both.

Two things depend on a record: the statistic T, a sum over the client's records, and the body that
computes the features in T. The sensitivity of T (Yu et al. 2026, Theorem 4) holds the body fixed, so the
body is a release of its own, although it never leaves the client:

- `public`: trained on public records only. Nothing to account.
- `dp_sgd`: trained by DP-SGD. Given the body, T is a Gaussian mechanism: the two compose adaptively.
- `private`: trained on the client's records as they are, as in the paper. No noise covers that; the field
  `body_dependence`, which is empty, says so in the ledger and makes the total infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedassay.exchange.release import Claim, NoClaim, PrivacyTarget, Release, exact
from fedassay.methods.shared.dp_sgd import DpSgd, NoisedTraining, training_release, training_words
from fedassay.privacy.gaussian import mu_of
from fedassay.privacy.mechanisms import release_fedlog_sums
from fedassay.privacy.paper_formulas import fedlog_released_code_sigma, fedlog_theorem_4_sigma
from fedassay.privacy.reruns import Experiment, flat_rows, of_unit, weights_alike
from fedassay.privacy.secure_sums import SecureSum, secure_sum
from fedassay.privacy.sensitivities import WorstCase, fedlog_sums, worst_pair
from fedassay.privacy.tape import FreeNoise, NoiseMechanism, NoiseSource
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import PlanError
from fedassay.support.types import Bools, Floats, Ints, Matrix

Mechanism = Literal["tight", "paper", "released_code"]
Body = Literal["public", "dp_sgd", "private"]

GROUP = "T"
"""The release of T: one joint entry for its counts and its sums."""

_BODY_NOTE = (
    "empty; T depends on the records through the body that was trained on them, which the noise "
    "on T does not cover (Theorem 4 holds the body fixed)"
)
_DP_SGD_NOTE = "empty: the body stays with the client; T depends on the records through it"


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """T as it is sent, and how it is noised.

    Attributes:
        rounds: k.
        width: m, including the constant feature.
        clip: b.
        classes: C.
        clients: Number of clients.
        mechanism: `tight`: analytic calibration at the exact sensitivity, composed over the rounds (and with the
            bodies' DP-SGD). `paper`: Theorem 4. `released_code`: the authors' code, which spends epsilon anew in
            every round.
        central: Noise on the securely aggregated sum only.
        counts: Whether n_i leaves exactly beside T.
    """

    rounds: int
    width: int
    clip: float
    classes: int
    clients: int
    mechanism: Mechanism = "tight"
    central: bool = False
    counts: bool = False

    def worst(self, adjacency: Adjacency, classes: int) -> WorstCase:
        """Return the neighbours that move T most, for this number of classes."""
        return fedlog_sums(self.width, self.clip, adjacency=adjacency, classes=classes)


@dataclass(frozen=True, kw_only=True)
class BodyTraining:
    """Settings of the bodies' training in a private run.

    Attributes:
        body: The kind of training.
        epochs: Passes per round.
        batch: Divisor of the noised gradient sums.
        dp_sgd: Parameters of `dp_sgd`.
        share: Budget of `dp_sgd`, as a share of the squared Gaussian-DP parameter mu.
    """

    body: Body
    epochs: int
    batch: int
    dp_sgd: DpSgd
    share: float


@dataclass(frozen=True)
class Protection:
    """Protection of every round of a private run.

    Attributes:
        scale: Standard deviation of the noise on T that the mechanism is accounted with.
        sensitivity: Exact L2 sensitivity of T under the plan's adjacency, the body held fixed; rounding included
            where noise is divided.
        stated: The sensitivity that the source states, where it is another.
        target: The plan's.
        body: The kind of training of bodies.
        steps: A round's private training, for `dp_sgd`.
        source: The source of the claim.
        divided: The division of the noise, where T is securely aggregated and only the sum carries it whole.
        statistic: The protected statistic.
    """

    scale: float
    sensitivity: float
    stated: float | None
    target: PrivacyTarget
    body: Body
    steps: NoisedTraining | None
    source: str
    divided: SecureSum | None
    statistic: Statistic

    def noise(self, noise_mechanism: NoiseMechanism) -> NoiseSource:
        """Return the noise source of one client's release of T."""
        return noise_mechanism if self.divided is None else self.divided.shares(noise_mechanism)

    def of_statistic(self) -> Release:
        """The release of T, one joint entry for its counts and its sums."""
        return Release(
            mechanism="gaussian",
            adjacency=self.target.adjacency,
            unit=self.target.unit,
            group=GROUP,
            noise_scale=(self.scale,),
            sensitivity=(self.sensitivity,),
            stated_sensitivity=None if self.stated is None else (self.stated,),
            shares=1 if self.divided is None else self.divided.clients,
            note="" if self.divided is None else self.divided.note,
        )

    def of_body(self) -> Release | None:
        """The release of the body, or None where it depends on no private record."""
        if self.body == "public":
            return None
        if self.steps is None:
            return exact(note=_BODY_NOTE)
        return training_release(self.steps, self.target, _DP_SGD_NOTE)


def protection(target: PrivacyTarget, statistic: Statistic, bodies: BodyTraining) -> Protection:
    """Calibrate the noise of every round.

    Args:
        target: A finite epsilon, for all rounds together.
        statistic: The statistic to noise.
        bodies: Settings of the bodies' training.

    Raises:
        PlanError: `body: dp_sgd` with a published mechanism, which has no such thing.
    """
    adjacency, mechanism = target.adjacency, statistic.mechanism
    sensitivity = statistic.worst(adjacency, statistic.classes).sensitivity
    published = statistic.worst("add_remove", statistic.classes).sensitivity
    steps = None
    if mechanism == "tight":
        scale_of, steps, source = _calibrated(target, statistic, bodies)
    elif bodies.body == "dp_sgd":
        raise PlanError(
            f"fedlog: body dp_sgd with mechanism {mechanism}: the published noise knows no private training; "
            "allowed: mechanism tight"
        )
    else:
        scale_of, source = _published(target, statistic)
    divided = None
    if statistic.central:
        divided = secure_sum(sensitivity, statistic.classes * statistic.width, statistic.clients, scale_of)
    return Protection(
        scale=scale_of(sensitivity) if divided is None else divided.scale,
        sensitivity=sensitivity if divided is None else divided.sensitivity,
        stated=None if mechanism == "tight" or published == sensitivity else published,
        target=target,
        body=bodies.body,
        steps=steps,
        source=source,
        divided=divided,
        statistic=statistic,
    )


def _calibrated(
    target: PrivacyTarget, statistic: Statistic, bodies: BodyTraining
) -> tuple[Callable[[float], float], NoisedTraining | None, str]:
    """The noise on T at a sensitivity, the bodies' steps, and where both come from."""
    mu, rounds = mu_of(target.epsilon, target.delta), statistic.rounds
    source = f"Gaussian mechanism on T, analytic calibration, composed over {rounds} rounds"
    steps = None
    if bodies.body == "dp_sgd":
        mu *= math.sqrt(1 - bodies.share)
        words = training_words(target)
        source += f", with {'DP-SGD' if target.unit == 'record' else words} for the bodies"
        steps = bodies.dp_sgd.steps(target, epochs=bodies.epochs, rounds=rounds, batch=bodies.batch, other=mu)
    return lambda moved: moved * math.sqrt(rounds) / mu, steps, source


def _published(target: PrivacyTarget, statistic: Statistic) -> tuple[Callable[[float], float], str]:
    """Return the paper's noise or its released code's; both ignore the exact sensitivity."""
    epsilon, delta, width, clip = target.epsilon, target.delta, statistic.width, statistic.clip
    if statistic.mechanism == "paper":
        scale = fedlog_theorem_4_sigma(epsilon, delta, rounds=statistic.rounds, features=width, clip=clip)
        return lambda _: scale, "FedLog, Theorem 4"
    scale = fedlog_released_code_sigma(epsilon, delta, features=width, clip=clip)
    return lambda _: scale, "FedLog's released code: epsilon spent anew in every round"


def claimed(target: PrivacyTarget, protected: Protection | None) -> tuple[Claim, tuple[str, ...]]:
    """Return the claim of a run, and the notes that its transcript must have."""
    if protected is None:
        return NoClaim(), ()
    claim, clip = target.claim(protected.source), protected.statistic.clip
    said = [f"features are clipped to [-{clip:g}, {clip:g}] inside the mechanism"]
    if protected.statistic.counts:
        said.append("the number of records n_i leaves exactly, in every round")
    if protected.body == "private":
        said.append("bodies are trained on the clients' records without noise: Theorem 4 does not cover them")
    return claim, tuple(said)


def experiments(protected: Protection | None, name: str) -> dict[str, Experiment]:
    """All rounds' releases of T on the neighbours that are worst for it, for audits to rerun, under a name.

    The worst record has the same features, at the corner of the clipping cube, in every round: the bound
    that composition gives is attained. Two classes suffice, since no more than two rows of T differ.

    Returns:
        Empty without noise, and for `body: private`, where a record cannot be seen in T by itself: the whole
        method must be run again.
    """
    if protected is None or protected.body == "private":
        return {}
    statistic, rounds = protected.statistic, protected.statistic.rounds
    worst = statistic.worst(protected.target.adjacency, classes=2)
    pair, counts = worst_pair(worst, n=3), statistic.counts
    seen = counts and len(pair.labels0) != len(pair.labels1)

    def release(
        x: Matrix,
        y: Ints,
        sigmas: tuple[float, ...],
        rng: np.random.Generator,
        reruns: int,
    ) -> tuple[Matrix, ...]:
        fields = [
            release_fedlog_sums(
                x,
                y,
                2,
                clip=statistic.clip,
                sigma=sigma,
                noise=FreeNoise(rng, (reruns,)),
                weights=weights_alike(len(y), protected.target.unit),
            )
            for sigma in sigmas[:rounds]
        ]
        return (*fields, *((np.full((reruns, 1), float(len(y))),) if counts else ()))

    found = Experiment(
        neighbours=pair,
        mu=math.inf if seen else worst.sensitivity * math.sqrt(rounds) / protected.scale,
        sigmas=(protected.scale,) * rounds + (0.0,) * counts,
        release=release,
        flatten=(flat_rows,) * (rounds + counts),
    )
    return {name: of_unit(found, protected.target.unit)}


def clamped(statistic: Floats, records: float | None) -> tuple[Matrix, float]:
    """Return a summed statistic for which a head can be computed (post-processing).

    A class with a count that noise has left at 0 or below is treated as absent: its row becomes 0. The number of
    records, where it is not sent, is the sum of the other counts. It is raised to at least 1, since nu + n <= 0
    leaves the posterior without a maximum.

    Args:
        statistic: T summed over the clients, shape (C, m), its first column the class counts.
        records: The number of records where it was sent exactly; None: derived from T.

    Returns:
        T with absent classes at 0, and n >= 1.
    """
    usable = np.where(statistic[:, :1] > 0, statistic, 0.0).astype(np.float64)
    found = float(usable[:, 0].sum()) if records is None else records
    return usable, max(found, 1.0)


def class_means(statistic: Floats, clip: float | None) -> tuple[Matrix, Bools]:
    """FedLog-C's global class means from a clamped statistic (post-processing).

    Args:
        statistic: Shape (C, m), from `clamped`.
        clip: Features lie in [-clip, clip], so the means are put back there; None: no such bound.

    Returns:
        Means of the free features, shape (C, m - 1), and which classes have one: a count of at least 1.
    """
    counts = statistic[:, 0]
    known = counts >= 1
    means = statistic[:, 1:] / np.maximum(counts, 1.0)[:, None]
    if clip is not None:
        means = means.clip(-clip, clip)
    return np.where(known[:, None], means, 0.0), known
