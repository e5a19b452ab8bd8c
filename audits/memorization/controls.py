"""Controls of the memorization audit: the method's own generators of a few records that they were overfitted to.

They go the whole way of the audited ones: the method's run in the form in which it gives records away most, its
message, what that generates, and the same search. Where clients send generators of several architectures, there is
a control of each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedassay.audits.simulation import control_seeds
from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records
from fedassay.exchange.models import Generator
from fedassay.support.errors import FedassayError, NotRunError
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images, Ints


@dataclass(frozen=True, eq=False)
class Redrawn:
    """Draws from images as they are: a `fedassay.exchange.models.Generator` that knows only them.

    Attributes:
        images: Shape (n, H, W, C), n at least 1.
    """

    images: Images

    def sample(self, count: int, seeds: Seeds, progress: Progress) -> Images:
        """`count` of the images, with replacement."""
        return self.images[seeds.numpy("rows").integers(len(self.images), size=count)]


def overfitted(records: Records, context: AuditContext) -> list[Generator]:
    """The method's own generators of these records, one of every architecture that clients sent.

    Raises:
        NotRunError: The method cannot be run on them, or sends no generator then.
    """
    last = max(_architectures(context))
    clients = [records.take(np.arange(len(records)), f"client/{number}") for number in range(last + 1)]
    try:
        outcome = context.method.run_nonprivate(clients, control_seeds(context, "memorization", "overfitted"))
    except NotRunError:
        raise
    except FedassayError as error:
        raise NotRunError(f"the method could not be run on control records: {error}") from error
    made = [outcome.generators.get(clients[number].name) for number in _architectures(context)]
    if not all(made):
        raise NotRunError("the method sends no generator of a few control records")
    return [each for each in made if each is not None]


def _architectures(context: AuditContext) -> list[int]:
    """Positions of the first clients with generators of different sizes, which tell architectures apart."""
    first: dict[tuple[int, ...], int] = {}
    sizes: dict[str, tuple[int, ...]] = {}
    for message in context.outcome.transcript.messages:
        sent = tuple(item.size for item in message.fields.values() if item.kind == "parameters")
        sizes[message.sender] = sizes.get(message.sender, ()) + sent
    for number, client in enumerate(context.data.clients):
        if client.name in context.outcome.generators:
            first.setdefault(sizes.get(client.name, ()), number)
    return list(first.values()) or [0]


def halves(records: Records, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Positions of two disjoint sets of records with the same number of each class."""
    first: list[Ints] = [np.zeros(0, dtype=np.int64)]
    second: list[Ints] = [np.zeros(0, dtype=np.int64)]
    for label in np.unique(records.labels):
        pool = rng.permutation(np.flatnonzero(records.labels == label))
        size = len(pool) // 2
        first.append(pool[:size])
        second.append(pool[size : 2 * size])
    return np.sort(np.concatenate(first)), np.sort(np.concatenate(second))
