"""Units of the membership test: records, or persons where records carry a person's identity.

Records of one person come and go together and score alike, so they are no independent trials: a test that took
them for such would reject too often, and its intervals would be too narrow. A person is one trial, scored by the
mean over its records. Beside it stand figures of single records, one drawn at random of each person, and of whole
clients against as many strangers of the same labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.audits.stats.persons import mean_by
from fedassay.audits.stats.roc import auc
from fedassay.contracts.membership import MembershipGame
from fedassay.data.groups import units_of
from fedassay.data.records import joined
from fedassay.records.record import Metric
from fedassay.support.types import Bools, Ints, Matrix

_FEWEST_CLIENTS = 4
"""Clients that an area needs at least to be informative."""


@dataclass(frozen=True, eq=False)
class Trials:
    """The candidates of a game by whom they are of.

    Attributes:
        of: The trial of each candidate, from 0, shape (n,).
        person: Whether trials are persons with several records.
    """

    of: Ints
    person: bool

    @property
    def most(self) -> int:
        """Records of the person with the most; 1 where each record is a trial."""
        return int(np.bincount(self.of).max(initial=1)) if self.person else 1

    def scores(self, scores: NDArray[np.floating]) -> Matrix:
        """The mean score of each trial, over those of its candidates that were scored; NaN where none was."""
        return mean_by(np.asarray(scores, np.float64), self.of) if self.person else np.asarray(scores, np.float64)

    def any(self, flags: Bools) -> Bools:
        """Whether any candidate of each trial is so."""
        return np.bincount(self.of, weights=flags) > 0 if self.person else flags

    def first(self, names: NDArray[np.str_]) -> NDArray[np.str_]:
        """The name of each trial's first candidate, which the others share."""
        return names[np.unique(self.of, return_index=True)[1]] if self.person else names


def trials_of(game: MembershipGame) -> Trials:
    """The trials of a game's candidates, in their order."""
    asked = joined("candidates", list(game.questions.values()))
    units = units_of(asked.labels, asked.groups)
    return Trials(units.of, len(units.labels) < len(units.of))


def person_metrics(
    scores: NDArray[np.floating], truth: Bools, senders: NDArray[np.str_], trials: Trials, rng: np.random.Generator
) -> dict[str, Metric]:
    """Figures beside those of persons: of single records, of clients, and of the most exposed persons.

    Args:
        scores: Of the candidates, NaN where one was not scored, shape (n,).
        truth: Whether each is a member, shape (n,).
        senders: The client that each is asked of, shape (n,).
        trials: The person of each.
        rng: Draws one record of each person.
    """
    values = np.asarray(scores, np.float64)
    known = np.flatnonzero(~np.isnan(values))
    order = known[rng.permutation(len(known))]
    one = order[np.unique(trials.of[order], return_index=True)[1]]
    single = auc(values[one][~truth[one]], values[one][truth[one]])
    found = {
        "auc_records": single.metric("one record of each person, drawn at random"),
        "persons_above_all": worst_off(trials.scores(values), trials.any(truth)),
    }
    clients = np.unique(senders[known])
    if len(clients) >= _FEWEST_CLIENTS:
        inside, outside = (
            np.array([values[(senders == name) & (truth == side) & ~np.isnan(values)].mean() for name in clients])
            for side in (True, False)
        )
        area = auc(outside, inside)
        found["auc_clients"] = Metric(
            value=area.value,
            low=area.low,
            high=area.high,
            n=len(clients),
            reason="mean score of a client's candidates against that of as many strangers",
        )
    return found


def worst_off(scores: Matrix, members: Bools) -> Metric:
    """The share of member persons who score above every stranger, who can be pointed at without a mistake.

    By guessing it is 1 / (1 + strangers) on average; that the k highest of n + m exchangeable persons are all
    members has probability C(n + m - k, m) / C(n + m, m).
    """
    known = ~np.isnan(scores)
    inside, outside = scores[known & members], scores[known & ~members]
    count = int((inside > outside.max(initial=-np.inf)).sum())
    n, m = len(inside), len(outside)
    p = math.comb(n + m - count, m) / math.comb(n + m, m)
    ends = clopper_pearson(count, n)
    words = (
        f"{count} of {n}; guessing gives {n / (m + 1):.2g} on average, so many or more with probability {p:.2g}"
    )
    return Metric(value=count / n, low=float(ends.low), high=float(ends.high), n=n, reason=words)
