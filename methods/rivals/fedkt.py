"""FedKT (Li, He and Song, IJCAI 2021): teachers vote on public records, and the students of their votes are sent.

As a rival of FedPFT: Beitollahi et al. 2024, figure 4 and table 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedassay.contracts.facts import Given, MethodFacts
from fedassay.contracts.method import MethodInput, Outcome
from fedassay.contracts.registry import register
from fedassay.contracts.sizes import Sizes
from fedassay.data.records import Records
from fedassay.exchange.release import exact
from fedassay.exchange.transcript import SERVER, Message, MessageField, Transcript
from fedassay.heads.linear import FeatureModel, LinearHead
from fedassay.methods.shared.heads import HeadTraining, broadcast
from fedassay.methods.shared.local_heads import SentHead, mean_of
from fedassay.plan.work import head
from fedassay.support.errors import PlanError
from fedassay.support.types import Floats, Ints, Matrix, Parameters


def _seconds(given: Given, sizes: Sizes, private: bool) -> float:
    students = given["partitions"] * sizes.clients
    each = head(sizes, sizes.private / sizes.clients / given["teachers"])
    return float(students * (given["teachers"] * each + head(sizes, sizes.public)) + head(sizes, sizes.public))


@register("method", "fedkt")
class FedKT(Parameters):
    """Each client's teachers label public records by their votes; students learn these labels and are sent.

    A client splits its records into `teachers` parts, `partitions` times over, and trains a head on each part. It
    lets the heads of a partition vote on the public records, and trains a student on these with the votes
    (algorithm 1). The server lets all students vote in the same way, a client's only where they agree (consistent
    voting, section 3). It trains the final head on the public records that got a vote. Labels of public records
    are not used.

    The paper's private forms noise the votes by Laplace's mechanism (FedKT-L1 and FedKT-L2). They are not here:
    a run with a finite epsilon is refused.

    Attributes:
        partitions: s; 2 in the paper. With 1 a client sends one head.
        teachers: t; 5 in the paper.
        head: Settings of the training of teachers, students and the final head.
    """

    facts: ClassVar[MethodFacts] = MethodFacts(private_form=False, cost=_seconds)

    partitions: int = Field(default=2, ge=1)
    teachers: int = Field(default=5, ge=1)
    head: HeadTraining = HeadTraining()

    def run(self, task: MethodInput) -> Outcome:
        """One round: students up, the final head down.

        Raises:
            PlanError: There are no public records.
            DataError: No client has a record.
        """
        public = task.require_public("fedkt", "to vote on")
        task.require_records("fedkt")
        messages = task.spool.keep_all(
            _message(client, self._students(client, public.features, task))
            for client in task.progress.each("students", task.clients)
        )
        received = {message.sender: _received(message) for message in messages}
        votes = np.zeros((len(public), task.classes))
        for students in received.values():
            if students:
                votes += agreed([student.predict(public.features) for student in students], task.classes)
        voted = np.flatnonzero(votes.any(axis=1))
        if not len(voted):
            raise PlanError("fedkt: no client's students agree on any public record; try partitions 1")
        final = self.head.fit(public.features[voted], votes[voted].argmax(axis=1), task)
        sent = float(len(messages) * self.partitions * task.classes * (task.backbone.width + 1))
        return Outcome(
            Transcript("fedkt", task.classes, (*messages, *broadcast(final, task.clients))),
            FeatureModel(final),
            utility={"labelled_by_votes": len(voted) / len(public)},
            communication={"paper_parameters_up": sent, "paper_bytes_up": 4 * sent},
            networks={(name, 0): SentHead(mean_of(each)) for name, each in received.items() if each},
        )

    def _students(self, client: Records, features: Floats, task: MethodInput) -> list[LinearHead]:
        """A client's students: one of each partition; none without records."""
        found = []
        for partition in range(self.partitions if len(client) else 0):
            order = task.seeds.numpy("fedkt", client.name, partition).permutation(len(client))
            parts = [part for part in np.array_split(order, self.teachers) if len(part)]
            teachers = [
                self.head.fit(client.features[part], client.labels[part], task, task.classes) for part in parts
            ]
            votes = sum(counted(teacher.predict(features), task.classes) for teacher in teachers)
            found.append(self.head.fit(features, np.argmax(votes, axis=1), task, task.classes))
        return found


def counted(predicted: Ints, classes: int) -> Matrix:
    """One vote a record, (n,) to (n, C)."""
    return np.eye(classes)[predicted]


def agreed(predicted: Sequence[Ints], classes: int) -> Matrix:
    """Consistent voting of a client: as many votes as it has students where all of them agree, none elsewhere.

    Args:
        predicted: Predicted classes of each student, shape (n,).
        classes: C.
    """
    first = np.asarray(predicted[0])
    same = np.all([each == first for each in predicted], axis=0)
    return np.asarray(len(predicted) * counted(first, classes) * same[:, None], dtype=np.float64)


def _message(client: Records, students: Sequence[LinearHead]) -> Message:
    """A client's students on their way, one after the other, in float32."""
    fields = {"students": MessageField(np.array([len(students)], dtype=np.int32), "other", exact("labels"))}
    if students:
        weights = np.concatenate([each.weights for each in students]).astype(np.float32)
        bias = np.concatenate([each.bias for each in students]).astype(np.float32)
        fields["head_weights"] = MessageField(weights, "head", exact())
        fields["head_bias"] = MessageField(bias, "head", exact())
    return Message(0, client.name, SERVER, fields)


def _received(message: Message) -> list[LinearHead]:
    count = int(message.fields["students"].values[0])
    if not count:
        return []
    weights = np.split(message.fields["head_weights"].values, count)
    bias = np.split(message.fields["head_bias"].values, count)
    return [LinearHead(np.arange(len(b)), w, b) for w, b in zip(weights, bias, strict=True)]
