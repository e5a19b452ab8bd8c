"""FedLog's messages: T and the fields beside it up, the head or the summed T down."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedassay.data.records import Records
from fedassay.exchange.release import derived, exact, public
from fedassay.exchange.transcript import SERVER, Message, MessageField
from fedassay.methods.fedlog.private import Protection
from fedassay.methods.shared.rounds import Arrays
from fedassay.support.types import Floats


def as_sent(client: Records, statistic: Floats, protected: Protection | None) -> Arrays:
    """Return a client's arrays of a round by field, in the types of its message.

    T is sent as two fields. `counts` is its first column, which belongs to the constant feature and so counts the
    records of each class; `sums` has the class sums of the other features. `records` is n_i, where it is sent.

    Args:
        client: The sender.
        statistic: T as released, shape (C, m).
        protected: None: nothing is noised, and counts are whole numbers.
    """
    # If only the sum carries the noise, shares may not be rounded: they are sent in float64.
    kind = np.float32 if protected is None or protected.divided is None else np.float64
    sent: Arrays = {
        "counts": statistic[:, 0].astype(np.int32 if protected is None else kind),
        "sums": statistic[:, 1:].astype(kind),
    }
    if protected is not None and protected.statistic.counts:
        sent["records"] = np.array([len(client)], dtype=np.int32)
    return {f"{client.name}/{name}": values for name, values in sent.items()}


def upload(number: int, client: Records, sent: Arrays, protected: Protection | None) -> Message:
    """A client's message of round `number`, from the arrays of `as_sent`."""
    of_counts, of_sums, secure = exact("labels"), exact(), False
    if protected is not None:
        of_counts = of_sums = protected.of_statistic()
        secure = protected.divided is not None
    counts, sums = sent[f"{client.name}/counts"], sent[f"{client.name}/sums"]
    fields = {
        "counts": MessageField(counts, "class_counts", of_counts, additive=True, secure=secure),
        "sums": MessageField(sums, "class_sums", of_sums, additive=True, secure=secure),
    }
    records = sent.get(f"{client.name}/records")
    if records is not None:
        said = exact("size", "the number of records, sent beside T as in the paper")
        fields["records"] = MessageField(records, "other", said, additive=True, secure=secure)
    of_body = None if protected is None else protected.of_body()
    if of_body is not None:
        fields["body_dependence"] = MessageField(np.zeros(0, dtype=np.uint8), "other", of_body)
    return Message(number, client.name, SERVER, fields)


def summed(received: Sequence[Message]) -> dict[str, MessageField]:
    """The sums over the clients, in the types that they travel in; FedLog-C's broadcast."""
    fields = received[0].fields
    totals = {
        name: sum(message.fields[name].values.astype(np.float64) for message in received)
        for name, item in fields.items()
        if item.additive
    }
    return {
        name: MessageField(np.asarray(total).astype(fields[name].dtype), fields[name].kind, derived())
        for name, total in totals.items()
    }


def head_message(number: int, client: Records, head: NDArray[np.float32], *, first: bool = False) -> Message:
    """FedLog's broadcast to one client; the first head is random."""
    release = public("random, drawn by the server") if first else derived()
    return Message(number, SERVER, client.name, {"eta": MessageField(head, "head", release)})


def closed_forms(rounds: int, clients: int, classes: int, width: int) -> dict[str, float]:
    """Return the counts of Yu et al. 2026: T and n_i up, the head down, 4 bytes each."""
    heads = float(rounds * clients * classes * width)
    sums = heads + rounds * clients
    return {
        "paper_parameters_up": sums,
        "paper_parameters_down": heads,
        "paper_bytes_up": 4 * sums,
        "paper_bytes_down": 4 * heads,
    }
