"""The informed adversary: it knows every record of a client but one.

- `worst_case`: noised statistics that the method names, on the neighbours that are worst for them, released again
  and again and scored by the exact log-likelihood ratio: no adversary does better (Neyman and Pearson).
- `real_records`: the same on a client's real records, one of them in or out (or replaced, as the claim's adjacency
  has it). How much of what the claim allows does a real record use?
- `differencing`: releases without noise. The adversary runs the method itself on both possibilities and
  takes the one whose messages are nearer to the real ones: differencing for sums, consistency for the rest.

The first two need a claim, whose (epsilon, delta) is for just these neighbours; their trials are independent
releases. Positive controls: a tenth of the noise that the claim needs; the features themselves. Negative ones:
both sides released from the same data; a release of a third data set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.claim_reruns import Released, what_leaves
from fedassay.audits.membership_roc import (
    Allowed,
    Told,
    allowed_by,
    baseline,
    metrics,
    roc_series,
    told_in_many_releases,
)
from fedassay.audits.membership_verdict import judge
from fedassay.errors import FedassayError, NotRunError
from fedassay.lab import Lab
from fedassay.linear_head import FeatureModel
from fedassay.privacy.gaussian import mu_of
from fedassay.privacy.reruns import Experiment, llr_scores
from fedassay.privacy.sensitivities import Neighbours
from fedassay.privacy.variants import distances, with_mu
from fedassay.record import Controls, Finding, NegativeControl, PositiveControl, Verdict
from fedassay.release import PrivacyClaim
from fedassay.shadow import joined
from fedassay.task import Records

Matrix = NDArray[np.float64]
Scores = tuple[Matrix, Matrix]

_PAIRS = 20
"""Real records that are in question."""
_TOO_LITTLE = 10.0
_CELLS = 400_000_000
"""Numbers released at most, over all runs on real records."""


def informed_findings(lab: Lab, *, trials: int, releases: int) -> list[Finding]:
    """What the informed adversary shows about a lab's outcome; no finding where it was not asked for.

    Args:
        lab: The outcome, the records and the method.
        trials: Of `differencing`.
        releases: On either side, of the other two.
    """
    claim = lab.outcome.transcript.claim
    if isinstance(claim, PrivacyClaim):
        if not releases:
            return []
        if not lab.outcome.mechanisms:
            return [
                _not_run("worst_case", "the method names no noised statistic that could be released by itself")
            ]
        return [
            _guarded("worst_case", lambda: _worst_case(lab, claim, releases)),
            _guarded("real_records", lambda: _real_records(lab, claim, releases)),
        ]
    return [_guarded("differencing", lambda: _differencing(lab, trials))] if trials else []


def _guarded(selection: str, find: Callable[[], Finding]) -> Finding:
    try:
        return find()
    except NotRunError as error:
        return _not_run(selection, str(error))


def _worst_case(lab: Lab, claim: PrivacyClaim, releases: int) -> Finding:
    name, experiment = _mechanism(lab)
    return _of_experiments(
        "worst_case", f"{name}, on the neighbours worst for it", [experiment], lab, claim, releases
    )


def _real_records(lab: Lab, claim: PrivacyClaim, releases: int) -> Finding:
    name, experiment = _mechanism(lab)
    model = lab.outcome.model
    if not isinstance(model, FeatureModel):
        raise NotRunError("the noised statistic is of features of the clients' own networks")
    if experiment.mu == np.inf:
        raise NotRunError("a field that one record changes leaves exactly; see worst_case")
    owner, rows = _cell(lab, claim, experiment)
    rng = lab.task.seeds.numpy("membership", "informed")

    def encode(records: Records) -> Matrix:
        return np.asarray(
            records.features if model.transform is None else model.transform(records.features), np.float64
        )

    features, labels = encode(owner)[rows], owner.labels[rows]
    variants = []
    for place in rng.permutation(len(rows))[:_PAIRS]:
        label = int(labels[place])
        # Classes other than the one in question do not differ: they may be told as one.
        binary = (labels != label).astype(np.int64)
        if claim.adjacency == "add_remove":
            rest = np.arange(len(rows)) != place
            pair = Neighbours(features[rest], binary[rest], features, binary)
        else:
            same = claim.adjacency == "replace_one_same_label"
            fitting = np.flatnonzero((lab.task.test.labels == label) == same)
            if not fitting.size:
                continue
            other = lab.task.test.take(rng.permutation(fitting)[:1])
            changed, relabelled = features.copy(), binary.copy()
            changed[place] = encode(other)[0]
            relabelled[place] = 0 if same else 1
            pair = Neighbours(changed, relabelled, features, binary)
        variants.append(_on(experiment, pair))
    if not variants:
        raise NotRunError("no test record can stand in for one of the client's")
    width = sum(flat(field).shape[1] for flat, field in zip(experiment.flatten, _exact(variants[0]), strict=True))
    size = int(min(releases, _CELLS // max(1, 2 * width)))
    words = f"{name}, at {owner.name}, for {len(variants)} of {len(rows)} real records in turn"
    return _of_experiments("real_records", words, variants, lab, claim, size)


def _exact(experiment: Experiment) -> tuple[Matrix, ...]:
    pair = experiment.neighbours
    off = (0.0,) * len(experiment.sigmas)
    return experiment.release(pair.features1, pair.labels1, off, np.random.default_rng(0), 1)


def _on(experiment: Experiment, pair: Neighbours) -> Experiment:
    """The mechanism on other neighbours, with the Gaussian-DP parameter that it has there."""
    moved = replace(experiment, neighbours=pair)
    steps = zip(distances(moved), moved.sigmas, strict=True)
    mu = float(np.sqrt(sum((step / sigma) ** 2 for step, sigma in steps if sigma > 0)))
    return replace(moved, mu=mu)


def _cell(lab: Lab, claim: PrivacyClaim, experiment: Experiment) -> tuple[Records, NDArray[np.int64]]:
    """The records that one run of the mechanism sees: a class whose count it was made for, or a client."""
    size = len(experiment.neighbours.features1)
    if claim.adjacency == "replace_one_same_label":
        for client in lab.task.clients:
            for label in np.unique(client.labels):
                rows = np.flatnonzero(client.labels == label)
                if len(rows) == size:
                    return client, rows
    held = [client for client in lab.task.clients if len(client) >= 2]
    if not held:
        raise NotRunError("no client has two records")
    smallest = min(held, key=len)
    return smallest, np.arange(len(smallest))


def _mechanism(lab: Lab) -> tuple[str, Experiment]:
    name, experiment = max(lab.outcome.mechanisms.items(), key=lambda item: item[1].mu)
    if experiment.mu == 0:
        raise NotRunError(f"neighbours do not differ in what is released ({name})")
    return name, experiment


def _of_experiments(
    selection: str, words: str, variants: Sequence[Experiment], lab: Lab, claim: PrivacyClaim, releases: int
) -> Finding:
    """Release every variant equally often on both sides, and both controls likewise."""
    each = max(2, releases // len(variants))

    def parts(what: str, used: Sequence[Experiment]) -> list[Scores]:
        rng = lab.task.seeds.numpy("membership", selection, what)
        return [llr_scores(variant, reruns=each, rng=rng) for variant in used]

    allowed = allowed_by(claim, replaced=False)
    weak = [with_mu(variant, _TOO_LITTLE * mu_of(claim.epsilon, claim.delta)) for variant in variants]
    same = [zero for zero, _ in parts("negative", variants)]
    half = each // 2  # of every record's releases: records differ in how far they can move the statistic
    silent = _joined([(zero[:half], zero[half : 2 * half]) for zero in same])
    audited = parts("audited", variants)
    # The record that its noise protects least, known before anything is drawn.
    worst = audited[int(np.argmax([variant.mu for variant in variants]))]
    return _finding(
        selection,
        words,
        lab,
        _joined(audited),
        (_joined(parts("positive", weak)), "the same with a tenth of the noise that the claim needs"),
        (silent, "the same with the record out on both sides"),
        allowed,
        "releases are scored by their exact likelihood ratio, before projection or rounding; all other records "
        "and the noise's law are known; the Gaussian-DP estimate of epsilon, of the record protected least, rests "
        "on normal scores, as these are",
        gaussian=worst,
    )


def _joined(parts: Sequence[Scores]) -> Scores:
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _differencing(lab: Lab, trials: int) -> Finding:
    """Exact releases: whose simulated messages are nearer, those with the record or those with another?"""
    if lab.game is None:
        raise NotRunError("no record outside the clients shares a label with theirs")
    if lab.outcome.generators:
        raise NotRunError("a generator would have to be trained anew three times in every trial")
    rng = lab.task.seeds.numpy("membership", "differencing")
    held = [client for client in lab.task.clients if len(client) >= 2]
    if not held:
        raise NotRunError("no client has two records")
    seeds = lab.task.seeds.child("membership", "differencing")
    owner = min(held, key=len)
    index = next(i for i, client in enumerate(lab.task.clients) if client.name == owner.name)

    def released(records: Records, *path: str | int) -> Released:
        clients = [client.take(np.zeros(0, np.int64)) for client in lab.task.clients]
        clients[index] = records
        try:
            return what_leaves(lab.rerun(clients, seeds.child(*path)), owner.name)
        except FedassayError as error:
            raise NotRunError(f"the method cannot be run on {owner.name} alone: {error}") from None

    kinds: dict[str, list[list[float]]] = {name: [[], []] for name in ("audited", "positive", "negative")}
    with lab.task.progress.step("informed adversary") as advance:
        for trial in range(trials):
            advance(trial, trials)
            place = int(rng.integers(len(owner)))
            fitting = np.flatnonzero(lab.task.test.labels == owner.labels[place])
            if fitting.size < 2:
                continue
            chosen = rng.permutation(fitting)[:2]
            rest = owner.take(np.flatnonzero(np.arange(len(owner)) != place))
            inside, outside, third = (
                joined(owner.name, [rest, one])
                for one in (owner.take(np.array([place])), *(lab.task.test.take(row[None]) for row in chosen))
            )
            side = trial % 2
            real = released((outside, inside)[side], "real", trial)
            # The adversary does not know the run's own streams.
            guesses = [released(each, "guess", trial) for each in (outside, inside)]
            kinds["audited"][side].append(_nearer(real, *guesses))
            raw = [{"features": each.features.astype(np.float64).ravel()} for each in (outside, inside)]
            kinds["positive"][side].append(_nearer(raw[side], *raw))
            kinds["negative"][side].append(_nearer(released(third, "real", trial), *guesses))
    if min(len(part) for part in kinds["audited"]) < 4:
        raise NotRunError(f"{trials} trials are too few, or no test record can stand in for one of {owner.name}'s")
    found = {name: (np.array(sides[0]), np.array(sides[1])) for name, sides in kinds.items()}
    return _finding(
        "differencing",
        f"what {owner.name} sends, {len(owner)} records",
        lab,
        found["audited"],
        (found["positive"], "the same client's features, sent as they are"),
        (found["negative"], "releases that hold neither of the two records"),
        None,
        "all other records, both candidates and the method are known; the run's random streams are not",
    )


def _nearer(real: Released, outside: Released, inside: Released) -> float:
    """By how much messages are nearer to the simulation with the record, relative to how far the two are apart."""
    with_it, without_it, apart = (
        _distance(*pair) for pair in ((real, inside), (real, outside), (inside, outside))
    )
    return (without_it - with_it) / apart if apart > 0 else 0.0


def _distance(first: Released, second: Released) -> float:
    """Sum over the fields of squared distances, each relative to the field's own size."""
    total = 0.0
    for name in first.keys() | second.keys():
        one, two = first.get(name, np.zeros(0)), second.get(name, np.zeros(0))
        if one.shape != two.shape:
            total += 1.0
            continue
        size = float(one @ one + two @ two)
        total += float(((one - two) ** 2).sum()) / size if size > 0 else 0.0
    return total


