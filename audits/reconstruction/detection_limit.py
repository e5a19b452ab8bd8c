"""The smallest leak that a run of reconstructions would have found, where none was.

Runs of the audited size are put together from the trials of both controls (`audits.stats.detection`): of pairs,
SSIM and baseline of a target; of a set, the pool of reconstructions is put together anew, so that every target is
matched with what the leaking ones brought in and with what is left of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedassay.audits.reconstruction.selections import Scored
from fedassay.audits.stats.decisions import GapDecision, PairedDecision
from fedassay.audits.stats.detection import drawn_trials
from fedassay.audits.stats.persons import mean_by
from fedassay.audits.trials import Pairs
from fedassay.similarity.ssim_search import most_similar, ssim_matrix
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images, Ints, Matrix

SHIFTS = np.array([0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0])
"""Gains of SSIM of every target alike that are tried."""
LARGEST_POOL = 600
"""Reconstructions of a set at most: the dear part of a limit is the SSIM of all pairs."""


def pairs(scored: Scored) -> Pairs:
    """SSIM of every target and of its baseline."""
    alike = scored.top < len(scored.truth) and bool(np.array_equal(scored.rank, scored.baseline_rank))
    ours, theirs = scored.values["ssim"], scored.baseline_values["ssim"]
    return Pairs(ours, theirs, scored.rank, scored.top, alike)


@dataclass(frozen=True)
class PooledRuns:
    """Runs of reconstructions that are matched as a set.

    Attributes:
        truth: Private images, shape (n, H, W, C).
        fresh: Fresh images, which are matched with the same set.
        silent: Reconstructions of the negative control, shape (m, H, W, C).
        nonprivate: Control images of records that were given away, shape (c, H, W, C).
        shown: Reconstructions of these.
        attacker: The adversary's own images: the baseline.
        top: Number of private images that count.
        tests: Tests in the run.
        seeds: Seeds of the draws.
        device: Torch device of SSIM.
        persons: The person of each private image, shape (n,): tests are of persons. Runs are put together from
            single images all the same, as if a person's leaked one by one. None: no person has two.
        fresh_persons: The person of each fresh image, shape (m,).
    """

    truth: Images
    fresh: Images
    silent: Images
    nonprivate: Images
    shown: Images
    attacker: Images
    top: int
    tests: int
    seeds: Seeds
    device: str
    persons: Ints | None = None
    fresh_persons: Ints | None = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Places, and trials of the negative and the positive control."""
        return len(self.truth), len(self.truth), len(self.nonprivate)

    @cached_property
    def _pool(self) -> int:
        return min(len(self.silent), len(self.attacker), LARGEST_POOL)

    @cached_property
    def _targets(self) -> Images:
        """Private, exposed and fresh images, in this order."""
        return np.concatenate([self.truth, self.nonprivate, self.fresh])

    @cached_property
    def _left(self) -> Matrix:
        """Best SSIM of every target to the silent set without so many of it, shape (targets, m + 1)."""
        order = self.seeds.numpy("silent").permutation(len(self.silent))[: self._pool]
        table = ssim_matrix(self._targets, self.silent[order], device=self.device).astype(np.float64)
        best = np.maximum.accumulate(table[:, ::-1], axis=1)[:, ::-1]
        return np.concatenate([best, np.full((len(best), 1), -1.0)], axis=1)

    @cached_property
    def _brought(self) -> Matrix:
        """SSIM of every target to the best reconstruction of each exposed image, shape (targets, c)."""
        own = most_similar(self.nonprivate, self.shown, device=self.device).indices
        table = ssim_matrix(self._targets, self.shown, device=self.device)
        return np.asarray(table[:, own], np.float64)

    @cached_property
    def _baseline(self) -> Matrix:
        """Best SSIM of private and exposed images to as many of the attacker's, shape (n + c,)."""
        chosen = self.seeds.numpy("baseline").permutation(len(self.attacker))[: self._pool]
        both = self._targets[: len(self.truth) + len(self.nonprivate)]
        return most_similar(both, self.attacker[chosen], device=self.device).values

    @cached_property
    def _decisions(self) -> tuple[PairedDecision, GapDecision]:
        n, m = (len(self._by_person(np.zeros(len(each)), whose)) for each, whose in self._whose)
        top = n if self.top == len(self.truth) else min(n, self.top)
        return PairedDecision(n, top, self.tests), GapDecision(n, m, top / n, self.tests)

    @property
    def _whose(self) -> tuple[tuple[Images, Ints | None], tuple[Images, Ints | None]]:
        return (self.truth, self.persons), (self.fresh, self.fresh_persons)

    @staticmethod
    def _by_person(values: Matrix, persons: Ints | None) -> Matrix:
        return values if persons is None else mean_by(values, persons)

    def finds(self, silent: Ints, leaking: Ints, count: int) -> bool:
        """Whether the test rejects where the first `count` targets leak, and their images are in the pool."""
        n = len(self.truth)
        # No more records can be given away than there are vectors.
        count = min(count, self._pool)
        brought = leaking[:count]
        rows = np.concatenate([n + brought, silent[count:]])

        def closest(targets: Ints | slice) -> Matrix:
            kept = self._left[targets, len(brought)]
            return np.asarray(np.maximum(kept, self._brought[targets][:, brought].max(axis=1, initial=-1.0)))

        return self._rejects(closest(rows), self._baseline[rows], closest(slice(n + len(self.nonprivate), None)))

    def finds_shift(self, shift: float, rng: np.random.Generator) -> bool:
        """Whether it rejects where every target of a silent run is closer by this much."""
        silent = drawn_trials(len(self.truth), len(self.truth), rng)
        fresh = self._left[len(self.truth) + len(self.nonprivate) :, 0]
        return self._rejects(self._left[silent, 0] + shift, self._baseline[silent], fresh)

    def _rejects(self, ours: Matrix, baseline: Matrix, fresh: Matrix) -> bool:
        paired, gap = self._decisions
        ours, baseline = (self._by_person(each, self.persons) for each in (ours, baseline))
        fresh = self._by_person(fresh, self.fresh_persons)
        return paired.rejects(ours, baseline) and gap.rejects(ours, fresh)
