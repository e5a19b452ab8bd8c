"""FedPFT: Gaussian mixtures of each class's features from every client, one round.

Source: Beitollahi, Bie, Hemati, Brunswic, Li, Chen and Zhang, "Parametric Feature Transfer: One-shot Federated
Learning with Foundation Models", arXiv 2402.01862, 2024; numbers of equations and sections are those of version 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from fedassay.contracts.facts import EVERY_UNIT, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.data.records import Records
from fedassay.exchange.feature_sources import message_mixtures
from fedassay.exchange.release import Claim, NoClaim, PrivacyClaim
from fedassay.exchange.transcript import Message, Transcript
from fedassay.heads.linear import FeatureModel, LinearHead
from fedassay.methods.fedpft.messages import clipped, mixture_message, synthesise, wanted
from fedassay.methods.fedpft.parameters import MixtureParameters, least_protected, mechanisms, mixture_seconds
from fedassay.methods.fedpft.private import PrivateFit
from fedassay.methods.fedpft.theorem_6_1 import Guarantee, guarantee
from fedassay.methods.shared.heads import broadcast
from fedassay.privacy.reruns import Experiment
from fedassay.support.errors import DataError
from fedassay.support.types import Floats, Ints

_LISTED = 10
"""Number of clients with a bound written out in the notes."""

_TOGETHER = 20_000
"""Records of the clients with mixtures fitted together: enough for long stacks, few enough for memory."""


@register("method", "fedpft")
class FedPFT(MixtureParameters):
    """Clients send a Gaussian mixture per class; the server samples them and trains a head.

    Private runs clip features to norm 1. One component: one joint Gaussian release of mean and second
    moment per class (or of count, sum and second-moment sum where counts are private). Several: DP-EM.

    Attributes:
        guarantee: Report the paper's bound on every client's loss (Theorem 6.1; `theorem_6_1`). It is
            computed from the clients' own features, for the report alone: nothing of it is sent.
        delta: `per_class`: delta of each class is 1 over its records, as published, with the paper's mechanisms.
            The claim is then at the largest of these, and there is none where a class has one record. `plan`: that
            of the plan.
        densities: Report how far the sampled features are from the test records' (figure 7;
            `density_gap`), and how far the clients' own are.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(
        adjacency="replace_one_same_label",
        units=EVERY_UNIT,
        cost=mixture_seconds,
        sends=("mixture_means", "mixture_covariances", "class_counts"),
    )

    guarantee: bool = False
    delta: Literal["plan", "per_class"] = "plan"
    densities: bool = False

    def leakiest_form(self) -> FedPFT:
        """The same method, with a head that memorizes a few records; so do mixtures of as many components."""
        return self.model_copy(update={"head": self.head.leakiest_form()})

    def private_fit(self, parts: int) -> PrivateFit:
        """Return the settings of a client's fit of `parts` components a class in a private run."""
        return replace(super().private_fit(parts), class_delta=self.delta == "per_class")

    def claim(self, task: MethodInput) -> Claim:
        """Return a run's claim: with `delta: per_class` at the delta of the smallest class of any client."""
        claim = super().claim(task)
        if not isinstance(claim, PrivacyClaim) or self.delta == "plan":
            return claim
        counts = [np.unique(client.labels, return_counts=True)[1] for client in task.clients]
        smallest = int(min(each.min() for each in counts if len(each)))
        if smallest == 1:
            return NoClaim(
                reason="delta is 1/n of each class, so 1 for a class of one record: such a claim promises nothing"
            )
        source = f"{claim.source} at delta 1/n of each class; the largest is claimed here"
        return claim.model_copy(update={"delta": 1 / smallest, "source": source})

    def run(self, task: MethodInput) -> Outcome:
        """One round: mixtures up, head down.

        Raises:
            PlanError: `components` does not match the clients, or does not fit the mechanism.
            DataError: No client has a record. A private run with noise that leaves no usable count has no head
                instead, and a note says so.
        """
        components = self.components_of(len(task.clients))
        task.require_records("fedpft")
        messages: list[Message] = []
        worst: Experiment | None = None
        for block in _blocks(task.clients):
            fitted = self.fit(task.clients[block], components[block], task)
            messages += task.spool.keep_all(
                mixture_message(client.name, own, self.transport)
                for client, own in zip(task.clients[block], fitted, strict=True)
            )
            worst = least_protected(fitted, worst)
        model: FeatureModel | None = None
        answer: list[Message] = []
        utility: dict[str, float] = {}
        remarks: tuple[str, ...] = ()
        try:
            features, labels = synthesise(messages, task)
        except DataError as error:
            if not task.privacy.private:
                raise
            # The messages of the clients are an audit's subject, even without a head.
            remarks = (f"no head: the noise has drowned the counts ({error})",)
        else:
            head = self.head.fit(features, labels, task)
            model = FeatureModel(head, self.clip if task.privacy.private else None)
            answer = broadcast(head, task.clients)
            utility, remarks = self._guarantees(messages, head, task) if self.guarantee else ({}, ())
            if self.densities:
                utility |= self._densities(features, labels, task)
        return Outcome(
            Transcript(
                "fedpft",
                task.classes,
                (*messages, *answer),
                self.claim(task),
                self.ledger_notes(task),
            ),
            model,
            utility=utility,
            communication=self.closed_form(messages, task.backbone.width),
            mechanisms=mechanisms(worst, messages),
            notes=(*self.shortened(messages, components), *clipped(messages), *wanted(messages).notes, *remarks),
            stays=frozenset(utility),
        )

    def _densities(self, features: Floats, labels: Ints, task: MethodInput) -> dict[str, float]:
        """Distance of synthetic and of real features from the test records'."""
        transform = self.clip if task.privacy.private else _unchanged
        reference = transform(task.test.features)
        own = np.concatenate([transform(client.features) for client in task.clients])
        own_labels = np.concatenate([client.labels for client in task.clients])
        gaps = {
            "density_gap": density_gap(features, labels, reference, task.test.labels),
            "density_gap_real": density_gap(own, own_labels, reference, task.test.labels),
        }
        return {name: gap for name, gap in gaps.items() if gap is not None}

    def _guarantees(
        self, messages: Sequence[Message], head: LinearHead, task: MethodInput
    ) -> tuple[dict[str, float], tuple[str, ...]]:
        """Theorem 6.1 at every client that has records."""
        found: dict[str, Guarantee] = {}
        for client, message in zip(task.clients, messages, strict=True):
            received = message_mixtures(message)
            if received is None or not len(client):
                continue
            found[client.name] = guarantee(
                head.predict,
                self.clip(client.features) if task.privacy.private else client.features,
                client.labels,
                received,
                message.fields["class_ids"].values.astype(np.int64),
                task.seeds.numpy("guarantee", client.name),
            )
        bounds = [each.loss_bound for each in found.values()]
        vacuous = sum(each.vacuous for each in found.values())
        figures = {
            "loss_bound_smallest": min(bounds),
            "loss_bound_largest": max(bounds),
            "loss_bounds_vacuous": float(vacuous),
        }
        listed = "; ".join(
            f"{name} {each.loss_bound:.3g} (synthetic loss {each.synthetic_loss:.3g}, "
            f"KL {each.divergence:.3g} nats)"
            for name, each in list(found.items())[:_LISTED]
        )
        return figures, (
            f"Theorem 6.1: loss at most {listed}{'; ...' if len(found) > _LISTED else ''}; vacuous (1 or more) at "
            f"{vacuous} of {len(found)} clients",
        )


