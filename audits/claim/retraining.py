"""Lower bounds on epsilon for statistics of networks that are trained on the records, by retraining both worlds.

A statistic of features has a sensitivity only while the network that computes them is held fixed. Where it is
trained on the records, a neighbour moves every feature. If nothing in that training is random to the
adversary (a public seed), the statistic is one of two known values plus the noise of the mechanism: two
trainings give both, and the noise is drawn as often as one likes (`fedassay.privacy.reruns`).

Which neighbours are the worst is not known, so they are searched for: records unlike the rest, added to or
put into the records of the smallest and of the largest client, all of them and (where a record is added) so
many that one more makes a minibatch more. The search looks at the exact statistics and draws no noise, so it
costs no confidence. What it finds is a lower bound on what a record can do; a search that finds little shows
nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedassay.audits.claim.bounds import Observation
from fedassay.audits.claim.outliers import Outlier, outliers_of
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import Retrained
from fedassay.data.records import Records
from fedassay.privacy.reruns import Experiment
from fedassay.privacy.variants import distances
from fedassay.support.adjacency import Adjacency
from fedassay.support.errors import FedassayError, NotRunError


class Found(NamedTuple):
    """The worst neighbours that were found.

    Attributes:
        name: The mechanism and the neighbours, in words.
        experiment: The mechanism on them.
        says: Remark for the reader.
    """

    name: str
    experiment: Experiment
    says: tuple[str, ...]

    def add_to(self, observation: Observation) -> Observation:
        """The observation with what its bounds rest on besides."""
        return dataclasses.replace(observation, assumptions=(*observation.assumptions, *self.says))


def worst_retraining(context: AuditContext, adjacency: Adjacency) -> Found:
    """Try neighbours of the clients' records on every statistic with a network that is trained again.

    Raises:
        NotRunError: No client has two records, or the method cannot be trained on such data.
    """
    best: Found | None = None
    tried = 0
    with context.io.progress.step("neighbours") as advance:
        for name, retrained in context.outcome.retrained.items():
            for index, records in _data_sets(context, retrained, adjacency):
                for outlier in outliers_of(context, records, adjacency):
                    advance(tried, tried + 1)
                    tried += 1
                    experiment = _experiment(retrained, index, outlier)
                    if best is None or experiment.mu > best.experiment.mu:
                        best = _found(name, retrained, experiment, outlier)
    if best is None:
        raise NotRunError("no client has two records to train on again")
    return best._replace(says=(*best.says, f"the worst of {tried} neighbours tried, by the exact statistics"))


def _experiment(retrained: Retrained, index: int, outlier: Outlier) -> Experiment:
    try:
        return retrained.experiment(index, outlier.without, outlier.within)
    except FedassayError as error:
        raise NotRunError(f"the method cannot be trained on {outlier.name}: {error}") from None


def _found(name: str, retrained: Retrained, experiment: Experiment, outlier: Outlier) -> Found:
    moved = float(np.hypot.reduce(distances(experiment)))
    about = f"{outlier.name} at {outlier.within.name}, {len(outlier.within)} records"
    return Found(
        f"{name}: {about}",
        experiment,
        (
            f"{about}, moves the statistic by {moved:.4g}; its noise is calibrated to {retrained.sensitivity:.4g}",
            retrained.condition,
        ),
    )


def _data_sets(context: AuditContext, retrained: Retrained, adjacency: Adjacency) -> Iterator[tuple[int, Records]]:
    """Records to look for neighbours of, with the position of their client."""
    sizes = {i: len(client) for i, client in enumerate(context.data.clients) if len(client) >= 2}
    if not sizes:
        return
    chosen = dict.fromkeys((min(sizes, key=lambda i: sizes[i]), max(sizes, key=lambda i: sizes[i])))
    for index in chosen:
        client = context.data.clients[index]
        yield index, client
        full = len(client) - len(client) % retrained.batch
        if adjacency == "add_remove" and 0 < full < len(client):
            yield index, client.take(np.arange(full))
