"""Signals of a view about single records: one row a candidate, one column a signal, higher for members."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedassay.attacks.membership.tracing import evidence
from fedassay.contracts.membership import HeadScores, Shadow
from fedassay.data.records import Records
from fedassay.exchange.kinds import FieldKind
from fedassay.exchange.models import ScoringGenerator, label_logits
from fedassay.exchange.transcript import AGGREGATE, SERVER
from fedassay.exchange.view import View
from fedassay.mixtures.population import Population
from fedassay.support.errors import NotRunError
from fedassay.support.hashing import digest_arrays
from fedassay.support.seeds import Seeds
from fedassay.support.types import Ints, Matrix

Source = Literal["messages", "model", "generator"]

_ROUNDS = 8
"""Networks of one sender that are asked at most, the last ones."""
_LEAST = 1e-12
"""A loss below it is rounding."""


@dataclass(frozen=True)
class Group:
    """Candidates that are asked about together.

    Attributes:
        sender: Sender of the messages that answer: a client, or `aggregate` or `server` for all clients at once.
        clients: Clients of the candidates asked about.
    """

    sender: str
    clients: tuple[str, ...]


Signals = Callable[[View, Group, Records], Matrix]


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads signals, those of one view, sender and records once.

    Attributes:
        read: Computes them.
        what: Names them, beside view, sender and records; None: those of shadows are read anew by every attack.
        own: Those of the view that is attacked.
    """

    read: Signals
    what: Hashable = None
    own: dict[Hashable, Matrix] = field(default_factory=dict)

    def __call__(self, seen: View | Shadow, group: Group, records: Records) -> Matrix:
        """Signals of records, shape (n, k)."""
        if isinstance(seen, View):
            return self._kept(self.own, seen, group, records)
        if self.what is None:
            return self.read(seen.view, group, records)
        return self._kept(seen.signals, seen.view, group, records)

    def _kept(self, kept: dict[Hashable, Matrix], seen: View, group: Group, records: Records) -> Matrix:
        content = digest_arrays({"images": records.images, "labels": records.labels})
        key = (self.what, group, content)
        if key not in kept:
            kept[key] = self.read(seen, group, records)
        return kept[key]


def groups_of(source: Source, view: View, clients: Sequence[str]) -> list[Group]:
    """Group clients by the sender that answers: each client for itself where it is seen, else a common sender."""
    own = [Group(name, (name,)) for name in clients if _answers(source, view, name)]
    if own:
        return own
    common = [name for name in (AGGREGATE, SERVER) if _answers(source, view, name)]
    return [Group(common[0], tuple(clients))] if common else []


def _answers(source: Source, view: View, sender: str) -> bool:
    if source == "messages":
        return any(_speaks(message.fields) for message in view.from_client(sender))
    if source == "model":
        return sender in view.model_rounds
    return isinstance(view.generators.get(sender), ScoringGenerator)


MESSAGE_KINDS: tuple[FieldKind, ...] = (
    "features",
    "class_sums",
    "class_means",
    "mixture_means",
    "second_moment",
)
"""Kinds of fields that say something of single records."""


def _speaks(fields: object) -> bool:
    assert hasattr(fields, "values")
    return any(item.kind in MESSAGE_KINDS for item in fields.values())


def encoded(view: View, records: Records) -> Matrix:
    """Features of records on which the statistics of a view are computed.

    Raises:
        NotRunError: They are features of networks that only the clients hold.
    """
    rounds = view.model_rounds.get(SERVER)
    head = view.models[SERVER, rounds[-1]] if rounds else None
    if isinstance(head, HeadScores):
        transform = head.model.transform
        features = records.features if transform is None else transform(records.features)
        return np.asarray(features, np.float64)
    if view.kinds & {"head", "parameters"}:
        raise NotRunError("the statistics are of features of the clients' own networks, which are not sent")
    return records.features.astype(np.float64)


def message_signals(
    view: View, sender: str, records: Records, people: Population, sizes: Ints | None, spread: float = 0.0
) -> dict[str, Matrix]:
    """Evidence in a sender's messages by kind, the mean over its messages; `spread` as in `MembershipGame`.

    Raises:
        NotRunError: The candidates' features cannot be computed, or the messages say nothing of records.
    """
    features = encoded(view, records)
    found: dict[str, list[Matrix]] = {}
    for message in view.from_client(sender):
        of_message = evidence(message, features, records.labels, people, view.classes, sizes, spread)
        for name, values in of_message.items():
            found.setdefault(name, []).append(values)
    if not found:
        raise NotRunError("no class sums, means, mixtures, second moments or features of the backbone's width")
    return {name: np.mean(values, axis=0) for name, values in found.items()}


def as_ratio(signals: dict[str, Matrix], width: int) -> Matrix:
    """One log-likelihood ratio from all evidence, as if its parts were independent, shape (n,).

    A second moment's range, or a feature that was sent, leaves no width for chance: they count for every
    coordinate. Leverage has no law that is known beforehand and is left to the shadows.

    Raises:
        NotRunError: There is no other evidence.
    """
    weights = {"class_sum": 1.0, "density": 1.0, "span": float(width), "nearest": float(width)}
    parts = [weights[name] * values for name, values in signals.items() if name in weights]
    if not parts:
        raise NotRunError("no evidence whose law is known without shadow releases")
    return np.asarray(np.sum(parts, axis=0))


def as_columns(signals: dict[str, Matrix]) -> Matrix:
    """Evidence as columns that a Gaussian fits better, (n, 4): signed logarithms, 0 where there is none."""
    size = len(next(iter(signals.values())))
    columns = [signals.get(name, np.zeros(size)) for name in ("class_sum", "density", "leverage", "nearest")]
    return np.stack([np.sign(each) * np.log1p(np.abs(each)) for each in columns], axis=1)


def model_signals(view: View, sender: str, records: Records) -> Matrix:
    """Logit of the probability of the record's own label, one column for each network of the sender, (n, k)."""
    rounds = sorted(view.model_rounds[sender])[-_ROUNDS:]
    return np.stack([label_logits(view.models[sender, number], records) for number in rounds], axis=1)


def generator_signals(
    view: View, sender: str, records: Records, levels: Sequence[float], draws: int, seeds: Seeds
) -> Matrix:
    """Log-likelihood a pixel of each record under a generator, of several draws at each noise level, (n, 1).

    Errors that are Gaussian with a variance of their own have, at the variance that fits best, the log-likelihood
    -log(loss) / 2 a pixel. Its mean over levels and draws is one signal: several, as a Gaussian vector, cost more
    in means to be estimated from a few shadow releases than they tell (docs/membership.md).
    """
    model = view.generators[sender]
    assert isinstance(model, ScoringGenerator)
    losses = model.losses(records, [level for level in levels for _ in range(draws)], seeds)
    return np.asarray(-np.log(np.maximum(losses, _LEAST)).mean(axis=1, keepdims=True) / 2)
