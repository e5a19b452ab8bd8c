"""Test of whether recovered vectors name their records among others: nearest neighbours in a gallery.

The gallery of a vector is the records of its group (a sender's, of one class) and others of the same distribution
that no client holds. If a release says nothing of its records, they and the others are exchangeable given the
release, and the private ones among them are a random choice. The number of vectors with a private nearest
neighbour has the distribution of that choice, whatever the vectors look like and however they depend on each
other. The test draws from it.

Source: identification among candidates is the criterion of membership by nearest neighbours; the permutation
argument is Fisher 1935 and Good 2005, chapter 3. The allowance of a mu-GDP release is Theorem 2 of Hayes et al.
2023 with one in G as the prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.audits.stats.permutation import Draws, PermutationTest
from fedassay.support.types import Bools, Ints, Matrix

_BLOCK = 2_000_000


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


def identify(groups: Sequence[Group], rng: np.random.Generator, *, draws: Draws) -> Identification | None:
    """Hold vectors against their galleries.

    Args:
        groups: Vectors with galleries; those without vectors, records or others say nothing.
        rng: Draws the choices.
        draws: Choices drawn; the smallest p is 1 in one more than all.

    Returns:
        The ranks and the test; None where no group says anything.
    """
    used = [group for group in groups if len(group.vectors) and len(group.private) and len(group.others)]
    if not used:
        return None
    ranks, chance, sizes, clients = [], [], [], []
    nearest: list[tuple[Ints, int, int]] = []
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
        nearest.append((apart.argmin(axis=1), private, len(group.others)))

    def chosen(count: int) -> Matrix:
        return sum((_by_choice(*each, rng, count) for each in nearest), np.zeros(count))

    together = np.concatenate(ranks)
    value = float((together == 1).sum())
    size = (sum(len(group.private) for group in used), sum(len(group.others) for group in used))
    test = PermutationTest.of_some(value, chosen, draws, 0.0, size, max(1.0, value))
    return Identification(
        together.astype(np.int64), np.concatenate(chance), np.concatenate(sizes), np.concatenate(clients), test
    )


def _distances(vectors: Matrix, gallery: Matrix) -> Matrix:
    squares = (vectors**2).sum(axis=1)[:, None] + (gallery**2).sum(axis=1) - 2 * vectors @ gallery.T
    return np.asarray(np.sqrt(np.maximum(squares, 0)))


def _by_choice(nearest: Ints, private: int, others: int, rng: np.random.Generator, draws: int) -> Matrix:
    """Number of vectors with private nearest neighbours in random choices of the private ones, shape (draws,)."""
    met = np.unique(nearest, return_counts=True)[1]
    chosen = rng.hypergeometric(len(met), private + others - len(met), private, size=draws)
    if (met == met[0]).all():
        return np.asarray(chosen * met[0], np.float64)
    found = np.zeros(draws)
    step = max(1, _BLOCK // len(met))
    for start in range(0, draws, step):
        part = chosen[start : start + step]
        order = rng.permuted(np.tile(met, (len(part), 1)), axis=1)
        running = np.concatenate([np.zeros((len(part), 1)), order.cumsum(axis=1)], axis=1)
        found[start : start + step] = running[np.arange(len(part)), part]
    return found
