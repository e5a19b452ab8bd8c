"""FedPFT (papers 000 and 003): Gaussian mixtures of each class's features from every client, one round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt

from fedassay.errors import DataError, PlanError
from fedassay.linear_head import FeatureModel
from fedassay.methods.fedpft_messages import ClientMixtures, MixtureTransport, mixture_message, synthesise
from fedassay.methods.fedpft_private import Mechanism, PrivateFit
from fedassay.methods.heads import HeadTraining, broadcast
from fedassay.mixtures import Family, fit_mixtures, parameters_sent
from fedassay.mixtures.em import FLOOR
from fedassay.privacy.adjacency import Adjacency
from fedassay.privacy.mechanisms import clip_features
from fedassay.privacy.reruns import Experiment
from fedassay.registry import register
from fedassay.release import Claim, NoClaim, PrivacyClaim, exact
from fedassay.task import Outcome, Records, Task
from fedassay.transcript import Transcript
from fedassay.values import Floats, Parameters

_SOURCES: dict[Mechanism, str] = {
    "tight": "joint Gaussian mechanism on the mixtures' moments, analytic calibration at the exact sensitivity",
    "paper": "FedPFT, Theorem 4.1",
    "second_moment": "FedPFT, Remark B.3",
}

_PUBLISHED_NOTES = (
    "the published noise takes the classical Gaussian mechanism for every epsilon (Lemma B.2), "
    "which is false for large epsilon; its scale depends on the class count",
    "the paper's delta = 1/n of a class is far too large: it allows one record to be published outright",
)


@register("method", "fedpft")
class FedPFT(Parameters):
    """Clients send a Gaussian mixture per class; the server samples them and trains a head.

    Private runs clip features to norm 1. One component: one joint Gaussian release of mean and second
    moment per class (or of count, sum and second-moment sum where counts are private). Several: DP-EM.

    Attributes:
        components: K, one number for all clients or one each.
        covariance: The covariance family.
        transport: Type that weights, means and covariances travel in.
        mechanism: `tight`: exact sensitivity, analytic calibration. `paper`: Theorem 4.1.
            `second_moment`: Remark B.3.
        counts: Whether class counts leave exactly (public under `replace_one_same_label` only).
        nonnegative: Clip features to the non-negative orthant: a smaller sensitivity for features that
            are non-negative anyway.
        floor: Covariance floor of non-private fits, relative to the class's scale.
        restarts: Initialisations per mixture.
        dp_steps: Noised releases of DP-EM, the first of which has one component. More steps mean more noise in
            each: on digits, 2 was best or as good at every epsilon from 0.5 to 100.
        head: How the head is trained.
    """

    default_adjacency: ClassVar[Adjacency] = "replace_one_same_label"

    components: PositiveInt | tuple[PositiveInt, ...] = 10
    covariance: Family = "diag"
    transport: MixtureTransport = "float16"
    mechanism: Mechanism = "tight"
    counts: Literal["exact", "noised"] = "exact"
    nonnegative: bool = False
    floor: float = Field(default=FLOOR, gt=0, allow_inf_nan=False)
    restarts: PositiveInt = 1
    dp_steps: PositiveInt = 2
    head: HeadTraining = HeadTraining()

    def run(self, task: Task) -> Outcome:
        """One round: mixtures up, head down.

        Raises:
            PlanError: `components` does not match the clients, or does not fit the mechanism.
            DataError: No client has a usable record.
        """
        wanted = self._components(len(task.clients))
        fitted: Sequence[ClientMixtures]
        if task.privacy.private:
            fitted = [
                self._private(parts)(client, task) for client, parts in zip(task.clients, wanted, strict=True)
            ]
        else:
            fitted = fit_clients(task, wanted, self.covariance, self.floor, self.restarts)
        messages = [
            mixture_message(client, own, self.transport) for client, own in zip(task.clients, fitted, strict=True)
        ]
        features, labels = synthesise(messages, task)
        head = self.head.fit(features, labels, task)
        sent = sum(
            parameters_sent(self.covariance, task.backbone.width, int(own.mixtures.components.sum()))
            for own in fitted
        )
        return Outcome(
            Transcript(
                "fedpft",
                task.classes,
                (*messages, *broadcast(head, task.clients)),
                self._claim(task),
                self._ledger_notes(task),
            ),
            FeatureModel(head, self._clip if task.privacy.private else None),
            communication={
                "paper_parameters_up": float(sent),
                "paper_bytes_up": float(sent * np.dtype(self.transport).itemsize),
            },
            mechanisms=_worst(fitted),
            notes=_notes(task.clients, fitted, wanted),
        )

    def _components(self, clients: int) -> tuple[int, ...]:
        if isinstance(self.components, int):
            return (self.components,) * clients
        if len(self.components) != clients:
            raise PlanError(
                f"fedpft: components has {len(self.components)} entries for {clients} clients; "
                "allowed: one number, or one for each client"
            )
        return self.components

    def _private(self, components: int) -> PrivateFit:
        return PrivateFit(
            components, self.covariance, self.mechanism, self.counts, self.nonnegative, self.dp_steps
        )

    def _clip(self, features: Floats) -> Floats:
        return clip_features(features, nonnegative=self.nonnegative)

    def _claim(self, task: Task) -> Claim:
        if not task.privacy.private:
            return NoClaim()
        several = task.privacy.private and max(self._components(len(task.clients))) > 1
        source = "DP-EM (Park et al. 2017), analytic calibration" if several else _SOURCES[self.mechanism]
        return PrivacyClaim(
            epsilon=task.privacy.epsilon,
            delta=task.privacy.delta,
            adjacency=task.privacy.adjacency,
            source=source,
        )

    def _ledger_notes(self, task: Task) -> tuple[str, ...]:
        if not task.privacy.private:
            return ()
        notes = ["features are clipped to norm 1 inside the mechanism"]
        if self.counts == "exact":
            notes.append("class counts leave exactly: public under replace_one_same_label, under nothing else")
        if self.mechanism != "tight":
            notes += _PUBLISHED_NOTES
        return tuple(notes)


def fit_clients(
    task: Task, components: Sequence[int], family: Family, floor: float, restarts: int
) -> list[ClientMixtures]:
    """Fit one mixture to each class present at each client, all of them at once, without noise.

    Args:
        task: The clients' records, and the seeds.
        components: K for each client.
        family: The covariance family.
        floor: Covariance floor, relative to the class's scale.
        restarts: Initialisations per mixture.
    """
    present = [np.unique(client.labels) for client in task.clients]
    groups = [
        (client, int(label), parts)
        for client, labels, parts in zip(task.clients, present, components, strict=True)
        for label in labels
    ]
    if not groups:
        raise DataError("fedpft: no client has any record")
    with task.progress.step("mixtures"):
        mixtures, _ = fit_mixtures(
            [client.features[client.labels == label] for client, label, _ in groups],
            [parts for _, _, parts in groups],
            family,
            [task.seeds.numpy("mixture", client.name, label) for client, label, _ in groups],
            floor=floor,
            restarts=restarts,
            device=task.device,
        )
    releases = {
        "class_ids": exact("labels"),
        "class_counts": exact("labels"),
        # Records that coincide leave fewer components than labels alone would tell.
        "component_counts": exact(),
        "mixture_weights": exact(),
        "mixture_moments": exact(),
    }
    ends = np.cumsum([len(labels) for labels in present])
    parts = [mixtures.select(np.arange(end - len(labels), end)) for labels, end in zip(present, ends, strict=True)]
    return [
        ClientMixtures(labels.astype(np.int64), own.counts, own, releases)
        for labels, own in zip(present, parts, strict=True)
    ]


def _worst(fitted: Sequence[ClientMixtures]) -> dict[str, Experiment]:
    """The noised statistic of the client that it protects least."""
    found = [own.experiment for own in fitted if own.experiment is not None]
    several = any(own.mixtures.components.max(initial=1) > 1 for own in fitted)
    name = "mixtures (first step of DP-EM)" if several else "mixtures"
    return {name: max(found, key=lambda experiment: experiment.mu)} if found else {}


def _notes(clients: Sequence[Records], fitted: Sequence[ClientMixtures], wanted: Sequence[int]) -> tuple[str, ...]:
    """Which mixtures have fewer components than asked for."""
    short = [
        f"{client.name}: class {label} has {int(size)} of {parts}"
        for client, own, parts in zip(clients, fitted, wanted, strict=True)
        for label, size in zip(own.classes, own.mixtures.components, strict=True)
        if size < parts
    ]
    if not short:
        return ()
    shown = "; ".join(short[:8]) + ("; ..." if len(short) > 8 else "")
    total = sum(len(own.classes) for own in fitted)
    return (
        f"{len(short)} of {total} mixtures have fewer components than asked for, for want of records ({shown})",
    )
