"""FedPFT's private mixtures: a client's statistics, their noise, and the claims for them.

There are three ways, depending on what the adjacency makes public:

- one component, class counts public (`replace_one_same_label`): mean and second moment of each class,
  noise calibrated to its count (`tight`), or as the paper has it (`paper`, Theorem 4.1; `second_moment`,
  Remark B.3). Classes hold different records, so their releases compose in parallel.
- one component, counts private: (n, sum x, sum x x^T) of all C classes as one joint release.
- several components: DP-EM, class by class.

Where the unit is a person or a client, sums are noised, and the unit adds the mean of its records. DP-EM does the
same, with all of its classes and steps charged as one joint release.

`paper` and `second_moment` have a sensitivity under `replace_one_same_label` only, and are released as such under
any adjacency: the ledger states the resulting guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedassay.contracts.method import MethodInput
from fedassay.exchange.release import Release, derived, exact, public
from fedassay.methods.fedpft.dp_em import Fit, PrivateMixture, dp_em, dp_em_sensitivity
from fedassay.methods.fedpft.messages import ClientMixtures, FeatureSet, single_components, weights_of
from fedassay.mixtures.bounded import bounded_moments
from fedassay.mixtures.packed import Family, Mixtures, concatenate
from fedassay.privacy import reruns
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.privacy.mechanisms import (
    Moments,
    clip_features,
    release_class_sums,
    release_mean_covariance,
    release_mean_second_moment,
)
from fedassay.privacy.paper_formulas import (
    fedpft_remark_b3_sensitivity,
    fedpft_remark_b3_sigma,
    fedpft_theorem_4_1_sensitivity,
    fedpft_theorem_4_1_sigma,
)
from fedassay.privacy.postprocess import covariance_from_moments, covariance_from_release, moments_from_sums
from fedassay.privacy.reruns import Experiment
from fedassay.privacy.sensitivities import class_sums, mean_covariance, mean_second_moment
from fedassay.privacy.tape import NoiseMechanism
from fedassay.support.errors import PlanError
from fedassay.support.types import Floats, Ints, Matrix

Mechanism = Literal["tight", "paper", "second_moment"]

_GROUP = "mixtures"


@dataclass(frozen=True)
class PrivateFit:
    """A client's fit under differential privacy; the fields are FedPFT's plan parameters."""

    components: int
    family: Family
    mechanism: Mechanism
    counts: Literal["exact", "noised"]
    nonnegative: bool
    dp_steps: int
    class_delta: bool = False
    """Whether delta is 1/n of each class, as published, in place of the plan's."""

    def __call__(self, client: FeatureSet, task: MethodInput, number: int = 0) -> ClientMixtures:
        """Fit and noise one client's mixtures.

        Args:
            client: All the records that the fit sees. Some may not be the client's own, but fixed given the
                received messages. Every statistic here is a sum or a mean over records, so these do not increase
                the effect of one record, and the noise for that many records covers each of them.
            task: The privacy asked for, and the seeds.
            number: The round that the mixtures are sent in.

        Raises:
            PlanError: A published mechanism is asked for with more than one component, with noised counts, or for
                persons or clients.
        """
        self._check_unit(task)
        features = clip_features(client.features, nonnegative=self.nonnegative)
        noise_mechanism = task.mechanism(client.name, number, _GROUP)
        if self.class_delta and self.mechanism == "tight":
            raise PlanError(
                "fedpft: delta per_class with mechanism tight; it is what the paper's mechanisms take, and no "
                "delta that a claim should have; allowed: mechanism paper or second_moment, or a number"
            )
        if self.components > 1 and self.mechanism != "tight":
            raise PlanError(
                f"fedpft: mechanism {self.mechanism} with {self.components} components; the paper's mechanisms "
                "are for components: 1; allowed for more: tight (DP-EM)"
            )
        if self.counts == "noised" and self.mechanism != "tight":
            raise PlanError(
                f"fedpft: mechanism {self.mechanism} with counts noised; its noise scale depends on the class "
                "counts and gives them away; allowed: counts exact, or mechanism tight"
            )
        if self.components > 1:
            return self._dp_em(features, client, task, noise_mechanism)
        # A person's records are of several classes: releases class by class would not compose in parallel.
        by_class = task.privacy.adjacency == "replace_one_same_label" and self.counts == "exact"
        if (by_class and task.privacy.unit == "record") or self.mechanism != "tight":
            return self._moments(features, client, task, noise_mechanism)
        return self._sums(features, client, task, noise_mechanism)

    def _check_unit(self, task: MethodInput) -> None:
        unit = task.privacy.unit
        if unit != "record" and self.mechanism != "tight":
            raise PlanError(
                f"fedpft: privacy.unit {unit} with mechanism {self.mechanism}: its noise is for means over the "
                f"records of a class, and a {unit} has several; allowed: mechanism tight, or unit record"
            )

    def _moments(
        self, features: Floats, client: FeatureSet, task: MethodInput, noise_mechanism: NoiseMechanism
    ) -> ClientMixtures:
        """Mean and second moment of each class present, noise by its own public count."""
        width = features.shape[1]
        classes, counts = np.unique(client.labels, return_counts=True)
        calibrated = [self._calibrated(int(count), width, task) for count in counts]
        scales, moved, stated = ([each[part] for each in calibrated] for part in range(3))
        noise_mechanisms = [noise_mechanism.at(cell=f"class/{label}") for label in classes]
        noised = [
            self._noised(features[client.labels == label], scale, noise, _floor(width))
            for label, scale, noise in zip(classes, scales, noise_mechanisms, strict=True)
        ]
        means, covariances = (np.array([each[part] for each in noised]) for part in range(2))
        # A client without classes has no moments: the empty array reveals no more than its list of classes.
        moments = (
            derived()
            if not len(classes)
            else Release(
                mechanism="gaussian",
                adjacency="replace_one_same_label",
                group=_GROUP,
                cells=tuple(f"class/{label}" for label in classes),
                noise_scale=tuple(scales),
                sensitivity=tuple(moved),
                stated_sensitivity=None if self.mechanism == "tight" else tuple(stated),
                note="the noise scale depends on the class count, which leaves exactly",
            )
        )
        return ClientMixtures(
            classes.astype(np.int64),
            counts.astype(np.int64),
            single_components(self.family, means, covariances, width),
            _releases(moments, exact("labels"), exact("labels"), public("one component, weight 1")),
            self._worst(counts, scales, moved, task),
        )

    def _calibrated(self, n: int, width: int, task: MethodInput) -> tuple[float, float, float]:
        """Noise scale, exact sensitivity and published sensitivity for a class of n records."""
        epsilon = task.privacy.epsilon
        # With one record 1/n is 1: the published formulas go on to their limit there, and nothing is claimed.
        delta = min(1 / n, math.nextafter(1, 0)) if self.class_delta else task.privacy.delta
        if self.mechanism == "paper":
            sensitivity = mean_covariance(n, width, adjacency="replace_one_same_label").sensitivity
            return fedpft_theorem_4_1_sigma(epsilon, delta, n), sensitivity, fedpft_theorem_4_1_sensitivity(n)
        sensitivity = mean_second_moment(
            n, width, adjacency="replace_one_same_label", family=self.family, nonnegative=self.nonnegative
        ).sensitivity
        if self.mechanism == "second_moment":
            return fedpft_remark_b3_sigma(epsilon, delta, n), sensitivity, fedpft_remark_b3_sensitivity(n)
        return calibrate_sigma(epsilon, delta, sensitivity), sensitivity, sensitivity

    def _noised(
        self, features: Floats, scale: float, noise: NoiseMechanism, floor: float
    ) -> tuple[Matrix, Matrix]:
        if self.mechanism == "paper":
            release = release_mean_covariance(features, sigma=scale, noise=noise, family=self.family)
            return release.mean, covariance_from_release(release, self.family, floor=floor)
        release = release_mean_second_moment(
            features,
            sigmas=(scale, scale),
            noise=noise,
            family=self.family,
            nonnegative=self.nonnegative,
            isometric=self.mechanism == "tight",
        )
        if self.mechanism == "tight":
            release = Moments(*bounded_moments(release.mean, release.second, self.family))
        return release.mean, covariance_from_moments(release, self.family, floor=floor)

    def _worst(
        self, counts: Ints, scales: list[float], moved: list[float], task: MethodInput
    ) -> Experiment | None:
        """Reruns of the class that its noise protects least, or of the counts where these give more away."""
        exact_counts = reruns.class_counts(
            adjacency=task.privacy.adjacency, sigma=0.0, classes=min(task.classes, 2)
        )
        if exact_counts.mu > 0:
            return exact_counts
        # Theorem 4.1's worst pair leaves the non-negative orthant; the worst pair inside is not known.
        if not scales or (self.mechanism == "paper" and self.nonnegative):
            return None
        least = int(np.argmax(np.array(moved) / np.array(scales)))
        n, scale = int(counts[least]), scales[least]
        if self.mechanism == "paper":
            return reruns.mean_covariance(n, sigma=scale, family=self.family)
        return reruns.mean_second_moment(
            n,
            sigmas=(scale, scale),
            family=self.family,
            nonnegative=self.nonnegative,
            isometric=self.mechanism == "tight",
        )

    def _class_sums(self, scale: float, noised: bool, task: MethodInput) -> Experiment:
        return reruns.class_sums(
            adjacency=task.privacy.adjacency,
            sigmas=(scale if noised else 0.0, scale, scale),
            family=self.family,
            nonnegative=self.nonnegative,
            unit=task.privacy.unit,
        )

    def _sums(
        self, features: Floats, client: FeatureSet, task: MethodInput, noise_mechanism: NoiseMechanism
    ) -> ClientMixtures:
        """Count, sum and second-moment sum of every class, as one joint release."""
        width, noised = features.shape[1], self.counts == "noised"
        sensitivity = class_sums(
            width,
            adjacency=task.privacy.adjacency,
            classes=task.classes,
            family=self.family,
            nonnegative=self.nonnegative,
            weights=(float(noised), 1.0, 1.0),
        ).sensitivity
        scale = calibrate_sigma(task.privacy.epsilon, task.privacy.delta, sensitivity)
        released = release_class_sums(
            features,
            client.labels,
            task.classes,
            sigmas=(scale if noised else 0.0, scale, scale),
            noise=noise_mechanism,
            family=self.family,
            nonnegative=self.nonnegative,
            weights=weights_of(client, task),
        )
        usable = moments_from_sums(*released, family=self.family)
        mean, second = bounded_moments(usable.means, usable.second, self.family)
        covariances = covariance_from_moments(Moments(mean, second), self.family, floor=_floor(width))
        joint = task.privacy.gaussian(scale, sensitivity, group=_GROUP)
        return ClientMixtures(
            np.arange(task.classes),
            released.counts if noised or task.privacy.unit != "record" else released.counts.astype(np.int64),
            single_components(self.family, mean, covariances, width),
            _releases(joint, joint if noised else exact("labels"), public("all classes"), public("weight 1")),
            self._class_sums(scale, noised, task),
        )

    def _dp_em(
        self, features: Floats, client: FeatureSet, task: MethodInput, noise_mechanism: NoiseMechanism
    ) -> ClientMixtures:
        """DP-EM on every class; all classes where presence is private, the present ones where it is not."""
        adjacency, noised = task.privacy.adjacency, self.counts == "noised"
        sensitivity = dp_em_sensitivity(
            features.shape[1],
            self.components,
            self.dp_steps,
            adjacency=adjacency,
            classes=task.classes,
            family=self.family,
            nonnegative=self.nonnegative,
            count_noised=noised,
        )
        scale = calibrate_sigma(task.privacy.epsilon, task.privacy.delta, sensitivity)
        classes = np.arange(task.classes) if noised else np.unique(client.labels)
        weights = weights_of(client, task)
        fit = Fit(self.components, self.family, self.dp_steps, _floor(features.shape[1]), noised)
        fits = [
            dp_em(
                features[client.labels == label],
                fit,
                sigma=scale,
                noise=noise_mechanism.at(cell=f"class/{label}"),
                start=task.seeds.numpy("start", client.name, int(label)),
                record_weights=None if weights is None else weights[client.labels == label],
            )
            for label in classes
        ]
        joint = task.privacy.gaussian(
            scale,
            sensitivity,
            group=_GROUP,
            note=f"DP-EM: {self.dp_steps} adaptive steps composed as one Gaussian",
        )
        counts = np.array([fit.count for fit in fits], dtype=np.float64)
        mixtures = concatenate(
            [
                single_components(self.family, np.empty((0, features.shape[1])), np.empty(0), features.shape[1]),
                *(_mixture(fit, self.family) for fit in fits),
            ]
        )
        known = public("all classes") if noised else exact("labels")
        return ClientMixtures(
            classes.astype(np.int64),
            counts if noised or weights is not None else counts.astype(np.int64),
            mixtures,
            _releases(joint, joint if noised else exact("labels"), known, joint),
            # The first of the steps; the later ones can only add to its leakage.
            self._class_sums(scale, noised, task),
        )


def _mixture(fit: PrivateMixture, family: Family) -> Mixtures:
    one = np.array([len(fit.weights)], dtype=np.int64)
    return Mixtures(family, one, np.zeros(1, dtype=np.int64), fit.weights, fit.means, fit.covariances)


def _releases(moments: Release, counts: Release, classes: Release, weights: Release) -> dict[str, Release]:
    # The number of components is either fixed or a function of the classes present.
    return {
        "class_ids": classes,
        "class_counts": counts,
        "component_counts": classes,
        "mixture_weights": weights,
        "mixture_moments": moments,
    }


def _floor(width: int) -> float:
    """Smallest eigenvalue after projection: a hundredth of the standard deviation of the unit sphere."""
    return 1e-4 / width
