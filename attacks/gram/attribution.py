"""Attribution to clients of records from a sum over several clients, by other evidence in the messages.

A second moment under secure aggregation gives its records back without their clients. Five kinds of evidence
identify these:

- `rounds`: sums over other clients. A record is of a client that took part wherever it shows (Marchand et al.
  2023, SRATTA, arXiv 2306.07644).
- `difference`: a record that shows while a client takes part and not while it does not is that client's, and one
  that shows without it is not, if clients send statistics of the same records each time.
- `own_message`: records from visible messages of a client are its own.
- `sums`: class sums or means that a client sends openly. sum_j x_j f_j = A_ic over the recovered records of a
  class has one solution x while they are linearly independent: 1 for records of client i and 0 for others.
- `counts`: class counts of single clients. A client without records of a class has none of its vectors, and a
  client with all records of a class attributed has no further one.

Each narrows down the possible clients. Evidence that leaves no client is dropped: then a client's records have
changed between rounds, or two clients hold the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.exchange.message import AGGREGATE, Message
from fedassay.exchange.statistics import known_counts, noise_of, statistics_of
from fedassay.exchange.view import View
from fedassay.support.types import Bools, Ints, Matrix

SURE = 0.05
"""Expected error above which a vector is not compared with others."""

_SAME = 0.01
"""Relative distance below which two vectors are of the same record."""

_WHOLE = 0.05
"""Largest distance of the solution of sums from 0 and 1."""

_EXPLAINED = 0.01
"""Share of a client's class sum, as a norm, that recovered records may leave unexplained."""

_INDEPENDENT = 1e-6


@dataclass(frozen=True)
class Part:
    """Vectors recovered from one Gram matrix.

    Attributes:
        sender: The sender of the message.
        round: Of the message; of the later one where it is a difference.
        before: Round of the earlier message of a difference; else None.
        vectors: Shape (k, d).
        labels: Shape (k,), -1 where unknown.
        expected: Expected relative error of each, shape (k,).
        whole: Whether every record of the matrix is among them.
    """

    sender: str
    round: int
    before: int | None
    vectors: Matrix
    labels: Ints
    expected: Matrix
    whole: bool

    @property
    def sure(self) -> Bools:
        """Whether each vector may be compared with others, shape (k,)."""
        return np.asarray(self.expected <= SURE)


@dataclass(frozen=True)
class Attribution:
    """Possible clients of recovered vectors, in the order of the parts.

    Attributes:
        clients: Their names, S of them.
        possible: Whether each client is possible, shape (k, S); none is in a row without known participants.
        evidence: Evidence that narrowed each vector's clients down, joined by "+", length k; `sender` where one
            client alone sent the message, empty without any.
        reason: Reason why no vector of a sum is of one client only; empty where one is.
    """

    clients: tuple[str, ...]
    possible: Bools
    evidence: tuple[str, ...]
    reason: str


def attribute(view: View, parts: Sequence[Part]) -> Attribution:
    """Narrow down the clients of the vectors of every part."""
    took_part = {name for cohort in view.cohorts.values() for name in cohort}
    alone = {part.sender for part in parts} | {message.sender for message in view.from_clients()}
    names = tuple(sorted((took_part | alone) - {AGGREGATE}))
    masks = [np.isin(names, sorted(_holders(part, view))) for part in parts]
    possible, evidence = [np.zeros((0, len(names)), np.bool_)], []
    for part, mask in zip(parts, masks, strict=True):
        sheet = _Sheet(part, np.tile(mask, (len(part.vectors), 1)), names)
        if mask.sum() > 1:
            for other, theirs in zip(parts, masks, strict=True):
                if other is not part and theirs.any():
                    sheet.compare(other, theirs)
            sheet.open_sums(view)
            sheet.open_counts(view)
        possible.append(sheet.possible)
        evidence += ["+".join(sorted(each)) or ("sender" if mask.sum() == 1 else "") for each in sheet.evidence]
    together = np.concatenate(possible)
    return Attribution(names, together, tuple(evidence), _reason(view, parts, together))


def _holders(part: Part, view: View) -> set[str]:
    """Clients that may hold a part's records; none where the participants are unknown."""
    if part.sender != AGGREGATE:
        return {part.sender}
    now = set(view.cohorts.get(part.round, ()))
    if part.before is None:
        return now
    earlier = set(view.cohorts.get(part.before, ()))
    came, went = now - earlier, earlier - now
    # Where some came and others went, a difference is of both, with either sign.
    return came | went if came and went else came or went or now


def _reason(view: View, parts: Sequence[Part], possible: Bools) -> str:
    summed = np.repeat([part.sender == AGGREGATE for part in parts], [len(part.vectors) for part in parts])
    if (possible[summed].sum(axis=1) == 1).any() or not summed.any():
        return ""
    if not possible[summed].any():
        return "not attributable: the senders of the summed messages are not known"
    single = [message for message in view.from_clients() if message.sender != AGGREGATE]
    if not single and len({frozenset(cohort) for cohort in view.cohorts.values()}) == 1:
        return "not attributable: nothing is seen of single clients, and every sum is over the same clients"
    return "not attributable: what is seen beside the sums leaves several clients for every record"


