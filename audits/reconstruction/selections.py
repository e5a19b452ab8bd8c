"""Selections of reconstructions and of the private images to compare (Beitollahi et al. 2024, appendix E).

Where each vector is the encoding of one record (raw features), a reconstruction belongs to that record: `all`
scores every target, `attacker` the targets with the reconstructions that agree most with each other (the adversary
can compute that), `oracle` those with the highest true SSIM. Where vectors are samples, every private image is
held against its most similar reconstruction: `oracle_all` scores all private images and `oracle` the best of them.
Each selection has the baseline that goes with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedassay.audits.features import nearest_feature
from fedassay.audits.simulation import control_seeds
from fedassay.audits.stats.persons import mean_by
from fedassay.contracts.attack import Reconstruction
from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records, joined
from fedassay.similarity.groups import group_agreement
from fedassay.similarity.metrics import Similarity
from fedassay.similarity.ssim_search import most_similar
from fedassay.support.types import Bools, Images, Ints, Matrix


@dataclass(frozen=True)
class Truth:
    """Private images that are scored.

    Attributes:
        images: Shape (n, H, W, C).
        fresh: Test images treated alike, shape (m, H, W, C): records in no release.
        owner: Sender and row of each image, in order.
        closest: The attacker image most similar (SSIM) to each image, shape (n,).
        persons: The person of each image, shape (n,); None: no person has two.
        fresh_persons: The person of each fresh image, shape (m,); None with `persons`.
    """

    images: Images
    fresh: Images
    owner: tuple[tuple[str, int], ...]
    closest: Ints
    persons: Ints | None = None
    fresh_persons: Ints | None = None

    def positions(self, senders: tuple[str, ...], rows: Ints) -> Ints:
        """Position of each (sender, row) among the images, -1 for one that is not scored."""
        where = {owner: position for position, owner in enumerate(self.owner)}
        return np.array(
            [where.get((sender, int(row)), -1) for sender, row in zip(senders, rows, strict=True)], np.int64
        )


@dataclass(frozen=True)
class Scored:
    """One selection: metrics per target, of the reconstructions and of the baseline.

    Attributes:
        truth: Private images, shape (n, H, W, C).
        images: The attack's image for each.
        baseline: The adversary's image for each without a generator.
        values: Metric name to (n,) values of `images`.
        baseline_values: The same of `baseline`.
        rank: The `top` targets with the highest rank count, shape (n,).
        baseline_rank: The same for the baseline; differs where the baseline chooses its own targets.
        top: Number of targets that count; n where all do.
        fresh: Metrics of fresh images and their own best match in the same set, shape (m,) each: the expectation
            for records that are not in the release. None where targets are paired.
        persons: The person of each target, shape (n,); None: no person has two.
        fresh_persons: The person of each fresh image, shape (m,); None: no person has two.
    """

    truth: Images
    images: Images
    baseline: Images
    values: dict[str, Matrix]
    baseline_values: dict[str, Matrix]
    rank: Matrix
    baseline_rank: Matrix
    top: int
    fresh: dict[str, Matrix] | None = None
    persons: Ints | None = None
    fresh_persons: Ints | None = None

    def by_person(self) -> Scored:
        """The same with persons as targets; a person's values are the means over its images.

        Images of one person are alike, and no independent trials (`fedassay.audits.stats.persons`). As many count
        at most as images did; each is shown by the image that came closest over its baseline.
        """
        if self.persons is None:
            return self
        gains = self.values["ssim"] - self.baseline_values["ssim"]
        order = np.lexsort((-gains, self.persons))
        shown = order[np.unique(self.persons[order], return_index=True)[1]]
        fresh = self.fresh
        if fresh is not None and self.fresh_persons is not None:
            fresh = {name: mean_by(values, self.fresh_persons) for name, values in fresh.items()}
        return Scored(
            self.truth[shown],
            self.images[shown],
            self.baseline[shown],
            {name: mean_by(values, self.persons) for name, values in self.values.items()},
            {name: mean_by(values, self.persons) for name, values in self.baseline_values.items()},
            mean_by(self.rank, self.persons),
            mean_by(self.baseline_rank, self.persons),
            len(shown) if self.top == len(self.truth) else min(self.top, len(shown)),
            fresh,
        )


def private_truth(context: AuditContext, near_duplicates: float) -> Truth:
    """The private images, and fresh ones, without those most similar to an attacker image.

    Args:
        context: The audit's context; its attacker records must exist.
        near_duplicates: Share of the private images to drop, by their highest SSIM to an attacker image;
            fresh images above the same similarity are dropped too. Persons are dropped whole or not at all.
    """
    images = np.concatenate([client.images for client in context.data.clients])
    owner = [(client.name, row) for client in context.data.clients for row in range(len(client))]
    # Comparing images is the dear part: no more fresh ones than private ones.
    test = context.data.test
    drawn = control_seeds(context, "reconstruction", "fresh").numpy().permutation(len(test))[: len(images)]
    fresh = test.images[np.sort(drawn)]
    with context.io.progress.step("near duplicates") as advance:
        both = np.concatenate([images, fresh])
        found = most_similar(both, context.data.attacker.images, device=context.io.device, progress=advance)
    private, others = found.values[: len(images)], found.values[len(images) :]
    groups = joined("private", context.data.clients).groups
    kept = np.flatnonzero(~_too_near(private, near_duplicates, groups))
    limit = private[kept].max(initial=-np.inf) if near_duplicates else np.inf
    far = _far_ones(others, limit, context.data.test, np.sort(drawn), groups is not None)
    return Truth(
        images[kept],
        fresh[far],
        tuple(owner[i] for i in kept),
        found.indices[kept],
        None if groups is None else groups[kept],
        None
        if groups is None or context.data.test.groups is None
        else context.data.test.groups[np.sort(drawn)][far],
    )


def _too_near(similar: Matrix, share: float, groups: Ints | None) -> Bools:
    """The records most similar to the attacker's, a share of all; persons whole, by their most similar record."""
    dropped = np.zeros(len(similar), np.bool_)
    most = round(share * len(similar))
    if groups is None:
        # A stable sort, so that ties are dropped alike everywhere.
        dropped[np.argsort(similar, kind="stable")[len(similar) - most :]] = True
        return dropped
    of = np.unique(groups, return_inverse=True)[1]
    nearest = np.full(int(of.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(nearest, of, similar)
    sizes = np.bincount(of)
    for person in np.argsort(-nearest, kind="stable"):
        if sizes[person] > most:
            break
        dropped |= of == person
        most -= int(sizes[person])
    return dropped


def _far_ones(similar: Matrix, limit: float, test: Records, rows: Ints, whole: bool) -> Bools:
    """Fresh images no more similar to the attacker's than private ones that are kept; persons whole."""
    near = similar > limit
    if whole and test.groups is not None:
        near = np.isin(test.groups[rows], test.groups[rows][near])
    return ~near


def paired_selections(
    reconstruction: Reconstruction,
    truth: Truth,
    attacker: Records,
    similarity: Similarity,
    top: int,
) -> dict[str, Scored]:
    """`all`, `attacker` (with two samples a vector or more) and `oracle` of paired reconstructions.

    Args:
        reconstruction: n vectors with k images each.
        truth: The private images that count.
        attacker: The adversary's own records.
        similarity: The metrics; searches run on its device too.
        top: Number of targets that `attacker` and `oracle` keep.
    """
    source = reconstruction.source
    position = truth.positions(source.senders, source.rows)
    used = np.flatnonzero(position >= 0)
    target = truth.images[position[used]]
    persons = None if truth.persons is None else truth.persons[position[used]]
    samples = reconstruction.images[used]
    near = nearest_feature(source.vectors[used], attacker, target, similarity)
    near_values = similarity.measure(target, near)
    first_values = similarity.measure(target, samples[:, 0])
    n, top = len(used), min(top, len(used))
    flat = np.zeros(n)
    found = {"all": Scored(target, samples[:, 0], near, first_values, near_values, flat, flat, n)}
    if samples.shape[1] > 1:
        agreement, medoid = group_agreement(samples, device=similarity.device)
        chosen = samples[np.arange(n), medoid]
        found["attacker"] = Scored(
            target,
            chosen,
            near,
            similarity.measure(target, chosen),
            near_values,
            agreement,
            agreement,
            top,
        )
    own = attacker.images[truth.closest[position[used]]]
    own_values = similarity.measure(target, own)
    found["oracle"] = Scored(
        target, samples[:, 0], own, first_values, own_values, first_values["ssim"], own_values["ssim"], top
    )
    return {name: replace(scored, persons=persons) for name, scored in found.items()}


def set_selections(
    images: Images,
    truth: Images,
    fresh: Images,
    attacker: Images,
    similarity: Similarity,
    top: int,
    rng: np.random.Generator,
) -> dict[str, Scored]:
    """`oracle_all` and `oracle` of reconstructions that belong to no particular record.

    Best-of-set matching grows with the size of the set, so reconstructions and attacker images are
    drawn down to one size. Even then smooth images match better than photographs, whoever they show;
    so fresh images are matched with the same reconstructions.

    Args:
        images: The reconstructions, shape (m, H, W, C).
        truth: Private images, shape (n, H, W, C).
        fresh: Images that the release knows nothing of.
        attacker: The adversary's own images: the baseline.
        similarity: The metrics; searches run on its device too.
        top: Number of private images that `oracle` keeps.
        rng: Draws the equal sets.
    """
    size = min(len(images), len(attacker))
    ours = images[np.sort(rng.permutation(len(images))[:size])]
    theirs = attacker[np.sort(rng.permutation(len(attacker))[:size])]
    closest = partial(most_similar, device=similarity.device)
    shown, baseline = ours[closest(truth, ours).indices], theirs[closest(truth, theirs).indices]
    others = similarity.measure(fresh, ours[closest(fresh, ours).indices])
    values, baseline_values = similarity.measure(truth, shown), similarity.measure(truth, baseline)
    rank, baseline_rank = values["ssim"], baseline_values["ssim"]
    kept = {"oracle_all": len(truth), "oracle": min(top, len(truth))}
    return {
        name: Scored(truth, shown, baseline, values, baseline_values, rank, baseline_rank, count, others)
        for name, count in kept.items()
    }
