"""A method of another package: class counts and class sums, as they are or under differential privacy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.contracts.facts import MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.data.records import Records
from fedassay.exchange.release import Release, exact
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.heads.linear import FeatureModel, LinearHead
from fedassay.privacy import reruns, sensitivities
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.privacy.mechanisms import clip_features
from fedassay.privacy.tape import NoiseSource
from fedassay.support.types import Floats, Parameters

STATISTICS = "statistics"
"""The group of the release: both fields share one draw of noise, one sensitivity, one entry of the ledger."""


@register("method", "toy_sums")
class ToySums(Parameters):
    """Sends class counts and class sums; the server classifies by the nearest mean."""

    facts: ClassVar[MethodFacts] = MethodFacts(
        private_form=True, adjacency="add_remove", cost=lambda given, sizes, private: 1e-6 * sizes.private
    )

    scale: float = Field(default=1.0, gt=0)
    """What the sums are multiplied by: their weight beside the counts, which share one noise with them."""

    least: float = Field(default=2.0, ge=0)
    """Noised counts below so many standard deviations of their noise are taken for no records."""

    def run(self, task: MethodInput) -> Outcome:
        """One message a client."""
        if not task.privacy.private:
            return self._outcome(task, [self._plain(task, client) for client in task.clients], 0.0)
        privacy, width = task.privacy, task.backbone.width
        # How far counts and sums together can move when one record does, and the noise that hides it.
        worst = sensitivities.count_sums(
            width, adjacency=privacy.adjacency, classes=task.classes, weights=(1.0, self.scale)
        )
        sigma = calibrate_sigma(privacy.epsilon, privacy.delta, worst.sensitivity)
        messages = []
        for client in task.clients:
            features = self.features(client)
            member = np.eye(task.classes)[client.labels]
            noise = self.noise(task, client)
            counts = noise.add("counts", member.sum(axis=0), sigma)
            sums = noise.add("sums", self.scale * (member.T @ features), sigma)
            release = Release(
                mechanism="gaussian",
                adjacency=privacy.adjacency,
                group=STATISTICS,
                noise_scale=(sigma,),
                sensitivity=(worst.sensitivity,),
            )
            messages.append(_message(client.name, counts, sums, release, release))
        return self._outcome(task, messages, sigma)

    def features(self, client: Records) -> Floats:
        """What is summed up: the sensitivity is that of features of norm 1 at most."""
        return clip_features(client.features)

    def noise(self, task: MethodInput, client: Records) -> NoiseSource:
        """Where all noise comes from: the mechanism writes down what goes in and what comes out."""
        return task.mechanism(client.name, 0, STATISTICS)

    def _plain(self, task: MethodInput, client: Records) -> Message:
        member = np.eye(task.classes)[client.labels]
        sums = self.scale * (member.T @ client.features)
        return _message(client.name, member.sum(axis=0), sums, exact("labels"), exact())

    def _outcome(self, task: MethodInput, messages: list[Message], sigma: float) -> Outcome:
        claim = task.privacy.claim("joint Gaussian mechanism on counts and sums")
        transcript = Transcript("toy_sums", task.classes, tuple(messages), claim)
        # The same mechanism on its worst neighbours, which an audit releases again and again.
        again = reruns.count_sums(adjacency=task.privacy.adjacency, sigmas=(sigma, sigma / self.scale))
        model = FeatureModel(self._head(messages, sigma), transform=clip_features if sigma else None)
        return Outcome(transcript, model, mechanisms={STATISTICS: again} if sigma else {})

    def _head(self, messages: list[Message], sigma: float) -> LinearHead:
        """The nearest mean: the largest m x - |m|^2 / 2."""
        counts, sums = (sum(message.fields[name].values for message in messages) for name in ("counts", "sums"))
        kept = np.flatnonzero(counts > max(0.5, self.least * sigma * len(messages) ** 0.5))
        kept = kept if len(kept) else np.array([int(np.argmax(counts))])
        means = (sums[kept] / self.scale / np.maximum(counts[kept], 1)[:, None]).astype(np.float32)
        return LinearHead(kept, means, -(means**2).sum(axis=1) / 2)


def _message(sender: str, counts: Floats, sums: Floats, of_counts: Release, of_sums: Release) -> Message:
    fields = {
        "counts": MessageField(counts, "class_counts", of_counts, additive=True),
        "sums": MessageField(sums, "class_sums", of_sums, additive=True),
    }
    return Message(0, sender, SERVER, fields)
