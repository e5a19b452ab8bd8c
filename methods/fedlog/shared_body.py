"""A malicious server's use of FedLog's shared initial weights: a body of cells, and heads that do not train it.

Where all bodies have the same initial weights, the server sends these, and the head that a body is trained under.
Under a head of zeros no feature changes the loss: all gradients of a body are 0, and a step of Adam or of plain
descent leaves it unchanged. In every round T is then a sum of the features that the server chose
(`fedassay.nets.cells`). The last head that it sends is computed as usual.

Source: none known to us; Yu et al. 2026 (section 3) assume an honest server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.contracts.method import MethodInput
from fedassay.exchange.release import public
from fedassay.exchange.transcript import Message, MessageField
from fedassay.methods.fedlog.bodies import Bodies, Shared
from fedassay.methods.shared.classifiers import read
from fedassay.methods.shared.local_networks import MeanModel
from fedassay.nets.cells import Cells
from fedassay.support.errors import PlanError
from fedassay.support.types import Floats

_GIVEN = "fedlog: threat.server: malicious given"


@dataclass(frozen=True)
class OnSharedBody(MeanModel):
    """A model on the features of the body that the server chose, which training has not changed.

    Attributes:
        transform: The map that a private run applies to features (n, d) before their sum; None: the identity.
    """

    transform: Callable[[Floats], Floats] | None = None


def cells_of(task: MethodInput) -> Cells | None:
    """The body that a malicious server has chosen; None where it is honest.

    Raises:
        PlanError: The server is malicious and has chosen none.
    """
    if task.adversary is None:
        return None
    if not isinstance(task.backbone.module, Cells):
        raise PlanError(f"{_GIVEN}, but no body; allowed: a backbone of cells in the body's place")
    return task.backbone.module


def check(alike: bool, heads_alone: bool) -> None:
    """Refuse a method without shared initial weights to choose, or with other broadcasts that train bodies.

    Args:
        alike: Whether bodies of one entry have the same initial weights.
        heads_alone: Whether heads are all that a body is trained under.

    Raises:
        PlanError: One of them is false.
    """
    if not alike:
        raise PlanError(f"{_GIVEN} with initialization own, which leaves it no body to send; allowed: shared")
    if not heads_alone:
        raise PlanError(
            f"{_GIVEN} with variant c over several rounds, whose class means teach bodies as well; allowed: "
            "variant plain, or rounds 1"
        )


def set_cells(bodies: Bodies, cells: Cells) -> None:
    """Write the server's choice over the start of every body.

    Raises:
        PlanError: A body has not the layers that cells are made of, or too few units in them.
    """
    for network in bodies.networks:
        try:
            cells.write_into(network.module)
        except PlanError as error:
            raise PlanError(f"{_GIVEN}, but {error}; allowed: bodies mlp_deep") from None


def taught_nothing(shared: Shared) -> Shared:
    """Return the broadcast in place of a head while bodies are still to be trained."""
    return dataclasses.replace(shared, head=np.zeros_like(shared.head))


def with_start(messages: Sequence[Message], bodies: Bodies) -> list[Message]:
    """The first messages of the server, each with the body that its client starts from."""
    release = public("chosen by the server")
    return [
        dataclasses.replace(
            message,
            fields={
                **message.fields,
                "body": MessageField(read(bodies.networks[own].module), "parameters", release),
            },
        )
        for message, own in zip(messages, bodies.of_client, strict=True)
    ]