class _Sheet:
    """Clients that are still possible for the vectors of one part, and what the others were ruled out by."""

    def __init__(self, part: Part, possible: Bools, names: tuple[str, ...]) -> None:
        self.part, self.possible, self.names, self.all = part, possible.copy(), names, possible.any(axis=0)
        first = {"difference"} if part.before is not None and not possible.all() else set()
        self.evidence: list[set[str]] = [set(first) for _ in range(len(possible))]

    def narrow(self, row: int, mask: Bools, why: str) -> None:
        """Keep the clients of a mask for a vector, unless none of them is possible."""
        left = self.possible[row] & mask
        if left.any() and left.sum() < self.possible[row].sum():
            self.possible[row] = left
            self.evidence[row].add(why)

    def compare(self, other: Part, theirs: Bools) -> None:
        """Vectors that another part has as well are of its clients; those that it would have are not."""
        sure = np.flatnonzero(self.part.sure)
        seen = _same(self.part.vectors, other.vectors[other.sure])
        why = ("rounds", "difference") if other.sender == AGGREGATE else ("own_message", "own_message")
        for row in sure[seen[sure]]:
            self.narrow(row, theirs, why[0])
        new = not _same(other.vectors, self.part.vectors).all()
        if other.whole and ((theirs & ~self.all).any() or not new):  # else somebody's records have changed
            for row in sure[~seen[sure]]:
                self.narrow(row, ~theirs, why[1])

    def open_sums(self, view: View) -> None:
        """Narrow down by class sums: the vectors of a class that add up to a client's open sum are its own."""
        for message in _single(view):
            for label, values in _class_vectors(message, view.classes):
                rows = np.flatnonzero(np.isin(self.part.labels, (label, -1)))
                member = _members(self.part.vectors[rows], values)
                for row, own in zip(rows.tolist(), member, strict=True) if member is not None else ():
                    mask = self._only(message.sender)
                    self.narrow(row, mask if own else ~mask, "sums")

    def open_counts(self, view: View) -> None:
        """Narrow down by class counts of clients, until nothing more follows."""
        counts = {
            message.sender: own for message in _single(view) if (own := _counts(message, view.classes)) is not None
        }
        for client, own in counts.items():
            for row in np.flatnonzero(self.part.labels >= 0).tolist():
                if own[self.part.labels[row]] == 0:
                    self.narrow(row, ~self._only(client), "counts")
        before = -1
        while before != self.possible.sum():
            before = int(self.possible.sum())
            for client, own in counts.items():
                self._fill(client, own)

    def _fill(self, client: str, own: Ints) -> None:
        """Exclude clients with all of their records of a class attributed from further vectors of the class."""
        mask = self._only(client)
        told = self.possible[:, mask].any(axis=1) & (self.possible.sum(axis=1) == 1)
        for label in np.flatnonzero(own):
            of = self.part.labels == label
            for row in np.flatnonzero(of & ~told).tolist() if (told & of).sum() == own[label] else ():
                self.narrow(row, ~mask, "counts")

    def _only(self, client: str) -> Bools:
        return np.array([name == client for name in self.names], np.bool_)


def _single(view: View) -> Iterator[Message]:
    """Messages of single clients, as far as they are seen."""
    return (message for message in view.from_clients() if message.sender != AGGREGATE)


def _same(vectors: Matrix, others: Matrix) -> Bools:
    """Whether each of the vectors (k, d) is among others (m, d), shape (k,)."""
    if not len(others) or others.shape[1] != vectors.shape[1]:
        return np.zeros(len(vectors), np.bool_)
    apart = np.array([np.linalg.norm(others - vector, axis=1).min() for vector in vectors])
    return np.asarray(apart <= _SAME * np.linalg.norm(vectors, axis=1))


def _class_vectors(message: Message, classes: int) -> Iterator[tuple[int, Matrix]]:
    """Class sums, or means, of a message without declared noise, class by class."""
    order = statistics_of(message, classes).order
    for item in message.fields.values():
        if item.kind in ("class_sums", "class_means") and noise_of(item) == 0:
            values = item.values.astype(np.float64)
            yield from ((int(label), row) for label, row in zip(order, values, strict=True) if row.any())


def _members(vectors: Matrix, total: Matrix) -> Bools | None:
    """Whether each vector (k, d) is in a given sum or mean (d,), shape (k,); None without a clear answer."""
    if not len(vectors) or vectors.shape[1] != len(total):
        return None
    solved, _, rank, _ = np.linalg.lstsq(vectors.T, total, rcond=_INDEPENDENT)
    top = float(solved.max())
    if rank < len(vectors) or top <= 0:
        return None
    shares = solved / top
    off = np.linalg.norm(solved @ vectors - total) / np.linalg.norm(total)
    if off > _EXPLAINED or np.abs(shares - np.rint(shares)).max() > _WHOLE:
        return None
    return np.asarray(np.rint(shares) == 1)


def _counts(message: Message, classes: int) -> Ints | None:
    """Whole records per class, shape (C,), of a message; None where it does not say, or under noise."""
    known = known_counts(message, classes)
    if known is None or np.abs(known[0] - np.rint(known[0])).max(initial=0.0) > _WHOLE:
        return None
    found = np.zeros(classes, np.int64)
    found[statistics_of(message, classes).order] = np.rint(known[0])
    return found
