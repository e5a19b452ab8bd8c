"""A method of another package: class counts and class sums, as they are or under differential privacy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.contracts.facts import MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.exchange.release import Release, exact
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.heads.linear import FeatureModel, LinearHead
from fedassay.privacy import reruns, sensitivities
from fedassay.privacy.gaussian import calibrate_sigma
from fedassay.privacy.mechanisms import clip_features
from fedassay.support.types import Parameters

STATISTICS = "statistics"
"""The group of the release: both fields share one draw of noise, one sensitivity, one entry of the ledger."""


@register("method", "toy_sums")
class ToySums(Parameters):
    """Sends class counts and class sums; the server classifies by the nearest mean."""

    facts: ClassVar[MethodFacts] = MethodFacts(
        private_form=True, adjacency="add_remove", cost=lambda given, sizes, private: 1e-6 * sizes.private
    )

    least: float = Field(default=2.0, ge=0)
    """Noised counts below so many standard deviations of their noise are taken for no records."""

    def run(self, task: MethodInput) -> Outcome:
        """One message a client."""
        if not task.privacy.private:
            return self._outcome(task, [_exact(task, client) for client in task.clients], 0.0)
        privacy = task.privacy
        # How far counts and sums together can move when one record does, and the noise that hides it.
        worst = sensitivities.count_sums(task.backbone.width, adjacency=privacy.adjacency, classes=task.classes)
        scale = calibrate_sigma(privacy.epsilon, privacy.delta, worst.sensitivity)
        messages = []
        for client in task.clients:
            features = clip_features(client.features)  # the sensitivity is that of features of norm 1
            member = np.eye(task.classes)[client.labels]
            door = task.door(client.name, 0, STATISTICS)  # noise comes from here alone
            counts = door.add("counts", member.sum(axis=0), scale)
            sums = door.add("sums", member.T @ features, scale)
            release = Release(
                mechanism="gaussian",
                adjacency=privacy.adjacency,
                group=STATISTICS,
                noise_scale=(scale,),
                sensitivity=(worst.sensitivity,),
            )
            messages.append(_message(client.name, counts, sums, release, release))
        return self._outcome(task, messages, scale)

    def _outcome(self, task: MethodInput, messages: list[Message], scale: float) -> Outcome:
        transcript = Transcript(
            "toy_sums", task.classes, tuple(messages), task.privacy.claim("joint Gaussian mechanism")
        )
        # The same mechanism on its worst neighbours, which an audit releases again and again.
        again = reruns.count_sums(adjacency=task.privacy.adjacency, sigmas=(scale, scale))
        model = FeatureModel(self._head(messages, scale), transform=clip_features if scale else None)
        return Outcome(transcript, model, mechanisms={STATISTICS: again} if scale else {})

    def _head(self, messages: list[Message], scale: float) -> LinearHead:
        """The nearest mean: the largest m x - |m|^2 / 2."""
        counts, sums = (sum(message.fields[name].values for message in messages) for name in ("counts", "sums"))
        kept = np.flatnonzero(counts > max(0.5, self.least * scale * len(messages) ** 0.5))
        kept = kept if len(kept) else np.array([int(np.argmax(counts))])
        means = (sums[kept] / np.maximum(counts[kept], 1)[:, None]).astype(np.float32)
        return LinearHead(kept, means, -(means**2).sum(axis=1) / 2)


def _exact(task: MethodInput, client) -> Message:
    member = np.eye(task.classes)[client.labels]
    return _message(client.name, member.sum(axis=0), member.T @ client.features, exact("labels"), exact())


def _message(sender: str, counts, sums, of_counts: Release, of_sums: Release) -> Message:
    fields = {
        "counts": MessageField(counts, "class_counts", of_counts, additive=True),
        "sums": MessageField(sums, "class_sums", of_sums, additive=True),
    }
    return Message(0, sender, SERVER, fields)
