"""Common parts of FedPFT and its chain: their parameters, the fits of a client, and their claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from fedassay.contracts.facts import Given
from fedassay.contracts.method import MethodInput
from fedassay.contracts.sizes import Sizes
from fedassay.exchange.release import Claim, exact
from fedassay.exchange.transcript import Message
from fedassay.methods.fedpft.messages import ClientMixtures, FeatureSet, MixtureTransport, single_components
from fedassay.methods.fedpft.private import Mechanism, PrivateFit
from fedassay.methods.shared.heads import HeadTraining
from fedassay.mixtures import Family, fit_mixtures, parameters_sent
from fedassay.mixtures.em import FLOOR
from fedassay.plan import rates as rate
from fedassay.plan.work import head
from fedassay.privacy.mechanisms import clip_features
from fedassay.privacy.reruns import Experiment
from fedassay.support.errors import PlanError
from fedassay.support.types import Floats, Ints, Parameters

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


_EXACT = {
    "class_ids": exact("labels"),
    "class_counts": exact("labels"),
    # Records that coincide leave fewer components than labels alone would imply.
    "component_counts": exact(),
    "mixture_weights": exact(),
    "mixture_moments": exact(),
}


def mixture_seconds(given: Given, sizes: Sizes, private: bool) -> float:
    """Seconds of fitting the mixtures and the head."""
    each = given["components"]
    components = max(each) if isinstance(each, list | tuple) else each
    cost = rate.MIXTURE * sizes.private * components * sizes.width
    cost *= sizes.width / 8 if given["covariance"] == "full" and components > 1 else 1
    return float(cost + head(sizes, sizes.private))


class MixtureParameters(Parameters):
    """The plan parameters of `fedpft` and `fedpft_chain`.

    Attributes:
        components: K, one number for all clients or one each.
        covariance: The covariance family.
        transport: Data type of weights, means and covariances in messages.
        mechanism: `tight`: exact sensitivity, analytic calibration. `paper`: Theorem 4.1.
            `second_moment`: Remark B.3.
        counts: Whether class counts leave exactly (public under `replace_one_same_label` only).
        nonnegative: Clip features to the non-negative orthant: a smaller sensitivity for features that
            are non-negative anyway.
        floor: Covariance floor of non-private fits, relative to the class's scale.
        restarts: Initialisations per mixture.
        dp_steps: Noised releases of DP-EM; the first has one component. More steps mean more noise in each: on
            digits, 2 was best or as good at every epsilon from 0.5 to 100.
        head: Settings of the head's training.
    """

    components: PositiveInt | Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = 10
    covariance: Family = "diag"
    transport: MixtureTransport = "float16"
    mechanism: Mechanism = "tight"
    counts: Literal["exact", "noised"] = "exact"
    nonnegative: bool = False
    floor: float = Field(default=FLOOR, gt=0, allow_inf_nan=False)
    restarts: PositiveInt = 1
    dp_steps: PositiveInt = 2
    head: HeadTraining = HeadTraining()

    def components_of(self, clients: int) -> tuple[int, ...]:
        """Return K of each client.

        Raises:
            PlanError: There is one K for each client, but of another number of them.
        """
        if isinstance(self.components, int):
            return (self.components,) * clients
        if len(self.components) != clients:
            raise PlanError(
                f"fedpft: components has {len(self.components)} entries for {clients} clients; "
                "allowed: one number, or one for each client"
            )
        return self.components

    def fit(
        self, owners: Sequence[FeatureSet], wanted: Sequence[int], task: MethodInput, number: int = 0
    ) -> list[ClientMixtures]:
        """The mixtures of every owner, `wanted` components each, with the noise that the task asks for.

        They are sent in round `number`.

        Raises:
            PlanError: The mechanism does not fit the other parameters.
        """
        if not task.privacy.private:
            return fit_clients(owners, wanted, self.covariance, self.floor, self.restarts, task)
        return [self.private_fit(parts)(owner, task, number) for owner, parts in zip(owners, wanted, strict=True)]

    def private_fit(self, parts: int) -> PrivateFit:
        """Return the settings of a client's fit of `parts` components a class in a private run."""
        return PrivateFit(parts, self.covariance, self.mechanism, self.counts, self.nonnegative, self.dp_steps)

    def clip(self, features: Floats) -> Floats:
        """Features (n, d) as the private mechanisms see them."""
        return clip_features(features, nonnegative=self.nonnegative)

    def claim(self, task: MethodInput) -> Claim:
        """Return a run's claim."""
        several = max(self.components_of(len(task.clients))) > 1
        source = "DP-EM (Park et al. 2017), analytic calibration" if several else _SOURCES[self.mechanism]
        return task.privacy.claim(source)

    def ledger_notes(self, task: MethodInput) -> tuple[str, ...]:
        """Return remarks for readers of the ledger."""
        if not task.privacy.private:
            return ()
        notes = ["features are clipped to norm 1 inside the mechanism"]
        if self.counts == "exact":
            notes.append("class counts leave exactly: public under replace_one_same_label, under nothing else")
        if self.mechanism != "tight":
            notes += _PUBLISHED_NOTES
        return tuple(notes)

    def shortened(self, messages: Sequence[Message], wanted: Sequence[int]) -> tuple[str, ...]:
        """Return notes on mixtures with too few components; `wanted` has the number for each message."""
        sent = [(message.fields["class_ids"].values, _components(message)) for message in messages]
        short = [
            f"{message.sender}: class {label} has {int(size)} of {parts}"
            for message, (classes, sizes), parts in zip(messages, sent, wanted, strict=True)
            for label, size in zip(classes, sizes, strict=True)
            if size < parts
        ]
        if not short:
            return ()
        shown = "; ".join(short[:8]) + ("; ..." if len(short) > 8 else "")
        total = sum(len(classes) for classes, _ in sent)
        return (
            f"{len(short)} of {total} mixtures have fewer components than asked for, for want of records "
            f"({shown})",
        )

    def closed_form(self, messages: Sequence[Message], width: int) -> dict[str, float]:
        """Parameters and bytes sent by the paper's equations 9 to 11: without counts and framing."""
        sent = sum(
            parameters_sent(self.covariance, width, int(_components(message).sum())) for message in messages
        )
        return {
            "paper_parameters_up": float(sent),
            "paper_bytes_up": float(sent * np.dtype(self.transport).itemsize),
        }