def _finding(
    selection: str,
    words: str,
    lab: Lab,
    audited: Scores,
    positive: tuple[Scores, str],
    negative: tuple[Scores, str],
    allowed: Allowed | None,
    assumption: str,
    gaussian: Scores | None = None,
) -> Finding:
    delta = 0.0 if allowed is None else allowed.delta

    def told(scores: Scores, what: str, normal: Scores | None = None) -> Told:
        rng = lab.task.seeds.numpy("membership", selection, "halves", what)
        return told_in_many_releases(*scores, rng, delta=delta, tests=lab.bounds, gaussian=normal)

    ours, leaks, silent = (
        told(audited, "ours", gaussian),
        told(positive[0], "positive"),
        told(negative[0], "negative"),
    )
    verdict: Verdict
    verdict, reason = judge(ours, leaks, silent, allowed)
    adjacency = (
        "for the claim's neighbours" if allowed is not None else "for one replaced record of the same label"
    )
    return Finding(
        audit="membership",
        attack="membership",
        source="informed",
        selection=selection,
        metrics=metrics(ours, adjacency),
        baseline=baseline(allowed),
        controls=Controls(
            positive=PositiveControl(
                release=positive[1], caught=leaks.beats, value=leaks.value, n=len(leaks.inside) * 2, detail="AUC"
            ),
            negative=NegativeControl(
                release=negative[1],
                flagged=silent.beats,
                value=silent.value,
                n=len(silent.inside) * 2,
                detail="AUC",
            ),
        ),
        verdict=verdict,
        reason=f"{words}: {reason}",
        assumptions=(assumption,),
        series={"roc": roc_series(ours)},
    )


def _not_run(selection: str, reason: str) -> Finding:
    return Finding(
        audit="membership",
        attack="membership",
        source="informed",
        selection=selection,
        verdict="not_run",
        reason=reason,
    )