def _blocks(clients: Sequence[Records]) -> Iterator[slice]:
    """Runs of clients with at most `_TOGETHER` records, or of one client."""
    start, held = 0, 0
    for index, client in enumerate(clients):
        if index > start and held + len(client) > _TOGETHER:
            yield slice(start, index)
            start, held = index, 0
        held += len(client)
    yield slice(start, len(clients))


def _unchanged(features: Floats) -> Floats:
    return features


LEAST = 10
"""Records of a class on either side below which the class is left out."""


def density_gap(given: Floats, given_labels: Ints, reference: Floats, reference_labels: Ints) -> float | None:
    """Mean Wasserstein-1 distance between the densities of single features, in standard deviations.

    Figure 7 of the paper shows the densities of a few features picked at random, real and sampled from the
    mixtures; this is the area between the cumulative ones, over every feature of every class, in units of the
    feature's standard deviation among the reference records of the class. Two samples of one distribution
    are not at 0 but at the order of n^(-1/2): compare with real records against the same reference.

    Args:
        given: Features to judge, shape (n, d).
        given_labels: Their classes, shape (n,).
        reference: Real features that the given ones were not made from, shape (m, d).
        reference_labels: Their classes, shape (m,).

    Returns:
        The mean over classes and over features that vary; None where no class has `LEAST` on either side.
    """
    from scipy.stats import wasserstein_distance

    gaps: list[float] = []
    for label in np.unique(reference_labels):
        ours, theirs = given[given_labels == label], reference[reference_labels == label]
        if min(len(ours), len(theirs)) < LEAST:
            continue
        scale = theirs.std(axis=0)
        gaps.extend(
            wasserstein_distance(ours[:, j], theirs[:, j]) / scale[j] for j in np.flatnonzero(scale > 1e-9)
        )
    return float(np.mean(gaps)) if gaps else None
