"""Lower bounds on epsilon from rerunning a whole method on two neighbouring data sets.

The data sets are real records of the plan's smallest client, and a neighbour of them in which one record is an
outlier. The adversary of differential privacy knows both data sets and the method, so it may simulate the method
on either as often as it likes. Here it does the following:

1. choose the outlier, and a direction: runs of both neighbours with the same random streams, so that
   the noise is the same on both sides and drops out of their difference. The direction is the mean
   difference over the variance, coordinate by coordinate: Fisher's linear discriminant with a diagonal
   covariance.
2. test: runs of each neighbour with streams of their own. The score of a run is the projection of its release on
   that direction; the threshold is chosen on one half of these runs and tested on the other.

The direction is independent of the runs it is tested on, so the threshold bound assumes nothing but independent
runs. It bounds only the view of this attack, and n runs cannot show more than about ln(n/8). Other clients hold
nothing in these runs: their records are known to the adversary anyway.

Where a whole client is there or not (unit `client` under `add_remove`), the two data sets are a federation with it
and the same one in which it holds no record. It takes part in both: a client without records sends the method's
result on none, which under noise is the noise. A method that lets it send nothing reveals it by that alone. The
smallest of the others keeps its records, since a method cannot train a head without any record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.claim.bounds import Bounds, Observation, ObservedControl, Scores, bounds_of
from fedassay.audits.claim.outliers import Outlier, outliers_of
from fedassay.audits.stats.epsilon_bound import EpsilonBound
from fedassay.audits.stats.gdp_bound import gdp_bound
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import Outcome
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyClaim
from fedassay.exchange.transcript import AGGREGATE
from fedassay.exchange.view import ThreatModel, view
from fedassay.support.adjacency import Unit
from fedassay.support.errors import FedassayError, NotRunError
from fedassay.support.seeds import Seeds

_TRIED = 3  # paired runs that choose among the outliers
LEAST = 40  # fewer runs a side can hardly show anything at a corrected level, not even the positive control

_ADVERSARY = (
    "the adversary knows all records but {}, and sees what the client sends (under secure aggregation, the sum)"
)
_WHOSE: dict[Unit, str] = {"record": "one", "person": "those of one person", "client": "those of one client"}

Released = dict[str, NDArray[np.float64]]
"""Release of one run by the client: one vector a field and message."""


@dataclass(frozen=True)
class Direction:
    """A linear score of what leaves.

    Attributes:
        layout: Length of every field's vector; the field's own length is one more coordinate.
        weights: Shape (D,).
    """

    layout: dict[str, int]
    weights: NDArray[np.float64]

    def score(self, released: Released) -> float:
        """The projection of one run."""
        return float(_row(released, self.layout) @ self.weights)


def observe_reruns(context: AuditContext, claim: PrivacyClaim, *, runs: int, seeds: Seeds) -> Observation:
    """Rerun the method on neighbouring data of its smallest client.

    Args:
        context: Its `run_on`, and the clients' records.
        claim: Delta and adjacency.
        runs: Runs a side that test, at least `LEAST`; a quarter as many (or `LEAST`) choose the direction, and as
            many again are the positive control.
        seeds: Of the runs.

    Raises:
        NotRunError: No client has two records, a client is removed that is the only one with records, or the
            method cannot be run on such data.
    """
    index = _smallest(context.data.clients)
    name = context.data.clients[index].name
    beside = _beside(context.data.clients, index, claim)

    def released(records: Records, what: str, number: int) -> Released:
        clients = [client.take(np.zeros(0, np.int64)) for client in context.data.clients]
        clients[index] = records
        if beside is not None:
            clients[beside] = context.data.clients[beside]
        try:
            outcome = context.method.run_on(clients, seeds.child(what, number))
        except FedassayError as error:
            others = "alone" if beside is None else f"and {context.data.clients[beside].name}"
            raise NotRunError(f"the method cannot be run again on {name} {others}: {error}") from None
        return what_leaves(outcome, name)

    chosen = max(LEAST, runs // 4)
    with context.io.progress.step("reruns") as advance:
        outliers = outliers_of(context, context.data.clients[index], claim.adjacency, claim.unit)
        outlier, direction = _strongest(outliers, released, chosen)
        zero, one = np.empty(runs), np.empty(runs)
        for i in range(runs):
            advance(i, runs)
            zero[i] = direction.score(released(outlier.without, "without", i))
            one[i] = direction.score(released(outlier.within, "within", i))
        # The same streams as on the other side: what is left of the difference is the record's doing.
        known = np.array([direction.score(released(outlier.within, "without", i)) for i in range(chosen)])
    delta, tests = claim.delta, context.num_tests

    def threshold(first: Scores, second: Scores, what: str) -> Bounds:
        rng = seeds.numpy("halves", what)
        return bounds_of(first, second, delta=delta, tests=tests, estimators=("threshold",), rng=rng)

    audited = threshold(zero, one, "audited")
    positive = threshold(np.zeros(chosen), known - zero[:chosen], "positive")
    negative = threshold(zero[: runs // 2], zero[runs // 2 :], "negative")
    reach = threshold(np.zeros(runs), np.ones(runs), "reach").observed.epsilon or 0.0
    return Observation(
        about=f"{outlier.name} at {name}, {len(outlier.within)} records",
        bounds=audited,
        positive=ObservedControl(
            "the same runs with their noise known to the adversary",
            positive,
            positive.judged > 0,
            f"lower bound on epsilon, against 0; {chosen} runs a side, which limits it",
        ),
        negative=ObservedControl(
            "runs on one and the same data set",
            negative,
            negative.judged > 0,
            "lower bound on epsilon, against 0",
        ),
        assumptions=(
            _ADVERSARY.format(_WHOSE[claim.unit]),
            f"threshold bound on a linear score: assumes independent runs only; {_conditional(zero, one, delta)}",
        ),
        remark=f"{runs} runs a side can show at most {reach:.2g}",
    )


def _strongest(
    outliers: Sequence[Outlier], released: Callable[[Records, str, int], Released], runs: int
) -> tuple[Outlier, Direction]:
    """The outlier with the most distant paired runs, and the direction between them."""
    base = [released(outliers[0].without, "paired", i) for i in range(runs)]
    few = [[released(outlier.within, "paired", i) for i in range(_TRIED)] for outlier in outliers]
    worst = int(np.argmax([_separation(base, other) for other in few]))
    moved = few[worst] + [released(outliers[worst].within, "paired", i) for i in range(_TRIED, runs)]
    return outliers[worst], fit_direction(base, moved)


def what_leaves(outcome: Outcome, client: str, threat: ThreatModel | None = None) -> Released:
    """Every field that the server, or who `threat` says, sees of a client or of the secure sum, as vectors."""
    seen = view(outcome.transcript, threat or ThreatModel())
    return {
        f"{message.round}/{name}": np.asarray(item.values, dtype=np.float64).ravel()
        for message in seen.from_clients()
        if message.sender in {client, AGGREGATE}
        for name, item in message.fields.items()
    }


def fit_direction(zero: Sequence[Released], one: Sequence[Released]) -> Direction:
    """Mean difference over variance, coordinate by coordinate, from runs of both sides.

    A coordinate that never varies on either side and differs between them separates the sides with certainty:
    where there are such, only they count.

    Args:
        zero: Runs on data set 0, at least two.
        one: Runs on data set 1, at least two and at most as many; run i has the streams of run i of `zero`.
    """
    layout: dict[str, int] = {}
    for released in (*zero, *one):
        for key, values in released.items():
            layout[key] = max(layout.get(key, 0), len(values))
    rows0 = np.stack([_row(released, layout) for released in zero])
    rows1 = np.stack([_row(released, layout) for released in one])
    constant = (np.ptp(rows0, axis=0) == 0) & (np.ptp(rows1, axis=0) == 0)
    if (constant & (rows0[0] != rows1[0])).any():
        return Direction(layout, np.where(constant, np.sign(rows1[0] - rows0[0]), 0.0))
    n0, n1 = len(rows0) - 1, len(rows1) - 1
    variance = (n0 * rows0.var(axis=0, ddof=1) + n1 * rows1.var(axis=0, ddof=1)) / (n0 + n1)
    step = (rows1 - rows0[: len(rows1)]).mean(axis=0)
    return Direction(layout, np.where(variance > 0, step / np.where(variance > 0, variance, 1.0), 0.0))


def _separation(zero: Sequence[Released], one: Sequence[Released]) -> float:
    """Distance between the sides, in standard deviations of the noise along their direction."""
    direction = fit_direction(zero, one)
    scores = np.array([direction.score(released) for released in zero])
    shifts = [direction.score(released) - score for released, score in zip(one, scores, strict=False)]
    apart, spread = float(np.mean(shifts)), float(scores.std())
    if spread > 0:
        return apart / spread
    return math.inf if apart > 0 else 0.0


def _row(released: Released, layout: dict[str, int]) -> NDArray[np.float64]:
    """One run as a vector: every field padded or cut to its place, and its length."""
    parts = []
    for key, width in layout.items():
        values = released.get(key, np.zeros(0))
        kept = values[:width]
        parts.append(np.concatenate([kept, np.zeros(width - len(kept)), [float(len(values))]]))
    return np.concatenate(parts)


def _conditional(zero: Scores, one: Scores, delta: float) -> str:
    """Words on the Gaussian-DP estimate, for the reader: it decides nothing here."""
    bound: EpsilonBound = gdp_bound(zero, one, delta=delta)
    if bound.epsilon is None:
        return f"the Gaussian-DP estimate does not apply ({bound.reason})"
    return f"were the scores exactly normal, the Gaussian-DP estimate would show {bound.epsilon:.3g} (95 %)"


def _smallest(clients: Sequence[Records]) -> int:
    """The client with the largest weight of a record: the smallest with at least two."""
    sizes = {i: len(client) for i, client in enumerate(clients) if len(client) >= 2}
    if not sizes:
        raise NotRunError("no client has two records to rerun the method on")
    return min(sizes, key=lambda i: sizes[i])


def _beside(clients: Sequence[Records], index: int, claim: PrivacyClaim) -> int | None:
    """The smallest other client, which keeps its records while one is removed as a whole; None: not needed.

    Raises:
        NotRunError: No other client has a record.
    """
    if (claim.unit, claim.adjacency) != ("client", "add_remove"):
        return None
    sizes = {i: len(client) for i, client in enumerate(clients) if len(client) and i != index}
    if not sizes:
        raise NotRunError(
            f"a claim for clients under add_remove speaks of a federation without {clients[index].name}, and "
            "no other client has a record that a method could be run on; a second client with records would "
            "decide, and so would replace_one, under which a client is replaced"
        )
    return min(sizes, key=lambda i: sizes[i])