def fit_clients(
    owners: Sequence[FeatureSet],
    components: Sequence[int],
    family: Family,
    floor: float,
    restarts: int,
    task: MethodInput,
) -> list[ClientMixtures]:
    """Fit one mixture to each class present at each client, all of them at once, without noise.

    Args:
        owners: The clients' features and labels; a client without any gets no mixtures.
        components: K for each client.
        family: The covariance family.
        floor: Covariance floor, relative to the class's scale.
        restarts: Initialisations per mixture.
        task: The seeds, and the feature width.
    """
    present = [np.unique(owner.labels) for owner in owners]
    groups = [
        (owner, int(label), parts)
        for owner, labels, parts in zip(owners, present, components, strict=True)
        for label in labels
    ]
    width = task.backbone.width
    if not groups:
        none = single_components(family, np.empty((0, width)), np.empty(0), width)
        return [ClientMixtures(none.counts, none.counts, none, _EXACT) for _ in owners]
    with task.progress.step("mixtures"):
        mixtures, _ = fit_mixtures(
            [owner.features[owner.labels == label] for owner, label, _ in groups],
            [parts for _, _, parts in groups],
            family,
            [task.seeds.numpy("mixture", owner.name, label) for owner, label, _ in groups],
            floor=floor,
            restarts=restarts,
            device=task.device,
        )
    ends = np.cumsum([len(labels) for labels in present])
    parts = [mixtures.select(np.arange(end - len(labels), end)) for labels, end in zip(present, ends, strict=True)]
    return [
        ClientMixtures(labels.astype(np.int64), own.counts, own, _EXACT)
        for labels, own in zip(present, parts, strict=True)
    ]


def least_protected(fitted: Iterable[ClientMixtures], known: Experiment | None = None) -> Experiment | None:
    """The noised statistic of the client that it protects least; `known` is that of clients seen before."""
    found = [own.experiment for own in fitted if own.experiment is not None]
    return max([*([known] if known else []), *found], key=lambda experiment: experiment.mu, default=None)


def mechanisms(worst: Experiment | None, messages: Sequence[Message]) -> dict[str, Experiment]:
    """Return the least protected client's statistic, under a name that describes it."""
    several = any(_components(message).max(initial=1) > 1 for message in messages)
    name = "mixtures (first step of DP-EM)" if several else "mixtures"
    return {name: worst} if worst else {}


def _components(message: Message) -> Ints:
    """Components of each mixture of a message, shape (P,)."""
    return np.asarray(message.fields["component_counts"].values, dtype=np.int64)
