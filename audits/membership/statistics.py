"""The informed adversary against noised statistics: released again and again on two neighbours.

Scores are the exact log-likelihood ratio: no adversary does better (Neyman and Pearson).

- `worst_case`: on the neighbours that are worst for the mechanism. Does the claim hold?
- `real_records`: on a client's real records, one of them in or out (or replaced, as the claim's adjacency has it).
  How much of what the claim allows does a real record use? Where the claim is for persons or clients, one of these
  is, with a few of its records.

Positive control: a tenth of the noise that the claim needs. Negative: both sides released from the same data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedassay.audits.claim.bounds import TOO_LITTLE, WITH_TOO_LITTLE
from fedassay.audits.membership.judging import Releases, Scores, informed_finding
from fedassay.audits.membership.separation import allowed_by
from fedassay.audits.stats.gdp_bound import LEAST
from fedassay.contracts.audit import AuditContext
from fedassay.contracts.method import OnFeatures
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyClaim
from fedassay.privacy.gaussian import mu_of
from fedassay.privacy.reruns import ALIKE, Experiment, exact_coordinates, llr_scores, null_scores
from fedassay.privacy.sensitivities import Neighbours
from fedassay.privacy.units import members
from fedassay.privacy.variants import distances, in_span, with_mu
from fedassay.records.record import Finding
from fedassay.support.errors import NotRunError
from fedassay.support.types import Ints, Matrix

_PAIRS = 20
"""Real records that are in question."""
_CELLS = 400_000_000
"""Numbers released at most, over all runs on real records."""


def worst_case(context: AuditContext, claim: PrivacyClaim, releases: int) -> Finding:
    """The noised statistic with the largest Gaussian-DP parameter, on the neighbours that are worst for it.

    Raises:
        NotRunError: Neighbours do not differ in what is released.
    """
    name, experiment = _mechanism(context)
    return _of_experiments(
        "worst_case", f"{name}, on the neighbours worst for it", [experiment], context, claim, releases
    )


def real_records(context: AuditContext, claim: PrivacyClaim, releases: int) -> Finding:
    """The statistic on a client's own records; a sample of them is asked about in turn.

    Raises:
        NotRunError: The statistic is not of the records' features, or no pair of neighbours can be made.
    """
    name, experiment = _mechanism(context)
    model = context.outcome.model
    if not isinstance(model, OnFeatures):
        raise NotRunError("the noised statistic is of features of the clients' own networks")
    if experiment.mu == np.inf:
        raise NotRunError("a field that one record changes leaves exactly; see worst_case")
    if not experiment.of_records:
        raise NotRunError("the noised statistic is of gradients or updates, and no record is one")
    owner, rows, blocks = _cell(context, claim, experiment)
    rng = context.seeds.numpy("membership", "informed")

    def encode(records: Records) -> Matrix:
        return np.asarray(
            records.features if model.transform is None else model.transform(records.features), np.float64
        )

    features, labels = encode(owner)[rows], owner.labels[rows]
    variants = []
    for number in rng.permutation(len(blocks))[:_PAIRS]:
        places = blocks[number]
        label = int(np.bincount(labels[places]).argmax())
        # Classes other than the one in question do not differ: they may be treated as one.
        binary = (labels != label).astype(np.int64)
        if claim.adjacency == "add_remove":
            rest = np.setdiff1d(np.arange(len(rows)), places)
            pair, apart = Neighbours(features[rest], binary[rest], features, binary), features[places]
        else:
            same = claim.adjacency == "replace_one_same_label"
            wanted = labels[places] if same else np.full(len(places), label)
            fitting = [np.flatnonzero((context.data.test.labels == each) == same) for each in wanted]
            if not all(each.size for each in fitting):
                continue
            other = context.data.test.take(np.array([rng.choice(each) for each in fitting]))
            changed, relabelled = features.copy(), binary.copy()
            changed[places] = encode(other)
            apart = np.concatenate([features[places], changed[places]])
            relabelled[places] = binary[places] if same else 1
            pair = Neighbours(changed, relabelled, features, binary)
        variants.append(in_span(_on(experiment, pair), apart))
    if not variants:
        raise NotRunError("no test record can stand in for one of the client's")
    width = sum(field.shape[1] for field in exact_coordinates(variants[0], rng)[0])
    size = int(min(releases, _CELLS // max(1, 2 * width)))
    units = f"{claim.unit}s" if claim.unit == "record" else f"{claim.unit}s of {ALIKE} records each"
    words = f"{name}, at {owner.name}, for {len(variants)} of {len(blocks)} real {units} in turn"
    return _of_experiments("real_records", words, variants, context, claim, size)


def _on(experiment: Experiment, pair: Neighbours) -> Experiment:
    """The mechanism on other neighbours, with the Gaussian-DP parameter that it has there."""
    moved = replace(experiment, neighbours=pair)
    steps = zip(distances(moved), moved.sigmas, strict=True)
    mu = float(np.sqrt(sum((step / sigma) ** 2 for step, sigma in steps if sigma > 0)))
    return replace(moved, mu=mu)


def _cell(context: AuditContext, claim: PrivacyClaim, experiment: Experiment) -> tuple[Records, Ints, list[Ints]]:
    """Records in one run of the mechanism: a class of the size that it was made for, or a client.

    Returns:
        The client's records, the rows of the cell, and each unit's places among the rows. A person or a client has
        `ALIKE` places there, the first of its records repeated where it has fewer: the mechanism weighs so many
        consecutive rows as one unit.
    """
    size = len(experiment.neighbours.features1)
    if claim.adjacency == "replace_one_same_label" and claim.unit == "record":
        for client in context.data.clients:
            for label in np.unique(client.labels):
                rows = np.flatnonzero(client.labels == label)
                if len(rows) == size:
                    return client, rows, _blocks(size, 1)
    held = [client for client in context.data.clients if len(client) >= 2]
    if not held:
        raise NotRunError("no client has two records")
    smallest = min(held, key=len)
    if claim.unit == "record":
        return smallest, np.arange(len(smallest)), _blocks(len(smallest), 1)
    one = np.zeros(len(smallest), np.int64)
    groups = one if claim.unit == "client" else smallest.groups
    units = members(np.arange(len(smallest)) if groups is None else groups)
    rows = np.concatenate([np.resize(places, ALIKE) for places in units])
    return smallest, rows, _blocks(len(units), ALIKE)


def _blocks(units: int, each: int) -> list[Ints]:
    return list(np.arange(units * each).reshape(units, each))


def _mechanism(context: AuditContext) -> tuple[str, Experiment]:
    name, experiment = max(context.outcome.mechanisms.items(), key=lambda item: item[1].mu)
    if experiment.mu == 0:
        raise NotRunError(f"neighbours do not differ in what is released ({name})")
    return name, experiment


def _of_experiments(
    selection: str,
    words: str,
    variants: Sequence[Experiment],
    context: AuditContext,
    claim: PrivacyClaim,
    releases: int,
) -> Finding:
    """Release every variant equally often on both sides, and both controls likewise.

    The variant that is protected least is released as often by itself where its part of the releases is small.
    """
    each = max(2, releases // len(variants))

    def parts(what: str, used: Sequence[Experiment]) -> list[Scores]:
        rng = context.seeds.numpy("membership", selection, what)
        return [llr_scores(variant, reruns=each, rng=rng) for variant in used]

    allowed = allowed_by(claim, replaced=False)
    weak = [with_mu(variant, TOO_LITTLE * mu_of(claim.epsilon, claim.delta)) for variant in variants]
    rng = context.seeds.numpy("membership", selection, "negative")
    same = [null_scores(variant, reruns=each, rng=rng) for variant in variants]
    half = each // 2  # of every record's releases: records differ in how far they can move the statistic
    silent = _joined([(zero[:half], zero[half : 2 * half]) for zero in same])
    audited = parts("audited", variants)
    # The record that its noise protects least, known before anything is drawn.
    least = int(np.argmax([variant.mu for variant in variants]))
    worst = audited[least]
    if each < LEAST <= releases:
        # Its part of the releases is too small for the normal law of its scores to bound epsilon.
        rng = context.seeds.numpy("membership", selection, "protected least")
        worst = llr_scores(variants[least], reruns=releases, rng=rng)
    scored = Releases(
        selection,
        words,
        _joined(audited),
        (_joined(parts("positive", weak)), f"the same mechanism {WITH_TOO_LITTLE}"),
        (silent, "the same with the record out on both sides"),
        "releases are scored by their exact likelihood ratio, before projection or rounding; all other records "
        "and the noise's law are known; the Gaussian-DP estimate of epsilon, of the record protected least, rests "
        "on normal scores, as these are",
        gaussian=worst,
    )
    return informed_finding(scored, allowed, context)


def _joined(parts: Sequence[Scores]) -> Scores:
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
