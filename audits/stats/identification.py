"""Test of whether recovered vectors name their records among others: nearest neighbours in a gallery.

The gallery of a vector is the records of its group (a sender's, of one class) and others of the same distribution
that no client holds. If a release says nothing of its records, they and the others are exchangeable given the
release, and the private ones among them are a random choice. The number of vectors with a private nearest
neighbour has the distribution of that choice, whatever the vectors look like and however they depend on each
other. It is computed, so p is exact.

Source: identification among candidates is the criterion of membership by nearest neighbours; the permutation
argument is Fisher 1935 and Good 2005, chapter 3. The allowance of a mu-GDP release is Theorem 2 of Hayes et al.
2023 with one in G as the prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.audits.stats.permutation import PermutationTest
from fedassay.support.types import Bools, Ints, Matrix


@dataclass(frozen=True, eq=False)
class Group:
    """Vectors of one group with their gallery.

    Attributes:
        vectors: Shape (k, d).
        private: True records of the group, shape (n, d).
        others: Records that no client holds, shape (N, d).
        client: Number of the client that holds the private records.
    """

    vectors: Matrix
    private: Matrix
    others: Matrix
    client: int


@dataclass(frozen=True, eq=False)
class Identification:
    """Ranks of private records among the neighbours of vectors in their galleries, with the test.

    Attributes:
        ranks: For each vector, the rank of the nearest private record in its gallery, from 1; shape (k,).
        chance: For each vector, the share of its gallery that is private, shape (k,).
        sizes: Records of each vector's gallery, shape (k,).
        clients: Number of the client that each is held against, shape (k,).
        test: Of whether more nearest neighbours are private than a random choice of the private ones gives.
    """

    ranks: Ints
    chance: Matrix
    sizes: Ints
    clients: Ints
    test: PermutationTest

    @property
    def hits(self) -> Bools:
        """Whether the nearest of all is a private record."""
        return np.asarray(self.ranks == 1)

    def words(self, things: str, more: str = "") -> str:
        """A clause on the hits among the vectors or images, with what else stands beside chance."""
        found = f"{int(self.hits.sum())} of {len(self.hits)} {things} are nearer to one of their sender's records"
        return f"{found} than to any other (chance {self.chance.mean():.0%}{more})"

    def allowed(self, mu: float) -> float:
        """The mean share that a mu-GDP release allows, if all that is known beforehand is the gallery."""
        from fedassay.privacy.gaussian import reconstruction_ceiling

        return float(np.mean([reconstruction_ceiling(float(share), mu) for share in self.chance]))

    def beyond(self, mu: float | None, level: float) -> bool:
        """Whether the share is above what a claim allows, by a bound at this level.

        Args:
            mu: Of the claim; None: nothing is claimed, or nothing is known of it.
            level: One-sided. Vectors of one client depend on each other: a client counts as one trial.
        """
        if mu is None:
            return True
        allowed, number = self.allowed(mu), len(np.unique(self.clients))
        share = float(np.mean([self.hits[self.clients == client].mean() for client in np.unique(self.clients)]))
        low = float(clopper_pearson(np.floor(share * number), number, confidence=1 - 2 * level).low)
        return low > allowed


def identify(groups: Sequence[Group]) -> Identification | None:
    """Hold vectors against their galleries.

    Args:
        groups: Vectors with galleries; those without vectors, records or others say nothing.

    Returns:
        The ranks and the test; None where no group says anything.
    """
    used = [group for group in groups if len(group.vectors) and len(group.private) and len(group.others)]
    if not used:
        return None
    ranks, chance, sizes, clients = [], [], [], []
    hits = np.ones(1)
    for group in used:
        gallery = np.concatenate([group.private, group.others])
        private = len(group.private)
        apart = _distances(group.vectors, gallery)
        best = apart[:, :private].min(axis=1)
        # A tie is decided against the release: an equal record that no client holds is as near.
        ranks.append(1 + (apart[:, private:] <= best[:, None]).sum(axis=1))
        chance.append(np.full(len(group.vectors), private / len(gallery)))
        sizes.append(np.full(len(group.vectors), len(gallery)))
        clients.append(np.full(len(group.vectors), group.client))
        hits = np.convolve(hits, _chance_of_hits(apart.argmin(axis=1), private, len(group.others)))
    together = np.concatenate(ranks)
    found, most = int((together == 1).sum()), int(np.flatnonzero(hits)[-1])
    size = (sum(len(group.private) for group in used), sum(len(group.others) for group in used))
    p, smallest = (float(min(1.0, hits[least:].sum())) for least in (found, most))
    test = PermutationTest(float(found), p, smallest, size, exact=True)
    return Identification(
        together.astype(np.int64), np.concatenate(chance), np.concatenate(sizes), np.concatenate(clients), test
    )


def _distances(vectors: Matrix, gallery: Matrix) -> Matrix:
    squares = (vectors**2).sum(axis=1)[:, None] + (gallery**2).sum(axis=1) - 2 * vectors @ gallery.T
    return np.asarray(np.sqrt(np.maximum(squares, 0)))


def _chance_of_hits(nearest: Ints, private: int, others: int) -> Matrix:
    """Chance of each number of vectors with private nearest neighbours, shape (vectors + 1,).

    A random choice of so many private ones is a coin for each record, given that so many are heads. Records that
    are nearest to as many vectors as each other are one binomial; what counts is how many records are private, and
    how many vectors they are nearest to beyond the first.

    Args:
        nearest: The record that each vector is nearest to, shape (vectors,).
        private: Number of private records.
        others: Number of others.
    """
    met, size = np.unique(nearest, return_counts=True)[1], private + others
    coin, both = private / size, np.ones((1, 1))
    for times, number in zip(*np.unique(met, return_counts=True), strict=True):
        wider = np.zeros((len(both) + number, both.shape[1] + number * (times - 1)))
        for heads, chance in enumerate(binom.pmf(np.arange(number + 1), number, coin)):
            start = heads * (times - 1)
            wider[heads : heads + len(both), start : start + both.shape[1]] += chance * both
        both = wider
    # The other records are private where these are not: as many as are left of the choice.
    left = binom.pmf(private - np.arange(len(both)), size - len(met), coin) / binom.pmf(private, size, coin)
    records, beyond = np.indices(both.shape)
    return np.asarray(
        np.bincount((records + beyond).ravel(), (left[:, None] * both).ravel(), len(nearest) + 1), np.float64
    )
